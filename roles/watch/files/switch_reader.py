#!/usr/bin/python3
"""Read the switches of a rack over REST, as metrics for the textfile collector of node_exporter.

    switch_reader.py read --targets FILE --passwords FILE --out FILE     ask each switch once
    switch_reader.py publish SOURCE TARGET      replace TARGET by SOURCE; remove TARGET where there is no SOURCE

`read` needs no root and writes what it knows of now, nothing else: a switch that does not answer has
`sparkrack_switch_up 0` and the reason, and a part of an answer that is missing or unreadable has no value. `publish`
runs as root, since the folder of the collector is root's; it follows no link and takes only a small text file.

The certificate of a switch is compared with its pinned SHA-256 before anything is sent, on every connection. REST is
used since the reader of a switch has the policies `read` and `rest-api`, and no other.

Standard library only, Python 3.10 or later. Exit codes: 0 done, 1 failed, 2 wrong arguments; reasons are on stderr.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import math
import os
import re
import ssl
import stat
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 10.0
"""Seconds for a connection, and for a part of an answer."""
ALL_SECONDS = 40.0
"""Seconds for all switches, which are asked at the same time; one that has not answered then is silent."""
LARGEST = 4 * 1024 * 1024
"""Bytes of one answer."""
PUBLISHED = 1024 * 1024
"""Bytes of a file of metrics."""
SENSORS = 64
"""Rows of sensors that are read."""

PROBLEMS = ("unreachable", "refused", "certificate", "login", "answer")
"""Why a switch could not be read. `refused`: it closed the connection. `answer`: it sent what cannot be used."""
PARTS = ("system", "temperatures", "fans", "supplies", "ports", "links")
"""What is read of a switch that answers."""

DROPS = ("rx-drop", "tx-drop", "tx-drop-packet", *(f"tx-drop-queue{queue}-packet" for queue in range(8)))
ERRORS = ("rx-fcs-error", "rx-align-error", "rx-code-error", "rx-fragment", "tx-fcs-error", "rs-fec-uncorrected")
PAUSES = ("rx-pause", "tx-pause")
# claim: watch.switch-counters
COUNTERS = (*DROPS, *ERRORS, *PAUSES)
"""Counters of a port (command tree of RouterOS 7.23). A release or a port may lack some."""

HELP = {
    "sparkrack_switch_up": "Whether the switch answered its reader.",
    "sparkrack_switch_problem": "Why the switch could not be read: 1 for the reason.",
    "sparkrack_switch_reading_timestamp_seconds": "When the switch was asked, successful or not.",
    "sparkrack_switch_part_read": "Whether this part of the answer could be read whole.",
    "sparkrack_switch_info": "Release and board.",
    "sparkrack_switch_uptime_seconds": "Time since the switch was started.",
    "sparkrack_switch_temperature_celsius": "Temperature of a sensor.",
    "sparkrack_switch_fan_rpm": "Speed of a fan.",
    "sparkrack_switch_psu_ok": "Whether a power supply is in order.",
    "sparkrack_switch_psus_expected": "How many power supplies are expected to be connected.",
    "sparkrack_switch_health": "Any other sensor.",
    "sparkrack_switch_leg_up": "Whether the leg has a link.",
    "sparkrack_switch_leg_bits_per_second": "Speed of the link of the leg.",
    "sparkrack_switch_leg_fec": "Forward error correction of the link of the leg: 1 for its mode.",
    "sparkrack_switch_leg_drops_total": "Frames that the port dropped, by the switch's counter.",
    "sparkrack_switch_leg_errors_total": "Errors of the port, by the switch's counter.",
    "sparkrack_switch_leg_pause_frames_total": "Pause frames of the port.",
}
"""Every metric with its meaning; its order is that of the file."""

Row = Mapping[str, str]


class ReaderError(Exception):
    """What ends the program, in one line."""


class SwitchProblemError(Exception):
    """Why a switch could not be read: one of PROBLEMS, and one line."""

    def __init__(self, problem: str, line: str) -> None:
        super().__init__(line)
        self.problem = problem


class Metrics:
    """Values by metric and labels. A second value of a series is ignored: the collector would reject the whole file."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {name: {} for name in HELP}

    def add(self, name: str, value: float, /, **labels: str) -> None:
        """Add one value."""
        self._values[name].setdefault(tuple(labels.items()), value)

    def merge(self, other: Metrics) -> None:
        """Add all values of another one."""
        for name, values in other._values.items():
            for labels, value in values.items():
                self._values[name].setdefault(labels, value)

    def text(self) -> str:
        """Return the file."""
        lines = []
        for name, values in self._values.items():
            if values:
                kind = "counter" if name.endswith("_total") else "gauge"
                lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]
                lines += [f"{name}{{{_format_labels(labels)}}} {value!r}" for labels, value in values.items()]
        return "".join(f"{line}\n" for line in lines)


