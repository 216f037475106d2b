"""Which image each name of rack.yaml means, and what a node holds of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparkrack.fleet import Rack
from sparkrack.fleet.images import Image, image
from sparkrack.fleet.pins import HASH, Pin

STOCK = "images-stock"
ROOM = "images-room"
TRANSFERS = "images-transfers"
NO_ENGINE = "no engine"
NO_ANSWER = "no answer"
NONE = "<none>"
MARGIN = 1 << 30
"""Room in bytes that must be left beside an image."""
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(B|kB|MB|GB|TB)")


@dataclass(frozen=True)
class Row:
    """A line of docker's list of images; None for a name or digest that an image does not have."""

    id: str
    repository: str | None
    tag: str | None
    digest: str | None
    size: int


@dataclass(frozen=True)
class Stock:
    """What a node holds."""

    rows: tuple[Row, ...]

    def named(self, image: Image) -> Row | None:
        """The image that has this name; with its digest, if it has one."""
        found = [row for row in self.rows if (row.repository, row.tag) == (image.repository, image.tag)]
        return next((row for row in found if row.digest), found[0] if found else None)

    def pulled(self, image: Image) -> Row | None:
        """The image that a registry gave for the digest in rack.yaml."""
        return next(
            (row for row in self.rows if (row.repository, row.digest) == (image.repository, image.digest)), None
        )

    def of(self, identity: str) -> Row | None:
        """The image with this ID, whatever it is called."""
        return next((row for row in self.rows if row.id == identity), None)


@dataclass(frozen=True)
class Goal:
    """What an image is for the whole rack. `pin` None: nobody has asked its registry yet. `new`: the lock file does
    not say it yet. `holders`: the nodes that have it, under whatever name. `size` in bytes, None while unknown."""

    image: Image
    pin: Pin | None
    new: bool = False
    holders: frozenset[str] = frozenset()
    size: int | None = None


def images(rack: Rack) -> list[Image]:
    """The images of rack.yaml."""
    return [image(name) for name in rack.images]


def stock(listing: str) -> Stock:
    """What a node holds, from docker's list. Raises ValueError when that cannot be told."""
    lines = listing.splitlines()
    if lines == [NO_ENGINE]:
        raise ValueError("docker does not run; start it (systemctl start docker), then run again")
    if lines and lines[-1].startswith(NO_ANSWER):
        raise ValueError(f"{STOCK}: docker does not answer: {' '.join(lines)[:200]}")
    return Stock(tuple(_row(line) for line in lines))


def _row(line: str) -> Row:
    match line.split(" "):
        case [identity, repository, tag, digest, size] if (
            HASH.fullmatch(identity) and (digest == NONE or HASH.fullmatch(digest)) and repository and tag
        ):
            found = _SIZE.fullmatch(size)
            if found:
                count = int(float(found[1]) * _UNITS[found[2]])
                called = [None if word == NONE else word for word in (repository, tag, digest)]
                return Row(identity, called[0], called[1], called[2], count)
    raise ValueError(f"{STOCK}: cannot be told from {line[:120]!r}")


def room(listing: str) -> dict[str, int]:
    """Free bytes of the folders where docker keeps images, from lines `bytes folder`. Raises ValueError."""
    found = {}
    for line in listing.splitlines():
        free, _, folder = line.partition(" ")
        if not (free.isascii() and free.isdigit() and folder.startswith("/")):
            raise ValueError(f"{ROOM}: cannot be told from {line[:120]!r}")
        found[folder] = int(free)
    if not found:
        raise ValueError(f"{ROOM}: cannot be told, nothing was said")
    return found


def settle(image: Image, pin: Pin | None, stocks: Mapping[str, Stock]) -> Goal:
    """What an image is for the rack: by the lock file, else by what the nodes hold. `stocks` in order of rank.

    Raises ValueError when nodes hold different images under the name and nothing says which is right.
    """
    new = pin is None
    if pin is None:
        pin = _agreed(image, stocks)
    if pin is None:
        return Goal(image, None)
    rows = {node: row for node, held in stocks.items() if (row := held.of(pin.id))}
    return Goal(image, pin, new, frozenset(rows), max((row.size for row in rows.values()), default=None))


def _agreed(image: Image, stocks: Mapping[str, Stock]) -> Pin | None:
    """What all nodes that have an image of this name agree it is. Only the digest speaks for one pinned by digest."""
    rows = {
        node: row for node, held in stocks.items() if (row := held.pulled(image) if image.digest else held.named(image))
    }
    identities = sorted({row.id for row in rows.values()})
    if not identities:
        return None
    if len(identities) > 1:
        having = "; ".join(
            f"{', '.join(node for node, row in rows.items() if row.id == identity)} has {short(identity)}"
            for identity in identities
        )
        raise ValueError(
            f"{image.local} is not the same everywhere: {having}; "
            "remove the wrong ones by hand, or pin a digest in rack.yaml"
        )
    digests = [row.digest for row in rows.values() if row.digest]
    return Pin(image.digest or (digests[0] if digests else None), identities[0])


def other_store(goal: Goal, held: Stock) -> str | None:
    """What to say of a node that has the very bytes of the digest under another ID, which only another kind of image
    store does: one names an image by its configuration, the other by its manifest."""
    pin, row = goal.pin, held.named(goal.image)
    if pin is None or pin.digest is None or row is None or row.digest != pin.digest or row.id == pin.id:
        return None
    here, there = ("containerd's", "docker's own") if row.id == row.digest else ("docker's own", "containerd's")
    return (
        f"{goal.image.local} has the digest of the lock file, {short(pin.digest)}, but the ID {short(row.id)} instead "
        f"of {short(pin.id)}: this node keeps images in {here} store, the ID was recorded with {there}; "
        "all nodes must use one (docker info, Storage Driver); when all have changed, remove the lock file"
    )


def need(goals: Collection[Goal], at_least: int) -> int:
    """Bytes that must be free for images a node lacks: docker unpacks one beside what it keeps. `at_least`: for one
    whose size nobody knows."""
    sizes = [goal.size for goal in goals if goal.size is not None]
    known = sum(sizes) + max(sizes) + MARGIN if sizes else 0
    return max(known, at_least if len(sizes) < len(goals) else 0)


def short(identity: str) -> str:
    """An ID or digest as a person reads it."""
    return identity.removeprefix("sha256:")[:12]
