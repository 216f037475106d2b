"""A real Prometheus and Alertmanager with their exporters, on loopback addresses of their own: each program started as
its drop-in says, with files in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from core.model import Rack
from core.model.fields import FrozenDict
from core.util.managed_file import ManagedFile
from roles.watch import desired
from tests.own_mounts import UNSHARE, refused
from tests.unit.roles.watch_tools import HEARTBEAT, HOOK, PROGRAMS, UNPACKED, rack, written

LIMIT = 60.0
"""Seconds until something must have happened on a busy machine."""


_START = int(IPv4Address("127.16.0.0")) + os.getpid() % 2**18 * 8


@pytest.fixture(autouse=True, scope="module")
def own_loopback() -> Iterator[None]:
    """An address of this run of the tests in place of 127.0.0.1, where others may have a Prometheus."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(desired, "LOOPBACK", IPv4Address(_START + 6))
        yield


def wait_for(what: str, happened: Callable[[], Any]) -> Any:
    """Return the first true result."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if found := happened():
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {LIMIT:.0f} s")


@dataclass
class Server:
    """What runs. `posted`: what the receiver of alerts got. `beats`: what the receiver of the heartbeat got."""

    rack: Rack
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    posted: list[dict[str, Any]] = field(default_factory=list)
    beats: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The address of Prometheus."""
        return f"http://{desired.listen_address(self.rack)}:{desired.PROMETHEUS_PORT}"

    def metrics(self, name: str) -> Path:
        """The folder of the textfile collector of a node."""
        found = self.folder / f"{name}-node-exporter"
        found.mkdir(exist_ok=True)
        return found

    def start(self, name: str, dropin: ManagedFile) -> None:
        """Start a program as its drop-in says; skip the test where this machine gives it no mounts."""
        if refused():
            pytest.skip(refused())
        text = dropin.content.decode().replace("\\\n", " ").replace("/etc/prometheus/", f"{self.folder}/")
        command = shlex.split(text.rpartition("\nExecStart=")[2].replace("/var/lib/prometheus", str(self.folder)))
        command[0] = str(PROGRAMS / Path(command[0]).name)
        if name in self.rack.nodes:
            # The default of the package is a folder of this machine.
            command.append(f"--collector.textfile.directory={self.metrics(name)}")
        log = (self.folder / f"{name}.log").open("wb")
        # Alertmanager reads the templates of its messages from /usr/share.
        share = [*UNSHARE, "sh", "-c", 'mount --bind "$0" /usr/share; exec "$@"']
        words = [*share, str(UNPACKED / "usr/share"), *command]
        self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self, name: str) -> None:
        """End one program."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(LIMIT)

    def stop_all(self) -> None:
        """End all programs that run."""
        for name in list(self.processes):
            self.stop(name)


@contextmanager
def receiver(address: IPv4Address, posted: list[dict[str, Any]]) -> Iterator[str]:
    """A receiver of alerts; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(json.loads(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((str(address), 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}/s3cret-of-the-hook"
    finally:
        server.shutdown()
        server.server_close()


def on_loopback(found: Rack) -> tuple[Rack, IPv4Address]:
    """The same rack with nodes at addresses of 127.0.0.0/8 that no other run of the tests has, and one more."""
    nodes = {
        name: node.model_copy(update={"address": IPv4Address(_START + rank)})
        for rank, (name, node) in enumerate(found.nodes.items(), 1)
    }
    return found.model_copy(update={"nodes": FrozenDict(nodes)}), IPv4Address(_START + 7)


@contextmanager
def running(folder: Path, declared: Rack | None = None) -> Iterator[Server]:
    """Exporters of the nodes, Prometheus and Alertmanager; by default of two nodes, and on the second. Alerts wait for
    one second.
    """
    notify = "{webhook: {env: WATCH_WEBHOOK}, heartbeat: {env: WATCH_HEARTBEAT}}"
    found, beside = on_loopback(declared or rack(f"{{interval: 5s, notify: {notify}}}"))
    folder.mkdir(exist_ok=True)
    server = Server(found, folder)
    with contextlib.ExitStack() as stack:
        receivers = ((HOOK, server.posted), (HEARTBEAT, server.beats))
        hooks = {ref: stack.enter_context(receiver(beside, got)) for ref, got in receivers}
        written(folder, found, hooks)
        for name, old, new in (
            ("sparkrack-rules.yml", "for: 30s", "for: 1s"),
            ("sparkrack.yml", "_interval: 5s", "_interval: 1s"),
            ("sparkrack.yml", "scrape_timeout: 5s", "scrape_timeout: 1s"),
            ("sparkrack-alertmanager.yml", "group_wait: 10s", "group_wait: 1s"),
        ):
            text = (folder / name).read_text()
            assert old in text
            (folder / name).write_text(text.replace(old, new))
        stack.callback(server.stop_all)
        for name, node in found.nodes.items():
            server.start(name, desired.exporter_dropin(found, node))
        server.start("prometheus", desired.prometheus_dropin(found))
        server.start("alertmanager", desired.alertmanager_dropin(found))
        yield server
