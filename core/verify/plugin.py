"""The pytest plugin of verify: passes the rack to the tests and collects their outcomes."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from core.model import Address, Leg, Node, Rack, Switch, reachable
from core.probes.protocol import UnknownError
from core.ssh.client import Machine, NodeConnections
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import COMMAND_SECONDS
from core.verify.fabric_use import FabricUse
from core.verify.measurements import Bandwidth, parse_measurement
from core.verify.outcomes import Outcome, first_line
from core.verify.reporter import ENDED, FAULT, MEASURED, NOTE, UNKNOWN, CheckReporter, properties_named

Answers = TypeVar("Answers")
WatchForwarding = Callable[[Rack, Sequence[Leg]], Callable[[], bool | None]]
"""Begins to watch the counters of the switches at some legs. What it returns ends that, and returns whether the CPU of
a switch forwarded the frames that came in there; None when that is not known.
"""


def unwatched(_rack: Rack, _legs: Sequence[Leg]) -> Callable[[], bool | None]:
    """Watch no counters."""
    return lambda: None


_FINDINGS = (AssertionError, pytest.fail.Exception, pytest.skip.Exception)
"""Exceptions by which a check reports a difference. Any other exception ended it without a result."""


class AskOnce:
    """What is asked of several hosts, and is the same for every session: asked by the first session that wants it."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: keeps the answers; without one nothing is shared."""
        self._folder = folder

    def __call__(self, name: str, ask: Callable[[], Answers]) -> Answers:
        """Return what `ask` returned, here or in another session. An exception of it is not kept."""
        if self._folder is None:
            return ask()
        file = self._folder / name
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if file.exists():
                answers: Answers = pickle.loads(file.read_bytes())  # noqa: S301 - written below, in a private folder
                return answers
            answers = ask()
            file.write_bytes(pickle.dumps(answers))
            return answers


