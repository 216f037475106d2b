"""`sparkrack drill`: what it refuses, what it does to a node, how the result is judged and kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import load
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from sparkrack.autopsy import drill
from sparkrack.cli.main import sparkrack
from sparkrack.status.drills import DrillLevel, DrillResult, drill_paths, latest_drills, store_drill
from sparkrack.status.history import StatusHistoryError
from tests.tiers import crossed
from tests.unit.autopsy.nodes import BOOT, BOOT_ID, NEXT, Nodes, evidence
from tests.unit.autopsy.test_autopsy import PANIC, NoSwitch
from tests.unit.model.racks import SWITCH, changed
from tests.unit.roles.watch_tools import AMTOOL, silenced

FROZEN = {"time": 0.0, "source": "systemd", "text": "Freezing execution."}
CONTAINER = "/sys/fs/cgroup/sparkrack.slice/docker-" + "1" * 64 + ".scope\n"
UNIT = "/sys/fs/cgroup/system.slice/sparkrack-serve-qwen.service\n"


class Rack:
    """A rack of two nodes; spark2 (`node`) is drilled, and runs in boot BOOT."""

    node = "spark2"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.over = folder, False
        self.file = folder / "rack.yaml"
        self.file.write_text(changed(SWITCH, ("rack: two", "rack: two\nblackbox: {}")))
        (folder / "nodes").mkdir()
        self.nodes = Nodes(folder / "nodes", ("spark1", "spark2"))
        for name, value in self.nodes.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setattr("sparkrack.autopsy.collect.SwitchChecks", NoSwitch)
        monkeypatch.setattr(drill, "POLL_SECONDS", 0.05)
        self.runs("spark2")

    def runs(self, node: str) -> None:
        """Let this node run in boot BOOT, with its evidence."""
        self.nodes.write(node, "boot", f"{BOOT}\n")
        self.nodes.write(node, f"boots/{BOOT}/evidence.json", json.dumps(evidence(boot=BOOT, before=None)))

    def lock(self, node: str) -> Path:
        """The lock of the rack, which is on its head node spark1."""
        return self.folder / "nodes" / node / "run/run.lock"

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that the drill does, at most until its end."""
        until = time.monotonic() + 60
        while not (true() or self.over) and time.monotonic() < until:
            time.sleep(0.02)

    @property
    def state(self) -> Path:
        return self.folder / "state/sparkrack/two"

    @property
    def done_to_it(self) -> str:
        path = self.folder / "nodes" / self.node / "sysrq"
        return path.read_text().strip() if path.exists() else ""

    def run(self, level: str, *words: str, confirm: str | None = "spark2") -> Result:
        sure = ["--yes-really", confirm] if confirm else []
        arguments = ["drill", self.node, "--level", level, *sure, "--rack", str(self.file), "--timeout", "60", *words]
        try:
            return CliRunner().invoke(sparkrack, arguments)
        finally:
            self.over = True

    def reboots(
        self,
        *,
        collects: bool = True,
        boots: Callable[[], object] = int,
        collecting: Callable[[], object] = int,
        **found: Any,
    ) -> threading.Thread:
        """Let the node boot again after its end, with this evidence; what was in memory is gone. Called meanwhile:
        `boots`, before it answers, and `collecting`, before its evidence is there.
        """

        def boot() -> None:
            self.until(lambda: bool(self.done_to_it))
            self.lock(self.node).unlink(missing_ok=True)
            boots()
            self.nodes.write(self.node, "boot", f"{NEXT}\n")
            collecting()
            if collects:
                self.nodes.write(self.node, f"boots/{NEXT}/evidence.json", json.dumps(evidence(**found)))

        thread = threading.Thread(target=boot)
        thread.start()
        return thread

    def ends(self, level: str, **reboots: Any) -> Result:
        """Run a drill of the node, which boots again as `reboots` has it."""
        thread = self.reboots(**reboots)
        try:
            return self.run(level, confirm=self.node)
        finally:
            thread.join()


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    return Rack(tmp_path, monkeypatch)


def kept(rack: Rack) -> DrillResult:
    (result,) = latest_drills(rack.state)
    return result


