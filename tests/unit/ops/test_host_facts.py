"""What a run asks a node, what it keeps of its answer, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
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
    """A host of a run, as a key of the cache."""

    state: SimpleNamespace


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
        # What fits into the pipe: pyinfra's own connector fails with "Broken pipe" where more is not read.
        (False, "wrong", 10, "sudo: 1 incorrect password attempt"),
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
