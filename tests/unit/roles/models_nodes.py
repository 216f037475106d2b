"""Nodes in folders: the scripts of the role models run there for real, with stand-ins for systemd and ssh."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.host import Host
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model import Rack, load, model_lock
from core.model.model_lock import ModelFile, ModelRecord
from core.ops import delivery, detached_unit, host_facts
from roles.models import delivery as model_delivery
from roles.models import operator_folder, scripts
from tests.unit.ops import fakenode
from tests.unit.ops.shells import rooted
from tests.unit.roles.cases import DEPLOYS, node_of

SYSTEMD_RUN = """#!/bin/sh
for word in "$@"; do
case $word in
--unit=*) unit=${word#--unit=} ;;
--property=StandardOutput=append:*) log=${word#*append:} ;;
--*) ;;
*) break ;;
esac
shift
done
group=@ROOT@/sys/fs/cgroup/system.slice/$unit.service
[ ! -e @ROOT@/no-units ] || { echo 'Failed to start transient service unit' >&2; exit 1; }
mkdir -p @ROOT@/sys/fs/cgroup/system.slice @ROOT@/started
mkdir "$group" || exit 1
echo "$unit" >> @ROOT@/units
setsid sh -c 'echo $$ > @ROOT@/pid; "$@"; rmdir "$0"' "$group" "$@" </dev/null >>"$log" 2>&1 &
"""
SYSTEMCTL = """#!/bin/sh
for unit in "$@"; do :; done
[ -d "@ROOT@/sys/fs/cgroup/system.slice/$unit" ] || {
[ "$1" = show ] && exec echo 0
[ "$2" = -q ] || echo inactive
exit 3
}
[ "$1" = show ] && exec cat @ROOT@/pid
[ "$2" = -q ] || echo active
"""
SSH = """#!/bin/sh
for word in "$@"; do address=$script; script=$word; done
root=$(sed -n "s#^$address ##p" @WORLD@/addresses)
[ -n "$root" ] && [ ! -e "$root/unreachable" ] || { echo "ssh: $address: No route to host" >&2; exit 255; }
echo "$address" >> @ROOT@/copies
sed "s#@ROOT@/#$root/#g" | PATH=$root/bin:/usr/bin:/bin exec sh -c "$(printf '%s' "$script" | sed "s#@ROOT@/#$root/#g")"
"""
RUNUSER = '#!/bin/sh\n[ "$1 $3" = "-u --" ] || exit 9\nshift 3\nexec "$@"\n'


@dataclass
class ModelNode(fakenode.Answers):
    """One node, in the folder `root`. `edits`: its answers that are not those of the folder."""

    root: Path = Path("/nonexistent")
    edits: dict[str, Any] = field(default_factory=dict)
    lost: int | None = None
    """After so many commands the connection is gone."""
    texts: list[str] = field(default_factory=list)
    """Each command, the probes as well."""

    @property
    def store(self) -> Path:
        return self.root / "srv/models"

    def install(self, world: Path) -> None:
        for tool, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL), ("ssh", SSH), ("runuser", RUNUSER)):
            path = self.root / "bin" / tool
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@ROOT@", str(self.root)).replace("@WORLD@", str(world)))
            path.chmod(0o755)
        for folder in ("run", "srv", "sys/fs/cgroup/system.slice"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def here(self, text: str) -> str:
        """The text of a script, about this folder."""
        own = text.replace("/srv/models", f"{self.root}/srv/models").replace("/usr/bin/python3", sys.executable)
        return rooted(own, self.root)

    def shell(self, text: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["/bin/sh", "-c", self.here(text)],
            input=stdin.encode(),
            capture_output=True,
            env={"PATH": f"{self.root}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
            timeout=60,
        )

    def facts(self) -> dict[str, bytes]:
        probe = host_facts._registered["models"]
        found = {}
        for key, text in probe.commands.items():
            done = self.shell(text)
            assert done.returncode == 0, done.stderr
            found[key] = done.stdout
        return found

    def files(self, name: str) -> dict[str, bytes]:
        """The files of a model, without those of the program."""
        folder = self.store / name
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and ".sparkrack" not in path.parts
        }

    def noted(self, name: str) -> list[str]:
        path = self.root / name
        return path.read_text().split() if path.exists() else []

    def kill(self) -> None:
        """What a reboot does to a transfer."""
        for pid in self.noted("pid"):
            os.killpg(int(pid), signal.SIGKILL)
        for group in (self.root / "sys/fs/cgroup/system.slice").iterdir():
            group.rmdir()


class ModelConnector(fakenode.Node):
    """The connector of such a node."""

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        text, node = command.get_raw_value(), self.answers
        assert isinstance(node, ModelNode)
        assert arguments.get("_sudo"), f"not as root: {text}"
        node.texts.append(text)
        if fakenode.is_probe(text):
            reported = node_of("models") | node.facts() | node.edits
            return True, CommandOutput([OutputLine("stdout", line) for line in fakenode.answer(reported)])
        if node.lost is not None:
            node.lost -= 1
            if node.lost < 0:
                raise OSError("Socket is closed")
        stdin = str(arguments.get("_stdin") or "")
        node.sent.append((text, base64.b64decode(stdin).decode()))
        if stdin:
            stdin = base64.b64encode(node.here(node.sent[-1][1]).encode()).decode()
        done = node.shell(text, stdin)
        lines = [OutputLine("stdout", line.rstrip("\n")) for line in done.stdout.decode().splitlines()]
        lines += [OutputLine("stderr", line.rstrip("\n")) for line in done.stderr.decode().splitlines()]
        return done.returncode == 0, CommandOutput(lines)


@dataclass
class ModelWorld:
    """Runs on such nodes, with a rack file in a folder of its own."""

    folder: Path
    patch: pytest.MonkeyPatch
    rack: Rack = field(init=False)
    nodes: dict[str, ModelNode] = field(default_factory=dict)
    uploads: list[tuple[str, str, int]] = field(default_factory=list)
    """What the operator's machine sent: node, path and number of bytes."""
    upload_limit: int | None = None
    """After so many bytes the operator's machine fails."""

    def write(self, text: str) -> None:
        path = self.folder / "rack.yaml"
        path.write_text(text)
        self.rack = load(path)
        for name in self.rack.nodes:
            if name not in self.nodes:
                self.nodes[name] = ModelNode({}, root=self.folder / "nodes" / name)
                self.nodes[name].install(self.folder)
        owners = {str(node.address): name for name, node in self.rack.nodes.items()}
        owners |= {str(one.interface.ip): one.half.node for one in self.rack.addresses}
        rows = [f"{address} {self.nodes[name].root}\n" for address, name in owners.items()]
        (self.folder / "addresses").write_text("".join(rows))

    def records(self) -> dict[str, ModelRecord]:
        return model_lock.read(self.folder / "rack.lock.json")

    def run(self, mode: str = "yes", only: tuple[str, ...] = (), grace: float = 30) -> fakenode.Ended:
        self.patch.setattr(fakenode, "Node", ModelConnector)
        for module in (delivery, model_delivery, detached_unit):
            self.patch.setattr(module, "POLL_SECONDS", 0.05)
        self.patch.setattr(detached_unit, "PROGRESS_SECONDS", 0)
        self.patch.setattr(delivery, "GRACE", grace)
        self.patch.setattr(scripts, "PYTHON", (sys.executable, "-I", "-B"))
        self.patch.setattr(operator_folder, "send_rest", self.send_rest)
        hosts = {
            name: {"rack": self.rack, "node": self.rack.nodes[name], "answers": node}
            for name, node in self.nodes.items()
            if name in (only or self.nodes)
        }
        return fakenode.run(hosts, DEPLOYS["models"], mode, diff=True)

    def send_rest(
        self, host: Host, folder: Path, file: ModelFile, start: int, script: str, sent: Callable[[int], None]
    ) -> None:
        """In the place of the line to the node, which is that of the lab."""
        node = host.data.answers
        assert isinstance(node, ModelNode)
        content = (folder / file.path).read_bytes()[start:]
        if self.upload_limit is not None:
            content, self.upload_limit = content[: self.upload_limit], self.upload_limit - len(content)
        done = subprocess.run(["/bin/sh", "-c", script], input=content, capture_output=True)
        assert done.returncode == 0, done.stderr
        self.uploads.append((host.data.node.name, file.path, len(content)))
        sent(len(content))
        if self.upload_limit is not None and self.upload_limit <= 0:
            raise OSError("Socket is closed")
