"""What a run asks a node, what it keeps of its answer, and why a node is unknown. A real shell answers."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from core.ops import host_facts
from core.ops.host_facts import HostReading, Probe, _Cache
from core.ops.run_context import run_value
from core.probes.protocol import UnknownError
from tests.unit.ops.shells import stand_in


@dataclass(eq=False)
class Host:
    """A host of a run, whose commands this machine runs. `raises`, `fails`: how its next command ends instead."""

    state: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            is_executing=False, failed_hosts=set(), print_fact_output=False, print_fact_input=False
        )
    )
    raises: Exception | None = None
    fails: list[str] | None = None
    limits: list[float] = field(default_factory=list)

    def run_shell_command(self, command: Any, **options: Any) -> tuple[bool, SimpleNamespace]:
        assert options["_sudo"]
        self.limits.append(options["_timeout"])
        if self.raises:
            raise self.raises
        if self.fails is not None:
            return False, SimpleNamespace(stdout_lines=[], stderr_lines=self.fails)
        done = subprocess.run(
            ["sh", "-c", command.get_raw_value()],
            input=options.get("_stdin"),
            capture_output=True,
            text=True,
            check=False,
        )
        lines = SimpleNamespace(stdout_lines=done.stdout.splitlines(), stderr_lines=done.stderr.splitlines())
        return done.returncode == 0, lines


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Probe]:
    """Two roles: one with a file, a command and a constant command that counts itself, one with a command."""
    (tmp_path / "file").write_text("content")
    count = f"echo x >> {tmp_path}/counted; wc -l < {tmp_path}/counted"
    found = {
        "one": Probe((f"{tmp_path}/file", f"{tmp_path}/absent"), {"name": "echo first", "number": count},
                     frozenset({"number"})),
        "two": Probe((), {"other": "echo second"}),
    }  # fmt: skip
    monkeypatch.setattr(host_facts, "_registered", found)
    return found


def why_unknown(host: Any, role: str = "one") -> str:
    with pytest.raises(UnknownError) as caught:
        host_facts.read(host, role)
    return str(caught.value)


@pytest.mark.parametrize(("read_while_executing", "executing"), [(False, True), (True, False)])
def test_a_reading_of_another_stage_of_the_run_is_not_used(read_while_executing: bool, executing: bool) -> None:
    host: Any = Host(SimpleNamespace(is_executing=executing))
    run_value(host, host_facts._KnownHost).cache = _Cache(
        read_while_executing, readings={"fabric": HostReading({}, {})}
    )
    assert host_facts.cached(host, "fabric") is None


@pytest.mark.parametrize("executing", [False, True])
def test_the_reading_of_a_role_in_this_stage_is_used_again(executing: bool) -> None:
    host: Any = Host(SimpleNamespace(is_executing=executing))
    assert host_facts.cached(host, "fabric") is None, "a host that was never read"
    reading = HostReading({}, {})
    run_value(host, host_facts._KnownHost).cache = _Cache(executing, readings={"fabric": reading})
    assert host_facts.cached(host, "fabric") is reading
    assert host_facts.cached(host, "time") is None


@pytest.fixture(autouse=True)
def _set_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second each time it is read."""
    monkeypatch.setattr(host_facts, "time", SimpleNamespace(time=count(1).__next__))


SUDO = """\
case " $* " in
*' -A '*) [ "$("$SUDO_ASKPASS")" = right ] || { echo 'sudo: 1 incorrect password attempt' >&2; exit 1; } ;;
*) [ -e @ROOT@/passwordless ] || { echo 'sudo: a password is required' >&2; exit 1; } ;;
esac
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
"""
"""A sudo with the options of pyinfra; as the real one it reads no password from standard input without -S."""


