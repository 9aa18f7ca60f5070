"""Any module over several ranks: each holds some of its parameters (S29, S24).

The ranks run the same Python, the person's own. An operation is carried out by the rank
that holds its parameters; the others carry it out on the meta device, so that they know
shapes and go on. What an operation needs from another rank is sent. So modules that are
used twice, skip connections and branches on data work as they are, and with several
micro-batches a rank works on the next while others work on the last, as in GPipe.

To use, on every rank alike::

    placed = place(net, balance(net, (x,), num_parts=2), group=group, device=device)
    optimizer = torch.optim.SGD(placed.parameters(), lr=0.1)
    losses = [placed.run(lambda: criterion(net(x), y)) for x, y in microbatches]
    placed.backward(losses)
"""

from workbench.strategies.placed.partition import balance, cut_points
from workbench.strategies.placed.run import Placed, place

__all__ = ["Placed", "balance", "cut_points", "place"]
