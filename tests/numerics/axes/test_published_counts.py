"""Counters against what papers say is sent: S04 (serving) and S38 (1.5D product)."""

import itertools
from typing import Any

import pytest
import torch
from torch.nn import functional

from workbench.errors import LayoutError
from workbench.layout import Layout
from workbench.model.presets import model
from workbench.strategies import nets, tensor
from workbench.strategies.movement import balanced_sizes
from workbench.strategies.pieces import piece_span
from workbench.strategies.serving import Server
from workbench.strategies.spatial import average_gradients
from workbench.testing.ranks import Place, run_ranks

# S04 ------------------------------------------------------------------------------

LAYERS, HIDDEN, PROMPT, ANSWER, VOCABULARY = 4, 32, 12, 5, 50


def whole_net(family: str) -> nets.Decoder:
    spec = model(
        family,
        hidden=HIDDEN,
        num_layers=LAYERS,
        num_heads=4,
        vocab_size=VOCABULARY,
        tokens_per_sample=PROMPT + ANSWER,
    )
    with torch.device("meta"):
        net = nets.build(spec)
    nets.materialize(net, torch.device("cpu"), seed=2)
    with torch.no_grad():
        # Larger values make logits differ enough for the likeliest to be plain.
        for parameter in net.parameters():
            parameter.mul_(4)
    return net


def prompt() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(0, VOCABULARY, (1, PROMPT))


def serial_answer(family: str) -> list[int]:
    """Without keeping anything: the whole text through the whole net each time."""
    net, text = whole_net(family), prompt()
    for _ in range(ANSWER):
        with torch.no_grad():
            token = net(text)[:, -1].argmax(-1, keepdim=True)
        text = torch.cat((text, token), dim=1)
    return text[0, PROMPT:].tolist()


def serve(place: Place, layout: Layout) -> dict[str, Any]:
    ranks = place.group.ranks(layout)
    found: dict[str, Any] = {}
    for family in ("llama", "gpt"):
        answer = Server(whole_net(family), ranks).answer(prompt(), num_tokens=ANSWER)
        found[family] = answer[0].tolist()
        if family == "llama":
            # The counters are asked of one request.
            found["table"] = {
                key: (traffic.count, traffic.payload_bytes, traffic.sent_bytes)
                for key, traffic in place.group.accounting.snapshot().items()
            }
    return found


LAYOUTS = [Layout(tp=2), Layout(tp=4), Layout(pp=2), Layout(pp=2, tp=2)]


