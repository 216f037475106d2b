"""`sparkrack status`: whom it asks, what it prints, how long it waits, how it ends; only the network is made up."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import Rack
from core.routeros.errors import LoginError, SentenceError, SessionError
from core.ssh import node_shells
from core.ssh.root_shell import UnreachableError
from sparkrack.cli.main import sparkrack
from sparkrack.engine.subcommands import WITHIN
from sparkrack.status import collect_answers
from sparkrack.status.model import Status
from switch.verify_client import SwitchChecks
from tests.unit.status.machines import Machines, machines, reference

ALL = [f"spark{number}" for number in range(1, 9)]


class Network:
    """Shells of nodes and sessions of switches that answer what `made` says; `asked` is what they were asked."""

    def __init__(self, made: Machines) -> None:
        self.made = made
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.slow: set[str] = set()
        self.refused: set[str] = set()
        self.end = threading.Event()

    def shell(self, node: str, config: Path, seconds: float) -> Any:
        assert seconds == collect_answers.ANSWER_SECONDS
        text = config.read_text()
        assert text.startswith("ConnectTimeout 5\n"), "what comes first counts"
        assert f"Host {node}\n" in text

        def run(script: str) -> Any:
            self.asked.append((node, script))
            if node in self.slow:
                self.end.wait(60)
            if why := self.made.silent.get(node):
                raise UnreachableError(node, why)
            return SimpleNamespace(stdout_bytes=self.made.output(node).encode("utf-8", "surrogateescape"))

        return SimpleNamespace(run=run, close=lambda: self.closed.append(node))

    def session(self, name: str) -> Any:
        if name in self.slow:
            self.end.wait(60)
        if name in self.made.silent:
            raise SessionError(self.made.silent[name])
        return SimpleNamespace(
            talk=lambda *sentence: self.answer(name, *sentence), close=lambda: self.closed.append(name)
        )

    def answer(self, name: str, *sentence: str) -> list[dict[str, str]]:
        self.asked.append((name, sentence[0]))
        if sentence[0] in self.refused:
            raise SentenceError("no such command")
        made = self.made
        match sentence[0]:
            case "/system/resource/print":
                return [made.resource]
            case "/system/identity/print":
                return [made.identity] if made.identity else []
            case "/system/health/print":
                return made.health or []
            case "/interface/ethernet/print":
                frames = {"rx-packet": str(1000 * len(self.asked)), "driver-rx-packet": "0"}
                return [
                    {".id": f"*{at}", "name": leg, "default-name": leg} | frames for at, leg in enumerate(made.links)
                ]
            case "/system/scheduler/print" | "/system/script/print":
                return [{"name": name} for name in made.armed]
            case "/safe-mode/print":
                return [{"enabled": str(made.safe_mode).lower(), "current": "false"}]
            case "/system/device-mode/print":
                return made.device_mode or []
            case "/interface/ethernet/monitor":
                return [{"name": leg, **row} for leg, row in made.links.items()]
        raise AssertionError(sentence)


Start = Callable[..., Network]


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    return reference(tmp_path_factory.mktemp("rack"))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, rack: Rack, tmp_path: Path) -> Start:
    """A network for the machines of the reference rack, changed as wanted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RACK", str(rack.source))

    def begin(*changes: Callable[[Machines], object]) -> Network:
        made = machines(rack)
        for change in changes:
            change(made)
        network = Network(made)
        monkeypatch.setattr(node_shells, "RootShell", network.shell)
        monkeypatch.setattr(SwitchChecks, "_open_way", lambda look: network.session(look.switch.name))
        return network

    return begin


def run(*words: str) -> Result:
    ended = CliRunner().invoke(sparkrack, ["status", *words], catch_exceptions=False)
    assert "\x1b" not in ended.output
    return ended


def dead(made: Machines) -> None:
    made.silent["spark4"] = "Connection timed out"


def no_switch(made: Machines) -> None:
    made.silent["crs812"] = "connection refused"


def slow(made: Machines) -> None:
    made.links["qsfp56-dd-1-3"]["rate"] = "50Gbps"


def garbage(made: Machines) -> None:
    made.raw["spark2"] = "sudo: a password is required\n"


def binary(made: Machines) -> None:
    made.nodes["spark2"]["kernel"] = (0, ["\udcff\udcfe\x00"])


