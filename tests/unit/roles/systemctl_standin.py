"""What roles use of systemctl, for a node in a folder; it runs alone: systemctl ROOT WORD...

It knows what a kill between two commands can spoil: which unit files systemd has read (NeedDaemonReload), and with
which files each service was last started (the folder `read`, one JSON object a service). What services read stands in
reads.json, where that is there.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

READS = {
    "systemd-journald.service": ["/etc/systemd/journald.conf.d/zz-sparkrack.conf"],
    "sparkrack-clean-stop.service": ["/usr/local/lib/sparkrack/boot_evidence.py"],
    "sparkrack-boot-evidence.service": ["/usr/local/lib/sparkrack/boot_evidence.py"],
    "sparkrack-recorder.service": ["/usr/local/lib/sparkrack/recorder.py"],
    "sparkrack-recorder-receive.service": ["/usr/local/lib/sparkrack/recorder.py"],
    "sparkrack-journal-receive.service": ["/usr/local/lib/sparkrack/journal_receiver.py"],
    "sparkrack-netconsole-receive.service": ["/usr/local/lib/sparkrack/netconsole_receiver.py"],
    "systemd-journal-upload.service": ["/etc/systemd/journal-upload.conf.d/zz-sparkrack.conf"],
    "prometheus.service": ["/etc/prometheus/sparkrack.yml", "/etc/prometheus/sparkrack-rules.yml"],
    "prometheus-alertmanager.service": ["/etc/prometheus/sparkrack-alertmanager.yml"],
}
"""What a service reads when it starts, besides its unit."""
NEEDS = ("prometheus.service", "prometheus-alertmanager.service")
"""Services that end at once without what they read, and that systemd starts again and again."""
SWITCH_METRICS = "/var/lib/prometheus/node-exporter/sparkrack-switch.prom"
CERTIFICATES = [f"/etc/sparkrack/blackbox/{name}" for name in ("node.key", "node.pem", "ca.pem")]
MANAGER = "/etc/systemd/system.conf.d/zz-sparkrack-watchdog.conf"


class Node:
    """The folder of a node, and what systemd knows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.memory = root / "systemd.json"
        known = json.loads(self.memory.read_text()) if self.memory.exists() else {}
        self.loaded: dict[str, str] = known.get("loaded", {})
        self.active: list[str] = known.get("active", [])
        self.waiting: list[str] = known.get("waiting", [])
        """Services that ended, and that systemd will start again."""

    def save(self) -> None:
        """Keep what systemd knows."""
        known = {"loaded": self.loaded, "active": sorted(set(self.active)), "waiting": sorted(set(self.waiting))}
        self.memory.write_text(json.dumps(known))

    def at(self, path: str) -> Path:
        """A file of the node."""
        return self.root / path.lstrip("/")

    def vendor(self, name: str) -> Path:
        """The state of the file of a unit that a package brings; the file exists for those."""
        return self.root / "vendor" / name

    def unit(self, name: str) -> Path:
        """The file of a unit of ours; that of its template for an instance."""
        return self.at(f"/etc/systemd/system/{re.sub('@[^.]+', '@', name)}")

    def mask(self, name: str, *, runtime: bool = False) -> Path:
        """The link to /dev/null that masks an instance of a template of ours."""
        return self.at(f"{'/run' if runtime else '/etc'}/systemd/system/{name}")

    def files(self, name: str) -> list[Path]:
        """The files of a unit that are ours."""
        files = [self.unit(name), *sorted(self.at(f"/etc/systemd/system/{name}.d").glob("*.conf"))]
        return [file for file in files if file.exists()]

    def content(self, name: str) -> str:
        """A hash of a unit and its drop-ins; empty without one."""
        if not (self.vendor(name).exists() or self.unit(name).exists()):
            return ""
        texts = [file.read_bytes() for file in self.files(name)]
        return hashlib.sha256(b"\0".join(texts)).hexdigest()

    def read_by(self, name: str) -> dict[str, str]:
        """A hash of each file that a service reads when it starts; systemd copies certificates for some of them."""
        texts = [file.read_text() for file in self.files(name)]
        own = self.root / "reads.json"
        reads = json.loads(own.read_text()) if own.exists() else READS
        paths = [*reads.get(name, []), *(CERTIFICATES if any("LoadCredential=" in text for text in texts) else [])]
        return {
            path: hashlib.sha256(self.at(path).read_bytes()).hexdigest() for path in paths if self.at(path).exists()
        }

    def link(self, name: str) -> Path:
        """The link of an enabled unit."""
        if self.vendor(name).exists():
            return self.at(f"/etc/systemd/system/multi-user.target.wants/{name}")
        found = re.search(r"^WantedBy=(\S+)$", self.unit(name).read_text(), re.MULTILINE)
        assert found, f"{name} cannot be enabled"
        return self.at(f"/etc/systemd/system/{found[1]}.wants/{name}")

    def file_state(self, name: str) -> str:
        """UnitFileState."""
        if self.vendor(name).exists():
            state = self.vendor(name).read_text().strip()
            return "enabled" if state == "disabled" and self.link(name).exists() else state
        if not self.unit(name).exists():
            return ""
        if "@" in name and self.mask(name).is_symlink():
            return "masked"
        if "@" in name and self.mask(name, runtime=True).is_symlink():
            return "masked-runtime"
        if "WantedBy=" not in self.unit(name).read_text():
            return "static"
        return "enabled" if self.link(name).exists() else "disabled"

    def load(self, name: str) -> str:
        """systemd reads a unit file when it is first asked for the unit; returns the hash of what it has read."""
        if name not in self.loaded and (content := self.content(name)):
            self.loaded[name] = content
        return self.loaded.get(name, "")

    def state(self, name: str) -> dict[str, str]:
        """The properties of a unit."""
        loaded, file = self.load(name), self.file_state(name)
        return {
            "Id": name,
            "LoadState": "masked" if file.startswith("masked") else "loaded" if loaded else "not-found",
            "ActiveState": "active" if name in self.active else "activating" if name in self.waiting else "inactive",
            "UnitFileState": file,
            "NeedDaemonReload": "yes" if loaded != self.content(name) else "no",
        }

    def asked(self, words: list[str]) -> str:
        """The answer to `show`."""
        names = [word for word in words if not word.startswith("-")]
        return self.show(names, words) if names else self.at("/manager").read_text()

    def show(self, names: list[str], words: list[str]) -> str:
        """The answer to `show` of units: all properties, or the values of those that are asked for with --value."""
        if "--value" in words:
            (asked,) = (word.removeprefix("--property=") for word in words if word.startswith("--property="))
            return "\n\n".join(self.state(name)[asked] for name in names)
        return "\n\n".join("\n".join(f"{key}={value}" for key, value in self.state(name).items()) for name in names)

    def start(self, name: str) -> None:
        """Start a unit with what systemd has read of it, and what it reads itself."""
        if not self.load(name):
            sys.exit(f"Unit {name} not found.")
        if self.file_state(name).startswith("masked"):
            sys.exit(f"Unit {name} is masked.")
        self.waiting = [one for one in self.waiting if one != name]
        if name in NEEDS and len(self.read_by(name)) < len(READS[name]):
            self.active = [one for one in self.active if one != name]
            self.waiting.append(name)
            return
        text = "".join(file.read_text() for file in self.files(name))
        if "Type=oneshot" not in text or "RemainAfterExit=yes" in text:
            self.active.append(name)
        folder = self.root / "read"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps({"unit": self.loaded[name], "files": self.read_by(name)}))
        if not (self.root / "reads.json").exists():
            self.work(name)

    def work(self, name: str) -> None:
        """What a program does on the node."""
        if name.startswith("sparkrack-switch-reader."):  # its timer starts it, within a minute
            self.at(SWITCH_METRICS).parent.mkdir(parents=True, exist_ok=True)
            self.at(SWITCH_METRICS).write_text("sparkrack_switch_up 1\n")
        if name == "sparkrack-boot-evidence.service":
            boot = self.at("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
            evidence = self.at(f"/var/lib/sparkrack/blackbox/boots/{boot}/evidence.json")
            evidence.parent.mkdir(parents=True, exist_ok=True)
            evidence.write_text("{}")
        if name == "sparkrack-recorder.service":
            ring = self.at("/var/lib/sparkrack/blackbox/ring")
            ring.parent.mkdir(parents=True, exist_ok=True)
            ring.write_text("")
        if name == "sparkrack-netconsole.service":
            words = re.search(r"^ExecStart=\S+ (\S+) (\S+)$", self.unit(name).read_text(), re.MULTILINE)
            assert words
            target = self.at("/sys/kernel/config/netconsole/sparkrack")
            target.mkdir(exist_ok=True)
            for file, value in (("enabled", "1"), ("extended", "1"), ("local_ip", words[1]), ("remote_ip", words[2])):
                (target / file).write_text(f"{value}\n")
            self.at("/proc/sys/kernel/printk").write_text("5 4 1 7\n")

    def reload(self, name: str) -> None:
        """A service reads its files again; its arguments stay."""
        if name not in self.active:
            sys.exit(f"{name} is not active, cannot reload.")
        record = self.root / "read" / name
        record.write_text(json.dumps({**json.loads(record.read_text()), "files": self.read_by(name)}))

    def reexecute(self) -> None:
        """systemd reads its settings, and feeds the watchdog with them."""
        settings = self.at(MANAGER).read_text() if self.at(MANAGER).exists() else ""
        limits = dict(re.findall(r"^(\w+WatchdogSec)=(\d+)s$", settings, re.MULTILINE))
        self.at("/manager").write_text(
            "\n".join(f"{key}WatchdogUSec={limits.get(f'{key}WatchdogSec', '0')}s" for key in ("Runtime", "Reboot"))
        )
        device = self.at("/sys/class/watchdog/watchdog0")
        (device / "state").write_text("active\n")
        (device / "timeout").write_text(f"{limits.get('RuntimeWatchdogSec', 10)}\n")

    def stop(self, names: list[str]) -> None:
        """Stop units."""
        self.active = [name for name in self.active if name not in names]
        self.waiting = [name for name in self.waiting if name not in names]

    def change(self, verb: str, name: str, *, runtime: bool) -> None:
        """Enable, disable, mask or unmask a unit of a package. A mask is removed from the folder that is named only."""
        mask, now = "masked-runtime" if runtime else "masked", self.file_state(name)
        if verb == "unmask" and now != mask:
            return
        if verb in ("enable", "disable") and now.startswith("masked"):
            sys.exit(f"Unit file {name} is masked.")
        if verb in ("mask", "unmask"):
            self.vendor(name).write_text(mask if verb == "mask" else "disabled")
        elif now != "static":
            self.link(name).parent.mkdir(parents=True, exist_ok=True)
            self.link(name).touch() if verb == "enable" else self.link(name).unlink(missing_ok=True)

    def verb(self, verb: str, words: list[str]) -> None:
        """Do one verb."""
        names = [word for word in words if not word.startswith("-")]
        if verb == "show":
            print(self.asked(words))
        elif verb == "is-enabled":
            print(self.file_state(names[0]) or "not-found")
        elif verb == "daemon-reload":
            self.loaded = {name: content for name in self.loaded if (content := self.content(name))}
        elif verb == "daemon-reexec":
            self.reexecute()
        elif verb in ("start", "restart"):
            for name in names:
                if verb == "restart" or name not in self.active:
                    self.start(name)
        elif verb in ("reload", "reload-or-restart"):
            for name in names:
                self.start(name) if verb != "reload" and name not in self.active else self.reload(name)
        elif verb == "stop":
            self.stop(names)
        elif verb in ("enable", "unmask", "disable", "mask"):
            for name in names:
                if self.vendor(name).exists():
                    self.change(verb, name, runtime="--runtime" in words)
                elif verb in ("mask", "unmask") and "@" in name:
                    link = self.mask(name, runtime="--runtime" in words)
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to("/dev/null") if verb == "mask" else link.unlink(missing_ok=True)
                elif verb == "disable":
                    self.link(name).unlink(missing_ok=True)
                elif verb == "enable":
                    self.link(name).parent.mkdir(parents=True, exist_ok=True)
                    self.link(name).touch()
            if "--now" in words:
                self.stop(names)
        else:
            sys.exit(f"systemctl {verb}: the stand-in does not know this")


if __name__ == "__main__":
    node = Node(Path(sys.argv[1]))
    verb, *words = [word for word in sys.argv[2:] if word != "--no-reload"]
    node.verb(verb, words)
    node.save()
