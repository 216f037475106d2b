"""Prove the switch and both ends of every leg: what it says of itself, what its port sees, what the node sees, and
which node that is.

A forced port calls itself up whatever hangs on it, so a leg is good only when the node says the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from sparkrack.fleet import Leg, Port, Rack, Switch
from sparkrack.fleet.cabling import Half
from sparkrack.proof.machines import Machines
from sparkrack.proof.shell import UnreachableError
from sparkrack.proof.told import Told, UnknownError

from .cages import split_of
from .drift import Sort, drift
from .drift_lanes import lane_words
from .ends import (
    HEARD_SECONDS,
    End,
    answer,
    disagreement,
    grown,
    misplaced,
    node_end,
    question,
    switch_end,
    whereabouts,
)
from .errors import RefusedError, UnreadableError
from .gate import refusals
from .look import IDLE_SECONDS, Look
from .menus import IDENTITY
from .offload import REMEDY
from .plan import plan


@pytest.fixture(scope="session")
def looks(rack: Rack) -> Iterator[Mapping[str, Look]]:
    """Each switch, by name."""
    made = {name: Look(rack, switch) for name, switch in rack.switches.items()}
    yield made
    for look in made.values():
        look.close()


@pytest.fixture
def look(looks: Mapping[str, Look], request: pytest.FixtureRequest) -> Look:
    """The switch that the test is about."""
    parameters = request.node.callspec.params
    return looks[parameters["switch"].name if "switch" in parameters else parameters["leg"][0].switch]


class Nodes:
    """What the nodes say of the ports that are cabled to a switch; each is asked once, when it is needed."""

    def __init__(self, rack: Rack, machines: Machines, excluded: frozenset[str] = frozenset()) -> None:
        self._rack, self._machines = rack, machines
        self._said: dict[str, dict[Half, End] | str] = dict.fromkeys(excluded, "is excluded from this run")

    def ends(self, port: Port) -> tuple[End, ...]:
        """Both halves of a port. Raises UnknownError when the node does not tell."""
        if port.node not in self._said:
            self._said[port.node] = self._ask(port.node)
        said = self._said[port.node]
        if isinstance(said, str):
            raise UnknownError(f"{port.node}: {said}")
        return tuple(said[half] for half in port.halves)

    def again(self, port: Port) -> tuple[End, ...]:
        """The same, asked anew: what a switch learned is gone with the link that it was learned by, and a node that
        says nothing is not heard."""
        self._said.pop(port.node, None)
        return self.ends(port)

    def _ask(self, node: str) -> dict[Half, End] | str:
        ports = [port for port in self._rack.cabling.ports_of(node) if self._rack.cabling.leg_of(port)]
        try:
            done = self._machines[node].run(question(self._rack, ports))
        except UnreachableError as gone:
            return f"cannot be asked: {gone.why}"
        if done.rc != 0:
            return f"cannot be asked: {done.stderr.strip() or f'exit {done.rc}'}"
        try:
            return answer(done.stdout, ports)
        except ValueError as fault:
            return str(fault)


@pytest.fixture(scope="session")
def nodes(rack: Rack, machines: Machines, excluded: frozenset[str]) -> Nodes:
    """What the nodes say."""
    return Nodes(rack, machines, excluded)


def test_is_the_declared_unit(switch: Switch, look: Look, told: Told) -> None:
    """Model, serial number, release and packages are those of rack.yaml, and so is its name."""
    reading = look.reading  # first: what could not be read was not read over anything
    told.note(f"{switch.name} was read over {look.way}")
    wrong = [f"{switch.name}: {reason}" for reason in refusals(switch, reading)]
    name = reading.only(IDENTITY).get("name")
    if switch.identity and name != switch.identity:
        wrong.append(f"{switch.name}: it calls itself {name}, wanted {switch.identity}")
    told.judge(wrong)


def test_is_as_declared(switch: Switch, look: Look, rack: Rack, told: Told) -> None:
    """Nothing differs from rack.yaml, and what is configured right also works. Rows that the file does not know are
    told, and left."""
    try:
        found = drift(switch, look.reading, plan(rack, switch, look.reading))
    except RefusedError as refused:
        told.judge(f"{switch.name}: not compared: {reason}" for reason in refused.reasons)
        return
    except UnreadableError as fault:
        told.judge((), [f"{switch.name}: not compared: {fault}"])
        return
    for one in found:
        if one.sort is Sort.UNMANAGED:
            told.note(f"{switch.name}: {one.text}")
    told.judge(f"{switch.name}: {one.text}" for one in found if one.sort is not Sort.UNMANAGED)


def test_nobody_holds_safe_mode(switch: Switch, look: Look) -> None:
    """No change is half done: what is in safe mode now may be gone in a minute."""
    holder = look.safe_mode_holder()
    assert not holder, f"{switch.name}: {holder} holds safe mode"


def test_no_dead_man_is_armed(switch: Switch, look: Look) -> None:
    """No run left its timer behind: it would undo everything when it ends."""
    names = sorted(look.armed())
    assert not names, f"{switch.name}: {', '.join(names)} is armed and will undo an earlier run, or one going on now"


def test_counters_stand_still(switch: Switch, look: Look, rack: Rack, told: Told) -> None:
    """While nothing but our own small packets is sent, no leg loses frames, is paused, or gets some beyond repair."""
    before, after = look.watched.before, look.watched.after
    wrong = []
    for leg in rack.cabling.legs(switch.name):
        name = leg[0].interface
        if not before.get(name) or not after.get(name):
            wrong.append(f"{_named(leg)}: the switch tells none of its counters")
        elif more := grown(before[name], after[name]):
            wrong.append(f"{_named(leg)}: within {IDLE_SECONDS:.0f} s {', '.join(more)}")
    told.judge(wrong)


def test_leg_is_up_on_the_switch(leg: tuple[Leg, Port], look: Look) -> None:
    """The port is linked at the leg's speed, with the FEC that its lanes need."""
    here, _ = leg
    wrong = switch_end(here, split_of(look.switch, here.cage), look.links.get(here.interface, {}))
    assert not wrong, f"{_named(leg)}: the switch says {wrong}"