EXITS = {
    "fine": ((), 0, "9 machines: 9 reachable, 0 not as declared, 0 unknown"),
    "slow": ((slow,), 2, "9 machines: 9 reachable, 1 not as declared, 0 unknown"),
    "dead": ((dead,), 1, "spark4: unknown: cannot be reached: Connection timed out"),
    "no switch": ((no_switch,), 1, "crs812: unknown: could not be read over the API as sparkrack, who may also write"),
    "garbage": ((garbage,), 1, "spark2: unknown: cannot be understood: it did not answer to the end"),
    "binary": ((binary,), 1, "spark2: unknown: kernel: unexpected output: \\xff\\xfe\\x00"),
    "both": ((slow, dead), 1, "9 machines: 8 reachable, 1 not as declared, 1 unknown"),
}


@pytest.mark.parametrize("case", EXITS)
def test_exit_codes(case: str, start: Start) -> None:
    changes, code, text = EXITS[case]
    start(*changes)
    ended = run()
    assert text in ended.stdout
    assert (ended.exit_code, ended.stderr) == (code, "")
    quiet = run("--quiet")
    assert (quiet.exit_code, len(quiet.stdout.splitlines())) == (code, 1 + len(changes))
    assert text in quiet.stdout


@pytest.mark.parametrize("case", EXITS)
def test_json(case: str, start: Start) -> None:
    changes, code, _ = EXITS[case]
    start(*changes)
    ended = run("--json", "--quiet")
    assert (ended.exit_code, ended.stderr) == (code, "")
    data = json.loads(ended.stdout)
    assert data["schema"] == "sparkrack.status/2"
    found = Status.model_validate_json(ended.stdout)
    assert found.code == code
    assert [one.name for one in found.machines] == [*ALL, "crs812"]
    assert (found.drift, found.run) == (None, None)


def unreachable(*names: str, why: str = "Host key verification failed.") -> Callable[[Machines], object]:
    return lambda made: made.silent.update(dict.fromkeys(names, why))


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPkOmIEEQFcdWhvyVUTHZeIWyzdnbKHN8OkJ1HLlK3hM"
DENIED = "Permission denied (publickey)."
FIRST_CONTACT = {
    "nothing was set up": ((unreachable(*ALL, "crs812"),), "", ["bootstrap"]),
    "no node was set up": ((unreachable(*ALL),), "", ["bootstrap", "nodes"]),
    "one node is new": ((unreachable("spark4"),), "", ["bootstrap", "nodes", "spark4"]),
    "the switch is new": ((unreachable("crs812"),), "", ["bootstrap", "switch", "crs812"]),
    "our key is refused": (
        (unreachable("spark4", why="Permission denied (publickey)."),),
        KEY,
        ["bootstrap", "nodes", "spark4"],
    ),
    "it is off": ((unreachable("spark4", why="Connection timed out"),), KEY, ["drift"]),
    "all is well": ((), KEY, ["drift"]),
}


@pytest.mark.parametrize("case", FIRST_CONTACT)
def test_the_next_step_before_the_first_contact(
    case: str, start: Start, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WITHIN)
    changes, key, words = FIRST_CONTACT[case]
    lines = "".join(f"{node.address} {key}\n" for node in rack.nodes.values() if key)
    rack.access.known_hosts.write_text(lines)
    start(*changes)
    last = run().stderr.splitlines()[-1]
    purpose = ", for the first contact" if words[0] == "bootstrap" else ""
    assert last == f"Next{purpose}: sparkrack {' '.join(words)} --rack {rack.source}"


def test_where_no_host_answers_the_next_step_is_the_same_again(
    start: Start, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WITHIN)
    rack.access.known_hosts.write_text("".join(f"{node.address} {KEY}\n" for node in rack.nodes.values()))
    start(unreachable(*ALL, why="Connection timed out"))
    last = run("--limit", "nodes").stderr.splitlines()[-1]
    assert last == f"Next, when a host answers: sparkrack status --rack {rack.source} --limit nodes"


def test_each_machine_is_asked_once_and_let_go(start: Start) -> None:
    network = start()
    run()
    assert sorted(who for who, _ in network.asked if who != "crs812") == ALL
    assert sorted(network.closed) == ["crs812", *ALL]
    assert [what for who, what in network.asked if who == "crs812"] == [
        *("/system/resource/print", "/system/identity/print", "/interface/ethernet/print"),
        "/interface/ethernet/print",
        *("/interface/ethernet/monitor", "/system/health/print"),
        *("/system/scheduler/print", "/system/script/print", "/safe-mode/print", "/system/device-mode/print"),
        "/interface/ethernet/print",
    ]


