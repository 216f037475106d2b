"""The unit file and its refusals, private files, and what the programs may import."""

from __future__ import annotations

import ast
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from serving.programs import FILES
from tests.serving.engines import engine_metrics
from tests.serving.serve_modules import FOLDER, serve_unit

MINIMAL: dict[str, Any] = {
    "name": "qwen",
    "model": "qwen3",
    "ranks": [{"node": "spark1", "address": "10.0.0.1"}, {"node": "spark2", "address": "10.0.0.2"}],
    "head": {"address": "10.0.0.1", "port": 29400},
    "api": {"address": "10.0.0.1", "port": 8000},
    "secret_file": "/etc/sparkrack/serve/qwen.secret",
    "gate": ["/usr/local/lib/sparkrack/serve-gate", "qwen"],
}


def written(folder: Path, values: dict[str, Any]) -> str:
    """A unit file; with the metrics of vLLM unless it has others."""
    file = folder / "qwen.json"
    file.write_text(json.dumps({"metrics": engine_metrics("vllm"), **values}))
    return str(file)


def test_the_defaults(tmp_path: Path) -> None:
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL))
    assert (unit.service, unit.systemctl, unit.boot) == ("sparkrack-serve-qwen.service", ("systemctl",), "hold")
    assert (unit.times.ask, unit.times.lease, unit.times.probe_misses) == (2, 10, 2)
    assert (unit.restart.times, unit.restart.within, unit.restart.uptime) == (1, 6 * 3600, 600)
    assert (unit.probe.prompt, unit.probe.answer, unit.probe.max_tokens) == ("2+2=", "4", 8)
    assert "vllm:iteration_tokens_total_count" in unit.probe.counters
    assert [str(rank) for rank in unit.ranks] == ["spark1 (rank 0)", "spark2 (rank 1)"]
    assert unit.times == serve_unit.ServeTimes(2, 10, 180, 90, 5400, 300, 60, 60, 0, 1, 3, 2)
    assert (unit.probe.kind, unit.probe.tool, unit.rdma, unit.version) == ("chat", False, "ignored", "")
    assert unit.engine == ""
    assert (unit.journalctl, unit.key_file, unit.head, unit.api) == (
        *(("journalctl",), None),
        *(("10.0.0.1", 29400), ("10.0.0.1", 8000)),
    )


def test_a_file_that_declares_all_is_taken_as_it_is(tmp_path: Path) -> None:
    probe = {"prompt": "a", "answer": "b", "max_tokens": 4096}
    changes = {
        "metrics": {"counters": ["c"], "gauges": ["g"]},
        "api": {"address": "10.0.0.1", "port": 8000, "key_file": "/etc/key"},
        "service": "own.service",
        "systemctl": ["a", "b"],
        "journalctl": ["c", "d"],
        "probe": {**probe, "kind": "embedding", "tool": True, "dimension": 65536},
        "times": {"ask": 1, "lease": 2, "drain": 7.5, "probe_misses": 1},
        "restart": {"times": 0, "within": 1, "uptime": 0},
        "boot": "start",
        "version": "v1",
        "rdma": "required",
    }
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL | changes))
    assert unit.probe == serve_unit.UnitProbe("embedding", "a", "b", 4096, ("c",), ("g",), True, 65536)
    assert (unit.key_file, unit.service, unit.boot, unit.version) == ("/etc/key", "own.service", "start", "v1")
    assert (unit.systemctl, unit.journalctl, unit.rdma) == (("a", "b"), ("c", "d"), "required")
    assert (unit.times.ask, unit.times.lease, unit.times.drain, unit.times.probe_misses) == (1, 2, 7.5, 1)
    assert unit.restart == serve_unit.RestartBudget(0, 1, 0)


@pytest.mark.parametrize(
    ("engine", "requests", "gauge"),
    [
        ("vllm", ("vllm:num_requests_running", "vllm:num_requests_waiting"), "vllm:kv_cache_usage_perc"),
        ("sglang", ("sglang:num_running_reqs", "sglang:num_queue_reqs"), "sglang:num_used_tokens"),
    ],
)
def test_the_metrics_are_those_of_the_engine(
    tmp_path: Path, engine: str, requests: tuple[str, ...], gauge: str
) -> None:
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"metrics": engine_metrics(engine)}))
    assert (unit.requests, unit.probe.gauges) == (requests, (gauge,))
    steps = {"vllm": "iteration_tokens_total_count", "sglang": "realtime_tokens_total"}[engine]
    names = (steps, "generation_tokens_total", "prompt_tokens_total")
    assert unit.probe.counters == tuple(f"{engine}:{name}" for name in names)


