"""The image of each name of rack.yaml, and the images of a node. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from core.model import Rack
from core.model.image_lock import HASH, Pin
from core.model.image_names import ImageName, image_name

STOCK = "images-stock"
ROOM = "images-room"
TRANSFERS = "images-transfers"
NO_ANSWER = "no answer"
NO_ENGINE = "no engine"
"""Output in place of a list when no engine runs."""
NONE = "<none>"
MARGIN = 1 << 30
"""Bytes of disk space that must remain free beside an image."""
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(B|kB|MB|GB|TB)")


@dataclass(frozen=True)
class ImageRow:
    """A line of docker's list of images; None for a name or digest that an image does not have."""

    id: str
    repository: str | None
    tag: str | None
    digest: str | None
    size: int


@dataclass(frozen=True)
class LocalImages:
    """Images on a node."""

    rows: tuple[ImageRow, ...]

    def named(self, image: ImageName) -> ImageRow | None:
        """The image that has this name; with its digest, if it has one."""
        found = [row for row in self.rows if (row.repository, row.tag) == (image.repository, image.tag)]
        return next((row for row in found if row.digest), found[0] if found else None)

    def pulled(self, image: ImageName) -> ImageRow | None:
        """The image that a registry gave for the digest in rack.yaml."""
        return next(
            (row for row in self.rows if (row.repository, row.digest) == (image.repository, image.digest)), None
        )

    def of(self, identity: str) -> ImageRow | None:
        """The image with this ID, whatever it is called."""
        return next((row for row in self.rows if row.id == identity), None)


@dataclass(frozen=True)
class ImageGoal:
    """An image for the whole rack. `pin` None: not resolved yet. `new`: the lock file does not have it yet. `holders`:
    the nodes that have it, under any name. `size` in bytes, None while unknown.
    """

    image: ImageName
    pin: Pin | None
    new: bool = False
    holders: frozenset[str] = frozenset()
    size: int | None = None


def images(rack: Rack) -> list[ImageName]:
    """Return the images of rack.yaml."""
    return [image_name(name) for name in rack.images]


def list_images(timeout: int) -> str:
    """Return shell text that prints a line `ID NAME TAG DIGEST SIZE` for each image, or NO_ENGINE.

    An engine that does not run is never asked: its socket would start it. timeout: seconds for docker.
    """
    return (
        'p=$(cat /run/docker.pid 2>/dev/null) && [ "$(cat "/proc/$p/comm" 2>/dev/null)" = dockerd ] || '
        f"{{ echo {NO_ENGINE}; exit 0; }}; timeout {timeout} docker image ls --no-trunc --digests "
        "--format '{{.ID}} {{.Repository}} {{.Tag}} {{.Digest}} {{.Size}}'"
    )


def local_images(listing: str) -> LocalImages:
    """Parse the images of a node from docker's list. Raises ValueError for unparsable text."""
    lines = listing.splitlines()
    if lines == [NO_ENGINE]:
        raise ValueError("docker does not run; start it (systemctl start docker), then run again")
    if lines and lines[-1].startswith(NO_ANSWER):
        raise ValueError(f"{STOCK}: docker does not answer: {' '.join(lines)[:200]}")
    return LocalImages(tuple(_parse_row(line) for line in lines))


def _parse_row(line: str) -> ImageRow:
    match line.split(" "):
        case [identity, repository, tag, digest, size] if (
            HASH.fullmatch(identity) and (digest == NONE or HASH.fullmatch(digest)) and repository and tag
        ):
            found = _SIZE.fullmatch(size)
            if found:
                count = int(float(found[1]) * _UNITS[found[2]])
                called = [None if word == NONE else word for word in (repository, tag, digest)]
                return ImageRow(identity, called[0], called[1], called[2], count)
    raise ValueError(f"{STOCK}: unexpected probe output {line[:120]!r}")


