"""The kind of a unit: the options of its engine, the dimension of its embeddings, its fit, and what is refused because
nothing could prove the unit."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from typing import Any

import pytest

from core.model.model_lock import ModelFile, ModelRecord
from serving import unit_kinds
from serving.engines.option_table import table
from serving.fit import parallel_of, record_shape, unit_fit, weight_size
from serving.launch import rank_argv
from serving.options import ServedUnit, served_units
from tests.unit.model.serving_racks import COMMIT, QWEN, SGLANG, loaded, refusals, text, unit

P = "serving.units.qwen"
COPIES = "2 copies of a model that is split over 2 nodes need 4 GPUs; remove it; a further unit serves a further copy"
KINDS = ("chat", "completion", "embedding", "score")
GIB = 2**30


def vllm(args: dict[str, Any] | None = None, **keys: Any) -> str:
    return text({"qwen": unit(QWEN, **{"version": "0.25.1", **keys}, args=args)})


def sglang(args: dict[str, Any] | None = None, **keys: Any) -> str:
    return text({"qwen": unit(QWEN, **{"engine": "sglang", "version": "0.5.23", "image": SGLANG, **keys}, args=args)})


def served(file: str) -> ServedUnit:
    return served_units(loaded(file))["qwen"]


def argv(file: str) -> tuple[str, ...]:
    rack = loaded(file)
    addresses = {name: IPv4Address(f"10.0.0.{place}") for place, name in enumerate(rack.nodes, 1)}
    return rank_argv(rack, served_units(rack)["qwen"], 0, addresses)


@pytest.mark.parametrize("release", sorted(table("vllm").releases))
def test_vllm_is_told_to_pool_in_each_release_and_not_to_generate(release: str) -> None:
    keys: dict[str, Any] = {"version": release, "nodes": ["n0"], "parallel": None}
    for kind in KINDS:
        words = argv(vllm(kind=kind, **keys))
        given = ["--runner", "pooling"] if kind in ("embedding", "score") else []
        assert [word for word in words if word in ("--runner", "pooling")] == given
    assert table("vllm").of(release)["--runner"].choices == ("auto", "draft", "generate", "pooling")


@pytest.mark.parametrize("release", sorted(table("sglang").releases))
def test_sglang_is_told_to_embed_in_each_release_and_knows_a_ranking_model_by_itself(release: str) -> None:
    for kind in KINDS:
        assert ("--is-embedding" in argv(sglang(kind=kind, version=release))) == (kind == "embedding")
    assert "--is-embedding" in table("sglang").of(release)


@pytest.mark.parametrize(
    ("file", "key"),
    [
        (vllm({"runner": "pooling"}, kind="embedding"), "runner"),
        (vllm({"runner": "generate"}), "runner"),
        (vllm({"task": "embed"}, version="0.10.2", nodes=["n0"], parallel=None), "task"),
        (sglang({"is-embedding": True}, kind="score"), "is-embedding"),
        (sglang({"is-embedding": False}), "is-embedding"),
    ],
)
def test_the_options_that_follow_from_the_kind_are_refused_in_args(file: str, key: str) -> None:
    assert refusals(file) == [
        f"{P}.args.{key} @ {key}: --{key} follows from the key kind of the unit; remove it from args"
    ]


@pytest.mark.parametrize(
    ("file", "key", "expected"),
    [
        (
            vllm({"ssl-certfile": "/models/qwen/a.pem"}),
            "ssl-certfile",
            "the engine would speak TLS, and its proofs are plain HTTP; remove it; serving.gateway gives clients TLS",
        ),
        (vllm({"uds": "/cache/s"}), "uds", "the engine would listen on a socket file and on no port; remove it"),
        (vllm({"grpc": True}), "grpc", "the engine would speak gRPC, and its proofs are HTTP; remove it"),
        (
            vllm({"convert": "embed"}),
            "convert",
            (
                "with embed the engine does not serve kind: chat, and a completion proves the unit; write kind: "
                "embedding, or remove it"
            ),
        ),
        (
            vllm({"convert": "classify"}, kind="embedding"),
            "convert",
            (
                "with classify the engine does not serve kind: embedding, and an embedding proves the unit; write "
                "kind: score, or remove it"
            ),
        ),
        (
            vllm({"convert": "reward"}, kind="score", version="0.13.0"),
            "convert",
            "with reward the engine does not serve kind: score, and a ranking proves the unit; remove it",
        ),
        (
            vllm({"tokens-only": True}, kind="embedding"),
            "tokens-only",
            "the engine takes no text with it, and an embedding proves the unit; remove it",
        ),
        (
            sglang({"disaggregation-mode": "prefill"}),
            "disaggregation-mode",
            "with prefill the engine is one part of several, and a completion from it alone proves the unit; remove it",
        ),
        (
            sglang({"decoupled-spec-role": "drafter"}),
            "decoupled-spec-role",
            "with drafter the engine is one part of several, and a completion from it alone proves the unit; remove it",
        ),
        (
            vllm({"ec-transfer-config": '{"ec_connector": "x", "ec_role": "ec_producer"}'}),
            "ec-transfer-config",
            (
                "with ec_producer the engine is one part of several, and a completion from it alone proves the unit; "
                "remove it"
            ),
        ),
        (
            sglang({"checkpoint-engine-wait-weights-before-ready": True}),
            "checkpoint-engine-wait-weights-before-ready",
            "the engine would wait at each start for another program, which the launcher does not run; remove it",
        ),
        (vllm({"data-parallel-size": 2}), "data-parallel-size", COPIES),
        (
            vllm({"data-parallel-size": 2}, nodes=["n0"], parallel=None),
            "data-parallel-size",
            COPIES.replace("2 nodes need 4", "1 node need 2"),
        ),
        (
            vllm({"api-server-count": 2}),
            "api-server-count",
            "vLLM refuses it on the ranks that are headless, which all but the first are; remove it",
        ),
    ],
)
def test_an_option_with_which_nothing_can_prove_the_unit_is_refused(file: str, key: str, expected: str) -> None:
    assert refusals(file) == [f"{P}.args.{key} @ {key}: {expected}"]


@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "last", "rank"])
@pytest.mark.parametrize("kind", KINDS)
def test_llama_server_pools_as_the_kind_of_its_unit_needs(kind: str, pooling: str) -> None:
    proven = {"embedding": ("mean", "cls", "last"), "score": ("rank",)}.get(kind, (pooling,))
    keys: dict[str, Any] = {"engine": "llama.cpp", "version": "b11434", "nodes": ["n1"], "parallel": None, "kv": "1G"}
    keys["memory"] = None
    found = refusals(text({"qwen": unit(**keys, gguf="q.gguf", kind=kind, args={"pooling": pooling})}))
    assert len(found) == (pooling not in proven)
    for line in found:
        assert line.startswith(f"{P}.args.pooling @ pooling: with {pooling} the engine does not serve kind: {kind}")
    if (kind, pooling) == ("embedding", "rank"):
        assert found[0].endswith("; write kind: score, or remove it")


@pytest.mark.parametrize(
    "file",
    [
        vllm({"convert": "none", "data-parallel-size": 1}),
        vllm({"convert": "auto", "skip-tokenizer-init": False}),
        vllm({"convert": "embed"}, kind="embedding"),
        *(vllm({"convert": value}, kind="score") for value in ("embed", "classify", "auto", "none")),
        vllm({"api-server-count": 2}, nodes=["n0"], parallel=None),
        vllm({"ec-transfer-config": {"ec_connector": "x", "ec_role": "ec_consumer"}}),
        vllm({"ec-transfer-config": {"ec_connector": "x", "ec_role": "ec_both"}}),
        sglang({"dp-size": 2, "enable-dp-attention": True, "disaggregation-mode": "null"}),
        sglang({"grpc-mode": False, "dp-size": 1, "decoupled-spec-role": "verifier"}),
        sglang({"checkpoint-engine-wait-weights-before-ready": False}),
        *(vllm(kind=kind) for kind in KINDS),
        *(sglang(kind=kind) for kind in KINDS),
        vllm(kind="completion", probe={"answer": {"ask": "a", "say": "b"}}),
    ],
)
def test_an_option_with_which_the_unit_can_be_proven_is_accepted(file: str) -> None:
    assert refusals(file) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"kind": "embed"}, f"{P}.kind @ kind: embed is not known; did you mean embedding?"),
        (
            {"probe": {"chat": False}},
            f"{P}.probe.chat @ chat: unknown key; known keys are every, limit, misses, ready, answer, tool",
        ),
        (
            {"kind": "completion", "probe": {"tool": True}},
            (
                f"{P}.probe.tool @ tool: a tool call is a chat completion, and kind is completion; write kind: chat, "
                "or remove it"
            ),
        ),
        (
            {"kind": "embedding", "probe": {"answer": False}},
            (
                f"{P}.probe.answer @ answer: is the answer to a completion, and kind is embedding: texts of its own "
                "prove it; remove it"
            ),
        ),
        (
            {"memory": 0.019},
            f"{P}.memory @ memory: 0.019 is 2.3 GiB, in which no engine is known to run; write at least 0.02",
        ),
        (
            {"memory": -1},
            f"{P}.memory @ memory: -1 is 0.0 GiB, in which no engine is known to run; write at least 0.02",
        ),
    ],
)
def test_what_does_not_go_with_the_kind_or_no_engine_runs_in_is_refused(keys: dict[str, Any], expected: str) -> None:
    assert refusals(vllm(**keys)) == [expected]


@pytest.mark.parametrize("share", [0.02, 0.05, 0.9])
def test_a_small_model_may_have_a_small_share(share: float) -> None:
    assert refusals(vllm(kind="embedding", memory=share)) == []


def recorded(config: dict[str, Any] | str, *paths: str, weights: int = 0) -> ModelRecord:
    """The record of a model with this configuration: a text, or its values."""
    text_of = config if isinstance(config, str) else json.dumps(config)
    files = [ModelFile(path, 1, "0" * 64) for path in paths]
    files += [ModelFile("model.safetensors", weights, "0" * 64)] if weights else []
    return ModelRecord("o/m", COMMIT, tuple(files), {"config.json": text_of} if text_of else {})


@pytest.mark.parametrize(
    ("file", "record", "expected"),
    [
        (vllm(kind="embedding"), recorded({"hidden_size": 1024}), 1024),
        (sglang(kind="embedding"), recorded({"hidden_size": 1024}, "1_Pooling/config.json", "modules.json"), 1024),
        (vllm(kind="embedding"), recorded({"hidden_size": 1024}, "2_Dense/model.safetensors"), 0),
        (vllm(kind="embedding", args={"pooler-config": {"dimensions": 256}}), recorded({"hidden_size": 1024}), 0),
        (vllm(kind="embedding", args={"hf-overrides": '{"a": 1}'}), recorded({"hidden_size": 1024}), 0),
        (vllm(kind="score"), recorded({"hidden_size": 1024}), 0),
        (vllm(kind="embedding"), recorded({"hidden_size": True}), 0),
        (vllm(kind="embedding"), recorded({"hidden_size": 65537}), 0),
        (vllm(kind="embedding"), recorded("[]"), 0),
        (vllm(kind="embedding"), recorded(""), 0),
    ],
)
def test_the_dimension_is_the_hidden_size_of_the_lock_file_unless_something_may_change_it(
    file: str, record: ModelRecord, expected: int
) -> None:
    assert unit_kinds.dimension(served(file), record) == expected


@pytest.mark.parametrize(
    ("architecture", "kind", "right"),
    [
        ("BertModel", "chat", "embedding"),
        ("XLMRobertaModel", "completion", "embedding"),
        ("BertModel", "embedding", ""),
        ("XLMRobertaForSequenceClassification", "embedding", "score"),
        ("Qwen3ForSequenceClassification", "chat", "score"),
        ("Qwen3ForSequenceClassification", "score", ""),
        ("Qwen2ForRewardModel", "chat", "score"),
        ("Qwen3ForCausalLM", "chat", ""),
        ("Qwen3ForCausalLM", "embedding", ""),
    ],
)
def test_a_model_that_cannot_give_what_the_kind_asks_for_is_refused(architecture: str, kind: str, right: str) -> None:
    texts = {"config.json": json.dumps({"architectures": [architecture]})}
    files = {"config.json": {"size": 1, "sha256": "0" * 64}}
    values = {"revision": COMMIT, "files": files, "configurations": texts}
    expected = f"{P}.kind @ kind: qwen is a {architecture}, which gives no answer of kind {kind}; write kind: {right}"
    assert refusals(vllm(kind=kind), {"qwen": values}) == ([expected] if right else [])
    overridden = vllm({"hf-overrides": '{"architectures": ["X"]}'}, kind=kind)
    assert refusals(overridden, {"qwen": values}) == []
    for odd in ("[]", "{", '{"architectures": []}', '{"architectures": 5}'):
        assert refusals(vllm(kind=kind), {"qwen": {**values, "configurations": {"config.json": odd}}}) == []


SMALL = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 28,
    "intermediate_size": 3072,
    "vocab_size": 151669,
    "torch_dtype": "bfloat16",
}
"""The config.json of Qwen3-Embedding-0.6B, as far as it is read."""


def verdict(record: ModelRecord, **keys: Any) -> tuple[str, dict[str, str]]:
    chosen = served(vllm(nodes=["n0"], parallel=None, context=8192, **keys))
    found = unit_fit(chosen, record_shape("qwen", record), weight_size(record), parallel_of(chosen))
    return found.verdict, dict(found.fit.unknown)


def test_whether_a_small_unit_that_pools_fits_is_unknown_until_it_is_measured() -> None:
    small = recorded(SMALL, weights=int(1.2 * GIB))
    unknown = "what an engine that pools takes beside weights and cache is not known here; write overhead"
    assert verdict(small, kind="embedding", memory=0.05) == ("unknown", {"overhead": unknown})
    assert verdict(small, kind="embedding", memory=0.05, overhead="2G") == ("yes", {})
    assert verdict(small, kind="embedding", memory=0.02)[0] == "no", "weights, keys and values, and 1 GiB are 3.1 GiB"
    assert verdict(small, memory=0.05)[0] == "no", "8 GiB are counted beside the weights of an engine that generates"


@pytest.mark.parametrize(
    ("kind", "path", "keys", "answer"),
    [
        ("chat", "/v1/completions", {"prompt", "max_tokens", "temperature"}, {"choices": [{"text": "4"}]}),
        ("completion", "/v1/completions", {"prompt", "max_tokens", "temperature"}, {"choices": [{"text": "4"}]}),
        ("embedding", "/v1/embeddings", {"input"}, {"data": [{"index": 0, "embedding": [0.5]}]}),
        ("score", "/v1/rerank", {"query", "documents"}, {"results": [{"index": 0, "relevance_score": 0.5}]}),
        ("score", "/v1/rerank", {"query", "documents"}, [{"index": 0, "score": 0.5}]),
    ],
)
def test_what_the_gateway_is_asked_for_is_of_the_kind_of_the_unit(
    kind: str, path: str, keys: set[str], answer: object
) -> None:
    asked, body, word = unit_kinds.request(served(vllm(kind=kind)))
    assert (asked, set(body)) == (path, keys)
    assert word in json.dumps(answer)
    assert word not in json.dumps({"error": {"message": "The model does not support it.", "code": 404}})
