"""What the prober takes for life, and what for a hang: the real prober and state machine, and the stand-in engine.

Where the engine does not answer, the times of a unit are shortened; where it answers at once, the clock is the test's.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contact.nodes import free_port
from tests.serving.engines import ENGINE, engine_metrics
from tests.serving.serve_modules import serve_coordinator, serve_lifecycle, serve_probe, serve_unit
from tests.serving.serving_rack import PATIENCE
from tests.serving.test_unit_file import MINIMAL, written

KEY = "k" * 24
SHORT = {"ask": 0.1, "lease": 0.5, "first_limit": 20.0, "probe_interval": 0.6, "probe_limit": 1.0}
"""About a sixtieth of the default times: a hang is found in 3.1 s."""


class ProbedEngine:
    """One stand-in engine, the prober of its coordinator, and an agent that obeys at once. Without `stepped` all of it
    runs by the machine's clock; with it `clock` is the monotonic one, and only `pass_by` moves it. `asks`: the
    kind of the unit.
    """

    def __init__(self, folder: Path, kind: str, times: dict[str, float], stepped: bool, asks: str) -> None:
        self.folder, self.kind, self.stepped, self.clock, self.asks = folder, kind, stepped, 1000.0, asks
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.key_file = folder / "token"
        self.key_file.write_text(KEY)
        self.key_file.chmod(0o600)
        self.port = free_port()
        values = MINIMAL | {
            "model": "m",
            "metrics": engine_metrics(kind),
            "ranks": MINIMAL["ranks"][:1],
            "api": {"address": "127.0.0.1", "port": self.port, "key_file": str(self.key_file)},
            "times": times,
            "probe": {"kind": asks},
        }
        self.unit = serve_unit.load_unit(written(folder, values))
        self.lock = threading.Lock()
        now = self.now
        record = serve_lifecycle.UnitRecord("qwen")
        self.lifecycle = serve_lifecycle.UnitLifecycle(self.unit, record, lambda _: None, now(), now)
        self.prober = serve_coordinator.Prober(self.unit, self.lifecycle, self.lock, now)
        self.running, self.gate, self.over = 0, 0, False
        self.log = folder / "log"
        self.process = self._start_engine()

    def _start_engine(self) -> subprocess.Popen[bytes]:
        common = ["--served-model-name", "m", "--host", "127.0.0.1", "--port", str(self.port)]
        if self.asks in ("embedding", "score"):
            common += {"vllm": ["--runner", "pooling"], "sglang": ["--is-embedding"]}[self.kind]
        config = self.folder / "key.yaml"
        config.write_text(f'api-key: "{KEY}"\n')
        words = {
            "vllm": ["serve", "/m", *common, "--master-port", str(free_port())],
            "sglang": [
                *("sglang", "--model-path", "/m", *common, "--dist-init-addr", f"127.0.0.1:{free_port()}"),
                *("--config", str(config), "--enable-metrics"),
            ],
        }[self.kind]
        faults = {"STANDIN_FAULTS": str(self.faults), "STANDIN_SHM": str(self.folder), "STANDIN_NO_MODEL": "1"}
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, str(ENGINE), *words],
                env={**os.environ, **faults, "VLLM_API_KEY": KEY},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def now(self) -> float:
        return self.clock if self.stepped else time.monotonic()

    def report(self) -> None:
        """Report the rank, and obey."""
        with self.lock:
            report = serve_lifecycle.AgentReport(
                state="running" if self.running else "idle",
                generation=self.running,
                boot="boot",
                clean=True,
                leaving=False,
                detail="",
                gate=(self.gate, True, "") if self.gate else None,
                heard=self.now(),
                skew=serve_lifecycle.ClockSkew(0.0, 0.0),
                kernel="",
                version="",
            )
            answer = self.lifecycle.reported(0, report)
        if answer["order"] == "gate":
            self.gate = answer["generation"]
        elif answer["order"] == "run":
            self.running = answer["generation"]
        else:
            self.running = self.gate = 0

    def pass_by(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass: the agent asks and the prober looks each second."""
        end = self.clock + seconds
        while self.clock < end and not until():
            self.clock += 1.0
            self.report()
            self.prober.step()

    def up(self) -> None:
        """Start the unit, and wait until it is ready."""
        self.wait(self.answers, "the engine listens")
        with self.lock:
            assert self.lifecycle.set_desired_state("up", False, self.now())[0]
        if self.stepped:
            self.pass_by(20)
        else:
            for loop in (self._report_for_good, self._probe_for_good):
                threading.Thread(target=loop, daemon=True).start()
            self.wait(lambda: self.state == "ready", "ready")
        assert self.state == "ready"

    def _report_for_good(self) -> None:
        while not self.over:
            self.report()
            time.sleep(0.1)

    def _probe_for_good(self) -> None:
        while not self.over:
            self.prober.step()
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=PATIENCE) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def state(self) -> str:
        return str(self.lifecycle.record.state)

    def fault(self, name: str, text: str = "") -> None:
        (self.faults / "new").write_text(text)
        (self.faults / "new").replace(self.faults / name)

    def mend(self, name: str) -> None:
        (self.faults / name).unlink()

    @property
    def asked(self) -> int:
        """How many completions the engine was asked for."""
        return self.log.read_text().count(" /v1/completions \n")

    @property
    def looks(self) -> int:
        """How often its metrics were read."""
        return self.log.read_text().count("GET /metrics ")

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < until, f"not in time: {what}; {self.lifecycle.record}"
            time.sleep(0.05)

    def survives(self) -> None:
        """Let the prober look for longer than it needs to find a hang, and check that it finds none."""
        before = self.looks
        self.wait(lambda: self.looks > before + 24 or self.state == "stuck", "24 looks")
        assert self.state in ("ready", "busy"), self.lifecycle.record.reason

    def end(self) -> None:
        self.over = True
        self.process.kill()
        self.process.wait()


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[Callable[..., ProbedEngine]]:
    made: list[ProbedEngine] = []

    def make(kind: str = "vllm", stepped: bool = False, asks: str = "chat", **times: float) -> ProbedEngine:
        made.append(ProbedEngine(tmp_path, kind, (SHORT if not stepped else {}) | times, stepped, asks))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.end()


