"""Comparison of the nodes of a rack, and the differing one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from statistics import median

from core.advisories.advisories import (
    CDI_MODE,
    KERNEL,
    NVIDIA_DRIVER,
    TOOLKIT,
    WITHOUT_KHO,
    advisory_line,
    known_against,
)
from core.model import Node, Rack
from roles.driver.options import DriverOptions
from roles.preflight.desired import DESKTOP, KHO, KHO_SINCE, MachineFacts, maker
from roles.preflight.dmi import kernel_number
from roles.preflight.options import PreflightOptions

CMDLINE = "kernel command line"
STORE = "image store of docker"
DEVICES = "firmware of devices"
NOT_INSTALLED = "fwupdmgr is not installed (package fwupd)"
"""Not a warning for all nodes: DGX OS has it, and a node without it differs from the others."""
OWN_WORDS = (
    "BOOT_IMAGE=",
    "initrd=",
    "root=",
    "resume=",
    "resume_offset=",
    "cryptdevice=",
    "rd.luks.",
    "ip=",
    "systemd.hostname=",
    "systemd.machine_id=",
    # A virtual node: its disk, its network, its name.
    "ubd",
    "uml_dir=",
    "hostfs=",
    "eth0=",
    "vec",
    "umid=",
)
"""Prefixes of words of a kernel command line that are allowed to differ between nodes."""


def common(words: Iterable[str]) -> str:
    """A kernel command line without what is one machine's own."""
    return " ".join(word for word in words if not word.startswith(OWN_WORDS))


def values(node: Node, facts: MachineFacts) -> dict[str, str]:
    """Return the values of a node that should be equal on all nodes. A BIOS version includes its vendor."""

    def reported(key: str, value: str) -> str:
        return value or facts.unknown.get(key) or "none"

    return {
        "kernel": reported("kernel", facts.kernel),
        CMDLINE: common(facts.cmdline),
        "NVIDIA driver": reported("driver", facts.driver),
        "NIC firmware": reported("firmware", facts.firmware),
        f"BIOS ({maker(node, facts)})": reported("bios", facts.bios),
        "docker engine": reported("engine", facts.engine),
        "containerd": facts.containerd or "none",
        "NVIDIA container toolkit": facts.toolkit or "none",
        "mode of NVIDIA's container runtime": facts.toolkit_mode or "none",
        "default target": facts.target or "unknown",
        # unknown where docker does not run, which its role mends
        **({STORE: facts.store} if facts.store else {}),
        DEVICES: f"unknown ({facts.unknown['devices']})" if "devices" in facts.unknown else "known to fwupd",
        # The same device of another vendor has versions of its own.
        **{f"firmware of {name} ({maker(node, facts)})": version for name, version in facts.devices.items()},
    }


def outlier(name: str, about: str, held: Mapping[str, str]) -> str | None:
    """Return how one node differs in one value from the others; None if there is nothing to report.

    The value of more than half of the nodes is the reference, and only a differing node is reported. Without a majority
    all values are reported, by the first node.
    """
    counted = Counter(held.values())
    if name not in held or len(counted) < 2:
        return None
    usual, holders = counted.most_common(1)[0]
    if 2 * holders > len(held):
        if held[name] == usual:
            return None
        there, here = held[name], usual
        if about == CMDLINE:
            there, here = _own_words(held[name], usual), _own_words(usual, held[name])
        where = f"the other {holders}" if holders == len(held) - 1 else f"{holders} of {len(held)}"
        return f"{name} differs in {about}: {there} there, {here} on {where}"
    if name != next(iter(held)):
        return None
    sides = (
        f"{_own_words(value, *counted) if about == CMDLINE else value} on "
        f"{', '.join(node for node, reported in held.items() if reported == value)}"
        for value in counted
    )
    return f"nodes differ in {about}: {'; '.join(sides)}"


def _own_words(words: str, *others: str) -> str:
    """Return the words that not all others have, or a text for none."""
    rest = [other.split() for other in others if other != words]
    own = [word for word in words.split() if not all(word in other for other in rest)]
    return " ".join(own) or "nothing more"


def differences(rack: Rack, name: str, fleet: Mapping[str, MachineFacts]) -> list[str]:
    """Return how one node differs from the others, in every value that should be equal."""
    each = {other: values(rack.nodes[other], facts) for other, facts in fleet.items()}
    found = []
    for about in each.get(name, {}):
        held = {other: reported[about] for other, reported in each.items() if about in reported}
        if line := outlier(name, about, held):
            found.append(line)
    return found


