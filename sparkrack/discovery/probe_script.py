"""Scripts that read the facts of a node, and that send frames from it so that its neighbours learn it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from core.model import Half
from core.probes import protocol
from core.util import resources
from roles.driver.desired import listed, loaded_driver
from roles.fabric.desired import HOTPLUG
from roles.fabric.foreign_netplan import CONTENT_PROBE, NAMES_PROBE, RENDERERS_PROBE
from roles.fabric.interface_owners import PROBE as OWNERS_PROBE
from roles.images.desired import list_images
from sparkrack.discovery import engine_containers
from sparkrack.discovery.node_facts import ADOPTED, TIME_SERVERS, NodeFacts

TOOL_SECONDS = 5
"""Seconds for a tool that may hang (docker, nvidia-smi)."""
NO, YES = "no", "yes"

_PCI_FUNCTIONS = r"""for d in /sys/class/net/*; do
[ "$(cat "$d/device/vendor")" = 0x15b3 ] || continue
p=$(readlink -f "$d/device") && echo "${d##*/} ${p##*/}"
done; true"""

QUESTIONS: Mapping[str, str] = {
    "hostname": "hostname",
    "maker": "dmidecode -s system-manufacturer || cat /sys/class/dmi/id/sys_vendor",
    "board": "dmidecode -s baseboard-manufacturer || cat /sys/class/dmi/id/board_vendor",
    "links": "ip -d -j address",
    "neighbours": "ip -j neigh",
    "functions": _PCI_FUNCTIONS,
    "route": "ip -j route show default",
    **{question: option.command for question, option in ADOPTED.items()},
    TIME_SERVERS: resources.shell_text("roles.time", "files/live-servers.sh"),
    "kernel": "uname -r",
    "driver": loaded_driver(TOOL_SECONDS),
    "packages": listed(),
    "engine": "if command -v docker > /dev/null; then docker --version; else echo none; fi",
    "images": list_images(TOOL_SECONDS),
    "sshd": "o=$(PATH=$PATH:/usr/sbin sshd -T) && printf '%s\\n' \"$o\" | grep -E '^(passwordauthentication|"
    "kbdinteractiveauthentication|permitrootlogin) '",
    "naming": NAMES_PROBE,
    "whole": CONTENT_PROBE,
    "rendering": RENDERERS_PROBE,
    "owners": OWNERS_PROBE,
    "engines": engine_containers.QUESTION,
    "hotplug": f"if [ -e {HOTPLUG} ]; then echo {YES}; else echo {NO}; fi",
}
"""Commands of the script by question, each in a shell of its own. They write nothing and start no engine."""


def script() -> str:
    """Return the script that asks all questions; it needs no input."""
    return protocol.script(QUESTIONS)


def neighbour_script(here: NodeFacts, nodes: Iterable[NodeFacts]) -> str:
    """Return a script that sends frames from each half of a node's ports, so that switch and peers learn its location;
    it prints the node's neighbours at last.

    An interface that is up has an address of its own for multicast; what it has of IPv4 is used to ask the others.
    """
    pings = dict.fromkeys(_ping_arguments(here, tuple(nodes)))
    lines = [f"ping -q -n -c 2 -i 0.2 -W 1 {words} >/dev/null 2>&1 &" for words in pings]
    return "\n".join([*lines, "wait", "ip -j neigh"])


def _ping_arguments(here: NodeFacts, nodes: tuple[NodeFacts, ...]) -> Iterator[str]:
    for half, facts in here.halves.items():
        # claim: discovery.ipv6-ping
        yield f"-6 -I {Half('', half.port, half.index).interface} ff02::1"
        for own in facts.addresses:
            known = (other.ip for node in nodes for end in node.halves.values() for other in end.addresses)
            peers = [ip for ip in known if ip in own.network and ip != own.ip]
            # An unused address works as well: the ARP request for it is a broadcast.
            last = own.network.broadcast_address - 1
            yield from map(str, peers or [last if last != own.ip else last - 1])
