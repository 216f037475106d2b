"""A rack that answers as that of a bundle: emulated switches on loopback, and nodes that repeat their answers."""

from __future__ import annotations

import base64
import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack, load
from core.model.cabling import Leg
from core.model.errors import ConfigError
from core.probes import protocol
from core.ssh.root_shell import UnreachableError
from core.util.project_files import PACKAGES
from lab import certificate, private_file
from lab.routeros_emulator.config import CableTail, EmulatedCable, SwitchConfig, User
from sparkrack.accept.bundle import IDENTITY, AcceptBundle, BundleError, RecordedAnswer

START_SECONDS = 60
"""Seconds until an emulated switch listens."""
_USER = "sparkrack-import"
_PLACEHOLDER = {"port": 1, "tls": {"sha256": "0" * 64}, "password": {"env": "NOT_STARTED"}}
"""Of a switch of the rack that is not in the bundle, or is not started yet; its port refuses connections."""


@dataclass(frozen=True)
class Replica:
    """The rack of a bundle; `switches`: those of it that answer."""

    rack: Rack
    switches: tuple[str, ...]
    nodes: Mapping[str, Mapping[str, RecordedAnswer]]

    @contextmanager
    def shells(
        self, _rack: Rack, names: Sequence[str], _seconds: float, _connect_seconds: int
    ) -> Iterator[Mapping[str, ReplayShell]]:
        """A shell on each of these nodes that repeats what the node answered."""
        yield {name: ReplayShell(name, self.nodes.get(name, {})) for name in names}


class ReplayShell:
    """In the place of a shell on a node: it repeats the recorded answers and runs nothing."""

    def __init__(self, node: str, answers: Mapping[str, RecordedAnswer]) -> None:
        self._node, self._answers = node, answers

    def run(self, command: str) -> Any:
        """Return the answers to the commands that a script of a probe has. Raises UnreachableError."""
        silent = self._answers.get(IDENTITY)
        if silent or not self._answers:
            raise UnreachableError(self._node, silent.unknown if silent else "it is not in the bundle")
        lines = []
        for name in re.findall(r"^c (\S+)", command, re.MULTILINE):
            answer = self._answers.get(name)
            if answer and not answer.unknown:
                content = base64.b64encode(f"{answer.output}\n{answer.code}".encode()).decode()
                lines.append(f"{name} {content}")
        return SimpleNamespace(stdout_bytes="\n".join([*lines, protocol.END, ""]).encode())


@contextmanager
def replica(bundle: AcceptBundle) -> Iterator[Replica]:
    """Start the rack of a bundle; after the block all of it is ended and removed. Raises BundleError."""
    with TemporaryDirectory(prefix="sparkrack-import-") as name, ExitStack() as stack:
        folder = Path(name)
        # First without the switches' ports, which are known when they run: the cables are those of the rack file.
        rack = _load(folder, bundle, {})
        started = {
            switch: stack.enter_context(_emulator(folder / switch, rack, switch, fixture))
            for switch, fixture in bundle.switches.items()
            if switch in rack.switches
        }
        yield Replica(_load(folder, bundle, started), tuple(started), bundle.nodes)


def _load(folder: Path, bundle: AcceptBundle, started: Mapping[str, Mapping[str, Any]]) -> Rack:
    document: dict[str, Any] = {
        "rack": "rack",
        "access": {"user": "user", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {
            name: {"address": f"192.0.2.{number}", "vendor": node.vendor, "ports": dict(node.ports)}
            for number, (name, node) in enumerate(bundle.rack.nodes.items(), 1)
        },
        "switches": {
            name: {
                "address": f"127.0.0.{number}",
                "user": _USER,
                "model": switch.model,
                "cages": {cage: dict(keys) for cage, keys in switch.cages.items()},
                **started.get(name, _PLACEHOLDER),
            }
            for number, (name, switch) in enumerate(bundle.rack.switches.items(), 1)
        },
        "fabric": {"subnets": ["198.51.100.0/25", "198.51.100.128/25"]},
    }
    path = folder / "rack.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(document, file)
    try:
        return load(path)
    except ConfigError as fault:
        first = str(fault).splitlines()[0].replace(f"{path}", "rack.json")
        raise BundleError(f"its rack cannot be used here: {first}") from None


@contextmanager
def _emulator(folder: Path, rack: Rack, name: str, fixture: str) -> Iterator[dict[str, Any]]:
    """Run the emulator as a recorded switch; gives the keys of rack.yaml that reach it."""
    folder.mkdir()
    password, recorded, config = folder / "password", folder / "fixture.json", folder / "config.json"
    private_file.make(password, secrets.token_urlsafe(24) + "\n")
    certificate.make(name, folder / "cert.pem", folder / "key.pem")
    recorded.write_text(fixture)
    try:
        running = _running(json.loads(fixture))
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise BundleError(f"switches/{name}.json is no fixture ({type(fault).__name__}: {fault})") from None
    made = SwitchConfig(
        address=rack.switches[name].address,
        api_port=0,
        tls_port=0,
        tls_cert=folder / "cert.pem",
        tls_key=folder / "key.pem",
        state=folder / "state.json",
        log=folder / "log.ndjson",
        settle=0,
        users=(User(name=_USER, password_file=password),),
        cables=tuple(_cables(rack, name, running)),
    )
    config.write_text(made.model_dump_json())
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.routeros_emulator", "--config", str(config), "--fixture", str(recorded)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=PACKAGES,
        )
    try:
        ready = _ready(process, output, name)
        sha256 = certificate.fingerprint(folder / "cert.pem")
        yield {"port": ready["tls_port"], "tls": {"sha256": sha256}, "password": {"file": str(password)}}
    finally:
        process.terminate()
        process.wait()


def _ready(process: subprocess.Popen[bytes], output: Path, name: str) -> dict[str, Any]:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        ended, text = process.poll() is not None, output.read_text(errors="replace")
        if ended:
            last = (text.strip().splitlines() or ["no reason given"])[-1]
            raise BundleError(f"the emulator cannot be {name}: {last}")
        if "\n" in text:
            found: dict[str, Any] = json.loads(text.splitlines()[0])
            return found
        time.sleep(0.05)
    raise BundleError(f"the emulator was not {name} within {START_SECONDS} s")


def _running(fixture: Any) -> frozenset[str]:
    """The ports (default names) that had a link."""
    rows = fixture["menus"].get("/interface/ethernet", ())
    return frozenset(row.get("default-name", "") for row in rows if row.get("running") == "true")


def _cables(rack: Rack, name: str, running: frozenset[str]) -> Iterator[EmulatedCable]:
    """The cables that the rack file declares, with a tail for each leg that had a link."""
    legs: dict[str, list[tuple[Leg, str]]] = {}
    for leg, port in rack.cabling.legs(name):
        legs.setdefault(leg.cage, []).append((leg, port.node))
    for cage, found in legs.items():
        tails = [
            CableTail.model_validate(
                {"lane": leg.lane, "lanes": len(leg.lanes), "gbps": leg.gbps, "node": node, "port": 0}
            )
            for leg, node in found
            if leg.interface in running
        ]
        medium = rack.switches[name].cages[cage].medium
        yield EmulatedCable(cage=cage, medium=medium, tails=tuple(tails))