def test_an_engine_may_have_no_metrics(tmp_path: Path) -> None:
    for none in ({}, engine_metrics("vllm") | {key: [] for key in ("counters", "gauges", "requests")}):
        unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"metrics": none}))
        assert (unit.probe.counters, unit.probe.gauges, unit.requests) == ((), (), ())


def test_a_rank_is_found_by_its_number(tmp_path: Path) -> None:
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL))
    assert [unit.rank(number).node for number in (0, 1)] == ["spark1", "spark2"]
    for number in (-1, 2):
        with pytest.raises(serve_unit.ServeError, match=f"unit qwen has no rank {number}, expected 0 to 1"):
            unit.rank(number)


def test_an_empty_answer_lets_any_completion_do(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL | {"name": "qwen_2", "probe": {"answer": ""}})
    assert serve_unit.load_unit(path).probe.answer == ""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"nmae": 1}, "nmae"),
        ({"ranks": [{"node": "spark1"}]}, "address"),
        ({"head": {"address": "10.0.0.1", "port": 1, "protocol": "tcp"}}, "protocol"),
        ({"api": 5}, "int"),
        ({"probe": {"chat": False}}, "chat"),
        ({"metrics": {"histograms": []}}, "histograms"),
        ({"times": {"aks": 2}}, "aks"),
        ({"times": {"ask": "2"}}, "str"),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_is_odd(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    path = written(tmp_path, MINIMAL | change)
    with pytest.raises(serve_unit.ServeError) as caught:
        serve_unit.load_unit(path)
    assert str(caught.value).startswith(f"{path}: is not a unit file of this release: ")
    assert str(caught.value).endswith("; run `sparkrack apply --only serving`")
    assert named in str(caught.value).removeprefix(path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ranks": []}, "ranks: there is none, or two have the same address"),
        ({"ranks": [MINIMAL["ranks"][0]] * 2}, "ranks: there is none, or two have the same address"),
        ({"times": {"lease": 3}}, "times: lease is 3 s, expected at least twice ask (2 s)"),
        ({"times": {"ask": 0}}, "times: lease is 10 s, expected at least twice ask (0 s)"),
        ({"times": {"probe_misses": 0}}, "times: probe_misses is 0, expected 1 or more"),
    ],
)
def test_values_with_which_no_unit_can_run_are_refused(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    path = written(tmp_path, MINIMAL | change)
    with pytest.raises(serve_unit.ServeError) as caught:
        serve_unit.load_unit(path)
    assert str(caught.value) == f"{path}: {fault}"


@pytest.mark.parametrize("key", MINIMAL)
def test_a_missing_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(serve_unit.ServeError, match=f"not a unit file of this release: .*'{key}'"):
        serve_unit.load_unit(written(tmp_path, {name: value for name, value in MINIMAL.items() if name != key}))


def test_a_file_that_is_absent_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(serve_unit.ServeError, match=f"^{tmp_path}/x: No such file or directory$"):
        serve_unit.load_unit(str(tmp_path / "x"))
    for text, reason in (("{", "not JSON: "), ("[]", "is not a unit file of this release: ")):
        (tmp_path / "x").write_text(text)
        with pytest.raises(serve_unit.ServeError, match=f"^{tmp_path}/x: {reason}"):
            serve_unit.load_unit(str(tmp_path / "x"))


def test_a_private_file_is_regular_and_its_owner_alone_reads_it(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_bytes(b"s" * 70000)
    private.chmod(0o600)
    assert serve_unit.read_private(str(private)) == b"s" * 65536
    for mode in (0o640, 0o604, 0o610):
        private.chmod(mode)
        with pytest.raises(serve_unit.ServeError, match=f"owner or mode {mode:03o} is wrong: set owner root, mode 600"):
            serve_unit.read_private(str(private))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(serve_unit.ServeError, match="not a regular file"):
        serve_unit.read_private(str(tmp_path / "pipe"))
    with pytest.raises(serve_unit.ServeError, match="not a regular file"):
        serve_unit.read_private(str(tmp_path))
    if os.geteuid() == 0:
        private.chmod(0o600)
        os.chown(private, 12345, 0)
        with pytest.raises(serve_unit.ServeError, match="owner or mode 600 is wrong"):
            serve_unit.read_private(str(private))


def test_a_secret_of_32_bytes_is_taken_without_the_end_of_its_line(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 32 + "\n")
    secret.chmod(0o600)
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"secret_file": str(secret)}))
    assert serve_unit.read_secret(unit) == b"x" * 32


