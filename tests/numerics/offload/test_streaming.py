"""A streamed net trains exactly as a resident one, two units at a time."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from workbench.errors import OffloadError
from workbench.offload.host_units import Unit
from workbench.offload.lanes import Throttle
from workbench.offload.streaming import Streamed, StreamEvent, Streaming
from workbench.offload.tiers import DiskTier, HostTier, Tier

CPU = torch.device("cpu")
WIDTH = 32


class Layer(nn.Module):
    """A pre-norm residual MLP, with dropout where asked."""

    def __init__(self, width: int = WIDTH, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))


def net(num_layers: int, dtype=torch.float32, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [Layer(dropout=dropout) for _ in range(num_layers)]
    return nn.Sequential(
        nn.Embedding(50, WIDTH), *layers, nn.Linear(WIDTH, 50, bias=False)
    ).to(dtype)


def units(module: nn.Sequential) -> list[Unit]:
    return [Unit(name=str(index), module=part) for index, part in enumerate(module)]


def adamw(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, fused=True)


def streaming(tier: Tier | None = None, **kwargs) -> Streaming:
    tier = tier or HostTier()
    kwargs = {"states": tier, "optimizer_of": adamw} | kwargs
    return Streaming(weights=tier, activations=tier, **kwargs)


def batches(step: int, num_microbatches: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(50, (4 * num_microbatches, 8), generator=generator)
    return tokens.tensor_split(num_microbatches)


def loss_of(parts) -> Callable[[torch.Tensor, int], torch.Tensor]:
    def loss(logits: torch.Tensor, number: int) -> torch.Tensor:
        return nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), parts[number].flatten(), reduction="sum"
        )

    return loss


def plain_losses(module, num_steps, num_microbatches, optimizer_of=adamw):
    optimizer = optimizer_of(list(module.parameters()))
    losses = []
    for step in range(num_steps):
        parts = batches(step, num_microbatches)
        loss = loss_of(parts)
        for number, part in enumerate(parts):
            value = loss(module(part), number)
            value.backward()
            losses.append(value.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def streamed_losses(streamed, num_steps, num_microbatches, *, overlapped=True):
    losses = []
    for step in range(num_steps):
        parts = batches(step, num_microbatches)
        made = streamed.forward_backward(parts, loss_of(parts), update=overlapped)
        losses += [value.item() for value in made]
        if not overlapped:
            streamed.update()
    streamed.settle()
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "how", [{}, {"checkpoint_every": 4}, {"recompute": False}], ids=str
)
def test_gradients_of_12_layers_equal_autograd_bit_for_bit(dtype, how) -> None:
    plain = net(12, dtype)
    parts = batches(0, 2)
    for number, part in enumerate(parts):
        loss_of(parts)(plain(part), number).backward()

    streamed = Streamed(units(net(12, dtype)), CPU, streaming(**how))
    streamed.forward_backward(parts, loss_of(parts))

    gradients = streamed.gradients()
    for name, parameter in plain.named_parameters():
        assert torch.equal(gradients[name], parameter.grad), name
    assert streamed.window.most_resident == 2
    streamed.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("overlapped", [True, False])
def test_losses_of_30_steps_equal_the_plain_run(dtype, overlapped) -> None:
    plain = plain_losses(net(3, dtype), 30, 2)

    streamed = Streamed(units(net(3, dtype)), CPU, streaming())

    assert streamed_losses(streamed, 30, 2, overlapped=overlapped) == plain
    streamed.close()


def test_states_on_disk_change_nothing(tmp_path) -> None:
    plain = plain_losses(net(3), 10, 1)
    disk = DiskTier(tmp_path)

    streamed = Streamed(units(net(3)), CPU, streaming(states=disk))

    assert streamed_losses(streamed, 10, 1) == plain
    num_bytes = sum(p.nbytes for p in streamed.parameters().values())
    assert disk.used_bytes == 2 * num_bytes
    streamed.close()


def test_everything_on_disk_changes_nothing(tmp_path) -> None:
    plain = plain_losses(net(3), 10, 1)

    streamed = Streamed(units(net(3)), CPU, streaming(DiskTier(tmp_path)))

    assert streamed_losses(streamed, 10, 1) == plain
    streamed.close()


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
        lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
        lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
    ],
)
def test_other_optimizers_keep_their_states_on_the_host(optimizer_of) -> None:
    plain = plain_losses(net(2), 5, 1, optimizer_of)
    host = HostTier()

    how = streaming(states=host, optimizer_of=optimizer_of)
    streamed = Streamed(units(net(2)), CPU, how)

    assert streamed_losses(streamed, 5, 1) == plain
    num_bytes = sum(p.nbytes for p in streamed.parameters().values())
    # Every optimizer above has one state of the parameter's size.
    assert host.used_bytes == num_bytes
    streamed.close()


def test_dropout_draws_the_same_numbers_again() -> None:
    torch.manual_seed(7)
    plain = plain_losses(net(3, dropout=0.2), 5, 1)

    torch.manual_seed(7)
    streamed = Streamed(units(net(3, dropout=0.2)), CPU, streaming(checkpoint_every=2))

    assert streamed_losses(streamed, 5, 1) == plain
    streamed.close()


@pytest.mark.parametrize("recompute", [True, False])
def test_tied_embedding_and_head_equal_the_plain_run(recompute) -> None:
    plain = net(2)
    plain[3].weight = plain[0].weight
    expected = plain_losses(plain, 10, 3)

    other = net(2)
    other[3].weight = other[0].weight
    how = streaming(tied={"3.weight": "0.weight"}, recompute=recompute)
    streamed = Streamed(units(other), CPU, how)

    assert streamed_losses(streamed, 10, 3) == expected
    streamed.close()


def test_device_bytes_do_not_depend_on_depth_and_host_bytes_are_linear() -> None:
    window, host = {}, {}
    for depth in (12, 48, 192):
        tier = HostTier()
        streamed = Streamed(units(net(depth)), CPU, streaming(tier))
        streamed_losses(streamed, 1, 1)
        window[depth] = (streamed.window.most_resident, streamed.window.unit_bytes)
        host[depth] = tier.used_bytes
        streamed.close()

    assert window[12] == window[48] == window[192]
    assert host[192] - host[48] == 4 * (host[48] - host[12])


def test_the_next_copy_is_issued_before_this_unit_ends() -> None:
    events: list[StreamEvent] = []
    how = streaming(record=events.append)
    streamed = Streamed(units(net(12)), CPU, how)

    streamed_losses(streamed, 1, 1)

    order = [(event.moment, event.unit) for event in events]
    forward = order[: order.index(("compute ends", 13))]
    for unit in range(13):
        issued = forward.index(("copy issued", unit + 1))
        assert issued < forward.index(("compute ends", unit))
    backward = order[order.index(("compute ends", 13)) :]
    for unit in range(11, 0, -1):
        issued = backward.index(("copy issued", unit - 1))
        assert issued < backward.index(("compute ends", unit))
    streamed.close()


def test_bfloat16_work_copies_have_float32_masters() -> None:
    streamed = Streamed(units(net(2)), CPU, streaming(work_dtype=torch.bfloat16))

    losses = streamed_losses(streamed, 30, 1)

    assert {p.dtype for p in streamed.parameters().values()} == {torch.float32}
    assert sum(losses[-5:]) < sum(losses[:5])
    streamed.close()


def test_a_host_that_is_too_small_is_refused_before_anything_is_made() -> None:
    tier = HostTier(capacity_bytes=100_000)

    with pytest.raises(OffloadError, match=r"host tier has 97.7 KiB left, .* needed"):
        Streamed(units(net(12)), CPU, streaming(tier))

    assert tier.used_bytes == 0


def test_a_parameter_of_two_units_must_be_named() -> None:
    module = net(1)
    module[2].weight = module[0].weight

    with pytest.raises(OffloadError, match=r"2\.weight and 0\.weight are one"):
        Streamed(units(module), CPU, streaming())


def test_a_slow_link_changes_nothing_but_time() -> None:
    plain = plain_losses(net(2), 3, 1)

    how = streaming(throttle=Throttle(bytes_per_s=1e7))
    streamed = Streamed(units(net(2)), CPU, how)

    assert streamed_losses(streamed, 3, 1) == plain
    streamed.close()
