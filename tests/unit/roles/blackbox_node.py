"""Whole runs of the role blackbox on a node in a folder, and the state of both after each command of a run."""

from __future__ import annotations

import getpass
import grp
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyinfra.connectors.util import CommandOutput, OutputLine

from core.model import Rack, load
from core.ops import host_facts
from roles.blackbox import netconsole
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops import fakenode
from tests.unit.ops.shells import run, stand_in, write
from tests.unit.roles import systemctl_standin
from tests.unit.roles.cases import DEPLOYS, node_of
from tests.unit.roles.kernel_node import PACKAGED, TEMPLATE, started, with_grub

ACCOUNT = f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"
EVERYTHING = "clock_cap: {spark1: 2200}, server: spark1, remote: tls, netconsole: plain, recorder: {}, kdump: {}"
"""spark1 sends to spark2, and receives from it."""
OTHERWISE = (
    "watchdog: 30s, panic: {after: 20s}, journal: {sync: 5s}, clock_cap: {spark1: 2000}, server: spark1, "
    "remote: plain, netconsole: plain, recorder: {rate: 1}, kdump: {reserve: 1G, vmcore: true}"
)
"""The same parts with other values."""
NOTHING = "watchdog_panics: false, boot_evidence: false"
"""Nothing of what can be removed."""
VENDOR = {
    "systemd-pstore.service": "disabled",
    "systemd-journald.service": "static",
    "systemd-journal-flush.service": "static",
    "systemd-journal-upload.service": "disabled",
    "systemd-journal-remote.socket": "disabled",
}
APT_GET = """
case "$*" in *kdump-tools*) ;; *) exit 0 ;; esac
for p in kdump-tools makedumpfile kexec-tools; do : > @ROOT@/installed-$p; done
[ -e @ROOT@/etc/default/kdump-tools ] || cp @ROOT@/template @ROOT@/etc/default/kdump-tools
cp @ROOT@/packaged @ROOT@/etc/default/grub.d/kdump-tools.cfg
echo enabled > @ROOT@/vendor/kdump-tools.service
update-grub
"""
TOOLS = {
    "systemctl": 'exec @PYTHON@ -I -S @STANDIN@ @ROOT@ "$@"',
    "apt-get": APT_GET,
    "apt-cache": 'echo " $3 | 1.10 | http://ports.ubuntu.com"',
    "dpkg": "",
    "dpkg-query": 'for n in "$@"; do :; done; [ -e @ROOT@/installed-$n ] && printf installed',
    "systemd-analyze": "",
    "chown": "",
    "sync": "",
    "ip": "echo '2: enP7s7    inet 10.77.0.11/24 brd 10.77.0.255 scope global enP7s7'",
    "dmesg": "echo 'sbsa-gwdt sbsa-gwdt.0: Initialized with 10s timeout @ 1000 Hz, action=0.'",
    "modprobe": """
case "$*" in
--showconfig) cat @ROOT@/etc/modprobe.d/*.conf 2> /dev/null || : ;;
efi_pstore) mkdir -p @ROOT@/sys/module/efi_pstore/parameters
    echo N > @ROOT@/sys/module/efi_pstore/parameters/pstore_disable
    echo efi_pstore > @ROOT@/sys/module/pstore/parameters/backend ;;
esac""",
    "modinfo": "echo /lib/modules/efi-pstore.ko",
    "nvidia-smi": "echo 300",
    "journalctl": """
case "$*" in
--flush) mkdir -p @ROOT@/var/log/journal/0123; : > @ROOT@/var/log/journal/0123/system.journal ;;
esac""",
    "sysctl": """shift
for one in "$@"; do key=${one%%=*}; echo "${one#*=}" > "@ROOT@/proc/sys/$(echo "$key" | tr . /)"; done""",
    "netconsole-off": "rm -rf @ROOT@/sys/kernel/config/netconsole/sparkrack",
}
SHOW = re.compile(r'(?:set -- ([\w.@ -]+); )?systemctl show ((?:[\w=,.@-]+ ?)+)(?:"\$@")?')
MADE = [path.lstrip("/") for path in systemctl_standin.CERTIFICATES]
"""Files with other bytes in each run. A second run judges them: it replaces a certificate that is not of the CA."""


