"""Requests to an engine, and what their answers are: a server of the test on loopback, without a coordinator."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import serve_answers, serve_gate_command, serve_probe, serve_unit
from tests.serving.test_unit_file import MINIMAL, written

KEY = "k" * 24


class Api(BaseHTTPRequestHandler):
    """Answers each path with what `answers` has for it: a status and a body; None: no answer."""

    answers: dict[str, tuple[int, bytes] | None]
    asked: list[tuple[str, str, dict[str, str], Any]]
    released: threading.Event

    def do_POST(self) -> None:
        self._answer_request(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_GET(self) -> None:
        self._answer_request(None)

    def _answer_request(self, body: Any) -> None:
        self.asked.append((self.command, self.path, dict(self.headers), body))
        answer = self.answers[self.path]
        if answer is None:
            self.released.wait(60)
            return
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, *_: object) -> None:
        pass


class ProbedApi:
    """That server, and a unit whose API it is."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "key"
        self.key.write_text(f"{KEY}\n")
        self.key.chmod(0o600)
        self.handler: Any = type("OwnApi", (Api,), {"answers": {}, "asked": [], "released": threading.Event()})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        api = {"address": "127.0.0.1", "port": self.server.server_address[1], "key_file": str(self.key)}
        self.unit: Any = serve_unit.load_unit(written(folder, MINIMAL | {"api": api}))

    def answers(self, path: str, status: int, body: bytes) -> None:
        self.handler.answers[path] = status, body

    def request(self, limit: float = 60.0) -> Any:
        return serve_probe.ApiRequest(self.unit, limit)

    def prove(self) -> None:
        serve_probe.prove(self.unit, self.request())


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ProbedApi]:
    made = ProbedApi(tmp_path)
    yield made
    made.handler.released.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"data": [{}]}', b'{"data": 4}'])
def test_a_server_that_lists_no_models_is_not_the_engine(api: ProbedApi, body: bytes) -> None:
    api.answers("/v1/models", 200, body)
    with pytest.raises(serve_probe.OwnFaultError, match=r"^/v1/models has no model, expected qwen3$"):
        serve_probe.check_name(api.unit, api.request())


def test_a_request_has_its_key_and_its_body(api: ProbedApi) -> None:
    api.answers("/v1/completions", 200, json.dumps({"choices": [{"text": "4"}]}).encode())
    api.answers("/metrics", 200, b"")
    api.prove()
    assert api.request().send("GET", "/metrics") == (200, b"")
    (method, path, headers, body), (second, _, others, _) = api.handler.asked
    assert (method, path, second) == ("POST", "/v1/completions", "GET")
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", f"Bearer {KEY}")
    assert body["model"] == "qwen3"
    assert not {"Content-Type", "Authorization"} & others.keys()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "BusyError"),
        (503, "BusyError"),
        (400, "OwnFaultError"),
        (401, "OwnFaultError"),
        (404, "OwnFaultError"),
        (499, "OwnFaultError"),
        (408, "ServeError"),
        (500, "ServeError"),
        (502, "ServeError"),
        (399, "ServeError"),
    ],
)
def test_each_status_says_whose_fault_it_is_and_never_the_key(api: ProbedApi, status: int, kind: str) -> None:
    api.answers("/v1/completions", status, f"no {KEY} {'x' * 200}".encode())
    with pytest.raises(serve_unit.ServeError) as refused:
        api.prove()
    assert type(refused.value).__name__ == kind
    assert str(refused.value) == f"HTTP status {status}: no (key) {'x' * 108}..."


def test_a_wrong_text_is_not_a_proof(api: ProbedApi) -> None:
    api.answers("/v1/completions", 200, json.dumps({"choices": [{"text": "5"}]}).encode())
    with pytest.raises(serve_answers.WrongAnswerError, match=r"the answer is '5', expected '4' at its beginning"):
        api.prove()


def test_an_engine_that_does_not_answer_in_time_is_reported_so(api: ProbedApi) -> None:
    api.handler.answers["/metrics"] = None
    with pytest.raises(serve_unit.ServeError, match=r"^no answer within 0\.2 s$"):
        api.request(0.2).send("GET", "/metrics")


def test_a_request_that_is_cancelled_ends_at_once(api: ProbedApi) -> None:
    api.handler.answers["/metrics"] = None
    request = api.request(77.0)
    ended: list[str] = []

    def send() -> None:
        with pytest.raises(serve_unit.ServeError) as fault:
            request.send("GET", "/metrics")
        ended.append(str(fault.value))

    sending = threading.Thread(target=send)
    sending.start()
    until = time.monotonic() + 60
    while not api.handler.asked:
        assert time.monotonic() < until
        time.sleep(0.01)
    request.cancel()
    sending.join(60)
    assert ended == ["no answer within 77 s"]
    late = api.request(77.0)
    late.cancel()
    with pytest.raises(serve_unit.ServeError, match=r"^no answer within 77 s$"):
        late.send("GET", "/metrics")


def test_an_engine_that_is_not_there_is_reported_by_the_error(api: ProbedApi) -> None:
    api.server.shutdown()
    api.server.server_close()
    with pytest.raises(serve_unit.ServeError, match=r"^ConnectionRefusedError: \[Errno 111\] Connection refused$"):
        api.request().send("GET", "/metrics")