class VerifyPlugin:
    """One verification of one rack.

    A test that takes `node`, `address`, `pair`, `switch` or `leg` runs once for each of the rack's; its argument
    determines the host of its outcome.
    """

    def __init__(
        self,
        rack: Rack,
        nodes: frozenset[str],
        switches: frozenset[str],
        bandwidth: bool = False,
        excluded: frozenset[str] = frozenset(),
        step: Callable[[str, int, int], None] = lambda *_: None,
        folder: Path | None = None,
        watch_forwarding: WatchForwarding = unwatched,
    ) -> None:
        """`nodes` and `switches`: the hosts that the verification is limited to. `bandwidth`: may fill the fabric.
        `excluded`: hosts that are not contacted at all. `step`: called before each check with its role, its number
        and the number of all. `folder`: private, of all sessions of this verification. `watch_forwarding`: watches
        counters of switches.
        """
        self._watch_forwarding = watch_forwarding
        self._folder = folder
        self._fabric = FabricUse(folder)
        self._step = step
        self._total = self._begun = 0
        self.rack_ = rack
        self._bandwidth = bandwidth
        self._excluded = excluded
        self.outcomes: list[Outcome] = []
        self._reasons: dict[tuple[str, str], str] = {}
        self._nodes = nodes
        self._switches = switches

    @pytest.fixture(scope="session")
    def rack(self) -> Rack:
        """The rack that is verified."""
        return self.rack_

    @pytest.fixture(scope="session")
    def bandwidth(self) -> bool:
        """Whether this verification may fill the fabric to measure its bandwidth."""
        return self._bandwidth

    @pytest.fixture(scope="session")
    def watch_forwarding(self) -> WatchForwarding:
        """Watches the counters of switches while something is measured."""
        return self._watch_forwarding

    @pytest.fixture(scope="session")
    def limited(self) -> frozenset[str]:
        """The nodes that this verification is limited to."""
        return self._nodes

    @pytest.fixture(scope="session")
    def excluded(self) -> frozenset[str]:
        """The hosts that this verification does not contact, not even as a neighbour of another host."""
        return self._excluded

    @pytest.fixture(scope="session")
    def ask_once(self) -> AskOnce:
        """Returns the answers that all sessions of this verification share: the first one asks, the others wait."""
        return AskOnce(self._folder)

    @pytest.fixture(scope="session")
    def fabric_use(self) -> FabricUse:
        """Who measures over the fabric now, and what the sessions of this verification have measured."""
        return self._fabric

    @pytest.fixture(scope="session")
    def machines(self) -> Iterator[NodeConnections]:
        """The nodes, by name."""
        with open_shells(self.rack_, self.rack_.nodes, COMMAND_SECONDS) as shells:
            yield NodeConnections(shells)

    @pytest.fixture
    def machine(self, machines: NodeConnections, request: pytest.FixtureRequest) -> Machine:
        """The node that this test is about."""
        return machines[_machine_of(request.node)]

    @pytest.fixture
    def report(self, request: pytest.FixtureRequest) -> CheckReporter:
        """Reporter of this test for more than one result."""
        return CheckReporter(request.node.user_properties)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Omit the arguments of functions from tracebacks, since they may contain a secret. A JUnit report has
        tracebacks, and nothing else has.
        """
        config.option.tbstyle = "short" if config.option.xmlpath else "line"

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every part of the rack that its arguments need."""
        for name, values in self._list_parameters().items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, list(values.values()), ids=list(values), scope="session")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note on each test what it is about; the order is by role, then by machine."""
        items[:] = [item for item in items if _machine_of(item)]  # the rack may lack the subject of a test
        for item in items:
            item.user_properties.append(("machine", _machine_of(item)))
            item.user_properties.append(("role", item.path.parent.name))
        self._total = len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Report which check begins."""
        self._begun += 1
        self._step(item.path.parent.name, self._begun, self._total)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Keep why a check did not pass. Mark one that ended without a result; the mark stands in a JUnit report,
        too."""
        if call.excinfo:
            # Of an exception that no check raises on purpose the name is half of the reason.
            known = call.excinfo.errisinstance((*_FINDINGS, UnknownError))
            text = str(call.excinfo.value) if known else call.excinfo.exconly()
            self._reasons[item.nodeid, call.when] = first_line(text)
        if call.excinfo and not call.excinfo.errisinstance(_FINDINGS):
            item.user_properties.append((ENDED, call.excinfo.typename))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of a test, one for each problem it reported; an error in its setup is a failure too."""
        if report.when != "call" and not report.failed and not report.skipped:
            return
        properties = {str(name): str(value) for name, value in report.user_properties}
        where = (properties["machine"], properties["role"], report.nodeid)
        if report.skipped:
            self.outcomes.append(Outcome(*where, passed=False, why=self._outcome_reason(report), skipped=True))
            return
        first, *more = self._list_failures(report) if report.failed else [("", False)]
        measured = (
            tuple(map(parse_measurement, properties_named(report.user_properties, MEASURED)))
            if report.when == "call"
            else ()
        )
        for value in measured:
            if isinstance(value, Bandwidth):
                self._fabric.record(value)
        self.outcomes.append(
            Outcome(
                *where,
                passed=report.passed,
                why=first[0],
                notes=properties_named(report.user_properties, NOTE),
                unknown=first[1],
                measured=measured,
            )
        )
        self.outcomes.extend(Outcome(*where, passed=False, why=why, unknown=unknown) for why, unknown in more)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a test file that cannot be read as a failure, since it verifies nothing."""
        if report.failed:
            why = first_line(report.longreprtext)
            self.outcomes.append(Outcome("-", "-", report.nodeid, passed=False, why=why, unknown=True))

    def _outcome_reason(self, report: pytest.TestReport) -> str:
        """Why a check did not pass, by how it ended."""
        # A mark skips without an exception of ours; its report has place and reason.
        skipped = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longreprtext
        return self._reasons.get((report.nodeid, report.when)) or first_line(str(skipped))

    def _list_failures(self, report: pytest.TestReport) -> list[tuple[str, bool]]:
        """Why a check did not pass, and whether that is only not known: what it reported, or else how it ended."""
        faults = properties_named(report.user_properties, FAULT)
        dark = properties_named(report.user_properties, UNKNOWN)
        if report.when == "call" and (faults or dark):
            return [*((text, False) for text in faults), *((text, True) for text in dark)]
        return [(self._outcome_reason(report), bool(properties_named(report.user_properties, ENDED)))]

    def _list_parameters(self) -> dict[str, dict[str, object]]:
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


def _machine_of(item: pytest.Item) -> str:
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
