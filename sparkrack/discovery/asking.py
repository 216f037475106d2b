"""What a node is asked to describe itself: shell scripts that only read, and that make it heard. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from roles.driver.state import listed
from roles.fabric.adopt import NAMING, RENDERING, WHOLE
from roles.fabric.state import HOTPLUG
from roles.images.state import NO_ENGINE
from sparkrack.discovery.node import NodeFacts
from sparkrack.fleet import SLICE, Half

TOOL_SECONDS = 5
"""How long a tool that may hang (docker, nvidia-smi) may take."""
NO, YES = "no", "yes"

# As in the screen of the fleet: `question exit`, then `question exit text` for each line.
_BEGIN = r"""exec 2>/dev/null
export LC_ALL=C
tell() {
printf '%s %s\n' "$1" "$2"
printf '%s\n' "$3" | while IFS= read -r l; do printf '%s %s %s\n' "$1" "$2" "$l"; done
}
"""
_FUNCTIONS = r"""for d in /sys/class/net/*; do
[ "$(cat "$d/device/vendor")" = 0x15b3 ] || continue
p=$(readlink -f "$d/device") && echo "${d##*/} ${p##*/}"
done; true"""
_SMI = f"timeout {TOOL_SECONDS} nvidia-smi --query-gpu=driver_version --format=csv,noheader"
# Only these settings leave the node: a daemon.json may have the password of a proxy.
_DAEMON = (
    "[ ! -e /etc/docker/daemon.json ] || "
    r"""grep -oE '"(max-size|max-file|live-restore)"[[:space:]]*:[[:space:]]*("[^"]*"|true|false|[0-9]+)' """
    "/etc/docker/daemon.json || [ $? -eq 1 ]"
)
_IMAGES = (
    f'[ "$(cat "/proc/$(cat /run/docker.pid)/comm")" = dockerd ] || {{ echo "{NO_ENGINE}"; exit 0; }}; '
    f"timeout {TOOL_SECONDS} docker image ls --no-trunc --digests "
    "--format '{{.ID}} {{.Repository}} {{.Tag}} {{.Digest}} {{.Size}}'"
)

QUESTIONS: Mapping[str, str] = {
    "hostname": "hostname",
    "maker": "dmidecode -s system-manufacturer || cat /sys/class/dmi/id/sys_vendor",
    "board": "dmidecode -s baseboard-manufacturer || cat /sys/class/dmi/id/board_vendor",
    "links": "ip -d -j address",
    "neighbours": "ip -j neigh",
    "functions": _FUNCTIONS,
    "route": "ip -j route show default",
    "swap": "cat /proc/swaps",
    "overcommit": "cat /proc/sys/vm/overcommit_memory",
    "minfree": "cat /proc/sys/vm/min_free_kbytes",
    "kernel": "uname -r",
    "driver": f"if [ -r /sys/module/nvidia/version ]; then cat /sys/module/nvidia/version; else {_SMI}; fi",
    "packages": listed(),
    "engine": "if command -v docker > /dev/null; then docker --version; else echo none; fi",
    "daemon": _DAEMON,
    "ceiling": f"systemctl show -p MemoryMax --value {SLICE}",
    "images": _IMAGES,
    "sshd": "o=$(PATH=$PATH:/usr/sbin sshd -T) && printf '%s\\n' \"$o\" | grep -E '^(passwordauthentication|"
    "kbdinteractiveauthentication|permitrootlogin) '",
    "naming": NAMING,
    "whole": WHOLE,
    "rendering": RENDERING,
    "hotplug": f"if [ -e {HOTPLUG} ]; then echo {YES}; else echo {NO}; fi",
}
"""What a node is asked, each in a shell of its own. Nothing is written; no engine is started by a question."""


def script() -> str:
    """All questions as one script without input; `sparkrack.status.question.answers` takes its output apart."""
    asked = "".join(f'o=$({command}\n)\ntell {name} $? "$o"\n' for name, command in QUESTIONS.items())
    return f"{_BEGIN}{asked}echo end 0"


def speaking(here: NodeFacts, everybody: Iterable[NodeFacts]) -> str:
    """A script that lets each half of a node's ports say something, so that switch and peers learn where it is; it
    prints the node's neighbours at last.

    An interface that is up has an address of its own for multicast; what it has of IPv4 is used to ask the others.
    """
    pings = dict.fromkeys(_pings(here, tuple(everybody)))
    lines = [f"ping -q -n -c 2 -i 0.2 -W 1 {words} >/dev/null 2>&1 &" for words in pings]
    return "\n".join([*lines, "wait", "ip -j neigh"])


def _pings(here: NodeFacts, everybody: tuple[NodeFacts, ...]) -> Iterator[str]:
    for half, facts in here.halves.items():
        yield f"-6 -I {Half('', half.port, half.index).interface} ff02::1"
        for own in facts.addresses:
            known = (other.ip for node in everybody for end in node.halves.values() for other in end.addresses)
            peers = [ip for ip in known if ip in own.network and ip != own.ip]
            # An address that nobody has does as well for being heard: asking for it is a broadcast.
            last = own.network.broadcast_address - 1
            yield from map(str, peers or [last if last != own.ip else last - 1])
