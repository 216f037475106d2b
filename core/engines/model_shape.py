"""The shape of a model: its layers, its attention and its number formats, read from its config.json."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from core.util import regular_file

Part = Literal["embedding", "head", "attention", "dense", "experts", "shared", "router", "mamba", "linear"]
Format = Literal["bf16", "fp8", "mxfp4", "nvfp4", "int4"]

NESTED = ("text_config", "llm_config", "language_config")
"""Keys under which a model that also sees or hears keeps the configuration of its language model."""

_NAMES: Mapping[Part, str] = {
    "head": r"lm_head|(^|\.)head$",
    "embedding": r"embed_tokens",
    "attention": r"self_attn|\.attn\b|mixer\.[qkvo]_proj",
    "linear": r"linear_attn",
    "shared": r"shared_expert",
    "experts": r"\.experts",
    "router": r"\.gate$|router",
    "dense": r"\.mlp\.(gate_proj|up_proj|down_proj|\*)|\.mlp\*?$",
    "mamba": r"mixer\.(in|out)_proj",
}
"""How module names of a checkpoint name each part, in the lists of modules that are not quantised."""
_SMALL = re.compile(r"norm|bias|indexer|shared_expert_gate|conv1d|kv_scale")
"""Modules that are left out of a quantisation and have next to no parameters."""


class ModelConfigError(Exception):
    """A config.json cannot be used; the message says what is wrong and what would be right."""


@dataclass(frozen=True)
class ModelShape:
    """What one config.json says about the size of a model.

    `parameters`: number of parameters by part, without vision towers and without the layers of multi-token prediction.
    `formats`: number format of each part that is not BF16. `group`: number of weights that share a scale, by which the
    width of each rank's slice must be divisible; 0 if the format has none that an engine insists on. `group_bits`:
    bits of scale and zero point for each group.
    """

    name: str
    layers: int
    kinds: Mapping[str, int]
    """Number of layers by kind: full, sliding, linear, mamba, moe, mlp."""
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    parameters: Mapping[Part, int]
    formats: Mapping[Part, Format] = field(default_factory=dict)
    group: int = 0
    group_bits: int = 20
    latent: int = 0
    """Elements of the latent that multi-head latent attention (MLA) keeps for each token and layer; 0 without MLA."""
    index: int = 0
    """Bytes that a sparse-attention indexer keeps for each token and layer."""
    token_bytes: int = 0
    """Bytes for each token in all layers, where the attention compresses in a way that no formula here covers."""
    state: int = 0
    """Bytes of Mamba or linear-attention state for each sequence, in all layers."""
    moe_width: int = 0
    """Width of one expert."""
    window: int = 0
    """Number of tokens that a sliding layer keeps."""

    @cached_property
    def full_layers(self) -> int:
        """Number of layers that keep keys and values of the whole context."""
        return self.kinds.get("full", 0)


DEEPSEEK_V4_TOKEN_BYTES = 6963
"""Bytes for each token and rank: 6.8 KiB, between two reports, 5 GiB for 865,000 tokens and 10.02 GiB for 1,487,645."""


def read(path: Path) -> ModelShape:
    """Return the shape of the model in a folder, or of the one that a config.json describes.

    `path`: a config.json, or the folder of a model; hf_quant_config.json beside it is read too, when it is there.
    Raises ModelConfigError.
    """
    file = path / "config.json" if path.is_dir() else path
    quantization = file.with_name("hf_quant_config.json")
    return parse(_json(file), _json(quantization) if quantization.exists() else {}, name=file.parent.name)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(regular_file.read_bytes(path))
    except OSError as error:
        raise ModelConfigError(f"{path}: cannot be read: {error.strerror}; give the config.json of a model") from None
    except ValueError as error:
        raise ModelConfigError(f"{path}: is not JSON: {error}; give the config.json of a model") from None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{path}: is not a JSON object; give the config.json of a model")
    return value


def parse(config: Mapping[str, Any], quantization: Mapping[str, Any] | None = None, name: str = "") -> ModelShape:
    """Return the shape that a parsed config.json, and a parsed hf_quant_config.json, describe.

    Raises ModelConfigError when a key is missing or is not a number.
    """
    inner: dict[str, Any] = next((dict(config[key]) for key in NESTED if isinstance(config.get(key), Mapping)), {})
    merged = {**config, **inner}
    try:
        return _shape(_Keys(merged), _quantized(merged, quantization or {}), name)
    except _MissingKeyError as error:
        raise ModelConfigError(
            f"{name or 'config.json'}: {error.args[0]} is missing or is not a number; "
            "give the config.json of a language model"
        ) from None


class _MissingKeyError(Exception):
    """A key that the shape needs is not there."""


@dataclass(frozen=True)
class _Keys:
    """The keys of a config.json, by their several names."""

    values: Mapping[str, Any]

    def number(self, *names: str, default: int | None = None) -> int:
        for key in names:
            value = self.values.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                if value < 0:
                    raise _MissingKeyError(key)
                return value
            if value is not None:
                raise _MissingKeyError(key)
        if default is None:
            raise _MissingKeyError(names[0])
        return default


def _kinds(keys: _Keys) -> Counter[str]:
    """Count the kinds of layers."""
    values = keys.values
    pattern = values.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        names = {"M": "mamba", "E": "moe", "*": "full", "-": "mlp"}  # the letters of Nemotron-H
        if set(pattern) - set(names):
            raise _MissingKeyError("hybrid_override_pattern")
        return Counter(names[letter] for letter in pattern)
    blocks = values.get("layers_block_type")
    if isinstance(blocks, list):
        return Counter("full" if block == "attention" else str(block) for block in blocks)
    count = keys.number("num_hidden_layers")
    types = values.get("layer_types")
    if isinstance(types, list) and types:
        # A list longer than the model also names the layers of multi-token prediction (Step 3.7).
        return Counter(str(kind).split("_")[0] for kind in types[:count])
    interval = keys.number("full_attention_interval", default=0)
    if interval:
        full = count // interval
        return Counter(full=full, linear=count - full)
    return Counter(full=count)


def _shape(keys: _Keys, quantized: _Quantization, name: str) -> ModelShape:
    kinds = _kinds(keys)
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    if not hidden or not heads:
        raise _MissingKeyError("hidden_size" if not hidden else "num_attention_heads")
    kv_heads = keys.number("num_key_value_heads", "num_attention_groups", default=heads)
    head_dim = keys.number("head_dim", default=hidden // heads)
    vocabulary = keys.number("vocab_size")
    is_v4 = str(keys.values.get("model_type", "")).startswith("deepseek_v4")
    latent = 0 if is_v4 else keys.number("kv_lora_rank", default=0)
    index = keys.number("index_head_dim", default=0)
    return ModelShape(
        name=name,
        layers=sum(kinds.values()),
        kinds=dict(kinds),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        parameters=_parameters(keys, kinds, hidden, heads, kv_heads, head_dim),
        formats=quantized.formats,
        group=quantized.group,
        group_bits=quantized.group_bits,
        latent=latent + keys.number("qk_rope_head_dim") if latent else 0,
        index=index + 4 if index and latent else 0,
        token_bytes=DEEPSEEK_V4_TOKEN_BYTES if is_v4 else 0,
        state=_state(keys, kinds),
        moe_width=keys.number("moe_intermediate_size", "intermediate_size", default=0) if _experts(keys) else 0,
        window=keys.number("sliding_window", default=0),
    )


def _experts(keys: _Keys) -> int:
    return keys.number("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", default=0)


def _attention(keys: _Keys, hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the number of parameters of one attention layer."""
    if str(keys.values.get("model_type", "")).startswith("deepseek_v4"):
        # Queries through a latent, one key-value head, outputs in groups through a latent of their own.
        query = keys.number("q_lora_rank")
        groups, out = keys.number("o_groups", default=1), keys.number("o_lora_rank", default=hidden)
        values = heads * head_dim
        return hidden * query + query * values + hidden * head_dim + values * out + groups * out * hidden
    rank = keys.number("kv_lora_rank", default=0)
    if rank:
        rope, nope = keys.number("qk_rope_head_dim"), keys.number("qk_nope_head_dim")
        values = keys.number("v_head_dim")
        query = keys.number("q_lora_rank", default=0)
        queries = hidden * query + query * heads * (nope + rope) if query else hidden * heads * (nope + rope)
        return queries + hidden * (rank + rope) + rank * heads * (nope + values) + heads * values * hidden
    return 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim


def _parameters(
    keys: _Keys, kinds: Counter[str], hidden: int, heads: int, kv_heads: int, head_dim: int
) -> dict[Part, int]:
    """Count the parameters of each part."""
    vocabulary = keys.number("vocab_size")
    attention = _attention(keys, hidden, heads, kv_heads, head_dim)
    experts, width = _experts(keys), keys.number("moe_intermediate_size", "intermediate_size", default=0)
    found: dict[Part, int] = {
        "embedding": vocabulary * hidden,
        "head": 0 if keys.values.get("tie_word_embeddings") else vocabulary * hidden,
    }
    if kinds["mamba"]:
        mamba_heads = keys.number("mamba_num_heads")
        inner = mamba_heads * keys.number("mamba_head_dim")
        state = keys.number("n_groups") * keys.number("ssm_state_size")
        latent = keys.number("moe_latent_size", default=0) or hidden
        found["mamba"] = kinds["mamba"] * (hidden * (2 * inner + 2 * state + mamba_heads) + inner * hidden)
        found["attention"] = kinds["full"] * attention
        found["experts"] = kinds["moe"] * experts * 2 * latent * width
        found["shared"] = kinds["moe"] * 2 * hidden * keys.number("moe_shared_expert_intermediate_size", default=0)
        if latent != hidden:
            found["shared"] += kinds["moe"] * 2 * hidden * latent
        found["router"] = kinds["moe"] * hidden * experts
        found["dense"] = kinds["mlp"] * 2 * hidden * keys.number("intermediate_size", default=0)
        return found
    layers = sum(kinds.values())
    if kinds["linear"]:
        attention += hidden * heads * head_dim  # the output gate of Qwen3-Next and Qwen3.5
        key_heads, value_heads = keys.number("linear_num_key_heads"), keys.number("linear_num_value_heads")
        key = key_heads * keys.number("linear_key_head_dim")
        value = value_heads * keys.number("linear_value_head_dim")
        found["linear"] = kinds["linear"] * (hidden * (2 * key + 3 * value + 2 * value_heads))
    found["attention"] = (layers - kinds["linear"]) * attention
    if not experts:
        found["dense"] = layers * 3 * hidden * keys.number("intermediate_size")
        return found
    dense = keys.number("first_k_dense_replace", default=0)
    moe = keys.values.get("moe_layers_enum")
    if isinstance(moe, str) and moe:
        dense = layers - len(moe.split(","))
    found["experts"] = (layers - dense) * experts * 3 * hidden * width
    found["dense"] = dense * 3 * hidden * keys.number("intermediate_size", default=width)
    shared = keys.number("shared_expert_intermediate_size", "share_expert_dim", default=0)
    shared = shared or width * keys.number("n_shared_experts", default=0)
    found["shared"] = (layers - dense) * 3 * hidden * shared
    found["router"] = (layers - dense) * hidden * experts
    return found