@pytest.mark.parametrize("key", [b"", b"a b", b"a\x7f", b"a\xc3\xa4", b" \n"])
def test_a_key_that_no_header_can_have_is_refused_and_not_quoted(api: ProbedApi, key: bytes) -> None:
    api.key.write_bytes(key)
    with pytest.raises(serve_probe.KeyFileError) as refused:
        serve_probe.read_key(api.unit)
    assert str(refused.value) == f"{api.key}: expected a key of printable characters without spaces"


@pytest.mark.parametrize("key", [b"!~\n", b"a"])
def test_a_key_of_printable_characters_is_taken_without_the_end_of_its_line(api: ProbedApi, key: bytes) -> None:
    api.key.write_bytes(key)
    assert serve_probe.read_key(api.unit) == key.decode().strip()


METRICS = b"""\
# HELP vllm:prompt_tokens_total x
vllm:prompt_tokens_total{model_name="a b"} 8.0
vllm:prompt_tokens_total{model_name="c"} 1e1 1700000000
vllm:kv_cache_usage_perc 0.25
vllm:num_requests_running -1
vllm:num_requests_waiting NaN
vllm:generation_tokens_total 1.2.3
other_total 7
  vllm:iteration_tokens_total_count 9
"""


def test_metrics_are_summed_over_their_labels_and_what_is_not_a_number_is_left_out(api: ProbedApi) -> None:
    api.answers("/metrics", 200, METRICS)
    found = {
        "vllm:prompt_tokens_total": 18.0,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:num_requests_running": -1.0,
    }
    assert serve_probe.progress(api.unit, api.request()) == found
    assert serve_probe.requests(api.unit, api.request()) is None
    api.answers("/metrics", 200, b"vllm:num_requests_running 1.6\nvllm:num_requests_waiting 2\n")
    assert serve_probe.requests(api.unit, api.request()) == 4
    api.answers("/metrics", 200, b"vllm:num_requests_running 1e9\nvllm:num_requests_waiting 2\n")
    assert serve_probe.requests(api.unit, api.request()) is None
    api.answers("/metrics", 500, METRICS)
    assert serve_probe.progress(api.unit, api.request()) == {}
    api.server.shutdown()
    api.server.server_close()
    assert serve_probe.progress(api.unit, api.request()) == {}


# Commands of the gate


def test_a_command_answers_with_its_code_output_and_errors_in_plain_english() -> None:
    words = ("sh", "-c", "echo ' a '; echo b >&2; echo $LC_ALL; exit 3")
    assert serve_gate_command.run(*words) == (3, "a \nC", "b")


def test_of_a_long_answer_the_begin_is_read() -> None:
    _, output, errors = serve_gate_command.run("sh", "-c", "head -c 70000 /dev/zero | tr '\\0' x; printf '\\377' >&2")
    assert (len(output), errors) == (65536, "\ufffd")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no >&2; echo out; exit 2", "no"),
        ("echo out; exit 2", "out"),
        ("exit 2", "no message"),
        (f"echo {'x' * 300}; exit 2", f"{'x' * 157}..."),
    ],
)
def test_a_command_that_fails_is_reported_by_what_it_printed(tmp_path: Path, script: str, reason: str) -> None:
    program = tmp_path / "docker"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(serve_gate_command.GateError) as failed:
        serve_gate_command.answer(str(program), "ps", "--all")
    assert str(failed.value) == f"`{program} ps` ends with 2: {reason}; look at `journalctl -b -p err`"
    assert serve_gate_command.answer("echo", "x") == "x"


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        ("docker", "look at `systemctl status docker`"),
        ("ib_write_bw", "`sparkrack verify --only rdma --bandwidth` names the cause"),
        ("nvidia-smi", "restart the node"),
        ("/usr/bin/nvidia-smi", "restart the node"),
        ("/usr/local/lib/sparkrack/serve/serve_cuda.py", "restart the node"),
        ("ping", "look at `journalctl -b -p err`"),
    ],
)
def test_each_program_of_a_node_has_its_remedy(program: str, remedy: str) -> None:
    assert serve_gate_command.remedy(program) == remedy


@pytest.mark.parametrize(
    ("program", "remedy"), [("ib_write_bw", "install perftest"), ("timedatectl", "run `sparkrack apply`")]
)
def test_a_command_that_is_not_installed_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, remedy: str
) -> None:
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", str(tmp_path))
    with pytest.raises(serve_gate_command.GateError) as missing:
        serve_gate_command.run(program)
    assert str(missing.value) == f"{program} cannot be run: No such file or directory; {remedy}"


def test_a_command_has_its_own_limit_or_20_seconds() -> None:
    assert [serve_gate_command.GateCommand("true", limit=limit).limit for limit in (None, 0.0, 7.0)] == [20.0, 0.0, 7.0]


def test_a_command_has_ended_once_its_process_has() -> None:
    sleeping = serve_gate_command.GateCommand("sleep", "600")
    assert not sleeping.ended
    sleeping.end()
    sleeping._process.wait(60)
    assert sleeping.ended
    sleeping.end()


def test_without_gauges_it_is_not_known_how_many_requests_are_left(api: ProbedApi, tmp_path: Path) -> None:
    """Nothing that is counted is not 0: a stop would cut off requests that it takes for done."""
    api.answers("/metrics", 200, b"engine:steps 4\n")
    metrics = {"counters": ["engine:steps"], "requests": []}
    address, port = api.unit.api
    served = serve_unit.load_unit(
        written(tmp_path, MINIMAL | {"api": {"address": address, "port": port}, "metrics": metrics})
    )
    assert serve_probe.requests(served, api.request()) is None