@pytest.mark.parametrize("durable", [True, False])
def test_a_record_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file = tmp_path / "record"
    assert serve_unit.read_record(str(file)) is None
    serve_unit.write_record(str(file), {"a": 1}, durable)
    assert file.read_text() == '{\n "a": 1\n}\n'
    assert serve_unit.read_record(str(file)) == {"a": 1}
    assert len(synced) == (2 if durable else 0), "the file and its folder"
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


@pytest.mark.parametrize(("text", "reason"), [("[]", "expected an object"), ("{", "not JSON: "), (None, "Is a dir")])
def test_a_record_of_another_form_is_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "record"
    file.mkdir() if text is None else file.write_text(text)
    with pytest.raises(serve_unit.ServeError, match=f"^{file}: {reason}"):
        serve_unit.read_record(str(file))


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("a\n b\x1b[2J\tc", 300, "a b [2J c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc..."),
        ("a" * 300, 300, "a" * 300),
        (ValueError("x"), 300, "x"),
    ],
)
def test_a_text_becomes_one_printable_line(text: object, limit: int, expected: str) -> None:
    assert serve_unit.line(text, limit) == expected


def test_a_line_of_the_journal_has_at_most_1000_characters(capsys: pytest.CaptureFixture[str]) -> None:
    serve_unit.log("a" * 2000)
    assert capsys.readouterr().out == f"{'a' * 997}...\n"
    serve_unit.log("a\nb")
    assert capsys.readouterr().out == "a b\n"
    assert serve_unit.line("a" * 2000) == f"{'a' * 297}..."


def test_a_line_comes_whole_in_time_and_is_not_too_long() -> None:
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=there.sendall, args=(b"a" * 40000 + b"b" * 25535 + b"\n",))
        sender.start()
        assert serve_unit.read_line(here, time.monotonic() + 60) == "a" * 40000 + "b" * 25535
        sender.join()
        there.sendall(b"\xff\n")
        with pytest.raises(serve_unit.ServeError, match="the line is not text"):
            serve_unit.read_line(here, time.monotonic() + 60)
        with pytest.raises(TimeoutError, match="no complete line in time"):
            serve_unit.read_line(here, time.monotonic())
        there.sendall(b"half")
        there.close()
        with pytest.raises(ConnectionResetError, match="the connection ended"):
            serve_unit.read_line(here, time.monotonic() + 60)
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=lambda: there.sendall(b"a" * 65536 + b"\n"))
        sender.start()
        with pytest.raises(serve_unit.ServeError, match="the line is too long"):
            serve_unit.read_line(here, time.monotonic() + 60)
        sender.join()


@pytest.mark.parametrize("once", ["x" * 32, "0" * 31, "0" * 33, ""])
def test_a_program_without_a_challenge_is_reported_nothing(once: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = []

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"{once}\n".encode())
                heard.append(connection.recv(100))

        greeter = threading.Thread(target=greet)
        greeter.start()
        with pytest.raises(serve_unit.ServeError, match="the challenge has the wrong form"):
            serve_unit.ask_at(server.getsockname(), b"s" * 32, {"kind": "x"}, 60)
        greeter.join()
    assert heard == [b""]