def test_a_panic_with_its_record(rack: Rack) -> None:
    done = rack.ends("panic", pstore=[{"text": PANIC}])
    assert done.exit_code == 0, done.output
    assert rack.done_to_it == "c"
    assert "spark2: drill panic passed: verdict panic: the kernel panicked: sysrq triggered crash" in done.output
    result = kept(rack)
    assert (result.node, result.level, result.passed) == ("spark2", DrillLevel.PANIC, True)
    assert (result.verdict, result.confidence) == ("panic", "high")
    assert result.seconds
    assert "sparkrack-drill panic" in (rack.folder / "nodes/spark2/kmsg").read_text()
    journals = list((rack.state / "runs").glob("*.ndjson"))
    assert [json.loads(path.read_text().splitlines()[-1])["result"] for path in journals] == ["done"]


def test_a_panic_without_a_record_fails(rack: Rack) -> None:
    done = rack.ends("panic")
    assert done.exit_code == 2
    assert "drill panic failed: verdict unknown: " in done.output
    assert done.output.splitlines()[-1].endswith("wanted panic")
    assert not kept(rack).passed


def test_a_freeze_that_the_watchdog_ends(rack: Rack) -> None:
    line = {**FROZEN, "time": time.time() - 130}
    done = rack.ends("freeze", journal={"first": 1, "last": 2, "lines": [line]})
    assert done.exit_code == 0, done.output
    assert rack.done_to_it == "freeze"
    assert kept(rack).verdict == "watchdog"


def test_a_node_that_is_to_die_is_silent_until_it_is_judged(rack: Rack) -> None:
    rack.file.write_text(changed(rack.file.read_text(), ("blackbox: {}", "blackbox: {}\nwatch: {server: spark1}")))
    (rack.nodes.folder / "bin/amtool").write_text(AMTOOL)
    (rack.nodes.folder / "bin/amtool").chmod(0o755)
    assert rack.run("mark").exit_code in (0, 2)
    assert silenced(rack.nodes.folder) == []
    rack.over = False
    done = rack.ends("reset", nvme={"unsafe_shutdowns": 3}, nvme_before={"unsafe_shutdowns": 2})
    assert "alerts are not silenced" not in done.output
    made = silenced(rack.nodes.folder)
    assert made[0] == 'drill reset of spark2: node=~"spark2"'
    assert made[-1].startswith("expire id-of-a-silence")


@pytest.mark.parametrize(
    ("found", "passed"),
    [({}, True), ({"marker": {"boot": BOOT, "time": 9.0, "target": "reboot"}}, False), ({"before": "c" * 32}, False)],
)
def test_a_reset_must_not_look_like_a_shutdown(rack: Rack, found: dict[str, Any], passed: bool) -> None:
    done = rack.ends("reset", **found)
    assert rack.done_to_it == "b"
    assert (done.exit_code, kept(rack).passed) == (0 if passed else 2, passed), done.output


def test_a_node_that_does_not_come_back(rack: Rack) -> None:
    done = rack.run("reset", "--timeout", "1")
    assert done.exit_code == 2
    assert kept(rack).reason == "did not come back within 1 s"
    assert kept(rack).verdict is None


def test_the_mark_and_the_file_systems_are_written_before_the_end(rack: Rack) -> None:
    sync = rack.folder / "nodes/bin/sync"
    sync.write_text('#!/bin/sh\ncat "$NODE/logged" "$NODE/kmsg" > "$NODE/synced"\n')
    rack.ends("reset")
    folder = rack.folder / "nodes/spark2"
    mark = f"sparkrack-drill reset {kept(rack).run}"
    assert (folder / "synced").read_text().splitlines() == [mark, f"<4>{mark}"]


def test_a_node_that_collects_no_evidence(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "EVIDENCE_SECONDS", 1.0)
    done = rack.ends("reset", collects=False)
    assert done.exit_code == 2, done.output
    assert kept(rack).reason == "is back, and has collected no evidence within 1 s"
    assert kept(rack).seconds


