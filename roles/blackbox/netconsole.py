"""How the messages of a node's kernel reach another node: files and live state of sender and receiver. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.model import Node, Rack
from core.model.fields import mebibytes
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell, validate_unit
from roles.blackbox import stream_routes
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.receiver import UNITS as UNITS_FOLDER
from roles.blackbox.receiver import Receiver

PROGRAM = "/usr/local/lib/sparkrack/netconsole-target"
SERVICE = "sparkrack-netconsole.service"
TIMER = "sparkrack-netconsole.timer"
RECEIVE = "sparkrack-netconsole-receive.service"
RECEIVE_PROGRAM = "/usr/local/lib/sparkrack/netconsole_receiver.py"
SENDER_PATHS = (PROGRAM, f"{UNITS_FOLDER}/{SERVICE}", f"{UNITS_FOLDER}/{TIMER}")
UNITS = (TIMER, RECEIVE)
RECEIVED = "/var/lib/sparkrack/blackbox/netconsole"
_RECEIVER = Receiver(
    RECEIVE_PROGRAM,
    RECEIVE,
    "files/netconsole_receiver.py",
    "templates/sparkrack-netconsole-receive.service",
    stream_routes.NETCONSOLE_PORT,
    RECEIVED,
)
RECEIVER_PATHS = _RECEIVER.paths
WARNING_LEVEL = 5
"""Messages with a number below the level of the console are sent: with 5 warnings (4) are."""
LOSING_DRIVER = "r8169"
"""With this driver the management port of a DGX Spark is gone after a warm reboot (reported)."""
_LIMIT_MIB = 64


def receiver(rack: Rack, node: Node) -> Node | None:
    """Return the node to which the kernel of a node sends; None if it does not."""
    return stream_routes.receiver(rack, node) if rack.options(BlackboxOptions).netconsole else None


def senders(rack: Rack, node: Node) -> list[Node]:
    """Return the nodes whose kernels send to a node."""
    return stream_routes.senders(rack, node) if rack.options(BlackboxOptions).netconsole else []


def sender_files(rack: Rack, node: Node, to: Node) -> list[ManagedFile]:
    """Return the files of a node whose kernel sends to another one."""
    program = resources.file_text("roles.blackbox", "files/netconsole-target.sh")
    service = resources.file_text(
        "roles.blackbox",
        "templates/sparkrack-netconsole.service",
        header=header(rack.rack),
        program=PROGRAM,
        local=stream_routes.address(node),
        remote=stream_routes.address(to),
    )
    timer = resources.file_text("roles.blackbox", "templates/sparkrack-netconsole.timer", header=header(rack.rack))
    return [
        ManagedFile(PROGRAM, program.encode(), "755", validate_shell()),
        ManagedFile(f"{UNITS_FOLDER}/{SERVICE}", service.encode(), validate=validate_unit(SERVICE)),
        ManagedFile(f"{UNITS_FOLDER}/{TIMER}", timer.encode()),
    ]


def receiver_files(rack: Rack, node: Node) -> list[ManagedFile]:
    """Return the files of a node that receives kernel messages."""
    limit = min(_LIMIT_MIB, mebibytes(rack.options(BlackboxOptions).journal.keep))
    return _RECEIVER.files(rack, node, senders(rack, node), limit)


# claim: blackbox.netconsole
def blockers(live: Mapping[tuple[str, str], str], node: Node) -> tuple[str, ...]:
    """Why the kernel of a node may not send. Raises ValueError for an unknown answer."""
    off = "or set blackbox.netconsole: false in rack.yaml"
    dynamic = _live_value(live, "dynamic", "yes|no")
    interfaces = _live_value(live, "interfaces", r"([0-9.]+=[^ =]+=[^ =]+ ?)*")
    driver = _interface_driver(interfaces, stream_routes.address(node))
    lines = []
    if dynamic == "no":
        lines.append(f"this kernel has no CONFIG_NETCONSOLE_DYNAMIC; use one with it, {off}")
    if driver == LOSING_DRIVER:
        lines.append(
            f"the management port has the driver {driver}, with which it is lost at a warm reboot; install the driver "
            f"r8127, {off}"
        )
    return tuple(lines)


def armed(live: Mapping[tuple[str, str], str], node: Node, to: Node) -> bool:
    """Whether the kernel sends to the receiver now. Raises ValueError for an unknown answer."""
    target = _live_value(live, "target", r"absent|[01] \S+ \S+ [01]")
    level = _live_value(live, "level", "[0-9]{1,2}")
    wanted = f"1 {stream_routes.address(node)} {stream_routes.address(to)} 1"
    return target == wanted and int(level) >= WARNING_LEVEL


def present(live: Mapping[tuple[str, str], str]) -> bool:
    """Whether there is a target of ours. Raises ValueError for an unknown answer."""
    return _live_value(live, "target", r"absent|[01] \S+ \S+ [01]") != "absent"


def _interface_driver(interfaces: str, address: str) -> str:
    for one in interfaces.split():
        place, _, driver = one.split("=")
        if place == address:
            return driver
    raise ValueError(f"blackbox state: netconsole interfaces: none has {address}")


def _live_value(live: Mapping[tuple[str, str], str], name: str, pattern: str) -> str:
    value = live.get(("netconsole", name), "no answer")
    if not re.fullmatch(pattern, value):
        raise ValueError(f"blackbox state: netconsole {name}: unexpected probe output {value[:80]!r}")
    return value
