#!/usr/bin/python3
"""The keeper of a served unit: on the head node, it lets all ranks run or none, and proves the unit by completions.

    serve_keeper.py UNIT-FILE run       the service
    serve_keeper.py UNIT-FILE up        wish the unit up; --anyway also on a node that is not as after a boot
    serve_keeper.py UNIT-FILE down      wish it down
    serve_keeper.py UNIT-FILE status    print its state as JSON

The tether of each rank (serve_tether.py) asks the keeper every few seconds whether its rank is to run or to stop. A
tether without an answer stops its rank when its lease expires; a keeper without a report stops all ranks. So the keeper
needs no login on another node, and no failure of one machine leaves ranks on the others.

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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import serve_probe
from serve_lifecycle import RUNNING, ClockSkew, TetherReport, UnitLifecycle, UnitRecord
from serve_unit import (
    ServedUnit,
    ServeError,
    ask,
    challenge,
    line,
    load_unit,
    log,
    read_former,
    read_line,
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
CONNECTIONS_PER_ADDRESS = 16
TICK = 0.2
ALIVE = 1.0
"""Seconds between two reports to the watchdog of systemd."""
METRICS_LIMIT = 5.0
DRAIN_LOOK = 1.0
"""Seconds between two looks at the requests of a unit that is asked to stop."""


class KeeperServer:
    """Answers tethers and commands, a thread for each connection. Only addresses of the unit are heard."""

    def __init__(
        self, unit: ServedUnit, former: int | None, secret: bytes, lifecycle: UnitLifecycle, lock: threading.Lock
    ) -> None:
        self.unit, self.former, self.secret, self.lifecycle, self.lock = unit, former, secret, lifecycle, lock
        self._addresses = {rank.address for rank in unit.ranks} | {unit.head[0]}
        self._open: Counter[str] = Counter()
        self._refused: dict[str, float] = {}
        self.listener = socket.create_server(unit.head, backlog=64)

    def serve(self) -> None:
        """Accept connections for good."""
        while True:
            try:
                connection, (address, *_) = self.listener.accept()
            except OSError as error:  # no file descriptor is left, or the connection ended before it was accepted
                log(f"a connection is not accepted: {error.strerror}")
                time.sleep(TICK)
                continue
            if address not in self._addresses or self._open[address] >= CONNECTIONS_PER_ADDRESS:
                self._refuse(address, "its address is not in the unit, or has too many connections")
                connection.close()
                continue
            with self.lock:
                self._open[address] += 1
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: str) -> None:
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
                skew = ClockSkew.of(sent, received, content.get("clock"))
                with self.lock:
                    answer = self._handle(content, skew)
                connection.sendall(seal(self.secret, "answer", f"{once}{content['nonce']}", answer))
        except ServeError as error:
            self._refuse(address, str(error))
        except OSError:
            pass  # the other end asks again
        finally:
            with self.lock:
                self._open[address] -= 1

    def _handle(self, content: dict[str, Any], skew: ClockSkew) -> dict[str, Any]:
        if content.get("unit") != self.unit.name or not isinstance(content.get("nonce"), str):
            raise ServeError(f"it is not about unit {self.unit.name}")
        now = time.monotonic()
        kind = content.get("kind")
        if kind == "report":
            rank = content.get("rank")
            if type(rank) is not int or not 0 <= rank < len(self.unit.ranks):
                raise ServeError(f"the unit has no rank {line(repr(rank), 40)}")
            return self.lifecycle.reported(rank, TetherReport.of(content, now, skew))
        if kind == "status":
            return {**self.lifecycle.status(now), "former": self.former}
        if kind == "wish" and content.get("wish") in ("up", "down"):
            done, text = self.lifecycle.wished(content["wish"], content.get("anyway") is True, now)
            log(f"wish {content['wish']}: {text}")
            return {"done": done, "text": text}
        raise ServeError("its kind is unknown")

    def _refuse(self, address: str, reason: str) -> None:
        """Log a refused connection, at most once a minute for each reason: it must not fill the journal."""
        now = time.monotonic()
        if now - self._refused.get(reason, -60.0) >= 60:
            self._refused[reason] = now
            log(f"a connection from {address} is refused: {reason}")


class Prober:
    """Proves the running generation, in a thread of its own: a completion, or counters that rise."""

    def __init__(self, unit: ServedUnit, lifecycle: UnitLifecycle, lock: threading.Lock) -> None:
        self.unit, self.lifecycle, self.lock = unit, lifecycle, lock
        self._request: serve_probe.ApiRequest | None = None
        self._generation = 0

    def cancel_stale(self) -> None:
        """End a request to a generation that no longer runs. The caller holds the lock."""
        record = self.lifecycle.record
        if self._request and (record.generation != self._generation or record.state not in RUNNING):
            self._request.cancel()

    def run(self) -> None:
        """Probe for good."""
        times = self.unit.times
        generation, due = 0, 0.0
        seen: dict[str, float] = {}
        while True:
            time.sleep(min(TICK, times.ask))
            with self.lock:
                record = self.lifecycle.record
                state, misses = record.state, self.lifecycle.misses
                if record.generation != generation:
                    generation, seen, due = record.generation, {}, 0.0
            now = time.monotonic()
            if state == "draining":
                self._drain(generation)
                continue
            if state not in RUNNING or now < due:
                continue
            if state == "starting":
                proven = self._complete(generation, times.first_limit, {})
                seen = self._counters(generation) if proven else {}
                with self.lock:
                    ready = self.lifecycle.record.state == "ready"
                due = time.monotonic() + (times.probe_interval if ready else times.ask)
                continue
            before = seen
            seen = self._counters(generation)
            if misses == 0 and serve_probe.rose(before, seen):
                with self.lock:
                    self.lifecycle.proved(generation, 0.0, True, time.monotonic())
                due = time.monotonic() + times.busy_interval
            elif self._complete(generation, times.probe_limit, seen):
                # What the probe itself adds to the counters is not taken for load.
                seen = self._counters(generation)
                due = time.monotonic() + times.probe_interval
            else:
                # A rank that ended is reported within a lease: that reason comes before a second miss.
                due = time.monotonic() + times.lease

    def _complete(self, generation: int, limit: float, before: dict[str, float]) -> bool:
        begun = time.monotonic()
        request = self._begin(generation, limit)
        try:
            serve_probe.complete(self.unit, request)
        except ServeError as error:
            wrong = isinstance(error, serve_probe.WrongAnswerError)
            progress = not wrong and bool(before) and serve_probe.rose(before, self._counters(generation))
            with self.lock:
                if progress:
                    self.lifecycle.proved(generation, 0.0, True, time.monotonic())
                else:
                    self.lifecycle.missed(generation, str(error), time.monotonic())
            return progress
        with self.lock:
            self.lifecycle.proved(generation, time.monotonic() - begun, False, time.monotonic())
        return True

    def _drain(self, generation: int) -> None:
        """Count the requests once, while a unit that is asked to stop lets them end."""
        limit = min(METRICS_LIMIT, self.unit.times.probe_limit)
        found = serve_probe.requests(self.unit, self._begin(generation, limit))
        with self.lock:
            self.lifecycle.drained(generation, found, time.monotonic())
        time.sleep(min(DRAIN_LOOK, self.unit.times.ask))

    def _counters(self, generation: int) -> dict[str, float]:
        return dict(
            serve_probe.counters(self.unit, self._begin(generation, min(METRICS_LIMIT, self.unit.times.probe_limit)))
        )

    def _begin(self, generation: int, limit: float) -> serve_probe.ApiRequest:
        request = serve_probe.ApiRequest(self.unit, limit)
        with self.lock:
            self._request, self._generation = request, generation
        return request


def run(unit: ServedUnit, former: int | None, folder: str) -> NoReturn:
    """Run the service. `former`: the generation whose files were put back, None for others.

    Raises ServeError or OSError when it cannot start.
    """
    secret = read_secret(unit)
    serve_probe.read_key(unit)
    Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    path = f"{folder}/{unit.name}.json"
    values = read_record(path)
    record = UnitRecord.of(values, unit.name) if values is not None else UnitRecord(unit.name)
    lock = threading.Lock()
    logged = [record.state, record.generation]

    def save(values: dict[str, Any]) -> None:
        # A disk that is slow for seconds must not delay the answers of a unit that serves: leases would expire.
        write_record(path, values, durable=values["state"] not in ("ready", "busy"))
        if logged != [values["state"], values["generation"]]:
            logged[:] = values["state"], values["generation"]
            log(f"unit {unit.name}, generation {values['generation']}: {values['state']}: {values['reason']}")

    lifecycle = UnitLifecycle(unit, record, save, time.monotonic())
    server = KeeperServer(unit, former, secret, lifecycle, lock)
    prober = Prober(unit, lifecycle, lock)
    log(f"unit {unit.name}, generation {record.generation}: {record.state}; the keeper listens at {_at(unit)}")
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


def _or_end(target: Callable[[], None]) -> None:
    """Run a thread's function. A keeper without one of its threads must not go on answering."""
    try:
        target()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def command(unit: ServedUnit, word: str, anyway: bool) -> int:
    """Send a wish or a question to the running keeper and print its answer. Raises ServeError."""
    content: dict[str, Any] = (
        {"kind": "status"} if word == "status" else {"kind": "wish", "wish": word, "anyway": anyway}
    )
    try:
        answer = ask(unit, read_secret(unit), content, MESSAGE_LIMIT)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServeError(f"the keeper of unit {unit.name} does not answer at {_at(unit)}: {reason}") from None
    if word == "status":
        print(json.dumps(answer, indent=1))
        return 0
    print(answer["text"], file=sys.stdout if answer["done"] else sys.stderr)
    return 0 if answer["done"] else 1


def _at(unit: ServedUnit) -> str:
    return f"{unit.head[0]}:{unit.head[1]}"


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="serve-keeper", description="Keep a served unit up on all nodes, or down.")
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
        run(unit, read_former(given.unit), given.state)
    except ServeError as error:
        print(f"serve-keeper: {error}", file=sys.stderr)
    except OSError as error:
        where = error.filename or given.unit
        print(f"serve-keeper: {where}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