@pytest.mark.parametrize(("level", "wanted"), [("freeze", "watchdog"), ("reset", "power or unknown")])
def test_another_verdict_than_that_of_the_level_fails(rack: Rack, level: str, wanted: str) -> None:
    done = rack.ends(level, pstore=[{"text": PANIC}])
    assert done.exit_code == 2, done.output
    assert kept(rack).reason.endswith(f"wanted {wanted}")
    journals = list((rack.state / "runs").glob("*.ndjson"))
    assert [json.loads(path.read_text().splitlines()[-1])["result"] for path in journals] == ["failed"]


OTHER = (
    json.dumps({"id": "other-1", "who": "eve@desk", "since": "2026-11-25T09:00:00+00:00", "what": "apply: all"}) + "\n"
)
"""The lock of another run. It names no beat, so it never expires."""


def test_the_head_node_takes_the_lock_along_and_it_is_taken_again(rack: Rack) -> None:
    """Before the evidence of the new boot is there: until the end no other run changes the node that is judged."""
    rack.node = "spark1"
    rack.runs("spark1")
    lock, holders = rack.lock("spark1"), []

    def collecting() -> None:
        rack.until(lock.exists)
        holders.append(json.loads(lock.read_text())["id"] if lock.exists() else None)

    done = rack.ends("reset", collecting=collecting)
    assert (done.exit_code, rack.done_to_it, kept(rack).node) == (0, "b", "spark1"), done.output
    assert holders == [kept(rack).run]
    assert not lock.exists()
    assert "lock" not in done.output


def test_another_run_takes_the_lock_while_the_head_node_restarts(rack: Rack) -> None:
    rack.node = "spark1"
    rack.runs("spark1")
    lock = rack.lock("spark1")
    done = rack.ends("reset", boots=lambda: lock.write_text(OTHER))
    assert (done.exit_code, kept(rack).passed) == (0, True), done.output
    assert lock.read_text() == OTHER
    (line,) = [line for line in done.output.splitlines() if "other-1" in line]
    assert line.startswith(
        "spark1: the lock of the rack was not taken again after the restart: the rack is locked by run "
    )
    assert line.endswith("if that run is dead: sparkrack unlock other-1")


LOST = {"another": (OTHER, "the lock is now that of run other-1"), "gone": (None, "the lock was gone")}


@pytest.mark.parametrize(("case", "level"), crossed(LOST, ("reset", "mark")))
def test_a_lock_that_is_lost_meanwhile_costs_no_result(rack: Rack, case: str, level: str) -> None:
    text, reported = LOST[case]
    lock = rack.lock("spark1")

    def lose() -> None:
        lock.unlink()
        if text:
            lock.write_text(text)

    if level == "mark":
        logger = rack.folder / "nodes/bin/logger"
        place = '"$NODES/spark1/run/run.lock"'
        lost = f"printf '%s\\n' '{text.strip()}' > {place}" if text else f"rm {place}"
        logger.write_text(f"{logger.read_text()}{lost}\n")
        done = rack.run(level, confirm=None)
    else:
        thread = rack.reboots(boots=lose)
        done = rack.run(level)
        thread.join()
    assert (done.exit_code, kept(rack).passed) == (0, True), done.output
    assert f"spark2: drill {level} passed: " in done.output
    assert f"spark1: {reported}" in done.output
    assert (lock.read_text() if lock.exists() else None) == text


def test_a_head_node_that_does_not_come_back(rack: Rack) -> None:
    rack.node = "spark1"
    rack.runs("spark1")

    def die() -> None:
        rack.until(lambda: bool(rack.done_to_it))
        rack.nodes.die("spark1")

    thread = threading.Thread(target=die)
    thread.start()
    done = rack.run("reset", "--timeout", "5", confirm="spark1")
    thread.join()
    assert done.exit_code == 2, done.output
    assert kept(rack).reason == "did not come back within 5 s"
    assert "lock" not in done.output


def test_a_lock_that_is_lost_ends_nothing(rack: Rack) -> None:
    def lost() -> None:
        raise drill.DrillError("the lock is gone")

    found = load(rack.file)
    with open_shells(found, ["spark2"], 30) as shells:
        one = drill.Drill(found, "spark2", DrillLevel.RESET, "x", shells["spark2"], None, print, 1)
        with pytest.raises(drill.DrillError, match="the lock is gone"):
            one.end(lost, lambda: None)
    assert rack.done_to_it == ""
    assert not (rack.folder / "nodes/spark2/logged").exists()


