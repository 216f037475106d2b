"""Nodes for the tests of `sparkrack autopsy` and `sparkrack drill`: folders behind a stand-in for ssh."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

BOOT, NEXT = "a" * 32, "b" * 32
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# A node is a folder with the files of /var/lib/sparkrack/blackbox, its boot ID and its uptime. `off`: it is dead.
SSH = """\
#!/bin/sh
node="$NODES/$3"
[ ! -e "$node/off" ] || { echo "ssh: connect to host $3 port 22: No route to host" >&2; exit 255; }
sed -u -e "s#/var/lib/sparkrack/blackbox#$node#g" -e "s#/proc/sys/kernel/random/boot_id#$node/boot#g" \\
    -e "s#/proc/uptime#$node/uptime#g" -e "s#/var/log/journal/remote#$node/remote#g" -e "s#/dev/kmsg#$node/kmsg#g" \\
    -e "s#/proc/sysrq-trigger#$node/sysrq#g" -e "s#/proc/sys/kernel/panic#$node/panic#g" \\
    -e "s#kill -ABRT 1#echo freeze > $node/sysrq#g" -e "s#/run/sparkrack#$node/run#g" \\
    -e "s#/usr/bin/python3 -I /usr/local/lib/sparkrack/recorder.py dump#cat#g" \\
    -e "s#/usr/local/lib/sparkrack/recorder.py#$node/boot#g" \\
    -e "s#-- /var/lib/sparkrack/serve#-- $node/serve#g" \\
    | PATH="$NODES/bin:$PATH" NODE="$node" sh
"""
TOOLS = {
    "journalctl": """#!/bin/sh
# Without --lines: all that is later than --since, which is everything here.
lines=+1
for word; do
    case "$word" in --lines=*) lines="${word#*=}";; --since=*) echo "$word" >> "$NODE/since";; esac
done
case "$*" in
*/remote/*)
    for word; do case "$word" in --file=*) cat "${word#--file=}";; esac; done | tail -n "$lines"; exit 0;;
*--boot=-1*) file="$NODE/journal-before";;
*) cat "$NODE/kmsg" "$NODE/logged" 2> /dev/null | tail -n "$lines"; exit 0;;
esac
[ ! -e "$file" ] || cat "$file"
""",
    "logger": '#!/bin/sh\nshift 2; echo "$*" >> "$NODE/logged"\n',
    "find": """#!/bin/sh
case "$*" in *docker-*) cat "$NODE/containers" 2> /dev/null; exit 0;; esac
exec /usr/bin/find "$@"
""",
    "systemctl": '#!/bin/sh\nprintf "RuntimeWatchdogUSec=%s\\nRebootWatchdogUSec=10min\\n" "$(cat "$NODE/feeding")"\n',
    "sync": "#!/bin/sh\n",
    # A file says how the next pings end: 1 for no answer.
    "ping": '#!/bin/sh\nread -r status 2> /dev/null < "$NODE/ping" || status=1; exit "$status"\n',
}


class Nodes:
    """The nodes of a rack of tests."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name, text in {"ssh": SSH, **{f"bin/{tool}": text for tool, text in TOOLS.items()}}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        for name in names:
            (folder / name / "run").mkdir(parents=True)
            for file, text in {"boot": NEXT, "uptime": "100.0 1.0", "panic": "10", "feeding": "1min"}.items():
                self.write(name, file, f"{text}\n")

    @property
    def environment(self) -> dict[str, str]:
        """What the command needs to find them."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "NODES": str(self.folder)}

    def write(self, node: str, file: str, text: str) -> Path:
        path = self.folder / node / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def die(self, node: str) -> None:
        self.write(node, "off", "")

    def evidence(self, node: str, **found: Any) -> None:
        """Put the evidence of the present boot there."""
        self.write(node, f"boots/{NEXT}/evidence.json", json.dumps(evidence(**found)))


def evidence(**found: Any) -> dict[str, Any]:
    """What a boot collects that finds nothing special, but for these."""
    return {
        "schema": "sparkrack.boot-evidence/1",
        "boot": NEXT,
        "began": 1.0,
        "made": 2.0,
        "before": BOOT,
        "marker": None,
        "journal": None,
        "pstore": [],
        "watchdogs": [],
        "kernel": [],
        "feeding": 60.0,
        "bert": None,
        "nvme": None,
        "nvme_before": None,
        "unread": {},
        **found,
    }


def sample(at: float, boot: str = BOOT, **parts: Any) -> str:
    """One line of `recorder.py dump`."""
    usual: dict[str, Any] = {
        "time": at,
        "boot": boot,
        "sequence": 17,
        "node": "spark1",
        "uptime": 99.5,
        "load": 0.5,
        "memory": {"total": 128 << 30, "available": 28 << 30},
        "pressure": {"some": 0.0, "full": 0.0},
        "gpu": {
            "state": "ok",
            "clock": 2190,
            "power": 92.0,
            "temperature": 80,
            "margin": 6,
            "utilization": 0.96,
            "pstate": "P0",
            "reasons": [],
        },
        "zones": {"acpitz": 91.0},
        "carrier": {"enp1s0f0np0": 1},
        "events": {"xid": 0, "nvrm_no_memory": 0, "aer": 0, "soft_lockup": 0, "oops": 0},
    }
    return json.dumps(usual | parts)


def entry(at: float, text: str, program: str = "kernel", boot: str = BOOT) -> str:
    """One line of `journalctl --output=json`."""
    stamp = str(int(at * 1e6))
    found = {"_BOOT_ID": boot, "__REALTIME_TIMESTAMP": stamp, "SYSLOG_IDENTIFIER": program, "MESSAGE": text}
    trusted = {
        "kernel": {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0"},
        "systemd": {"_TRANSPORT": "journal", "_PID": "1"},
    }
    return json.dumps(found | trusted.get(program, {"_TRANSPORT": "stdout", "_PID": "7", "_COMM": program}))
