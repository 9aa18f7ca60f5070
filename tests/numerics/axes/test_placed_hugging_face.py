"""A Hugging Face GPT-2, untouched, over two ranks equals one process."""

from typing import Any

import pytest
import torch

from workbench.layout import Layout
from workbench.strategies.placed import balance, place
from workbench.testing.ranks import Place, run_ranks

transformers = pytest.importorskip("transformers", reason="transformers is optional")


def made() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50,
        n_positions=32,
        n_embd=16,
        n_layer=4,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config).double()


TOKENS = torch.arange(24).view(2, 12)


def gradients(net: torch.nn.Module) -> dict[str, Any]:
    return {
        name: parameter.grad.numpy()
        for name, parameter in net.named_parameters()
        if parameter.grad is not None
    }


def over_ranks(place_: Place) -> tuple[float, dict[str, Any]]:
    group = place_.group.ranks(Layout(pp=2)).mesh.get_group()
    net = made()
    placed = place(net, balance(net, (TOKENS,), num_parts=2), group=group)
    loss = placed.run(lambda: net(input_ids=TOKENS, labels=TOKENS).loss)
    value = placed.value(loss).item()
    placed.backward([loss])
    return value, gradients(net)


def test_loss_and_gradients_equal_one_process() -> None:
    net = made()
    loss = net(input_ids=TOKENS, labels=TOKENS).loss
    loss.backward()

    (first_loss, first), (second_loss, second) = run_ranks(over_ranks)

    assert first_loss == second_loss == pytest.approx(loss.item(), abs=1e-12)
    found = first | second
    assert set(found) == set(gradients(net))
    assert not set(first) & set(second)
    for name, value in gradients(net).items():
        # The same operations in the same order, on other ranks.
        assert abs(found[name] - value).max() < 1e-12, name