@pytest.mark.parametrize(
    ("passwordless", "password", "count", "fault"),
    [
        (True, "", 100, ""),
        (False, "right", 100, ""),
        (False, "wrong", 100, "sudo: 1 incorrect password attempt"),
    ],
)
def test_a_probe_longer_than_one_argument_reaches_the_shell_of_sudo(
    passwordless: bool, password: str, count: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pyinfra's own connector, with a password and without: 300 KB, where one argument may have 128 KB."""
    stand_in(tmp_path, "sudo", SUDO.replace("@ROOT@", str(tmp_path)))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    if passwordless:
        (tmp_path / "passwordless").touch()
    long = "x" * 3000
    probe = Probe(commands={f"fact-{place}": f"printf '%s' {place}-{long}" for place in range(count)})
    monkeypatch.setattr(host_facts, "_registered", {"role": probe})
    state = State(Inventory((["@local"], {}), override_data={}), Config())  # type: ignore[no-untyped-call]
    connect_all(state)
    host = state.inventory.get_host("@local")
    host.connector_data["prompted_sudo_password"] = password
    if fault:
        with pytest.raises(UnknownError, match=fault):
            host_facts.read(host, "role")
        return
    reading = host_facts.read(host, "role")
    assert [reading.text(name) for name in probe.commands] == [f"{place}-{long}" for place in range(count)]


def test_one_command_reads_every_role(registered: dict[str, Probe], tmp_path: Path) -> None:
    host: Any = Host()
    reading = host_facts.read(host, "one")
    assert (reading.requested_at, reading.answered_at) == (1, 2)
    assert reading.unknown == {}
    assert reading.found == {
        "name": b"first\n",
        "number": b"1\n",
        "other": b"second\n",
        f"{tmp_path}/file": b"content",
        f"{tmp_path}/absent": None,
    }
    assert host_facts.read(host, "two") is reading
    assert host_facts.read(host, "one") is reading
    assert host.limits == [40]


def test_after_a_change_only_the_role_that_asks_is_read_and_what_is_constant_stays(
    registered: dict[str, Probe], tmp_path: Path
) -> None:
    host: Any = Host()
    host.state.is_executing = True
    first = host_facts.read(host, "one")
    (tmp_path / "file").write_text("changed")
    host_facts.invalidate(host)
    second = host_facts.read(host, "one")
    assert second.found == {
        "name": b"first\n",
        "number": b"1\n",
        f"{tmp_path}/file": b"changed",
        f"{tmp_path}/absent": None,
    }
    assert (first.requested_at, second.requested_at) == (1, 3)
    assert host_facts.cached(host, "two") is None
    assert host_facts.read(host, "two").found == {"number": b"1\n", "other": b"second\n"}
    assert len(host.limits) == 3


def test_while_a_plan_is_made_nothing_is_read_again(registered: dict[str, Probe]) -> None:
    host: Any = Host()
    host_facts.invalidate(host)
    reading = host_facts.read(host, "one")
    host_facts.invalidate(host)
    assert host_facts.read(host, "one") is reading


def test_what_was_read_for_the_plan_is_read_again_for_the_run(registered: dict[str, Probe]) -> None:
    host: Any = Host()
    reading = host_facts.read(host, "one")
    host.state.is_executing = True
    again = host_facts.read(host, "one")
    assert again is not reading
    assert again.found["number"] == b"2\n"


@pytest.mark.parametrize(
    ("seconds", "carried"),
    [(0, True), (30, True), (30.1, False), (-0.1, False)],
    ids=["at once", "30 s later", "later than 30 s", "by a clock that was set back"],
)
def test_the_facts_of_a_plan_under_the_lock_begin_its_execution(
    seconds: float, carried: bool, registered: dict[str, Probe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(host_facts, "clock", lambda: now)
    host: Any = Host()
    reading = host_facts.read(host, "one")
    host_facts.carry_facts(host)
    now += seconds
    host.state.is_executing = True
    assert (host_facts.read(host, "one") is reading) == carried
    assert (host_facts.cached(host, "two") is reading) == carried
    assert len(host.limits) == (1 if carried else 2)
    (tmp_path / "file").write_text("changed")
    host_facts.invalidate(host)
    assert host_facts.read(host, "one").found[f"{tmp_path}/file"] == b"changed", "a change counts as ever"


def test_a_plan_that_could_not_read_a_host_begins_no_execution(registered: dict[str, Probe]) -> None:
    host = Host(fails=["down"])
    assert why_unknown(host) == "state of the node: down"
    asked: Any = host
    host_facts.carry_facts(asked)
    host.fails, host.state.is_executing = None, True
    assert host_facts.read(asked, "one").found["name"] == b"first\n"


def test_facts_of_the_execution_begin_no_plan(registered: dict[str, Probe]) -> None:
    host: Any = Host()
    host.state.is_executing = True
    reading = host_facts.read(host, "one")
    host_facts.carry_facts(host)
    host.state.is_executing = False
    assert host_facts.read(host, "one") is not reading


def test_one_role_as_it_is_now_leaves_what_is_kept(registered: dict[str, Probe], tmp_path: Path) -> None:
    host: Any = Host()
    reading = host_facts.read(host, "one")
    now = host_facts.read_again(host, "one")
    assert set(now.found) == {"name", "number", f"{tmp_path}/file", f"{tmp_path}/absent"}
    assert now.found["number"] == b"2\n"
    assert host_facts.read(host, "one") is reading
    host.fails = ["gone"]
    with pytest.raises(UnknownError, match=r"^state of the node: gone$"):
        host_facts.read_again(host, "one")


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (TimeoutError("30 s"), "state of the node: no whole answer in time (30 s)"),
        (TimeoutError(), "state of the node: no whole answer in time (40 s)"),
        (OSError("no route"), "state of the node: no route"),
        (SSHException("banner"), "state of the node: banner"),
        (
            EOFError(),
            "state of the node: it hung up, or sudo wants a password; access.user needs sudo without one",
        ),
    ],
)
def test_why_a_node_is_unknown_that_does_not_answer(registered: dict[str, Probe], raised: Exception, why: str) -> None:
    assert why_unknown(Host(raises=raised)) == why


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "state of the node: the probe failed"),
        (["a"], "state of the node: a"),
        (["a", "b", "c", "d"], "state of the node: b; c; d"),
    ],
)
def test_of_what_a_failed_probe_prints_the_last_three_lines_are_the_reason(
    registered: dict[str, Probe], lines: list[str], why: str
) -> None:
    assert why_unknown(Host(fails=lines)) == why


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (1, ""),
        (3, ""),
        (4, " and 1 more"),
        (6, " and 3 more"),
    ],
)
def test_of_the_facts_that_are_unknown_three_are_named(registered: dict[str, Probe], count: int, more: str) -> None:
    registered["two"] = Probe((), {f"c{number}": f"exit {10 + number}" for number in range(count)})
    named = [f"c{number}: reading it ends with exit {10 + number}" for number in range(min(count, 3))]
    assert why_unknown(Host()) == "; ".join(named) + more


