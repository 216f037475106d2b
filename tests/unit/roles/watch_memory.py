"""The memory of Prometheus with many nodes: `python -m tests.unit.roles.watch_memory [--targets 8 64] [--minutes 10]`.

A real Prometheus runs with the configuration and the rules of the role for two nodes, in which the list of targets is
replaced by that many. Each target answers with what the exporter of the role prints on this machine, with other values
at each scrape. Prints a line a minute: targets, series, MiB of resident memory, seconds of CPU time.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from roles.watch import desired
from tests.unit.roles.watch_server import Server, on_loopback, wait_for
from tests.unit.roles.watch_tools import rack, written

FIRST = IPv4Address("127.32.0.1")
_VALUE = re.compile(rb"^([a-z_:]+(?:\{[^}]*\})?) ([0-9.e+-]+)$", re.MULTILINE | re.IGNORECASE)


def exporter_text(server: Server) -> bytes:
    """Return what the exporter of a node prints."""
    name = next(iter(server.rack.nodes))
    server.start(name, desired.exporter_dropin(server.rack, server.rack.nodes[name]))
    url = f"http://{server.rack.nodes[name].address}:{desired.EXPORTER_PORT}/metrics"

    def asked() -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            return b""

    text: bytes = wait_for("the exporter", asked)
    server.stop(name)
    return text


def targets(text: bytes, count: int) -> list[str]:
    """Serve the text at as many addresses; a third of its values differ at each scrape."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = time.time()
            body = _VALUE.sub(lambda m: m[0] if len(m[1]) % 3 else m[1] + f" {float(m[2]) + now % 1000}".encode(), text)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    places = []
    for number in range(count):
        server = ThreadingHTTPServer((str(FIRST + number), 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        places.append(f"{FIRST + number}:{server.server_address[1]}")
    return places


def measure(count: int, minutes: int) -> None:
    """Run Prometheus with so many targets, and print its memory."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        found, _ = on_loopback(rack("{interval: 15s}"))
        server = Server(found, folder)
        written(folder, found)
        places = targets(exporter_text(server), count)
        yaml, file = YAML(), folder / "sparkrack.yml"
        document: dict[str, Any] = yaml.load(file)
        nodes = next(job for job in document["scrape_configs"] if job["job_name"] == "node")
        nodes["static_configs"] = [
            {"targets": [place], "labels": {"node": f"node{number}", "vendor": "asus", "rank": str(number)}}
            for number, place in enumerate(places)
        ]
        yaml.dump(document, file)
        server.start("prometheus", desired.prometheus_dropin(found))
        try:
            for minute in range(1, minutes + 1):
                time.sleep(60)
                print(f"{count} targets, {minute} min: {_describe_memory(server)}", flush=True)
        finally:
            server.stop_all()


def _describe_memory(server: Server) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:  # noqa: S310 - the server of this run
        text = answer.read().decode()

    def value(name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else float("nan")

    series, memory = value("prometheus_tsdb_head_series"), value("process_resident_memory_bytes") / 2**20
    return f"{series:.0f} series, {memory:.0f} MiB, {value('process_cpu_seconds_total'):.1f} s of CPU time"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The memory of Prometheus with many nodes.")
    parser.add_argument("--targets", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--minutes", type=int, default=10)
    given = parser.parse_args()
    for number in given.targets:
        measure(number, given.minutes)
