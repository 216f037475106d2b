"""The unit file of a served model, and the authenticated messages between its coordinator and its agents.

Standard library only, Python 3.10 or later. serve_coordinator.py and serve_agent.py import it from their own folder.

A unit file is JSON, the same on each node of the unit, /etc/sparkrack/serve/NAME.json:

    name         of the unit: lower-case letters, digits, _
    engine       in rack.yaml; a file of an earlier version has none
    model        as the engine's API names it
    metrics      {"counters": [...], "gauges": [...], "requests": [...]}: of the engine, by their names in /metrics
    ranks        [{"node": "spark1", "address": "10.0.0.1"}, ...] in the order of ranks; rank 0 is the head
    head         {"address": "10.0.0.1", "port": 29400}: where the coordinator listens
    api          {"address": "10.0.0.1", "port": 8000}: the head's OpenAI API; "key_file" where it wants a key
    secret_file  the shared secret of coordinator and agents, 32 bytes or more; only its owner may read it
    gate         command that ends with 0 when this node may start its rank, otherwise prints the reason
    service      the rank's systemd service; default sparkrack-serve-NAME.service
    systemctl    command that controls it; default ["systemctl"]
    journalctl   command that prints the kernel's log; default ["journalctl"]
    probe        {"kind": "chat", "prompt": "2+2=", "answer": "4", "max_tokens": 8, "tool": false, "dimension": 0,
                  "named": false}
    phases       {"weights": {"begin": "Load weight begin", "end": "Load weight end"}, ...}: regular expressions for the
                 lines of the engine that begin and end a phase of its start (serve_phases.py); left out: none
    rdma         of the ranks, after a start: required, remark (reported when they do not use it) or ignored
    times        seconds: ask 2, lease 10, gate_limit 180, stop_limit 90, ready_limit 5400, first_limit 300,
                 probe_interval 60, probe_limit 60, drain 0, clock_limit 1, evidence 3; and probe_misses 2
    restart      {"times": 1, "within": 21600, "uptime": 600}
    boot         hold or start
    version      of the files of all nodes: a rank starts only where coordinator and agent have the same

NAME.previous beside it is there while the files are those of an earlier start, which `sparkrack serve recreate` has put
back: it has the number of that generation.

A message is one line: HMAC-SHA256 as hex, a space, a JSON object. The coordinator speaks first, with a random
challenge, and both MACs cover it, so that no message of another connection is accepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINE_LIMIT = 65536
_CHALLENGE = re.compile(r"[0-9a-f]{32}")


class ServeError(Exception):
    """A fault that the program reports in one sentence."""


@dataclass(frozen=True)
class ServedRank:
    """One rank: its number, its node's name and the address from which the node asks the coordinator."""

    number: int
    node: str
    address: str

    def __str__(self) -> str:
        return f"{self.node} (rank {self.number})"


@dataclass(frozen=True)
class ServeTimes:
    """Periods in seconds, and how many failed probes in a row make a unit stuck.

    `clock_limit`: how far the clock of a node may be from that of the head at a start. Leases count by the monotonic
    clock of each machine. It is the journals of the ranks that need it: they are read in one order, in which an end
    must come before what follows from it at the next question (`ask`). Certificates tolerate minutes.
    `evidence`: for what a rank that hangs shows, before it is stopped; 0: nothing is collected.
    """

    ask: float = 2.0
    lease: float = 10.0
    gate_limit: float = 180.0
    stop_limit: float = 90.0
    ready_limit: float = 5400.0
    first_limit: float = 300.0
    probe_interval: float = 60.0
    probe_limit: float = 60.0
    drain: float = 0.0
    clock_limit: float = 1.0
    evidence: float = 3.0
    probe_misses: int = 2

    @property
    def busy_interval(self) -> float:
        """Return the seconds between two readings of the counters of a busy engine, which cost less than a completion.

        An engine that gets stuck between two readings is found at the second one after it. So both together are not
        longer than what an idle unit waits, or a unit would be stuck for longer under load.
        """
        return min(self.probe_interval / 2, self.lease / 2)


@dataclass(frozen=True)
class RestartBudget:
    """At most `times` restarts `within` so many seconds, and none of a unit that ended before `uptime` seconds."""

    times: int = 1
    within: float = 21600.0
    uptime: float = 600.0


