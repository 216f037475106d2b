"""Prove that the nodes are the machines the rack means, and one like the other: each asked once, all compared."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from roles.preflight import identity, state
from roles.preflight.alike import odd, skew
from roles.preflight.proof import ALIKE, Seen, script, seen
from sparkrack.fleet import Node, Rack, mebibytes
from sparkrack.proof.machines import Machines
from sparkrack.proof.shell import UnreachableError
from sparkrack.proof.told import Told, UnknownError

Fleet = Mapping[str, Seen | str]
"""What each node said, or why it said nothing."""


@pytest.fixture(scope="session")
def fleet(rack: Rack, machines: Machines, excluded: frozenset[str]) -> Fleet:
    """All nodes of the rack, asked at the same time: who is the odd one only the others can show."""
    names = [name for name in rack.nodes if name not in excluded]
    for name in names:
        _ = machines[name]  # made here, one after the other; asked side by side

    def ask(node: Node) -> Seen | str:
        slots = state.slots(rack, node)
        asked = time.time()
        try:
            done = machines[node.name].run(script(slots, slots.values(), rack.images))
        except UnreachableError as error:
            return error.why
        return seen(done.stdout, asked, time.time()) if done.rc == 0 else done.stderr.strip() or f"exit {done.rc}"

    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(ask, (rack.nodes[name] for name in names)), strict=True))


@pytest.fixture
def said(fleet: Fleet, node: Node) -> Seen:
    """What this node said."""
    found = fleet[node.name]
    if not isinstance(found, Seen):
        raise UnknownError(f"{node.name}: cannot be asked: {found}")
    return found


@pytest.fixture(scope="session")
def heard(fleet: Fleet) -> Mapping[str, Seen]:
    """The nodes that answered."""
    return {name: answer for name, answer in fleet.items() if isinstance(answer, Seen)}


def test_system(node: Node, said: Seen) -> None:
    """DGX OS 7, or what stands in for it, on a GB10's architecture."""
    name, _, release = said.one("system").partition(" ")
    assert state.SYSTEMS.get(name) == release, f"{node.name}: OS is {name} {release}, wanted ubuntu 24.04"
    machine = said.one("machine")
    assert machine == state.MACHINE, f"{node.name}: architecture is {machine}, wanted {state.MACHINE}"


def test_vendor(node: Node, said: Seen) -> None:
    """The machine that answers is of the vendor that rack.yaml says."""
    makers = said.one("maker"), said.one("board")
    made = identity.vendor_of(*makers)
    assert made == node.vendor, f"{node.name}: vendor is {made or ' / '.join(makers)}, wanted {node.vendor}"


def test_bios(node: Node, said: Seen, rack: Rack) -> None:
    """Not below the floor of its vendor."""
    floor = rack.preflight.bios.get(node.vendor)
    if floor is None:
        pytest.skip("rack.yaml has no floor for every vendor's BIOS")
    assert not identity.older(said.one("bios"), floor), (
        f"{node.name}: BIOS is {said.one('bios') or 'not told'}, wanted at least {floor}"
    )


def test_room(node: Node, said: Seen, rack: Rack) -> None:
    """Enough on / and where docker keeps images."""
    wanted = mebibytes(rack.preflight.disk_free) * 1024**2
    assert "/" in said.room, f"{node.name}: how much is free on / cannot be told"
    short = [f"{place} {free / 1024**3:.1f}G" for place, free in said.room.items() if free < wanted]
    assert not short, f"{node.name}: free on {', '.join(short)}, wanted {rack.preflight.disk_free}"


def test_clock(node: Node, said: Seen, heard: Mapping[str, Seen], rack: Rack) -> None:
    """Near the median of the fleet; that of a node alone near the one here."""
    assert said.one("clock"), f"{node.name}: its clock cannot be told"
    off = skew(node.name, {name: other.clock for name, other in heard.items()})
    assert abs(off) <= rack.preflight.clock_skew, (
        f"{node.name}: clock is off by {off:+.1f} s, wanted at most {rack.preflight.clock_skew} s"
    )


def test_links(node: Node, said: Seen, rack: Rack, told: Told) -> None:
    """PCIe Gen5 with four lanes behind each half of each cabled port."""
    faults = []
    for slot, name in state.slots(rack, node).items():
        link = said.links.get(slot)
        if link is None:
            faults.append(f"{node.name}: PCIe function {slot} ({name}) is missing")
        elif (link.speed, link.width) != (state.SPEED, state.WIDTH):
            faults.append(
                f"{node.name}: {slot} ({name}) runs at {link.speed} {link.width}, wanted {state.SPEED} {state.WIDTH}"
            )
    told.judge(faults)


def test_handover(node: Node, said: Seen) -> None:
    """`kho=off` where the kernel needs it."""
    number = identity.kernel_number(said.one("kernel"))
    assert number, f"{node.name}: kernel is {said.one('kernel') or 'not told'}"
    off = state.KHO in said.one("cmdline").split()
    assert off or number < state.KHO_SINCE, f"{node.name}: kernel {said.one('kernel')} runs without {state.KHO}"


def test_driver_can_do_roce(node: Node, said: Seen, rack: Rack) -> None:
    """NVIDIA's driver where a switch is declared roce."""
    legs = {port: rack.cabling.leg_of(port) for port in rack.cabling.ports_of(node.name)}
    roce = [port for port, leg in legs.items() if leg and rack.switches[leg.switch].lossless == "roce"]
    without = [
        half.interface for port in roce for half in port.halves if half.interface not in said.said.get("ecn", [])
    ]
    assert not without, f"{node.name}: {', '.join(without)} cannot do roce, which its switch is declared"


def test_identity_is_its_own(node: Node, said: Seen, heard: Mapping[str, Seen]) -> None:
    """No other node has one of its host keys, or its machine-id."""
    others = {name: other for name, other in heard.items() if name != node.name}
    for question in ("machine-id", "hostkey"):
        mine = {answer for answer in said.said.get(question, []) if answer}
        assert mine, f"{node.name}: its {question} cannot be told"
        twins = [name for name, other in others.items() if mine & set(other.said.get(question, []))]
        assert not twins, f"{node.name}: {question} is the same as on {', '.join(twins)}"


@pytest.mark.parametrize("about", ALIKE)
@pytest.mark.usefixtures("said")
def test_like_the_others(node: Node, heard: Mapping[str, Seen], rack: Rack, about: str) -> None:
    """The odd one is named; where no value has a majority, all are, by the first of them."""
    each = {name: answer.alike(rack.nodes[name]) for name, answer in heard.items()}
    held = {name: values[about] for name, values in each.items() if about in values}
    if about == "BIOS":
        held = {name: value for name, value in held.items() if rack.nodes[name].vendor == node.vendor}
    difference = odd(node.name, about, held)
    assert difference is None, difference
