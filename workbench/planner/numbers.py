"""A model reduced to the numbers that formulas read, and which stage holds what."""

from dataclasses import dataclass

from workbench.layout.layout import TWO_CHUNK_SCHEDULES
from workbench.model import Block, ModelSpec, Parameter
from workbench.planner.case import SCHEDULES, Case, remembered
from workbench.planner.numeric import Num, ceil_div, largest, smallest, where
from workbench.planner.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class SavedNumbers:
    """Elements kept for the backward by one repeat and sample, by how they are cut.

    Args:
        whole, by_tp, by_sp: Elements in the compute dtype that nothing, tp, or sp cuts.
        fixed_whole, fixed_by_tp: Bytes of tensors with a dtype of their own.
        once: Elements in the compute dtype that one copy of serves the whole batch.
    """

    whole: float
    by_tp: float
    by_sp: float
    fixed_whole: float
    fixed_by_tp: float
    once: float


@dataclass(frozen=True, kw_only=True)
class BlockNumbers:
    """One block of the model as formulas read it.

    Args:
        parameters: The tensors of one repeat that own memory.
        tied: The tensors that another block owns; a pipeline keeps a copy of its own.
        matrices: The tensors that its forward multiplies, tied ones included.
        middle: Width of its MLP's middle, all experts' share per token.
        matrix_flops: Forward FLOPs of one repeat and sample that multiply parameters.
        core_flops: The rest: attention scores and weighted values.
        boundary: Elements of one repeat's output per sample.
        first_layer: Layers of the model before this block, for indexed blocks.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    tied: tuple[Parameter, ...]
    matrices: tuple[Parameter, ...]
    middle: int
    matrix_flops: int
    core_flops: int
    saved: SavedNumbers
    boundary: int
    repeat: int
    indexed: bool
    first_layer: int


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Feed-forwards of a layer, and how many of them a token uses; 0 without experts."""

    total: int
    chosen: int


@dataclass(frozen=True, kw_only=True)
class ModelNumbers:
    """A model's blocks and what they share.

    Args:
        blocks: In execution order.
        num_layers: Repeated layers of all indexed blocks.
        tokens: Per sample.
        hidden: Width of the residual stream, 0 where the model has none.
        head_dim: Width of a head, 0 without attention.
        query_width, kv_width: Of all heads together, 0 without attention.
        experts: How many feed-forwards a layer has, and a token uses.
        widest: Elements per sample of the largest tensor that a layer keeps.
        profile: The framework.
    """

    blocks: tuple[BlockNumbers, ...]
    num_layers: int
    tokens: int
    hidden: int
    head_dim: int
    query_width: int
    kv_width: int
    widest: int
    experts: Experts
    profile: Profile


def model_numbers(model: ModelSpec, profile: Profile) -> ModelNumbers:
    """Reduce a model to numbers, with a framework's share of each saved tensor."""
    blocks, layers = [], 0
    experts = Experts(
        total=_number(model, "num_experts"), chosen=_number(model, "top_k")
    )
    for block in model.blocks:
        blocks.append(
            _block_numbers(block, profile, layers, model.tokens_per_sample, experts)
        )
        layers += block.repeat if block.indexed else 0
    return ModelNumbers(
        blocks=tuple(blocks),
        num_layers=layers,
        tokens=model.tokens_per_sample,
        hidden=_number(model, "hidden"),
        head_dim=_number(model, "head_dim"),
        query_width=_width(model, "num_heads"),
        kv_width=_width(model, "num_kv_heads"),
        widest=_widest(model),
        experts=experts,
        profile=profile,
    )


def _widest(model: ModelSpec) -> int:
    """Return the elements of the largest tensor that a repeated block keeps."""
    kept = (s.num_elements for b in model.blocks if b.indexed for s in b.saved)
    return max(kept, default=0)


def _width(model: ModelSpec, heads: str) -> int:
    """Return the width of all query or key heads, 0 for a model without heads."""
    return _number(model, heads) * _number(model, "head_dim")


def _number(model: ModelSpec, name: str) -> int:
    """Return one of the architecture's numbers, 0 where it has none of this name."""
    return int(dict(model.hyper).get(name, 0))


def layers_here(block: BlockNumbers, numbers: ModelNumbers, case: Case) -> Num:
    """Return how many repeats of a block the judged stage holds.

    Layers are dealt in order to pp x chunks stages, the first stages taking one more
    where they do not divide; blocks before the layers go with the first stage, blocks
    after them with the last.
    """
    return remembered(
        case.stage_memo,
        ("layers", block.name),
        lambda: _layers_here(block, numbers, case),
    )


