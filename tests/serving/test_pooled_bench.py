"""`sparkrack serve bench` of units that pool: a stand-in engine that answers, asked by the program in its container."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkrack.serving.bench_record import baseline_path
from tests.serving.test_pooling_engines import PoolingEngine
from tests.unit.cli.test_serve_bench import Head
from tests.unit.model.serving_racks import NEMOTRON, unit

PYTHON = """\
#!/bin/sh
case "$1 $2" in "-c import importlib.metadata"*) echo 0.19.1; exit 0;; esac
for word; do shift; set -- "$@" "$(printf %s "$word" | sed "s#http://127.0.0.1:8000#URL#")"; done
exec /usr/bin/python3 "$@"
"""
"""Python of the image; what listens at port 8000 of the unit is the engine of the test."""
FORMS: dict[str, tuple[str, ...]] = {"vllm": ("--runner", "pooling"), "sglang": ("--is-embedding",)}


@pytest.fixture
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, PoolingEngine]]:
    """An engine that pools, and which one it is."""
    (tmp_path / "engine").mkdir()
    kind: str = getattr(request, "param", "vllm")
    made = PoolingEngine(tmp_path / "engine", kind, *FORMS[kind])
    try:
        yield kind, made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()


def head_of(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, PoolingEngine], kind: str) -> Head:
    """The head of a unit whose API the engine is."""
    (folder / "head").mkdir()
    args = {"served-model-name": "qwen3"}
    given: dict[str, Any] = {"kind": kind, "context": 4096, "args": args, "api": {"port": 8000}}
    if engine[0] == "sglang":
        given = NEMOTRON | given
    head = Head(folder / "head", monkeypatch, unit(**given), 8)
    (head.folder / "image-bin/vllm").write_text("#!/bin/sh\necho called >> $NODE/calls\n")
    (head.folder / "image-bin/python3").write_text(PYTHON.replace("URL", engine[1].url))
    return head


BOTH = pytest.mark.parametrize("engine", ["vllm", "sglang"], indirect=True)


@BOTH
@pytest.mark.parametrize(("kind", "items"), [("embedding", "texts"), ("score", "pairs")])
def test_texts_and_pairs_each_second_are_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, PoolingEngine], kind: str, items: str
) -> None:
    head = head_of(tmp_path, monkeypatch, engine, kind)
    done = head.bench("--save")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[1].split() == [
        *("requests", "at", "once", "input", f"{items}/s", "tokens/s", "answer", "p99", "against", "baseline"),
    ]
    assert [line.split()[:2] for line in lines[2:10]] == [
        [str(many), str(tokens)] for many in (1, 4) for tokens in (128, 512, 2048, 8192)
    ]
    assert "1 x 8192 tokens: skipped: needs a context of 10240 tokens, the unit has 4096" in lines
    assert head.calls == [], "the tool of the engine measures text"
    record = json.loads(baseline_path("served", "qwen", "full").read_text())
    assert record["unit_kind"] == kind
    for case in record["cases"]:
        if case["state"] == "skipped":
            continue
        assert case["requests"] == 16 * case["concurrency"]
        assert (case["output_throughput"], case["output_tokens"]) == (None, 0)
        assert 0 < case["latency_median_ms"] <= case["latency_p99_ms"]
        a_request = case["item_throughput"] / (1 if kind == "embedding" else 8)
        assert a_request <= case["concurrency"] * 1000 / case["latency_median_ms"] * 2, "no more than are at once"
        counted = case["input_throughput"]
        if kind == "embedding":
            assert counted == pytest.approx(9 * case["item_throughput"]), "the stand-in counts 9 tokens a request"


def test_what_is_slower_than_the_kept_one_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, PoolingEngine]
) -> None:
    head = head_of(tmp_path, monkeypatch, engine, "embedding")
    assert head.bench("--quick", "--save").exit_code == 0
    kept = baseline_path("served", "qwen", "quick")
    record = json.loads(kept.read_text())
    (case,) = record["cases"]
    case["item_throughput"], case["latency_median_ms"] = 1e9, 1e-6
    kept.write_text(json.dumps(record))
    done = head.bench("--quick")
    assert done.exit_code == 2, done.output
    assert "texts/s -100.0 % SLOWER, answer +" in done.stdout
    assert done.stdout.count("SLOWER") == 2
    record["unit_kind"] = "score"
    kept.write_text(json.dumps(record))
    assert head.bench("--quick").exit_code == 0, "pairs are not compared with texts"


def test_an_engine_that_does_not_pool_is_a_failed_measurement_with_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine").mkdir()
    made = PoolingEngine(tmp_path / "engine", "vllm")
    try:
        done = head_of(tmp_path, monkeypatch, ("vllm", made), "embedding").bench("--quick")
    finally:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()
    assert done.exit_code == 1
    assert "1 x 128 tokens: failed: python3 failed (exit 1): HTTP status 404: " in done.output
