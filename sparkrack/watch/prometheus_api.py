"""What Prometheus and Alertmanager answer over their HTTP APIs."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError

SECONDS = 10
"""For one answer."""
QUERY_SECONDS = 8
"""Prometheus itself ends a query that takes longer, so a slow query is not taken for a silent server."""


SocketOf = Callable[[], Path]
"""Gives the socket of this machine behind which a program answers. Raises UnreachableError."""


class PrometheusError(CommandError):
    """Prometheus or Alertmanager did not answer, or not as its API does. The message says why."""


class SilentError(PrometheusError):
    """There is no such program that answers."""


@dataclass(frozen=True)
class Sample:
    """One value with its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Range:
    """The values of one series over a time, each with its seconds since 1970."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ScrapeTarget:
    """One active target of Prometheus. `health`: up, down or unknown. `error`: of its last scrape, which began at
    `scraped`, in seconds since 1970; before 1970 for none.
    """

    labels: Mapping[str, str]
    health: str
    error: str
    scraped: float


class _SocketConnection(HTTPConnection):
    def __init__(self, socket_of: SocketOf) -> None:
        super().__init__("localhost")
        self._socket_of = socket_of

    def _new_conn(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(SECONDS)
        found.connect(str(self._socket_of()))
        return found


class _SocketPool(HTTPConnectionPool):
    def __init__(self, socket_of: SocketOf) -> None:
        super().__init__("localhost")
        self._socket_of = socket_of

    def _new_conn(self) -> _SocketConnection:
        return _SocketConnection(self._socket_of)


class _SocketAdapter(HTTPAdapter):
    """Sends requests to a socket, whatever host their URL names."""

    def __init__(self, socket_of: SocketOf) -> None:
        super().__init__()
        self._pool = _SocketPool(socket_of)

    def get_connection_with_tls_context(self, *_: object, **__: object) -> HTTPConnectionPool:
        return self._pool


class _HttpApi:
    """An API over HTTP: at its URL, or behind a socket, and the URL is then its name alone."""

    def __init__(self, url: str, socket_of: SocketOf | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # The rack is asked directly, whatever proxy the operator's machine uses.
        self._session.trust_env = False
        if socket_of is not None:
            self._session.mount("http://", _SocketAdapter(socket_of))

    def _read_answer(self, program: str, path: str, parameters: Mapping[str, str]) -> Any:
        """Return what a path answers. Raises SilentError."""
        try:
            answer = self._session.get(f"{self.url}{path}", params=parameters, timeout=SECONDS, allow_redirects=False)
            return answer.json()
        except requests.exceptions.JSONDecodeError:
            raise SilentError(f"{self.url}: the answer is not that of {program}") from None
        except requests.exceptions.RequestException as fault:
            raise SilentError(f"{self.url}: {_fault_reason(fault)}") from None
        except UnreachableError as fault:
            raise SilentError(f"{self.url}: {fault.why}") from None


class AlertmanagerApi(_HttpApi):
    """The API of an Alertmanager."""

    def silences(self) -> list[dict[str, Any]]:
        """Return the silences as the API has them, also those that have ended. Raises PrometheusError."""
        found = self._read_answer("Alertmanager", "/api/v2/silences", {})
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise PrometheusError(f"{self.url}: silences: unexpected answer")
        return found


class PrometheusApi(_HttpApi):
    """The API of a Prometheus. Every method raises PrometheusError."""

    def query(self, expression: str) -> list[Sample]:
        """Return the present value of each series of an expression; one that is not a number is left out."""
        found = [
            Sample(_series_labels(one), _parse_number(value[1]))
            for one in self._read_vector("query", query=expression, timeout=f"{QUERY_SECONDS}s")
            if isinstance(value := one.get("value"), list) and len(value) == 2
        ]
        return [sample for sample in found if math.isfinite(sample.value)]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Range]:
        """Return the values of each series of an expression over a time, in seconds."""
        found = self._read_vector("query_range", query=expression, start=f"{start}", end=f"{end}", step=f"{step}")
        return [
            Range(_series_labels(one), tuple((float(at), _parse_number(text)) for at, text in one.get("values", ())))
            for one in found
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the active alerts as the API has them."""
        return self._read_list("alerts", "alerts")

    def time(self) -> float:
        """Return the time of the server, in seconds since 1970."""
        found = self._read_data("query", query="time()")
        result = found.get("result") if isinstance(found, dict) else None
        if not isinstance(result, list) or len(result) != 2:
            raise PrometheusError(f"{self.url}: time: unexpected answer")
        return _parse_number(result[1])

    def targets(self) -> list[ScrapeTarget]:
        """Return the active targets."""
        return [
            ScrapeTarget(
                {str(key): str(value) for key, value in dict(one.get("labels") or {}).items()},
                str(one.get("health")),
                str(one.get("lastError") or ""),
                _parse_seconds(one.get("lastScrape")),
            )
            for one in self._read_list("targets", "activeTargets", state="active")
        ]

    def rules_evaluated(self) -> float:
        """Return since when all rules are evaluated: the oldest of the last evaluations of the groups, in seconds since
        1970; before 1970 when one was never evaluated or there is none.
        """
        return min(
            (_parse_seconds(one.get("lastEvaluation")) for one in self._read_list("rules", "groups")), default=-math.inf
        )

    def _read_list(self, path: str, key: str, **parameters: str) -> list[dict[str, Any]]:
        found = self._read_data(path, **parameters)
        rows = found.get(key) if isinstance(found, dict) else None
        if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
            raise PrometheusError(f"{self.url}: {path}: unexpected answer")
        return rows

    def _read_vector(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        found = self._read_data(path, **parameters)
        result = found.get("result") if isinstance(found, dict) else None
        if not isinstance(result, list) or not all(
            isinstance(one, dict) and isinstance(one.get("metric"), dict) for one in result
        ):
            raise PrometheusError(f"{self.url}: {path}: unexpected answer")
        return result

    def _read_data(self, path: str, **parameters: str) -> Any:
        body = self._read_answer("Prometheus", f"/api/v1/{path}", parameters)
        if not isinstance(body, dict) or body.get("status") != "success":
            why = body.get("error") if isinstance(body, dict) else None
            raise PrometheusError(f"{self.url}: {path}: {why or 'unexpected answer'}")
        return body.get("data")


def _series_labels(one: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in one["metric"].items()}


def _parse_seconds(text: object) -> float:
    """Return a time of Prometheus in seconds since 1970; that of no text, or of none yet, is before 1970."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return -math.inf


def _parse_number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def _fault_reason(fault: requests.exceptions.RequestException) -> str:
    if isinstance(fault, requests.exceptions.Timeout):
        return f"no answer within {SECONDS} s"
    if "Connection refused" in str(fault):
        return "connection refused"
    if isinstance(fault, requests.exceptions.ConnectionError):
        return "no connection"
    return type(fault).__name__
