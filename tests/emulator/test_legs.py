"""A leg that is set as declared and does not link so, as the switch tells it: a fault for plan and drift, no change for
a run; and what is unknown is never in sync."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyinfra
import pytest

from core.model import load
from core.model.selection import select
from core.routeros.api import ApiSession
from sparkrack.drift.findings import Drift, drift_of
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.session import RunSession as Run
from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.emulator.switch_runs import SET, Workdir
from tests.emulator.test_switch_api import open_session
from tests.emulator.verify_fixtures import LEGS
from tests.emulator.wait import until
from tests.unit.cli.runs import Ended, forked

MONITOR = "/interface/ethernet/monitor"
PLACE = "leg crs812/qsfp56-dd-1-3 (cage qsfp56-dd-1, lanes 3-4, to spark2 port 1)"
NEXT = (
    "set as declared (100G-baseCR2, FEC fec91), so look at the cable and its other end "
    "(docs/runbooks/switch-verdicts.md)"
)
PULLED = f"{PLACE}: has no link, the switch reports no-link; {NEXT}"
ADMIN = ("unmanaged", "/user admin")
Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    """A switch that one run brought to its declared state."""
    folder = tmp_path_factory.mktemp("desk")
    emulator = Crs812Process(folder / "switch").start()
    try:
        workdir = Workdir(folder, emulator)
        ended = workdir.run("-y")
        assert ended.code == 0, ended.text
        yield workdir
    finally:
        stop_all([emulator])


@pytest.fixture
def workdir(deployed: Workdir) -> Iterator[Workdir]:
    """The same for every test, whatever the one before broke; and none of them writes."""
    writes = deployed.emulator.writes()
    yield deployed
    assert deployed.emulator.writes() == writes
    deployed.emulator.control({"op": "heal"})
    mend(deployed)


def pull(workdir: Workdir, cage: str, lane: int) -> None:
    workdir.emulator.control({"op": "cable", "do": "pull", "cage": cage, "lane": lane})
    until(lambda: workdir.emulator.links()[f"{cage}-{lane}"] == "no-link")
    until(lambda: "initializing" not in workdir.emulator.links().values())


def mend(workdir: Workdir) -> None:
    links = workdir.emulator.links()
    for cage, _, lane in (leg.rpartition("-") for leg in LEGS if links[leg] != "link-ok"):
        workdir.emulator.control({"op": "cable", "do": "plug", "cage": cage, "lane": int(lane)})
    until(lambda: all(status == "link-ok" for leg, status in workdir.emulator.links().items() if leg in LEGS))


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[Workdir], Drift]:
    """What `sparkrack drift --limit crs812` finds, without a process for each look."""
    monkeypatch.setattr(pyinfra, "is_cli", True)  # as sparkrack.engine.gevent_patch has it

    def looked(workdir: Workdir) -> Drift:
        file = workdir.folder / "rack.yaml"
        monkeypatch.setenv("CRS812_PASSWORD", workdir.emulator.password)
        monkeypatch.setenv("RACK", str(file))
        rack = load(file)
        run = Run(rack, file, select(rack, limit=["crs812"]))
        try:
            run.connect()
            run.prepare()
            return drift_of(evaluate(run, file))
        finally:
            run.close()

    return looked


Look = Callable[[Workdir], Drift]


def found(drift: Drift) -> list[tuple[str, str]]:
    (machine,) = drift.hosts
    return [(finding.kind, finding.message) for looked in machine.roles for finding in looked.findings]


def sparkrack(workdir: Workdir, verb: str, *words: str) -> Ended:
    """One of our commands, about the switch alone."""
    arguments: list[str | Path] = [verb, "--rack", workdir.folder / "rack.yaml", "--limit", "crs812", *words]
    state = str(workdir.folder / "state")
    ended = forked("sparkrack", *arguments, CRS812_PASSWORD=workdir.emulator.password, XDG_STATE_HOME=state)
    assert "Traceback" not in ended.text
    return ended


def test_a_switch_whose_legs_are_up(workdir: Workdir, look: Look) -> None:
    """Each menu is read once, all legs with one sentence more, their counters of frames before and after."""
    before, sentences = workdir.emulator.stats()["reads"], len(workdir.sent(MONITOR))
    drift = look(workdir)
    after = workdir.emulator.stats()["reads"]
    assert (drift.code, found(drift)) == (0, [ADMIN])
    assert sum(after.values()) - sum(before.values()) == 21
    assert len(workdir.sent(MONITOR)) == sentences + 1


def test_a_cable_that_is_pulled_is_drift_and_no_change(workdir: Workdir) -> None:
    pull(workdir, "qsfp56-dd-1", 3)
    drift = sparkrack(workdir, "drift", "--json")
    assert drift.code == 2, drift.text
    (machine,) = json.loads(drift.stdout)["hosts"]
    (looked,) = machine["roles"]
    assert looked["role"] == "switch"
    assert [(one["kind"], one["event_kind"], one["message"]) for one in looked["findings"]] == [
        ("broken", "broken", PULLED),
        (ADMIN[0], "unmanaged", ADMIN[1]),
    ]
    assert [(one["menu"], one["subject"]) for one in looked["findings"]] == [(None, None), ("/user", "admin")]
    applied = sparkrack(workdir, "apply", "-y")
    assert (applied.code, f"does not work: {PULLED}" in applied.stdout) == (0, True), applied.text
    assert "nothing to do" in applied.stdout
    plain = workdir.run("-y")
    assert (plain.code, bool(plain.lines(f"fault: {PULLED}"))) == (0, True), plain.text
    assert plain.lines("No changes")


BAD: dict[str, tuple[Mapping[str, str], str]] = {
    "garbage": ({"kind": "garbage"}, f"{MONITOR}: the session with 127.0.0.1:"),
    "empty": (
        {"kind": "ignore"},
        f"{MONITOR}: the switch does not report whether it is linked (crs812/qsfp56-dd-1-1, ",
    ),
    "no permission": ({"kind": "trap", "message": "not enough permissions (9)"}, "not enough permissions (9)"),
    "fatal": ({"kind": "fatal", "message": "bad day"}, "bad day"),
    "lost": ({"kind": "drop"}, "closed by the switch"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_monitor_that_cannot_be_read_is_unknown(workdir: Workdir, look: Look, case: str) -> None:
    fault, text = BAD[case]
    workdir.emulator.control({"op": "fault", "times": 0, "match": MONITOR, **fault})
    drift = look(workdir)
    ((kind, reported),) = found(drift)
    assert (drift.code, kind) == (1, "unknown")
    assert reported.startswith("state of the switch unknown: "), reported
    assert (text in reported, reported.endswith("; nothing was written")) == (True, True), reported


def without(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{key: value for key, value in row.items() if key not in names} for row in rows]


def second(**fields: str) -> Callable[[Rows], Rows]:
    """Another row of the leg on lane 3, which the emulator never gives: a forced leg of it has its speed or no link."""
    return lambda rows: [row | fields if row["name"] == "qsfp56-dd-1-3" else row for row in rows]


UNKNOWN = f"state of the switch unknown: {MONITOR}: the switch does not report"
ANSWERS: dict[str, tuple[Callable[[Rows], Rows], int, str, str]] = {
    "another speed": (second(rate="50Gbps"), 2, "broken", f"{PLACE}: rate 50Gbps, wanted 100Gbps; {NEXT}"),
    "another FEC": (second(fec="fec74"), 2, "broken", f"{PLACE}: fec fec74, wanted fec91; {NEXT}"),
    "rows of companions": (lambda rows: [*rows, {"name": "qsfp56-dd-1-4", "status": "no-link"}], 0, "", ""),
    "one leg is missing": (
        lambda rows: [row for row in rows if row["name"] != "qsfp56-dd-1-3"],
        *(1, "unknown", f"{UNKNOWN} whether it is linked (crs812/qsfp56-dd-1-3)"),
    ),
    "one leg is unknown": (
        second(status="unknown"),
        1,
        "unknown",
        f"{UNKNOWN} whether it is linked (crs812/qsfp56-dd-",
    ),
    "no speeds": (without("rate"), 1, "unknown", f"{UNKNOWN} its speed (crs812/qsfp56-dd-1-1, crs812/qsfp56-dd-1-3, "),
    "no FEC": (without("fec"), 1, "unknown", f"{UNKNOWN} its FEC (crs812/qsfp56-dd-1-1, crs812/qsfp56-dd-1-3, "),
    "no names": (without("name"), 1, "unknown", f"{UNKNOWN} whether it is linked (crs812/qsfp56-dd-1-1, "),
    "other fields": (lambda rows: [{"what": "is this"} for _ in rows], 1, "unknown", f"{UNKNOWN} whether it is linked"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer(workdir: Workdir, look: Look, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, code, kind, text = ANSWERS[case]
    talk = ApiSession.talk

    def talked(session: ApiSession, *words: str) -> Rows:
        rows = talk(session, *words)
        return change(rows) if words[0] == MONITOR else rows

    monkeypatch.setattr(ApiSession, "talk", talked)
    drift = look(workdir)
    findings = [finding for finding in found(drift) if finding != ADMIN]
    assert (drift.code, [one for one, _ in findings]) == (code, [kind] if kind else []), findings
    assert all(reported.startswith(text) for _, reported in findings), findings


def test_legs_that_are_to_be_changed_have_no_faults(deployed: Workdir, look: Look) -> None:
    """One leg is set to another speed by hand, so its cage is to be written; a leg of the other cage stays reported."""
    try:
        with open_session(deployed.emulator) as session:
            session.talk(SET, "=.id=*6", "=speed=50G-baseCR")
        pull(deployed, "qsfp56-dd-1", 7)
        pull(deployed, "qsfp56-dd-2", 7)
        drift = look(deployed)
        assert drift.code == 2
        broken = [text.partition(" (")[0] for kind, text in found(drift) if kind == "broken"]
        assert broken == ["leg crs812/qsfp56-dd-2-7"]
        assert [text for kind, text in found(drift) if kind == "declared"] == [
            "~ /interface/ethernet qsfp56-dd-1-3: speed 50G-baseCR -> 100G-baseCR2"
        ]
    finally:
        with open_session(deployed.emulator) as session:
            session.talk(SET, "=.id=*6", "=speed=100G-baseCR2")
        mend(deployed)


def test_a_switch_from_the_factory(tmp_path: Path, crs812: Crs812Process, look: Look) -> None:
    """Everything is to be changed, so nothing is reported of its legs, and they are not asked for."""
    fresh = Workdir(tmp_path, crs812)
    fresh.write()
    drift = look(fresh)
    assert drift.code == 2
    assert {kind for kind, _ in found(drift)} == {"declared", "unmanaged"}
    assert fresh.sent(MONITOR) == []
