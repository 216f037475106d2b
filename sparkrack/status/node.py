"""Evaluation of a node's answer by rack.yaml. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.model import Half, Rack
from core.model.errors import printable_line, truncate
from core.model.image_lock import Pin
from core.ops import run_lock
from core.probes.links import parse_ethtool
from core.probes.protocol import parse_commands
from roles.docker.containers import running
from roles.driver.desired import is_version
from roles.driver.options import DriverOptions
from roles.driver.reboot_reasons import upstream
from roles.images.desired import NO_ENGINE, images, local_images, short
from roles.memory.desired import active, available_kb, total_kb
from roles.memory.memory_guard import floor_kb
from roles.memory.options import MemoryOptions
from sparkrack.status.model import (
    About,
    ImagesStatus,
    LinkStatus,
    LockHolder,
    LockStatus,
    MemoryStatus,
    NodeStatus,
    StatusFinding,
)
from sparkrack.status.node_evaluation import NodeEvaluation
from sparkrack.status.probe_script import ABSENT, HELD, NONE, declared_images, halves, head


@dataclass(frozen=True)
class Unread:
    """The lock file of the images cannot be read."""

    why: str


Pins = Mapping[str, Pin] | Unread
"""Pin of each image in the lock file."""


def node(rack: Rack, name: str, output: str, pins: Pins) -> tuple[NodeStatus, LockStatus]:
    """Evaluate the `output` of a node, and its data about the run lock, if it keeps the lock."""
    try:
        judging = NodeEvaluation(rack, name, parse_commands(output))
    except ValueError as fault:
        return silent(rack, name, f"cannot be understood: {fault}", reachable=True), LockStatus(known=False)
    value_or_unknown = judging.value_or_unknown
    holds = (value_or_unknown(About.LOCK, lambda: _lock_status(judging)) if name == head(rack) else None) or LockStatus(
        known=False
    )
    status = NodeStatus(
        name=name,
        reachable=True,
        uptime=value_or_unknown(
            About.UPTIME, lambda: int(float(judging.line("uptime", r"\d{1,12}\.\d\d \d+\.\d\d").split()[0]))
        ),
        kernel=value_or_unknown(About.KERNEL, lambda: _kernel_version(judging)),
        driver=value_or_unknown(About.DRIVER, lambda: _driver_version(judging)),
        memory=value_or_unknown(About.MEMORY, lambda: _memory_status(judging)),
        swap=value_or_unknown(About.SWAP, lambda: _swap_devices(judging)),
        links=tuple(_link_status(judging, half) for half in halves(rack, name)),
        images=ImagesStatus(
            declared=len(declared_images(rack)),
            right=value_or_unknown(About.IMAGES, lambda: _count_right_images(judging, pins)),
        ),
        reboot=value_or_unknown(About.REBOOT, lambda: _reboot_is_pending(judging)),
        containers=value_or_unknown(About.CONTAINERS, lambda: len(running(judging.answer("containers").text))),
        # Last: the lines above fill them.
        wrong=tuple(judging.wrong),
        unknown=tuple(judging.unknown),
        notes=tuple(judging.notes),
    )
    return status, holds


def silent(rack: Rack, name: str, why: str, *, reachable: bool = False) -> NodeStatus:
    """Return the status of a node without any data."""
    return NodeStatus(
        name=name,
        reachable=reachable,
        links=tuple(
            LinkStatus(interface=half.interface, wanted=_cable_gbps(rack, half)) for half in halves(rack, name)
        ),
        images=ImagesStatus(declared=len(declared_images(rack))),
        unknown=(StatusFinding(about=About.ALL, text=printable_line(why)),),
    )


def _kernel_version(judging: NodeEvaluation) -> str:
    runs = judging.line("kernel", r"\d[\w.+~-]{0,63}")
    driver = judging.rack.declared(DriverOptions) if judging.rack.keeps("driver") else None
    if driver and driver.kernel not in (None, runs):
        judging.differs(About.KERNEL, f"kernel {runs} runs, wanted {driver.kernel}")
    return runs


def _driver_version(judging: NodeEvaluation) -> str:
    lines = judging.answer("driver").lines
    loaded = list(dict.fromkeys(lines))
    if not loaded or not all(re.fullmatch(r"[0-9][0-9A-Za-z.+~-]{0,63}", one) for one in loaded):
        raise ValueError(f"driver: unexpected output: {truncate(' '.join(lines))}")
    declared = judging.rack.declared(DriverOptions) if judging.rack.keeps("driver") else None
    version = declared.version if declared and declared.version else ""
    for one in loaded if version else ():
        # The loaded version is 580.159.03 where the package version, which may be declared, is 580.159.03-0ubuntu1.
        if not is_version(one, version) and one != upstream(version):
            judging.differs(About.DRIVER, f"driver {one} is loaded, wanted {version}")
    return " ".join(loaded)


def _memory_status(judging: NodeEvaluation) -> MemoryStatus:
    text = judging.answer("memory").text
    try:
        found = MemoryStatus(total=total_kb(text), available=available_kb(text))
    except ValueError:
        found = MemoryStatus(total=0, available=0)
    if not 0 <= found.available <= found.total or not found.total:
        raise ValueError("memory: /proc/meminfo does not report MemTotal and MemAvailable")
    floor = floor_kb(judging.rack)
    if found.available < floor and judging.rack.keeps("memory"):
        gib = found.available / 2**20
        judging.differs(About.MEMORY, f"{gib:.1f}G are available, less than memory.floor: containers are ended")
    return found


def _swap_devices(judging: NodeEvaluation) -> tuple[str, ...]:
    text = judging.answer("swap").text
    if not text.startswith("Filename"):
        raise ValueError("swap: /proc/swaps is not a list of swaps")
    found = tuple(active(text))
    if found and judging.rack.keeps("memory") and not judging.rack.options(MemoryOptions).swap:
        judging.differs(About.SWAP, f"swap is on ({truncate(', '.join(found))}), wanted off")
    return found


def _reboot_is_pending(judging: NodeEvaluation) -> bool:
    lines = judging.answer("reboot").lines
    if lines[:1] not in ((HELD,), (NONE,)):
        raise ValueError(f"reboot: unexpected output: {truncate(' '.join(lines))}")
    asked = lines[0] == HELD
    if asked:
        names = ", ".join(dict.fromkeys(lines[1:])) or "a package"
        judging.notes.append(f"a reboot is required, {truncate(names)} asked for it")
    return asked


def _cable_gbps(rack: Rack, half: Half) -> int:
    cables = (rack.cabling.cable_of(port) for port in rack.cabling.ports_of(half.node) if half in port.halves)
    return next(cable.gbps for cable in cables if cable)


def _link_status(judging: NodeEvaluation, half: Half) -> LinkStatus:
    name, wanted = half.interface, _cable_gbps(judging.rack, half)
    found = judging.value_or_unknown(About.LINKS, lambda: _observed_link(judging, name, wanted)) or LinkStatus(
        interface=name, wanted=wanted
    )
    if found.there is False:
        judging.differs(About.LINKS, f"there is no interface {name}")
    elif found.carrier is False:
        judging.differs(About.LINKS, f"{name} has no carrier")
    elif found.gbps not in (None, wanted):
        judging.differs(About.LINKS, f"{name} runs at {found.gbps:g}G, wanted {wanted}G")
    return found


def _observed_link(judging: NodeEvaluation, name: str, wanted: int) -> LinkStatus:
    answer = judging.answers.get(name)
    # ethtool fails for a setting that a driver does not report, and prints the others.
    if answer is None or not answer.lines:
        judging.answer(name, "ethtool")
        raise ValueError(f"{name}: ethtool prints nothing")
    if answer.lines == (ABSENT,):
        return LinkStatus(interface=name, wanted=wanted, there=False)
    report = parse_ethtool(answer.text)
    if report.carrier is None:
        raise ValueError(f"{name}: ethtool does not report whether there is a link")
    if report.carrier and report.mbps is None:
        raise ValueError(f"{name}: ethtool does not report the speed of the link")
    gbps = report.mbps / 1000 if report.mbps is not None and report.carrier else None
    return LinkStatus(interface=name, wanted=wanted, there=True, carrier=report.carrier, gbps=gbps)


def _count_right_images(judging: NodeEvaluation, pins: Pins) -> int | None:
    if not declared_images(judging.rack):
        return None
    declared = images(judging.rack)
    if isinstance(pins, Unread):
        raise ValueError(pins.why)  # noqa: TRY004 - it is not a fault of the program
    listing = judging.answer("images").text
    if listing.strip() == NO_ENGINE:
        # As drift has it: the run starts docker and pulls the images, so this is a difference and not unknown.
        judging.differs(About.IMAGES, "docker does not run; start it (systemctl start docker), or run sparkrack apply")
        return 0
    held = local_images(listing)
    right = 0
    for image in declared:
        there, pin = held.named(image), pins.get(image.name)
        if there is None:
            judging.differs(About.IMAGES, f"image {image.local} is missing")
        elif pin is None:
            raise ValueError(f"the lock file does not have {image.name}, so which image is right is not known")
        elif there.id != pin.id:
            judging.differs(About.IMAGES, f"image {image.local} is {short(there.id)}, wanted {short(pin.id)}")
        else:
            right += 1
    return right


def _lock_status(judging: NodeEvaluation) -> LockStatus:
    answer = judging.answers.get("lock")
    if answer and (answer.code, answer.lines) == (run_lock.GONE, ()):
        return LockStatus(known=True)
    text = judging.answer("lock").text
    holder = run_lock.describe_holder(text)
    if holder.id == run_lock.UNREADABLE:
        raise ValueError(f"{holder} holds the rack")
    silence = run_lock.silence_seconds(text) if holder.beat else None
    expired = run_lock.expired(text)
    found = LockHolder(
        id=holder.id, operator=holder.who, since=holder.since, scope=holder.what, silence=silence, expired=expired
    )
    return LockStatus(known=True, holder=found)
