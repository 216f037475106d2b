"""A unit that is asked to stop lets its requests end first: with a real client, and the engine's own numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.engines import engine_metrics
from tests.serving.serve_modules import serve_lifecycle, serve_probe, serve_unit
from tests.serving.serving_rack import API_PORT, KEY, ServingRack
from tests.serving.stepped_unit import SteppedUnit
from tests.serving.test_unit_file import MINIMAL, written

CLIENT = """\
import json, sys, urllib.request
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + sys.argv[2]}
body = json.dumps({"model": "toy", "prompt": "2+2=", "max_tokens": 8}).encode()
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, headers), timeout=100).read().decode())
"""


def client(rack: ServingRack) -> subprocess.Popen[str]:
    """A completion of a client on the second node, which waits for its answer."""
    before = rack.requests("/v1/completions")
    url = f"http://{rack.nodes[0].address}:{API_PORT}/v1/completions"
    words = ["ip", "netns", "exec", rack.nodes[1].namespace, sys.executable, "-c", CLIENT, url, KEY]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    rack.wait(lambda: rack.requests("/v1/completions") > before, "the request of the client has begun")
    return process


def loaded(rack: ServingRack, drain: float) -> subprocess.Popen[str]:
    """Bring the unit up, with a request that runs as long as the fault `busy`."""
    rack.up(times={"drain": drain, "probe_interval": 3600.0})
    rack.start()
    rack.nodes[0].fault("busy")
    return client(rack)


def test_a_request_is_answered_before_the_ranks_are_stopped(rack: ServingRack) -> None:
    waiting = loaded(rack, 3600.0)
    done = rack.ask_coordinator("down")
    assert (done.returncode, done.stdout) == (0, "unit toy is draining, for at most 3600 s\n")
    rack.wait_for("draining")
    looks = rack.requests("/metrics")
    rack.wait(lambda: rack.requests("/metrics") > looks + 3, "the coordinator has looked several times")
    assert rack.record()["state"] == "draining"
    assert all(node.processes() for node in rack.nodes)
    rack.nodes[0].fault("busy", False)
    output, complaint = waiting.communicate(timeout=100)
    assert waiting.returncode == 0, complaint
    assert json.loads(output)["choices"][0]["text"].startswith("4")
    rack.wait_for("down")
    assert rack.reason("stopping").startswith("asked to stop; no request ran after ")
    assert not any(node.processes() for node in rack.nodes)


def test_a_request_that_does_not_end_delays_the_stop_for_its_time_only(rack: ServingRack) -> None:
    waiting = loaded(rack, 2.0)
    assert rack.ask_coordinator("down").returncode == 0
    rack.wait_for("down")
    assert rack.reason("stopping") == "asked to stop; 2 s for requests are over, 1 ran still"
    waiting.communicate(timeout=100)
    assert waiting.returncode != 0


def test_an_engine_that_does_not_report_its_requests_gets_the_whole_time(rack: ServingRack) -> None:
    # The stand-in reports as vLLM does, which for SGLang are other names.
    rack.up(metrics=engine_metrics("sglang"), times={"drain": 2.0, "probe_interval": 3600.0})
    rack.start()
    assert rack.ask_coordinator("down").returncode == 0
    rack.wait_for("down")
    assert (
        rack.reason("stopping") == "asked to stop; 2 s for requests are over, its engine does not report how many ran"
    )


@pytest.fixture
def unit(tmp_path: Path) -> SteppedUnit:
    made = SteppedUnit(tmp_path, times={"drain": 30.0})
    made.up()
    assert made.lifecycle.set_desired_state("down", False, made.clock) == (
        True,
        "unit qwen is draining, for at most 30 s",
    )
    return made


def test_two_looks_without_a_request_end_it(unit: SteppedUnit) -> None:
    for requests in (0, 3, 0):
        unit.lifecycle.drained(1, requests, unit.clock)
        unit.pass_by(4)
        assert unit.record.state == "draining"
        assert unit.ask(0) == "run"
    unit.lifecycle.drained(0, 0, unit.clock)
    assert unit.record.state == "draining", "a look at an earlier generation counts"
    unit.lifecycle.drained(1, 0, unit.clock)
    assert (unit.record.state, unit.record.reason) == ("stopping", "asked to stop; no request ran after 12.0 s")
    unit.pass_by(8)
    assert unit.record.state == "down"


@pytest.mark.parametrize(
    ("last", "left"),
    [(None, "its engine does not report how many ran"), (3, "3 ran still"), (0, "0 ran at the last look")],
)
def test_the_end_of_the_time_names_what_is_left(unit: SteppedUnit, last: int | None, left: str) -> None:
    unit.lifecycle.drained(1, last, unit.clock)
    unit.pass_by(28)
    assert unit.record.state == "draining"
    unit.pass_by(8)
    assert unit.record.reason == f"asked to stop; 30 s for requests are over, {left}"
    assert unit.record.state == "down"


def test_an_unknown_number_is_never_taken_for_none(unit: SteppedUnit) -> None:
    for _ in range(5):
        unit.lifecycle.drained(1, None, unit.clock)
        unit.pass_by(2)
    assert unit.record.state == "draining"


def test_a_rank_that_ends_meanwhile_stops_the_unit_for_good(unit: SteppedUnit) -> None:
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.restarts) == ("down", [])


def test_a_rank_that_ends_while_it_is_asked_to_start_again_costs_no_restart(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    assert unit.record.state == "draining"
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.generation, unit.record.restarts) == (2, [])


def test_a_look_of_the_draining_before_does_not_count(unit: SteppedUnit) -> None:
    unit.lifecycle.drained(1, 0, unit.clock)
    unit.pass_by(38)
    assert unit.record.state == "down"
    unit.up()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.lifecycle.drained(2, 0, unit.clock)
    assert unit.record.state == "draining"


def test_failed_completions_do_not_make_it_stuck(unit: SteppedUnit) -> None:
    for _ in range(3):
        unit.lifecycle.missed(1, "no answer", unit.clock)
    assert unit.record.state == "draining"


def test_a_unit_that_is_not_proven_is_stopped_at_once(tmp_path: Path) -> None:
    unit = SteppedUnit(tmp_path, times={"drain": 30.0})
    unit.lifecycle.set_desired_state("up", False, unit.clock)
    unit.pass_by(8)
    assert unit.record.state == "starting"
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    assert unit.record.state == "stopping"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('vllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_waiting{engine="0"} 1.0\n', 3),
        ('vllm:num_requests_running{a="0"} 0\nvllm:num_requests_running{a="1"} 1\nvllm:num_requests_waiting 0\n', 1),
        ("vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n", 0),
        ("vllm:num_requests_running 0.0\n", None),
        ("vllm:num_requests_running 0.0\nvllm:num_requests_waiting -1.0\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_requests_of_an_engine_are_running_and_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None
) -> None:
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL))

    request = serve_probe.ApiRequest(unit, 1.0)
    monkeypatch.setattr(request, "send", lambda *_, **__: (200, text.encode()))
    assert serve_probe.requests(unit, request) == expected


def test_the_state_is_one_in_which_ranks_run() -> None:
    assert "draining" in serve_lifecycle.RUNNING
    assert "draining" in serve_lifecycle.STATES
