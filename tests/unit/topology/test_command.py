"""`sparkrack topology`: what it prints, where, and its exit codes; only what goes over the network is made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import load
from core.routeros.errors import SessionError
from core.ssh import node_shells
from core.ssh.root_shell import UnreachableError
from sparkrack.cli.main import sparkrack
from sparkrack.topology import collect, render_svg
from sparkrack.topology.build import draw
from switch.verify_client import SwitchChecks
from tests.unit.cli.runs import command, guarded
from tests.unit.model.racks import VALID
from tests.unit.topology.answers import Answers, Change, answers, cards

SWITCH, DIRECT = VALID / "switch.yaml", VALID / "direct.yaml"


class Network:
    """Shells of nodes and sessions of switches that answer what `reported` says, and what they were asked."""

    def __init__(self, reported: Answers) -> None:
        self.reported = reported
        self.asked: list[tuple[str, Any]] = []
        self.closed: list[str] = []
        self.rc = 0
        self.late = 0
        self.rounds: dict[str, int] = {}

    def shell(self, node: str, config: Path, seconds: float) -> Any:
        assert seconds < 60
        assert f"Host {node}\n" in config.read_text()

        def run(script: str) -> Any:
            self.asked.append((node, script))
            if why := self.reported.silent.get(node):
                raise UnreachableError(node, why)
            return SimpleNamespace(rc=self.rc, stdout=self.reported.output(node), stderr="sudo: no\nreally")

        return SimpleNamespace(run=run, close=lambda: self.closed.append(node))

    def session(self, name: str) -> Any:
        if why := self.reported.silent.get(name):
            raise SessionError(why)
        return SimpleNamespace(
            talk=lambda *sentence: self.answer(name, sentence), close=lambda: self.closed.append(name)
        )

    def answer(self, name: str, sentence: tuple[str, ...]) -> list[dict[str, str]]:
        self.asked.append((name, sentence[0]))
        reported = self.reported
        if sentence[0] == "/interface/ethernet/print":
            rows = enumerate(reported.ethernet.items())
            return [{".id": f"*{at}", "name": f"my-{leg}", "default-name": leg, **row} for at, (leg, row) in rows]
        if sentence[0] == "/interface/ethernet/monitor":
            return [{"name": f"my-{leg}", **row} for leg, row in reported.monitor.items()]
        assert sentence[0] == "/interface/bridge/host/print"
        (wanted,) = (word.removeprefix("?mac-address=") for word in sentence if word.startswith("?"))
        times = self.rounds[wanted] = self.rounds.get(wanted, 0) + 1
        heard = reported.heard.items() if times > self.late else []
        return [{"mac-address": wanted, "on-interface": f"my-{leg}"} for mac, leg in heard if mac.upper() == wanted]


Start = Callable[..., Network]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """A network for the machines of a rack file, changed as wanted."""

    def begin(rack: Path, *changes: Change) -> Network:
        network = Network(answers(load(rack)))
        for change in changes:
            change(network.reported)
        monkeypatch.setattr(node_shells, "RootShell", network.shell)
        monkeypatch.setattr(SwitchChecks, "_open_way", lambda look: network.session(look.switch.name))
        monkeypatch.setattr(collect, "HEARD_SECONDS", 0.0)
        return network

    return begin


def run(*words: str | Path) -> Result:
    ended = CliRunner().invoke(sparkrack, ["topology", *map(str, words)], catch_exceptions=False, prog_name="sparkrack")
    assert "Traceback" not in ended.output
    return ended


def slow(reported: Answers) -> None:
    reported.monitor["qsfp56-dd-1-3"]["rate"] = "50Gbps"


def silent(reported: Answers) -> None:
    reported.silent["spark1"] = "Connection refused"


def no_switch(reported: Answers) -> None:
    reported.silent["crs812"] = "connection refused"


def garbage(reported: Answers) -> None:
    cards(reported, "spark2")[0].device["addr_info"] = 7  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ((), 0, "2 links: 2 fine, 0 mismatch, 0 unknown"),
        ((slow,), 2, "mismatch: leg qsfp56-dd-1-3 is at 50G, wanted 100G"),
        ((silent,), 1, "unknown: spark1: cannot be asked: Connection refused"),
        ((no_switch,), 1, "unknown: crs812 could not be read over the API as sparkrack"),
        ((garbage,), 1, "unknown: spark2: cannot be understood: `ip -j address show` gives no list of devices"),
        ((slow, silent), 1, "2 links: 0 fine, 1 mismatch, 1 unknown"),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_exit_codes(changes: tuple[Change, ...], code: int, text: str, form: str, start: Start) -> None:
    start(SWITCH, *changes)
    ended = run("--rack", SWITCH, "--seen", *(["--json"] if form == "json" else []))
    assert ended.exit_code == code, ended.output
    if form == "text":
        assert text in " ".join(ended.stdout.split())
    else:
        data = json.loads(ended.stdout)
        assert data["schema"] == "sparkrack.topology/1"
        assert {edge["state"] for edge in data["edges"]} <= {"fine", "mismatch", "unknown"}
    assert ended.stderr == ""


def test_quiet_has_what_is_wrong_and_the_last_line_only(start: Start) -> None:
    start(SWITCH, slow)
    whole, ended = (run("--rack", SWITCH, "--seen", *words) for words in ((), ("--quiet",)))
    assert (ended.exit_code, ended.stderr) == (2, "")
    text = " ".join(ended.stdout.split())
    assert text.startswith("spark2/1 - crs812/qsfp56-dd-1-3: mismatch: leg qsfp56-dd-1-3 is at 50G, wanted 100G")
    assert text.endswith("2 links: 1 fine, 1 mismatch, 0 unknown")
    assert text in " ".join(whole.stdout.split())


def test_a_node_that_refuses(start: Start) -> None:
    start(SWITCH).rc = 1
    ended = run("--rack", SWITCH, "--seen")
    assert ended.exit_code == 1
    assert "unknown: spark2: cannot be asked: sudo: no\\nreally" in " ".join(ended.stdout.split())


def test_each_machine_is_asked_once_and_let_go(start: Start) -> None:
    network = start(SWITCH)
    run("--rack", SWITCH, "--seen")
    assert sorted(who for who, _ in network.asked[:2]) == ["spark1", "spark2"]
    assert {who for who, _ in network.asked[2:]} == {"crs812"}
    assert sorted(network.closed) == ["crs812", "spark1", "spark2"]
    assert not [what for _, what in network.asked if "/set" in what or "/add" in what]


def test_a_limit_asks_only_what_it_needs(start: Start) -> None:
    network = start(VALID / "ring.yaml")
    ended = run("--rack", VALID / "ring.yaml", "--seen", "--limit", "spark2")
    assert (ended.exit_code, len(network.asked)) == (0, 3)
    network = start(SWITCH, silent)
    ended = run("--rack", SWITCH, "--seen", "--limit", "spark2")
    assert ended.exit_code == 0, ended.output
    assert {who for who, _ in network.asked} == {"spark2", "crs812"}


def test_excluded_hosts_are_not_contacted(start: Start) -> None:
    rack = load(SWITCH)
    network = start(SWITCH)
    seen = collect.collect_observations(rack, excluded={"spark2"})
    assert {who for who, _ in network.asked} == {"spark1", "crs812"}
    first, second = draw(rack, seen).edges
    assert (first.state, second.unknown) == ("fine", ("spark2: was not asked",))
    network = start(SWITCH)
    seen = collect.collect_observations(rack, excluded={"crs812"})
    assert {who for who, _ in network.asked} == {"spark1", "spark2"}
    assert draw(rack, seen).edges[0].unknown == ("crs812 was not asked",)


def test_the_switch_may_take_a_moment_to_hear(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    network = start(SWITCH)
    monkeypatch.setattr(collect, "HEARD_SECONDS", 5.0)
    monkeypatch.setattr(collect, "time", SimpleNamespace(monotonic=lambda: float(len(slept)), sleep=slept.append))
    network.late = 2
    assert run("--rack", SWITCH, "--seen").exit_code == 0
    assert slept == [1, 1]
    slept.clear()
    network.late = 99
    ended = run("--rack", SWITCH, "--seen")
    assert "behind no port" in " ".join(ended.output.split())
    assert (ended.exit_code, len(slept)) == (2, 5)


def test_cables_without_a_switch(start: Start) -> None:
    network = start(DIRECT)
    ended = run("--rack", DIRECT, "--seen")
    assert ended.exit_code == 0, ended.output
    assert {who for who, _ in network.asked} == {"left", "right"}


def test_nothing_is_connected_to_without_seen(tmp_path: Path) -> None:
    program = "from sparkrack.cli.topology import topology; topology()"
    ended = command("python", "-c", program, "--rack", SWITCH, python_path=guarded(tmp_path))
    assert (ended.code, ended.stderr) == (0, "")
    assert "not compared" in ended.stdout
    assert "\x1b" not in ended.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("--limit", "spark1", "--limit", "spark9"),
            "--limit spark9: not in the rack; there are spark1, spark2, crs812; did you mean spark2?",
        ),
        (("--json", "--format", "svg"), "--json and --format are two formats; pass one of them"),
        (("--quiet", "--format", "svg"), "--quiet is for the text on the screen; omit --format and --out"),
        (("--out", "/proc/version/at/all"), "/proc/version/at/all: cannot be written: Not a directory"),
    ],
)
def test_wrong_use(words: tuple[str, ...], why: str) -> None:
    ended = run("--rack", SWITCH, *words)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", f"Error: {why}\n")


@pytest.mark.parametrize(
    ("words", "begin"),
    [(("--format", "mermaid"), "flowchart LR\n"), (("--json",), '{\n "schema"'), ((), "crs812: 10.77.0.2")],
)
def test_a_file_holds_what_would_be_printed(words: tuple[str, ...], begin: str, tmp_path: Path) -> None:
    printed, kept = run("--rack", SWITCH, *words), tmp_path / "picture"
    ended = run("--rack", SWITCH, *words, "--out", kept)
    assert (ended.exit_code, ended.output) == (0, "")
    assert kept.read_text().startswith(begin)
    lines = [line.rstrip() for line in printed.stdout.splitlines()]
    assert kept.read_text().splitlines() == lines


def test_no_program_that_draws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(render_svg, "PROGRAM", str(tmp_path / "dot"))
    ended = run("--rack", SWITCH, "--format", "svg", "--out", tmp_path / "x.svg")
    assert ended.exit_code == 1
    assert ended.stderr == f"Error: there is no program {tmp_path}/dot, which draws SVG: install the package graphviz\n"
    assert not (tmp_path / "x.svg").exists()
