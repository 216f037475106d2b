"""Engines that pool, as processes: what they answer in the forms of vLLM and SGLang, and what a unit with one must
prove at its start and goes on to prove."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contact.nodes import free_port
from tests.serving.engines import ENGINE, STAND_IN, EngineOfTests, engine_metrics
from tests.serving.serve_modules import serve_answers, serve_probe, serve_unit
from tests.serving.serving_rack import PATIENCE, ServingRack
from tests.serving.test_busy import ProbedEngine, probed  # noqa: F401 - a fixture
from tests.serving.test_unit_file import MINIMAL, written

WRONG = {
    "nan": "a value that is not a finite number (NaN)",
    "null": "a value that is not a finite number (null)",
    "constant": "not nearer",
    "zero": "is all zeros",
    "far": "not nearer",
    "short": "the embeddings have 64, 63 and 62 numbers",
    "text": "no embeddings: ",
    "dimension": "the embeddings have 65 numbers, expected 64",
}
"""Why no embedding of the stand-in proves a unit, by its fault."""
WRONG_SCORES = {
    "nan": "a score is not a finite number (NaN)",
    "null": "a score is not a finite number (null)",
    "constant": "the right document has the score 0.5, the wrong one 0.5",
    "zero": "the right document has the score 0, the wrong one 0",
    "far": "the right document has the score -",
    "short": "no ranking: ",
    "text": 'a score is not a finite number ("high")',
}


class PoolingEngine:
    """One rank of the stand-in on loopback, and a unit whose API it is."""

    def __init__(self, folder: Path, engine: str, *words: str) -> None:
        self.faults = folder / "faults"
        self.faults.mkdir()
        port = free_port()
        start = ["serve", "toy"] if engine == "vllm" else ["sglang", "--model-path", "toy", "--enable-metrics"]
        listen = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "qwen3"]
        environment = {"STANDIN_SHM": str(folder), "STANDIN_FAULTS": str(self.faults), "STANDIN_STOP_SECONDS": "0.1"}
        self.process = subprocess.Popen(
            [sys.executable, str(ENGINE), *start, *listen, *words],
            env={**os.environ, **environment},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        changes = {"api": {"address": "127.0.0.1", "port": port}, "metrics": engine_metrics(engine)}
        self.unit: Any = serve_unit.load_unit(written(folder, MINIMAL | changes))
        self.url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + PATIENCE
        while self.status("/health") != 200:
            assert time.monotonic() < until
            time.sleep(0.05)

    def status(self, path: str, body: object = None) -> int:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self.url}{path}", data, timeout=PATIENCE) as answer:  # noqa: S310 - of this test
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def prove(self, kind: str, dimension: int = 0) -> int:
        unit = replace(self.unit, probe=replace(self.unit.probe, kind=kind))
        found: int = serve_probe.prove(unit, serve_probe.ApiRequest(unit, PATIENCE), dimension, start=True)
        return found

    def progress(self) -> Any:
        return serve_probe.progress(self.unit, serve_probe.ApiRequest(self.unit, PATIENCE))

    def fault(self, content: str) -> None:
        (self.faults / "pooled").write_text(content)


@pytest.fixture
def lone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PoolingEngine]:
    made = PoolingEngine(tmp_path, *request.param)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()


POOLING = pytest.mark.parametrize(
    "lone", [("vllm", "--runner", "pooling"), ("sglang", "--is-embedding")], indirect=True, ids=["vllm", "sglang"]
)


@POOLING
def test_an_engine_that_pools_proves_embeddings_and_rankings_and_completes_nothing(lone: PoolingEngine) -> None:
    assert lone.prove("embedding") == 64
    assert lone.prove("score") == 0
    for kind in ("chat", "completion"):
        with pytest.raises(
            serve_answers.WrongAnswerError, match=r"^the completion has HTTP status 404: .*write kind: emb"
        ):
            lone.prove(kind)
    assert lone.status("/v1/chat/completions", {"model": "qwen3", "messages": []}) == 404


@POOLING
def test_what_an_engine_that_pools_computes_moves_its_counters(lone: PoolingEngine) -> None:
    before = lone.progress()
    assert before, "no metric of this engine is known"
    lone.prove("embedding")
    after = lone.progress()
    assert serve_probe.moved(lone.unit, before, after)
    assert not serve_probe.moved(lone.unit, after, lone.progress()), "nothing was asked"


@POOLING
def test_wrong_embeddings_and_scores_prove_nothing(lone: PoolingEngine) -> None:
    for fault, reason in WRONG.items():
        lone.fault(fault)
        with pytest.raises(serve_answers.WrongAnswerError) as refused:
            lone.prove("embedding", 64)
        assert reason in str(refused.value), fault
    for fault, reason in WRONG_SCORES.items():
        lone.fault(fault)
        with pytest.raises(serve_answers.WrongAnswerError) as refused:
            lone.prove("score")
        assert reason in str(refused.value), fault


@pytest.mark.parametrize("lone", [("vllm",), ("sglang",)], indirect=True, ids=["vllm", "sglang"])
def test_an_engine_that_generates_serves_no_embeddings(lone: PoolingEngine) -> None:
    with pytest.raises(
        serve_answers.WrongAnswerError, match=r"^the embedding has HTTP status 40[04]: .*; write the kind"
    ):
        lone.prove("embedding")
    assert lone.prove("completion") == 0


# A unit of two nodes, with coordinator, agents and engines as processes


@pytest.fixture
def pooling_rack(tmp_path: Path, engine: EngineOfTests) -> Iterator[ServingRack]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = ServingRack(tmp_path, engine=engine, kind="embedding")
    try:
        yield made
    finally:
        made.down()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("embedding", "three embeddings of 64 numbers, the near pair nearer, each rank moved bytes by RDMA"),
        ("score", "a ranking with the right document first, each rank moved bytes by RDMA"),
    ],
)
def test_a_unit_that_pools_is_ready_and_says_what_was_proven(pooling_rack: ServingRack, kind: str, words: str) -> None:
    rack = pooling_rack
    rack.up(rdma="required", probe={"kind": kind})
    rack.start()
    assert rack.reason("ready") == words
    path = {"embedding": "/v1/embeddings", "score": "/v1/rerank"}[kind]
    count = rack.requests(path)
    rack.wait(lambda: rack.requests(path) > count, "the same is asked for again")
    assert rack.requests("/v1/completions") == 0
    assert rack.status()["dimension"] == (64 if kind == "embedding" else 0)
    rack.ask_coordinator("down")
    rack.wait_for("down")


@pytest.mark.parametrize(
    "engine", [STAND_IN.name, pytest.param("vllm", marks=pytest.mark.soak(sampled=False))], indirect=True
)
def test_a_unit_whose_embeddings_are_all_alike_is_held(pooling_rack: ServingRack) -> None:
    """So are those of the language model of the tests, when vLLM pools with it."""
    rack = pooling_rack
    (rack.nodes[0].folder / "faults/pooled").write_text("constant")
    rack.up(probe={"kind": "embedding"})
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    assert rack.wait_for("held")["reason"].startswith("the embeddings of two near texts are not nearer (1.00)")


def test_a_unit_that_embeds_with_another_dimension_than_before_is_stuck(pooling_rack: ServingRack) -> None:
    rack = pooling_rack
    rack.up(restart={"times": 0}, probe={"kind": "embedding"})
    rack.start()
    (rack.nodes[0].folder / "faults/pooled").write_text("dimension")
    reason = rack.wait_for("held")["reason"]
    assert "2 embeddings in a row failed and no counter rose: the embeddings have 65 numbers, expected 64" in reason


# What is life, and what is a hang


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("asks", ["embedding", "score"])
def test_an_engine_that_pools_and_hangs_is_found_and_one_that_computes_is_not(
    probed: Callable[..., ProbedEngine],  # noqa: F811
    kind: str,
    asks: str,
) -> None:
    unit = probed(kind, asks=asks)
    unit.up()
    unit.fault("busy")  # requests of others are computed, and none of the prober ends
    unit.wait(lambda: unit.state == "busy", "busy")
    unit.survives()
    unit.mend("busy")
    unit.wait(lambda: unit.state == "ready", "ready")
    unit.fault("livelock")
    unit.wait(lambda: unit.state not in ("ready", "busy"), "the hang is found")
    noun = {"embedding": "embeddings", "score": "rankings"}[asks]
    (reason,) = [reason for _, state, _, reason in unit.lifecycle.record.transitions if state == "stuck"]
    assert reason.startswith(f"2 {noun} in a row failed and no counter rose: no answer within")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_long_prompt_of_an_engine_that_pools_is_life(probed: Callable[..., ProbedEngine], kind: str) -> None:  # noqa: F811
    unit = probed(kind, asks="embedding")
    unit.up()
    unit.fault("prefill")
    unit.survives()
