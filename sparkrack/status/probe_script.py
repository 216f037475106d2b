"""The probe of a node: its questions, in one shell script. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.model import Half, Rack
from core.ops import run_lock
from core.probes import protocol
from roles.docker.scripts import CONTAINERS
from roles.driver.desired import loaded_driver
from roles.driver.reboot_reasons import ASKED, ASKING
from roles.images.desired import list_images
from serving.options import ServedUnit, served_units
from sparkrack.serving.coordinator import question

DOCKER_SECONDS = 4
OTHER_SECONDS = 2
"""Seconds for docker, and for any other tool that may hang."""
NONE, ABSENT, HELD = "none", "absent", "held"


def script(rack: Rack, node: str) -> str:
    """Return the script for a node; it takes no input, writes nothing, and starts no unneeded program. Error output of
    a tool is dropped: its exit status decides whether its output counts.
    """
    return protocol.script(dict(_list_questions(rack, node)))


def _list_questions(rack: Rack, node: str) -> Iterator[tuple[str, str]]:
    yield "uptime", "cat /proc/uptime"
    yield "kernel", "uname -r"
    yield "driver", loaded_driver(OTHER_SECONDS)
    yield "memory", "cat /proc/meminfo"
    yield "swap", "cat /proc/swaps"
    yield "reboot", f"if [ -e {ASKED} ]; then echo {HELD}; cat {ASKING} || true; else echo {NONE}; fi"
    yield "containers", CONTAINERS
    for half in halves(rack, node):
        name = half.interface
        there = f"[ -e /sys/class/net/{name} ] || {{ echo {ABSENT}; exit 0; }}"
        yield name, f"{there}; timeout {OTHER_SECONDS} ethtool {name}"
    if declared_images(rack):
        yield "images", list_images(DOCKER_SECONDS)
    for unit in headed_units(rack, node):
        yield f"serve-{unit.name}", question(unit, "status", limit=OTHER_SECONDS)
    if node == head(rack):
        yield "lock", run_lock.read_script()


def declared_images(rack: Rack) -> tuple[str, ...]:
    """Return the images that every node must have, if the rack manages them."""
    return rack.images if rack.keeps("images") else ()


def headed_units(rack: Rack, node: str) -> tuple[ServedUnit, ...]:
    """Return the units whose coordinator is on a node, if the rack manages them."""
    units = served_units(rack).values() if rack.keeps("serving") else ()
    return tuple(unit for unit in units if unit.ranks(rack.nodes)[0] == node)


def halves(rack: Rack, node: str) -> Iterator[Half]:
    """The halves of a node that hold a cable, in the order of ports."""
    for port in rack.cabling.ports_of(node):
        yield from port.halves


def head(rack: Rack) -> str:
    """Return the node that keeps the run lock."""
    return next(iter(rack.nodes))