def contains(text: str) -> Callable[[Rack], object]:
    return lambda rack: rack.nodes.write("spark2", "containers", text)


REFUSED: list[tuple[str, Callable[[Rack], object], str]] = [
    ("reset", contains(CONTAINER), "1 container run; stop them first"),
    ("reset", contains(CONTAINER + CONTAINER.replace("1" * 64, "2" * 64)), "2 containers run; stop them first"),
    ("panic", contains(UNIT), "unit qwen, which"),
    ("freeze", contains("surprise\n"), "whether a workload runs is unknown"),
    ("freeze", lambda rack: rack.nodes.write("spark2", "feeding", "0\n"), "systemd feeds no watchdog"),
    ("panic", lambda rack: rack.nodes.write("spark2", "panic", "0\n"), "kernel.panic is 0"),
    (
        "reset",
        lambda rack: (rack.nodes.folder / "bin/find").write_text("#!/bin/sh\necho 'find: broken' >&2\nexit 1\n"),
        "find: broken; nothing was done",
    ),
    ("reset", lambda rack: rack.nodes.die("spark2"), "No route to host"),
    ("reset", lambda rack: rack.nodes.write("spark2", "boot", "d" * 32), "the present boot has no evidence"),
    ("reset", lambda rack: rack.file.write_text(SWITCH), "rack.yaml declares no blackbox with boot_evidence"),
    (
        "mark",
        lambda rack: rack.file.write_text(
            changed(SWITCH, ("rack: two", "rack: two\nblackbox: {boot_evidence: false}"))
        ),
        "rack.yaml declares no blackbox with boot_evidence: the drill would leave no evidence",
    ),
    ("reset", lambda rack: rack.nodes.write("spark1", "run/run.lock", "{}"), "the rack is locked by"),
]


