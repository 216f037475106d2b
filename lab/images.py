"""Small container images under the names that a rack wants, pushed to the lab's registry.

`python -m lab.images REGISTRY BUSYBOX NAME...` pushes those that are not there. An image has two layers: a static
busybox, and bytes that no compression shrinks; both follow from its name alone, and so do its digest and ID.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import random
import re
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

COMMANDS = ("sh", "sleep", "head", "tail", "cat", "ls", "nproc")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CREATED = "2026-01-01T00:00:00Z"
LARGE, SMALL = 24 * 1024**2, 3 * 1024**2
"""Bytes of the first image of a rack, which takes long enough to be interrupted on its way, and of the others."""
NAME = re.compile(r"(?P<path>[^@]+?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>.+))?")


@dataclass(frozen=True)
class Image:
    """An image, ready to be pushed."""

    repository: str
    tag: str
    blobs: tuple[bytes, ...]
    """Its configuration, then its layers."""

    @property
    def id(self) -> str:
        """What `docker image inspect` calls its ID."""
        return digest(self.blobs[0])

    @property
    def manifest(self) -> bytes:
        """What a registry keeps under the tag."""
        kinds = [CONFIG] + [LAYER] * (len(self.blobs) - 1)
        config, *layers = (
            {"mediaType": kind, "size": len(blob), "digest": digest(blob)}
            for kind, blob in zip(kinds, self.blobs, strict=True)
        )
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()


def digest(data: bytes) -> str:
    """What names these bytes in a registry."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def target(name: str) -> tuple[str, str]:
    """Repository and tag that an image of this name has in the lab's registry.

    As docker reads names: a first part with a dot or a port, or localhost, is a registry's host, and a name without a
    slash is one of Docker's own. A name by digest alone gets the tag `pinned`.
    """
    found = NAME.fullmatch(name)
    assert found  # noqa: S101 - a rack's names have been checked, and anything matches
    first, slash, rest = found["path"].partition("/")
    path = found["path"]
    if slash and (set(".:") & set(first) or first == "localhost"):
        path = rest
    elif not slash:
        path = f"library/{path}"
    return path, found["tag"] or "pinned"


def image(name: str, busybox: bytes, size: int) -> Image:
    """The image of this name, with `size` bytes of its own."""
    path, tag = target(name)
    own = random.Random(f"{path}:{tag}").randbytes(size)  # noqa: S311 - no secret
    tars = [_tar({"bin/busybox": busybox}, links=COMMANDS), _tar({"opt/weights": own, "opt/name": name.encode()})]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(tar) for tar in tars]},
        "history": [{"created": CREATED, "created_by": "sparkrack lab"} for _ in tars],
    }
    layers = (gzip.compress(tar, compresslevel=1, mtime=0) for tar in tars)
    return Image(path, tag, (json.dumps(config).encode(), *layers))


def _tar(files: dict[str, bytes], links: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in sorted({path.split("/")[0] for path in files}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
        for name in links:
            info = tarfile.TarInfo(f"bin/{name}")
            info.type, info.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(info)
    return out.getvalue()


class Registry:
    """The pushing side of the registry API."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def has(self, repository: str, tag: str) -> bool:
        """Whether the tag is there. Its manifest is pushed last, so it is whole then."""
        return (
            self._ask("HEAD", f"/v2/{repository}/manifests/{tag}", {200, 404}, headers={"Accept": MANIFEST})[0] == 200
        )

    def push(self, image: Image) -> None:
        """Push an image, blobs first."""
        for blob in image.blobs:
            if self._ask("HEAD", f"/v2/{image.repository}/blobs/{digest(blob)}", {200, 404})[0] == 404:
                _, place = self._ask("POST", f"/v2/{image.repository}/blobs/uploads/", {202})
                join = "&" if "?" in place else "?"
                self._ask(
                    "PUT",
                    f"{place}{join}digest={digest(blob)}",
                    {201},
                    blob,
                    {"Content-Type": "application/octet-stream"},
                )
        path = f"/v2/{image.repository}/manifests/{image.tag}"
        self._ask("PUT", path, {201}, image.manifest, {"Content-Type": MANIFEST})

    def _ask(
        self, method: str, path: str, good: set[int], body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and `Location` of an answer. Raises OSError with what the registry said when it is not a good one."""
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status not in good:
            raise OSError(f"{method} {path}: {answer.status} {answer.reason} {text}")
        return answer.status, answer.headers.get("Location", "")


def main(address: str, program: str, *names: str) -> None:
    """Push the images that are not there; the first one is the large one."""
    registry, busybox = Registry(address), Path(program).read_bytes()
    for number, name in enumerate(names):
        if not registry.has(*target(name)):
            registry.push(image(name, busybox, SMALL if number else LARGE))


if __name__ == "__main__":
    main(*sys.argv[1:])