@dataclass(frozen=True)
class UnitProbe:
    """The request that proves a unit, and what shows without one that its engine computes.

    `kind`: what is asked for: chat, completion, embedding, or score, a ranking of documents; with `chat` a chat
    completion is asked for as well, once after each start, and with `tool` a tool call. `answer`: the word with which
    the completion begins; with an empty one any clean text proves it.
    `dimension`: the numbers of an embedding; 0: those of the first answer. `counters`: one that rises is progress.
    `gauges`: one that changes while the engine has requests is progress, too. `named`: whether /v1/models must have the
    name of the model, since the engine answers whatever name a request has.
    """

    kind: str = "chat"
    prompt: str = "2+2="
    answer: str = "4"
    max_tokens: int = 8
    counters: tuple[str, ...] = ()
    gauges: tuple[str, ...] = ()
    tool: bool = False
    dimension: int = 0
    named: bool = False

    @property
    def noun(self) -> str:
        """What is asked for, as a word: completion, embedding or ranking."""
        return {"embedding": "embedding", "score": "ranking"}.get(self.kind, "completion")


@dataclass(frozen=True)
class ServedUnit:
    """One unit, as its file declares it."""

    name: str
    model: str
    ranks: tuple[ServedRank, ...]
    head: tuple[str, int]
    api: tuple[str, int]
    key_file: str | None
    secret_file: str
    gate: tuple[str, ...]
    service: str
    systemctl: tuple[str, ...]
    journalctl: tuple[str, ...]
    requests: tuple[str, ...] = ()
    probe: UnitProbe = field(default_factory=UnitProbe)
    times: ServeTimes = field(default_factory=ServeTimes)
    restart: RestartBudget = field(default_factory=RestartBudget)
    boot: str = "hold"
    version: str = ""
    rdma: str = "ignored"
    engine: str = ""
    phases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def rank(self, number: int) -> ServedRank:
        """Return a rank by its number. Raises ServeError when there is none."""
        if not 0 <= number < len(self.ranks):
            raise ServeError(f"unit {self.name} has no rank {number}, expected 0 to {len(self.ranks) - 1}")
        return self.ranks[number]


