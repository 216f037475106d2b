"""Whether the units of a rack file fit: their memory from the record of the model, and how the sum was made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from core.model.fields import mebibytes
from core.model.model_lock import ModelRecord
from serving.calibration import Calibration, Conditions
from serving.container_paths import INSIDE_MODELS, container_files
from serving.engines import model_shape
from serving.engines.host_memory import HostMemory
from serving.engines.json_option import structured_value
from serving.engines.memory_fit import (
    GIB,
    HIGHEST_SHARE,
    MEMORY_GIB,
    OVERHEAD_GIB,
    Demand,
    Fit,
    KvFormat,
    Parallel,
    default_parallel,
    fit,
)
from serving.engines.model_shape import ModelConfigError, ModelShape
from serving.engines.option_table import version_key
from serving.engines.registry import ENGINES
from serving.options import ServedUnit, plain_argument
from serving.unit_files import mounts
from serving.unit_kinds import pools

BATCH = 8192
"""Tokens that vLLM computes at once on a GB10, where nothing else is set."""
POOLING_OVERHEAD_GIB = 1.0
"""The least that an engine takes beside weights and cache. Of one that generates more is reported; of one that pools
nothing is, and published units have 6 GiB in all."""
OverheadSource = Literal["measured", "declared", "default"]
PADDED = "parallel.tensor"
"""The key of `accept` for a split that no model of this shape takes, and that the image pads for."""
_WEIGHT_FILES = (".safetensors", ".bin", ".gguf")


@dataclass(frozen=True)
class UnitFit:
    """The memory of the fullest rank of a unit, against what the unit lets the engine take.

    `memory`: GiB of a node that programs share. `allowed`: GiB of it that the engine may take. `taken`: GiB that it
    takes of a node in all, where it fills its share and has host memory beside it; else 0. `overhead_from`: where the
    overhead of the sum comes from.
    """

    fit: Fit
    memory: float
    allowed: float
    overhead_from: OverheadSource
    taken: float = 0.0

    @property
    def verdict(self) -> Literal["yes", "no", "unknown"]:
        """Whether the engine accepts the split and has room for the sum; unknown when what is known has room."""
        if self.fit.blockers or self.fit.total > self.allowed or self.overfills:
            return "no"
        return "unknown" if self.fit.unknown else "yes"

    @property
    def fits(self) -> bool:
        """Whether the verdict is yes."""
        return self.verdict == "yes"

    @property
    def overfills(self) -> bool:
        """Whether the engine's share and its host memory leave too little of the node."""
        return self.taken > HIGHEST_SHARE * self.memory

    @property
    def sum(self) -> str:
        """The parts of the sum in GiB."""
        one = self.fit
        parts = {
            "weights": one.weights,
            "keys and values": one.kv,
            "state": one.state,
            "overhead": one.overhead,
            "host memory": one.host,
        }
        return ", ".join(f"{name} {part:.1f}" for name, part in parts.items() if round(part, 1))


def parallel_of(unit: ServedUnit) -> Parallel:
    """Return the split of a unit."""
    return Parallel(unit.parallel.tensor, unit.parallel.pipeline, unit.parallel.expert)


