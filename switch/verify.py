"""Verify the switch and both ends of every leg: its own state, the switch's and the node's view of the link, and the
identity of the node.

A forced port reports link up whatever is connected to it, so a leg passes only when the node agrees.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from core.model import Leg, Port, Rack, Switch
from core.model.cabling import Half
from core.probes.protocol import UnknownError
from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import IDENTITY
from core.ssh.client import NodeConnections
from core.ssh.parsed_answer import parsed_answer
from core.verify.reporter import CheckReporter
from switch.cages import fec_of
from switch.differences import DifferenceKind, switch_differences
from switch.lane_differences import lane_words
from switch.link_ends import (
    HEARD_SECONDS,
    LinkEnd,
    disagreement,
    grown_counters,
    mac_locations,
    miscabled,
    node_end,
    node_end_script,
    parse_node_end,
    switch_end,
)
from switch.offload import REMEDY
from switch.plan import plan
from switch.preconditions import blockers
from switch.verify_client import IDLE_SECONDS, SwitchChecks


@pytest.fixture(scope="session")
def looks(rack: Rack) -> Iterator[Mapping[str, SwitchChecks]]:
    """Each switch, by name."""
    made = {name: SwitchChecks(rack, switch) for name, switch in rack.switches.items()}
    yield made
    for look in made.values():
        look.close()


@pytest.fixture
def look(looks: Mapping[str, SwitchChecks], request: pytest.FixtureRequest) -> SwitchChecks:
    """The switch that the test is about."""
    parameters = request.node.callspec.params
    return looks[parameters["switch"].name if "switch" in parameters else parameters["leg"][0].switch]


class FabricNodes:
    """The nodes' reports of the ports that are cabled to a switch; each node is asked once, when needed."""

    def __init__(self, rack: Rack, machines: NodeConnections, excluded: frozenset[str] = frozenset()) -> None:
        self._rack, self._machines = rack, machines
        self._reported: dict[str, dict[Half, LinkEnd] | str] = dict.fromkeys(excluded, "is excluded from this run")

    def ends(self, port: Port) -> tuple[LinkEnd, ...]:
        """Both halves of a port. Raises UnknownError when the node does not report them."""
        if port.node not in self._reported:
            self._reported[port.node] = self._ask_node_ends(port.node)
        reported = self._reported[port.node]
        if isinstance(reported, str):
            raise UnknownError(f"{port.node}: {reported}")
        return tuple(reported[half] for half in port.halves)

    def again(self, port: Port) -> tuple[LinkEnd, ...]:
        """The same, read again: a switch forgets a learned address with its link, and learns no address of a silent
        node.
        """
        self._reported.pop(port.node, None)
        return self.ends(port)

    def _ask_node_ends(self, node: str) -> dict[Half, LinkEnd] | str:
        ports = [port for port in self._rack.cabling.ports_of(node) if self._rack.cabling.leg_of(port)]
        script = node_end_script(self._rack, ports)
        return parsed_answer(self._machines[node].run, script, lambda output: parse_node_end(output, ports))


@pytest.fixture(scope="session")
def nodes(rack: Rack, machines: NodeConnections, excluded: frozenset[str]) -> FabricNodes:
    """Reports of the nodes."""
    return FabricNodes(rack, machines, excluded)


def test_is_the_declared_unit(switch: Switch, look: SwitchChecks, report: CheckReporter) -> None:
    """Model, serial number, release and packages are those of rack.yaml, and so is its name."""
    reading = look.reading  # first: what could not be read was not read over anything
    report.note(f"{switch.name} was read over {look.way}")
    wrong = [f"{switch.name}: {reason}" for reason in blockers(switch, reading)]
    name = reading.only(IDENTITY).get("name")
    if switch.identity and name != switch.identity:
        wrong.append(f"{switch.name}: it calls itself {name}, wanted {switch.identity}")
    report.judge(wrong)


def test_is_as_declared(switch: Switch, look: SwitchChecks, rack: Rack, report: CheckReporter) -> None:
    """Nothing differs from rack.yaml, and correctly configured parts also work. Unmanaged rows are
    reported, and kept.
    """
    try:
        planned = plan(rack, switch, look.reading)
        found = switch_differences(switch, look.reading, planned)
    except RefusedError as refused:
        report.judge(f"{switch.name}: not compared: {reason}" for reason in refused.reasons)
        return
    except UnreadableError as fault:
        report.judge((), [f"{switch.name}: not compared: {fault}"])
        return
    for line in planned.notices:
        report.note(f"{switch.name}: {line}")
    for one in found:
        if one.sort is DifferenceKind.UNMANAGED:
            report.note(f"{switch.name}: {one.text}")
    report.judge(f"{switch.name}: {one.text}" for one in found if one.sort is not DifferenceKind.UNMANAGED)


