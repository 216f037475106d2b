#!/usr/bin/python3
"""The coordinator of a served unit: on the head node, it lets all ranks run or none, and proves the unit by answers
of its engine.

    serve_coordinator.py UNIT-FILE run       the service
    serve_coordinator.py UNIT-FILE up        desired state the unit up; --anyway also on a node that is not as after a
    boot serve_coordinator.py UNIT-FILE down      desired state it down serve_coordinator.py UNIT-FILE status    print
    its state as JSON

The agent of each rank (serve_agent.py) asks the coordinator every few seconds whether its rank is to run or to stop. A
agent without an answer stops its rank when its lease expires; a coordinator without a report stops all ranks. So the
coordinator needs no login on another node, and no failure of one machine leaves ranks on the others.

`up` is an act: no timer may repeat it, or it becomes the restart loop that the restart budget prevents.

Exit codes: 0 done, 1 refused or failed; the reason is on stderr. Files: serve_unit.py has the unit file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import serve_answers
import serve_probe
import serve_rdma
from serve_lifecycle import RUNNING, AgentReport, ClockSkew, UnitLifecycle, UnitRecord
from serve_unit import (
    ServedUnit,
    ServeError,
    ask,
    challenge,
    line,
    load_unit,
    log,
    read_line,
    read_previous,
    read_record,
    read_secret,
    report_alive,
    seal,
    unseal,
    write_record,
)

STATE_FOLDER = "/var/lib/sparkrack/serve"
MESSAGE_LIMIT = 3.0
"""Seconds for one message of a connection."""
UNPROVEN_PER_ADDRESS = 64
"""Connections of an address whose message has not proven itself yet. One more ends the oldest of them: any process of a
node can open connections, and must not keep the agent of that node out."""
TICK = 0.2
ALIVE = 1.0
"""Seconds between two reports to the watchdog of systemd."""
METRICS_LIMIT = 5.0
DRAIN_LOOK = 1.0
"""Interval in seconds at which the requests of a unit are counted that is asked to stop."""


class CoordinatorServer:
    """Answers agents and commands, a thread for each connection. Only addresses of the unit are heard."""

    def __init__(
        self, unit: ServedUnit, previous: int | None, secret: bytes, lifecycle: UnitLifecycle, lock: threading.Lock
    ) -> None:
        self.unit, self.previous, self.secret, self.lifecycle, self.lock = unit, previous, secret, lifecycle, lock
        self._addresses = {rank.address for rank in unit.ranks} | {unit.head[0]}
        self._unproven: dict[str, dict[socket.socket, None]] = {address: {} for address in self._addresses}
        """By address, the oldest first."""
        self._unproven_lock = threading.Lock()
        self._refused: dict[str, float] = {}
        self.listener = socket.create_server(unit.head, backlog=64)

    def serve(self) -> None:
        """Accept connections until the program ends."""
        while True:
            try:
                connection, (address, *_) = self.listener.accept()
            except OSError as error:  # no file descriptor is left, or the connection ended before it was accepted
                log(f"a connection is not accepted: {error.strerror}")
                time.sleep(TICK)
                continue
            if address not in self._addresses:
                self._log_refusal(address, "its address is not in the unit")
                connection.close()
                continue
            self._make_room(connection, address)
            threading.Thread(target=self._answer_connection, args=(connection, address), daemon=True).start()

    def _make_room(self, connection: socket.socket, address: str) -> None:
        """Count a connection as unproven, and end the oldest ones of its address that are too many."""
        ended = 0
        with self._unproven_lock:
            waiting = self._unproven[address]
            waiting[connection] = None
            while len(waiting) > UNPROVEN_PER_ADDRESS:
                oldest = next(iter(waiting))
                del waiting[oldest]
                ended += 1
                with contextlib.suppress(OSError):  # its other end has ended it
                    oldest.shutdown(socket.SHUT_RDWR)
        if ended:
            self._log_refusal(
                address, f"the oldest of more than {UNPROVEN_PER_ADDRESS} without a proof; a process there opens them"
            )

    def _end_unproven(self, connection: socket.socket, address: str) -> None:
        with self._unproven_lock:
            self._unproven[address].pop(connection, None)

    def _answer_connection(self, connection: socket.socket, address: str) -> None:
        try:
            with connection:
                once = challenge()
                deadline = time.monotonic() + MESSAGE_LIMIT
                connection.settimeout(MESSAGE_LIMIT)
                sent = time.time()
                connection.sendall(f"{once}\n".encode())
                text = read_line(connection, deadline)
                received = time.time()
                content = unseal(self.secret, "question", once, text)
                self._end_unproven(connection, address)
                skew = ClockSkew.of(sent, received, content.get("clock"))
                with self.lock:
                    answer = self._handle_message(content, skew)
                connection.sendall(seal(self.secret, "answer", f"{once}{content['nonce']}", answer))
        except ServeError as error:
            self._log_refusal(address, str(error))
        except OSError:
            pass  # the other end asks again
        finally:
            self._end_unproven(connection, address)

    def _handle_message(self, content: dict[str, Any], skew: ClockSkew) -> dict[str, Any]:
        if content.get("unit") != self.unit.name or not isinstance(content.get("nonce"), str):
            raise ServeError(f"it is not about unit {self.unit.name}")
        now = time.monotonic()
        kind = content.get("kind")
        if kind == "report":
            rank = content.get("rank")
            if type(rank) is not int or not 0 <= rank < len(self.unit.ranks):
                raise ServeError(f"the unit has no rank {line(repr(rank), 40)}")
            return self.lifecycle.reported(rank, AgentReport.of(content, now, skew))
        if kind == "status":
            return {**self.lifecycle.status(now), "previous": self.previous}
        if kind == "desired_state" and content.get("desired_state") in ("up", "down"):
            if content["desired_state"] == "up" and self.lifecycle.record.state in ("down", "held"):
                try:
                    serve_probe.read_key(self.unit)  # without it nothing would prove the unit after its load
                except serve_probe.KeyFileError as error:
                    return {"done": False, "text": f"unit {self.unit.name} is not started: {error}"}
            done, text = self.lifecycle.set_desired_state(content["desired_state"], content.get("anyway") is True, now)
            log(f"desired state {content['desired_state']}: {text}")
            return {"done": done, "text": text}
        raise ServeError("its kind is unknown")

    def _log_refusal(self, address: str, reason: str) -> None:
        """Log a refused connection, at most once a minute for each reason: it must not fill the journal."""
        now = time.monotonic()
        # The nodes of the unit each on their own; strangers, who may have many addresses, together.
        kind = f"{address} {reason}" if address in self._addresses else reason
        if now - self._refused.get(kind, -60.0) >= 60:
            self._refused[kind] = now
            log(f"a connection from {address} is refused: {reason}")


class Prober:
    """Proves the running generation, in a thread of its own: a right answer, or metrics that move.

    `clock` and `sleep`: the monotonic clock, and what waits by it.
    """

    def __init__(
        self,
        unit: ServedUnit,
        lifecycle: UnitLifecycle,
        lock: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.unit, self.lifecycle, self.lock = unit, lifecycle, lock
        self._clock, self._sleep = clock, sleep
        self._request: serve_probe.ApiRequest | None = None
        self._generation = 0
        self._due = 0.0
        self._seen: Mapping[str, float] = {}
        self._failed = ""

    def cancel_stale(self) -> None:
        """End a request to a generation that no longer runs. The caller holds the lock."""
        record = self.lifecycle.record
        if self._request and (record.generation != self._generation or record.state not in RUNNING):
            self._request.cancel()

    def run(self) -> None:
        """Probe until the program ends."""
        while True:
            self._sleep(min(TICK, self.unit.times.ask))
            self.step()

    def step(self) -> None:
        """Do what is due."""
        times = self.unit.times
        with self.lock:
            record = self.lifecycle.record
            state, generation, misses = record.state, record.generation, self.lifecycle.misses
        if generation != self._generation:
            self._generation, self._due, self._seen, self._failed = generation, 0.0, {}, ""
        if state == "draining":
            self._count_open_requests(generation)
        elif state not in RUNNING or self._clock() < self._due:
            return
        elif state == "starting":
            self._prove_start(generation)
        elif self._failed:
            self._judge_failure(generation)
        else:
            found = self._read_progress()
            if serve_probe.moved(self.unit, self._seen, found):
                self._report_alive(generation, "counters rise")
                self._seen, self._due = found, self._clock() + times.busy_interval
            else:
                # What has moved since the first miss is progress still at the second one.
                self._seen = self._seen if misses else found
                self._send_question(generation, times.probe_limit)

    def _prove_start(self, generation: int) -> None:
        """Ask for all that a start must prove: what its kind asks for, a tool call, and RDMA in use."""
        times, begun, remark = self.unit.times, self._clock(), ""
        with self.lock:
            before = {rank: report.rdma for rank, report in self.lifecycle.reports.items()}
            expected = self.lifecycle.expected_dimension

        def ask(path: str, body: Mapping[str, Any]) -> tuple[int, bytes, str]:
            return serve_probe.post(self.unit, self._begin_request(generation, times.first_limit), path, body)

        try:
            dimension = serve_probe.prove(
                self.unit, self._begin_request(generation, times.first_limit), expected, start=True
            )
            seconds = self._clock() - begun
            beside = serve_answers.prove_start(self.unit.probe, self.unit.model, ask)
            if self.unit.rdma != "ignored":
                remark = self._prove_rdma(generation, before)
                with self.lock:
                    beside += [] if remark else [serve_rdma.proven(self.lifecycle.reports)]
        except ServeError as error:
            ours = isinstance(error, serve_probe.KeyFileError)
            self._set_probe_fault(f"no {self.unit.probe.noun} can be asked for: {error}" if ours else "")
            if isinstance(error, serve_answers.WrongAnswerError):
                with self.lock:
                    self.lifecycle.refused(generation, str(error), self._clock())
            elif not ours:
                self._report_miss(generation, str(error))
            self._due = self._clock() + times.ask
            return
        self._set_probe_fault("")
        with self.lock:
            now = self._clock()
            self.lifecycle.proved(generation, seconds, False, now, beside=beside, remark=remark, dimension=dimension)
            starting = self.lifecycle.record.state == "starting"
        # What the probe itself adds to the counters is not taken for load.
        self._seen = self._read_progress()
        self._due = self._clock() + (times.ask if starting else times.probe_interval)

    def _prove_rdma(self, generation: int, before: Mapping[int, serve_rdma.Counters]) -> str:
        """Return why the ranks are not proven to use RDMA where rack.yaml allows that, from their reports before and
        after the request; nothing if they do. Raises WrongAnswerError where it does not allow it, ServeError when
        the start ends before all have reported.
        """
        with self.lock:
            self.lifecycle.witness = generation
        # A report may be as old as a question takes when it is heard, and the one after it has NCCL's word.
        ended = self._clock() + 2 * self.unit.times.ask
        while True:
            self._sleep(min(TICK, self.unit.times.ask))
            with self.lock:
                record, reports = self.lifecycle.record, dict(self.lifecycle.reports)
            if (record.generation, record.state) != (generation, "starting"):
                raise ServeError("the start ended before each rank has reported its RDMA counters")
            if all(rank.number in reports and reports[rank.number].heard > ended for rank in self.unit.ranks):
                break
        fault = serve_rdma.fault(self.unit.ranks, before, reports)
        if fault and self.unit.rdma == "required":
            raise serve_answers.WrongAnswerError(fault)
        return fault

    def _send_question(self, generation: int, limit: float) -> None:
        """Ask for what the kind of the unit is, and set what is done next, and when."""
        times, begun = self.unit.times, self._clock()
        with self.lock:
            misses, expected = self.lifecycle.misses, self.lifecycle.expected_dimension
        looks: list[Mapping[str, float]] = []
        # SGLang counts a prompt before it computes it: what the probe itself moves so is not progress.
        look = threading.Timer(min(times.lease, limit / 2), lambda: looks.append(self._read_progress()))
        look.daemon = True
        look.start()
        request = self._begin_request(generation, limit)
        try:
            dimension = serve_probe.prove(self.unit, request, expected)
        except ServeError as error:
            ours = isinstance(error, serve_probe.OwnFaultError)
            self._set_probe_fault(f"no {self.unit.probe.noun} can be asked for: {error}" if ours else "")
            if ours:
                self._due = self._clock() + times.probe_interval
            elif isinstance(error, serve_probe.BusyError):
                self._report_alive(generation, f"the engine takes no more requests now: {error}")
                self._due = self._clock() + times.probe_interval
            elif isinstance(error, serve_answers.WrongAnswerError):
                self._report_miss(generation, str(error))
                # What it computed for another answer is not progress.
                self._seen, self._due = {}, self._clock() + times.lease
            else:
                look.cancel()
                look.join()
                if not misses or not self._seen:
                    self._seen = looks[0] if looks else self._read_progress()
                # An engine that fails at once is waited for as long as one that does not answer.
                self._failed, self._due = str(error), begun + limit
        else:
            self._set_probe_fault("")
            with self.lock:
                now = self._clock()
                self.lifecycle.proved(generation, now - begun, False, now, dimension=dimension)
            # What the probe itself adds to the counters is not taken for load.
            self._seen = self._read_progress()
            self._due = self._clock() + times.probe_interval
        finally:
            look.cancel()

    def _judge_failure(self, generation: int) -> None:
        """Take a request that failed for a miss, unless the engine has computed meanwhile."""
        found, failed, self._failed = self._read_progress(), self._failed, ""
        if serve_probe.moved(self.unit, self._seen, found):
            self._report_alive(generation, "counters rise")
            self._seen, self._due = found, self._clock() + self.unit.times.probe_interval
        else:
            self._report_miss(generation, failed)
            # A rank that ended is reported within a lease: that reason comes before a second miss.
            self._due = self._clock() + self.unit.times.lease

    def _report_alive(self, generation: int, why: str) -> None:
        with self.lock:
            self.lifecycle.proved(generation, 0.0, True, self._clock(), why=why)

    def _report_miss(self, generation: int, why: str) -> None:
        with self.lock:
            self.lifecycle.missed(generation, why, self._clock())

    def _set_probe_fault(self, text: str) -> None:
        """Say what is wrong with the probe itself, once; an empty text ends it."""
        with self.lock:
            if self.lifecycle.record.state not in RUNNING:
                return
            before, self.lifecycle.probe_fault = self.lifecycle.probe_fault, line(text)
        if before != line(text):
            log(text or f"{self.unit.probe.noun}s can be asked for again")

    def _count_open_requests(self, generation: int) -> None:
        """Count the requests once, while a unit that is asked to stop lets them end."""
        limit = min(METRICS_LIMIT, self.unit.times.probe_limit)
        found = serve_probe.requests(self.unit, self._begin_request(generation, limit))
        with self.lock:
            self.lifecycle.drained(generation, found, self._clock())
        self._sleep(min(DRAIN_LOOK, self.unit.times.ask))

    def _read_progress(self) -> Mapping[str, float]:
        request = serve_probe.ApiRequest(self.unit, min(METRICS_LIMIT, self.unit.times.probe_limit))
        return serve_probe.progress(self.unit, request)

    def _begin_request(self, generation: int, limit: float) -> serve_probe.ApiRequest:
        request = serve_probe.ApiRequest(self.unit, limit)
        with self.lock:
            self._request, self._generation = request, generation
        return request


def run(unit: ServedUnit, previous: int | None, folder: str) -> NoReturn:
    """Run the service. `previous`: the generation whose files were put back, None for others.

    Raises ServeError or OSError when it cannot start.
    """
    secret = read_secret(unit)
    Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    path = f"{folder}/{unit.name}.json"
    record = _read_unit_record(path, unit)
    lock = threading.Lock()
    logged = [record.state, record.generation]

    def save(values: dict[str, Any]) -> None:
        # A disk that is slow for seconds must not delay the answers of a unit that serves: leases would expire.
        write_record(path, values, durable=values["state"] not in ("ready", "busy"))
        if logged != [values["state"], values["generation"]]:
            logged[:] = values["state"], values["generation"]
            log(f"unit {unit.name}, generation {values['generation']}: {values['state']}: {values['reason']}")

    lifecycle = UnitLifecycle(unit, record, save, time.monotonic())
    server = CoordinatorServer(unit, previous, secret, lifecycle, lock)
    prober = Prober(unit, lifecycle, lock)
    log(
        f"unit {unit.name}, generation {record.generation}: {record.state}; "
        f"the coordinator listens at {_address_of_head(unit)}"
    )
    for target in (server.serve, prober.run):
        threading.Thread(target=_or_end, args=(target,), daemon=True).start()
    reported = 0.0
    while True:
        time.sleep(TICK)
        with lock:
            lifecycle.tick(time.monotonic())
            prober.cancel_stale()
        if time.monotonic() - reported >= ALIVE:
            reported = time.monotonic()
            report_alive()


def _read_unit_record(path: str, unit: ServedUnit) -> UnitRecord:
    """Return the record of the unit, a new one where there is none. Raises ServeError with the file and its repair."""
    try:
        values = read_record(path)
        return UnitRecord(unit.name) if values is None else UnitRecord.of(values, unit.name)
    except ServeError as error:
        named = str(error) if str(error).startswith(path) else f"{path}: {error}"
        services = f"sparkrack-serve-{unit.name}-coordinator sparkrack-serve-{unit.name}-agent"
        raise ServeError(
            f"{named}; stop coordinator and agents on all nodes (`systemctl stop {services}`), remove the file, and "
            "run "
            "`sparkrack apply --only serving`"
        ) from None


def _or_end(target: Callable[[], None]) -> None:
    """Run a thread's function. A coordinator without one of its threads must not go on answering."""
    try:
        target()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def command(unit: ServedUnit, word: str, anyway: bool) -> int:
    """Send a desired state or a question to the running coordinator and print its answer. Raises ServeError."""
    content: dict[str, Any] = (
        {"kind": "status"} if word == "status" else {"kind": "desired_state", "desired_state": word, "anyway": anyway}
    )
    try:
        answer = ask(unit, read_secret(unit), content, MESSAGE_LIMIT)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServeError(
            f"the coordinator of unit {unit.name} does not answer at {_address_of_head(unit)}: {reason}"
        ) from None
    if word == "status":
        print(json.dumps(answer, indent=1))
        return 0
    print(answer["text"], file=sys.stdout if answer["done"] else sys.stderr)
    return 0 if answer["done"] else 1


def _address_of_head(unit: ServedUnit) -> str:
    return f"{unit.head[0]}:{unit.head[1]}"


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="serve-coordinator", description="Keep a served unit up on all nodes, or down."
    )
    parser.add_argument("unit", metavar="UNIT-FILE")
    parser.add_argument("command", choices=["run", "up", "down", "status"])
    parser.add_argument("--anyway", action="store_true", help="start on nodes that are not as after a boot, too")
    parser.add_argument("--state", metavar="FOLDER", default=STATE_FOLDER, help="default: %(default)s")
    given = parser.parse_args(words)
    try:
        unit = load_unit(given.unit)
        if given.command != "run":
            return command(unit, given.command, given.anyway)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # all is on the disk before it has an effect
        run(unit, read_previous(given.unit), given.state)
    except ServeError as error:
        print(f"serve-coordinator: {error}", file=sys.stderr)
    except OSError as error:
        where = error.filename or given.unit
        print(f"serve-coordinator: {where}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