def _layers_here(block: BlockNumbers, numbers: ModelNumbers, case: Case) -> Num:
    if not block.indexed:
        stage = first_stage(case) if block.first_layer == 0 else last_stage(case)
        return where(case.stage == stage, 1, 0)
    stages = case.pp * case.chunks
    here: Num = 0
    for chunk in range(_most(case.chunks)):
        stage = _stage_of_chunk(case, chunk)
        begin = _first_layer(numbers, case, stages, stage)
        end = _first_layer(numbers, case, stages, stage + 1)
        low = largest(begin, block.first_layer)
        high = smallest(end, block.first_layer + block.repeat)
        here = here + where(chunk < case.chunks, largest(high - low, 0), 0)
    return here


def first_stage(case: Case) -> Num:  # noqa: ARG001
    """Return the pipeline coordinate that holds what stands before the layers."""
    return 0


def last_stage(case: Case) -> Num:
    """Return the coordinate of what stands after the layers; V shapes end on rank 0."""
    return where(is_v_shaped(case), 0, case.pp - 1)


def is_v_shaped(case: Case) -> Num:
    """Return whether the second chunk runs through the ranks backwards."""
    first, second = (SCHEDULES.index(name) for name in TWO_CHUNK_SCHEDULES)
    shaped = (case.schedule == first) | (case.schedule == second)
    return shaped & (case.pp > 1)


def _stage_of_chunk(case: Case, chunk: int) -> Num:
    looped = chunk * case.pp + case.stage
    if chunk != 1:
        return looped
    return where(is_v_shaped(case), 2 * case.pp - 1 - case.stage, looped)


def _first_layer(numbers: ModelNumbers, case: Case, stages: Num, stage: Num) -> Num:
    ends = case.ends_as_layers
    slots = numbers.num_layers + 2 * ends
    slot = stage * (slots // stages) + smallest(stage, slots % stages)
    return smallest(largest(slot - ends, 0), numbers.num_layers)


def _most(count: Num) -> int:
    return int(count if isinstance(count, int) else count.max())


def _block_numbers(
    block: Block, profile: Profile, first_layer: int, tokens: int, experts: Experts
) -> BlockNumbers:
    owned = tuple(p for p in block.parameters if p.tied_to is None)
    matrices = tuple(p for p in block.parameters if len(p.shape) > 1)
    matrices = matrices if block.kind != "embedding" else ()
    multiplied = sum(_used_elements(p, experts) for p in matrices)
    matrix_flops = min(2 * tokens * multiplied, block.forward_flops)
    return BlockNumbers(
        name=block.name,
        kind=block.kind,
        parameters=owned,
        tied=tuple(p for p in block.parameters if p.tied_to is not None),
        matrices=matrices,
        middle=max((_middle(p, experts) for p in matrices), default=0),
        matrix_flops=matrix_flops,
        core_flops=block.forward_flops - matrix_flops,
        saved=_saved_numbers(block, profile),
        boundary=block.boundary_elements,
        repeat=block.repeat,
        indexed=block.indexed,
        first_layer=first_layer,
    )


_FIXED_BYTES = {"float32": 4, "int64": 8, "bool": 1}


def _saved_numbers(block: Block, profile: Profile) -> SavedNumbers:
    sums = dict.fromkeys(SavedNumbers.__dataclass_fields__, 0.0)
    for saved in block.saved:
        kept = saved.num_elements * profile.saved_share.get(saved.kind, 1.0)
        if not saved.per_sample:
            sums["once"] += kept
        elif saved.dtype != "compute":
            key = "fixed_by_tp" if saved.cut_by_tp else "fixed_whole"
            sums[key] += kept * _FIXED_BYTES[saved.dtype]
        elif saved.cut_by_tp:
            sums["by_tp"] += kept
        else:
            sums["by_sp" if saved.cut_by_sp else "whole"] += kept
    return SavedNumbers(**sums)


def _middle(parameter: Parameter, experts: Experts) -> int:
    """Return the width that a token's way through a matrix has."""
    if parameter.ep_dim is None:
        return parameter.shape[0]
    return experts.chosen * parameter.shape[1]


def _used_elements(parameter: Parameter, experts: Experts) -> int:
    """Return the elements of a matrix that one token meets."""
    if parameter.ep_dim is None:
        return parameter.num_elements
    return parameter.num_elements // experts.total * experts.chosen


def local_rows(parameter: Parameter, case: Case) -> tuple[Num, Num]:
    """Return rows and elements per row of a tensor after tp and ep have cut it."""
    rows: Num = parameter.shape[0]
    rest: Num = parameter.num_elements // parameter.shape[0]
    if parameter.ep_dim == 0:
        rows = ceil_div(rows, case.ep)
    if parameter.tp_dim == 0:
        rows = ceil_div(rows, case.tp)
    elif parameter.tp_dim is not None:
        rest = ceil_div(rest, case.tp)
    return rows, rest
