"""What a node is asked: one shell script, and how its answer comes apart. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roles.docker.scripts import CONTAINERS
from roles.driver.reboot import ASKED, ASKING
from roles.images.state import NO_ENGINE
from sparkrack.fleet import Half, Rack
from sparkrack.ops import lock

DOCKER_SECONDS = 4
OTHER_SECONDS = 2
"""How long docker, and any other tool that may hang, may take."""
_IMAGE = "{{.ID}} {{.Repository}} {{.Tag}} {{.Digest}} {{.Size}}"
"""As `roles.images.state.stock` reads it."""
_LINE = re.compile(r"(\S+) (\d{1,3})(?: (.*))?", re.ASCII | re.DOTALL)
NONE, ABSENT, HELD = "none", "absent", "held"

# Nothing is written, and no program is started that need not be. A tool's complaints are dropped: how it ended tells
# whether what it said counts.
_BEGIN = r"""exec 2>/dev/null
export LC_ALL=C
tell() {
printf '%s %s\n' "$1" "$2"
printf '%s\n' "$3" | while IFS= read -r l; do printf '%s %s %s\n' "$1" "$2" "$l"; done
}
"""


def script(rack: Rack, node: str) -> str:
    """The script for a node; it takes no input. It prints lines `question exit`, then `question exit text` for each
    line that the question's tool said, and `end 0` at last."""
    asked = "".join(f'o=$({command}\n)\ntell {name} $? "$o"\n' for name, command in _questions(rack, node))
    return f"{_BEGIN}{asked}echo end 0"


def _questions(rack: Rack, node: str) -> Iterator[tuple[str, str]]:
    yield "uptime", "cat /proc/uptime"
    yield "kernel", "uname -r"
    # nvidia-smi says the same in ten times the time, and hangs where the GPU does.
    smi = f"timeout {OTHER_SECONDS} nvidia-smi --query-gpu=driver_version --format=csv,noheader"
    loaded = "/sys/module/nvidia/version"
    yield "driver", f"if [ -r {loaded} ]; then cat {loaded}; else {smi}; fi"
    yield "memory", "cat /proc/meminfo"
    yield "swap", "cat /proc/swaps"
    yield "reboot", f"if [ -e {ASKED} ]; then echo {HELD}; cat {ASKING} || true; else echo {NONE}; fi"
    yield "containers", CONTAINERS
    for half in halves(rack, node):
        name = half.interface
        there = f"[ -e /sys/class/net/{name} ] || {{ echo {ABSENT}; exit 0; }}"
        yield name, f"{there}; timeout {OTHER_SECONDS} ethtool {name}"
    if declared_images(rack):
        # Never a question to an engine that does not run: its socket would start it.
        runs = f'[ "$(cat "/proc/$(cat /run/docker.pid)/comm")" = dockerd ] || {{ echo {NO_ENGINE}; exit 0; }}'
        yield "images", f"{runs}; timeout {DOCKER_SECONDS} docker image ls --no-trunc --digests --format '{_IMAGE}'"
    if node == head(rack):
        yield "lock", lock.look()


def declared_images(rack: Rack) -> tuple[str, ...]:
    """The images that every node shall have, if the rack keeps them."""
    return rack.images if rack.keeps("images") else ()


def halves(rack: Rack, node: str) -> Iterator[Half]:
    """The halves of a node that hold a cable, in the order of ports."""
    for port in rack.cabling.ports_of(node):
        yield from port.halves


def head(rack: Rack) -> str:
    """The node that keeps the run lock."""
    return next(iter(rack.nodes))


@dataclass(frozen=True)
class Answer:
    """How a tool ended, and what it said."""

    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """What it said, as it said it."""
        return "".join(f"{line}\n" for line in self.lines)


def answers(output: str) -> Mapping[str, Answer]:
    """What a node said to each question of `script`. Raises ValueError when it is no whole answer to it."""
    lines = output.split("\n")
    if lines[-2:] != ["end 0", ""]:
        raise ValueError("it did not answer to the end")
    found: dict[str, list[str]] = {}
    codes: dict[str, int] = {}
    for line in lines[:-2]:
        match = _LINE.fullmatch(line)
        if not match:
            raise ValueError("it answered something else")
        codes[match[1]] = int(match[2])
        found.setdefault(match[1], []).extend(filter(None, [match[3]]))
    return {question: Answer(codes[question], tuple(lines)) for question, lines in found.items()}
