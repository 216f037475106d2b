"""Proof that an engine serves: a right answer of its API to what the kind of the unit asks for, or metrics that move.

What an answer proves: serve_answers.py.

/health is not asked: an engine answers it with 200 beside a dead rank (seen with vLLM 0.32).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Collection, Mapping
from typing import Any

import serve_answers
from serve_unit import ServedUnit, ServeError, line, read_private

ANSWER_LIMIT = 4 * 1024 * 1024
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? ([0-9.eE+-]+)(?: -?[0-9]+)?")


class BusyError(ServeError):
    """The engine lives and does not take the request: HTTP status 429 or 503, such as of SGLang's full queue. Its
    scheduler gives that answer between two steps, so an engine that hangs does not.
    """


class OwnFaultError(ServeError):
    """The probe itself is wrong, and says nothing of the engine: the API refuses its key, its model or its form."""


class KeyFileError(OwnFaultError):
    """The file with the API key cannot be read, or has no key."""


class ApiRequest:
    """One HTTP request with a limit for all of it, which another thread may cancel."""

    def __init__(self, unit: ServedUnit, limit: float) -> None:
        self._connection = http.client.HTTPConnection(*unit.api, timeout=limit)
        self._limit = limit
        self._over = threading.Event()

    def cancel(self) -> None:
        """End the request: `send` raises ServeError."""
        self._over.set()
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def send(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, bytes]:
        """Return status and body of the answer. Raises ServeError with a clause that says what failed."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        timer = threading.Timer(self._limit, self.cancel)
        timer.daemon = True
        timer.start()
        try:
            self._connection.connect()
            if self._over.is_set():
                raise ServeError(f"no answer within {self._limit:g} s")
            # A server may answer, and close, before it has read the body: its answer is there all the same.
            with contextlib.suppress(BrokenPipeError):
                self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self._connection.getresponse()
            content = answer.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException) as error:
            if self._over.is_set() or isinstance(error, TimeoutError):
                raise ServeError(f"no answer within {self._limit:g} s") from None
            raise ServeError(f"{type(error).__name__}: {line(error, 120)}") from None
        else:
            if self._over.is_set():
                raise ServeError(f"no answer within {self._limit:g} s")
            return answer.status, content
        finally:
            timer.cancel()
            self._connection.close()


def read_key(unit: ServedUnit) -> str | None:
    """Return the API key, None when the unit has none. Raises KeyFileError, which never quotes it."""
    if unit.key_file is None:
        return None
    try:
        key = read_private(unit.key_file).strip()
    except ServeError as error:
        raise KeyFileError(str(error)) from None
    if not key or not all(33 <= byte <= 126 for byte in key):
        raise KeyFileError(f"{unit.key_file}: expected a key of printable characters without spaces")
    return key.decode("ascii")


def prove(unit: ServedUnit, request: ApiRequest, dimension: int = 0, *, start: bool = False) -> int:
    """Ask for what the kind of a unit is: a completion, three embeddings, or a ranking.

    Args:
        unit: the unit.
        request: its request.
        dimension: the numbers that an embedding must have; 0: any number of them.
        start: whether the unit has not served yet: then a status that says that the engine does not serve the kind is a
            wrong answer.

    Returns the numbers of each embedding, 0 of other kinds. Raises ServeError with a clause that says why this is not a
    proof: WrongAnswerError of serve_answers when the answer is not right, BusyError when the engine takes no request
    now, OwnFaultError when the fault is here.
    """
    if unit.probe.named:
        check_name(unit, request)
    status, content, shown = post(unit, request, *serve_answers.question(unit.probe, unit.model))
    if status in serve_answers.NOT_SERVED and start:
        raise serve_answers.not_served(unit.probe, status, shown)
    if status != 200:
        raise refusal(status)(f"HTTP status {status}: {shown}")
    return serve_answers.judge(unit.probe, content, shown, dimension)


def check_name(unit: ServedUnit, request: ApiRequest) -> None:
    """Raise ServeError unless the engine has a model of this name: the port may be that of another server."""
    status, content = request.send("GET", "/v1/models", key=read_key(unit))
    if status != 200:
        raise refusal(status)(f"/v1/models: HTTP status {status}")
    try:
        names = [one["id"] for one in json.loads(content)["data"]]
    except (ValueError, LookupError, TypeError):
        names = []
    if unit.model not in names:
        shown = line(", ".join(map(str, names)) or "no model", 80)
        raise OwnFaultError(f"/v1/models has {shown}, expected {unit.model}")


def post(unit: ServedUnit, request: ApiRequest, path: str, body: Mapping[str, Any]) -> tuple[int, bytes, str]:
    """Send a body to the API, with its key. Return status, body, and the body as it may stand in a message."""
    key = read_key(unit)
    status, content = request.send("POST", path, body, key)
    # An engine may quote the key that it refuses.
    return status, content, line(content.decode(errors="replace").replace(key or "\0", "(key)"), 120)


def refusal(status: int) -> type[ServeError]:
    """Return what an HTTP status other than 200 says. 408 is an answer of a server that waited too long."""
    if status in (429, 503):
        return BusyError
    return OwnFaultError if 400 <= status < 500 and status != 408 else ServeError


def progress(unit: ServedUnit, request: ApiRequest) -> Mapping[str, float]:
    """Return counters, gauges and requests of the engine, each summed over its labels; nothing when they cannot be
    read.
    """
    return _read_metrics(unit, request, (*unit.probe.counters, *unit.probe.gauges, *unit.requests))


def requests(unit: ServedUnit, request: ApiRequest) -> int | None:
    """Return how many requests the engine has, running and waiting. None: it does not report both numbers, or none
    are declared.
    """
    found = _read_metrics(unit, request, unit.requests)
    # What is not a number is not 0.
    known = 0 < len(unit.requests) == len(found) and all(0 <= value < 1e9 for value in found.values())
    return round(sum(found.values())) if known else None


def _read_metrics(unit: ServedUnit, request: ApiRequest, names: Collection[str]) -> dict[str, float]:
    """Return these metrics of the engine, each summed over its labels; nothing when they cannot be read."""
    try:
        # llama.cpp guards its metrics by the key; for others it is one header more.
        status, content = request.send("GET", "/metrics", key=read_key(unit))
    except ServeError:
        return {}
    if status != 200:
        return {}
    found: dict[str, float] = {}
    for text in content.decode(errors="replace").splitlines():
        sample = _SAMPLE.fullmatch(text)
        if sample and sample[1] in names:
            with contextlib.suppress(ValueError):
                found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
    return found


def moved(unit: ServedUnit, before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Return whether the engine has computed between two readings: a counter rose, or a gauge changed while the engine
    has requests. Without requests a gauge changes when the cache is cleared, and by the probe itself.
    """
    both = before.keys() & after.keys()
    if any(name in both and after[name] > before[name] for name in unit.probe.counters):
        return True
    # SGLang does not count a request among the running ones before its whole prompt is computed.
    requests = sum(after.get(name, 0.0) for name in unit.requests)
    return requests > 0 and any(name in both and after[name] != before[name] for name in unit.probe.gauges)
