"""Small container images under the names that a rack wants, pushed to the lab's registry.

`python -m lab.images [--engine NAME ENGINE VERSION]... REGISTRY BUSYBOX PYTHON NAME...` pushes those that are not
there. An image has two layers: a static busybox, and bytes that no compression shrinks. Both follow from its name
alone, and so do its digest and ID. One that a unit serves with has a third layer: Python, stand-ins for vLLM, SGLang
and Ray, and the options of the engine's release.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import http.client
import io
import json
import random
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from core.util.project_files import PACKAGES
from serving.engines.registry import ENGINES

COMMANDS = ("sh", "sleep", "head", "tail", "cat", "ls", "nproc", "mkdir", "rm", "timeout")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
CREATED = "2026-01-01T00:00:00Z"
LARGE, SMALL = 24 * 1024**2, 3 * 1024**2
"""Bytes of the first image of a rack, which takes long enough to be interrupted on its way, and of the others."""
ENGINE = "opt/engine"
"""Folder of an image with the stand-ins for the programs of its engine."""
JUDGED = ("vllm", "sglang")
"""The engines that a stand-in stands for."""


def _engine_modules() -> list[str]:
    """Return the paths of the parts of a stand-in, and of what it judges its command line by."""
    folder = PACKAGES / "serving/engines"
    places = (folder, *(folder / name for name in JUDGED))
    found = [path for place in places for pattern in ("*.py", "options.json") for path in place.glob(pattern)]
    found += (PACKAGES / "lab/engine").glob("*.py")
    return sorted(str(path.relative_to(PACKAGES)) for path in found)


ENGINE_FILES = {
    f"{ENGINE}/engine_standin.py": "lab/engine_standin.py",
    f"{ENGINE}/ray_standin.py": "lab/ray_standin.py",
    **{
        f"{ENGINE}/{path}": path
        for path in (
            "lab/__init__.py",
            "lab/rdma_standin.py",
            *_engine_modules(),
        )
    },
}
"""Files of this project in an image, by their places there."""
ENGINE_TEXTS = {
    "bin/bash": '#!/bin/sh\nexec sh "$@"\n',
    "usr/lib/python3.11/sglang/__init__.py": "",
    "usr/lib/python3.11/sglang/launch_server.py": (
        "import os, sys\n"
        f'program = "/{ENGINE}/engine_standin.py"\n'
        'os.execv(program, [program, "sglang", *sys.argv[1:]])\n'
    ),
}
LIBRARIES = "lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
PYTHON_ROOT = (
    *(f"{LIBRARIES}/{name}" for name in (LOADER, "libc.so.6", "libm.so.6", "libz.so.1", "libexpat.so.1")),
    "usr/bin/python3.11",
    "usr/lib/python3.11/**/*",
)
"""What the interpreter needs of its packages, as patterns."""
LEFT_OUT = ("asyncio", "distutils", "ensurepip", "lib2to3", "multiprocessing", "pydoc_data", "sqlite3", "unittest")
"""Packages of its library that the stand-in does not use: a node unpacks some MB a second."""
NAME = re.compile(r"(?P<path>[^@]+?)(?::(?P<tag>[^:/@]+))?(?:@(?P<digest>.+))?")


@dataclass(frozen=True)
class LabImage:
    """An image, ready to be pushed."""

    repository: str
    tag: str
    blobs: tuple[bytes, ...]
    """Its configuration, then its layers."""

    @property
    def id(self) -> str:
        """Its ID in `docker image inspect`."""
        return digest(self.blobs[0])

    @property
    def manifest(self) -> bytes:
        """Manifest that a registry keeps under the tag."""
        kinds = [CONFIG] + [LAYER] * (len(self.blobs) - 1)
        config, *layers = (
            {"mediaType": kind, "size": len(blob), "digest": digest(blob)}
            for kind, blob in zip(kinds, self.blobs, strict=True)
        )
        return json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}).encode()


def digest(data: bytes) -> str:
    """Return the digest of these bytes in a registry."""
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


@dataclass(frozen=True)
class EngineRelease:
    """What an image has for a unit: the engine, vllm or sglang, its version, and the root of the interpreter."""

    engine: str
    version: str
    python: Path


def image(name: str, busybox: bytes, size: int, release: EngineRelease | None = None) -> LabImage:
    """The image of this name, with `size` bytes of its own. `release`: of the engine that it has."""
    path, tag = target(name)
    own = random.Random(f"{path}:{tag}").randbytes(size)  # noqa: S311 - no secret
    links = {f"bin/{name}": "busybox" for name in COMMANDS}
    tars = [_pack_tar({"bin/busybox": busybox}, links), _pack_tar({"opt/weights": own, "opt/name": name.encode()})]
    if release:
        tars.append(_engine_layer(release))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": CREATED,
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(tar) for tar in tars]},
        "history": [{"created": CREATED, "created_by": "sparkrack lab"} for _ in tars],
    }
    layers = (gzip.compress(tar, compresslevel=1, mtime=0) for tar in tars)
    return LabImage(path, tag, (json.dumps(config).encode(), *layers))


def _engine_layer(release: EngineRelease) -> bytes:
    """The layer of an engine."""
    known = {"engine": release.engine, "version": release.version}
    package = ENGINES[release.engine].package
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {release.version}\n"
    files = {
        **dict(_list_interpreter_files(release.python)),
        **{place: text.encode() for place, text in ENGINE_TEXTS.items()},
        **{place: (PACKAGES / path).read_bytes() for place, path in ENGINE_FILES.items()},
        f"{ENGINE}/release.json": json.dumps(known).encode(),
        f"usr/lib/python3.11/{package}-{release.version}.dist-info/METADATA": metadata.encode(),
    }
    links = {
        "bin/vllm": f"/{ENGINE}/engine_standin.py",
        "bin/ray": f"/{ENGINE}/ray_standin.py",
        "bin/python3": "/usr/bin/python3.11",
        "usr/bin/python3": "python3.11",
        f"lib64/{LOADER}": f"/{LIBRARIES}/{LOADER}",
    }
    return _pack_tar(files, links, ["tmp"])


def _list_interpreter_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the interpreter by their paths in the image. Absolute links, which lead out of it, are left out."""
    for pattern in PYTHON_ROOT:
        for path in sorted(root.glob(pattern)):
            place = path.relative_to(root)
            inside = not (path.is_symlink() and path.readlink().is_absolute())
            if inside and path.is_file() and not set(LEFT_OUT) & set(place.parts):
                yield str(place), path.read_bytes()


