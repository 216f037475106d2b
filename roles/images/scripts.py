"""Shell texts by which a node fetches an image on its own and reports the progress. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.model.image_lock import HASH, NCCL_BUILDS, ImageNccl, Pin
from core.model.image_names import ImageName
from core.ops.detached_unit import DetachedUnit, output_of
from core.ops.distribution import Route
from core.util import resources
from serving.image_look import ENTRYPOINT, nccl_arguments
from serving.launch import NCCL_CONF

FOLDER = "/run/sparkrack-images"
ARCHIVES = "/var/tmp/sparkrack-images"  # noqa: S108 - the program refuses a folder that is not of root alone
"""What has come of an image until docker has loaded it. systemd removes what is older than 30 days in /var/tmp."""
FREE_BYTES = (
    f"came=$(du -sB1 {ARCHIVES} 2>/dev/null | cut -f 1); disk=$(stat -c %d {ARCHIVES} 2>/dev/null) || disk=none; "
    'free_bytes() { free=$(df -B1 --output=avail "$1" | tail -n 1 | tr -d " "); '
    '[ -z "$free" ] || [ "$(stat -c %d "$1")" != "$disk" ] || free=$((free + ${came:-0})); echo "$free"; }; '
)
"""Shell function that prints the free bytes in a folder. What has come of an image there counts as free: the transfer
of that image goes on from its last byte, and the one of another image removes it."""
PYTHON = ("/usr/bin/python3", "-I", "-B")
UNIT = "sparkrack-image-"
_COUNTED = re.compile(r"^(\d+) bytes copied$")
_ENDED = re.compile(r"^sparkrack: load ended (\d+)$")
_STOPPED = "the transfer of the other node ended before it had the image"
_LAYER = re.compile(r"^[0-9a-f]{12}: (Pulling fs layer|Pull complete|Already exists)$")
NCCL_SECONDS = 60.0
"""Seconds that a container may take to tell what its image has of NCCL."""
NCCL_CONTAINER = "sparkrack.image-look"
"""A unit cannot have a name with a dot, so this is never the container of one."""
_CONTAINER_ENDED = re.compile(r"sparkrack: container ended (\d+)")
_NCCL = re.compile(rf"nccl: (\d{{1,4}}(?:\.\d{{1,4}}){{2}}) ({'|'.join(NCCL_BUILDS)})")
_NO_ANSWER = (124, 125, 137, 143)
"""Exit codes of timeout (137: its client did not end at SIGTERM), of docker itself, and of a container that something
has ended: docker that stops, or the kernel for memory. The container's own are an answer."""
_KEPT_LINES, _KEPT_LENGTH = 50, 200
"""Lines and characters of an image's /etc/nccl.conf that are recorded."""
_NOISE = re.compile(r"^[0-9a-f]{12}: |^$")
"""Lines without information."""


def unit(image: ImageName) -> str:
    """The systemd unit that fetches an image on a node: one for each name, whatever way it comes."""
    return UNIT + hashlib.sha256(image.local.encode()).hexdigest()[:12]


def job(route: Route, user: str, identity: str, size: int) -> dict[str, object]:
    """What the program on the node does: take an image of `size` bytes from another node, which is reached as the user
    who may log in there.
    """
    return {"image": identity, "ssh": route.ssh(user), "folder": ARCHIVES, "size": size}


def pull(reference: str) -> str:
    """Pull the image from its registry."""
    return f'docker pull {_quoted_words(reference)} </dev/null\necho "sparkrack: load ended $?"\n'


def detached(image: ImageName) -> DetachedUnit:
    """The unit as what starts and watches it."""
    return DetachedUnit(unit(image), FOLDER)


def start(image: ImageName, user: str, body: str, folders: Collection[str], need: int) -> str:
    """Start the unit with this script, as the user who may log in to the registry, unless there is no room.

    It outlives the connection that starts it. A unit of that name that already runs makes it fail.
    """
    launch = detached(image).start(
        f"LC_ALL=C; export LC_ALL\n{body}".encode(), ("/bin/sh",), f"sparkrack fetches {image.local}", user=user
    )
    # A pull does not use what has come of an image.
    return f"{_check_room(folders, need, 'came=0; ')}{launch}"


def start_copy(image: ImageName, job: dict[str, object], folders: Collection[str], need: int) -> tuple[str, str]:
    """Return shell text that starts the unit with the program that takes an image from another node, unless there is no
    room, and its standard input: the job.
    """
    unit_of_image = detached(image)
    program = resources.file_text("roles.images", "files/fetch_image.py").encode()
    arguments = ("fetch", unit_of_image.job)
    launch = unit_of_image.start(program, PYTHON, f"sparkrack fetches {image.local}", arguments=arguments)
    return f"{_check_room(folders, need)}{launch}", base64.b64encode(json.dumps(job).encode()).decode()


def _check_room(folders: Collection[str], need: int, counted: str = "") -> str:
    return (
        f"set -eu; umask 022; {FREE_BYTES}{counted}"
        f'for d in {_quoted_words(*folders)}; do free=$(free_bytes "$d"); '
        f'[ "$free" -ge {need} ] || {{ echo "$d has $((free / 1000000)) MB free, '
        f'{need // 1000000} MB are needed" >&2; exit 1; }}; done; '
    )


def look(image: ImageName) -> str:
    """Return whether the unit runs, and the end of its output."""
    return detached(image).look()