def test_safe_mode_is_free(switch: Switch, look: SwitchChecks) -> None:
    """No change is half done: what is in safe mode now may be gone in a minute."""
    holder = look.safe_mode_holder()
    assert not holder, f"{switch.name}: {holder} holds safe mode"


def test_no_rollback_timer_is_armed(switch: Switch, look: SwitchChecks) -> None:
    """No run left its timer behind: it would undo everything when it ends."""
    names = sorted(look.armed())
    assert not names, f"{switch.name}: {', '.join(names)} is armed and will undo an earlier run, or one going on now"


def test_counters_stand_still(switch: Switch, look: SwitchChecks, rack: Rack, report: CheckReporter) -> None:
    """While nothing but our own small packets is sent, no leg loses frames, is paused, or gets some beyond repair."""
    before, after = look.watched.before, look.watched.after
    wrong = []
    for leg in rack.cabling.legs(switch.name):
        name = leg[0].interface
        if not before.get(name) or not after.get(name):
            wrong.append(f"{_leg_name(leg)}: the switch reports none of its counters")
        elif more := grown_counters(before[name], after[name]):
            wrong.append(f"{_leg_name(leg)}: within {IDLE_SECONDS:.0f} s {', '.join(more)}")
    report.judge(wrong)


def test_leg_is_up_on_the_switch(leg: tuple[Leg, Port], look: SwitchChecks) -> None:
    """The port is linked at the leg's speed, with the FEC that its lanes need."""
    here, _ = leg
    wrong = switch_end(here, fec_of(look.switch, here.cage), look.links.get(here.interface, {}))
    assert not wrong, f"{_leg_name(leg)}: the switch reports {wrong}"


def test_leg_carries_full_frames(leg: tuple[Leg, Port], look: SwitchChecks) -> None:
    """MTU and L2MTU of the leg are those of rack.yaml."""
    here, _ = leg
    row = look.ethernet.get(here.interface, {})
    wanted = {"mtu": look.switch.mtu, "l2mtu": look.switch.l2mtu}
    wrong = [f"{key} {row.get(key)}, wanted {size}" for key, size in wanted.items() if row.get(key) != str(size)]
    assert not wrong, f"{_leg_name(leg)}: {'; '.join(wrong)}"


def test_leg_is_bridged_in_hardware(leg: tuple[Leg, Port], look: SwitchChecks, report: CheckReporter) -> None:
    """The leg is a member of the declared bridge and the chip forwards for it: `hw=yes` is only a request, and the flag
    stays when frames reach the CPU only, which their counters show.
    """
    wanted, row = look.switch.bridge, look.port(leg[0])
    assert row.get("bridge") == wanted, f"{_leg_name(leg)}: in bridge {row.get('bridge', '(none)')}, wanted {wanted}"
    assert row.get("hw-offload") == "true", (
        f"{_leg_name(leg)}: the chip does not forward for it (hw-offload is not true)"
    )
    name, frames = leg[0].interface, look.watched.frames
    assert name not in frames.by_cpu, f"{_leg_name(leg)}: the CPU forwards its frames, not the chip; {REMEDY}"
    if name in frames.unseen:
        report.note(f"{_leg_name(leg)}: no traffic seen, so whether the chip forwards its frames was not proven")


def test_leg_is_up_on_the_node(leg: tuple[Leg, Port], nodes: FabricNodes, report: CheckReporter) -> None:
    """Both halves of the port see a link at the leg's speed."""
    here, port = leg
    wrong = [node_end(here, end) for end in nodes.ends(port)]
    report.judge(f"{_leg_name(leg)}: {text}" for text in wrong if text)


def test_both_ends_of_leg_agree(leg: tuple[Leg, Port], look: SwitchChecks, nodes: FabricNodes) -> None:
    """Switch and node agree on link, speed and FEC."""
    here, port = leg
    wrong = disagreement(look.links.get(here.interface, {}), nodes.ends(port))
    assert not wrong, f"{_leg_name(leg)}: {wrong}"


def test_leg_goes_to_its_node(
    leg: tuple[Leg, Port], look: SwitchChecks, nodes: FabricNodes, rack: Rack, report: CheckReporter
) -> None:
    """The switch hears both halves of the node behind the leg that rack.yaml names, and behind no other."""
    here, port = leg
    ends = nodes.ends(port)  # the probe makes the node send frames
    until = time.monotonic() + HEARD_SECONDS
    while "" in mac_locations(ends, hosts := look.hosts(ends)) and time.monotonic() < until:
        time.sleep(1)
        ends = nodes.again(port)

    def where(other: Port) -> Mapping[str, list[str]] | None:
        try:
            return mac_locations(found := nodes.ends(other), look.hosts(found))
        except UnknownError:
            return None  # that node's own checks report the reason

    report.judge(miscabled(rack, here, port, mac_locations(ends, hosts), where))


def _leg_name(leg: tuple[Leg, Port]) -> str:
    here, port = leg
    return f"{port.node} on leg {here}, {lane_words(here.lanes)}"
