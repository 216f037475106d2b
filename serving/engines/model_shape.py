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

UnknownPart = Literal["weights", "cache"]

KNOWN_ARCHITECTURES = frozenset(
    name
    for family in (
        "llama llama4 mistral mistral3 ministral3 mixtral gemma2 gemma3 gemma4 gpt_oss seed_oss phi3",
        "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen3 qwen3_moe qwen3_vl qwen3_vl_moe qwen3_next qwen3_5 qwen3_5_moe",
        "deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4 glm4_moe glm4_moe_lite glm_moe_dsa",
        "kimi_k2 kimi_k25 kimi_linear minimax_m2 minimax_m3 minimax_m3_vl nemotron_h step3p5 step3p7",
    )
    for name in family.split()
)
"""The kinds of models (`model_type`, without `_text` at its end) whose weights and cache this module counts."""
_LAYER_KINDS: Mapping[str, str] = {
    "full_attention": "full",
    "attention": "full",
    # Chunks of Llama 4: the engines keep the whole context, unless an option says otherwise.
    "chunked_attention": "full",
    "sliding_attention": "sliding",
    "linear_attention": "linear",
    # Keys and values of the whole context, and an index besides.
    "minimax_m3_sparse": "full",
}
_KNOWN_KINDS = frozenset({"full", "sliding", "linear", "mamba", "moe", "mlp"})
_ADDITIONS = re.compile(r"engram_.*|ngram_.*|dspark_.*")
"""Keys of parts beside the layers whose size is not counted here: tables of n-grams, a draft module."""

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
    bits: int = 4
    """Bits of an integer weight."""
    latent: int = 0
    """Elements of the latent that multi-head latent attention (MLA) keeps for each token and layer; 0 without MLA."""
    rotary: int = 0
    """Those elements of the latent that keep the position."""
    index: int = 0
    """Bytes for each token that the indexes of sparse attention keep in all layers, the same on every rank."""
    token_bytes: int = 0
    """Bytes for each token in all layers, where the attention compresses in a way that no formula here covers."""
    state: int = 0
    """Bytes of Mamba or linear-attention state for each sequence, in all layers."""
    moe_width: int = 0
    """Width of one expert."""
    window: int = 0
    """Number of tokens that a sliding layer keeps."""
    full_kv_heads: int = 0
    full_head_dim: int = 0
    """Heads of keys and values, and their size, in the layers of the whole context; 0: those of all layers."""
    sharing: Mapping[str, int] = field(default_factory=dict)
    """Number of layers by kind that use the keys and values of another layer."""
    unknown: Mapping[UnknownPart, str] = field(default_factory=dict)
    """Why the parameters, or the cache and the state, cannot be counted; what is counted then is too little."""

    @cached_property
    def full_layers(self) -> int:
        """Number of layers that keep keys and values of the whole context."""
        return self.own_layers("full")

    def own_layers(self, kind: str) -> int:
        """Return the number of layers of a kind with keys and values of their own."""
        return self.kinds.get(kind, 0) - self.sharing.get(kind, 0)


DEEPSEEK_V4_TOKEN_BYTES = 6963
"""Bytes for each token and rank: 6.8 KiB, between reports of 6,206 bytes (5 GiB for 865,000 tokens), 7,233 (10.02 GiB
for 1,487,645) and 7,455 (7.01 GiB for 1,009,661; vllm-project/vllm#51041). The release of 2026-07-31, which has a draft
module, is reported with 7,786 to 54,828 bytes."""
DEEPSEEK_V4_LAYERS = 43
"""Layers of the one model with this attention that was reported so."""


def read(path: Path) -> ModelShape:
    """Return the shape of the model in a folder, or of the one that a config.json describes.

    `path`: a config.json, or the folder of a model; hf_quant_config.json beside it is read too, when it is there.
    Raises ModelConfigError.
    """
    file = path / "config.json" if path.is_dir() else path
    quantization = file.with_name("hf_quant_config.json")
    return parse(
        _read_json_object(file), _read_json_object(quantization) if quantization.exists() else {}, name=file.parent.name
    )