@dataclass
class BlackboxNode(fakenode.Answers):
    """The node spark1, in the folder `root`. `sees`: is called after each command. `role`: whose facts are asked."""

    role: ClassVar[str] = "blackbox"
    skipped: ClassVar[tuple[str, ...]] = ("bin", "calls", "systemd.json", "read")
    """Of the folder what is of the stand-ins."""

    root: Path = Path("/nonexistent")
    sees: Callable[[], None] | None = None
    texts: list[str] = field(default_factory=list)

    def install(self) -> None:
        """A node as DGX OS installs it."""
        root = self.root
        root.mkdir(parents=True, exist_ok=True)
        started(with_grub(root))
        standin = Path(systemctl_standin.__file__)
        for tool, script in TOOLS.items():
            own = script.replace("@ROOT@", str(root)).replace("@PYTHON@", sys.executable)
            stand_in(root, tool, own.replace("@STANDIN@", str(standin)))
        (root / "vendor").mkdir()
        for name, state in VENDOR.items():
            (root / "vendor" / name).write_text(state)
        (root / "template").write_text(TEMPLATE)
        (root / "packaged").write_text(PACKAGED)
        write(root, "/etc/machine-id", "0123\n")
        write(root, "/etc/systemd/system/none")
        write(root, "/proc/sys/kernel/random/boot_id", "1f0e1d2c-3b4a\n")
        write(root, "/proc/sys/kernel/printk", "4 4 1 7\n")
        for name in ("panic", "panic_on_oops", "softlockup_panic", "panic_on_rcu_stall", "hung_task_panic"):
            write(root, f"/proc/sys/kernel/{name}", "0\n")
        write(root, "/proc/sys/kernel/max_rcu_stall_to_panic", "0\n")
        write(root, "/proc/sys/vm/panic_on_oom", "0\n")
        write(root, "/sys/module/pstore/parameters/backend", "(null)\n")
        (root / "sys/module/sbsa_gwdt").mkdir(parents=True)
        (root / "sys/kernel/config/netconsole").mkdir(parents=True)
        (root / "sys/class/net/enP7s7/device").mkdir(parents=True)
        (root / "sys/class/net/enP7s7/device/driver").symlink_to("../r8127")
        for name, value in (
            ("identity", "SBSA Generic Watchdog"),
            ("state", "inactive"),
            ("timeout", "10"),
            ("min_timeout", "3"),
            ("max_timeout", "0"),
        ):
            write(root, f"/sys/class/watchdog/watchdog0/{name}", f"{value}\n")
        (root / "manager").write_text("RuntimeWatchdogUSec=0\nRebootWatchdogUSec=10min\n")
        upload = write(root, "/usr/lib/systemd/systemd-journal-upload")
        upload.chmod(0o755)
        (root / "run").mkdir(exist_ok=True)
        (root / "var").mkdir(exist_ok=True)

    def facts(self) -> dict[str, Any]:
        """What the probe finds on the node, as the role asks it."""
        found: dict[str, Any] = node_of(self.role)
        probe = host_facts._registered[self.role]
        for path in probe.files:
            file = self.root / path.lstrip("/")
            found[path] = file.read_bytes() if file.exists() else None
        for key, text in probe.commands.items():
            found[key] = self.printed(text).replace(str(self.root), "").replace(ACCOUNT, "root:root")
        return found

    def printed(self, text: str) -> str:
        """What a command of the probe prints. One that is nothing but `systemctl show` is asked of the stand-in without
        a start of Python: that were two thirds of the time of a reading.
        """
        if asked := SHOW.fullmatch(text):
            systemd = systemctl_standin.Node(self.root)
            shown = systemd.asked([*asked[2].split(), *(asked[1] or "").split()])
            systemd.save()
            return shown
        done = run(text, self.root)
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout

    def files(self) -> dict[str, str]:
        """A hash of each file of the node, and its mode. Those that each run makes again are only present."""
        found = {}
        for file in sorted(self.root.rglob("*")):
            path = str(file.relative_to(self.root))
            if path.split("/")[0] in self.skipped or not file.is_file():
                continue
            made = path in MADE
            content = "" if made else hashlib.sha256(file.read_bytes()).hexdigest()
            found[path] = f"{file.stat().st_mode & 0o777:o} {content}"
        return found

    def stale_services(self) -> list[str]:
        """The services that run with another unit, or with other files, than the node has now."""
        systemd = systemctl_standin.Node(self.root)
        stale = []
        for name in sorted(set(systemd.active)):
            read = json.loads((self.root / "read" / name).read_text())
            if read != {"unit": systemd.content(name), "files": systemd.read_by(name)}:
                stale.append(name)
        return stale


class BlackboxConnector(fakenode.Node):
    """The connector of such a node."""

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        node, text = self.answers, command.get_raw_value()
        assert isinstance(node, BlackboxNode)
        assert arguments.get("_sudo"), f"not as root: {text}"
        if fakenode.is_probe(text):
            return True, CommandOutput([OutputLine("stdout", line) for line in fakenode.answer(node.facts())])
        for part in fakenode.list_scripts(command):
            text = part.get_raw_value()
            # The program would act on this machine.
            part.bits = (text.replace(f"{netconsole.PROGRAM} --off", "netconsole-off"),)
            done = run(part, node.root)
            node.texts.append(text)
            if node.sees:
                node.sees()
            if done.returncode:
                break
        return not done.returncode, CommandOutput([OutputLine("stderr", one) for one in done.stderr.splitlines()])


class BlackboxWorld:
    """A rack file in a folder, and the first node of the rack."""

    node_class: ClassVar[type[BlackboxNode]] = BlackboxNode

    def __init__(self, folder: Path, section: str) -> None:
        self.folder = folder
        (folder / "rack").mkdir(parents=True)
        self.node = self.node_class({}, root=folder / "node")
        self.declare(section)

    def declare(self, section: str) -> None:
        """Write the rack file."""
        (self.folder / "rack/rack.yaml").write_text(self.text(section))

    def text(self, section: str) -> str:
        """The rack file with the section of the role."""
        return changed(SWITCH, ("rack: two\n", f"rack: two\nblackbox: {{{section}}}\n"))

    @property
    def rack(self) -> Rack:
        """The rack as the file has it."""
        return load(self.folder / "rack/rack.yaml")

    def run(self, sees: Callable[[], None] | None = None, mode: str = "yes") -> fakenode.Ended:
        """Run the role on the node."""
        self.node.sees, self.node.texts = sees, []
        rack = self.rack
        hosts = {"spark1": {"rack": rack, "node": rack.nodes["spark1"], "answers": self.node}}
        return fakenode.run(hosts, DEPLOYS[self.node.role], mode)

    def keep(self, place: Path) -> None:
        """Copy the node, and the rack file with the CA beside it."""
        shutil.copytree(self.folder, place, symlinks=True)

    def restore(self, place: Path) -> None:
        """Put back what `keep` copied, to where the stand-ins expect it; the recorder has gone on meanwhile."""
        shutil.rmtree(self.folder)
        shutil.copytree(place, self.folder, symlinks=True)
        ring = self.node.root / "var/lib/sparkrack/blackbox/ring"
        if ring.exists():
            ring.touch()
