"""Whether a model fits: the memory that each node needs for it, with the sum shown and three verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.engines.model_shape import Format, ModelShape, Part

GIB = 2**30
MEMORY_GIB = 121.69
"""GiB that the kernel of a GB10 node calls MemTotal (reported by owners of several racks)."""
COMFORTABLE_SHARE, HIGHEST_SHARE = 0.85, 0.90
"""Shares of the memory up to which an engine runs beside the host: 18 GiB and 12 GiB are left for it."""
OVERHEAD_GIB = 8.0
"""GiB for activations, graphs, NCCL and the allocator, when nothing was measured: reports are between 4 and 20."""

_BITS: dict[Format, float] = {"bf16": 16, "fp8": 8.002, "mxfp4": 4.25, "nvfp4": 4.5, "int4": 4.156}
"""Bits of a weight with its share of the scales; int4 with groups of 128."""

KvFormat = Literal["fp8", "bf16", "nvfp4"]
_KV_BYTES: Mapping[KvFormat, float] = {"fp8": 1, "bf16": 2, "nvfp4": 9 / 16}
"""Bytes of one element of keys and values; in four bits with a scale of eight for each sixteen."""
Verdict = Literal["yes", "tight", "no", "unknown"]


@dataclass(frozen=True)
class Parallel:
    """How a model is split: `tensor` slices of each layer, times `pipeline` stages of layers."""

    tensor: int
    pipeline: int
    expert: bool = False
    """Whether the experts of a layer are spread over the ranks instead of cut into slices."""

    @property
    def nodes(self) -> int:
        """Number of nodes: one rank on each."""
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        words = [f"TP={self.tensor}"] if self.tensor > 1 or self.pipeline == 1 else []
        return " ".join([*words, *([f"PP={self.pipeline}"] if self.pipeline > 1 else [])])


@dataclass(frozen=True)
class Demand:
    """What a model is to serve: `context` tokens in all sequences together, `sequences` at once, the number format of
    keys and values, and the GiB of overhead on each node.

    `in_flight`: tokens for which a layer with a window has room beside it, while they are computed. `window_share`: the
    share of the context that such a layer has room for at least. `drafts`: number of layers for multi-token prediction,
    which keep keys and values as a layer of the whole context does.
    """

    context: int = 131072
    sequences: int = 4
    kv_format: KvFormat = "fp8"
    overhead_gib: float = OVERHEAD_GIB
    in_flight: int = 0
    window_share: float = 0.0
    drafts: int = 0


@dataclass(frozen=True)
class Fit:
    """The memory of the fullest rank in GiB, by what takes it, and what it means on a GB10.

    `host`: what the engine takes of the host's memory, which is the same memory. `unknown`: why a part is not known, by
    part; the figure of that part is then the least that it takes.
    """

    parallel: Parallel
    weights: float
    kv: float
    state: float
    overhead: float
    blockers: tuple[str, ...]
    """Why an engine refuses this split whatever the memory, such as heads that are not divisible."""
    token_bytes: float
    """Bytes of keys and values for each token on the fullest rank."""
    host: float = 0.0
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """GiB in all, of what is known."""
        return self.weights + self.kv + self.state + self.overhead + self.host

    @property
    def verdict(self) -> Verdict:
        """yes, tight, no, or unknown: what is known fits, and not all is known."""
        if self.blockers or self.total > HIGHEST_SHARE * MEMORY_GIB:
            return "no"
        if self.unknown:
            return "unknown"
        return "yes" if self.total <= COMFORTABLE_SHARE * MEMORY_GIB else "tight"

    @property
    def context_left(self) -> int:
        """Number of tokens for which memory is left up to the highest share, beside those that are asked for."""
        left = HIGHEST_SHARE * MEMORY_GIB - self.total
        return int(left * GIB / self.token_bytes) if left > 0 and self.token_bytes else 0

    @property
    def reason(self) -> str:
        """Why the verdict is not yes; empty if it is."""
        if self.blockers:
            return "; ".join(self.blockers)
        if self.verdict == "yes":
            return ""
        if self.verdict == "unknown":
            return unknown_reason(self.unknown)
        more = "more than " if self.unknown else ""
        share = COMFORTABLE_SHARE if self.verdict == "tight" else HIGHEST_SHARE
        return (
            f"needs {more}{self.total:.1f} GiB a node, {share * MEMORY_GIB:.1f} GiB are {share:.0%} of {MEMORY_GIB} GiB"
        )


def unknown_reason(unknown: Mapping[str, str]) -> str:
    """Return why parts of a sum are not known, each reason once."""
    return "; ".join(dict.fromkeys(unknown.values()))


def weight_bytes(shape: ModelShape) -> float:
    """Return the bytes of all weights, counted from the shape. The sizes of the files are better, where they are
    known."""
    return sum(_part_bytes(shape, part) for part in shape.parameters)


def _part_bytes(shape: ModelShape, part: Part) -> float:
    kind = shape.formats.get(part, "bf16")
    bits = shape.bits + shape.group_bits / shape.group if kind == "int4" and shape.group else _BITS[kind]
    if kind == "int4" and not shape.group:
        bits += shape.bits - 4
    return shape.parameters.get(part, 0) * bits / 8


def default_parallel(nodes: int) -> Parallel:
    """Return the usual split for a number of nodes: tensor slices for a power of two, else stages of layers."""
    return Parallel(nodes, 1) if nodes & (nodes - 1) == 0 else Parallel(1, nodes)


def fit(shape: ModelShape, parallel: Parallel, demand: Demand, weights: float | None = None) -> Fit:
    """Compute what the fullest rank needs.

    `weights`: bytes of all weight files, when they are known; else they are counted from the shape.
    """
    # A model of unknown layers has stages of equal size at least.
    share = math.ceil(shape.layers / parallel.pipeline) / shape.layers if shape.layers else 1 / parallel.pipeline
    token = _token_bytes(shape, parallel, demand) * share
    return Fit(
        parallel=parallel,
        weights=_rank_weights(shape, parallel, weights, share) / GIB,
        kv=(token * demand.context + _window_bytes(shape, parallel, demand) * share) / GIB,
        state=shape.state * demand.sequences * share / parallel.tensor / GIB,
        overhead=demand.overhead_gib,
        blockers=tuple(_list_split_blockers(shape, parallel)),
        token_bytes=token,
        unknown=_list_unknown_parts(shape, demand, weights),
    )


def _list_unknown_parts(shape: ModelShape, demand: Demand, weights: float | None) -> dict[str, str]:
    found: dict[str, str] = {}
    if weights is None and "weights" in shape.unknown:
        found["weights"] = shape.unknown["weights"]
        if "cache" not in shape.unknown:
            found["weights"] += "; give the size of all weight files with --weights"
    if "cache" in shape.unknown:
        found["cache"] = shape.unknown["cache"]
    elif demand.kv_format == "nvfp4" and (shape.latent or shape.token_bytes):
        found["cache"] = "how a latent is kept in four bits is not known here"
    elif demand.kv_format == "bf16" and shape.token_bytes:
        found["cache"] = "its compressed attention is known with keys and values in FP8 only"
    return found


def _rank_weights(shape: ModelShape, parallel: Parallel, weights: float | None, share: float) -> float:
    if weights is None and "weights" in shape.unknown:
        return 0.0
    total = weight_bytes(shape) if weights is None else weights
    if parallel.pipeline == 1:
        return total / parallel.tensor
    # The first stage has the embedding, the last one the head.
    ends = _part_bytes(shape, "embedding"), _part_bytes(shape, "head")
    return ((total - sum(ends)) * share + max(ends)) / parallel.tensor


def _token_bytes(shape: ModelShape, parallel: Parallel, demand: Demand) -> float:
    """Return the bytes for each token in all layers on one rank of the tensor slices."""
    if shape.token_bytes:
        return shape.token_bytes
    element = _KV_BYTES[demand.kv_format]
    layers = shape.full_layers + (demand.drafts if shape.full_layers else 0)
    if shape.latent:  # each rank keeps the whole latent
        return _latent_bytes(shape, element) * layers + shape.index
    return _heads_bytes(shape, parallel, element, full=True) * layers + shape.index


def _latent_bytes(shape: ModelShape, element: float) -> float:
    """Return the bytes of the latent for each token and layer. With sparse attention the FP8 form has a scale for each
    128 elements, and the position in BF16: 656 bytes of 512 + 64 elements (fp8_ds_mla of vLLM, SGLang's NSA)."""
    if not shape.index or element != 1:
        return shape.latent * element
    own = shape.latent - shape.rotary
    return own + math.ceil(own / 128) * 4 + shape.rotary * 2


def _heads_bytes(shape: ModelShape, parallel: Parallel, element: float, *, full: bool) -> float:
    heads = (full and shape.full_kv_heads) or shape.kv_heads
    size = (full and shape.full_head_dim) or shape.head_dim
    # With fewer heads than ranks each rank keeps one: the demand stops to shrink.
    return 2 * math.ceil(heads / parallel.tensor) * size * element


def _window_bytes(shape: ModelShape, parallel: Parallel, demand: Demand) -> float:
    """Return the bytes of the sliding layers: a window of each sequence, or what the engine reserves if it is more."""
    reserved = max(shape.window + demand.in_flight, int(demand.window_share * demand.context))
    tokens = min(max(shape.window * demand.sequences, reserved), demand.context)
    size = _heads_bytes(shape, parallel, _KV_BYTES[demand.kv_format], full=False)
    return size * shape.own_layers("sliding") * tokens


def _list_split_blockers(shape: ModelShape, parallel: Parallel) -> Iterator[str]:
    """Yield why an engine refuses the split (checks of vLLM's model files and of its parallel configuration)."""
    tensor = parallel.tensor
    if not shape.kinds:
        return  # an architecture that is not known
    if shape.heads % tensor:
        yield f"{shape.heads} attention heads are not divisible by TP={tensor}"
    if not shape.latent and shape.kv_heads % tensor and tensor % shape.kv_heads:
        yield f"{shape.kv_heads} key-value heads and TP={tensor} do not divide one another"
    if parallel.pipeline > shape.layers:
        yield f"{shape.layers} layers are fewer than PP={parallel.pipeline}"
    width = shape.moe_width // tensor if shape.moe_width and not parallel.expert else 0
    if width and shape.group and width % shape.group:
        yield f"the width {width} of an expert's slice at TP={tensor} is not divisible by the block of {shape.group}"


def fits_on(
    shape: ModelShape, demand: Demand, weights: float | None = None, counts: tuple[int, ...] = (1, 2, 3, 4, 8)
) -> dict[int, Fit]:
    """Compute the fit on each number of nodes, with the usual split of each."""
    return {count: fit(shape, default_parallel(count), demand, weights) for count in counts}
