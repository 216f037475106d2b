#!/usr/bin/python3
"""The agent of one rank of a served unit: it runs the rank's service only as long as the coordinator asks for it.

    serve_agent.py UNIT-FILE RANK

It reports the state of its rank to the coordinator (serve_coordinator.py) every few seconds and obeys the answer:
`gate` runs the gate command and reports its verdict, `run` starts the service, `stop` stops it. Without an authentic
answer it stops the service when the lease expires. It never starts a service twice for one generation, and never
without a gate passed for that generation.

The service must not restart by itself (Restart=no) and must not start at boot. The exit code of an engine means
nothing: a service that ended without being asked to is `ended`. The service is the client of docker, so its end does
not end the engine: the rank is `idle` only when the kernel shows no process in the slice of the unit (serve_slice.py),
and what docker leaves there is ended through the kernel. Files: serve_unit.py has the unit file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, NoReturn

import serve_phases
import serve_rdma
from serve_causes import DRIVER_FAULT, explain
from serve_slice import CGROUPS, UnitSlice, running_units
from serve_unit import (
    ServedRank,
    ServedUnit,
    ServeError,
    ask,
    line,
    load_unit,
    log,
    read_record,
    read_secret,
    report_alive,
    write_record,
)

STATE_FOLDER = "/var/lib/sparkrack/serve"
RDMA = serve_rdma.FABRIC, serve_rdma.DEVICES
BOOT_ID = "/proc/sys/kernel/random/boot_id"
QUESTION_LIMIT = 5.0
"""Seconds that one question to systemd may take."""
OUTPUT_LIMIT = 65536
EVIDENCE_SLACK = 2.0
"""Seconds that the collection of evidence may take beside those that it has for it."""
KILL_WAIT = 1.0
"""Seconds for a killed command to end: one that waits in the kernel does not."""
KILL_LIMIT = 10.0
"""Seconds after KILL of the kernel in which a process ends, unless it waits in the kernel."""
FATAL = re.compile(rf"sparkrack-memory-guard: .* ended every |{DRIVER_FAULT}|[Oo]ut of memory: Killed process")
"""Lines of the kernel's log after which a restart of the rank repeats the fault, or makes it worse: the memory guard or
the kernel ended a process, or the GPU or its driver failed. After NV_ERR_NO_MEMORY it leaks memory (reported)."""
GUARD_VICTIM = re.compile(r"sparkrack-memory-guard: .* ended every container of unit (\S+), ")
"""The guard's line about one of several units: it concerns no other one."""
LAST_LINES = 200
"""Lines of the rank's log that are read for the reason of its end."""
NO_JOURNAL = b"No journal files were "
"""What journalctl prints where it finds no files, or may open none."""
LINE_HEAD = re.compile(r"^[0-9.]+ (?:kernel: )?")
"""What journalctl's format short-unix puts before a message: the time, and who wrote it. systemd takes the name of the
memory guard, which writes to /dev/kmsg, out of the message: the format cat does not show it.
"""
CURSOR_FIELD = "__CURSOR="
"""The first field of an entry in journalctl's export format."""


@dataclass
class RankRecord:
    """What outlives the agent. `generation`: that of the latest start; `running`: started and not confirmed stopped;
    `ended_clean`: this boot ends in order; `clean`: since the latest start, no boot ended otherwise while the rank ran.
    `started`: seconds since 1970; `cursor`: of the newest line of the kernel's log then, empty where it is unknown;
    `kernel`: why the kernel's log of the latest run of the rank forbids another one.
    """

    boot: str
    generation: int = 0
    running: bool = False
    invocation: str = ""
    ended_clean: bool = False
    clean: bool = True
    started: float = 0.0
    cursor: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class ServiceState:
    """The rank's service as systemd reports it. `active`: ActiveState, or unknown. `ended`: it has no main process.
    `code`: of its end, as ExecMainStatus has it.
    """

    active: str
    detail: str = ""
    invocation: str = ""
    ended: bool = False
    code: str = ""