@pytest.mark.parametrize(
    ("kind", "fault", "rising", "standing"),
    [
        ("vllm", "busy", {"generation_tokens_total"}, set[str]()),
        ("vllm", "prefill", {"kv_cache_usage_perc"}, {"generation_tokens_total"}),
        ("sglang", "busy", {"realtime_tokens_total", "num_used_tokens"}, {"generation_tokens_total"}),
        ("sglang", "prefill", {"realtime_tokens_total", "num_used_tokens"}, {"generation_tokens_total"}),
        ("sglang", "livelock", set[str](), {"realtime_tokens_total", "num_used_tokens", "generation_tokens_total"}),
    ],
)
def test_the_stand_in_counts_as_the_source_of_the_engine_does(
    probed: Callable[..., ProbedEngine], kind: str, fault: str, rising: set[str], standing: set[str]
) -> None:
    engine = probed(kind, stepped=True)
    engine.up()
    engine.fault(fault)
    before = dict(engine.prober._read_progress())
    after: dict[str, float] = {}

    def moved() -> bool:
        after.update(engine.prober._read_progress())
        return all(after[f"{kind}:{name}"] > before[f"{kind}:{name}"] for name in rising)

    engine.wait(moved, "all of them rise")
    assert all(after[f"{kind}:{name}"] == before[f"{kind}:{name}"] for name in standing)


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        pytest.param("vllm", ("prefill",), id="vllm-long-prompt"),
        pytest.param("vllm", ("busy",), id="vllm-long-generations"),
        pytest.param("sglang", ("prefill",), id="sglang-long-prompt"),
        pytest.param("sglang", ("busy",), id="sglang-long-generations"),
        pytest.param("sglang", ("old", "prefill"), id="sglang-0.5.4-long-prompt"),
        pytest.param("sglang", ("old", "busy"), id="sglang-0.5.4-long-generations"),
    ],
)
def test_an_engine_that_computes_is_not_stuck_though_no_completion_ends(
    probed: Callable[..., ProbedEngine], kind: str, faults: tuple[str, ...]
) -> None:
    engine = probed(kind)
    engine.up()
    for fault in faults:
        engine.fault(fault)
    engine.survives()
    engine.mend(faults[-1])
    done = engine.asked
    engine.wait(lambda: engine.asked > done and engine.state == "ready", "ready again")
    assert engine.lifecycle.record.generation == 1


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_engine_that_hangs_is_stuck_after_two_completions(probed: Callable[..., ProbedEngine], kind: str) -> None:
    """Though SGLang counts the prompt of the first one before it hangs."""
    engine = probed(kind)
    engine.up()
    before = engine.asked
    engine.fault("livelock")
    engine.wait(lambda: "stuck" in [one[1] for one in engine.lifecycle.record.transitions], "stuck")
    assert engine.asked - before <= 2
    reason = next(one[3] for one in engine.lifecycle.record.transitions if one[1] == "stuck")
    assert reason == "2 completions in a row failed and no counter rose: no answer within 1 s"


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_engine_whose_queue_is_full_for_an_hour_is_alive(
    probed: Callable[..., ProbedEngine], kind: str, status: int
) -> None:
    engine = probed(kind, stepped=True)
    engine.up()
    before = engine.asked
    engine.fault("status", str(status))
    engine.pass_by(3600)
    assert (engine.state, engine.lifecycle.misses) == ("busy", 0)
    assert engine.lifecycle.record.reason.startswith(f"the engine takes no more requests now: HTTP status {status}")
    assert engine.asked - before <= 61, "a full engine is asked more often than an idle one"
    engine.mend("status")
    engine.pass_by(61)
    assert engine.state == "ready"


