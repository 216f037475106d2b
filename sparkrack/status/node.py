"""What a node's answer means, judged by rack.yaml. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roles.docker.containers import running
from roles.driver.reboot import upstream
from roles.driver.state import is_version
from roles.images.state import images, short, stock
from roles.memory.guard import floor_kb
from roles.memory.state import active, available_kb, total_kb
from sparkrack.fleet import Half, Rack
from sparkrack.fleet.errors import one_line, shown
from sparkrack.fleet.pins import Pin
from sparkrack.ops import lock
from sparkrack.status.judging import Judging
from sparkrack.status.model import About, Finding, Images, Link, Lock, LockHolder, Memory, NodeStatus
from sparkrack.status.question import ABSENT, HELD, NONE, answers, declared_images, halves, head


@dataclass(frozen=True)
class Unread:
    """The lock file of the images cannot be read."""

    why: str


Pins = Mapping[str, Pin] | Unread
"""What the lock file says of each image."""


def node(rack: Rack, name: str, output: str, pins: Pins) -> tuple[NodeStatus, Lock]:
    """What a node that answered `output` says, and what it says of the run lock, if it is the one that keeps it."""
    try:
        judging = Judging(rack, name, answers(output))
    except ValueError as fault:
        return silent(rack, name, f"cannot be understood: {fault}", reachable=True), Lock(told=False)
    told = judging.told
    holds = (told(About.LOCK, lambda: _lock(judging)) if name == head(rack) else None) or Lock(told=False)
    status = NodeStatus(
        name=name,
        reachable=True,
        uptime=told(About.UPTIME, lambda: int(float(judging.line("uptime", r"\d{1,12}\.\d\d \d+\.\d\d").split()[0]))),
        kernel=told(About.KERNEL, lambda: _kernel(judging)),
        driver=told(About.DRIVER, lambda: _driver(judging)),
        memory=told(About.MEMORY, lambda: _memory(judging)),
        swap=told(About.SWAP, lambda: _swap(judging)),
        links=tuple(_link(judging, half) for half in halves(rack, name)),
        images=Images(declared=len(declared_images(rack)), right=told(About.IMAGES, lambda: _images(judging, pins))),
        reboot=told(About.REBOOT, lambda: _reboot(judging)),
        containers=told(About.CONTAINERS, lambda: len(running(judging.answer("containers").text))),
        # Last: what stands above fills them.
        wrong=tuple(judging.wrong),
        unknown=tuple(judging.unknown),
        notes=tuple(judging.notes),
    )
    return status, holds


def silent(rack: Rack, name: str, why: str, *, reachable: bool = False) -> NodeStatus:
    """A node of which nothing is known."""
    return NodeStatus(
        name=name,
        reachable=reachable,
        links=tuple(Link(interface=half.interface, wanted=_gbps(rack, half)) for half in halves(rack, name)),
        images=Images(declared=len(declared_images(rack))),
        unknown=(Finding(about=About.ALL, text=one_line(why)),),
    )


def _kernel(judging: Judging) -> str:
    runs = judging.line("kernel", r"\d[\w.+~-]{0,63}")
    driver = judging.rack.driver if judging.rack.keeps("driver") else None
    if driver and driver.kernel not in (None, runs):
        judging.differs(About.KERNEL, f"kernel {runs} runs, wanted {driver.kernel}")
    return runs


def _driver(judging: Judging) -> str:
    lines = judging.answer("driver").lines
    loaded = list(dict.fromkeys(lines))
    if not loaded or not all(re.fullmatch(r"[0-9][0-9A-Za-z.+~-]{0,63}", one) for one in loaded):
        raise ValueError(f"driver: cannot be told from {shown(' '.join(lines))}")
    declared = judging.rack.driver if judging.rack.keeps("driver") else None
    for one in loaded if declared else ():
        version = declared.version if declared else ""
        # Loaded is 580.159.03 where the package, which may be what is declared, is 580.159.03-0ubuntu1.
        if not is_version(one, version) and one != upstream(version):
            judging.differs(About.DRIVER, f"driver {one} is loaded, wanted {version}")
    return " ".join(loaded)


def _memory(judging: Judging) -> Memory:
    text = judging.answer("memory").text
    try:
        found = Memory(total=total_kb(text), available=available_kb(text))
    except ValueError:
        found = Memory(total=0, available=0)
    if not 0 <= found.available <= found.total or not found.total:
        raise ValueError("memory: /proc/meminfo does not tell MemTotal and MemAvailable")
    floor = floor_kb(judging.rack)
    if found.available < floor and judging.rack.keeps("memory"):
        gib = found.available / 2**20
        judging.differs(About.MEMORY, f"{gib:.1f}G are available, less than memory.floor: containers are ended")
    return found


def _swap(judging: Judging) -> tuple[str, ...]:
    text = judging.answer("swap").text
    if not text.startswith("Filename"):
        raise ValueError("swap: /proc/swaps is no list of swaps")
    found = tuple(active(text))
    if found and judging.rack.keeps("memory") and not judging.rack.memory.swap:
        judging.differs(About.SWAP, f"swap is on ({shown(', '.join(found))}), wanted off")
    return found


def _reboot(judging: Judging) -> bool:
    lines = judging.answer("reboot").lines
    if lines[:1] not in ((HELD,), (NONE,)):
        raise ValueError(f"reboot: cannot be told from {shown(' '.join(lines))}")
    asked = lines[0] == HELD
    if asked:
        names = ", ".join(dict.fromkeys(lines[1:])) or "a package"
        judging.notes.append(f"a reboot is required, {shown(names)} asked for it")
    return asked


def _gbps(rack: Rack, half: Half) -> int:
    cables = (rack.cabling.cable_of(port) for port in rack.cabling.ports_of(half.node) if half in port.halves)
    return next(cable.gbps for cable in cables if cable)


def _link(judging: Judging, half: Half) -> Link:
    name, wanted = half.interface, _gbps(judging.rack, half)
    found = judging.told(About.LINKS, lambda: _seen(judging, name, wanted)) or Link(interface=name, wanted=wanted)
    if found.there is False:
        judging.differs(About.LINKS, f"there is no interface {name}")
    elif found.carrier is False:
        judging.differs(About.LINKS, f"{name} has no carrier")
    elif found.gbps not in (None, wanted):
        judging.differs(About.LINKS, f"{name} runs at {found.gbps:g}G, wanted {wanted}G")
    return found


def _seen(judging: Judging, name: str, wanted: int) -> Link:
    said = judging.said.get(name)
    # ethtool fails for one setting that a driver does not tell, and tells the others.
    if said is None or not said.lines:
        judging.answer(name, "ethtool")
        raise ValueError(f"{name}: ethtool says nothing")
    if said.lines == (ABSENT,):
        return Link(interface=name, wanted=wanted, there=False)
    fields = dict(line.strip().split(": ", 1) for line in said.lines if ": " in line)
    carrier = {"yes": True, "no": False}.get(fields.get("Link detected", ""))
    if carrier is None:
        raise ValueError(f"{name}: ethtool does not tell whether there is a link")
    speed = re.fullmatch(r"(\d{1,7})Mb/s", fields.get("Speed", ""), re.ASCII)
    if carrier and not speed:
        raise ValueError(f"{name}: ethtool does not tell the speed of the link")
    gbps = int(speed[1]) / 1000 if speed and carrier else None
    return Link(interface=name, wanted=wanted, there=True, carrier=carrier, gbps=gbps)


def _images(judging: Judging, pins: Pins) -> int | None:
    if not declared_images(judging.rack):
        return None
    declared = images(judging.rack)
    if isinstance(pins, Unread):
        raise ValueError(pins.why)  # noqa: TRY004 - it is no fault of the program
    held = stock(judging.answer("images").text)
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


def _lock(judging: Judging) -> Lock:
    said = judging.said.get("lock")
    if said and (said.code, said.lines) == (lock.GONE, ()):
        return Lock(told=True)
    who = lock.told(judging.answer("lock").text)
    if who.id == lock.UNREADABLE:
        raise ValueError(f"{who} holds the rack")
    return Lock(told=True, holder=LockHolder(id=who.id, who=who.who, since=who.since, what=who.what))
