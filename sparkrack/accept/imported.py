"""Tests of this program against the rack of a bundle: each is about one claim, and fails where the rack differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from core.claims.claims import CheckLook, HandLook, known_claims
from core.model import Rack
from core.model.cabling import Leg
from core.model.errors import printable_line
from core.probes.links import parse_ethtool_of_all
from core.probes.protocol import UnknownError
from core.routeros.errors import UnreadableError
from core.routeros.menus import ETHERNET
from core.util.provenance import Origin
from core.util.records import Record, Text
from roles.preflight.dmi import vendor_of
from sparkrack.accept.bundle import AcceptBundle, RecordedAnswer
from sparkrack.accept.checks import interface_names
from sparkrack.accept.collect import accept
from sparkrack.accept.replica import Replica, replica
from switch.cages import describe, fec_of, lanes_of
from switch.leg_health import LINKED, leg_state
from switch.verify_client import SwitchChecks

_NOT_REPLAYED = frozenset({"reader-policies", "console-inspect", "neighbor-interfaces"})
"""Checks of what a bundle does not hold: the emulator would answer by its own rules. What the rack showed counts."""
_BREAKOUTS = {
    "4x100G": "switch.breakout.linked",
    "2x200G": "switch.breakout.linked",
    "1x100G": "switch.breakout.1x100g",
    "4x50G": "switch.breakout.4x50g",
}

Outcome = Literal["failed", "passed", "not tested"]


class ImportTest(Record):
    """One test of one host. `test`: the code that is tested, or what is compared."""

    claim: str = Field(description="the id of the claim that the test is about")
    test: str
    host: str
    outcome: Outcome
    text: Text = Field(description="what differs, or why it is not tested; empty when it passed")


class ImportReport(Record):
    """The tests of this program against the rack of a bundle."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.accept-import/1"] = Field("sparkrack.accept-import/1", alias="schema")
    made: str = Field(description="when the bundle was made, UTC")
    versions: Text = Field(description="of the program that made it")
    signer: str = Field(description="the fingerprint of the key that signed it; empty: it is not signed")
    tests: tuple[ImportTest, ...] = Field(description="failed ones first")

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of tests by outcome."""
        return Counter(one.outcome for one in self.tests)

    @property
    def exit(self) -> int:
        """The exit code: 2 when a test failed, 1 when nothing could be tested, else 0."""
        if self.counts["failed"]:
            return 2
        return 0 if self.counts["passed"] else 1


def run_import(bundle: AcceptBundle, origin: Origin) -> ImportReport:
    """Start the rack of a bundle on this machine, and test this program against it. Raises BundleError."""
    with replica(bundle) as made:
        tests = [*_claims(bundle, made, origin), *_of_nodes(made), *_of_switches(made)]
    order = ("failed", "not tested", "passed")
    return ImportReport(
        made=bundle.manifest.made.isoformat(),
        versions=bundle.manifest.versions,
        signer=bundle.signer,
        tests=tuple(sorted(tests, key=lambda one: order.index(one.outcome))),
    )


def _test(claim: str, test: str, host: str, wrong: str, *, tested: bool = True) -> ImportTest:
    outcome: Outcome = "not tested" if not tested else "failed" if wrong else "passed"
    # A report in a bundle may name anything.
    claim, host = printable_line(claim), printable_line(host)
    return ImportTest(claim=claim, test=test, host=host, outcome=outcome, text=printable_line(wrong))


def _claims(bundle: AcceptBundle, made: Replica, origin: Origin) -> Iterator[ImportTest]:
    """Each claim as the replica shows it, and where the replica cannot show it, as the rack did."""
    replayed = [
        claim
        for claim in known_claims()
        if claim.look is not None
        and not isinstance(claim.look, HandLook)
        and not (isinstance(claim.look, CheckLook) and claim.look.check in _NOT_REPLAYED)
    ]
    hosts = [name for name in bundle.nodes if name in made.rack.nodes] + list(made.switches)
    report = accept(made.rack, hosts, replayed, origin, shells=made.shells)
    recorded = {(claim.id, host.host): host for claim in bundle.report.claims for host in claim.hosts}
    seen = set()
    for claim in report.claims:
        for host in claim.hosts:
            seen.add((claim.id, host.host))
            wrong = host.evidence if host.result != "observed" else ""
            yield _test(claim.id, "the claim", host.host, wrong, tested=host.result != "not observed")
            before = recorded.get((claim.id, host.host))
            if before and before.result != host.result:
                text = (
                    f"the rack showed {before.result} ({before.evidence}), its replica {host.result} ({host.evidence})"
                )
                yield _test(claim.id, "the replica shows what the rack showed", host.host, text)
    for (name, on), host in recorded.items():
        if (name, on) not in seen:
            wrong = host.evidence if host.result != "observed" else ""
            yield _test(name, "the claim, as the rack showed it", on, wrong, tested=host.result != "not observed")


def _of_nodes(made: Replica) -> Iterator[ImportTest]:
    for node, answers in made.nodes.items():
        for claim, (test, code) in NODE_CODE.items():
            answer = answers.get(claim)
            if answer is None or node not in made.rack.nodes:
                continue
            if answer.unknown or answer.code:
                why = answer.unknown or f"the command ended with exit {answer.code}"
                yield _test(claim, test, node, why, tested=False)
            else:
                yield _test(claim, test, node, code(made.rack, node, answer))


# claim: fabric.ethtool-speed
def _ethtool(_rack: Rack, _node: str, answer: RecordedAnswer) -> str:
    try:
        reports = parse_ethtool_of_all(answer.output)
    except ValueError as fault:
        return str(fault)
    wrong = [f"{name}: {one.speed} is no speed" for name, one in reports.items() if one.carrier and not one.mbps]
    return "; ".join(wrong)


# claim: preflight.dmi
def _dmi(rack: Rack, node: str, answer: RecordedAnswer) -> str:
    fields = dict(line.split("=", 1) for line in answer.output.splitlines() if "=" in line)
    found = vendor_of(fields.get("sys_vendor", ""), fields.get("board_vendor", ""))
    wanted = rack.nodes[node].vendor
    return "" if found == wanted else f"{answer.output.strip()}: the maker is {found or 'unknown'}, not {wanted}"


# claim: fabric.interface-names
def _interfaces(_rack: Rack, _node: str, answer: RecordedAnswer) -> str:
    absent, _ = interface_names(answer.output)
    return f"{', '.join(absent)} absent; there are {' '.join(answer.output.split())}" if absent else ""


NODE_CODE: Mapping[str, tuple[str, Callable[[Rack, str, RecordedAnswer], str]]] = {
    "fabric.ethtool-speed": ("core.probes.links", _ethtool),
    "preflight.dmi": ("roles.preflight.dmi", _dmi),
    "fabric.interface-names": ("core.hardware.gb10", _interfaces),
}
"""Code of roles, by the claim that it rests on, which is given the recorded answer; it returns what is wrong."""


def _of_switches(made: Replica) -> Iterator[ImportTest]:
    for name in made.switches:
        switch = made.rack.switches[name]
        look = SwitchChecks(made.rack, switch)
        try:
            rows = look.ask((f"{ETHERNET.path}/print", "=.proplist=default-name,running"))
            running = {row.get("default-name", "") for row in rows if row.get("running") == "true"}
            yield _test("switch.qos.menus", "core.routeros.reading", name, _reading(look))
            for cage in switch.cages:
                if running.intersection(lanes_of(cage)):
                    claim = _BREAKOUTS.get(switch.cages[cage].split, "switch.breakout.first-lane")
                    yield _test(claim, "switch.cages", name, _breakout(look, cage))
            for leg, _ in made.rack.cabling.legs(name):
                if leg.interface in running:
                    yield _test("switch.monitor.fields", "switch.leg_health", name, _leg(look, leg))
        except UnknownError as fault:
            yield _test("switch.monitor.fields", "switch.verify_client", name, fault.reason)
        finally:
            look.close()


def _reading(look: SwitchChecks) -> str:
    """Everything that a plan compares can be read."""
    try:
        _ = look.reading
    except UnknownError as fault:
        return fault.reason
    return ""


def _breakout(look: SwitchChecks, cage: str) -> str:
    """A cage that has a link is understood as the breakout that is declared."""
    rows = look.ethernet
    if any(name not in rows for name in lanes_of(cage)):
        return f"{cage}: a lane is absent"
    spec = look.switch.cages[cage]
    try:
        found = describe(cage, rows)
    except (ValueError, UnreadableError) as fault:
        found = str(fault)
    return "" if found == f"{spec.split} {spec.medium}" else f"{cage} reads as {found}, not {spec.split} {spec.medium}"


def _leg(look: SwitchChecks, leg: Leg) -> str:
    """A leg that has a link has every value that its state is evaluated by."""
    row = look.links.get(leg.interface, {})
    found = leg_state(leg, fec_of(look.switch, leg.cage), row)
    # Another rate or FEC than declared is drift of the rack, and no other form of an answer.
    wrong = found.unknown or (found.wrong if row.get("status") != LINKED else "")
    return f"{leg.interface}: {wrong}" if wrong else ""