def _read_json_object(path: Path) -> dict[str, Any]:
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

    Raises ModelConfigError when a key is missing or is not a number. An architecture that is not known here has a shape
    that says so: of it only the layers are known.
    """
    inner: dict[str, Any] = next((dict(config[key]) for key in NESTED if isinstance(config.get(key), Mapping)), {})
    merged = {**config, **inner}
    reason = _unknown_architecture(config, inner)
    if reason and ("model_type" in merged or "num_hidden_layers" in merged):
        layers = merged.get("num_hidden_layers")
        return _unknown_shape(name, layers if isinstance(layers, int) and layers > 0 else 0, reason)
    try:
        return _read_shape(_Keys(merged), _read_quantization(merged, quantization or {}), name)
    except _MissingKeyError as error:
        raise ModelConfigError(
            f"{name or 'config.json'}: {error.args[0]} is missing or is not a number; "
            "give the config.json of a language model"
        ) from None


def _unknown_architecture(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    """Return why a model is of no known architecture: its name, or that of its language model, is not in the list."""
    names = [str(values.get("model_type") or "") for values in (config, inner)]
    given = [name for name in names if name]
    for name in given or [""]:
        if name.removesuffix("_text") not in KNOWN_ARCHITECTURES:
            what = f"the architecture {name}" if name else "an architecture without a name (model_type)"
            return f"{what} is not one whose memory is known here"
    return ""


def _unknown_shape(name: str, layers: int, reason: str) -> ModelShape:
    return ModelShape(
        name=name,
        layers=layers,
        kinds={},
        heads=0,
        kv_heads=0,
        head_dim=0,
        vocabulary=0,
        parameters={},
        unknown={"weights": reason, "cache": reason},
    )


class _MissingKeyError(Exception):
    """A key that the shape needs is not there."""


@dataclass(frozen=True)
class _Keys:
    """The keys of a config.json, by their several names."""

    values: Mapping[str, Any]

    def section(self, name: str) -> _Keys:
        value = self.values.get(name)
        return _Keys(value if isinstance(value, Mapping) else {})

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


def _count_layer_kinds(keys: _Keys) -> Counter[str]:
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
    return Counter(_list_layer_kinds(keys))


def _list_layer_kinds(keys: _Keys) -> list[str]:
    """Return the kind of each layer, in their order."""
    count = keys.number("num_hidden_layers")
    types = keys.values.get("layer_types")
    if isinstance(types, list) and types:
        # A list longer than the model also names the layers of multi-token prediction (Step 3.7).
        return [_LAYER_KINDS.get(str(kind), str(kind)) for kind in types[:count]]
    linear = keys.section("linear_attn_config").values.get("full_attn_layers")
    if isinstance(linear, list):
        return ["full" if place in linear else "linear" for place in range(1, count + 1)]
    for name, other in (
        ("full_attention_interval", "linear"),
        ("sliding_window_pattern", "sliding"),
        ("_sliding_window_pattern", "sliding"),
    ):
        if interval := keys.number(name, default=0):
            return [other if place % interval else "full" for place in range(1, count + 1)]
    return ["full"] * count


def _count_sharing_layers(keys: _Keys) -> Counter[str]:
    """Count the last layers by kind, which use the keys and values of a layer before them (Gemma 4)."""
    shared = keys.number("num_kv_shared_layers", default=0)
    return Counter(_list_layer_kinds(keys)[-shared:]) if shared else Counter()


def _read_shape(keys: _Keys, quantized: _Quantization, name: str) -> ModelShape:
    kinds = _count_layer_kinds(keys)
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    if not hidden or not heads:
        raise _MissingKeyError("hidden_size" if not hidden else "num_attention_heads")
    kv_heads = keys.number("num_key_value_heads", "num_attention_groups", default=heads)
    head_dim = keys.number("head_dim", default=hidden // heads)
    vocabulary = keys.number("vocab_size")
    is_v4 = str(keys.values.get("model_type", "")).startswith("deepseek_v4")
    latent = 0 if is_v4 else keys.number("kv_lora_rank", default=0)
    index, without_index = _count_index_bytes(keys, kinds, latent)
    unknown = _unknown_parts(keys, kinds, quantized)
    if without_index:
        unknown = {**unknown, "cache": without_index}
    return ModelShape(
        name=name,
        layers=sum(kinds.values()),
        kinds=dict(kinds),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        parameters=_count_parameters(keys, kinds, hidden, heads, kv_heads, head_dim),
        formats=quantized.formats,
        group=quantized.group,
        group_bits=quantized.group_bits,
        bits=quantized.bits,
        latent=latent + keys.number("qk_rope_head_dim") if latent else 0,
        rotary=keys.number("qk_rope_head_dim") if latent else 0,
        index=index,
        token_bytes=DEEPSEEK_V4_TOKEN_BYTES if is_v4 else 0,
        state=_count_state_bytes(keys, kinds),
        moe_width=keys.number("moe_intermediate_size", "intermediate_size", default=0) if _count_experts(keys) else 0,
        window=keys.number("sliding_window", default=0),
        full_kv_heads=keys.number("num_global_key_value_heads", default=0),
        full_head_dim=keys.number("global_head_dim", default=0),
        sharing=_count_sharing_layers(keys),
        unknown=unknown,
    )


def _count_index_bytes(keys: _Keys, kinds: Counter[str], latent: int) -> tuple[int, str]:
    """Return the bytes for each token of the indexes of sparse attention, or why they are not known."""
    own = keys.number("index_head_dim", default=0)
    if latent:
        return (own + 4) * kinds["full"] if own else 0, ""  # FP8, with a scale for each token
    sparse = keys.section("sparse_attention_config")
    flags = sparse.values.get("sparse_attention_freq")
    types = keys.values.get("layer_types")
    names = types if isinstance(types, list) else flags if isinstance(flags, list) else []
    layers = sum(kind in (1, "minimax_m3_sparse") for kind in names)
    if not layers:
        return 0, ""
    size = sparse.number("sparse_index_dim", default=own)
    # Keys in BF16, whatever the format of the cache (SGLang's index pool, TensorRT-LLM's side cache).
    return (2 * size * layers, "") if size else (0, "the size of the index of its sparse attention is not given")


def _unknown_parts(keys: _Keys, kinds: Counter[str], quantized: _Quantization) -> dict[UnknownPart, str]:
    found: dict[UnknownPart, str] = {}
    if quantized.unknown:
        found["weights"] = f"the format {quantized.unknown} of the weights is not known here"
    if strange := next((kind for kind in kinds if kind not in _KNOWN_KINDS), None):
        reason = f"{kinds[strange]} layers of the kind {strange} keep what is not known here"
        return {"weights": reason, "cache": reason}
    if additions := sorted(key for key, value in keys.values.items() if value and _ADDITIONS.fullmatch(key)):
        reason = f"the model has more than its layers ({additions[0]}), of a size that is not known here"
        return {"weights": reason, "cache": reason}
    is_v4 = keys.values.get("model_type") == "deepseek_v4"
    if is_v4 and sum(kinds.values()) != DEEPSEEK_V4_LAYERS:
        found["cache"] = f"its compressed attention is known for the model of {DEEPSEEK_V4_LAYERS} layers only"
    return found


def _count_experts(keys: _Keys) -> int:
    return keys.number("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", default=0)


def _moe_layers(keys: _Keys, layers: int) -> int:
    """Return the number of layers with experts; the others are dense."""
    flags = keys.values.get("moe_layer_freq")
    if isinstance(flags, list):
        return sum(flag == 1 for flag in flags)
    listed = keys.values.get("moe_layers_enum")
    if isinstance(listed, str) and listed:
        return len(listed.split(","))
    step = keys.number("interleave_moe_layer_step", default=1)
    return (layers - keys.number("first_k_dense_replace", default=0)) // max(step, 1)


def _count_attention_parameters(keys: _Keys, hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
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


def _count_parameters(
    keys: _Keys, kinds: Counter[str], hidden: int, heads: int, kv_heads: int, head_dim: int
) -> dict[Part, int]:
    """Count the parameters of each part."""
    vocabulary = keys.number("vocab_size")
    attention = _count_attention_parameters(keys, hidden, heads, kv_heads, head_dim)
    experts, width = _count_experts(keys), keys.number("moe_intermediate_size", "intermediate_size", default=0)
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
    kda = keys.section("linear_attn_config")
    if kinds["linear"] and kda.values:
        width_kda, rank_kda = kda.number("num_heads") * kda.number("head_dim"), kda.number("head_dim")
        # Queries, keys, values and output; a bottleneck for decay and one for the gate; a factor for each head.
        found["linear"] = kinds["linear"] * (
            4 * hidden * width_kda + 2 * rank_kda * (hidden + width_kda) + hidden * kda.number("num_heads")
        )
    elif kinds["linear"]:
        attention += hidden * heads * head_dim  # the output gate of Qwen3-Next and Qwen3.5
        key_heads, value_heads = keys.number("linear_num_key_heads"), keys.number("linear_num_value_heads")
        key = key_heads * keys.number("linear_key_head_dim")
        value = value_heads * keys.number("linear_value_head_dim")
        found["linear"] = kinds["linear"] * (hidden * (2 * key + 3 * value + 2 * value_heads))
    found["attention"] = (layers - kinds["linear"]) * attention
    if full_dim := keys.number("global_head_dim", default=0):
        found["attention"] += kinds["full"] * (_full_attention(keys, hidden, heads, kv_heads, full_dim) - attention)
    per_layer = keys.number("hidden_size_per_layer_input", default=0)
    if per_layer:
        tables = keys.number("vocab_size_per_layer_input", default=vocabulary) * layers * per_layer
        found["embedding"] += tables + layers * 3 * hidden * per_layer
    if not experts:
        found["dense"] = layers * 3 * hidden * keys.number("intermediate_size")
        if keys.values.get("use_double_wide_mlp"):
            found["dense"] += sum(_count_sharing_layers(keys).values()) * 3 * hidden * keys.number("intermediate_size")
        return found
    moe = _moe_layers(keys, layers)
    dense_width = keys.number("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", default=width)
    found["experts"] = moe * experts * 3 * hidden * width
    # Gemma 4 has a dense part beside the experts of each layer.
    dense = layers if keys.values.get("enable_moe_block") else layers - moe
    found["dense"] = dense * 3 * hidden * dense_width
    found["shared"] = moe * 3 * hidden * _shared_width(keys, width)
    found["router"] = moe * hidden * experts
    return found


def _shared_width(keys: _Keys, width: int) -> int:
    """Return the width of all experts of a layer that each token uses."""
    if keys.values.get("intermediate_size_mlp"):
        return width  # Llama 4 has one
    count = keys.number("n_shared_experts", "num_shared_experts", default=0)
    whole = keys.number("shared_expert_intermediate_size", "share_expert_dim", default=0)
    return whole or keys.number("shared_intermediate_size", default=width) * count


def _full_attention(keys: _Keys, hidden: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Return the number of parameters of a layer of the whole context, where it has heads of its own (Gemma 4)."""
    own = keys.number("num_global_key_value_heads", default=kv_heads)
    projections = 1 if keys.values.get("attention_k_eq_v") else 2
    return 2 * hidden * heads * head_dim + projections * hidden * own * head_dim


