"""Gates of a node before any change. Pure: rack, node and its facts -> problems, one a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.model import Node, Rack, mebibytes
from core.model.errors import truncate
from roles.preflight.dmi import kernel_number, older, vendor_of
from roles.preflight.options import PreflightOptions

SYSTEMS = {"ubuntu": "24.04", "debian": "13"}
"""DGX OS 7 is Ubuntu 24.04; Debian 13 is what the virtual rack has."""
MACHINE = "aarch64"
WIDTH, SPEED = "x4", "32GT/s"
"""PCIe of each half of a port on a healthy GB10: Gen5, four lanes (confirmed by several sites)."""
HOTPLUG = "/etc/nvidia/cx7-hotplug-enabled"
"""If this file exists, DGX OS removes a ConnectX-7 function whose cable or peer is down (reported)."""
# claim: lossless.driver-identity
ECN = "ecn/roce_np/enable/3"
"""File below an interface that only NVIDIA's driver (DOCA-OFED) has; the lossless role needs it for `roce`."""
KILLERS = ("earlyoom*", "nohang*", "oomd*", "systemd-oomd.service", "*anti-oom*")
"""Patterns of systemd units that end processes when memory is short: of distributions, of sparkrun and eugr
(earlyoom), and a watchdog of owners of GB10 machines (dgx-anti-oom, reported)."""
DESKTOP = "display-manager.service"
"""The alias of the running display manager on Ubuntu and Debian, whose default target is graphical without one, too."""
KHO = "kho=off"
KHO_SINCE = (7, 0)
"""Kexec HandOver is on by default from this kernel on and takes the contiguous memory that RDMA needs (reported by
several sites with DGX OS 26.09); before it, `kho=off` was once seen with a slow card (one report)."""

OWNER = "Written by sparkrack for the rack "
"""What the first line of each managed file has before the name of the rack."""
CLIENT = "/etc/ssh/ssh_config.d/50-sparkrack.conf"
OWNED = (
    CLIENT,
    "/etc/netplan/60-sparkrack-fabric.yaml",
    "/etc/sysctl.d/zz-sparkrack-memory.conf",
    "/etc/systemd/system/docker.service.d/50-sparkrack.conf",
    "/etc/sparkrack/fabric.env",
)
"""Managed files that show for which rack a node was set up. Each is of another role, so that one of them is there."""
SUDOERS, LOGIN = "/etc/sudoers.d/zz-sparkrack", "# Written by sparkrack: runs log in as"
"""The file of `sparkrack bootstrap` that shows as whom a run logs in, and its words before the name."""


@dataclass(frozen=True)
class PcieLink:
    """Link of a PCIe function, as lspci prints it: "32GT/s" and "x4"."""

    speed: str
    width: str


@dataclass(frozen=True)
class MachineFacts:
    """Facts of one node. An entry of `unknown` is the reason of an unknown fact; the fact is empty then."""

    system: str
    release: str
    machine: str
    kernel: str
    cmdline: tuple[str, ...]
    maker: str
    board: str
    product: str
    bios: str
    driver: str
    firmware: str
    engine: str
    containerd: str
    toolkit: str
    """Package and version of the engine, of containerd, and of NVIDIA's container toolkit; empty: not installed."""
    toolkit_mode: str
    """How NVIDIA's container runtime hands over the GPU: "auto", "legacy", "cdi"; empty: its file does not set it."""
    store: str
    """The storage driver of docker: "overlay2" of its own store, "overlayfs" of containerd's; empty: docker is down."""
    target: str
    """The default target of systemd; empty: unknown."""
    machine_id: str
    host_keys: Mapping[str, str]
    """Type of each host key by its text."""
    interfaces: frozenset[str]
    ecn: frozenset[str]
    """Interfaces of the card, and those of them whose driver is NVIDIA's."""
    links: Mapping[str, PcieLink]
    hotplug: bool
    room: Mapping[str, int]
    """KiB that are free, by the place where a disk is mounted."""
    clock: tuple[float, float]
    """By how many seconds the node's clock is ahead of the operator's: at least, at most."""
    lockers: tuple[str, ...]
    wifi: Mapping[str, tuple[str, ...]]
    """Addresses of each Wi-Fi interface that is up, with or without a connection."""
    tunnels: Mapping[str, tuple[str, ...]]
    """Addresses of each tunnel (WireGuard, Tailscale) that is up."""
    desktop: bool
    """Whether a display manager runs."""
    killers: tuple[str, ...]
    """Active systemd units of others that end processes when memory is short."""
    unknown: Mapping[str, str]
    racks: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    """The racks and the users for which the files of sparkrack on it were written."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Firmware of each internal device that fwupd knows, like the embedded controller and the USB-C power delivery, by
    its name; by its first GUID where it has none or shares it. The BIOS is not among them."""


