"""A node in a folder from which roles are taken off: the real record, probes and commands, and stand-ins for tools."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyinfra.api.command import StringCommand

from core.model.role import roles
from core.ops import host_facts
from core.ops.host_facts import HostReading
from core.ops.operation import Changeset
from core.ops.record import keep_record
from core.ops.removal import Found, Traces, changeset
from tests.unit.ops.shells import rooted, run, stand_in, write

ROLES = tuple(role for role in roles() if role.machine == "node" and not role.gate)
TRACES: dict[str, Traces] = {
    traces.role: traces
    for role in ROLES
    for traces in vars(role.module("remove")).values()
    if isinstance(traces, Traces)
}
"""What each role leaves, in the order of the roles."""
PROBES = {key: host_facts._registered.pop(key) for key in list(host_facts._registered) if key.startswith("removal-")}
"""What only a removal asks of a node: other tests of this process have nodes that are not asked it."""
TOOLS = {
    "systemctl": 'case "$1" in list-units) [ ! -e @ROOT@/units ] || cat @ROOT@/units ;; is-active) exit 3 ;; '
    "stop) : > @ROOT@/units ;; esac",
    "dpkg-query": 'if [ $# -gt 2 ]; then for n in "$@"; do [ ! -e "@ROOT@/packages/$n" ] || echo "installed $n"; done; '
    'exit 0; fi; for f in @ROOT@/packages/*; do echo "installed ${f##*/}"; done',
    "apt-mark": 'case "$1" in showhold) ls @ROOT@/holds ;; unhold) shift; cd @ROOT@/holds; rm "$@" ;; esac',
    "apt-get": 'for n in "$@"; do case "$n" in -*|purge|autoremove) ;; *) rm -f "@ROOT@/packages/$n" ;; esac; done',
    "sysctl": 'case "$1" in -a) cat @ROOT@/sysctl ;; '
    '-qw) k=${2%%=*}; sed -i "s/^$k = .*/$k = ${2#*=}/" @ROOT@/sysctl ;; esac',
    "docker": "",
    "nvidia-smi": "",
    "update-grub": "",
    "swapon": "",
    "sync": "",
    "chown": "",
}


class RemovalNode:
    """A node in the folder `root`, as it comes from the factory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("packages", "holds", "run", "var/lib", "var/tmp"):
            (root / folder).mkdir(parents=True)
        (root / "sysctl").write_text("vm.min_free_kbytes = 45056\nkernel.panic = 0\n")
        (root / "packages/docker-ce").touch()
        (root / "usr/local/lib").mkdir(parents=True)
        (root / "var/backups").mkdir()
        (root / "var/cache").mkdir()
        write(root, "/proc/sys/kernel/hostname", "spark1\n")
        for tool, script in TOOLS.items():
            stand_in(root, tool, script.replace("@ROOT@", str(root)))

    def write(self, path: str, text: str = "") -> None:
        """Put a file there."""
        write(self.root, path, text)

    def link(self, path: str, target: str) -> None:
        """Put a link there, in the place of whatever is there."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def record(self) -> None:
        """Record what is there, as a run does before its first change."""
        done = run(f"set -eu; {keep_record()}", self.root)
        assert done.returncode == 0, done.stderr

    def found(self, traces: Traces) -> Found:
        """What the node answers about the traces of a role."""
        probe = PROBES[traces.key]
        answers: dict[str, bytes | None] = {}
        for path in probe.files:
            place = self.root / path.lstrip("/")
            answers[path] = place.read_bytes() if place.exists() else None
        for key, text in probe.commands.items():
            done = run(text, self.root)
            assert done.returncode == 0, (text, done.stderr)
            answers[key] = done.stdout.replace(str(self.root), "").encode()
        return Found.read(HostReading(answers, {}), traces)

    def take_off(self, traces: Traces, most: int | None = None) -> Changeset:
        """Take a role off; `most`: the number of commands after which the run is killed."""
        made = changeset(self.found(traces))
        for command in made.commands[:most]:
            assert isinstance(command, StringCommand)
            done = run(command, self.root)
            assert done.returncode == 0, (rooted(command.get_raw_value(), self.root), done.stderr)
        return made

    def tree(self) -> dict[str, str]:
        """Kind, mode and content of all that is in /etc, /usr/local and /var."""
        found = {}
        for top in ("etc", "usr", "var", "holds", "packages"):
            for path in sorted((self.root / top).rglob("*")):
                mode = "" if path.is_symlink() else f"{path.lstat().st_mode:o}"
                content = f"-> {path.readlink()}" if path.is_symlink() else path.read_text() if path.is_file() else ""
                found[str(path.relative_to(self.root))] = f"{mode} {content}"
        return found | {"sysctl": (self.root / "sysctl").read_text()}

    def copy(self, place: Path) -> RemovalNode:
        """The same node in another folder."""
        shutil.copytree(self.root, place, symlinks=True)
        for tool, script in TOOLS.items():
            stand_in(place, tool, script.replace("@ROOT@", str(place)))
        made = object.__new__(RemovalNode)
        made.root = place
        return made
