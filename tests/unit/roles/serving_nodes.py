"""Nodes in folders: the scripts of the role serving run there for real, with stand-ins for systemd and the
coordinator."""

from __future__ import annotations

import getpass
import grp
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model import Rack, image_lock, load, model_lock
from core.ops import host_facts
from serving.gateway import NGINX
from serving.programs import COORDINATOR
from tests.unit.model.serving_racks import text
from tests.unit.ops import fakenode
from tests.unit.ops.shells import calls, rooted, stand_in
from tests.unit.roles.cases import DEPLOYS, node_of
from tests.unit.roles.serving_units import PINS, RECORDS

ETC, SYSTEMD, STATE = "etc/sparkrack/serve", "etc/systemd/system", "var/lib/sparkrack/serve"
GROUPS = "sys/fs/cgroup/system.slice"
SYSTEMCTL = """
groups=@ROOT@/sys/fs/cgroup/system.slice wants=@ROOT@/etc/systemd/system/multi-user.target.wants
[ "$1" != --no-reload ] || shift
verb=$1; shift
[ "$1" != --quiet ] || shift
[ ! -e "@ROOT@/fails-$verb" ] || { echo "systemctl $verb fails" >&2; exit 1; }
[ "$verb" != daemon-reload ] || rm -f @ROOT@/unread
for unit in "$@"; do
case $unit in --*) continue ;; esac
case $verb in
show)
load=not-found active=inactive file= unread=no
[ ! -e @ROOT@/unread ] || unread=yes
[ ! -e "@ROOT@/etc/systemd/system/$unit" ] || load=loaded
[ ! -d "$groups/$unit" ] || active=active
[ ! -L "$wants/$unit" ] || file=enabled
[ ! -L "@ROOT@/run/systemd/system/$unit" ] || load=masked file=masked-runtime
printf 'Id=%s\nLoadState=%s\nActiveState=%s\nUnitFileState=%s\n' "$unit" $load $active "$file"
printf 'NeedDaemonReload=%s\n\n' $unread
;;
mask) mkdir -p @ROOT@/run/systemd/system; ln -s /dev/null "@ROOT@/run/systemd/system/$unit" ;;
unmask) rm -f "@ROOT@/run/systemd/system/$unit" ;;
enable) mkdir -p "$wants"; ln -sf "../$unit" "$wants/$unit" ;;
start | restart | reload-or-restart) [ -e "@ROOT@/etc/systemd/system/$unit" ] || exit 5; mkdir -p "$groups/$unit" ;;
stop) rm -rf "${groups:?}/$unit" ;;
esac
done
"""
APT_GET = """
[ ! -e @ROOT@/apt-fails ] || exit 100
mkdir -p @ROOT@/usr/sbin
cat > @ROOT@/usr/sbin/nginx << 'END'
#!/bin/sh
echo "nginx $*" >> @ROOT@/calls
[ ! -e @ROOT@/nginx-refuses ]
END
chmod 755 @ROOT@/usr/sbin/nginx
"""
DOCKER = """
case $1 in
ps) [ ! -e @ROOT@/docker-silent ] && cat @ROOT@/containers 2>/dev/null; [ ! -e @ROOT@/docker-silent ] ;;
inspect) cat @ROOT@/environment ;;
esac
"""
INSTALL = """
umask 022
mode=755
while [ $# -gt 0 ]; do
case $1 in
-d) ;;
-m) mode=$2; shift ;;
-o | -g) [ "$2" = root ] || exit 9; shift ;;
*) mkdir -p "$1"; chmod "$mode" "$1" ;;
esac
shift
done
"""
COORDINATOR_STANDIN = """
[ ! -e @ROOT@/coordinator-silent ] || { echo "serve-coordinator: the coordinator does not answer" >&2; exit 1; }
[ "$2" = status ] && exit 0
name=${1##*/}; name=${name%.json}; state=gating
[ "$2" = up ] || state=stopping
mkdir -p @ROOT@/var/lib/sparkrack/serve
printf '{"name": "%s", "desired_state": "%s", "state": "%s", "reason": "asked"}' "$name" "$2" "$state" \
> "@ROOT@/var/lib/sparkrack/serve/$name.json"
"""