def test_an_engine_that_fails_at_once_is_given_the_time_of_one_that_hangs(probed: Callable[..., ProbedEngine]) -> None:
    engine = probed(stepped=True)
    engine.up()
    engine.fault("status", "500")
    begun = engine.clock
    engine.pass_by(400, lambda: engine.state not in ("ready", "busy"))
    times = engine.unit.times
    assert "HTTP status 500" in engine.lifecycle.record.reason
    least = 2 * times.probe_limit + times.lease
    assert least <= engine.clock - begun <= least + times.probe_interval + 5


def test_an_error_that_ends_within_the_limit_of_a_completion_ends_nothing(probed: Callable[..., ProbedEngine]) -> None:
    engine = probed(stepped=True)
    engine.up()
    engine.fault("status", "500")
    before = engine.asked
    engine.pass_by(61, lambda: engine.asked > before)
    engine.pass_by(50)
    engine.mend("status")
    engine.pass_by(200)
    assert (engine.state, engine.lifecycle.misses, engine.lifecycle.record.generation) == ("ready", 0, 1)


def _no_file(engine: ProbedEngine) -> None:
    engine.key_file.unlink()


def _open_mode(engine: ProbedEngine) -> None:
    engine.key_file.chmod(0o644)


def _other_key(engine: ProbedEngine) -> None:
    engine.key_file.write_text("x" * 24)


