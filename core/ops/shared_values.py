"""Values that the operations of all nodes share in one stage of a run: each is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gevent.lock import Semaphore
from pyinfra.api.host import Host
from pyinfra.api.state import State

from core.model import Rack
from core.ops import host_facts
from core.ops.host_facts import HostReading
from core.ops.run_context import run_value
from core.probes.protocol import UnknownError

T = TypeVar("T")


class SharedValue(Generic[T]):
    """A value for each stage of each run: its plan, and its execution."""

    def __init__(self) -> None:
        self._making = Semaphore()

    def get(self, state: State, make: Callable[[], T]) -> T:
        """Return the value of this stage. Raises what `make` raises, and then makes it again for the next host."""
        with self._making:
            stages: dict[bool, T] = run_value(state, dict, self)
            if state.is_executing not in stages:
                stages[state.is_executing] = make()
            return stages[state.is_executing]


def facts_of_nodes(state: State, rack: Rack, role: str, parse: Callable[[Host, HostReading], T]) -> dict[str, T]:
    """Return the facts of each node of the run, by rank, without those that are unknown: such a node is refused in its
    own operation. `parse`: raises UnknownError or ValueError for facts that cannot be used.
    """
    hosts = {host.data.node.name: host for host in state.inventory.get_active_hosts() if host.data.get("node")}
    found = {}
    for name in rack.nodes:
        if name in hosts:
            try:
                found[name] = parse(hosts[name], host_facts.read(hosts[name], role))
            except (UnknownError, ValueError):
                continue
    return found