def gates(rack: Rack, node: Node, facts: MachineFacts) -> list[str]:
    """Return why this node may not be changed, without a comparison with other nodes."""
    found = [
        *owner(rack, facts),
        system(facts),
        machine(facts),
        vendor(node, facts),
        *disks(rack, facts),
        *links(rack, node, facts),
        bios(rack, node, facts),
        handover(facts),
        *lossless(rack, node, facts),
    ]
    return [line for line in found if line]


def owner(rack: Rack, facts: MachineFacts) -> list[str]:
    """Refuse a node that was set up under another name or user than those that follow from where rack.yaml stands and
    who runs this: two operators of one rack would undo what the other one wrote. What is written in rack.yaml counts.
    """
    found = []
    others = sorted({name for name in facts.racks if name != rack.rack})
    if others and "rack" not in rack.model_fields_set:
        found.append(
            f"rack: the node was set up for the rack {truncate(others[0])}, and rack.yaml is in a folder that makes "
            f"its name {rack.rack}; write rack: {truncate(others[0])}, or rack: {rack.rack} to rename it"
        )
    others = sorted({name for name in facts.logins if name != rack.access.user})
    if others and "user" not in rack.access.model_fields_set:
        found.append(
            f"access.user: the node was set up for the user {truncate(others[0])}, and you are {rack.access.user}; "
            f"write access: {{user: {truncate(others[0])}}}, or {{user: {rack.access.user}}} to change it"
        )
    return found


def system(facts: MachineFacts) -> str | None:
    """The operating system that the roles are made for."""
    if SYSTEMS.get(facts.system) == facts.release:
        return None
    return f"OS: {facts.system} {facts.release}, wanted ubuntu 24.04 (DGX OS 7)"


def machine(facts: MachineFacts) -> str | None:
    """Require the architecture of a GB10."""
    if "machine" in facts.unknown:
        return f"architecture: unknown: {facts.unknown['machine']}"
    return None if facts.machine == MACHINE else f"architecture: {facts.machine}, wanted {MACHINE}"


def maker(node: Node, facts: MachineFacts) -> str | None:
    """The vendor of a node: the declared one, else the one that its DMI table names; None where that names none."""
    return node.vendor or vendor_of(facts.maker, facts.board)


def vendor(node: Node, facts: MachineFacts) -> str | None:
    """Require the vendor of rack.yaml, or any that is known where it names none."""
    for key in ("maker", "board"):
        if key in facts.unknown:
            return f"vendor: unknown: {facts.unknown[key]}"
    made = vendor_of(facts.maker, facts.board)
    if made == maker(node, facts) is not None:
        return None
    named = f"{facts.maker or '?'} {facts.product or '?'} (board: {facts.board or '?'})"
    if node.vendor is None:
        return (
            f"vendor: the machine at {node.address} is {named}, which no known maker of a GB10 has; is it another one?"
        )
    return (
        f"vendor: rack.yaml says {node.vendor}, the machine at {node.address} is {named}; "
        "it is another machine, or vendor is wrong"
    )


def disks(rack: Rack, facts: MachineFacts) -> list[str]:
    """Room on / and where docker keeps images."""
    if "room" in facts.unknown:
        return [f"disk: unknown: {facts.unknown['room']}"]
    least = rack.options(PreflightOptions).disk_free
    wanted = mebibytes(least)
    return [
        f"disk: {place} has {free / 1024 / 1024:.1f}G free, wanted {least} (preflight.disk_free)"
        for place, free in facts.room.items()
        if free < wanted * 1024
    ]