def _state(keys: _Keys, kinds: Counter[str]) -> int:
    """Return the bytes of state for each sequence: FP32 for the recurrence, BF16 for the convolution."""
    if kinds["mamba"]:
        inner = keys.number("mamba_num_heads") * keys.number("mamba_head_dim")
        size, groups = keys.number("ssm_state_size"), keys.number("n_groups")
        convolution = (inner + 2 * groups * size) * (keys.number("conv_kernel") - 1) * 2
        return kinds["mamba"] * (inner * size * 4 + convolution)
    if kinds["linear"]:
        key, value = keys.number("linear_key_head_dim"), keys.number("linear_value_head_dim")
        key_heads, value_heads = keys.number("linear_num_key_heads"), keys.number("linear_num_value_heads")
        convolution = (2 * key_heads * key + value_heads * value) * 3 * 2
        return kinds["linear"] * (value_heads * key * value * 4 + convolution)
    return 0


@dataclass(frozen=True)
class _Quantization:
    """How the weights are kept; the fields are those of ModelShape."""

    formats: Mapping[Part, Format] = field(default_factory=dict)
    group: int = 0
    group_bits: int = 20


def _quantized(config: Mapping[str, Any], quantization: Mapping[str, Any]) -> _Quantization:
    """Read the formats from quantization_config of config.json, and from hf_quant_config.json."""
    own = config.get("quantization_config")
    own = own if isinstance(own, Mapping) else {}
    other = quantization.get("quantization", quantization)
    other = other if isinstance(other, Mapping) else {}
    kind, group, group_bits = _format(own, other)
    if kind == "bf16":
        return _Quantization()
    excluded = [str(name) for name in _excluded(own, other) if not _SMALL.search(str(name))]
    parts: set[Part] = set(_NAMES) - {"embedding", "router", "head"}
    left = {part for part in parts if any(re.search(_NAMES[part], name) for name in excluded)}
    formats: dict[Part, Format] = dict.fromkeys(parts - left, kind)
    if str(config.get("model_type", "")).startswith("deepseek_v4") and kind == "fp8":
        formats["experts"] = "mxfp4"  # the experts of that checkpoint are in FP4 (E2M1, a scale to 32)
    return _Quantization(formats, group, group_bits)


def _format(own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Format, int, int]:
    """Return the format, and group and bits of its scales. Raises ModelConfigError for a method that is not known."""
    algorithm = str(other.get("quant_algo") or own.get("quant_algo") or own.get("moe_quant_algo") or "").upper()
    method = str(own.get("quant_method") or "").lower()
    groups = own.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights: Mapping[str, Any] = first.get("weights") or {}
    size = _count(own.get("group_size")) or _count(weights.get("group_size"))
    block = own.get("weight_block_size")
    found: tuple[Format, int, int] | None = None
    if "NVFP4" in algorithm or algorithm == "MIXED_PRECISION":
        found = "nvfp4", 0, 0
    elif algorithm.startswith("FP8") or method == "fp8":
        found = "fp8", _count(block[0]) if isinstance(block, list) and block else 0, 0
    elif method == "mxfp4":
        found = "mxfp4", 0, 0
    elif method in ("gptq", "awq", "auto-round", "gptq_marlin", "awq_marlin"):
        found = "int4", size, 20  # a scale of 16 bits and a zero point of 4
    elif weights.get("num_bits") == 4:
        found = ("nvfp4", 0, 0) if weights.get("type") == "float" else ("int4", size, 16)
    elif weights.get("num_bits") == 8 and weights.get("type") == "float":
        found = "fp8", 0, 0
    elif not method and not algorithm:
        found = "bf16", 0, 0
    if found is None:
        what = method or algorithm
        raise ModelConfigError(f"quantisation {what} is not known here; give the size of the weights with --weights")
    return found


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _excluded(own: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[object]:
    for source, key in ((own, "modules_to_not_convert"), (own, "ignore"), (other, "exclude_modules")):
        names = source.get(key)
        if isinstance(names, list):
            yield from names
