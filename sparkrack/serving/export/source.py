"""What each format makes its files of: the launches of a unit, the container of a rank, and words with places for
addresses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address
from pathlib import PurePosixPath

from core.model import Rack
from core.model.image_lock import Pin
from roles.rdma.options import socket_addresses
from serving.engines.registry import ENGINES
from serving.launch import FABRIC_ENVIRONMENT, INSIDE_RAY_TOKEN, UNIT_FILES, RankLaunch, launches
from serving.options import ServedUnit
from serving.shared_nodes import container_ceiling

_STAND_INS = 0xC0000200
"""192.0.2.0, a network that is for documents only: its addresses stand for those of nodes while places are found."""


class ExportError(Exception):
    """A unit cannot be had in a format. `key`: the key of the unit that is the reason."""

    def __init__(self, key: tuple[str, ...], what: str) -> None:
        super().__init__(what)
        self.key = key


@dataclass(frozen=True)
class ExportFile:
    """A file of an export: its name, its text, and whether it is a program."""

    name: str
    text: str
    program: bool = False


@dataclass(frozen=True)
class ExportSource:
    """A unit that is exported.

    `launches`: what its nodes run, in rank order. `pin`: its image in the lock file, None without one. `revision`: of
    the rack file, as `core.util.provenance` has it.
    """

    rack: Rack
    unit: ServedUnit
    launches: tuple[RankLaunch, ...]
    pin: Pin | None
    revision: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes in rank order."""
        return tuple(launch.node for launch in self.launches)

    @property
    def key_file(self) -> str:
        """The name of the file in which the owner keeps the key of the API for another system."""
        return f"{self.unit.name}.key.{ENGINES[self.unit.engine].key(self.unit).ending}"

    @property
    def key_line(self) -> str:
        """What that file has, without the key."""
        return ENGINES[self.unit.engine].key(self.unit).line