def padded(blockers: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the reasons against a split that an image can take away by padding, and the others."""
    found = tuple(blockers)
    by_width = tuple(one for one in found if "TP=" in one)
    return by_width, tuple(one for one in found if one not in by_width)


def padding(unit: ServedUnit, record: ModelRecord | None) -> tuple[str, ...] | None:
    """Return why no engine takes the split of a unit without padding; None where the shape of its model is unknown."""
    try:
        shape = record_shape(unit.model, record) if record else None
    except ModelConfigError:
        shape = None
    if shape is None or not shape.kinds:
        return None
    return padded(fit(shape, parallel_of(unit), demand_of(unit)).blockers)[0]


def usual_parallel(unit: ServedUnit, count: int) -> Parallel:
    """Return the usual split of a unit for a number of nodes."""
    return dataclasses.replace(default_parallel(count), expert=unit.parallel.expert)


def record_shape(name: str, record: ModelRecord) -> ModelShape:
    """Return the shape of a recorded model. Raises ModelConfigError when the record does not have it."""
    texts = record.configurations
    if "config.json" not in texts:
        raise ModelConfigError(f"the record of {name} has no config.json; record the model again")
    return model_shape.parse(
        _parse_json_object(name, texts, "config.json"), _parse_json_object(name, texts, "hf_quant_config.json"), name
    )


def model_type(record: ModelRecord) -> str:
    """Return the kind of a recorded model, such as nemotron_h; empty if the record does not say."""
    try:
        return str(_parse_json_object("", record.configurations, "config.json").get("model_type", ""))
    except ModelConfigError:
        return ""


def _parse_json_object(name: str, texts: Mapping[str, str], file: str) -> dict[str, object]:
    try:
        value = json.loads(texts.get(file, "{}"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{file} in the record of {name} is not a JSON object; record the model again")
    return value


def weight_size(record: ModelRecord) -> float | None:
    """Return the bytes of all weight files of a model, None if it has none.

    Some publishers add the same weights again in another form, in folders of their own or as consolidated files. Where
    no weights are beside config.json, those in folders are the model.
    """
    top = [file for file in record.files if "/" not in file.path]
    for listed in (top, record.files):
        for ending in _WEIGHT_FILES:
            found = [file for file in listed if file.path.endswith(ending)]
            parts = [file for file in found if not file.path.startswith("consolidated")]
            if chosen := parts or found:
                return sum(file.size for file in chosen)
    return None


def kv_format(unit: ServedUnit) -> KvFormat | None:
    """Return the number format of keys and values that a unit sets, None for one that is not known here.

    Without one it is that of the model, at most BF16; so are layers that are left out of the format.
    """
    name = str(unit.args.get("kv-cache-dtype", "auto"))
    if name in ("auto", "bf16", "bfloat16", "float16") or "kv-cache-dtype-skip-layers" in unit.args:
        return "bf16"
    if name.startswith("fp8") or name in ("mxfp8", "int8_per_token_head"):
        return "fp8"
    return "nvfp4" if name in ("nvfp4", "nvfp4_4over6", "fp4_e2m1", "fp4_mx_block16") else None


Further = Mapping[str, ModelRecord | None]
"""The further models of a unit by name, with their records; None where the lock file has none."""


@dataclass(frozen=True)
class KnownUnit:
    """What the lock file has of a unit. `record`: its model, None without one. `further`: its further models, by name.
    `image`: the ID of its image. `measured`: the figures of the last good start. `reserved`: GiB of a node that no
    program gets.
    """

    record: ModelRecord | None
    further: Further = field(default_factory=dict)
    image: str | None = None
    measured: Calibration | None = None
    reserved: float = 0.0


def known_unit(
    unit: ServedUnit,
    records: Mapping[str, ModelRecord],
    image: str | None = None,
    measured: Calibration | None = None,
    reserved: float = 0.0,
) -> KnownUnit:
    """Return what is known of a unit. `records`: the models of the lock file, by name."""
    further = {name: records.get(name) for name in unit.also}
    return KnownUnit(records.get(unit.model), further, image, measured, reserved)


def conditions_of(
    unit: ServedUnit, record: ModelRecord, image: str, further: Further = MappingProxyType({})
) -> Conditions:
    """Return what a unit is measured with; `image`: the ID of its image."""
    drafts = {name: plain_argument(value) for name, value in unit.args.items() if name.startswith("speculative-")}
    drafts |= {f"{INSIDE_MODELS}/{name}": _revision_of_record(one) if one else "" for name, one in further.items()}
    return Conditions(
        source=record.source,
        revision=_revision_of_record(record),
        image=image,
        quantization=str(unit.args.get("quantization", "")),
        kv_cache_dtype=str(unit.args.get("kv-cache-dtype", "")),
        expert=unit.parallel.expert,
        speculative=json.dumps(drafts, sort_keys=True) if drafts else "",
        batch=str(unit.args.get("max-num-batched-tokens" if unit.family == "vllm" else "chunked-prefill-size", "")),
        context=unit.context,
        sequences=unit.sequences,
        kind=unit.kind,
        before=json.dumps(unit.before) if unit.before else "",
        files=_files_digest(unit),
    )


def _files_digest(unit: ServedUnit) -> str:
    """Return a hash of the own files of a unit, with their paths; empty without any. What cannot be read is reported
    by the rules, and is what nothing was measured with."""
    try:
        mounted = {one.inside: one.digest for one in mounts(unit)}
    except ValueError:
        return "cannot be read"
    return hashlib.sha256(json.dumps(mounted, sort_keys=True).encode()).hexdigest()[:16] if mounted else ""


def _revision_of_record(record: ModelRecord) -> str:
    listed = sorted((file.path, file.sha256) for file in record.files)
    return record.revision or hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def counted_calibration(unit: ServedUnit, known: KnownUnit, parallel: Parallel) -> tuple[Calibration | None, str]:
    """Return a measurement if it counts for a unit, else why not; both are empty where nothing was measured.

    `parallel`: the split, which may be another than that of the unit.
    """
    measured = known.measured
    if measured is None or known.record is None:
        return None, ""
    if measured.measured_with is None:
        return None, "it does not say with which model, image and options it was measured"
    if known.image is None:
        return None, "the lock file has no ID of the image"
    if (measured.tensor, measured.pipeline) != (parallel.tensor, parallel.pipeline):
        before = Parallel(measured.tensor, measured.pipeline)
        return None, f"it was measured with {before}, now {parallel}"
    reason = measured.measured_with.difference(conditions_of(unit, known.record, known.image, known.further))
    return (None, reason) if reason else (measured, "")


def declared_overhead(unit: ServedUnit) -> float:
    """Return the GiB that an engine takes beside weights and cache: those of rack.yaml, or the usual ones."""
    if unit.overhead:
        return mebibytes(unit.overhead) / 1024
    return POOLING_OVERHEAD_GIB if pools(unit) else OVERHEAD_GIB


def _unknown_overhead(unit: ServedUnit) -> dict[str, str]:
    """Return why the overhead of a unit is unknown, where it is."""
    if unit.overhead or not pools(unit):
        return {}
    return {"overhead": "what an engine that pools takes beside weights and cache is not known here; write overhead"}


# claim: serving.memory-fit
def demand_of(unit: ServedUnit) -> Demand:
    """Return what a unit asks for: room for one sequence of full length, and the state of all sequences."""
    in_flight, share = _window_reserve(unit)
    format_, overhead = kv_format(unit) or "nvfp4", declared_overhead(unit)
    return Demand(unit.context, unit.sequences, format_, overhead, in_flight, share, _own_drafts(unit))


def _speculative_options(unit: ServedUnit) -> Mapping[str, object]:
    """Return vLLM's options for drafts."""
    value = structured_value(plain_argument(unit.args.get("speculative-config")))
    return value if isinstance(value, Mapping) else {}


def _draft_model(unit: ServedUnit) -> str:
    """Return the draft model of a unit as its options name it, empty without one."""
    names = ("speculative-draft-model-path", "speculative-draft-model")
    found = next((unit.args[name] for name in names if name in unit.args), _speculative_options(unit).get("model"))
    return str(found or "")


def _own_drafts(unit: ServedUnit) -> int:
    """Return the number of layers of the model itself that draft tokens, each with keys and values of its own."""
    if _draft_model(unit):
        return 0
    method = str(_speculative_options(unit).get("method", "")).lower()
    algorithm = str(unit.args.get("speculative-algorithm", "")).upper()
    return int("mtp" in method or algorithm in ("NEXTN", "EAGLE"))


def _window_reserve(unit: ServedUnit) -> tuple[int, float]:
    """Return what the engine reserves in layers with a window: tokens beside the window, and a share of the context.

    vLLM: a batch, since 0.28 two of them (vllm-project/vllm#54703); 8,192 tokens on a GPU of 70 GiB or more (its
    EngineArgs). SGLang: a pool of 0.8 of the tokens of the other layers (--swa-full-tokens-ratio).
    """
    if unit.family == "sglang":
        if unit.args.get("disable-hybrid-swa-memory") is True:
            return 0, 1.0
        ratio = unit.args.get("swa-full-tokens-ratio", 0.8)
        return 0, float(ratio) if isinstance(ratio, int | float) else 1.0
    if unit.args.get("disable-hybrid-kv-cache-manager") is True:
        return 0, 1.0
    batch = unit.args.get("max-num-batched-tokens")
    batch = batch if type(batch) is int and batch > 0 else BATCH
    return batch * (1 if _is_before(unit.version, "0.28.0") else 2), 0.0


def host_memory_of(unit: ServedUnit, ranks: int) -> HostMemory:
    """Return what the options of a unit take of the host's memory on each node."""
    args = {name: plain_argument(value) for name, value in unit.args.items()}
    return ENGINES[unit.engine].host(args, unit.env, ranks)


def _is_before(version: str, release: str) -> bool:
    try:
        return version_key(version) < version_key(release)
    except ValueError:
        return False  # which the rules report


def _unknown_options(unit: ServedUnit, shape: ModelShape) -> dict[str, str]:
    """Return why options make a part of the sum unknown, by part."""
    found: dict[str, str] = {}
    if kv_format(unit) is None:
        found["cache"] = f"how large keys and values in {unit.args['kv-cache-dtype']} are is not known here"
    if unit.family == "vllm" and shape.full_head_dim and _is_before(unit.version, "0.21.0"):
        # vllm-project/vllm#43308: 55,000 tokens in 50 GB before, 525,000 since.
        found["cache"] = "before vLLM 0.21.0 layers with a window keep more than their window in this model"
    if shape.token_bytes and (unit.family == "sglang" or not _is_before(unit.version, "0.26.0")):
        # vllm-project/vllm#51041, #54703: a reserve that depends on the batch, 7.5 to 55 KB a token.
        found["cache"] = "its compressed attention is known with vLLM before 0.26.0 only"
    found |= _unknown_overhead(unit)
    if (draft := _draft_model(unit)) and draft not in {f"{INSIDE_MODELS}/{name}" for name in unit.also}:
        found["draft"] = "the lock file has nothing of the draft model, which has weights and a cache of its own"
    return found


def _with_further(found: Fit, unit: ServedUnit, parallel: Parallel, demand: Demand, further: Further) -> Fit:
    """Return a sum with the further models of a unit, each split as the first one is, on the rank that has all of it.

    Without `draft_tensor_parallel_size` vLLM splits a draft as the target (vllm/config/speculative.py), SGLang always.
    """
    slices = _speculative_options(unit).get("draft_tensor_parallel_size")
    tensor = slices if type(slices) is int and 0 < slices <= parallel.tensor else parallel.tensor
    for name, record in further.items():
        drafts = _draft_model(unit) == f"{INSIDE_MODELS}/{name}"
        own = Parallel(tensor if drafts else parallel.tensor, 1)
        size = weight_size(record) if record else None
        unknown: dict[str, str] = {}
        more = Fit(own, (size or 0.0) / own.tensor / GIB, 0.0, 0.0, 0.0, (), 0.0)
        if record is None:
            unknown[name] = f"the lock file has no record of {name}; `sparkrack apply` fetches the model and records it"
        elif size is None:
            unknown[name] = f"the lock file has no weights of {name}"
        elif drafts:
            try:
                # Whole heads are kept, whatever divides: the engine refuses another split itself.
                more = fit(
                    record_shape(name, record), own, dataclasses.replace(demand, drafts=0, overhead_gib=0.0), size
                )
            except ModelConfigError as error:
                unknown[name] = str(error).partition("; ")[0]
            unknown |= {f"{name} {part}": f"{name}: {why}" for part, why in more.unknown.items()}
        found = dataclasses.replace(
            found,
            weights=found.weights + more.weights,
            kv=found.kv + more.kv,
            state=found.state + more.state,
            token_bytes=found.token_bytes + more.token_bytes,
            unknown={**found.unknown, **unknown},
        )
    return found


def unit_fit(
    unit: ServedUnit,
    shape: ModelShape,
    weights: float | None,
    parallel: Parallel,
    calibration: Calibration | None = None,
    reserved: float = 0.0,
    further: Further = MappingProxyType({}),
) -> UnitFit:
    """Compute whether a unit fits when its model is split in this way.

    Args:
        unit: the unit.
        shape: the shape of its model.
        weights: bytes of all weight files, None if they are not known.
        parallel: the split, which may be another than that of the unit.
        calibration: figures of the last good start, if they count for this unit and split.
        reserved: GiB of a node that no program gets.
        further: the further models of the unit.
    """
    demand = demand_of(unit)
    source: OverheadSource = "declared" if unit.overhead else "default"
    found = _with_further(fit(shape, parallel, demand, weights), unit, parallel, demand, further)
    if PADDED in unit.accept and parallel == parallel_of(unit):
        found = dataclasses.replace(found, blockers=padded(found.blockers)[1])
    unknown = {**found.unknown, **_unknown_options(unit, shape)}
    if calibration:
        computed = None if unknown else found.kv
        found, source, unknown = _apply_measurement(found, calibration, unit.context, computed), "measured", {}
    if unit.kv:
        # The size of the cache is given; it must hold one sequence, which a larger demand than the size shows.
        found = dataclasses.replace(found, kv=max(found.kv, mebibytes(unit.kv) / 1024))
    memory = MEMORY_GIB - reserved
    allowed = (unit.memory or HIGHEST_SHARE) * memory
    beside = host_memory_of(unit, parallel.nodes)
    cache = max(found.kv, allowed - found.weights - found.state - found.overhead if unit.memory else 0.0)
    host = beside.gib + beside.caches * cache + beside.copies * found.weights
    unknown |= {
        name: f"args.{name} {reason}, of a size that is not known here" for name, reason in beside.unknown.items()
    }
    found = dataclasses.replace(found, host=host, unknown=unknown)
    return UnitFit(found, memory, allowed, source, allowed + host if unit.memory and host else 0.0)


def found_fit(unit: ServedUnit, known: KnownUnit) -> UnitFit | None:
    """Return the memory of a unit with its own split: the sum of the sizes that are declared where its engine has no
    other, else what is computed. None where the lock file has nothing usable of a model whose memory is computed.
    """
    if ENGINES[unit.engine].weights:
        return _declared_fit(unit, known)
    if known.record is None:
        return None
    try:
        shape = record_shape(unit.model, known.record)
    except ModelConfigError:
        return None
    split = parallel_of(unit)
    counted, _ = counted_calibration(unit, known, split)
    return unit_fit(unit, shape, weight_size(known.record), split, counted, known.reserved, known.further)


def _declared_fit(unit: ServedUnit, known: KnownUnit) -> UnitFit | None:
    """Return the sum of a unit whose engine says nothing of its memory; None for any other."""
    count = ENGINES[unit.engine].weights
    if count is None:
        return None
    records = {unit.model: known.record, **known.further}
    sizes = {
        f"{INSIDE_MODELS}/{name}/{file.path}": file.size for name, one in records.items() if one for file in one.files
    }
    weights = count(unit, sizes, [path for path in container_files(unit) if path.startswith(f"{INSIDE_MODELS}/")])
    unknown = {} if weights is not None else {"weights": "the bytes that a node loads are not known"}
    found = Fit(
        parallel=parallel_of(unit),
        weights=(weights or 0.0) / GIB,
        kv=mebibytes(unit.kv) / 1024 if unit.kv else 0.0,
        state=0.0,
        overhead=declared_overhead(unit),
        blockers=(),
        token_bytes=0.0,
        unknown=unknown | _unknown_overhead(unit),
    )
    memory = MEMORY_GIB - known.reserved
    source: OverheadSource = "declared" if unit.overhead else "default"
    return UnitFit(found, memory, (unit.memory or HIGHEST_SHARE) * memory, source)


def _apply_measurement(found: Fit, measured: Calibration, context: int, computed: float | None) -> Fit:
    """Return a sum with what was measured: never less weights than the files have, and together what was given.

    Some of what a sequence keeps does not depend on its length, so that a shorter one needs more for each token than
    was measured: what is computed, if it is known, and at most what the measured length needs.
    """
    weights = max(found.weights, measured.weights)
    token = measured.kv / measured.kv_tokens * GIB if measured.kv_tokens else found.token_bytes
    longest = token * (measured.measured_with.context if measured.measured_with else context) / GIB
    return dataclasses.replace(
        found,
        weights=weights,
        kv=max(token * context / GIB, longest if computed is None else min(computed, longest)),
        token_bytes=token,
        overhead=max(0.0, measured.given - weights - measured.kv - measured.state),
    )


def fitting_counts(
    unit: ServedUnit,
    shape: ModelShape,
    weights: float | None,
    reserved: float = 0.0,
    further: Further = MappingProxyType({}),
) -> list[int]:
    """Return the numbers of nodes on which a unit fits with the usual split of each."""
    return [
        count
        for count in range(1, 9)
        if unit_fit(unit, shape, weights, usual_parallel(unit, count), reserved=reserved, further=further).fits
    ]


def needed_share(found: UnitFit) -> float:
    """Return the lowest share of a node, in hundredths, that has room for the sum."""
    return math.ceil(found.fit.total / found.memory * 100) / 100
