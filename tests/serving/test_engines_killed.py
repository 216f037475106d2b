"""Units that pool, of llama.cpp and of a custom engine: proven, killed, and back, by real coordinators and agents.

The server of llama.cpp is itself; the others are stand-ins.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serving import tiny_gguf
from tests.serving.engines import STAND_IN, EngineOfTests
from tests.serving.serving_rack import ServingRack

COMPLETIONS = "a completion gave the known answer, a chat completion gave a clean text"
CUSTOM = EngineOfTests(
    name="custom",
    programs={"serve-it": (*STAND_IN.programs["vllm"], "serve")},
    model=STAND_IN.model,
    mark=STAND_IN.mark,
    worker=STAND_IN.worker,
    times=STAND_IN.times,
    patience=STAND_IN.patience,
    stop=STAND_IN.stop,
    environment=STAND_IN.environment,
    kind="custom",
)
RANKS = ("--nnodes", "{nodes}", "--node-rank", "{rank}", "--master-addr", "{head}", "--master-port", "{meeting}")
COMMAND = ("serve-it", "{model}", "--served-model-name", "{name}", *RANKS, "--host", "{host}", "--port", "{port}")
METRICS = {
    "progress": ["vllm:generation_tokens_total"],
    "requests": ["vllm:num_requests_running", "vllm:num_requests_waiting"],
}
DECLARED: dict[str, Any] = {
    "version": "2026.11",
    "memory": None,
    "args": None,
    "kv": "4G",
    "custom": {
        "command": list(COMMAND),
        "worker_command": [*COMMAND, "--headless"],
        "key": {"variable": "VLLM_API_KEY"},
        "weights": "1G",
        **METRICS,
    },
}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., ServingRack]]:
    """Makes a rack, which is gone after the test."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    racks: list[ServingRack] = []

    def make(count: int, engine: EngineOfTests, kind: str = "chat") -> ServingRack:
        racks.append(ServingRack(tmp_path, count, engine, kind=kind))
        return racks[-1]

    yield make
    for rack in racks:
        rack.down()


def is_proven_killed_and_back(rack: ServingRack, proven: str, rank: int) -> None:
    """A start is ready by this proof; a killed rank ends all ranks, which start once more and are proven again."""
    rack.start()
    assert rack.reason("ready") == proven
    node = rack.nodes[rank]
    before = {pid for one in rack.nodes for pid in one.processes()}
    assert before
    for pid in node.processes():
        os.kill(pid, signal.SIGKILL)
    record = rack.wait_for("ready", 2)
    assert len(record["restarts"]) == 1
    assert rack.reason("ready") == proven
    assert f"{node.name} (rank {rank})" in rack.reason("stopping")
    after = {pid for one in rack.nodes for pid in one.processes()}
    assert after
    assert not before & after, "a rank was not replaced"
    rack.ask_coordinator("down")
    rack.wait_for("down")
    assert not any(one.processes() for one in rack.nodes)


@pytest.mark.parametrize(
    ("kind", "proven"),
    [
        ("embedding", "three embeddings of 64 numbers, the near pair nearer"),
        ("score", "a ranking with the right document first"),
    ],
)
def test_a_unit_that_pools_is_proven_and_comes_back_when_a_rank_is_killed(
    made: Callable[..., ServingRack], kind: str, proven: str
) -> None:
    rack = made(2, STAND_IN, kind)
    rack.up(probe={"kind": kind})
    is_proven_killed_and_back(rack, proven, 1)


def test_a_unit_of_a_custom_engine_is_proven_and_comes_back_when_a_rank_is_killed(
    made: Callable[..., ServingRack],
) -> None:
    rack = made(2, replace(CUSTOM, declared=DECLARED))
    assert rack.launches[1].argv[0] == "serve-it"
    rack.up()
    is_proven_killed_and_back(rack, COMPLETIONS, 1)


def test_a_unit_of_llama_cpp_is_proven_and_comes_back_when_its_server_is_killed(
    made: Callable[..., ServingRack], tmp_path: Path
) -> None:
    tiny_gguf.write(tmp_path / "model.gguf")
    program = Path(__file__).with_name("llama_server.py")
    declared = {
        "version": "b11434",
        "parallel": None,
        "memory": None,
        "kv": "1G",
        "gguf": "model.gguf",
        "sequences": 2,
    }
    engine = replace(
        STAND_IN,
        name="llama.cpp",
        programs={"llama-server": (sys.executable, str(program))},
        model=str(tmp_path),
        mark=(program.name,),
        environment={},
        kind="llama.cpp",
        declared=declared,
    )
    rack = made(1, engine)
    names = {"counters": ["llamacpp:n_decode_total"]}
    requests = ["llamacpp:requests_processing", "llamacpp:requests_deferred"]
    rack.up(metrics={**names, "gauges": [], "requests": requests}, probe={"named": True})
    is_proven_killed_and_back(rack, COMPLETIONS, 0)