def load_unit(path: str) -> ServedUnit:
    """Read a unit file, which sparkrack writes from a rack.yaml whose rules hold. Raises ServeError with its path for a
    file of another form, and for values with which no unit can run.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            values = json.load(file)
    except OSError as error:
        raise ServeError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ServeError(f"{path}: not JSON: {error}") from None
    try:
        unit = _parse_unit(values)
        fault = _find_fault(unit)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else line(error)
        fault = f"is not a unit file of this release: {what}; run `sparkrack apply --only serving`"
    if fault:
        raise ServeError(f"{path}: {fault}")
    return unit


def _parse_unit(values: Any) -> ServedUnit:
    """Return the unit of a file. A key that is missing, or unknown, raises KeyError or TypeError with its name."""
    given, metrics = dict(values), dict(values.get("metrics", {}))
    head, _ = _parse_endpoint(**given.pop("head"))
    api, key_file = _parse_endpoint(**given.pop("api"))
    requests = tuple(metrics.pop("requests", ()))
    found: dict[str, Any] = {
        "service": f"sparkrack-serve-{given['name']}.service",
        "systemctl": ["systemctl"],
        "journalctl": ["journalctl"],
        **given,
        "ranks": tuple(ServedRank(number, **rank) for number, rank in enumerate(given["ranks"])),
        "metrics": {key: tuple(names) for key, names in metrics.items()},
    }
    found |= {key: tuple(found[key]) for key in ("gate", "systemctl", "journalctl")}
    return ServedUnit(
        head=head,
        api=api,
        key_file=key_file,
        requests=requests,
        probe=UnitProbe(**found.pop("probe", {}), **found.pop("metrics")),
        times=ServeTimes(**found.pop("times", {})),
        restart=RestartBudget(**found.pop("restart", {})),
        **found,
    )


def _parse_endpoint(address: str, port: int, key_file: str | None = None) -> tuple[tuple[str, int], str | None]:
    """Return address and port, and the path of a key file where there is one."""
    return (address, port), key_file


def _find_fault(unit: ServedUnit) -> str:
    """Return why no unit can run with these values; empty for none."""
    times = unit.times
    if not unit.ranks or len({rank.address for rank in unit.ranks}) < len(unit.ranks):
        return "ranks: there is none, or two have the same address"
    if not 0 < 2 * times.ask <= times.lease:
        return f"times: lease is {times.lease:g} s, expected at least twice ask ({times.ask:g} s)"
    return "" if times.probe_misses >= 1 else f"times: probe_misses is {times.probe_misses}, expected 1 or more"


def read_previous(path: str) -> int | None:
    """Return the generation whose files were put back beside a unit file; None when they are not previous ones, 0 when
    they are and the note does not say which. It keeps no unit from running.
    """
    try:
        text = Path(path).with_suffix(".previous").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdigit() and len(text) < 19 else 0


def read_private(path: str) -> bytes:
    """Return the content of a file that only its owner, root or this user, may read. Raises ServeError without it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ServeError(f"{path}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise ServeError(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
            raise ServeError(f"{path}: owner or mode {found.st_mode & 0o777:03o} is wrong: set owner root, mode 600")
        return file.read(LINE_LIMIT)


def read_secret(unit: ServedUnit) -> bytes:
    """Return the shared secret. Raises ServeError when it cannot be read or is too short."""
    secret = read_private(unit.secret_file).strip()
    if len(secret) < 32:
        raise ServeError(f"{unit.secret_file}: {len(secret)} bytes, expected at least 32")
    return secret


def write_record(path: str, record: Mapping[str, Any], durable: bool = True) -> None:
    """Replace a JSON file; with `durable` it is on the disk before this returns. Raises OSError."""
    temporary = Path(f"{path}.new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())
    temporary.replace(path)
    if not durable:
        return
    folder = os.open(temporary.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_record(path: str) -> dict[str, Any] | None:
    """Return a JSON object from a file, None when there is no file. Raises ServeError for anything else."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServeError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ServeError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ServeError(f"{path}: expected an object")
    return found


def line(text: object, limit: int = 300) -> str:
    """Return text as one printable line of at most `limit` characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return words if len(words) <= limit else f"{words[: limit - 3]}..."


def log(text: str) -> None:
    """Print a line for the journal."""
    print(line(text, 1000), flush=True)


def report_alive() -> None:
    """Tell systemd that this program goes on, as WatchdogSec= of its service expects. Without systemd, do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to:
        to.sendto(b"WATCHDOG=1", f"\0{address[1:]}" if address.startswith("@") else address)


# Messages


def challenge() -> str:
    """Return a random challenge."""
    return secrets.token_hex(16)


def seal(secret: bytes, direction: str, context: str, content: Mapping[str, Any]) -> bytes:
    """Return a message as the line that is sent: `direction` is question or answer, `context` what its MAC covers."""
    payload = json.dumps(content, separators=(",", ":"))
    return f"{_sign_message(secret, direction, context, payload)} {payload}\n".encode()


def unseal(secret: bytes, direction: str, context: str, text: str) -> dict[str, Any]:
    """Return the content of a received line. Raises ServeError when its MAC is wrong; only then it is parsed."""
    mac, _, payload = text.partition(" ")
    if not hmac.compare_digest(mac.encode(), _sign_message(secret, direction, context, payload).encode()):
        raise ServeError("wrong authentication code")
    try:
        content = json.loads(payload)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ServeError("the message is not a JSON object")
    return content


def _sign_message(secret: bytes, direction: str, context: str, payload: str) -> str:
    return hmac.new(secret, f"{direction}\n{context}\n{payload}".encode(), hashlib.sha256).hexdigest()


def read_line(connection: socket.socket, deadline: float) -> str:
    """Return the next line from a connection, until `deadline` of the monotonic clock.

    Raises OSError when it does not come in time, or the connection ends; ServeError when it is too long or no text.
    """
    received = b""
    while not received.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no complete line in time")
        connection.settimeout(left)
        part = connection.recv(LINE_LIMIT)
        if not part:
            raise ConnectionResetError("the connection ended")
        received += part
        if len(received) > LINE_LIMIT:
            raise ServeError("the line is too long")
    try:
        return received.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise ServeError("the line is not text") from None


def ask(unit: ServedUnit, secret: bytes, content: Mapping[str, Any], limit: float, source: str = "") -> dict[str, Any]:
    """Send one message to the coordinator, from the address `source`, and return its answer, within `limit` seconds.

    Raises OSError when the coordinator does not answer, ServeError when its answer is not authentic.
    """
    return ask_at(unit.head, secret, {**content, "unit": unit.name}, limit, source)


def ask_at(
    address: tuple[str, int], secret: bytes, content: Mapping[str, Any], limit: float, source: str = ""
) -> dict[str, Any]:
    """Send one message to another program of the unit, with the time of this node, and return the answer. Raises as
    `ask`.
    """
    deadline = time.monotonic() + limit
    with socket.create_connection(address, limit, (source, 0) if source else None) as connection:
        once = read_line(connection, deadline)
        if not _CHALLENGE.fullmatch(once):
            raise ServeError("the challenge has the wrong form")
        nonce = challenge()
        # Between challenge and receipt, so that the other end knows the time of this node as well as it knows its own.
        connection.sendall(seal(secret, "question", once, {**content, "nonce": nonce, "clock": time.time()}))
        return unseal(secret, "answer", once + nonce, read_line(connection, deadline))
