"""A virtual rack for tests: the commands that a user has, and a few looks behind them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from core.model.role import role_named
from lab.count_writes import count
from lab.lab import Lab
from lab.paths import LabPaths
from tests.lab_counts import count_command

REPOSITORY = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent


HALVES = "enp1s0f1np1 enP2p1s0f1np1"
"""The interfaces of one port of a node."""
ALONE = "from importlib import import_module\n\nfrom pyinfra.context import host\n\n"
LINES = {
    "switch": 'if "switches" in host.groups: '
    'import_module("switch.apply").apply(rack=host.data.rack, switch=host.data.switch)\n',
    "role": 'if "nodes" in host.groups: import_module("{}.apply").apply(rack=host.data.rack, node=host.data.node)\n',
}
"""A deploy file of some roles, a line each."""


@dataclass
class VirtualRack:
    """One lab in a folder of its own."""

    folder: Path
    nodes: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "RACK"},
            "SPARKRACK_LAB": str(self.folder),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "COLUMNS": "200",
        }

    @property
    def paths(self) -> LabPaths:
        return LabPaths(self.folder)

    @cached_property
    def inner(self) -> Lab:
        """The lab as its own commands have it."""
        return Lab(self.paths, lambda _line: None)

    def lab(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`sparkrack lab ...`"""
        return self.run("sparkrack", "lab", *words, check=check)

    def inside(self, *command: str, check: bool = True, rack: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command inside the lab's network, as `sparkrack lab run` runs it, without another start of Python."""
        count_command(command)
        extra = self.inner.variables() | ({"RACK": str(rack)} if rack else {})
        return self.run(*self.inner.entering(), *command, check=check, extra=extra)

    def deploy(
        self,
        *words: str,
        check: bool = True,
        rack: Path | None = None,
        deploy: str = "deploy.py",
        roles: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """`pyinfra inventory.py deploy.py ...`; `roles`: these alone, where a test is about nothing else."""
        deploy = self.deploy_file(roles) if roles else deploy
        return self.inside("pyinfra", "inventory.py", deploy, *words, check=check, rack=rack)

    def deploy_file(self, roles: tuple[str, ...]) -> str:
        """Write a deploy file of these roles alone, and return its path."""
        file = self.folder / f"{'-'.join(roles)}.py"
        lines = [LINES["switch" if role == "switch" else "role"].format(role_named(role).package) for role in roles]
        file.write_text("".join([ALONE, *lines]))
        return str(file)

    def command(self, *words: str, rack: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`sparkrack ...` inside the lab, whatever it ends with."""
        return self.inside("sparkrack", *words, check=False, rack=rack)

    def verify(self, *words: str, check: bool = True, rack: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`sparkrack verify ...`"""
        return self.inside("sparkrack", "verify", *words, check=check, rack=rack)

    def ssh(self, node: str, script: str, check: bool = True) -> str:
        """Return the output of a script on a node, run as root."""
        login = self.inner.logins.ssh(node)
        return self.run(*self.inner.entering(), *login, "sudo", "sh", "-c", shlex.quote(script), check=check).stdout

    @contextmanager
    def slow_fabric(self, *nodes: str) -> Iterator[None]:
        """Limit what these nodes send over both halves of their port to 20 Mbit/s."""
        change = f"for half in {HALVES}; do tc qdisc {{}} dev $half root {{}}; done"
        for node in nodes:
            self.ssh(node, change.format("add", "netem rate 20mbit"))
        try:
            yield
        finally:
            for node in nodes:
                self.ssh(node, change.format("del", ""))

    def etc(self) -> dict[str, str]:
        """A hash of all of /etc, names, modes and content, of each node."""
        return {node: self.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in self.nodes}

    def writes(self) -> int:
        """Return the number of writes that the switch has executed since it was built."""
        return count([self.paths.switch("crs812") / "log.ndjson"])

    def control(self, request: Mapping[str, object]) -> dict[str, object]:
        """Ask the emulated switch's control socket."""
        import socket

        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.paths.switch("crs812") / "control"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, object] = json.loads(connection.makefile().readline())
            return answer

    def run(
        self, *command: str, check: bool = True, extra: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**self.environment, **(extra or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done
