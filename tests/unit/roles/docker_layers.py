"""A stand-in for docker that keeps the blobs of images in a folder: version, image ls, image inspect, info, save and
load.

The folder has a file for each blob, and `images` with the ID of each image, which is the digest of its configuration.
As docker's own store does, `load` takes a layer that an archive lacks from an image with the same layers below it.
Variables of the environment: `HOLD`, a path: `save` stops in the middle of the archive while it is there. `LOSE`, a
path that `save` removes. `MTIME`: the time of the members. `DOWN`: what each command says instead of an answer.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path


def read_layers(store: Path, image: str) -> list[str]:
    """The layers of an image, the lowest first."""
    content = (store / image.partition(":")[2]).read_bytes()
    return list(json.loads(content)["rootfs"]["diff_ids"])


def save(store: Path, image: str) -> None:
    """Write the archive to standard output, its second half after HOLD is gone."""
    made = io.BytesIO()
    layers = read_layers(store, image)
    paths = [f"blobs/sha256/{name.partition(':')[2]}" for name in layers]
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in (image, *layers):
            content = (store / name.partition(":")[2]).read_bytes()
            add(archive, f"blobs/sha256/{name.partition(':')[2]}", content)
        manifest = [{"Config": f"blobs/sha256/{image.partition(':')[2]}", "RepoTags": None, "Layers": paths}]
        add(archive, "manifest.json", json.dumps(manifest).encode())
    if lose := os.environ.get("LOSE"):
        Path(lose).unlink(missing_ok=True)
    content = made.getvalue()
    half = len(content) // 2
    sys.stdout.buffer.write(content[:half])
    sys.stdout.buffer.flush()
    while Path(os.environ.get("HOLD", "/nonexistent")).exists():
        time.sleep(0.01)
    sys.stdout.buffer.write(content[half:])


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Append a file."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), int(os.environ.get("MTIME", "5"))
    archive.addfile(member, io.BytesIO(content))


def load(store: Path, images: list[str]) -> int:
    """Read an archive from standard input."""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        members = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    (manifest,) = json.loads(members["manifest.json"])
    image = f"sha256:{manifest['Config'].rpartition('/')[2]}"
    layers = list(json.loads(members[manifest["Config"]])["rootfs"]["diff_ids"])
    stacks = [read_layers(store, one) for one in images]
    for place, (name, path) in enumerate(zip(layers, manifest["Layers"], strict=True)):
        below = [stack for stack in stacks if stack[: place + 1] == layers[: place + 1]]
        if below and (store / name.partition(":")[2]).exists():
            continue
        if path not in members:
            print(f"open /var/lib/docker/tmp/{path}: no such file or directory", file=sys.stderr)
            return 1
        if hashlib.sha256(members[path]).hexdigest() != name.partition(":")[2]:
            print(f"invalid diffID for layer {place}", file=sys.stderr)
            return 1
    for path, content in members.items():
        if path.startswith("blobs/"):
            (store / path.rpartition("/")[2]).write_bytes(content)
    with (store / "images").open("a", encoding="utf-8") as listed:
        listed.write(f"{image}\n")
    print(f"Loaded image ID: {image}")
    return 0


def main(store: Path, words: list[str]) -> int:
    """Run one command."""
    listed = store / "images"
    images = listed.read_text(encoding="utf-8").split() if listed.exists() else []
    if down := os.environ.get("DOWN"):
        print(down, file=sys.stderr)
        return 1
    match words:
        case ["version", *_]:
            print("26.1.5")
        case ["info", *_]:
            print('[["Backing Filesystem","extfs"]]')
        case ["image", "ls", *_]:
            print("\n".join(images))
        case ["image", "inspect", *_, image]:
            if image not in images:
                print(f"No such image: {image}", file=sys.stderr)
                return 1
            print(json.dumps(read_layers(store, image)))
        case ["save", image]:
            save(store, image)
        case ["load"]:
            return load(store, images)
        case _:
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
