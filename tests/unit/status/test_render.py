"""The screen: what stands in docs/status.md, how wide it is, and that nothing of a machine moves the cursor."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from core.model import Rack
from core.model.selection import ROLES
from core.ops import run_lock
from core.ops.run_lock import Holder
from core.util.event import EventKind
from sparkrack.drift import findings, history
from sparkrack.engine.journal import RunFinished, RunJournal, RunStarted
from sparkrack.status.drills import DrillLevel, DrillResult, store_drill
from sparkrack.status.model import Status
from sparkrack.status.render import DRIFT as KINDS
from sparkrack.status.render import WIDTH, show, span
from tests.generated import check
from tests.unit.model.racks import RING
from tests.unit.status.machines import NOW, REFERENCE, SWAPS, Machines, ethtool, held, machines, reference
from tests.unit.status.test_history import DRIFT, kept

HOLDER = Holder("20261122T092800-1a2b", "ann@laptop", "2026-11-22T09:28:00+00:00", "spark1, spark2: docker")


BEATING = replace(HOLDER, beat=run_lock.BEAT)
OTHER = Holder("20261122T092900-ffff", "bob@desk", "2026-11-22T09:29:00+00:00", "spark3")


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    return reference(tmp_path_factory.mktemp("rack"))


def screen(status: Status, quiet: bool = False, width: int = WIDTH) -> str:
    paper = io.StringIO()
    show(status, Console(file=paper, width=width, highlight=False, markup=False), quiet=quiet)
    return "".join(f"{line.rstrip()}\n" for line in paper.getvalue().splitlines())


def state(folder: Path, drift: bool = True, result: str | None = "done") -> Path:
    if drift:
        kept(folder, "drift", "20261122T080000.000Z.json", json.dumps(DRIFT))
    began = {"schema": "sparkrack.journal/1", "who": "ann@laptop", "what": "spark1, spark2: docker"}
    line = {"at": "2026-11-22T09:28:00.000+00:00", "event": "began", **began}
    ended = {"at": "2026-11-22T09:29:00.000+00:00", "event": "run_finished", "result": result}
    lines = [line, ended] if result else [line]
    kept(folder, "runs", f"{HOLDER.id}.ndjson", "".join(f"{json.dumps(one)}\n" for one in lines))
    return folder


def troubled(rack: Rack) -> Machines:
    """A rack on a bad day."""
    made = machines(rack)
    made.nodes["spark1"]["lock"] = held(HOLDER)
    made.nodes["spark2"]["reboot"] = (0, ["held", "linux-image-6.17.0-1021-nvidia"])
    made.nodes["spark3"]["enp1s0f1np1"] = (0, ethtool("50000Mb/s"))
    made.nodes["spark3"]["enP2p1s0f1np1"] = (0, ethtool("Unknown!", "no"))
    made.nodes["spark4"]["swap"] = (0, [SWAPS, "/swap.img file 8388604 0 -2"])
    made.nodes["spark5"]["driver"] = (124, [])
    made.silent["spark6"] = "cannot be reached: ssh: connect to host 10.77.0.16 port 22: Connection timed out"
    made.nodes["spark7"]["kernel"] = (0, ["6.11.0-1016-nvidia"])
    made.nodes["spark8"]["images"] = (0, [])
    made.links["qsfp56-dd-1-5"] = {"status": "link-ok", "rate": "50Gbps", "fec": "fec91"}
    made.health = [{"name": "cpu-temperature", "value": "47"}, {"name": "psu2-state", "value": "fail"}]
    return made


def test_the_document_shows_what_is_printed(rack: Rack, tmp_path: Path) -> None:
    fine = screen(machines(rack).status(state(tmp_path / "fine", drift=False)))
    check("docs/status.md", "status-fine", fine)
    status = troubled(rack).status(state(tmp_path / "bad", result=None))
    check("docs/status.md", "status-troubled", screen(status))
    check("docs/status.md", "status-quiet", screen(status, quiet=True))
    assert status.code == 1


@pytest.mark.parametrize("make", [machines, troubled])
def test_it_fits(make: Callable[[Rack], Machines], rack: Rack) -> None:
    table = screen(make(rack).status()).partition("\n\n")[0].splitlines()
    assert len(table) == 9
    assert max(map(len, table)) <= WIDTH
    assert all(line.startswith("spark") for line in table[1:])


def test_four_halves_fit_as_well(tmp_path: Path) -> None:
    made = machines(reference(tmp_path, RING))
    table = screen(made.status()).partition("\n\n")[0].splitlines()
    assert [line.split()[7:9] for line in table[1:]] == [["200/200", "200/200"]] * 3
    made.nodes["spark1"]["enP2p1s0f0np0"] = (0, ethtool("Unknown!", "no"))
    made.nodes["spark1"]["enp1s0f1np1"] = (127, [])
    table = screen(made.status()).partition("\n\n")[0].splitlines()
    assert table[1].split()[7:9] == ["200/down!", "?/200"]
    assert len(table) == 4
    assert max(map(len, table)) <= WIDTH


def row(status: Status, name: str) -> list[str]:
    (line,) = (line for line in screen(status).splitlines() if line.startswith(f"{name} "))
    return line.split()


def test_rows_of_which_nothing_is_known(rack: Rack) -> None:
    made = machines(rack)
    made.silent = {"spark2": "gone", "crs812": "gone"}
    assert row(made.status(), "spark2") == ["spark2", *"?" * 9]
    assert row(made.status(), "crs812") == ["crs812", *"?" * 5]


def test_legs(rack: Rack) -> None:
    made = machines(rack)
    made.links.pop("qsfp56-dd-1-3")
    assert row(made.status(), "crs812")[-3:] == ["7?/8", "52", "C"]
    made.links["qsfp56-dd-1-1"]["status"] = "no-link"
    assert row(made.status(), "crs812")[-3:] == ["6?/8!", "52", "C"]


def test_what_many_have_in_common_is_said_once(rack: Rack) -> None:
    made = machines(rack)
    for name in rack.nodes:
        made.nodes[name] |= {"kernel": (0, ["6.11"]), "images": (1, []), "reboot": (0, ["held"])}
    names = ", ".join(rack.nodes)
    assert screen(made.status(), quiet=True).splitlines() == [
        f"{names}: kernel 6.11 runs, wanted 6.17.0-1021-nvidia",
        f"{names}: unknown: docker: ends with exit 1",
        "9 machines: 9 reachable, 8 not as declared, 8 unknown",
    ]
    assert f"{names}: note: a reboot is required, a package asked for it\n" in screen(made.status())


def test_a_narrow_terminal_loses_no_node(rack: Rack) -> None:
    text = screen(troubled(rack).status(), width=60)
    assert all(f"spark{number}: " in text for number in (2, 3, 4, 5, 6, 7, 8))


def test_no_colours_and_nothing_hostile(rack: Rack, tmp_path: Path) -> None:
    evil = "\x1b[2J\x07[red]\r\n\x9b31m"
    made = machines(rack)
    made.nodes["spark1"]["lock"] = held(Holder("1", evil, evil, evil))
    made.nodes["spark2"]["reboot"] = (0, ["held", evil])
    for question in ("kernel", "driver", "swap", "containers", "enp1s0f1np1"):
        made.nodes["spark3"][question] = (0, [evil])
    made.nodes["spark4"]["swap"] = (0, [SWAPS, f"{evil} file 1 0 -2"])
    made.silent["spark5"] = evil
    made.resource["version"] = made.identity["name"] = made.links["qsfp56-dd-1-5"]["rate"] = evil
    made.health = [{"name": f"{evil}-state", "value": evil}]
    kept(tmp_path, "drift", "20261122T080000.000Z.json", json.dumps(DRIFT).replace("spark2", json.dumps(evil)[1:-1]))
    kept(tmp_path, "runs", f"{evil.replace('/', '')}.ndjson", "{}\n")
    text = screen(made.status(tmp_path))
    assert all(line.isprintable() for line in text.splitlines())
    assert "[red]" in text
    made.status(tmp_path).json_text().encode()


def as_declared(_made: Machines) -> None:
    pass


LAST: dict[str, tuple[Callable[[Machines], object], str | None, str]] = {
    "the lock": (lambda made: made.nodes["spark1"].update(lock=(1, [])), None, "run lock: ?"),
    "free": (as_declared, None, "run lock: free"),
    "done": (as_declared, "done", "docker): done"),
    "failed": (as_declared, "failed", "docker): failed"),
    "cut off": (as_declared, None, "docker): was interrupted"),
    "goes on": (
        lambda made: made.nodes["spark1"].update(lock=held(HOLDER)),
        None,
        "last run: 20261122T092800-1a2b of ann@laptop, 2m ago (spark1, spark2: docker): in progress",
    ),
    "a heartbeat": (
        lambda made: made.nodes["spark1"].update(lock=held(BEATING, run_lock.EXPIRED)),
        None,
        "run lock: run 20261122T092800-1a2b of ann@laptop, since",
    ),
    "expired": (
        lambda made: made.nodes["spark1"].update(lock=held(BEATING, 4000)),
        None,
        f", last heartbeat 1h 6m ago; the next run that changes the rack ends it, or: sparkrack unlock {HOLDER.id}",
    ),
    "expired is said first": (
        lambda made: made.nodes["spark1"].update(lock=held(BEATING, 4000)),
        None,
        "run lock: expired: run 20261122T092800-1a2b of ann@laptop, since 2026-11-22T09:28:00+00:00 (",
    ),
    "expired does not go on": (
        lambda made: made.nodes["spark1"].update(lock=held(BEATING, 4000)),
        None,
        "last run: 20261122T092800-1a2b of ann@laptop, 2m ago (spark1, spark2: docker): was interrupted",
    ),
    "another goes on": (lambda made: made.nodes["spark1"].update(lock=held(OTHER)), None, "docker): was interrupted"),
    "drift": (
        as_declared,
        None,
        "last run 1h 30m ago (2 machines, memory, docker only): 2 declared, 1 broken, not all known (spark2)",
    ),
}


@pytest.mark.parametrize("case", LAST)
def test_what_was_before(case: str, rack: Rack, tmp_path: Path) -> None:
    change, result, text = LAST[case]
    made = machines(rack)
    change(made)
    assert text in screen(made.status(state(tmp_path, result=result)))


def looked(name: str, *kinds: str, reported: bool = True, roles: Iterable[str] = ROLES) -> dict[str, object]:
    """What a look says of a machine."""
    found = [{"role": role, "findings": [{"kind": kind} for kind in kinds]} for role in roles]
    return {"name": name, "told": reported, "roles": [one | {"findings": []} for one in found[:-1]] + found[-1:]}


@pytest.mark.parametrize(
    ("machines_", "text"),
    [
        ([looked("spark1")], "(1 machine): in sync"),
        ([looked("spark1", "unmanaged")], "(1 machine): in sync"),
        ([looked("spark1", "outlier", "outlier"), looked("spark2", "broken")], "(2 machines): 1 broken, 2 outlier"),
        ([looked("spark1", reported=False)], "(1 machine): not all known (spark1)"),
        ([looked("spark1", reported=False, roles=())], "(1 machine): not all known (spark1)"),
        ([looked("spark1", roles=("preflight", "fabric"))], "(1 machine, preflight, fabric only): in sync"),
        ([looked("spark1", roles=set(ROLES) - {"switch"})], "(1 machine): in sync"),
    ],
)
def test_the_last_look(machines_: list[object], text: str, rack: Rack, tmp_path: Path) -> None:
    kept(tmp_path, "drift", "20261122T080000.000Z.json", json.dumps({**DRIFT, "machines": machines_}))
    status = machines(rack).status(tmp_path)
    assert f"drift: last run 1h 30m ago {text}\n" in screen(status)
    assert status.code == 0, "what was found before is not a fault that is there now"


def test_the_last_drill(rack: Rack, tmp_path: Path) -> None:
    assert "last drill" not in screen(machines(rack).status(tmp_path)), "rack.yaml declares no blackbox"
    for days, level, passed in ((30, DrillLevel.PANIC, True), (12, DrillLevel.FREEZE, False)):
        made = NOW - timedelta(days=days)
        drill = DrillResult(run="x", rack="two", node="spark2", level=level, made=made, passed=passed, reason="r")
        store_drill(tmp_path, drill)
    status = machines(rack).status(tmp_path)
    assert "last drill: freeze of spark2, 12d 0h ago: failed\n" in screen(status)
    assert status.code == 0, "what was found before is not a fault that is there now"
    kept(tmp_path, "drills", "20261122T080000-spark1-mark.json", "{")
    status = machines(rack).status(tmp_path)
    assert "is not what sparkrack has kept" in screen(status)
    assert status.code == 1


def test_a_rack_with_a_black_box_that_was_never_drilled(tmp_path: Path) -> None:
    rack = reference(tmp_path, f"{REFERENCE}\nblackbox: {{}}\n")
    assert "\nlast drill: none yet\n" in screen(machines(rack).status(tmp_path / "state"))


@pytest.mark.parametrize(
    ("folder", "line", "other"),
    [("drift", "drift: ?", "last run: none"), ("runs", "last run: ?", "drift: no run yet")],
)
def test_a_history_that_is_unknown(folder: str, line: str, other: str, rack: Rack, tmp_path: Path) -> None:
    kept(tmp_path, folder, "20261122T080000.json" if folder == "drift" else "20261122T080000.ndjson", "{")
    status = machines(rack).status(tmp_path)
    text = screen(status)
    assert f"\n{line}\n" in text
    assert f"\n{other}\n" in text
    assert "is not what sparkrack has kept" in screen(status, quiet=True)
    assert status.code == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h 0m"), (86399, "23h 59m")),
        *((86400, "1d 0h"), (8640000, "100d 0h")),
    ],
)
def test_spans(seconds: int, text: str) -> None:
    assert span(seconds) == text


def test_a_real_journal_is_understood(rack: Rack, tmp_path: Path) -> None:
    journal = RunJournal(tmp_path / "runs", "20261122T092800-1a2b")
    journal.write(RunStarted(run=journal.run, operator="ann@laptop", scope="spark1", file="f", revision="", plan=""))
    journal.write(RunFinished(run=journal.run, result="stopped", failed=(), in_progress={}))
    journal.close()
    assert "(spark1): stopped\n" in screen(machines(rack).status(tmp_path))


def test_a_real_look_is_understood(rack: Rack, tmp_path: Path) -> None:
    """What `sparkrack drift` keeps, by its own model."""
    finding = findings.DriftFinding(kind=findings.FindingKind.BROKEN, event_kind=EventKind.BROKEN, message="no carrier")
    machine = findings.Comparison(
        name="spark1", kind="node", complete=True, roles=(findings.RolesChecked(role="fabric", findings=(finding,)),)
    )
    made = findings.Drift(rack="spark8", file="f", revision="", made=NOW - timedelta(minutes=5), hosts=(machine,))
    kept(tmp_path, "drift", f"{history.name(made)}.json", made.model_dump_json(by_alias=True))
    assert "drift: last run 5m ago (1 machine, fabric only): 1 broken\n" in screen(machines(rack).status(tmp_path))
    assert findings.DRIFT == KINDS