def _pack_tar(files: dict[str, bytes], links: dict[str, str] | None = None, empty: Sequence[str] = ()) -> bytes:
    """Return an archive. `empty`: folders without a file, in which everyone may write, such as tmp."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
        for folder in sorted(folders - {"."}):
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        for folder in empty:
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(info)
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
        for path, place in (links or {}).items():
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, place
            tar.addfile(info)
    return out.getvalue()


class Registry:
    """The pushing side of the registry API."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=60)

    def has(self, repository: str, tag: str) -> bool:
        """Return whether the tag exists. Its manifest is pushed last, so the image is complete then."""
        return (
            self._send_request("HEAD", f"/v2/{repository}/manifests/{tag}", {200, 404}, headers={"Accept": MANIFEST})[0]
            == 200
        )

    def push(self, image: LabImage) -> None:
        """Push an image, blobs first."""
        for blob in image.blobs:
            if self._send_request("HEAD", f"/v2/{image.repository}/blobs/{digest(blob)}", {200, 404})[0] == 404:
                _, place = self._send_request("POST", f"/v2/{image.repository}/blobs/uploads/", {202})
                join = "&" if "?" in place else "?"
                self._send_request(
                    "PUT",
                    f"{place}{join}digest={digest(blob)}",
                    {201},
                    blob,
                    {"Content-Type": "application/octet-stream"},
                )
        path = f"/v2/{image.repository}/manifests/{image.tag}"
        self._send_request("PUT", path, {201}, image.manifest, {"Content-Type": MANIFEST})

    def _send_request(
        self, method: str, path: str, good: set[int], body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Return status and `Location` of an answer. Raises OSError with the registry's message for an unexpected
        status.
        """
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        text = answer.read().decode(errors="replace")
        if answer.status not in good:
            raise OSError(f"{method} {path}: {answer.status} {answer.reason} {text}")
        return answer.status, answer.headers.get("Location", "")


def main(words: Sequence[str]) -> None:
    """Push the images that are not there; the first one is the large one."""
    parser = argparse.ArgumentParser(prog="lab.images")
    parser.add_argument("registry")
    parser.add_argument("busybox", type=Path)
    parser.add_argument("python", type=Path)
    parser.add_argument("--engine", action="append", default=[], nargs=3, metavar=("NAME", "ENGINE", "VERSION"))
    parser.add_argument("names", nargs="+")
    given = parser.parse_args(words)
    registry, busybox = Registry(given.registry), given.busybox.read_bytes()
    releases = {name: EngineRelease(engine, version, given.python) for name, engine, version in given.engine}
    for number, name in enumerate(given.names):
        if not registry.has(*target(name)):
            registry.push(image(name, busybox, SMALL if number else LARGE, releases.get(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