class ServeTask:
    """A command that runs beside the questions to the coordinator, with a limit."""

    def __init__(self, words: Sequence[str], limit: float) -> None:
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - read when the command has ended
        self._until = time.monotonic() + limit
        self._limit = limit
        self.reason = ""
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True
            )
        except OSError as error:
            self.reason = f"{words[0]}: {error.strerror}"

    def done(self) -> bool:
        """Return whether it has ended; past its limit it is killed. `reason` is then empty, or why it failed."""
        if self._process is None:
            return True
        if self._process.poll() is None and time.monotonic() > self._until:
            self.kill()
            self.reason = f"no end within {self._limit:g} s"
            return True
        if self._process.returncode is None:
            return False
        if self._process.returncode and not self.reason:
            self.reason = self.output() or f"exit code {self._process.returncode}"
        return True

    def output(self) -> str:
        """Return the last line that it has printed, empty without one."""
        self._output.seek(0)
        lines = self._output.read(OUTPUT_LIMIT).decode(errors="replace").strip().splitlines()
        return line(lines[-1]) if lines else ""

    def remark(self) -> str:
        """Return what a gate that has passed remarks: what follows `NODE: ready; ` in its last line."""
        self._output.seek(0)
        lines = self._output.read(OUTPUT_LIMIT).decode(errors="replace").splitlines()
        return line(lines[-1].partition(": ready; ")[2]) if lines else ""

    def kill(self) -> None:
        """End it and what it started."""
        if self._process and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_WAIT)