def _other_name(engine: ProbedEngine) -> None:
    engine.fault("status", "404")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (_no_file, "token: No such file or directory"),
        (_open_mode, "token: owner or mode 644 is wrong: set owner root, mode 600"),
        (_other_key, "HTTP status 401: "),
        (_other_name, "HTTP status 404: "),
    ],
)
def test_a_fault_of_the_probe_itself_is_said_and_ends_nothing(
    probed: Callable[..., ProbedEngine],
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[ProbedEngine], None],
    said: str,
) -> None:
    engine = probed(stepped=True)
    engine.up()
    break_it(engine)
    engine.pass_by(3600)
    assert (engine.state, engine.lifecycle.misses, engine.lifecycle.record.generation) == ("ready", 0, 1)
    remark = engine.lifecycle.status(engine.clock)["probe_fault"]
    assert remark.startswith("no completion can be asked for: ")
    assert said in remark
    assert capsys.readouterr().out.count(said) == 1, "the journal has it once"
    assert KEY not in remark
    engine.key_file.write_text(KEY)
    engine.key_file.chmod(0o600)
    (engine.faults / "status").unlink(missing_ok=True)
    engine.pass_by(61)
    assert engine.lifecycle.status(engine.clock)["probe_fault"] == ""


def test_a_start_goes_on_without_its_key_file_and_is_proven_with_it(probed: Callable[..., ProbedEngine]) -> None:
    engine = probed(stepped=True, ready_limit=100.0)
    engine.key_file.unlink()
    with pytest.raises(AssertionError):
        engine.up()
    engine.pass_by(300)
    assert engine.state == "starting"
    engine.key_file.write_text(KEY)
    engine.key_file.chmod(0o600)
    engine.pass_by(10)
    assert engine.state == "ready"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"vllm:prompt_tokens_total": 9.0}, True),
        ({"vllm:prompt_tokens_total": 7.0}, False),
        ({"vllm:kv_cache_usage_perc": 0.3}, True),
        ({"vllm:kv_cache_usage_perc": 0.1}, True),
        ({"vllm:kv_cache_usage_perc": 0.1, "vllm:num_requests_running": 0.0}, False),
        ({"vllm:num_requests_waiting": 5.0}, False),
    ],
)
def test_what_is_progress(tmp_path: Path, change: dict[str, float], expected: bool) -> None:
    unit: Any = serve_unit.load_unit(written(tmp_path, MINIMAL))
    before = {"vllm:prompt_tokens_total": 8.0, "vllm:kv_cache_usage_perc": 0.2, "vllm:num_requests_running": 1.0}
    assert serve_probe.moved(unit, before, before | change) is expected
    assert not serve_probe.moved(unit, {}, before | change), "a metric that was not there before"


@pytest.mark.parametrize(
    ("name", "value"), [("realtime_tokens_total", 9.0), ("generation_tokens_total", 9.0), ("num_used_tokens", 7.0)]
)
def test_each_metric_of_sglang_is_progress_by_itself(tmp_path: Path, name: str, value: float) -> None:
    """Its one long prompt is not among the running requests, and the probe waits behind it."""
    unit: Any = serve_unit.load_unit(written(tmp_path, MINIMAL | {"metrics": engine_metrics("sglang")}))
    before = {f"sglang:{name}": 8.0, "sglang:num_running_reqs": 0.0, "sglang:num_queue_reqs": 1.0}
    assert serve_probe.moved(unit, before, before | {f"sglang:{name}": value})
    assert not serve_probe.moved(unit, before, before)


def test_an_answer_before_the_body_was_read_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a server that refuses a key: the rest of the request then meets a closed connection."""

    def send(connection: http.client.HTTPConnection, data: bytes) -> None:
        connection.sock.sendall(data)
        raise BrokenPipeError(32, "Broken pipe")

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"api": {"address": "127.0.0.1", "port": port}}))

        def refuse() -> None:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")

        refusing = threading.Thread(target=refuse)
        refusing.start()
        monkeypatch.setattr(http.client.HTTPConnection, "send", send)
        assert serve_probe.ApiRequest(unit, 30.0).send("POST", "/v1/completions", {}) == (401, b"no")
        refusing.join()