def warnings(rack: Rack, node: Node, facts: MachineFacts) -> list[str]:
    """Return warnings about a node by itself, which do not prevent a change."""
    found = [f"dpkg is locked now by {holder}; packages wait for it" for holder in facts.lockers]
    number = kernel_number(facts.kernel)
    if KHO in facts.cmdline and number and number < KHO_SINCE:
        found.append(f"{KHO} is on the command line of kernel {facts.kernel}, which does not need it")
    found += known_versions(rack, facts)
    found += [line for name, own in facts.wifi.items() if (line := _describe_wifi(node, name, own))]
    found += [
        f"management: {node.address} is on {name}, a tunnel: leases, rendezvous and Ray end with it; use the address "
        "of a cable, or declare rdma.sockets: fabric"
        for name, own in facts.tunnels.items()
        if str(node.address) in own
    ]
    found += [
        f"{unit} is active: it ends processes by figures that do not contain the GPU's memory, and a served unit then "
        f"stops with exit code 137; the role memory has a guard of its own: systemctl disable --now {unit}"
        for unit in facts.killers
    ]
    why = facts.unknown.get("devices")
    if why and why != NOT_INSTALLED:
        found.append(f"firmware of devices is unknown, so EC and PD are not compared: {why}")
    if facts.desktop:
        found.append(
            f"a desktop runs ({DESKTOP}): it takes 2 to 3 GiB of memory, and gnome-remote-desktop holds the GPU; "
            "systemctl set-default multi-user.target, then reboot, if no screen is used"
        )
    return found


def known_versions(rack: Rack, facts: MachineFacts) -> list[str]:
    """Return what is known against the versions that a node runs, and against the kernel that it gets.

    A kernel that runs without the `kho=off` that it needs is refused by a gate.
    """
    toolkit = facts.toolkit.rpartition(" ")[2]
    asked = [
        (NVIDIA_DRIVER, facts.driver, ()),
        (KERNEL, facts.kernel, ()),
        (TOOLKIT, toolkit, (CDI_MODE,) if facts.toolkit_mode == "cdi" else ()),
    ]
    driver = rack.declared(DriverOptions)
    if driver and driver.kernel and driver.kernel != facts.kernel and KHO not in facts.cmdline:
        asked.append((KERNEL, driver.kernel, (WITHOUT_KHO,)))
    return [
        advisory_line(row, version)
        for subject, version, features in asked
        for row in known_against(subject, version, features)
    ]


def _describe_wifi(node: Node, name: str, addresses: Collection[str]) -> str:
    """Return the message about a Wi-Fi interface that is up: never to turn off the one by which the node is reached."""
    crashes = "its driver was reported to crash the kernel, which blocks all interfaces of the node or, with "
    crashes += "blackbox.panic.oops, reboots it"
    if str(node.address) in addresses:
        return (
            f"management: {node.address} is on {name}, Wi-Fi: leases, rendezvous and Ray depend on it, and {crashes}; "
            "connect enP7s7 and use its address, or declare rdma.sockets: fabric"
        )
    return f"Wi-Fi: {name} is on; {crashes}; turn it off: nmcli radio wifi off"


def duplicates(name: str, fleet: Mapping[str, MachineFacts]) -> list[str]:
    """Identities of a node that another one has too: each of them is refused, naming the other."""
    facts = fleet[name]
    faults = []
    twins = [other for other, its in fleet.items() if other != name and its.machine_id == facts.machine_id]
    if twins:
        faults.append(
            f"machine-id: the same as on {', '.join(twins)}; on one of them: rm /etc/machine-id "
            "/var/lib/dbus/machine-id; systemd-machine-id-setup; reboot"
        )
    for key, kind in facts.host_keys.items():
        twins = [other for other, its in fleet.items() if other != name and key in its.host_keys]
        if twins:
            faults.append(
                f"host key: {kind} is the same as on {', '.join(twins)}, so each can pass for the other; on one of "
                "them: rm /etc/ssh/ssh_host_*; ssh-keygen -A; then pin its new key"
            )
    return faults


def skew(name: str, clocks: Mapping[str, tuple[float, float]]) -> float:
    """By how many seconds a node's clock is off from the median of the fleet, at least; ahead of it is positive.

    Each clock is known as "ahead of the operator's by at least, at most", since an answer takes its time. A node
    alone is compared with the operator's clock.
    """
    least, most = clocks[name]
    low, high = (
        (0.0, 0.0) if len(clocks) == 1 else (median(c[0] for c in clocks.values()), _median_highest_clock(clocks))
    )
    if least > high:
        return least - high
    return most - low if most < low else 0.0


def _median_highest_clock(clocks: Mapping[str, tuple[float, float]]) -> float:
    return median(clock[1] for clock in clocks.values())


def clock(rack: Rack, name: str, fleet: Mapping[str, MachineFacts]) -> str | None:
    """Return the problem of a node's clock, if it is too far off."""
    off = skew(name, {other: facts.clock for other, facts in fleet.items()})
    most = rack.options(PreflightOptions).clock_skew
    if abs(off) <= most:
        return None
    than = "the operator's machine" if len(fleet) == 1 else f"the median of {len(fleet)} nodes"
    return (
        f"clock: {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} {than}, at most {most} s is right "
        "(preflight.clock_skew); look at `timedatectl`, then `timedatectl set-ntp true`"
    )


def refusals(rack: Rack, name: str, fleet: Mapping[str, MachineFacts]) -> list[str]:
    """Return why a node may not be changed, from the comparison with the others."""
    return [*([line] if (line := clock(rack, name, fleet)) else []), *duplicates(name, fleet)]