def _count_state_bytes(keys: _Keys, kinds: Counter[str]) -> int:
    """Return the bytes of state for each sequence: FP32 for the recurrence, BF16 for the convolution."""
    if kinds["mamba"]:
        inner = keys.number("mamba_num_heads") * keys.number("mamba_head_dim")
        size, groups = keys.number("ssm_state_size"), keys.number("n_groups")
        convolution = (inner + 2 * groups * size) * (keys.number("conv_kernel") - 1) * 2
        return kinds["mamba"] * (inner * size * 4 + convolution)
    kda = keys.section("linear_attn_config")
    if kinds["linear"] and kda.values:
        heads, size = kda.number("num_heads"), kda.number("head_dim")
        convolution = 3 * heads * size * (kda.number("short_conv_kernel_size") - 1) * 2
        return kinds["linear"] * (heads * size * size * 4 + convolution)
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
    bits: int = 4
    unknown: str = ""
    """The name of a format that is not known here."""


def _read_quantization(config: Mapping[str, Any], quantization: Mapping[str, Any]) -> _Quantization:
    """Read the formats from quantization_config of config.json, and from hf_quant_config.json."""
    own = config.get("quantization_config")
    own = own if isinstance(own, Mapping) else {}
    other = quantization.get("quantization", quantization)
    other = other if isinstance(other, Mapping) else {}
    kind, group, group_bits, bits = _read_weight_format(own, other)
    if kind is None:
        return _Quantization(unknown=_format_name(own, other))
    if kind == "bf16":
        return _Quantization()
    excluded = [str(name) for name in _list_excluded_modules(own, other) if not _SMALL.search(str(name))]
    parts: set[Part] = set(_NAMES) - {"embedding", "router", "head"}
    left = {part for part in parts if any(re.search(_NAMES[part], name) for name in excluded)}
    formats: dict[Part, Format] = dict.fromkeys(parts - left, kind)
    if str(config.get("model_type", "")).startswith("deepseek_v4") and kind == "fp8":
        formats["experts"] = "mxfp4"  # the experts of that checkpoint are in FP4 (E2M1, a scale to 32)
    return _Quantization(formats, group, group_bits, bits)