def stop(image: ImageName) -> str:
    """Stop the unit."""
    return detached(image).stop()


def inspect(reference: str) -> str:
    """ID, size and digests of an image on a node; fails when it is not there."""
    shown = "{{.Id}} {{.Size}} {{json .RepoDigests}}"
    return f"docker image inspect --format '{shown}' {_quoted_words(reference)}"


def inspected(image: ImageName, lines: Sequence[str]) -> tuple[Pin, int]:
    """Parse the output of `inspect` for an image, and its size in bytes. Raises ValueError for any other text."""
    match [line.split(" ", 2) for line in lines]:
        case [[identity, size, digests]]:
            reported = json.loads(digests) or []
            named = [str(word).partition("@") for word in reported] if isinstance(reported, list) else []
            own = [digest for repository, _, digest in named if repository == image.repository]
            if all(map(HASH.fullmatch, [identity, *own])):
                return Pin(image.digest or (own[0] if own else None), identity), int(size)
    raise ValueError(f"unexpected probe output {lines}")


# claim: images.nccl
def ask_nccl(identity: str) -> str:
    """Return shell text that runs one container of an image, which prints what the image has of NCCL, and then its exit
    code on standard error. The container takes nothing that a running unit needs: no GPU, no network, 256 MiB of memory
    (NCCL 2.28.9 was seen to take 15).
    """
    remove = f"docker rm --force {NCCL_CONTAINER} >/dev/null 2>&1 || :"
    # Only docker's own messages come by standard error. Without the proxy a container that ignores TERM keeps nothing.
    run = (
        *("docker", "run", "--rm", f"--name={NCCL_CONTAINER}", "--attach=stdout", "--sig-proxy=false", "--pull=never"),
        *("--network=none", "--runtime=runc", "--memory=256m", "--memory-swap=256m", "--pids-limit=64"),
        *(f"--entrypoint={ENTRYPOINT}", identity, *nccl_arguments()),
    )
    return (
        f"{remove}; {{ code=0; timeout --kill-after=5 {NCCL_SECONDS:g} {_quoted_words(*run)} </dev/null || code=$?; "
        f'echo "sparkrack: container ended $code" >&2; }} | head -c 16384; {remove}'
    )


def parse_nccl(lines: Sequence[str], complaints: Sequence[str]) -> ImageNccl | None:
    """Parse the output of `ask_nccl`, and its lines on standard error; None where docker ran no container."""
    ended = next((found for line in reversed(complaints) if (found := _CONTAINER_ENDED.fullmatch(line.strip()))), None)
    if ended is None or int(ended[1]) in _NO_ANSWER:
        return None
    if int(ended[1]):
        return ImageNccl(None, None, None)
    reported = next((found for line in lines if (found := _NCCL.fullmatch(line.strip()))), None)
    prefix = f"{NCCL_CONF}: "
    conf = [line.removeprefix(prefix)[:_KEPT_LENGTH] for line in lines if line.startswith(prefix)]
    version, build = (reported[1], reported[2]) if reported else (None, None)
    return ImageNccl(version, build, tuple(conf[:_KEPT_LINES]))


def name(image: ImageName, identity: str) -> str:
    """Give an image its name; whatever had it keeps its bytes and loses the name."""
    return f"docker tag {_quoted_words(identity, image.local)}"


def drop(identity: str) -> str:
    """Remove an image that has no name and that nothing uses; docker refuses when a container does."""
    return (
        f"[ \"$(docker image inspect --format '{{{{len .RepoTags}}}}' {_quoted_words(identity)})\" = 0 ] && "
        f"docker image rm {_quoted_words(identity)}"
    )


@dataclass(frozen=True)
class Progress:
    """Progress of a fetch. `running`: not ended yet. `fine`: ended, with every part successful. `copied`: bytes, of a
    copy. `layers`: done and all, of a pull. `source_stopped`: it failed only because the other node's own transfer did.
    `reported`: the output of its programs.
    """

    running: bool
    fine: bool
    copied: int | None
    layers: tuple[int, int]
    source_stopped: bool
    reported: tuple[str, ...]

    @property
    def loaded(self) -> str | None:
        """The ID of the image that docker reports as loaded."""
        found = re.findall(r"^Loaded image ID: (sha256:[0-9a-f]{64})$", "\n".join(self.reported), re.MULTILINE)
        return found[-1] if found else None


def progress(lines: Collection[str]) -> Progress:
    """Parse the progress from the output of `look`. Raises ValueError for an empty output."""
    running, log = output_of(lines)
    counts = [int(found[1]) for line in log if (found := _COUNTED.match(line))]
    ends = [found[1] for line in log if (found := _ENDED.match(line))]
    layers = [found[1] for line in log if (found := _LAYER.match(line))]
    reported = [line for line in log if not (_COUNTED.match(line) or _ENDED.match(line) or _NOISE.match(line))]
    return Progress(
        running=running,
        fine=not running and "sparkrack: load ended 0" in log and set(ends) == {"0"},
        copied=counts[-1] if counts else None,
        layers=(len(layers) - layers.count("Pulling fs layer"), len(layers) - layers.count("Pull complete")),
        source_stopped=not running and _STOPPED in reported,
        reported=tuple(reported),
    )


def _quoted_words(*words: str) -> str:
    return shlex.join(words)
