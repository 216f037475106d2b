"""Whole runs of the role watch on a node in a folder, and the state of the node after each program that a run starts.

The stand-ins do what the real programs do to the files of the node. Each of them, and each half of what takes time (the
bytes of a file, the two steps of dpkg), leaves a copy of the node where `states` says so: what a kill there leaves.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

from core.ops import announce
from core.util.event import Event
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops import fakenode
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles import systemctl_standin
from tests.unit.roles.blackbox_node import BlackboxNode, BlackboxWorld
from tests.unit.roles.cases import DEPLOYS

READER = ("    mtu: 9000\n    l2mtu", "    reader: {password: {env: READER}}\n    mtu: 9000\n    l2mtu")
SECRETS = {
    "WATCH_WEBHOOK": "https://hooks.example.org/t0ken-of-the-webhook",
    "OTHER_WEBHOOK": "https://hooks.example.org/0ther-t0ken",
    "READER": "passw0rd-of-the-reader",
    "MAIL": "passw0rd-of-the-mailbox",
}
SERVER = "{server: spark1, notify: {webhook: {env: WATCH_WEBHOOK}}}"
"""Everything that the role has, on spark1."""
OTHERWISE = (
    "{server: spark1, interval: 10s, keep: {days: 20}, psus: 2, notify: {webhook: {env: OTHER_WEBHOOK}, "
    "email: {to: a@example.org, sender: b@example.org, smarthost: 'mail:25', user: b, password: {env: MAIL}}}}"
)
"""The same parts with other values."""
ELSEWHERE = "{server: spark2, notify: {webhook: {env: WATCH_WEBHOOK}}}"
"""spark1 is not the server."""

PACKAGES = ("prometheus-node-exporter", "prometheus", "prometheus-alertmanager")
_LEAVE = """\
if [ -s @ROOT@/states ]; then
    n=$(@CAT@ @ROOT@/states)
    @CP@ -a @ROOT@ "$n/$(@LS@ "$n" | @WC@ -l)"
fi
"""
"""Leave a copy of the node in the folder that the file `states` names."""
_REAL = """\
@TOOL@ "$@" || exit $?
@LEAVE@"""
_BASE64 = """\
@TOOL@ "$@" > @ROOT@/owners/whole || exit $?
s=$(@WC@ -c < @ROOT@/owners/whole)
@HEAD@ -c "$((s / 2))" @ROOT@/owners/whole
@LEAVE@@TAIL@ -c +"$((s / 2 + 1))" @ROOT@/owners/whole
@RM@ @ROOT@/owners/whole
@LEAVE@"""
_CHOWN = """\
if [ "$1" = root:prometheus ]; then
    @GREP@ -qx installed @ROOT@/dpkg/* || { echo "chown: invalid group: 'root:prometheus'" >&2; exit 1; }
    @SHA@ "$2" | { read -r h f; : > "@ROOT@/owners/$h"; }
fi
@LEAVE@"""
"""The owner of a file is known by its content: the tests may not run as root."""
_STAT = """\
format=$2
shift 3
for f in "$@"; do
    m=$(@TOOL@ -Lc %a "$f") || exit 1
    h=$(@SHA@ "$f")
    o=root:root
    if [ -e "@ROOT@/owners/${h%% *}" ]; then o=root:prometheus; fi
    case "$format" in *%n) echo "$m $o $f" ;; *) echo "$m $o" ;; esac
done
"""
_CONFIGURE = """\
for f in @ROOT@/dpkg/*; do
    if @GREP@ -qx unpacked "$f"; then
        echo installed > "$f"
        n=${f##*/}
        if @GREP@ -qx disabled "@ROOT@/vendor/$n.service"; then @SYSTEMCTL@ enable "$n.service"; fi
        @SYSTEMCTL@ start "$n.service" || :
    fi