def _read_weight_format(own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Format | None, int, int, int]:
    """Return the format, group and bits of its scales, and the bits of an integer weight; None if it is not known."""
    algorithm = str(other.get("quant_algo") or own.get("quant_algo") or own.get("moe_quant_algo") or "").upper()
    method = str(own.get("quant_method") or "").lower()
    groups = own.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights: Mapping[str, Any] = first.get("weights") or {}
    size = _positive_or_zero(own.get("group_size")) or _positive_or_zero(weights.get("group_size"))
    block = own.get("weight_block_size")
    bits = _positive_or_zero(own.get("bits")) or _positive_or_zero(weights.get("num_bits"))
    if "NVFP4" in algorithm or algorithm == "MIXED_PRECISION":
        return "nvfp4", 0, 0, 4
    if algorithm.startswith("FP8") or method == "fp8":
        return "fp8", _positive_or_zero(block[0]) if isinstance(block, list) and block else 0, 0, 4
    if method == "mxfp4":
        return "mxfp4", 0, 0, 4
    if method in ("gptq", "awq", "auto-round", "gptq_marlin", "awq_marlin"):
        return "int4", size, 16 + (bits or 4), bits or 4  # a scale of 16 bits and a zero point
    if weights.get("type") == "float" and bits in (4, 8):
        return ("nvfp4", 0, 0, 4) if bits == 4 else ("fp8", 0, 0, 4)
    if weights and bits in (2, 3, 4, 8) and weights.get("type", "int") == "int":
        return "int4", size, 16, bits
    return (None if method or algorithm else "bf16"), 0, 0, 4


def _format_name(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    name = own.get("quant_method") or other.get("quant_algo") or own.get("quant_algo")
    kind = own.get("format")
    return f"{name} ({kind})" if kind else str(name)


def _positive_or_zero(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _list_excluded_modules(own: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[object]:
    for source, key in ((own, "modules_to_not_convert"), (own, "ignore"), (other, "exclude_modules")):
        names = source.get(key)
        if isinstance(names, list):
            yield from names