@pytest.fixture(scope="module")
def served() -> dict[Layout, list[dict[str, Any]]]:
    return {
        layout: run_ranks(serve, layout, num_ranks=layout.num_ranks)
        for layout in LAYOUTS
    }


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_answers_equal_serial(
    served: dict[Layout, list[dict[str, Any]]], layout: Layout
) -> None:
    expected = {family: serial_answer(family) for family in ("llama", "gpt")}

    for result in served[layout]:
        assert {family: result[family] for family in expected} == expected


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_serving_sends_the_papers_bytes(
    served: dict[Layout, list[dict[str, Any]]], layout: Layout
) -> None:
    tp, pp = layout.tp, layout.pp
    passes = {"prefill": (1, PROMPT), "decode": (ANSWER - 1, ANSWER - 1)}

    for rank, result in enumerate(served[layout]):
        stage = layout.coordinates(rank)["pp"]  # type: ignore[index]
        per_pass = balanced_sizes(LAYERS, pp)[stage] * 2 + (stage == 0)
        table = result["table"]
        for phase, (count, tokens) in passes.items():
            payload = tokens * HIDDEN * 4
            if tp > 1:
                assert table[phase, "all_reduce", "tp"] == (
                    per_pass * count,
                    per_pass * payload,
                    per_pass * payload * 2 * (tp - 1) // tp,
                )
            if pp > 1 and stage < pp - 1:
                assert table[phase, "send", "pp"] == (count, payload, payload)
            if tp > 1 and stage == pp - 1:
                padded = tp * -(-VOCABULARY // tp) * 4
                assert table[phase, "all_gather", "tp"][:2] == (count, count * padded)


def test_nine_and_forty_five_all_reduces(
    served: dict[Layout, list[dict[str, Any]]],
) -> None:
    """The numbers of the paper's form: 13,824 bytes prefill, 18,432 a request."""
    for result in served[Layout(tp=4)]:
        prefill = result["table"]["prefill", "all_reduce", "tp"]
        decode = result["table"]["decode", "all_reduce", "tp"]

        assert prefill[:2] == (9, 13_824)
        assert (prefill[0] + decode[0], prefill[1] + decode[1]) == (45, 18_432)


def serve_over_dp(place: Place) -> str:
    try:
        Server(whole_net("gpt"), place.group.ranks(Layout(dp=2)))
    except LayoutError as error:
        return str(error)
    return ""


def test_serving_over_another_axis_is_refused() -> None:
    assert run_ranks(serve_over_dp)[0] == (
        "serving runs over tp and pp, not over dp\nhint: one server per replica"
    )


# S38 ------------------------------------------------------------------------------

WIDTHS, BATCH = (64, 32, 16), 16


def weights() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [
        torch.randn(after, before, dtype=torch.float64)
        for before, after in itertools.pairwise(WIDTHS)
    ]


def samples() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(BATCH, WIDTHS[0], dtype=torch.float64)


def serial_gradients() -> list[torch.Tensor]:
    held = [w.requires_grad_() for w in weights()]
    y = samples()
    for w in held:
        y = functional.linear(y, w).tanh()
    y.square().sum().backward()
    return [w.grad for w in held if w.grad is not None]


def product(place: Place, rows: int, columns: int) -> tuple[float, int]:
    """Largest gap of the gradients, and words of 8 bytes that this rank sent."""
    mesh = place.group.ranks(Layout(dp=columns, tp=rows)).mesh
    names = mesh.mesh_dim_names or ()
    row_rank = mesh.get_local_rank("tp") if rows > 1 else 0
    column_rank = mesh.get_local_rank("dp") if columns > 1 else 0
    held = []
    for w in weights():
        start, stop = piece_span(len(w), rows, row_rank)
        held.append(torch.nn.Parameter(w[start:stop].clone()))
    y = samples().chunk(columns)[column_rank]
    with place.group.phase("step"):
        for w, width in zip(held, WIDTHS[1:], strict=True):
            if rows > 1:
                group = mesh.get_group("tp")
                y = tensor.row_product(y, w, num_outputs=width, group=group).tanh()
            else:
                y = functional.linear(y, w).tanh()
        y.square().sum().backward()
        if "dp" in names:
            average_gradients(held, [mesh.get_group("dp")])
    gap = 0.0
    for w, whole in zip(held, serial_gradients(), strict=True):
        start, stop = piece_span(len(whole), rows, row_rank)
        assert w.grad is not None
        gap = max(gap, (w.grad * columns - whole[start:stop]).abs().max().item())
    sent = sum(
        traffic.sent_bytes
        for (phase, _, _), traffic in place.group.accounting.snapshot().items()
        if phase == "step"
    )
    return gap, sent // 8


def words(rows: int, columns: int) -> int:
    """The form of Gholami et al.; whole for these sizes."""
    batch = BATCH // columns
    forward = sum(batch * (rows - 1) * d // rows for d in WIDTHS[1:])
    backward = sum(2 * batch * (rows - 1) * d // rows for d in WIDTHS[1:-1])
    sizes = [a * b for a, b in itertools.pairwise(WIDTHS)]
    gradients = sum(2 * (columns - 1) * size // (columns * rows) for size in sizes)
    return forward + backward + gradients


@pytest.mark.parametrize(
    ("rows", "columns", "published"), [(2, 2, 1_728), (1, 4, 3_840), (4, 1, 1_344)]
)
def test_grid_product_sends_the_published_words(
    rows: int, columns: int, published: int
) -> None:
    results = run_ranks(product, rows, columns, num_ranks=4)

    assert words(rows, columns) == published
    for gap, sent in results:
        assert sent == published
        # Double precision sums of 16 to 64 terms.
        assert gap < 1e-12