def test_a_node_that_has_not_answered_is_not_asked_again_by_each_role(registered: dict[str, Probe]) -> None:
    host = Host(fails=["down"])
    for role in ("one", "two", "one"):
        assert why_unknown(host, role) == "state of the node: down"
    assert len(host.limits) == 1
    host.fails = None
    host_facts.invalidate(host)  # type: ignore[arg-type]
    assert why_unknown(host) == "state of the node: down"
    host.state.is_executing = True
    asked: Any = host
    assert host_facts.read(asked, "one").found["name"] == b"first\n"
    host.fails = ["down again"]
    host_facts.invalidate(asked)
    assert why_unknown(host, "two") == "state of the node: down again"
    host.fails = None
    host_facts.invalidate(asked)
    assert host_facts.read(asked, "two").found == {"number": b"1\n", "other": b"second\n"}


def test_a_host_without_a_preview_is_not_read(registered: dict[str, Probe]) -> None:
    host: Any = Host()
    host.state.failed_hosts.add(host)
    assert host_facts.read(host, "one").found["name"] == b"first\n"
    host.state.is_executing = True
    assert why_unknown(host) == "no preview of the changes could be shown"
    assert len(host.limits) == 1


@pytest.mark.parametrize("lines", [[], ["garbage"]])
def test_an_answer_that_ends_too_early_makes_every_fact_unknown(lines: list[str]) -> None:
    probes = [Probe(("/a",), {"b": "true"})]
    found = host_facts.parse(probes, lines)
    assert found.found == {}
    assert found.unknown == dict.fromkeys(("/a", "b"), "the node's answer ends too early")
