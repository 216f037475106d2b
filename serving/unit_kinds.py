"""What the kind of a unit, `kind` in rack.yaml, means for its engine: options, what is asked for, and what is refused.

vLLM and SGLang serve either text or numbers in one process: an engine that pools has no /v1/completions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from core.model.errors import RuleViolation, counted, truncate
from core.model.model_lock import ModelRecord
from serving.engines.json_option import structured_value
from serving.engines.option_table import Engine
from serving.options import ServedUnit, plain_argument

_COPIES = ("data-parallel-size", "dp-size", "attn-dp-size", "attention-data-parallel-size")
_POOLED = ("embedding", "score")
_NEEDS = {"chat": "a completion", "completion": "a completion", "embedding": "an embedding", "score": "a ranking"}
_CONVERTED = {"embedding": ("auto", "none", "embed"), "score": ("auto", "none", "embed", "classify")}
"""What vLLM may make of a model that pools: a ranking may be by the distance of embeddings."""
_POOLING = {"embedding": ("mean", "cls", "last"), "score": ("rank",)}
"""What llama-server may make of a text: /v1/embeddings refuses none, and has the values of a ranking head with rank;
/v1/rerank refuses all but rank (measured, b11549)."""
_OTHER_DIMENSION = ("pooler-config", "override-pooler-config", "hf-overrides", "json-model-override-args", "convert")
"""Options that may give an embedding another number of values than the hidden size of the model."""
_PROJECTION = re.compile(r"(?:.*/)?\d+_Dense/.*")
"""Files of a layer after the pooling, which gives an embedding another size (Sentence Transformers)."""
_RANKING = re.compile(r"\w+For(SequenceClassification|RewardModel)\w*")
_ENCODER = re.compile(r"\w*(Bert|Roberta|MPNet)Model|Contriever")
"""Architectures without a head for text, as both engines know them."""


def pools(unit: ServedUnit) -> bool:
    """Return whether the engine of a unit computes numbers of whole texts, and no text."""
    return unit.kind in _POOLED


def engine_options(unit: ServedUnit) -> list[str]:
    """Return the options by which an engine serves the kind of a unit.

    SGLang knows a ranking model by its architecture, and refuses --is-embedding for those that rank by the next token
    (configs/model_config.py, entrypoints/openai/serving_rerank.py). What vLLM makes of a model follows from its
    architecture, too, unless `convert` in `args` says it.
    """
    match unit.family:
        case "sglang":
            return ["--is-embedding"] if unit.kind == "embedding" else []
        case "vllm":
            return ["--runner", "pooling"] if pools(unit) else []
        case "llama.cpp":
            return {"embedding": ["--embeddings"], "score": ["--reranking"]}.get(unit.kind, [])
    return []


def dimension(unit: ServedUnit, record: ModelRecord) -> int:
    """Return the numbers that each embedding of a unit must have, 0 where the lock file does not have it."""
    if unit.kind != "embedding" or set(_OTHER_DIMENSION) & set(unit.args):
        return 0
    if any(_PROJECTION.fullmatch(file.path) for file in record.files):
        return 0
    try:
        config = json.loads(record.configurations.get("config.json", ""))
        size = config.get("hidden_size")
    except (ValueError, AttributeError):
        return 0
    return size if type(size) is int and 0 < size <= 65536 else 0


def unfit_model(unit: ServedUnit, record: ModelRecord) -> Iterator[RuleViolation]:
    """Yield why a unit cannot be of its kind by the architecture of its model, unless an option gives it another."""
    if {"hf-overrides", "json-model-override-args"} & set(unit.args):
        return
    try:
        architecture = json.loads(record.configurations.get("config.json", ""))["architectures"][0]
    except (ValueError, LookupError, TypeError):
        return
    ranks, encodes = (form.fullmatch(str(architecture)) for form in (_RANKING, _ENCODER))
    if (ranks and unit.kind != "score") or (encodes and not pools(unit)):
        what = f"{unit.model} is a {truncate(str(architecture))}, which gives no answer of kind {unit.kind}"
        yield RuleViolation(("kind",), what, f"write kind: {'score' if ranks else 'embedding'}")


def request(unit: ServedUnit) -> tuple[str, dict[str, object], str]:
    """Return the path and a short body of a request of this kind, and a word that each answer to it has."""
    if unit.kind == "embedding":
        return "/v1/embeddings", {"input": ["2+2="]}, '"embedding"'
    if unit.kind == "score":
        return "/v1/rerank", {"query": "2+2=", "documents": ["4", "a"]}, 'score"'
    prompt = unit.probe.answer.ask if unit.probe.answer else "2+2="
    return "/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0}, '"choices"'


def unfit_probe(unit: ServedUnit) -> Iterator[RuleViolation]:
    """Yield what `probe` asks for and the kind of a unit does not have."""
    if unit.probe.tool and unit.kind != "chat":
        what = f"a tool call is a chat completion, and kind is {unit.kind}"
        yield RuleViolation(("probe", "tool"), what, "write kind: chat, or remove it")
    if pools(unit) and "answer" in unit.probe.model_fields_set:
        what = f"is the answer to a completion, and kind is {unit.kind}: texts of its own prove it"
        yield RuleViolation(("probe", "answer"), what, "remove it")


def unprovable(unit: ServedUnit, ranks: int) -> Iterator[RuleViolation]:
    """Yield each option with which nothing can prove a unit: it has no port, no plain HTTP, or not what its kind needs.

    Args:
        unit: the unit.
        ranks: the number of its nodes.
    """
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    for key, value in args.items():
        if found := _check_provable(unit, ranks, key, value, args):
            yield RuleViolation(("args", key), *found)


def _check_provable(
    unit: ServedUnit, ranks: int, key: str, value: object, args: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return why nothing can prove a unit with this option, and what is right; None when something can."""
    if key in ("ssl-certfile", "ssl-keyfile"):
        return (
            "the engine would speak TLS, and its proofs are plain HTTP",
            "remove it; serving.gateway gives clients TLS",
        )
    if key == "uds":
        return "the engine would listen on a socket file and on no port", "remove it"
    if key in ("grpc", "grpc-mode", "smg-grpc-mode") and value is True:
        return "the engine would speak gRPC, and its proofs are HTTP", "remove it"
    if key in ("checkpoint-engine-wait-weights-before-ready", "gated-launch-port") and value is not False:
        return "the engine would wait at each start for another program, which the launcher does not run", "remove it"
    needs = _NEEDS[unit.kind]
    if key == "convert" and value not in _CONVERTED.get(unit.kind, ("auto", "none")):
        kind = {"embed": "embedding", "classify": "score"}.get(str(value))
        what = f"with {truncate(str(value))} the engine does not serve kind: {unit.kind}, and {needs} proves the unit"
        return what, f"write kind: {kind}, or remove it" if kind else "remove it"
    if key == "pooling" and unit.family == "llama.cpp" and value not in _POOLING.get(unit.kind, (value,)):
        what = f"with {truncate(str(value))} the engine does not serve kind: {unit.kind}, and {needs} proves the unit"
        other = next((kind for kind, values in _POOLING.items() if value in values), "")
        return what, f"write kind: {other}, or remove it" if other else "remove it"
    if role := _read_engine_role(key, value):
        what = f"with {truncate(role)} the engine is one part of several, and {needs} from it alone proves the unit"
        return what, "remove it"
    flags = ("skip-tokenizer-init", "tokens-only", "mm-encoder-only", "encoder-only")
    if key in flags and value is True:
        return f"the engine takes no text with it, and {needs} proves the unit", "remove it"
    if key == "api-server-count" and unit.engine == "vllm" and ranks > 1:
        return "vLLM refuses it on the ranks that are headless, which all but the first are", "remove it"
    return surplus_ranks(unit.family, key, value, args, ranks)


