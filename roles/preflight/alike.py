"""What the nodes of a rack have in common, and which is the odd one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median

from roles.preflight.identity import kernel_number
from roles.preflight.state import KHO, KHO_SINCE, Facts
from sparkrack.fleet import Node, Rack

CMDLINE = "kernel command line"
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
"""How words of a kernel command line begin that differ between machines by right."""


def common(words: Iterable[str]) -> str:
    """A kernel command line without what is one machine's own."""
    return " ".join(word for word in words if not word.startswith(OWN_WORDS))


def values(node: Node, facts: Facts) -> dict[str, str]:
    """What a node should have in common with the others. A BIOS is one vendor's, so that says whose it is."""

    def said(key: str, value: str) -> str:
        return value or facts.untold.get(key) or "none"

    return {
        "kernel": said("kernel", facts.kernel),
        CMDLINE: common(facts.cmdline),
        "NVIDIA driver": said("driver", facts.driver),
        "NIC firmware": said("firmware", facts.firmware),
        f"BIOS ({node.vendor})": said("bios", facts.bios),
        "docker engine": said("engine", facts.engine),
    }


def odd(name: str, about: str, held: Mapping[str, str]) -> str | None:
    """How one node differs in one thing from the others, by what each holds; None where there is nothing to tell.

    What more than half hold is usual, and only who differs from it is told. Where nothing is, all is told, by the
    first of them.
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
            there, here = _only(held[name], usual), _only(usual, held[name])
        where = f"the other {holders}" if holders == len(held) - 1 else f"{holders} of {len(held)}"
        return f"{name} differs in {about}: {there} there, {here} on {where}"
    if name != next(iter(held)):
        return None
    sides = (
        f"{_only(value, *counted) if about == CMDLINE else value} on "
        f"{', '.join(node for node, said in held.items() if said == value)}"
        for value in counted
    )
    return f"nodes differ in {about}: {'; '.join(sides)}"


def _only(words: str, *others: str) -> str:
    """The words that not all others have, or that there is none."""
    rest = [other.split() for other in others if other != words]
    mine = [word for word in words.split() if not all(word in other for other in rest)]
    return " ".join(mine) or "nothing more"


def differences(rack: Rack, name: str, fleet: Mapping[str, Facts]) -> list[str]:
    """How one node differs from the others, in everything that they should have in common."""
    each = {other: values(rack.nodes[other], facts) for other, facts in fleet.items()}
    found = []
    for about in each.get(name, {}):
        held = {other: said[about] for other, said in each.items() if about in said}
        if line := odd(name, about, held):
            found.append(line)
    return found


def warnings(facts: Facts) -> list[str]:
    """What is worth knowing of a node by itself, and no reason to leave it alone."""
    found = [f"dpkg is locked now by {holder}; packages wait for it" for holder in facts.lockers]
    number = kernel_number(facts.kernel)
    if KHO in facts.cmdline and number and number < KHO_SINCE:
        found.append(f"{KHO} is on the command line of kernel {facts.kernel}, which does not need it")
    return found


def duplicates(name: str, fleet: Mapping[str, Facts]) -> list[str]:
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
    low, high = (0.0, 0.0) if len(clocks) == 1 else (median(c[0] for c in clocks.values()), _highest(clocks))
    if least > high:
        return least - high
    return most - low if most < low else 0.0


def _highest(clocks: Mapping[str, tuple[float, float]]) -> float:
    return median(clock[1] for clock in clocks.values())


def clock(rack: Rack, name: str, fleet: Mapping[str, Facts]) -> str | None:
    """Whether a node's clock is too far off."""
    off, most = skew(name, {other: facts.clock for other, facts in fleet.items()}), rack.preflight.clock_skew
    if abs(off) <= most:
        return None
    than = "the operator's machine" if len(fleet) == 1 else f"the median of {len(fleet)} nodes"
    return (
        f"clock: {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} {than}, at most {most} s is right "
        "(preflight.clock_skew); look at `timedatectl`, then `timedatectl set-ntp true`"
    )


def refusals(rack: Rack, name: str, fleet: Mapping[str, Facts]) -> list[str]:
    """Why a node may not be changed, as only the others show it."""
    return [*([line] if (line := clock(rack, name, fleet)) else []), *duplicates(name, fleet)]
