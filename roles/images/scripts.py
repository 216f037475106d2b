"""The shell texts by which a node fetches an image on its own, and tells how far it is. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from roles.images.spread import Route
from sparkrack.fleet.images import Image
from sparkrack.fleet.pins import HASH, Pin

FOLDER = "/run/sparkrack-images"
UNIT = "sparkrack-image-"
_COUNTED = re.compile(r"^(\d+) bytes? .*copied")
_ENDED = re.compile(r"^sparkrack: (save|load) ended (\d+)$")
_LAYER = re.compile(r"^[0-9a-f]{12}: (Pulling fs layer|Pull complete|Already exists)$")
_NOISE = re.compile(r"^[0-9a-f]{12}: |^\d+\+\d+ records|^open \S*/docker-import-|^$")
"""Lines that say nothing to a person; the last is what docker load makes of a stream that never came."""


def unit(image: Image) -> str:
    """The systemd unit that fetches an image on a node: one for each name, whatever way it comes."""
    return UNIT + hashlib.sha256(image.local.encode()).hexdigest()[:12]


def copy(route: Route, identity: str) -> str:
    """Take the image from another node. dd counts on the way; it is there on every system, pv is not."""
    # Encryption in hardware comes first; what the other side does not offer is passed over.
    ssh = (
        "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 -o Compression=no "
        f"-o Ciphers=^aes128-gcm@openssh.com {_quote(route.address)} docker save {_quote(identity)} </dev/null"
    )
    return (
        f'{{ {ssh}; echo "sparkrack: save ended $?" >&2; }} | dd bs=1M status=progress | docker load\n'
        'echo "sparkrack: load ended $?"\n'
    )


def pull(reference: str) -> str:
    """Take the image from its registry."""
    return f'docker pull {_quote(reference)} </dev/null\necho "sparkrack: load ended $?"\n'


def start(image: Image, user: str, body: str, folders: Collection[str], need: int) -> str:
    """Start the unit with this script, as the user who may log in to the other nodes, unless there is no room.

    It outlives the connection that starts it. A unit of that name that already runs makes it fail.
    """
    name, base = unit(image), f"{FOLDER}/{unit(image)}"
    script = f"LC_ALL=C; export LC_ALL\n{body}"
    encoded = base64.b64encode(script.encode()).decode()
    return (
        "set -eu; umask 022; "
        f"for d in {_quote(*folders)}; do free=$(df -B1 --output=avail \"$d\" | tail -n 1 | tr -d ' '); "
        f'[ "$free" -ge {need} ] || {{ echo "$d has $((free / 1000000)) MB free, '
        f'{need // 1000000} MB are needed" >&2; exit 1; }}; done; '
        f"mkdir -p {FOLDER}; rm -f {base}.log; printf %s {encoded} | base64 -d > {base}.new; mv {base}.new {base}.sh; "
        f"systemd-run --quiet --collect --unit={name} --uid={_quote(user)} "
        f"--description={_quote(f'sparkrack fetches {image.local}')} "
        f"--property=StandardOutput=append:{base}.log --property=StandardError=append:{base}.log /bin/sh {base}.sh"
    )


def look(image: Image) -> str:
    """Whether the unit runs, and the end of what it has said."""
    name = unit(image)
    # is-active fails for a unit that has ended; when it says nothing at all, systemd could not be asked.
    return (
        f'state=$(systemctl is-active {name}.service) || [ -n "$state" ] || exit 1; echo "$state"; '
        f"[ ! -e {FOLDER}/{name}.log ] || tail -c 16000 {FOLDER}/{name}.log | tr '\\r' '\\n'"
    )


def stop(image: Image) -> str:
    """End it."""
    return f"systemctl stop {unit(image)}.service"


def inspect(reference: str) -> str:
    """ID, size and digests of an image on a node; fails when it is not there."""
    return f"docker image inspect --format '{{{{.Id}}}} {{{{.Size}}}} {{{{json .RepoDigests}}}}' {_quote(reference)}"


def inspected(image: Image, lines: Sequence[str]) -> tuple[Pin, int]:
    """What `inspect` printed of an image, and its size in bytes. Raises ValueError when it says something else."""
    match [line.split(" ", 2) for line in lines]:
        case [[identity, size, digests]]:
            said = json.loads(digests) or []
            named = [str(word).partition("@") for word in said] if isinstance(said, list) else []
            mine = [digest for repository, _, digest in named if repository == image.repository]
            if all(map(HASH.fullmatch, [identity, *mine])):
                return Pin(image.digest or (mine[0] if mine else None), identity), int(size)
    raise ValueError(f"cannot be told from {lines}")


def name(image: Image, identity: str) -> str:
    """Give an image its name; whatever had it keeps its bytes and loses the name."""
    return f"docker tag {_quote(identity, image.local)}"


def drop(identity: str) -> str:
    """Remove an image that has no name and that nothing uses; docker refuses when a container does."""
    return (
        f"[ \"$(docker image inspect --format '{{{{len .RepoTags}}}}' {_quote(identity)})\" = 0 ] && "
        f"docker image rm {_quote(identity)}"
    )


@dataclass(frozen=True)
class Progress:
    """How far a fetch is. `running`: not ended yet. `fine`: ended, with every part well. `copied`: bytes, of a copy.
    `layers`: done and all, of a pull. `said`: what its programs said."""

    running: bool
    fine: bool
    copied: int | None
    layers: tuple[int, int]
    said: tuple[str, ...]

    @property
    def loaded(self) -> str | None:
        """The ID of the image that docker says it has loaded."""
        found = re.findall(r"^Loaded image ID: (sha256:[0-9a-f]{64})$", "\n".join(self.said), re.MULTILINE)
        return found[-1] if found else None


def progress(lines: Collection[str]) -> Progress:
    """How far it is, from what `look` printed. Raises ValueError when it printed nothing."""
    if not lines:
        raise ValueError("the node does not say whether its transfer still runs")
    state, *log = (line.strip() for line in lines)
    counts = [int(found[1]) for line in log if (found := _COUNTED.match(line))]
    ends = [found[2] for line in log if (found := _ENDED.match(line))]
    layers = [found[1] for line in log if (found := _LAYER.match(line))]
    said = [line for line in log if not (_COUNTED.match(line) or _ENDED.match(line) or _NOISE.match(line))]
    running = state in ("active", "activating", "deactivating", "reloading")
    return Progress(
        running=running,
        fine=not running and "sparkrack: load ended 0" in log and set(ends) == {"0"},
        copied=counts[-1] if counts else None,
        layers=(len(layers) - layers.count("Pulling fs layer"), len(layers) - layers.count("Pull complete")),
        said=tuple(said),
    )


def _quote(*words: str) -> str:
    return shlex.join(words)