def _format_labels(labels: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{_escape_label_value(value)}"' for name, value in labels)


def _escape_label_value(value: str) -> str:
    """A text of a switch as the value of a label: printable, and not long."""
    line = "".join(c if c.isprintable() and c.isascii() else "?" for c in value[:80])
    return line.replace("\\", "\\\\").replace('"', '\\"')


# The switch


class Connection:
    """A pinned connection to the REST service of one switch; opened again where the switch closes it."""

    def __init__(self, target: Mapping[str, Any], password: str) -> None:
        self._host, self._port, self._sha256 = target["address"], target["port"], target["sha256"]
        credentials = base64.b64encode(f"{target['user']}:{password}".encode()).decode()
        self._user, self._headers = target["user"], {"Authorization": f"Basic {credentials}"}
        self._http: http.client.HTTPSConnection | None = None

    def get(self, path: str, fields: Iterable[str]) -> list[Row]:
        """Return the rows of a menu with these fields."""
        return self._request_rows("GET", f"{path}?.proplist={','.join(fields)}", None)

    def monitor(self, path: str, ids: Iterable[str], fields: Iterable[str]) -> list[Row]:
        """Return what these interfaces do now."""
        body = {"numbers": ",".join(ids), "once": "", ".proplist": list(fields)}
        return self._request_rows("POST", f"{path}/monitor", json.dumps(body))

    def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _request_rows(self, method: str, path: str, body: str | None) -> list[Row]:
        status, data = self._request_or_close(method, f"/rest{path}", body)
        if status == http.client.UNAUTHORIZED:
            raise SwitchProblemError("login", f"login as {self._user} refused")
        if status != http.client.OK:
            raise SwitchProblemError("answer", f"{path.partition('?')[0]}: HTTP {status}")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        rows = found if isinstance(found, list) else [found]
        if not all(isinstance(row, dict) and all(isinstance(text, str) for text in row.values()) for row in rows):
            raise SwitchProblemError("answer", f"{path.partition('?')[0]}: the answer has no rows")
        return rows

    def _request_or_close(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        try:
            return self._exchange_request(method, path, body)
        except SwitchProblemError:
            self.close()
            raise

    def _exchange_request(self, method: str, path: str, body: str | None) -> tuple[int, bytes]:
        try:
            if self._http is None:
                self._http = self._open_pinned_connection()
            more = {"Content-Type": "application/json"} if body is not None else {}
            self._http.request(method, path, body, {**self._headers, **more})
            answer = self._http.getresponse()
            data = answer.read(LARGEST + 1)
            if answer.will_close or len(data) > LARGEST:
                self.close()
        except ssl.SSLEOFError as fault:
            raise SwitchProblemError("refused", f"closed by the switch: {fault.reason or fault}") from None
        except ssl.SSLError as fault:
            raise SwitchProblemError("certificate", f"no TLS: {fault.reason or fault}") from None
        except (ConnectionError, http.client.RemoteDisconnected) as fault:
            raise SwitchProblemError("refused", f"closed by the switch: {fault.strerror or fault}") from None
        except OSError as fault:
            raise SwitchProblemError("unreachable", f"no answer: {fault.strerror or fault}") from None
        except http.client.HTTPException as fault:
            raise SwitchProblemError("answer", f"not HTTP: {type(fault).__name__}") from None
        if len(data) > LARGEST:
            raise SwitchProblemError("answer", "the answer is too long")
        return answer.status, data

    def _open_pinned_connection(self) -> http.client.HTTPSConnection:
        # The switch signs its certificate itself: there is no chain to verify, and the fingerprint is stronger.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        found = http.client.HTTPSConnection(self._host, self._port, timeout=ANSWER_SECONDS, context=context)
        # It must not connect by itself, past the comparison below.
        found.auto_open = 0
        found.connect()
        shown = hashlib.sha256(found.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(shown, self._sha256):
            found.close()
            raise SwitchProblemError("certificate", f"the switch shows certificate {shown}, pinned is {self._sha256}")
        return found


def read_switch(target: Mapping[str, Any], password: str) -> Metrics:
    """Return what one switch answers. Never raises for what it answers, or does not."""
    metrics, switch = Metrics(), str(target["name"])
    metrics.add("sparkrack_switch_reading_timestamp_seconds", float(int(time.time())), switch=switch)
    connection = Connection(target, password)
    problem = ""
    try:
        resource = connection.get("/system/resource", ("uptime", "version", "board-name"))
        _add_system_metrics(metrics, switch, resource)
        for part in (_add_sensor_metrics, _add_port_metrics):
            try:
                part(metrics, target, connection)
            except SwitchProblemError as fault:
                if fault.problem != "answer":
                    raise
                _log_line(f"{switch}: {fault}")
    except SwitchProblemError as fault:
        # What was read before is of this minute, but a switch that is gone has no state.
        metrics, problem = Metrics(), fault.problem
        metrics.add("sparkrack_switch_reading_timestamp_seconds", float(int(time.time())), switch=switch)
        _log_line(f"{switch}: {problem}: {fault}")
    finally:
        connection.close()
    _add_verdict(metrics, target, problem)
    return metrics


def silent(target: Mapping[str, Any]) -> Metrics:
    """Return the metrics of a switch that did not answer in time."""
    metrics = Metrics()
    metrics.add("sparkrack_switch_reading_timestamp_seconds", float(int(time.time())), switch=str(target["name"]))
    _add_verdict(metrics, target, "unreachable")
    return metrics


def _add_verdict(metrics: Metrics, target: Mapping[str, Any], problem: str) -> None:
    switch = str(target["name"])
    metrics.add("sparkrack_switch_up", float(not problem), switch=switch)
    metrics.add("sparkrack_switch_psus_expected", float(target["supplies"]), switch=switch)
    for one in PROBLEMS:
        metrics.add("sparkrack_switch_problem", float(one == problem), switch=switch, problem=one)
    for part in PARTS if not problem else ():
        # A part that was read whole is there already.
        metrics.add("sparkrack_switch_part_read", 0.0, switch=switch, part=part)


def _add_system_metrics(metrics: Metrics, switch: str, rows: list[Row]) -> None:
    row = rows[0] if len(rows) == 1 else {}
    uptime, version = _parse_uptime(row.get("uptime", "")), row.get("version", "")
    if uptime is not None:
        metrics.add("sparkrack_switch_uptime_seconds", uptime, switch=switch)
    if version:
        board = row.get("board-name", "")
        metrics.add("sparkrack_switch_info", 1.0, switch=switch, version=version, board=board)
    _add_part_read(metrics, switch, "system", whole=uptime is not None and bool(version))


# claim: watch.switch-sensors
def _add_sensor_metrics(metrics: Metrics, target: Mapping[str, Any], connection: Connection) -> None:
    """One row a sensor; which there are, and how they are called, differs by model."""
    switch = str(target["name"])
    whole: dict[str, bool] = {}
    for row in connection.get("/system/health", ("name", "value"))[:SENSORS]:
        name, value = row.get("name", ""), _parse_number(row.get("value", ""))
        if "temperature" in name:
            kind, metric, label = "temperatures", "sparkrack_switch_temperature_celsius", {"sensor": name}
        elif re.fullmatch(r"fan[0-9]*-speed", name):
            kind, metric, label = "fans", "sparkrack_switch_fan_rpm", {"fan": name.removesuffix("-speed")}
        elif re.fullmatch(r"psu[0-9]*-state", name):
            kind, metric, label = "supplies", "sparkrack_switch_psu_ok", {"psu": name.removesuffix("-state")}
            value = float(row["value"] == "ok") if row.get("value") else None
        else:
            kind, metric, label = "", "sparkrack_switch_health", {"name": name}
        if value is not None:
            metrics.add(metric, value, switch=switch, **label)
        whole[kind] = whole.get(kind, True) and value is not None
    for kind in ("temperatures", "fans", "supplies"):
        _add_part_read(metrics, switch, kind, whole=whole.get(kind, False))


def _add_port_metrics(metrics: Metrics, target: Mapping[str, Any], connection: Connection) -> None:
    """The counters and the links of the cabled legs."""
    switch, legs = str(target["name"]), target["legs"]
    rows = connection.get("/interface/ethernet", (".id", "default-name", "name", *COUNTERS))
    ports = {row["default-name"]: row for row in rows if row.get("default-name") in legs}
    for leg, row in ports.items():
        place = {"switch": switch, "leg": f"{switch}/{leg}", "to": str(legs[leg])}
        for metric, counters in (("drops", DROPS), ("errors", ERRORS)):
            for counter in counters:
                value = _parse_number(row.get(counter, ""))
                if value is not None:
                    metrics.add(f"sparkrack_switch_leg_{metric}_total", value, **place, counter=counter)
        for counter in PAUSES:
            value = _parse_number(row.get(counter, ""))
            if value is not None:
                way = {"rx": "received", "tx": "sent"}[counter[:2]]
                metrics.add("sparkrack_switch_leg_pause_frames_total", value, **place, direction=way)
    counted = all(any(_parse_number(row.get(counter, "")) is not None for counter in DROPS) for row in ports.values())
    _add_part_read(metrics, switch, "ports", whole=ports.keys() == legs.keys() and counted)
    names = {row.get("name", ""): leg for leg, row in ports.items()}
    found = set()
    ids = [row[".id"] for row in ports.values() if row.get(".id")]
    for row in connection.monitor("/interface/ethernet", ids, ("name", "status", "rate", "fec")) if ids else ():
        status, linked = row.get("status", ""), names.get(row.get("name", ""))
        if linked is None or status in ("", "unknown"):
            continue
        found.add(linked)
        place = {"switch": switch, "leg": f"{switch}/{linked}", "to": str(legs[linked])}
        metrics.add("sparkrack_switch_leg_up", float(status == "link-ok"), **place)
        rate = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([GM])bps", row.get("rate", ""))
        if status == "link-ok" and rate:
            metrics.add("sparkrack_switch_leg_bits_per_second", float(rate[1]) * {"G": 1e9, "M": 1e6}[rate[2]], **place)
        if status == "link-ok" and row.get("fec"):
            metrics.add("sparkrack_switch_leg_fec", 1.0, **place, mode=row["fec"])
    _add_part_read(metrics, switch, "links", whole=found == legs.keys())


def _add_part_read(metrics: Metrics, switch: str, part: str, *, whole: bool) -> None:
    metrics.add("sparkrack_switch_part_read", float(whole), switch=switch, part=part)


def _parse_number(text: str) -> float | None:
    found = float(text) if re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{1,6})?", text, re.ASCII) else math.nan
    return found if math.isfinite(found) else None


def _parse_uptime(text: str) -> float | None:
    """A time as RouterOS prints it, like 1w2d3h4m5s."""
    found = re.fullmatch(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text, re.ASCII) if text else None
    if found is None:
        return None
    sizes = (604800, 86400, 3600, 60, 1)
    return float(sum(int(part or 0) * size for part, size in zip(found.groups(), sizes, strict=True)))


def _log_line(line: str) -> None:
    print("".join(c if c.isprintable() else "?" for c in line), file=sys.stderr, flush=True)


# The files


def read_all(targets: list[Mapping[str, Any]], passwords: Mapping[str, str]) -> str:
    """Ask all switches at the same time, and return the file."""
    found: dict[str, Metrics] = {}

    def ask(target: Mapping[str, Any]) -> None:
        found[target["name"]] = read_switch(target, passwords[target["name"]])

    threads = [threading.Thread(target=ask, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    end = time.monotonic() + ALL_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = [target for target in targets if target["name"] not in found]
    metrics = Metrics()
    for target in targets:
        metrics.merge(silent(target) if target in late else found[target["name"]])
    for target in late:
        _log_line(f"{target['name']}: no whole answer within {ALL_SECONDS:g} s")
    return metrics.text()


def read(targets: Path, passwords: Path, out: Path) -> None:
    """Ask the switches that `targets` lists, and write their metrics."""
    declared, secrets = _read_json(targets), _read_json(passwords)
    try:
        for target in declared["switches"]:
            for key, kind in (("name", str), ("address", str), ("port", int), ("sha256", str), ("user", str)):
                if not isinstance(target[key], kind):
                    raise TypeError(key)  # noqa: TRY301 - one place answers for both files
            if not isinstance(secrets[target["name"]], str) or not isinstance(target["legs"], dict):
                raise TypeError(target["name"])  # noqa: TRY301
            target["supplies"] = int(declared["supplies"])
    except (LookupError, TypeError, ValueError) as fault:
        raise ReaderError(f"{targets} and {passwords} do not fit: {fault}") from None
    text = read_all(declared["switches"], secrets)
    try:
        side = out.with_name(f".{out.name}.new")
        side.write_text(text)
        side.replace(out)
    except OSError as fault:
        raise ReaderError(f"{out}: {fault.strerror}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as fault:
        raise ReaderError(f"{path}: {fault.strerror}") from None
    except ValueError:
        # Without the text, which may be a password.
        raise ReaderError(f"{path}: not JSON") from None


def publish(source: Path, target: Path) -> None:
    """Replace `target` by the content of `source`; remove it where there is none, so that no old value stays."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        target.unlink(missing_ok=True)
        return
    except OSError as fault:
        target.unlink(missing_ok=True)
        raise ReaderError(f"{source}: {fault.strerror}") from None
    try:
        found = os.fstat(handle)
        regular = stat.S_ISREG(found.st_mode) and found.st_size <= PUBLISHED
        content = os.read(handle, PUBLISHED) if regular else b""
    finally:
        os.close(handle)
    if not regular:
        target.unlink(missing_ok=True)
        raise ReaderError(f"{source}: no file of metrics")
    try:
        # The collector reads files that end with .prom.
        side = target.with_name(f".{target.name}.new")
        side.write_bytes(content)
        side.chmod(0o644)
        side.replace(target)
    except OSError as fault:
        raise ReaderError(f"{target}: {fault.strerror}") from None


def main() -> int:
    """Carry out what the arguments say."""
    parser = argparse.ArgumentParser(description="Read the switches of a rack as metrics.")
    commands = parser.add_subparsers(dest="command", required=True)
    reading = commands.add_parser("read")
    for name in ("targets", "passwords", "out"):
        reading.add_argument(f"--{name}", type=Path, required=True)
    publishing = commands.add_parser("publish")
    publishing.add_argument("source", type=Path)
    publishing.add_argument("target", type=Path)
    given = parser.parse_args()
    try:
        if given.command == "read":
            read(given.targets, given.passwords, given.out)
        else:
            publish(given.source, given.target)
    except ReaderError as fault:
        _log_line(str(fault))
        return 1
    return 0


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    # A thread that waits for a silent switch must not delay the end.
    os._exit(ended)
