"""What a run keeps of a node's answer, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from core.ops import host_facts
from core.ops.host_facts import HostReading, _Cache


@dataclass(eq=False)
class Host:
    """A host of a run, as a key of the cache."""

    state: SimpleNamespace


@pytest.mark.parametrize(("read_while_executing", "executing"), [(False, True), (True, False)])
def test_a_reading_of_another_stage_of_the_run_is_not_used(read_while_executing: bool, executing: bool) -> None:
    host: Any = Host(SimpleNamespace(is_executing=executing))
    host_facts._hosts[host] = _Cache(read_while_executing, readings={"fabric": HostReading({}, {})})
    assert host_facts.cached(host, "fabric") is None


@pytest.mark.parametrize("executing", [False, True])
def test_the_reading_of_a_role_in_this_stage_is_used_again(executing: bool) -> None:
    host: Any = Host(SimpleNamespace(is_executing=executing))
    assert host_facts.cached(host, "fabric") is None, "a host that was never read"
    reading = HostReading({}, {})
    host_facts._hosts[host] = _Cache(executing, readings={"fabric": reading})
    assert host_facts.cached(host, "fabric") is reading
    assert host_facts.cached(host, "time") is None
