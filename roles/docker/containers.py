"""Running containers as their cgroups show them, and whether they are bounded. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.model import CONTAINER_SLICE, mebibytes
from core.util.event import Action, Event, EventKind, FieldValue
from roles.docker.options import DockerOptions

CGROUPS = "/sys/fs/cgroup"
_PLACE = re.compile(r"(?:docker-)?(?P<id>[0-9a-z]{12,64})(?:\.scope)?")


@dataclass(frozen=True)
class Container:
    """The processes of one cgroup of docker: a container, or a step of a build. Limits in bytes, None for no limit."""

    path: str
    memory: int | None
    swap: int | None

    @property
    def id(self) -> str:
        """Full ID in docker."""
        found = _PLACE.fullmatch(self.path.rsplit("/", 1)[-1])
        return found["id"] if found else ""

    @property
    def short(self) -> str:
        """Short ID for display."""
        return self.id[:12]

    @property
    def build(self) -> bool:
        """Return whether it is a step of a build, which docker does not list as a container."""
        return not re.fullmatch(r"[0-9a-f]{64}", self.id)

    @property
    def inside(self) -> bool:
        """Return whether the memory limit of the rack includes it."""
        return self.path.startswith(f"{CGROUPS}/{CONTAINER_SLICE}/")


def running(listing: str) -> list[Container]:
    """The containers in lines `path memory.max memory.swap.max`. Raises ValueError when a line is anything else."""
    found = []
    for line in listing.splitlines():
        words = line.rsplit(" ", 2)
        path = words[0]
        if len(words) != 3 or not path.startswith(f"{CGROUPS}/") or not _PLACE.fullmatch(path.rsplit("/", 1)[-1]):
            raise ValueError(f"running containers: unexpected probe output {line[:120]!r}")
        found.append(
            Container(path, _parse_bytes(words[1], line), 0 if words[2] == "-" else _parse_bytes(words[2], line))
        )
    return found


def _parse_bytes(word: str, line: str) -> int | None:
    if word == "max":
        return None
    if not re.fullmatch(r"[0-9]+", word):
        raise ValueError(f"running containers: unexpected probe output {line[:120]!r}")
    return int(word)


def limits(found: list[Container], docker: DockerOptions) -> dict[Container, int]:
    """Return the containers that are not limited, and the limit in bytes for each, swap included.

    A smaller limit of its own stays.
    """
    most = mebibytes(docker.memory) * 1024 * 1024
    target = {one: most if one.memory is None else min(one.memory, most) for one in found if not one.build}
    return {one: limit for one, limit in target.items() if (one.memory, one.swap) != (limit, 0)}


def limit_changes(found: dict[Container, int]) -> list[Event]:
    """Return the changes of their limits, as text."""
    return [
        Event(
            EventKind.CHANGE,
            subject=f"container {one.short}",
            fields=(
                FieldValue("memory", _written_size(one.memory), _written_size(limit)),
                FieldValue("swap", _written_size(one.swap), "0"),
            ),
            action=Action.SET,
            detail="live, it is not restarted",
        )
        for one, limit in found.items()
    ]


# claim: docker.build-slice
def outside_slice(found: list[Container]) -> list[str]:
    """Return the containers outside the memory limit, with the possible fixes."""
    return [
        f"{'a build' if one.build else 'container'} {one.short} is outside {CONTAINER_SLICE} and its ceiling "
        f"({one.path.removeprefix(CGROUPS)}); recreate it without its own --cgroup-parent"
        for one in found
        if not one.inside
    ]


def _written_size(size: int | None) -> str:
    if size is None:
        return "unlimited"
    for unit, factor in (("G", 1024**3), ("M", 1024**2)):
        if size % factor == 0 and size:
            return f"{size // factor}{unit}"
    return str(size)