def slots(rack: Rack, node: Node) -> dict[str, str]:
    """The PCIe functions behind a node's cabled ports, with the interface of each."""
    return {
        f"{('0000', '0002')[half.index]}:01:00.{half.port}": half.interface
        for port in rack.cabling.ports_of(node.name)
        for half in port.halves
    }


def links(rack: Rack, node: Node, facts: MachineFacts) -> list[str]:
    """PCIe width and speed of both functions of each cabled port."""
    if "links" in facts.unknown:
        return [f"PCIe: unknown: {facts.unknown['links']}"]
    return [line for slot, name in slots(rack, node).items() if (line := _link_fault(node, facts, slot, name))]


def _link_fault(node: Node, facts: MachineFacts, slot: str, name: str) -> str | None:
    link = facts.links.get(slot)
    if link is None:
        why = (
            f"{HOTPLUG} is there, which removes a function while its cable or peer is down"
            if facts.hotplug
            else f"{HOTPLUG} is not there, so hotplug did not remove it"
        )
        return f"PCIe: function {slot} ({name}) is missing; {why}"
    if (link.speed, link.width) == (SPEED, WIDTH):
        return None
    remedy = ""
    if link.width == "x2" and maker(node, facts) == "asus":
        remedy = "; ASUS BIOS 0103 does that, 0104 fixes it"
    return f"PCIe: {slot} ({name}) runs at {link.speed} {link.width}, wanted {SPEED} {WIDTH}{remedy}"


def bios_floor(rack: Rack, made: str | None) -> str | None:
    """Return the oldest BIOS that rack.yaml accepts of a vendor; None for any."""
    return next((floor for name, floor in rack.options(PreflightOptions).bios.items() if name == made), None)


def bios(rack: Rack, node: Node, facts: MachineFacts) -> str | None:
    """The oldest BIOS of the node's vendor that rack.yaml accepts."""
    made = maker(node, facts)
    floor = bios_floor(rack, made)
    if floor is None:
        return None
    if "bios" in facts.unknown:
        return f"BIOS: unknown: {facts.unknown['bios']}"
    try:
        old = older(facts.bios, floor)
    except ValueError as unknown:
        return f"BIOS: unknown: {unknown}"
    if not old:
        return None
    return f"BIOS: {facts.bios}, wanted at least {floor} (preflight.bios.{made}); update it with fwupdmgr"


def handover(facts: MachineFacts) -> str | None:
    """`kho=off` where the kernel needs it."""
    if "kernel" in facts.unknown:
        return f"kernel: unknown: {facts.unknown['kernel']}"
    number = kernel_number(facts.kernel)
    if number is None:
        return f"kernel: unexpected probe output {facts.kernel[:40]!r}"
    if number < KHO_SINCE or KHO in facts.cmdline:
        return None
    return (
        f"kernel: {facts.kernel} was booted without {KHO}, so RDMA runs out of memory to register; install "
        f"nvidia-spark-grub-kho, or put {KHO} into GRUB_CMDLINE_LINUX and run update-grub; then reboot"
    )


def lossless(rack: Rack, node: Node, facts: MachineFacts) -> list[str]:
    """A driver that can do what the switch at the other end is declared to do."""
    faults = []
    for port in rack.cabling.ports_of(node.name):
        leg = rack.cabling.leg_of(port)
        if not leg or rack.switches[leg.switch].lossless != "roce":
            continue
        for name in (half.interface for half in port.halves):
            if name not in facts.interfaces:
                faults.append(f"lossless: {name} is not there, so whether its driver can do roce is unknown")
            elif name not in facts.ecn:
                faults.append(
                    f"lossless: {leg.switch} is declared roce and the driver of {name} has no {ECN}; install "
                    f"NVIDIA's DOCA-OFED, or declare pause; {leg.switch} was not changed"
                )
    return faults
