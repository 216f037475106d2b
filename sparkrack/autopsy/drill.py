"""A drill of the black box on one node: end its boot on purpose, follow it down and up, judge it by the autopsy."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from core.model import Rack
from core.model.errors import printable_line
from core.ssh.root_shell import RootShell, UnreachableError
from roles.blackbox.boot_evidence import BOOTS, FOLDER
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.watchdog import manager
from sparkrack.autopsy.collect import collect_evidence
from sparkrack.autopsy.questions import remote_journal
from sparkrack.autopsy.verdict import Cause, Verdict, judge
from sparkrack.rebuild.workloads import CONTAINERS, parse_workload, unit_blockers
from sparkrack.status.drills import DrillLevel, DrillResult

POLL_SECONDS = 2.0
MARK_SECONDS = 60.0
"""Seconds that a mark may take to its last place."""
CLOCK_STEP_SECONDS = 10
"""Seconds by which the clock of a node may go back just then: entries from before the mark are read as well."""
EVIDENCE_SECONDS = 300.0
"""Seconds from a boot that answers to its evidence."""
BOOT = "tr -d - < /proc/sys/kernel/random/boot_id"
EXPECTED = {
    DrillLevel.FREEZE: (Cause.WATCHDOG,),
    DrillLevel.PANIC: (Cause.PANIC,),
    # A reset leaves no record. Without the counters of the disk it looks like a power loss.
    DrillLevel.RESET: (Cause.POWER, Cause.UNKNOWN),
}
"""The verdicts of the autopsy that pass."""
# After the answer: a node that has stopped gives none.
_LATER = "setsid sh -c 'sleep 1; {}' > /dev/null 2>&1 < /dev/null &"
ACTIONS = {
    DrillLevel.FREEZE: "kill -ABRT 1",
    DrillLevel.PANIC: "echo c > /proc/sysrq-trigger",
    DrillLevel.RESET: "echo b > /proc/sysrq-trigger",
}
EFFECTS = {
    DrillLevel.MARK: "writes a line to its kernel log and its journal; nothing ends",
    DrillLevel.FREEZE: "stops systemd; the watchdog has to reset the node, and what is not written is lost",
    DrillLevel.PANIC: "makes the kernel panic; the node reboots by itself, and what is not written is lost",
    DrillLevel.RESET: "restarts the machine without a shutdown; what is not written is lost",
}


MARKED = "its kernel log and its journal may have the mark of the drill"
ENDED = (
    "its kernel log and its journal have the mark of the drill, and the end of its boot was started: no result is "
    "kept; `sparkrack autopsy {}` judges the end"
)


class DrillError(Exception):
    """The drill was refused, or failed on its way; the text is one line. `DrillProgress` has what was done by then."""


@dataclass
class DrillProgress:
    """What a drill has done to its node so far, as the end of a sentence."""

    done: str = "nothing was done"


@dataclass(frozen=True)
class Drill:
    """One drill. `shell`: on the node; `peer`: on the node that receives its records, if there is one. `say`: prints a
    line. `timeout`: seconds that the node may take to come back. `progress`: is kept up to date for a drill that fails.
    """

    rack: Rack
    node: str
    level: DrillLevel
    run: str
    shell: RootShell
    peer: RootShell | None
    say: Callable[[str], None]
    timeout: float
    progress: DrillProgress = field(default_factory=DrillProgress)

    def refuse(self) -> None:
        """Raises DrillError for a node with a workload, and for one that would not come back or leave evidence."""
        options = self.rack.declared(BlackboxOptions)
        if options is None or not options.boot_evidence:
            raise DrillError("rack.yaml declares no blackbox with boot_evidence: the drill would leave no evidence")
        if self.level is DrillLevel.MARK:
            return
        try:
            containers, units = parse_workload(self._command_output(CONTAINERS))
        except ValueError as unknown:
            raise DrillError(f"whether a workload runs is unknown: {unknown}") from None
        if units:
            running = {unit: [self.node] for unit in units}
            raise DrillError("; ".join(unit_blockers(self.rack, running, stops=False, offered=False)))
        if containers:
            raise DrillError(f"{containers} container{'' if containers == 1 else 's'} run; stop them first")
        boot = self._command_output(BOOT).strip()
        if boot == _own_boot():
            raise DrillError("this command runs on that node and would end with it; run it on another machine")
        if self.shell.run(f"[ -e {BOOTS}/{boot}/evidence.json ]").rc:
            raise DrillError("the present boot has no evidence; run `sparkrack apply --only blackbox`")
        if self.level is DrillLevel.FREEZE:
            shown = self._command_output("systemctl show --property=RuntimeWatchdogUSec,RebootWatchdogUSec")
            if not manager(shown).runtime:
                raise DrillError("systemd feeds no watchdog, so nothing would end the freeze")
        if self.level is DrillLevel.PANIC and self._command_output("cat /proc/sys/kernel/panic").strip() == "0":
            raise DrillError("kernel.panic is 0, so the node would not reboot")

    def mark(self) -> DrillResult:
        """Write a mark, and look for it wherever the rack keeps lines of the node."""
        word = f"sparkrack-drill-{secrets.token_hex(8)}"
        # A busy node writes many lines before the next look: no number of lines is enough. By the clock of the node,
        # also at the other node: an entry keeps its time.
        since = f"--since=@{self._node_clock() - CLOCK_STEP_SECONDS} --quiet --no-pager"
        self.progress.done = MARKED
        self._command_output(f"echo '<4>{word} kernel' > /dev/kmsg; logger -t sparkrack-drill {word} journal")
        places = {"journal": (self.shell, f"journalctl --boot {since} | grep -c {word}", 2)}
        missing = []
        if self.peer is not None:
            where, console = self.peer.hostname, f"{FOLDER}/netconsole/{self.node}.log"
            options, received = self.rack.options(BlackboxOptions), remote_journal(self.node)
            for name, declared, there, command in (
                (
                    f"netconsole at {where}",
                    options.netconsole,
                    f"[ -e {console} ]",
                    f"cat {console}.1 {console} 2> /dev/null | grep -c -m 1 {word}",
                ),
                (
                    f"remote journal at {where}",
                    options.remote,
                    f"{received} -n 1 -q --no-pager",
                    f"{received} {since} | grep -c {word}",
                ),
            ):
                # A declared one that is not there, or whose node does not answer, is a fault that the drill finds.
                if declared or _exit_status(self.peer, there) == 0:
                    places[name] = (self.peer, command, 1)
                else:
                    missing.append(name)
        left, until = dict(places), time.monotonic() + MARK_SECONDS
        while left and time.monotonic() < until:
            left = {name: place for name, place in left.items() if _printed_number(place[0], place[1]) < place[2]}
            if left:
                time.sleep(POLL_SECONDS)
        found = [name for name in places if name not in left]
        reason = f"arrived in: {', '.join(found) or 'nothing'}"
        reason += f"; not within {MARK_SECONDS:g} s in: {', '.join(left)}" if left else ""
        reason += f"; not set up: {', '.join(missing)}" if missing else ""
        return self._drill_result(passed=not left, reason=reason)

    def end(self, sure: Callable[[], None], back: Callable[[], None]) -> DrillResult:
        """End the boot of the node, wait for the next one, and judge. `sure`: raises when it must not be done now.
        `back`: called when the node answers again, before its evidence is read.
        """
        before = self._command_output(BOOT).strip()
        mark = f"sparkrack-drill {self.level} {self.run}"
        sure()
        self.say(f"{self.node}: {EFFECTS[self.level]}")
        # File systems are written first: the drill is about evidence, not about data that is lost.
        self.progress.done = MARKED
        self._command_output(f"logger -t sparkrack-drill {mark}; echo '<4>{mark}' > /dev/kmsg; sync")
        self.progress.done = ENDED.format(self.node)
        begin = time.monotonic()
        with suppress(UnreachableError):  # it was faster than its answer
            self._command_output(_LATER.format(ACTIONS[self.level]))
        self.shell.close()
        while (now := _boot_id(self.shell)) in (None, before):
            if time.monotonic() - begin > self.timeout:
                return self._drill_result(passed=False, reason=f"did not come back within {self.timeout:g} s")
            time.sleep(POLL_SECONDS)
        seconds = time.monotonic() - begin
        self.say(f"{self.node}: is back after {seconds:.0f} s")
        back()
        until = time.monotonic() + EVIDENCE_SECONDS
        while _exit_status(self.shell, f"[ -e {BOOTS}/{now}/evidence.json ]"):
            if time.monotonic() > until:
                reason = f"is back, and has collected no evidence within {EVIDENCE_SECONDS:g} s"
                return self._drill_result(passed=False, reason=reason, seconds=seconds)
            time.sleep(POLL_SECONDS)
        evidence = collect_evidence(self.rack, self.node)
        if evidence.ended != before:
            reason = f"the evidence is about boot {evidence.ended or 'unknown'}, and boot {before} was ended"
            return self._drill_result(passed=False, reason=reason, seconds=seconds)
        return self._judged_result(judge(evidence), seconds)

    def _judged_result(self, verdict: Verdict, seconds: float) -> DrillResult:
        expected = EXPECTED[self.level]
        passed = verdict.cause in expected
        reason = f"verdict {verdict.cause}: {verdict.reason}"
        if not passed:
            reason = f"{reason}; wanted {' or '.join(expected)}"
        return self._drill_result(passed=passed, reason=reason, seconds=seconds, verdict=verdict)

    def _drill_result(
        self, *, passed: bool, reason: str, seconds: float | None = None, verdict: Verdict | None = None
    ) -> DrillResult:
        return DrillResult(
            run=self.run,
            rack=self.rack.rack,
            node=self.node,
            level=self.level,
            made=datetime.now(UTC).replace(microsecond=0),
            passed=passed,
            verdict=verdict.cause if verdict else None,
            confidence=verdict.confidence if verdict else None,
            seconds=None if seconds is None else round(seconds, 1),
            reason=printable_line(reason),
        )

    def _node_clock(self) -> int:
        """Return the seconds since 1970 by the clock of the node. Raises DrillError and UnreachableError."""
        shown = self._command_output("date +%s").strip()
        if not shown.isdecimal():
            raise DrillError(printable_line(f"date +%s: {shown[:40]!r} is not a time"))
        return int(shown)

    def _command_output(self, command: str) -> str:
        """Return the output of a command on the node. Raises DrillError when it fails, UnreachableError without one."""
        done = self.shell.run(command)
        if done.rc != 0:
            why: Sequence[str] = str(done.stderr).strip().splitlines() or [f"exit {done.rc}"]
            raise DrillError(printable_line(f"{command[:60]}: {why[-1]}"))
        return str(done.stdout)


def _own_boot() -> str | None:
    """Return the ID of the boot of this machine; None where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return None


def _boot_id(shell: RootShell) -> str | None:
    """Return the ID of the node's present boot; None while it does not answer."""
    try:
        return str(shell.run(BOOT).stdout).strip() or None
    except UnreachableError:
        return None


def _exit_status(shell: RootShell, command: str) -> int:
    """Return the exit status of a command; 255 while the node does not answer."""
    try:
        return int(shell.run(command).rc)
    except UnreachableError:
        return 255


def _printed_number(shell: RootShell, command: str) -> int:
    """Return the number that a command prints; 0 for anything else."""
    try:
        text = str(shell.run(command).stdout).strip()
    except UnreachableError:
        return 0
    return int(text) if text.isdecimal() else 0