done
@LEAVE@"""
_APT_GET = f"""\
case "$*" in *install*) ;; *) exit 0 ;; esac
for p in "$@"; do :; done
@MKDIR@ -p @ROOT@/dpkg @ROOT@/vendor @ROOT@/etc/prometheus @ROOT@/var/lib/prometheus/node-exporter
echo unpacked > "@ROOT@/dpkg/$p"
[ -e "@ROOT@/vendor/$p.service" ] || printf disabled > "@ROOT@/vendor/$p.service"
@LEAVE@{_CONFIGURE}"""
_DPKG = f"""\
case "$*" in
--audit) @GREP@ -lx unpacked @ROOT@/dpkg/* 2> /dev/null || : ;;
*--configure*) {_CONFIGURE} ;;
esac
"""
_DPKG_QUERY = """\
shift 2
e=0
for n in "$@"; do
    if [ -e "@ROOT@/dpkg/$n" ]; then echo "$n:$(@CAT@ "@ROOT@/dpkg/$n")"; else e=1; fi
done
exit $e
"""
TOOLS = {
    **dict.fromkeys(("mktemp", "chmod", "mv", "rm", "mkdir"), _REAL),
    "base64": _BASE64,
    "chown": _CHOWN,
    "stat": _STAT,
    "sync": "",
    "systemd-analyze": "",
    "systemctl": '@SYSTEMCTL@ "$@" || exit $?\ncase $1 in show) ;; *)\n@LEAVE@ ;; esac',
    "apt-get": _APT_GET,
    "apt-cache": 'echo " $3 | 1.10 | http://ports.ubuntu.com"',
    "dpkg": _DPKG,
    "dpkg-query": _DPKG_QUERY,
    # It reads the rules that the configuration names.
    "promtool": "case $2 in config) [ -e @ROOT@/etc/prometheus/sparkrack-rules.yml ] ;; esac",
    "amtool": "",
}


@dataclass
class WatchNode(BlackboxNode):
    """The node spark1 of such a rack, in the folder `root`."""

    role: ClassVar[str] = "watch"
    states: Path | None = None
    skipped: ClassVar[tuple[str, ...]] = ("bin", "calls", "systemd.json", "read", "owners", "states")

    def install(self) -> None:
        """A node as DGX OS installs it."""
        self.root.mkdir(parents=True, exist_ok=True)
        values = {
            "@LEAVE@": _LEAVE,
            "@SYSTEMCTL@": f"{sys.executable} -I -S {systemctl_standin.__file__} {self.root}",
            "@ROOT@": str(self.root),
            **{f"@{word.upper()}@": shutil.which(word) or "" for word in ("cat", "cp", "grep", "head", "ls", "mkdir")},
            **{f"@{word.upper()}@": shutil.which(word) or "" for word in ("rm", "tail", "wc")},
            "@SHA@": shutil.which("sha256sum") or "",
        }
        for tool, script in TOOLS.items():
            own = script
            for name, value in {"@TOOL@": shutil.which(tool) or "", **values}.items():
                own = own.replace(name, value)
            stand_in(self.root, tool, own)
        for path in ("/etc/systemd/system/none", "/etc/sparkrack/none", "/usr/local/lib/none", "/run/none"):
            write(self.root, path)
        (self.root / "vendor").mkdir()
        (self.root / "owners").mkdir()

    def leave_states(self, folder: Path | None) -> None:
        """Leave a copy of the node in this folder after each program that a run starts; None: no longer."""
        self.states = folder
        if folder:
            folder.mkdir(exist_ok=True)
        (self.root / "states").write_text(str(folder or ""))

    def leave_state(self) -> None:
        """Leave one now: after what the shell itself has written."""
        assert self.states
        shutil.copytree(self.root, self.states / str(len(list(self.states.iterdir()))), symlinks=True)

    def put_back(self, state: Path) -> None:
        """Become what one of these copies is."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(state, self.root, symlinks=True)
        self.leave_states(None)

    def files(self) -> dict[str, str]:
        """The same without the log of an interrupted apt, which goes with the next boot."""
        return {path: text for path, text in super().files().items() if not path.startswith("run/sparkrack-apt.")}

    def running(self) -> list[str]:
        """The units that run."""
        return systemctl_standin.Node(self.root).active

    def everything(self) -> dict[str, str]:
        """The files, and what systemd knows."""
        systemd = [self.root / "systemd.json", *sorted((self.root / "read").glob("*"))]
        return self.files() | {f"systemd/{file.name}": file.read_text() for file in systemd if file.exists()}


class WatchWorld(BlackboxWorld):
    """A rack file in a folder, and its node spark1."""

    node_class = WatchNode
    node: WatchNode

    def text(self, section: str) -> str:
        """The rack file with the section of the role; a reader reads the switch."""
        return changed(SWITCH, ("rack: two\n", f"rack: two\nwatch: {section}\n"), READER)

    def show_differences(self) -> str:
        """What a run that changes nothing prints, with the differences of files."""
        hosts = {"spark1": {"rack": self.rack, "node": self.rack.nodes["spark1"], "answers": self.node}}
        return fakenode.run(hosts, DEPLOYS["watch"], "dry", diff=True).log

    def drift(self) -> list[Event]:
        """What a run that changes nothing says it would change."""
        found: list[Event] = []
        with patch.object(announce, "announce_change", lambda _host, events: found.extend(events)):
            ended = self.run(mode="dry")
        assert ended.failed == [], ended.log
        assert self.node.texts == []
        return found