@dataclass(frozen=True)
class Volume:
    """A folder of the node in the container. Paths on the node and in the container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Container:
    """What `docker run` is asked for a rank, without image, program and environment. Sizes as docker has them."""

    name: str
    devices: tuple[str, ...]
    capabilities: tuple[str, ...]
    ulimits: Mapping[str, int]
    shm: str
    memory: str
    volumes: tuple[Volume, ...]


class Place(Enum):
    """A part of a word that another system fills in."""

    HEAD = "the address of the head"
    OWN = "the address of the node itself"
    RANK = "the rank of the node"
    SIZE = "the number of nodes"


Word = tuple[str | Place, ...]
"""An argument: texts and places, one after the other."""


def export_source(rack: Rack, unit: ServedUnit, pin: Pin | None, revision: str) -> ExportSource:
    """Return what the files of a unit are made of.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units.
        pin: its image in the lock file; None without one.
        revision: of the rack file; empty if it is not in git.

    Raises:
        ExportError: a node has no address for traffic beside RDMA.
    """
    known = socket_addresses(rack)
    for name in unit.ranks(rack.nodes):
        if name not in known:
            what = f"{name} has no cable, so it has no address on the fabric; write rdma.sockets: management"
            raise ExportError(("nodes",), what)
    return ExportSource(rack, unit, _list_launches(rack, unit, known, pin), pin, revision)


def _list_launches(
    rack: Rack, unit: ServedUnit, addresses: Mapping[str, IPv4Address], pin: Pin | None
) -> tuple[RankLaunch, ...]:
    return launches(rack, unit, addresses, container_ceiling(rack, unit), pin.id if pin else None)


def container(launch: RankLaunch) -> Container:
    """Return what docker is asked for a rank. Raises ValueError for an option of docker that no format knows.

    The key of the API, the token of Ray and the files of variables are left out: each system has them in its own way.
    So are the slice, which the rack's own services make, and what is the same for every rank (host network, all GPUs).
    """
    words = iter(launch.docker)
    found: dict[str, list[str]] = {}
    for word in words:
        found.setdefault(word, []).append("" if word == "--rm" else next(words))
    for option in ("--rm", "--pull", "--entrypoint", "--network", "--gpus", "--cgroup-parent", "--env-file", "--env"):
        found.pop(option, None)
    volumes = [volume.split(":") for volume in found.pop("--volume", [])]
    (memory,) = {found.pop(option)[0] for option in ("--memory", "--memory-swap")}
    made = Container(
        name=found.pop("--name")[0],
        devices=tuple(found.pop("--device")),
        capabilities=tuple(found.pop("--cap-add")),
        ulimits={name: int(value) for name, _, value in (one.partition("=") for one in found.pop("--ulimit"))},
        shm=found.pop("--shm-size")[0],
        memory=memory,
        volumes=tuple(Volume(one[0], one[1], one[2:] == ["ro"]) for one in volumes if not _is_secret(*one[:2])),
    )
    if found:
        raise ValueError(f"no format knows these options of docker: {' '.join(found)}")
    return made


def _is_secret(path: str, inside: str) -> bool:
    """Return whether a volume is the key of the API, or the token of Ray."""
    return inside == INSIDE_RAY_TOKEN or (PurePosixPath(path).parent == UNIT_FILES and path.endswith(".key"))


def placed(source: ExportSource, rank: int) -> tuple[Word, ...]:
    """Return the words of a rank with places for what is not the same on every node, or in another network.

    The address at which the head listens is not such a place: rack.yaml declares it.
    """
    unit, rack = source.unit, source.rack
    stand_ins = {name: IPv4Address(_STAND_INS + number) for number, name in enumerate(source.nodes, 1)}
    head, own = str(stand_ins[source.nodes[0]]), str(stand_ins[source.nodes[rank]])
    others = _list_launches(rack, unit, stand_ins, source.pin)[rank].argv
    places = {own: Place.OWN, head: Place.HEAD}
    words = [
        (word,) if word == other else tuple(_split_at_addresses(other, places))
        for word, other in zip(source.launches[rank].argv, others, strict=True)
    ]
    if rank == 0 and ENGINES[unit.engine].ray:
        words = [tuple(Place.OWN if part is Place.HEAD else part for part in word) for word in words]
    for option, place in (("--nnodes", Place.SIZE), ("--node-rank", Place.RANK)):
        if (option,) in words:
            words[words.index((option,)) + 1] = (place,)
    return tuple(words)


def _split_at_addresses(text: str, places: Mapping[str, Place]) -> Iterator[str | Place]:
    """Split a word at addresses. No address is the beginning of another one: there are at most 8 nodes."""
    parts = [part for part in re.split(f"({'|'.join(map(re.escape, places))})", text) if part]
    if not any(part in places for part in parts):
        raise ValueError(f"{text} has no address")
    yield from (places.get(part, part) for part in parts)


def quoted(text: str) -> str:
    """Quote a word for a shell script, so that shellcheck does not ask whether a `$` in it is meant."""
    if not set("$`") & set(text):
        return shlex.quote(text)
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'


def header(source: ExportSource, form: str, notes: Sequence[str]) -> str:
    """Return the comment at the head of a file.

    Args:
        source: the unit.
        form: the name of the format.
        notes: what a reader has to know of this format, a sentence each.
    """
    unit = source.unit
    revision = source.revision.removesuffix("+")
    state = f"revision {revision}" if revision else "a file that is not in git"
    if source.revision.endswith("+"):
        state += " with uncommitted changes"
    image = f"{unit.image}, {source.pin.id}" if source.pin else f"{unit.image}, by its name: the lock file has no ID"
    lines = [
        f"Unit {unit.name} of the rack {source.rack.rack}, by `sparkrack serve export {unit.name} --format {form}`.",
        f"From {source.rack.source.name}, {state}. Later changes of it do not reach this file.",
        f"Image: {image}",
        "What sparkrack does and this does not:",
        "- gates: all nodes are checked (image, model, ports, links, memory) before any rank starts",
        "- memory guard: a rank starts only where the guard runs, in the slice that the guard ends first",
        "- health: a unit is ready when a completion is correct; a hung engine may still answer /health",
        "- failure: all ranks end, are started again once, and then the unit is held with its reason",
        f"Prepared by sparkrack on each node: {FABRIC_ENVIRONMENT} (role rdma), the files of the model (role models).",
        *notes,
    ]
    return "".join(f"# {line}\n" for line in lines)
