"""The unit file and its refusals, private files, and what the programs may import."""

from __future__ import annotations

import ast
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from roles.serving.programs import FILES, programs
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


def written(folder: Path, values: object) -> str:
    file = folder / "qwen.json"
    file.write_text(json.dumps(values))
    return str(file)


def test_the_defaults(tmp_path: Path) -> None:
    unit = serve_unit.load_unit(written(tmp_path, MINIMAL))
    assert (unit.service, unit.systemctl, unit.boot) == ("sparkrack-serve-qwen.service", ("systemctl",), "hold")
    assert (unit.times.ask, unit.times.lease, unit.times.probe_misses) == (2, 10, 2)
    assert (unit.restart.times, unit.restart.within, unit.restart.uptime) == (1, 6 * 3600, 600)
    assert (unit.probe.prompt, unit.probe.answer, unit.probe.max_tokens) == ("2+2=", "4", 8)
    assert "vllm:iteration_tokens_total_count" in unit.probe.counters
    assert [str(rank) for rank in unit.ranks] == ["spark1 (rank 0)", "spark2 (rank 1)"]


def test_an_empty_answer_lets_any_completion_do(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL | {"name": "qwen_2", "probe": {"answer": ""}})
    assert serve_unit.load_unit(path).probe.answer == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": 1}, "unknown key 'nmae'"),
        ({"name": "a-b"}, "name is 'a-b', expected lower-case letters, digits, _"),
        ({"name": "../x"}, "name is '../x', expected lower-case letters, digits, _"),
        ({"ranks": []}, "ranks is [], expected a list of ranks"),
        ({"ranks": [{"node": "spark1"}]}, "ranks[0]: address is missing, expected a text"),
        ({"ranks": [MINIMAL["ranks"][0]] * 2}, "ranks: two ranks have the same address"),
        ({"head": {"address": "10.0.0.1", "port": 0}}, "head: port is 0, expected a port"),
        ({"head": 5}, "head: expected an object"),
        ({"times": {"lease": 3}}, "times: lease is 3 s, expected at least twice ask (2 s)"),
        ({"times": {"probe_misses": 0}}, "times: probe_misses is 0, expected 1 or more"),
        ({"times": {"ask": True}}, "times: ask is True, expected seconds"),
        ({"times": {"ask": "2"}}, "times: ask is '2', expected seconds"),
        ({"restart": {"times": 1.5}}, "restart: times is 1.5, expected a whole number"),
        ({"boot": "always"}, "boot is 'always', expected hold or start"),
        ({"gate": "serve-gate"}, "gate is 'serve-gate', expected a list of texts"),
        ({"engine": "ollama"}, "engine is 'ollama', expected vllm or sglang"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = written(tmp_path, MINIMAL | change)
    with pytest.raises(serve_unit.ServeError) as caught:
        serve_unit.load_unit(path)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("port", [1, 65535])
def test_the_first_and_the_last_port_are_ports(tmp_path: Path, port: int) -> None:
    path = written(tmp_path, MINIMAL | {"api": {"address": "10.0.0.1", "port": port}})
    assert serve_unit.load_unit(path).api == ("10.0.0.1", port)


@pytest.mark.parametrize("key", MINIMAL)
def test_a_missing_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(serve_unit.ServeError, match=key):
        serve_unit.load_unit(written(tmp_path, {name: value for name, value in MINIMAL.items() if name != key}))


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
    assert own == {path.stem for path in FOLDER.glob("*.py")}
    for file in programs():
        if not file.path.endswith(".py"):
            continue
        tree = ast.parse(file.content, feature_version=(3, 10))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | own, file.path


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_that_a_program_goes_on(
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


@pytest.mark.parametrize("interval", [60.0, 5.0])
def test_a_busy_unit_that_gets_stuck_is_found_as_soon_as_an_idle_one(interval: float) -> None:
    times = serve_unit.ServeTimes(probe_interval=interval)
    assert 2 * times.busy_interval <= times.probe_interval


@pytest.mark.parametrize(
    ("note", "former"), [(None, None), (b"7\n", 7), (b"", 0), (b"\xff", 0), (b"9" * 30, 0), (b"x", 0)]
)
def test_the_note_of_a_former_version(tmp_path: Path, note: bytes | None, former: int | None) -> None:
    if note is not None:
        (tmp_path / "qwen.former").write_bytes(note)
    assert serve_unit.read_former(str(tmp_path / "qwen.json")) == former