def test_leg_carries_full_frames(leg: tuple[Leg, Port], look: Look) -> None:
    """MTU and L2MTU of the leg are those of rack.yaml."""
    here, _ = leg
    row = look.ethernet.get(here.interface, {})
    wanted = {"mtu": look.switch.mtu, "l2mtu": look.switch.l2mtu}
    wrong = [f"{key} {row.get(key)}, wanted {size}" for key, size in wanted.items() if row.get(key) != str(size)]
    assert not wrong, f"{_named(leg)}: {'; '.join(wrong)}"


def test_leg_is_bridged_in_hardware(leg: tuple[Leg, Port], look: Look, told: Told) -> None:
    """The leg is a member of the declared bridge and the chip forwards for it: `hw=yes` is only a wish, and the flag
    stays when frames reach the CPU only, which their counters show."""
    wanted, row = look.switch.bridge, look.port(leg[0])
    assert row.get("bridge") == wanted, f"{_named(leg)}: in bridge {row.get('bridge', '(none)')}, wanted {wanted}"
    assert row.get("hw-offload") == "true", f"{_named(leg)}: the chip does not forward for it (hw-offload is not true)"
    name, frames = leg[0].interface, look.watched.frames
    assert name not in frames.by_cpu, f"{_named(leg)}: the CPU forwards its frames, not the chip; {REMEDY}"
    if name in frames.unseen:
        told.note(f"{_named(leg)}: no traffic seen, so whether the chip forwards its frames was not proven")


def test_leg_is_up_on_the_node(leg: tuple[Leg, Port], nodes: Nodes, told: Told) -> None:
    """Both halves of the port see a link at the leg's speed."""
    here, port = leg
    wrong = [node_end(here, end) for end in nodes.ends(port)]
    told.judge(f"{_named(leg)}: {text}" for text in wrong if text)


def test_both_ends_of_leg_agree(leg: tuple[Leg, Port], look: Look, nodes: Nodes) -> None:
    """Switch and node say the same of link, speed and FEC."""
    here, port = leg
    wrong = disagreement(look.links.get(here.interface, {}), nodes.ends(port))
    assert not wrong, f"{_named(leg)}: {wrong}"


def test_leg_goes_to_its_node(leg: tuple[Leg, Port], look: Look, nodes: Nodes, rack: Rack, told: Told) -> None:
    """The switch hears both halves of the node behind the leg that rack.yaml names, and behind no other."""
    here, port = leg
    ends = nodes.ends(port)  # asking makes the node speak
    until = time.monotonic() + HEARD_SECONDS
    while "" in whereabouts(ends, hosts := look.hosts()) and time.monotonic() < until:
        time.sleep(1)
        ends = nodes.again(port)

    def where(other: Port) -> Mapping[str, list[str]] | None:
        try:
            return whereabouts(nodes.ends(other), look.hosts())
        except UnknownError:
            return None  # that node's own checks say why

    told.judge(misplaced(rack, here, port, whereabouts(ends, hosts), where))


def _named(leg: tuple[Leg, Port]) -> str:
    here, port = leg
    return f"{port.node} on leg {here}, {lane_words(here.lanes)}"