@pytest.mark.parametrize(("level", "prepare", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_what_is_refused(rack: Rack, level: str, prepare: Callable[[Rack], object], reason: str) -> None:
    prepare(rack)
    done = rack.run(level, "--timeout", "1")
    assert done.exit_code == 1, done.output
    assert reason in done.output
    assert rack.done_to_it == ""
    assert latest_drills(rack.state) == ()
    lines = [line for path in (rack.state / "runs").glob("*.ndjson") for line in path.read_text().splitlines()]
    printed = [one["reason"] for line in lines if (one := json.loads(line))["event"] == "host_error"]
    assert [one in done.output for one in printed] == ([] if "locked" in reason else [True])


@pytest.mark.parametrize(
    ("level", "file"), [("reset", "feeding"), ("panic", "feeding"), ("reset", "panic"), ("freeze", "panic")]
)
def test_what_another_level_needs_does_not_matter(rack: Rack, level: str, file: str) -> None:
    rack.nodes.write("spark2", file, "0\n")
    done = rack.ends(level)
    assert rack.done_to_it, done.output


def test_a_drill_on_the_machine_that_it_would_end(rack: Rack) -> None:
    """The present boot of the node is that of this machine: the result would be lost with it."""
    rack.nodes.write("spark2", "boot", Path(BOOT_ID).read_text().replace("-", ""))
    done = rack.run("reset")
    assert done.exit_code == 1, done.output
    assert "this command runs on that node and would end with it; run it on another machine; nothing" in done.output
    assert (rack.done_to_it, latest_drills(rack.state)) == ("", ())


def test_a_node_that_rack_yaml_does_not_have(rack: Rack) -> None:
    rack.node = "spark9"
    done = rack.run("reset", confirm="spark9")
    assert (done.exit_code, done.output) == (1, "Error: spark9: not a node; there are spark1, spark2\n")
    assert not (rack.state / "runs").exists()


def test_a_result_that_cannot_be_kept(rack: Rack) -> None:
    rack.state.mkdir(parents=True)
    (rack.state / "drills").write_text("")
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 1
    assert "drill mark passed" in done.output
    assert "the result of the drill could not be kept: " in done.output


@pytest.mark.parametrize("confirm", [None, "spark1", "yes"])
def test_without_the_name_nothing_is_done(rack: Rack, confirm: str | None) -> None:
    done = rack.run("panic", "--timeout", "1", confirm=confirm)
    assert done.exit_code == 1
    assert "pass --yes-really spark2 to do it. Nothing was done" in done.output
    assert rack.done_to_it == ""
    assert not (rack.state / "runs").exists()


def test_a_mark_that_arrives(rack: Rack) -> None:
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 0, done.output
    reason = "arrived in: journal; not set up: netconsole at spark1, remote journal at spark1"
    assert kept(rack).reason == reason
    assert rack.done_to_it == ""


def test_a_mark_at_every_place(rack: Rack) -> None:
    """A relay brings what spark2 writes to spark1, as netconsole and the upload of the journal do."""
    folder, stop = rack.folder / "nodes", threading.Event()
    for file in ("netconsole/spark2.log", "remote/remote-spark2.journal"):
        rack.nodes.write("spark1", file, "an old line\n")

    def relay() -> None:
        while not stop.wait(0.02):
            for source, file in (("kmsg", "netconsole/spark2.log"), ("logged", "remote/remote-spark2.journal")):
                if (folder / "spark2" / source).exists():
                    rack.nodes.write("spark1", file, (folder / "spark2" / source).read_text())

    thread = threading.Thread(target=relay)
    thread.start()
    done = rack.run("mark", confirm=None)
    stop.set()
    thread.join()
    assert done.exit_code == 0, done.output
    assert kept(rack).reason == "arrived in: journal, netconsole at spark1, remote journal at spark1"


def test_a_mark_before_many_other_lines(rack: Rack) -> None:
    """A busy node writes 2000 lines after the mark before the drill looks for it, at every place."""
    logger = rack.folder / "nodes/bin/logger"
    peer = '"$NODES/spark1"'
    logger.write_text(
        f"{logger.read_text()}mkdir -p {peer}/netconsole {peer}/remote\n"
        f'cat "$NODE/kmsg" > {peer}/netconsole/spark2.log\n'
        'seq 2000 >> "$NODE/logged"\n'
        f'cat "$NODE/logged" > {peer}/remote/remote-spark2.journal\n'
        f"seq 2000 >> {peer}/netconsole/spark2.log\n"
    )
    for file in ("netconsole/spark2.log", "remote/remote-spark2.journal"):
        rack.nodes.write("spark1", file, "an old line\n")
    begin = time.time()
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 0, done.output
    assert kept(rack).reason == "arrived in: journal, netconsole at spark1, remote journal at spark1"
    for name in ("spark1", "spark2"):
        (since,) = set((rack.folder / f"nodes/{name}/since").read_text().split())
        assert begin - 20 < int(since.removeprefix("--since=@")) < time.time() - 5


def test_a_mark_in_a_file_of_netconsole_that_is_full(rack: Rack) -> None:
    """The receiver begins another file and keeps the old one."""
    logger = rack.folder / "nodes/bin/logger"
    file = '"$NODES/spark1/netconsole/spark2.log"'
    logger.write_text(f'{logger.read_text()}cat "$NODE/kmsg" > {file}.1\n')
    rack.nodes.write("spark1", "netconsole/spark2.log", "a newer line\n")
    assert rack.run("mark", confirm=None).exit_code == 0
    assert kept(rack).reason.startswith("arrived in: journal, netconsole at spark1;")


def failing(rack: Rack, tool: str) -> None:
    path = rack.folder / "nodes/bin" / tool
    path.write_text(f"#!/bin/sh\necho '{tool}: broken' >&2\nexit 1\n")


@pytest.mark.parametrize(("level", "tool"), [("mark", "logger"), ("reset", "sync")])
def test_a_fault_after_a_mark_was_written_is_not_nothing(rack: Rack, level: str, tool: str) -> None:
    failing(rack, tool)
    done = rack.run(level, confirm="spark2")
    assert done.exit_code == 1
    assert f"{tool}: broken; its kernel log and its journal may have the mark of the drill\n" in done.output
    assert "nothing was done" not in done.output
    assert (rack.done_to_it, latest_drills(rack.state)) == ("", ())
    (text,) = [path.read_text() for path in (rack.state / "runs").glob("*.ndjson")]
    assert "may have the mark of the drill" in text


@pytest.mark.parametrize("fault", [drill.DrillError("x is y"), UnreachableError("spark1", "x is y")])
def test_a_fault_after_the_end_of_the_node_is_not_nothing(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(drill, "collect_evidence", broken)
    done = rack.ends("reset")
    assert done.exit_code == 1
    printed = "spark2: x is y; its kernel log and its journal have the mark of the drill, and the end of its boot was"
    assert f"{printed} started: no result is kept; `sparkrack autopsy spark2` judges the end\n" in done.output


@pytest.mark.parametrize("lost", ["kmsg", "logged"])
def test_a_mark_of_which_half_is_missing_in_the_journal(rack: Rack, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(drill, "MARK_SECONDS", 1.0)
    (rack.folder / "nodes/spark2" / lost).symlink_to("/dev/null")
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 2
    assert kept(rack).reason.startswith("arrived in: nothing; not within 1 s in: journal")


def test_a_mark_disturbs_no_workload(rack: Rack) -> None:
    for file, text in {"containers": CONTAINER, "feeding": "0\n", "panic": "0\n", "boot": "d" * 32}.items():
        rack.nodes.write("spark2", file, text)
    assert rack.run("mark", confirm=None).exit_code == 0


@pytest.mark.parametrize(
    ("declared", "place"), [("remote: plain", "remote journal"), ("netconsole: plain", "netconsole")]
)
@pytest.mark.parametrize("off", [False, True])
def test_a_place_that_is_declared_and_not_there_fails(
    rack: Rack, monkeypatch: pytest.MonkeyPatch, declared: str, place: str, off: bool
) -> None:
    monkeypatch.setattr(drill, "MARK_SECONDS", 1.0)
    rack.file.write_text(rack.file.read_text().replace("blackbox: {}", f"blackbox: {{{declared}}}"))
    rack.node = "spark1"  # the head node of this rack, which has the lock, is the receiver of spark2
    rack.runs("spark1")
    if off:
        rack.nodes.die("spark2")
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 2, done.output
    assert f"not within 1 s in: {place} at spark2" in kept(rack).reason


def test_a_mark_that_gets_lost(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "MARK_SECONDS", 1.0)
    rack.nodes.write("spark1", "netconsole/spark2.log", "1795000000.0 an old line\n")
    done = rack.run("mark", confirm=None)
    assert done.exit_code == 2
    assert "not within 1 s in: netconsole at spark1" in kept(rack).reason


def one(made: datetime, node: str = "spark1", level: DrillLevel = DrillLevel.MARK, passed: bool = True) -> DrillResult:
    return DrillResult(run="x", rack="two", node=node, level=level, made=made, passed=passed, reason="r")


def test_the_newest_of_each_node_and_level(tmp_path: Path) -> None:
    now = datetime(2026, 11, 25, tzinfo=UTC)
    for result in (
        one(now - timedelta(days=2)),
        one(now - timedelta(days=1), passed=False),
        one(now - timedelta(days=3), level=DrillLevel.PANIC),
        one(now, node="spark2"),
    ):
        store_drill(tmp_path, result)
    found = {(result.node, str(result.level)): result.passed for result in latest_drills(tmp_path)}
    assert found == {("spark1", "mark"): False, ("spark1", "panic"): True, ("spark2", "mark"): True}


def test_old_drills_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkrack.status.drills.MAX_DRILLS", 3)
    now = datetime(2026, 11, 25, tzinfo=UTC)
    for day in range(5):
        store_drill(tmp_path, one(now + timedelta(days=day)))
    assert [path.stem[:8] for path in drill_paths(tmp_path)] == ["20261129", "20261128", "20261127"]


def test_a_drill_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = store_drill(tmp_path, one(datetime(2026, 11, 25, tzinfo=UTC)))
    path.write_text("{")
    with pytest.raises(StatusHistoryError, match="is not what sparkrack has kept"):
        latest_drills(tmp_path)