def _read_engine_role(key: str, value: object) -> str:
    """Return the part that an engine has among several, where it alone completes no request; else nothing."""
    if key == "disaggregation-mode":
        return "" if value == "null" else str(value)
    if key == "decoupled-spec-role":
        return "drafter" if value == "drafter" else ""
    if key != "ec-transfer-config":
        return ""
    value = structured_value(value)
    role = value.get("ec_role") if isinstance(value, Mapping) else None
    return str(role) if role == "ec_producer" else ""


def surplus_ranks(
    engine: Engine, key: str, value: object, args: Mapping[str, object], ranks: int
) -> tuple[str, str] | None:
    """Return why an option needs more ranks than there are, and what is right; None if it does not.

    Args:
        engine: the engine.
        key: the long name of the option, without dashes.
        value: its value, as JSON has it.
        args: all options of the engine.
        ranks: the number of nodes over which tensor slices and stages are spread, one GPU each.
    """
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if not isinstance(number, int) or number < 2:
        return None
    if key in _COPIES and not (engine == "sglang" and args.get("enable-dp-attention") is True):
        what = f"{number} copies of a model that is split over {counted(ranks, 'node')} need {number * ranks} GPUs"
        return what, "remove it; a further unit serves a further copy"
    if key == "prefill-context-parallel-size" and engine == "vllm":
        # world_size = pipeline x tensor x prefill_context (vllm/config/parallel.py); decode_context shares the slices.
        what = f"{number} parts of a prompt beside the split over {counted(ranks, 'node')} need {number * ranks} GPUs"
        return what, "remove it; decode-context-parallel-size shares the slices"
    return None