def test_those_who_are_silent_are_let_go_as_well(start: Start) -> None:
    network = start(dead)
    run()
    assert sorted(network.closed) == ["crs812", *ALL]


@pytest.mark.parametrize(
    ("words", "who"),
    [
        (("--limit", "spark2", "--limit", "crs812"), ["crs812", "spark2"]),
        (("--limit", "@routeros/crs812"), ["crs812"]),
        (("--exclude", "crs812", "--exclude", "spark1"), ALL[1:]),
    ],
)
def test_only_some(words: tuple[str, ...], who: list[str], start: Start) -> None:
    network = start()
    ended = run(*words)
    assert (sorted({name for name, _ in network.asked}), ended.exit_code) == (who, 0)
    assert ("run lock: ?" in ended.stdout) == ("spark1" not in who)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--limit", "spark9"), "--limit spark9: not in the rack; there are spark1"),
        (("--exclude", "spark9"), "--exclude spark9: not in the rack"),
        (("--limit", "spark1", "--exclude", "spark1"), "leave no machine"),
    ],
)
def test_no_one_is_meant(words: tuple[str, ...], why: str, start: Start) -> None:
    network = start()
    ended = run(*words)
    assert (ended.exit_code, ended.stdout, network.asked) == (1, "", [])
    assert why in ended.stderr


def test_a_switch_without_sensors(start: Start) -> None:
    start().refused.add("/system/health/print")
    ended = run()
    assert (ended.exit_code, "8/8   -" in ended.stdout) == (0, True)


def test_a_switch_without_a_device_mode_is_not_known_to_be_unmarked(start: Start) -> None:
    start().refused.add("/system/device-mode/print")
    ended = run()
    assert (ended.exit_code, "the switch does not report whether RouterOS has marked it" in ended.stdout) == (1, True)


@pytest.mark.parametrize("sentence", ["/system/resource/print", "/interface/ethernet/monitor"])
def test_a_switch_that_refuses(sentence: str, start: Start) -> None:
    start().refused.add(sentence)
    ended = run("--quiet")
    assert (ended.exit_code, "crs812: unknown: could not be read" in ended.stdout) == (1, True)


def test_a_password_that_is_not_there(start: Start, monkeypatch: pytest.MonkeyPatch, rack: Rack) -> None:
    original = SwitchChecks._open_way
    start()
    monkeypatch.setattr(SwitchChecks, "_open_way", original)
    monkeypatch.delenv("CRS812_PASSWORD", raising=False)
    ended = run("--quiet", "--limit", "crs812")
    assert (ended.exit_code, "CRS812_PASSWORD" in ended.stdout) == (1, True)


@pytest.mark.parametrize("name", ["spark4", "crs812"])
def test_no_one_is_waited_for_too_long(name: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_answers, "ALL_ANSWERS_SECONDS", 5.0)  # the others answer in time on a busy machine, too
    network = start()
    network.slow.add(name)
    ended = run("--quiet")
    waiting = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    network.end.set()
    assert [thread for thread in waiting if not thread.daemon] == [], "the program would wait for it at its end"
    assert (ended.exit_code, ended.stdout.splitlines()[0]) == (
        1,
        f"{name}: unknown: cannot be reached: no answer within 5 s",
    )


def test_a_fault_of_the_program_is_not_a_silence(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(collect_answers, "script", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        run()


def test_a_real_ssh_that_hangs_ends_in_time(rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(collect_answers, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(collect_answers, "ALL_ANSWERS_SECONDS", 1.0)
    began = time.monotonic()
    reported = collect_answers.collect_answers(rack, ["spark1", "spark2"])
    assert time.monotonic() - began < 60, "it waited for ssh to end"
    assert [one.why for one in reported.values() if isinstance(one, collect_answers.NoAnswer)] == [
        "cannot be reached: no answer within 1 s"
    ] * 2


def test_a_login_that_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start()

    def refuse(_look: SwitchChecks) -> Any:
        raise LoginError("login as sparkrack refused")

    monkeypatch.setattr(SwitchChecks, "_open_way", refuse)
    assert "crs812: unknown: could not be read over the API" in run("--quiet").stdout