class Agent:
    """The loop of one rank."""

    def __init__(
        self,
        unit: ServedUnit,
        rank: ServedRank,
        folder: str,
        boot_file: str,
        *,
        cgroups: str = CGROUPS,
        runtime: str = "",
        rdma: tuple[str, str] = RDMA,
    ) -> None:
        """`rdma`: the file that names the RDMA devices, and the folder of their counters."""
        self.unit, self.rank, self._rdma = unit, rank, rdma
        self._marks = serve_phases.marks_of(f"unit {unit.name}: phases", unit.phases)
        self._slice, self._cgroups = UnitSlice(unit.name, cgroups), cgroups
        self.secret = read_secret(unit)
        Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path = f"{folder}/{unit.name}.rank.json"
        self._hang_path = f"{folder}/{unit.name}.hang.json"
        self._wanted = Path(runtime, "wanted") if runtime else None
        """A file that is there while the coordinator wants the rank, also before its service has a process: other
        programs must not change the node then."""
        self._loading = Path(runtime, "loading") if runtime else None
        """What the gate has left for the gates of other units: it goes when the unit has taken what it takes."""
        with Path(boot_file).open(encoding="ascii") as file:
            self.record = self._load_record(file.read().strip())
        self._save_record()
        self._detail = ""
        self._verdict: tuple[int, bool, str] | None = None
        self._gate: tuple[int, ServeTask] | None = None
        self._start: ServeTask | None = None
        self._stop: ServeTask | None = None
        self._evidence: ServeTask | None = None
        self._examined = 0
        """The generation whose hang was examined last."""
        self._hang = ""
        """What its evidence says of the cause."""
        self._heard = time.monotonic()
        self._lost = False
        self._ended = False
        self._ordered = False
        """Whether this agent has ordered the service to stop, and what it ran is not confirmed to have ended."""
        self._killed = 0.0
        """When the kernel was first asked to end what is left, by the monotonic clock; 0: it was not."""
        self._service = ServiceState("unknown")
        self._network = ""
        self._phases: tuple[int, serve_phases.PhaseReader] | None = None
        """Of the start of a generation, what its journal tells."""
        self._said = "", ""
        """An invocation of the rank's service, and why it ended."""

    def run(self) -> NoReturn:
        """Ask, obey, wait."""
        times = self.unit.times
        log(f"unit {self.unit.name}: the agent of rank {self.rank.number} asks {self.unit.head[0]}:{self.unit.head[1]}")
        while True:
            begun = time.monotonic()
            report_alive()
            self._finish_tasks()
            self._service = self._read_service()
            left = self._heard + times.lease - time.monotonic()
            # Once the lease has expired nothing must be done in time, and a slow coordinator must be heard again.
            limit = times.ask if self._lost else max(0.1, min(times.ask, left))
            try:
                order, generation, hang, anyway = self._send_question(limit)
            except (OSError, ServeError) as error:
                self._not_heard(error)
            else:
                if self._lost:
                    log("the coordinator answers again")
                # The lease counts from the question: what the coordinator knew is not younger.
                self._heard, self._lost = begun, False
                self._obey_order(order, generation, hang=hang, anyway=anyway)
            wait = begun + times.ask - time.monotonic()
            if not self._lost:
                wait = min(wait, self._heard + times.lease - time.monotonic())
            time.sleep(max(0.05, wait))

    def _send_question(self, limit: float) -> tuple[str, int, bool, bool]:
        answer = ask(self.unit, self.secret, self._make_report(), limit, self.rank.address)
        order, generation = answer.get("order"), answer.get("generation")
        if order not in ("gate", "run", "stop") or type(generation) is not int:
            raise ServeError("the answer has no valid order")
        if answer.get("witness") is True and not self._network:
            report_alive()
            service, invocation = self.unit.service, self.record.invocation
            self._network = serve_rdma.network(self.unit.journalctl, service, invocation, QUESTION_LIMIT)
        loaded = answer.get("loaded") is True
        if loaded:
            self._remove_mark(self._loading)
        if order == "run" and generation == self.record.generation:
            self._read_phases(loaded=loaded)
        return order, generation, answer.get("hang") is True, answer.get("anyway") is True

    def _read_phases(self, *, loaded: bool) -> None:
        """Read from the journal of the rank how far its start is; once it is over, nothing more."""
        record = self.record
        if self._phases is None or self._phases[0] != record.generation:
            reader = serve_phases.PhaseReader(self.unit.journalctl, self._marks, record.started)
            self._phases = record.generation, reader
        report_alive()
        self._phases[1].read(record.invocation, time.monotonic(), QUESTION_LIMIT, loaded=loaded)

    def leave(self) -> NoReturn:
        """End in order, as at a shutdown. The service goes on: systemd ends it, or the next agent finds it."""
        self.record.ended_clean = True
        with contextlib.suppress(OSError):
            self._save_record()
        if self._gate:
            self._gate[1].kill()
        os._exit(0)

    def _load_record(self, boot: str) -> RankRecord:
        service = self.unit.service.removesuffix(".service")
        repair = f"stop the rank (`systemctl stop {service}`) and remove the file"
        try:
            values = read_record(self._path)
        except ServeError as error:
            raise ServeError(f"{error}; {repair}") from None
        if values is None:
            return RankRecord(boot)
        default = asdict(RankRecord(boot))
        # Of another release it may have a field more, or lack one, which then has its default.
        values = {key: value for key, value in values.items() if key in default}
        for key, value in values.items():
            whole_number = isinstance(default[key], float) and type(value) is int
            if type(value) is not type(default[key]) and not whole_number:
                raise ServeError(f"{self._path}: {key} is {line(repr(value), 80)}; {repair}")
        record = RankRecord(**{**default, **values})
        if record.boot != boot:
            # An end out of order counts until the next start, however many boots are in between.
            return RankRecord(
                boot, record.generation, clean=record.clean and (record.ended_clean or not record.running)
            )
        record.ended_clean = False
        return record

    def _save_record(self) -> None:
        write_record(self._path, asdict(self.record))

    # What is

    def _read_service(self) -> ServiceState:
        """Ask systemd for the rank's service."""
        names = ("ActiveState", "Result", "ExecMainStatus", "InvocationID", "MainPID")
        try:
            found = self._run_systemctl("show", f"--property={','.join(names)}", self.unit.service)
        except (OSError, subprocess.SubprocessError) as error:
            return ServiceState("unknown", f"systemctl does not answer: {line(error, 120)}")
        if not all(name in found for name in names):
            return ServiceState("unknown", "systemctl does not report the service")
        detail = f"exit code {found['ExecMainStatus']}, result {found['Result']}"
        code = found["ExecMainStatus"]
        return ServiceState(found["ActiveState"], detail, found["InvocationID"], found["MainPID"] == "0", code)

    def _run_systemctl(self, *words: str) -> dict[str, str]:
        command = [*self.unit.systemctl, *words]
        report_alive()
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=QUESTION_LIMIT, check=True
        )
        return dict(text.split("=", 1) for text in done.stdout.splitlines() if "=" in text)

    def _machine_shuts_down(self) -> bool:
        """Return whether this machine shuts down. It is asked only while no rank runs here, and could be started."""
        if self._service.active not in ("inactive", "failed"):
            return False
        try:
            return self._run_systemctl("show", "--property=SystemState").get("SystemState") == "stopping"
        except (OSError, subprocess.SubprocessError):
            return True

    def _rank_state(self) -> str:
        active = self._service.active
        if active in ("active", "reloading", "refreshing"):
            return "running"
        if active == "activating":
            return "starting"
        if active == "deactivating":
            return "stopping"
        if active not in ("inactive", "failed"):
            return "unknown"
        if self._start:
            return "starting"
        if self._stop:
            return "stopping"
        if self.record.running:
            return "stopping" if self._ended else "ended"
        if self._gate:
            return "gating"
        try:
            left = self._slice.populated()
        except ServeError:
            return "unknown"
        if left:
            return "stopping" if self._ordered else "unknown"
        return "idle"

    def _describe_leftovers(self) -> str:
        """Return what is left in the slice of the unit once its service has ended, or why that is unknown."""
        if self._service.active not in ("inactive", "failed") or self._start or self._stop or self._gate:
            return ""
        try:
            if not self._slice.populated():
                return ""
        except ServeError as error:
            return f"whether a process of the rank is left is unknown: {error}; restart the node"
        found = self._slice.describe()
        if self._killed and time.monotonic() - self._killed > KILL_LIMIT:
            return f"the kernel was asked to end {found}, which wait in it (state D): restart the node"
        if self.record.running or self._ordered:
            return f"left of the rank: {found}"
        return f"not started by its agent: {found} in {self._slice.folder}; end them, a container by `docker rm -f`"

    def _make_report(self) -> dict[str, object]:
        state = self._rank_state()
        if state == "running":
            self._remember_invocation()
        own = state != "running" or self.record.invocation == self._service.invocation
        detail = self._detail or (self._service.detail if state in ("ended", "unknown") else "")
        if state == "ended":
            detail += self._last_words()
        if state == "stopping" and not self._ended:
            detail = (
                f"its process ended without being asked to: {self._service.detail}{self._last_words()}"
                if self._service.ended
                else f"{self.unit.service} is being stopped on the node, not by its agent"
            )
        if left := self._describe_leftovers():
            detail = f"{detail}; {left}" if state == "ended" else left
        return {
            "kind": "report",
            "rank": self.rank.number,
            "state": state,
            "generation": self.record.generation if own else None,
            "boot": self.record.boot,
            "clean": self.record.clean,
            "leaving": self._machine_shuts_down(),
            "kernel": self.record.kernel,
            "hang": self._hang,
            "detail": detail,
            "gate": self._verdict,
            "version": self.unit.version,
            "rdma": serve_rdma.counters(*self._rdma) if self.unit.rdma != "ignored" else {},
            "network": self._network,
            "beside": self._list_other_units(),
            "phases": self._phases[1].times if self._phases and self._phases[0] == self.record.generation else {},
        }

    def _list_other_units(self) -> list[str]:
        """Return the other units that run on this node, whose bytes the RDMA devices count as well."""
        if self.unit.rdma == "ignored":
            return []
        return [name for name in running_units(self._cgroups) if name != self.unit.name]

    def _last_words(self) -> str:
        """Return why the rank ended, from what it or docker printed since its start, as the end of a sentence."""
        invocation = self._service.invocation
        if self._said[0] != invocation or not self._said[1]:
            since = f"--since=@{int(self.record.started)}"
            words = ["--output=cat", "--no-pager", f"--lines={LAST_LINES}", since]
            command = [*self.unit.journalctl, *words, f"_SYSTEMD_INVOCATION_ID={invocation}"]
            report_alive()
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=QUESTION_LIMIT)
                lines = done.stdout.decode(errors="replace").splitlines()
            except (OSError, subprocess.SubprocessError):
                lines = []
            code = int(self._service.code) if self._service.code.isdigit() else None
            self._said = invocation, explain(code, lines)
        return f": {self._said[1]}" if self._said[1] else ""

    def _remember_invocation(self) -> None:
        """Remember which start of the service is the one that this agent ordered."""
        if self.record.running and not self.record.invocation and not self._stop:
            self.record.invocation = self._service.invocation
            with contextlib.suppress(OSError):  # asked again at the next look
                self._save_record()

    # What is done

    def _obey_order(self, order: str, generation: int, *, hang: bool = False, anyway: bool = False) -> None:
        if order == "stop":
            self._stop_rank("the coordinator ordered it", hang)
        elif reason := self._set_wanted_mark():
            self._verdict = generation, False, reason
        elif generation < self.record.generation or self._rank_state() == "unknown":
            pass  # a coordinator that lost its state asks for a later generation once it has this report
        elif order == "gate":
            self._start_gate_check(generation, anyway)
        elif (
            generation > self.record.generation
            and self._rank_state() == "idle"
            and self._verdict is not None
            and self._verdict[:2] == (generation, True)
        ):
            self._begin_rank(generation)

    def _set_wanted_mark(self) -> str:
        """Leave the mark that the rank is wanted. Return why that failed, or nothing."""
        try:
            if self._wanted and not self._wanted.exists():
                self._wanted.touch()
        except OSError as error:
            return f"{self._wanted}: {error.strerror}"
        return ""

    @staticmethod
    def _remove_mark(mark: Path | None) -> None:
        if mark:
            with contextlib.suppress(OSError):
                mark.unlink(missing_ok=True)

    def _start_gate_check(self, generation: int, anyway: bool) -> None:
        if self._gate and self._gate[0] != generation:
            self._gate[1].kill()
            self._gate = None
        if self._rank_state() == "idle" and (self._verdict is None or self._verdict[0] != generation):
            self._verdict = None
            self._detail = self._hang = self.record.kernel = ""
            words = [*self.unit.gate, *(["--anyway"] if anyway else [])]
            self._gate = generation, ServeTask(words, self.unit.times.gate_limit)

    def _begin_rank(self, generation: int) -> None:
        before = asdict(self.record)
        begun = RankRecord(self.record.boot, generation, running=True, started=time.time())
        self.record = replace(begun, cursor=self._newest_kernel_line())
        try:
            self._save_record()  # first: an agent that ends here must not start the same generation again
        except OSError as error:
            self.record = RankRecord(**before)
            self._verdict = generation, False, f"{self._path}: {error.strerror}"
            return
        self._ended, self._network = False, ""
        self._ordered, self._killed = False, 0.0
        log(f"generation {generation}: start {self.unit.service}")
        self._start = ServeTask([*self.unit.systemctl, "start", self.unit.service], self.unit.times.ready_limit)

    def _stop_rank(self, reason: str, hang: bool = False) -> None:
        """Bring the rank to a stop, step by step: it is called until nothing is left. `hang`: the engine hangs, so what
        it shows is collected before.
        """
        self._ended = True
        if self._gate:
            self._gate[1].kill()
            self._gate = None
        for mark in (self._wanted, self._loading):
            self._remove_mark(mark)
        self._verdict = None
        if self._stop:
            return
        if self._service.active not in ("inactive", "failed") or self._start:
            if hang and self._collects_hang_evidence():
                return
            if self._evidence:
                self._evidence.kill()
                self._evidence = None
            if self._start:
                self._start.kill()
                self._start = None
            self._detail = self._detail or reason
            log(f"stop {self.unit.service}: {reason}")
            self._ordered = True
            self._stop = ServeTask([*self.unit.systemctl, "stop", self.unit.service], self.unit.times.stop_limit)
        elif (self.record.running or self._ordered) and self._is_slice_empty():
            self._ordered, self._killed = False, 0.0
            if not self.record.running:
                return
            self.record.kernel = self._kernel_fault()
            self.record.running, self.record.invocation = False, ""
            with contextlib.suppress(OSError):
                self._save_record()

    def _collects_hang_evidence(self) -> bool:
        """Return whether evidence of a hang is being collected. The first call for a generation begins with it."""
        seconds = self.unit.times.evidence
        if self._evidence or self._examined == self.record.generation or not seconds:
            return self._evidence is not None
        self._examined = self.record.generation
        log(f"generation {self._examined} hangs: {seconds:g} s of evidence into {self._hang_path}")
        words = [sys.executable, str(Path(__file__).with_name("serve_hang.py")), self.unit.name, self.rank.node]
        words += [self._hang_path, f"--seconds={seconds}", f"--generation={self._examined}"]
        words += [f"--boot={self.record.boot}", f"--cgroups={self._cgroups}"]
        self._evidence = ServeTask(words, seconds + EVIDENCE_SLACK)
        return True

    def _is_slice_empty(self) -> bool:
        """Return whether no process of the rank is left. Those that docker has not ended are ended by the kernel."""
        try:
            if not self._slice.populated():
                return True
            if not self._killed:
                log(f"docker has not ended the container: the kernel ends {self._slice.describe()}")
            self._slice.kill()
        except (OSError, ServeError) as error:
            if not self._killed:
                log(f"what is left of the rank cannot be ended: {line(error)}")
        self._killed = self._killed or time.monotonic()
        return False

    def _newest_kernel_line(self) -> str:
        """Return the cursor of the newest line of the kernel's log; empty where there is none, or none is read."""
        try:
            return self._first_cursor("--lines=1")
        except ServeError as error:
            log(str(error))
            return ""

    def _first_cursor(self, option: str) -> str:
        """Return the cursor of the first of these lines, empty without any. Raises ServeError."""
        first = self._read_kernel_log("--output=export", "--output-fields=_BOOT_ID", option).partition("\n")[0]
        return first.removeprefix(CURSOR_FIELD) if first.startswith(CURSOR_FIELD) else ""

    def _kernel_fault(self) -> str:
        """Return what the kernel logged since the start of the rank and forbids another start, or nothing. A log that
        cannot be read forbids it, too.

        By the order of the journal and not by time, since the clock of a node may be set back meanwhile.
        """
        cursor, shown = self.record.cursor, ("--output=short-unix", "--no-hostname")
        after = f"--after-cursor={cursor}" if cursor else f"--since=@{int(self.record.started)}"
        try:
            text = self._read_kernel_log(*shown, after)
            # Asked after the lines. Where the line of the cursor is gone, journalctl begins with the nearest one, which
            # that of systemd 252 does not show after a cursor.
            if cursor and self._first_cursor(f"--cursor={cursor}") != cursor:
                text = self._read_kernel_log(*shown, f"--cursor={cursor}")
        except ServeError as error:
            return str(error)
        lines = (LINE_HEAD.sub("", one) for one in text.splitlines())
        victims = ((one, GUARD_VICTIM.search(one)) for one in lines if FATAL.search(one))
        found = (one for one, victim in victims if not victim or victim[1] == self.unit.name)
        return next((f"the kernel logged: {line(one, 200)}" for one in found), "")

    def _read_kernel_log(self, *options: str) -> str:
        """Return lines of the kernel's log. Raises ServeError when it cannot be read."""
        command = [*self.unit.journalctl, "--dmesg", "--no-pager", *options]
        report_alive()
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=QUESTION_LIMIT)
        except (OSError, subprocess.SubprocessError) as error:
            raise ServeError(f"the kernel's log cannot be read: {line(error, 120)}") from None
        # Without files, such as those of another machine-id, journalctl ends with 0; with --quiet it does not say so.
        if done.returncode or NO_JOURNAL in done.stderr:
            shown = line(done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}", 120)
            raise ServeError(f"the kernel's log cannot be read: {shown}")
        return done.stdout.decode(errors="replace")

    def _not_heard(self, error: Exception) -> None:
        lease = self.unit.times.lease
        if time.monotonic() - self._heard < lease:
            return
        if not self._lost:
            log(f"no authentic answer of the coordinator for {lease:g} s: {line(error, 120)}")
        self._lost = True
        if self._service.active not in ("inactive", "failed"):
            self._detail = f"no answer of the coordinator for {lease:g} s"
        self._stop_rank(f"no answer of the coordinator for {lease:g} s")

    def _finish_tasks(self) -> None:
        if self._evidence and self._evidence.done():
            self._hang = "" if self._evidence.reason else self._evidence.output()
            log(f"evidence of the hang: {self._evidence.reason or self._hang or 'no cause by the figures of the GPU'}")
            self._evidence = None
        if self._gate and self._gate[1].done():
            generation, task = self._gate
            remark = "" if task.reason else task.remark()
            self._gate, self._verdict = None, (generation, not task.reason, task.reason or remark)
            result = f"failed: {task.reason}" if task.reason else f"passed{remark and f'; {remark}'}"
            log(f"generation {generation}: gate {result}")
        if self._start and self._start.done():
            if self._start.reason:
                self._detail = f"systemctl start failed: {self._start.reason}"
            self._start = None
        if self._stop and self._stop.done():
            if self._stop.reason:
                log(f"systemctl stop failed: {self._stop.reason}; its processes are killed")
                words = [*self.unit.systemctl, "kill", "--signal=KILL", self.unit.service]
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=QUESTION_LIMIT)
                self._is_slice_empty()
            self._stop = None


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="serve-agent", description="Run one rank of a served unit while its coordinator asks."
    )
    parser.add_argument("unit", metavar="UNIT-FILE")
    parser.add_argument("rank", metavar="RANK", type=int)
    parser.add_argument("--state", metavar="FOLDER", default=STATE_FOLDER, help="default: %(default)s")
    parser.add_argument("--boot-id", metavar="FILE", default=BOOT_ID, help="default: %(default)s")
    parser.add_argument("--fabric", metavar="FILE", default=serve_rdma.FABRIC, help="default: %(default)s")
    parser.add_argument("--devices", metavar="FOLDER", default=serve_rdma.DEVICES, help="default: %(default)s")
    parser.add_argument("--cgroups", metavar="FOLDER", default=CGROUPS, help="default: %(default)s")
    runtime = os.environ.get("RUNTIME_DIRECTORY", "")
    parser.add_argument("--runtime", metavar="FOLDER", default=runtime, help="default: that of systemd")
    given = parser.parse_args(words)
    try:
        unit = load_unit(given.unit)
        agent = Agent(
            unit,
            unit.rank(given.rank),
            given.state,
            given.boot_id,
            cgroups=given.cgroups,
            runtime=given.runtime,
            rdma=(given.fabric, given.devices),
        )
        signal.signal(signal.SIGTERM, lambda *_: agent.leave())
        agent.run()
    except ServeError as error:
        print(f"serve-agent: {error}", file=sys.stderr)
    except OSError as error:
        print(f"serve-agent: {error.filename or given.unit}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
