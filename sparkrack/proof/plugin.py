"""The pytest plugin of a proof: hands the rack to the tests and keeps what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sparkrack.fleet import Address, Node, Rack, Switch, reachable
from sparkrack.proof.found import parsed
from sparkrack.proof.machines import Machine, Machines
from sparkrack.proof.outcome import Outcome, first_line
from sparkrack.proof.told import ENDED, FAULT, MEASURED, NOTE, UNKNOWN, Told, of

_OTHERWISE = (AssertionError, pytest.fail.Exception, pytest.skip.Exception)
"""By these a check says what it found. Any other exception ended it before it could tell."""


class Proof:
    """One proof of one rack.

    A test that takes `node`, `address`, `pair`, `switch` or `leg` runs once for each of the rack's; what it is
    about decides under which machine its outcome stands.
    """

    def __init__(
        self,
        rack: Rack,
        nodes: frozenset[str],
        switches: frozenset[str],
        bandwidth: bool = False,
        excluded: frozenset[str] = frozenset(),
    ) -> None:
        """`nodes` and `switches`: the machines that the proof is limited to. `bandwidth`: may fill the fabric.
        `excluded`: machines that nothing is asked of, nor sent to."""
        self.rack_ = rack
        self._bandwidth = bandwidth
        self._excluded = excluded
        self.outcomes: list[Outcome] = []
        self._nodes = nodes
        self._switches = switches

    @pytest.fixture(scope="session")
    def rack(self) -> Rack:
        """The rack that is proven."""
        return self.rack_

    @pytest.fixture(scope="session")
    def bandwidth(self) -> bool:
        """Whether this proof may fill the fabric to measure what it carries."""
        return self._bandwidth

    @pytest.fixture(scope="session")
    def limited(self) -> frozenset[str]:
        """The nodes that this proof is limited to."""
        return self._nodes

    @pytest.fixture(scope="session")
    def excluded(self) -> frozenset[str]:
        """The machines that this proof has nothing to do with, not even as somebody's neighbour."""
        return self._excluded

    @pytest.fixture(scope="session")
    def machines(self) -> Iterator[Machines]:
        """The nodes, by name."""
        with TemporaryDirectory(prefix="sparkrack-") as folder:
            machines = Machines(self.rack_, Path(folder))
            try:
                yield machines
            finally:
                machines.close()

    @pytest.fixture
    def machine(self, machines: Machines, request: pytest.FixtureRequest) -> Machine:
        """The node that this test is about."""
        return machines[_about(request.node)]

    @pytest.fixture
    def told(self, request: pytest.FixtureRequest) -> Told:
        """Where this test tells more than one thing."""
        return Told(request.node.user_properties)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Tracebacks without the arguments of functions, which may hold a secret; they stand in a JUnit report."""
        config.option.tbstyle = "short"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every part of the rack that its arguments ask for."""
        for name, values in self._parts().items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, list(values.values()), ids=list(values), scope="session")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note on each test what it is about; the order is by role, then by machine."""
        items[:] = [item for item in items if _about(item)]  # the rack may have none of what a test is about
        for item in items:
            item.user_properties.append(("machine", _about(item)))
            item.user_properties.append(("role", item.path.parent.name))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Mark a check that ended before it could tell; the mark stands in a JUnit report, too."""
        if call.excinfo and not call.excinfo.errisinstance(_OTHERWISE):
            item.user_properties.append((ENDED, call.excinfo.typename))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test, one for each fault it told; a fault in its preparation is a failure too."""
        if report.when != "call" and not report.failed and not report.skipped:
            return
        properties = {str(name): str(value) for name, value in report.user_properties}
        where = (properties["machine"], properties["role"], report.nodeid)
        if report.skipped:
            self.outcomes.append(Outcome(*where, passed=False, why=first_line(report.longrepr), left_out=True))
            return
        first, *more = _reasons(report) if report.failed else [("", False)]
        self.outcomes.append(
            Outcome(
                *where,
                passed=report.passed,
                why=first[0],
                notes=of(report.user_properties, NOTE),
                unknown=first[1],
                measured=tuple(map(parsed, of(report.user_properties, MEASURED))) if report.when == "call" else (),
            )
        )
        self.outcomes.extend(Outcome(*where, passed=False, why=why, unknown=unknown) for why, unknown in more)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be read proves nothing, which is a failure."""
        if report.failed:
            why = first_line(report.longrepr)
            self.outcomes.append(Outcome("-", "-", report.nodeid, passed=False, why=why, unknown=True))

    def _parts(self) -> dict[str, dict[str, object]]:
        rack = self.rack_
        return {
            "node": {name: node for name, node in rack.nodes.items() if name in self._nodes},
            "address": {str(a.half): a for a in rack.addresses if a.half.node in self._nodes},
            "pair": {
                f"{here.half}->{there.half}": (here, there)
                for here, there in reachable(rack)
                if here.half.node in self._nodes and there.half.node not in self._excluded
            },
            "switch": {name: switch for name, switch in rack.switches.items() if name in self._switches},
            "leg": {
                f"{leg}-{port.node}": (leg, port)
                for switch in rack.switches
                for leg, port in rack.cabling.legs(switch)
                if port.node in self._nodes
            },
        }


def _reasons(report: pytest.TestReport) -> list[tuple[str, bool]]:
    """Why a check did not pass, and whether that is only not known: what it told, or else how it ended."""
    faults, dark = of(report.user_properties, FAULT), of(report.user_properties, UNKNOWN)
    if report.when == "call" and (faults or dark):
        return [*((text, False) for text in faults), *((text, True) for text in dark)]
    return [(first_line(report.longrepr), bool(of(report.user_properties, ENDED)))]


def _about(item: pytest.Item) -> str:
    """The machine that a test is about; empty when the rack has nothing of the kind."""
    parameters = getattr(item, "callspec").params  # noqa: B009 - pytest has it on parametrized tests, untyped
    for name, value in parameters.items():
        match name:
            case "node" | "switch" if isinstance(value, Node | Switch):
                return value.name
            case "address" if isinstance(value, Address):
                return value.half.node
            case "pair" if isinstance(value, tuple):
                return str(value[0].half.node)
            case "leg" if isinstance(value, tuple):
                return str(value[1].node)
    return ""