def test_a_question_has_its_unit_a_new_nonce_and_the_clock_and_comes_from_its_address(tmp_path: Path) -> None:
    secret = b"s" * 32
    asked: list[tuple[str, dict[str, Any]]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = {"address": "127.0.0.1", "port": server.getsockname()[1]}
        unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"head": head}))

        def answer() -> None:
            for _ in range(2):
                connection, address = server.accept()
                with connection:
                    once = serve_unit.challenge()
                    connection.sendall(f"{once}\n".encode())
                    text = serve_unit.read_line(connection, time.monotonic() + 60)
                    content = serve_unit.unseal(secret, "question", once, text)
                    asked.append((address[0], content))
                    connection.sendall(serve_unit.seal(secret, "answer", once + content["nonce"], {"order": "run"}))

        coordinator = threading.Thread(target=answer)
        coordinator.start()
        for source in ("127.0.0.2", ""):
            assert serve_unit.ask(unit, secret, {"kind": "x"}, 60, source) == {"order": "run"}
        coordinator.join()
    assert [address for address, _ in asked] == ["127.0.0.2", "127.0.0.1"]
    nonces = {content.pop("nonce") for _, content in asked}
    assert len(nonces) == 2
    assert all(len(nonce) == 32 for nonce in nonces)
    assert all(abs(content.pop("clock") - time.time()) < 3600 for _, content in asked)
    assert [content for _, content in asked] == [{"kind": "x", "unit": "qwen"}] * 2


@pytest.mark.parametrize("payload", ["[]", "5", "{", ""])
def test_an_authentic_message_that_is_not_an_object_is_refused(payload: str) -> None:
    mac = serve_unit._sign_message(b"s" * 32, "question", "a", payload)
    with pytest.raises(serve_unit.ServeError, match="the message is not a JSON object"):
        serve_unit.unseal(b"s" * 32, "question", "a", f"{mac} {payload}")


def test_a_link_or_a_short_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 31)
    secret.chmod(0o600)
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL | {"secret_file": str(secret)}))
    with pytest.raises(serve_unit.ServeError, match="31 bytes, expected at least 32"):
        serve_unit.read_secret(unit)
    link = tmp_path / "link"
    link.symlink_to(secret)
    with pytest.raises(serve_unit.ServeError, match="symbolic links"):
        serve_unit.read_private(str(link))


def test_a_message_is_bound_to_its_direction_and_connection() -> None:
    secret = b"s" * 32
    sealed = serve_unit.seal(secret, "question", "a", {"x": 1}).decode().strip()
    assert serve_unit.unseal(secret, "question", "a", sealed) == {"x": 1}
    wrong = [
        ("question", "b", sealed),
        ("answer", "a", sealed),
        ("question", "a", sealed.replace("1", "2")),
        ("x", "", ""),
    ]
    for direction, context, text in wrong:
        with pytest.raises(serve_unit.ServeError, match="wrong authentication code"):
            serve_unit.unseal(secret, direction, context, text)


def test_the_programs_need_only_python_3_10() -> None:
    own = {Path(name).stem for name in FILES if name.endswith(".py")}
    router = "serve_router"  # on the node of the gateway, beside nginx
    measured = "all_reduce"  # in a container of the unit's image, which has torch
    assert own | {router, measured} == {path.stem for path in FOLDER.glob("*.py")}
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            image = {"torch"} if path.stem == measured else set()
            assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | own | image, path.name


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_reported_that_a_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(30)
        systemd.bind("" if abstract else "notify")
        name = systemd.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name[1:].decode() if abstract else name)
        serve_unit.report_alive()
        assert systemd.recv(100) == b"WATCHDOG=1"
        for _ in range(10_000):  # more than fits into its queue: a program must not wait for systemd
            serve_unit.report_alive()
    serve_unit.report_alive()  # nothing listens any more


def test_the_counters_of_a_busy_engine_are_read_twice_in_a_lease() -> None:
    assert serve_unit.ServeTimes(probe_interval=60, lease=10).busy_interval == 5
    assert serve_unit.ServeTimes(probe_interval=6, lease=10).busy_interval == 3


@pytest.mark.parametrize("interval", [60.0, 5.0])
def test_a_busy_unit_that_gets_stuck_is_found_as_soon_as_an_idle_one(interval: float) -> None:
    times = serve_unit.ServeTimes(probe_interval=interval)
    assert 2 * times.busy_interval <= times.probe_interval


@pytest.mark.parametrize(
    ("note", "previous"),
    [
        *((None, None), (b"7\n", 7), (b"", 0), (b"\xff", 0), (b"9" * 30, 0), (b"x", 0)),
        *((b"9" * 18, 10**18 - 1), (b"9" * 19, 0)),
    ],
)
def test_the_note_of_a_previous_version(tmp_path: Path, note: bytes | None, previous: int | None) -> None:
    if note is not None:
        (tmp_path / "qwen.previous").write_bytes(note)
    assert serve_unit.read_previous(str(tmp_path / "qwen.json")) == previous
