"""Verify that the nodes are the declared machines, and equal to each other: each is asked once, all are compared."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.model import Node, Rack, mebibytes
from core.probes.protocol import UnknownError
from core.ssh.client import NodeConnections
from core.ssh.root_shell import UnreachableError
from core.verify.plugin import AskOnce
from core.verify.reporter import CheckReporter
from roles.preflight import desired, dmi
from roles.preflight.fleet_comparison import outlier, skew
from roles.preflight.options import PreflightOptions
from roles.preflight.verify_probe import ALIKE, ESRT, VerifyFacts, read_facts, script

Fleet = Mapping[str, VerifyFacts | str]
"""The answer of each node, or why it has none."""


@pytest.fixture(scope="session")
def fleet(rack: Rack, machines: NodeConnections, excluded: frozenset[str], ask_once: AskOnce) -> Fleet:
    """All nodes of the rack, asked in parallel, by one session: only a comparison shows the differing node."""
    names = [name for name in rack.nodes if name not in excluded]

    def ask(node: Node) -> VerifyFacts | str:
        slots = desired.slots(rack, node)
        asked = time.time()
        try:
            done = machines[node.name].run(script(slots, slots.values(), rack.images))
        except UnreachableError as error:
            return error.why
        return read_facts(done.stdout, asked, time.time()) if done.rc == 0 else done.stderr.strip() or f"exit {done.rc}"

    def ask_all() -> Fleet:
        for name in names:
            _ = machines[name]  # created here, one after the other; asked in parallel
        with ThreadPoolExecutor(len(names)) as pool:
            return dict(zip(names, pool.map(ask, (rack.nodes[name] for name in names)), strict=True))

    return ask_once("preflight", ask_all)


@pytest.fixture
def facts(fleet: Fleet, node: Node) -> VerifyFacts:
    """Return the answer of this node."""
    found = fleet[node.name]
    if not isinstance(found, VerifyFacts):
        raise UnknownError(f"{node.name}: cannot be asked: {found}")
    return found


@pytest.fixture(scope="session")
def heard(fleet: Fleet) -> Mapping[str, VerifyFacts]:
    """Return the nodes that answered."""
    return {name: answer for name, answer in fleet.items() if isinstance(answer, VerifyFacts)}


def test_system(node: Node, facts: VerifyFacts) -> None:
    """The system is DGX OS 7, or its stand-in, on a GB10's architecture."""
    name, _, release = facts.one("system").partition(" ")
    assert desired.SYSTEMS.get(name) == release, f"{node.name}: OS is {name} {release}, wanted ubuntu 24.04"
    machine = facts.one("machine")
    assert machine == desired.MACHINE, f"{node.name}: architecture is {machine}, wanted {desired.MACHINE}"


def test_vendor(node: Node, facts: VerifyFacts) -> None:
    """The machine is of the vendor in rack.yaml, or of any that is known."""
    makers = facts.one("maker"), facts.one("board")
    made = dmi.vendor_of(*makers)
    wanted = node.vendor or "a known maker of a GB10"
    assert made == facts.maker(node) is not None, (
        f"{node.name}: vendor is {made or ' / '.join(makers)}, wanted {wanted}"
    )


def test_bios(node: Node, facts: VerifyFacts, rack: Rack) -> None:
    """The BIOS is not below the floor of its vendor."""
    floor = desired.bios_floor(rack, facts.maker(node))
    if floor is None:
        pytest.skip("rack.yaml has no floor for every vendor's BIOS")
    assert not dmi.older(facts.one("bios"), floor), (
        f"{node.name}: BIOS is {facts.one('bios') or 'unknown'}, wanted at least {floor}"
    )


def test_room(node: Node, facts: VerifyFacts, rack: Rack) -> None:
    """Enough on / and where docker keeps images."""
    options = rack.options(PreflightOptions)
    wanted = mebibytes(options.disk_free) * 1024**2
    assert "/" in facts.room, f"{node.name}: the free space on / is unknown"
    short = [f"{place} {free / 1024**3:.1f}G" for place, free in facts.room.items() if free < wanted]
    assert not short, f"{node.name}: free on {', '.join(short)}, wanted {options.disk_free}"


def test_clock(node: Node, facts: VerifyFacts, heard: Mapping[str, VerifyFacts], rack: Rack) -> None:
    """Near the median of the fleet; that of a node alone near the one here."""
    assert facts.one("clock"), f"{node.name}: its clock is unknown"
    off = skew(node.name, {name: other.clock for name, other in heard.items()})
    most = rack.options(PreflightOptions).clock_skew
    assert abs(off) <= most, f"{node.name}: clock is off by {off:+.1f} s, wanted at most {most} s"


def test_links(node: Node, facts: VerifyFacts, rack: Rack, report: CheckReporter) -> None:
    """PCIe Gen5 with four lanes behind each half of each cabled port."""
    faults = []
    for slot, name in desired.slots(rack, node).items():
        link = facts.links.get(slot)
        if link is None:
            faults.append(f"{node.name}: PCIe function {slot} ({name}) is missing")
        elif (link.speed, link.width) != (desired.SPEED, desired.WIDTH):
            faults.append(
                f"{node.name}: {slot} ({name}) runs at {link.speed} {link.width}, "
                f"wanted {desired.SPEED} {desired.WIDTH}"
            )
    report.judge(faults)


def test_handover(node: Node, facts: VerifyFacts) -> None:
    """`kho=off` where the kernel needs it."""
    number = dmi.kernel_number(facts.one("kernel"))
    assert number, f"{node.name}: kernel is {facts.one('kernel') or 'unknown'}"
    off = desired.KHO in facts.one("cmdline").split()
    assert off or number < desired.KHO_SINCE, f"{node.name}: kernel {facts.one('kernel')} runs without {desired.KHO}"


def test_driver_can_do_roce(node: Node, facts: VerifyFacts, rack: Rack) -> None:
    """NVIDIA's driver where a switch is declared roce."""
    legs = {port: rack.cabling.leg_of(port) for port in rack.cabling.ports_of(node.name)}
    roce = [port for port, leg in legs.items() if leg and rack.switches[leg.switch].lossless == "roce"]
    without = [
        half.interface for port in roce for half in port.halves if half.interface not in facts.reported.get("ecn", [])
    ]
    assert not without, f"{node.name}: {', '.join(without)} cannot do roce, which its switch is declared"


def test_identity_is_its_own(node: Node, facts: VerifyFacts, heard: Mapping[str, VerifyFacts]) -> None:
    """No other node has one of its host keys, or its machine-id."""
    others = {name: other for name, other in heard.items() if name != node.name}
    for question in ("machine-id", "hostkey"):
        own = {answer for answer in facts.reported.get(question, []) if answer}
        assert own, f"{node.name}: its {question} is unknown"
        twins = [name for name, other in others.items() if own & set(other.reported.get(question, []))]
        assert not twins, f"{node.name}: {question} is the same as on {', '.join(twins)}"


@pytest.mark.parametrize("about", ALIKE)
@pytest.mark.usefixtures("facts")
def test_like_the_others(node: Node, heard: Mapping[str, VerifyFacts], rack: Rack, about: str) -> None:
    """The odd one is named; where no value has a majority, all are, by the first of them."""
    each = {name: answer.alike(rack.nodes[name]) for name, answer in heard.items()}
    held = {name: values[about] for name, values in each.items() if about in values}
    if about in ("BIOS", ESRT):
        held = {
            name: value
            for name, value in held.items()
            if heard[name].maker(rack.nodes[name]) == heard[node.name].maker(node)
        }
    difference = outlier(node.name, about, held)
    assert difference is None, difference