@dataclass
class ServingNode(fakenode.Answers):
    """One node, in the folder `root`."""

    root: Path = Path("/nonexistent")
    lost: int | None = None
    """After so many commands the connection is gone."""
    texts: list[str] = field(default_factory=list)
    """Each command, the probes as well."""
    stdins: list[str] = field(default_factory=list)

    def install(self) -> None:
        stand_in(self.root, "systemctl", SYSTEMCTL.replace("@ROOT@", str(self.root)))
        stand_in(self.root, "serve_coordinator", COORDINATOR_STANDIN.replace("@ROOT@", str(self.root)))
        stand_in(self.root, "install", INSTALL)
        stand_in(self.root, "apt-get", APT_GET.replace("@ROOT@", str(self.root)))
        stand_in(self.root, "apt-cache", "echo ' nginx | 1.24.0-2ubuntu7 | a source'")
        stand_in(self.root, "dpkg")
        stand_in(self.root, "docker", DOCKER.replace("@ROOT@", str(self.root)))
        for tool in ("chown", "systemd-analyze", "sleep"):
            stand_in(self.root, tool)
        for folder in (SYSTEMD, "usr/local/lib", GROUPS, "var/lib", "run"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    def shell(self, script: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
        own = rooted(script.replace(f"{COORDINATOR} /etc", "serve_coordinator /etc"), self.root)
        own = own.replace(NGINX, f"{self.root}{NGINX}")
        environment = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            ["/bin/sh", "-c", own], input=stdin.encode(), capture_output=True, env=environment, timeout=60
        )

    @property
    def owner(self) -> str:
        """Whom the files here belong to, in the place of root."""
        return f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"

    def facts(self) -> dict[str, bytes]:
        found = {}
        for key, script in host_facts._registered["serving"].commands.items():
            done = self.shell(script)
            assert (done.returncode, done.stderr) == (0, b""), (key, done)
            found[key] = done.stdout.replace(f"{self.root}/".encode(), b"/").replace(self.owner.encode(), b"root:root")
        return found

    def calls(self, *tools: str) -> list[str]:
        """How stand-ins were called, without the commands that ask for a state."""
        noted = [call.replace(f"{self.root}/", "/") for call in calls(self.root)]
        changes = [call for call in noted if not (call.startswith("systemctl show ") or call.endswith(" status"))]
        return [call for call in changes if call.split()[0] in tools]

    def path(self, name: str) -> Path:
        return self.root / (SYSTEMD if name.endswith((".service", ".slice")) else ETC) / name

    def secret(self, unit: str = "one") -> str:
        return self.path(f"{unit}.secret").read_text()

    def record(self, unit: str = "one", **values: object) -> None:
        """Let the coordinator have this record."""
        file = self.root / STATE / f"{unit}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "name": unit,
            "desired_state": "up",
            "state": "ready",
            "reason": "a completion gave the known answer",
            **values,
        }
        file.write_text(json.dumps(whole))

    def recorded(self, unit: str = "one") -> str:
        return str(json.loads((self.root / STATE / f"{unit}.json").read_text())["desired_state"])

    def rank(self, runs: bool, unit: str = "one") -> None:
        """Let the service of a rank run, or not."""
        group = self.root / GROUPS / f"sparkrack-serve-{unit}.service"
        group.mkdir() if runs else shutil.rmtree(group)

    def container(self, unit: str = "one", state: str = "running", **changes: str) -> None:
        """Let docker have a container of a unit, with the variables of its file and those of its image and its head."""
        lines = self.path(f"{unit}.env").read_text().splitlines()
        variables = dict(one.split("=", 1) for one in lines if not one.startswith("#")) | changes
        extra = {"PATH": "/usr/bin", "VLLM_API_KEY": "sk-quiet-horse-1234567890"}
        shown = "".join(f"{name}={value}\n" for name, value in {**extra, **variables}.items())
        (self.root / "environment").write_text(f"{shown}\n")
        (self.root / "containers").write_text(f"sparkrack-{unit} {state}\n")

    def client(self, pid: int, unit: str = "one") -> None:
        """Let the service of a rank have this process of this machine."""
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / f"proc/{pid}").symlink_to(f"/proc/{pid}")
        (self.root / GROUPS / f"sparkrack-serve-{unit}.service/cgroup.procs").write_text(f"{pid}\n")

    def forget(self) -> None:
        """Forget what was sent until now."""
        self.texts.clear()
        self.stdins.clear()
        (self.root / "calls").unlink(missing_ok=True)

    @property
    def changes(self) -> list[str]:
        """The commands but the probe."""
        return [script for script in self.texts if not fakenode.is_probe(script)]


class ServingConnector(fakenode.Node):
    """The connector of such a node."""

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        script, node = command.get_raw_value(), self.answers
        assert isinstance(node, ServingNode)
        assert arguments.get("_sudo"), f"not as root: {script}"
        node.texts.append(script)
        if fakenode.is_probe(script):
            reported = node_of("serving") | node.facts()
            return True, CommandOutput([OutputLine("stdout", line) for line in fakenode.answer(reported)])
        for part in fakenode.list_scripts(command):
            if node.lost is not None:
                node.lost -= 1
                if node.lost < 0:
                    raise OSError("Socket is closed")
            stdin = str(part.connector_arguments.get("_stdin") or "")
            node.stdins.append(stdin)
            done = node.shell(part.get_raw_value(), stdin)
            if done.returncode:
                break
        lines = [OutputLine("stdout", line) for line in done.stdout.decode().splitlines()]
        lines += [OutputLine("stderr", line) for line in done.stderr.decode().splitlines()]
        return done.returncode == 0, CommandOutput(lines)


@dataclass
class ServingWorld:
    """Runs on such nodes, with a rack file and its lock file in a folder of their own."""

    folder: Path
    patch: pytest.MonkeyPatch
    rack: Rack = field(init=False)
    nodes: dict[str, ServingNode] = field(default_factory=dict)

    def write(self, units: Mapping[str, Any], locked: bool = True, **sections: Any) -> None:
        path = self.folder / "rack.yaml"
        path.write_text(text(units, **sections))
        lock = self.folder / "rack.lock.json"
        lock.unlink(missing_ok=True)
        if locked:
            image_lock.write(lock, PINS)
            model_lock.write(lock, RECORDS)
        self.rack = load(path)
        for name in self.rack.nodes:
            if name not in self.nodes:
                self.nodes[name] = ServingNode({}, root=self.folder / "nodes" / name)
                self.nodes[name].install()

    def run(self, mode: str = "yes", only: tuple[str, ...] = ()) -> fakenode.Ended:
        self.patch.setattr(fakenode, "Node", ServingConnector)
        hosts = {
            name: {"rack": self.rack, "node": self.rack.nodes[name], "answers": node}
            for name, node in self.nodes.items()
            if name in (only or self.nodes)
        }
        return fakenode.run(hosts, DEPLOYS["serving"], mode, diff=True)

    def forget(self) -> None:
        for node in self.nodes.values():
            node.forget()