def free_space(listing: str) -> dict[str, int]:
    """Free bytes of the folders where docker keeps images, from lines `bytes folder`. Raises ValueError."""
    found = {}
    for line in listing.splitlines():
        free, _, folder = line.partition(" ")
        if not (free.isascii() and free.isdigit() and folder.startswith("/")):
            raise ValueError(f"{ROOM}: unexpected probe output {line[:120]!r}")
        found[folder] = int(free)
    if not found:
        raise ValueError(f"{ROOM}: no probe output")
    return found


def settle(image: ImageName, pin: Pin | None, stocks: Mapping[str, LocalImages]) -> ImageGoal:
    """Determine an image for the rack: by the lock file, else by the images of the nodes. `stocks` in order of rank.

    Raises ValueError when nodes hold different images under the name and the lock file does not decide.
    """
    new = pin is None
    if pin is None:
        pin = _agreed_pin(image, stocks)
    if pin is None:
        return ImageGoal(image, None)
    rows = {node: row for node, held in stocks.items() if (row := held.of(pin.id))}
    return ImageGoal(image, pin, new, frozenset(rows), max((row.size for row in rows.values()), default=None))


def _agreed_pin(image: ImageName, stocks: Mapping[str, LocalImages]) -> Pin | None:
    """Return the common identity on all nodes that have an image of this name. For an image pinned by digest only the
    digest counts.
    """
    rows = {
        node: row for node, held in stocks.items() if (row := held.pulled(image) if image.digest else held.named(image))
    }
    identities = sorted({row.id for row in rows.values()})
    if not identities:
        return None
    if len(identities) > 1 and (stores := _group_by_image_store(rows)):
        kept = "; ".join(f"{', '.join(nodes)} keeps it in {store} store" for store, nodes in stores.items())
        raise ValueError(
            f"{image.local} is one image under two IDs: {kept}; let all nodes use one store: write "
            '{"features": {"containerd-snapshotter": true}} or false into /etc/docker/daemon.json of each, and restart '
            "docker, which then has no image of the other store"
        )
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


def _group_by_image_store(rows: Mapping[str, ImageRow]) -> dict[str, list[str]]:
    """Return the nodes by the kind of image store, where one image has two IDs for that reason alone; else nothing.

    Docker's own store names an image by its configuration, containerd's by its manifest, which is its digest, too.
    """
    digests = {row.digest for row in rows.values()}
    if len(digests) > 1 or None in digests:
        return {}
    stores: dict[str, list[str]] = {}
    for node, row in rows.items():
        stores.setdefault("containerd's" if row.id == row.digest else "docker's own", []).append(node)
    return stores if len(stores) > 1 else {}


# claim: images.stores
def other_store(goal: ImageGoal, held: LocalImages) -> str | None:
    """Return a message about a node that has the same bytes under another ID, which only happens with another kind of
    image store: one names an image by its configuration, the other by its manifest.
    """
    pin, row = goal.pin, held.named(goal.image)
    if pin is None or pin.digest is None or row is None or row.digest != pin.digest or row.id == pin.id:
        return None
    here, there = ("containerd's", "docker's own") if row.id == row.digest else ("docker's own", "containerd's")
    return (
        f"{goal.image.local} has the digest of the lock file, {short(pin.digest)}, but the ID {short(row.id)} instead "
        f"of {short(pin.id)}: this node keeps images in {here} store, the ID was recorded with {there}; "
        "all nodes must use one (docker info, Storage Driver); when all have changed, remove the lock file"
    )


def need(goals: Collection[ImageGoal], at_least: int) -> int:
    """Return the bytes that must be free for the missing images of a node: beside its stored form there are the archive
    that comes and what docker unpacks of it. `at_least`: for one of unknown size.
    """
    sizes = [goal.size for goal in goals if goal.size is not None]
    known = sum(sizes) + 2 * max(sizes) + MARGIN if sizes else 0
    return max(known, at_least if len(sizes) < len(goals) else 0)


def short(identity: str) -> str:
    """Shorten an ID or digest for display."""
    return identity.removeprefix("sha256:")[:12]
