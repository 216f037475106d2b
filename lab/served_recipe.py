"""A recipe for `sparkrack up --serve` in a virtual rack: its file, its model on a hub, its image in the registry.

`python -m lab.served_recipe FILE`, as root or with sudo: write the recipe, and publish its model and its image in the
lab of this folder. The nodes, which are in factory state, get their stand-ins for RDMA devices. Prints the address of
the hub, for HF_ENDPOINT.

The hub is a folder of the lab's package repository: all that a node asks of a hub are paths. The engine is a stand-in
in an image of the lab; the model has a configuration and no weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from core.util.project_files import PACKAGES
from lab.errors import LabError
from lab.image.build import base
from lab.lab import Lab
from lab.paths import LabPaths, cache
from lab.privileges import run_again_as_root
from lab.served_unit import CONFIG, ENGINE, IMAGE, UNIT, VERSION

MODEL = "acme/Toy"
COMMIT = hashlib.sha1(MODEL.encode(), usedforsecurity=False).hexdigest()
HUB = "hub"
"""Folder of the hub in the package repository."""
FIRST = "library/first:1"
"""The first image of a push is a large one."""
WEIGHTS = 1 << 20
RECIPE = f"""\
model: {MODEL}
container: {IMAGE}
command: |
  vllm serve {{model}} --served-model-name {UNIT} --tensor-parallel-size 2 \\
    --max-model-len 1024 --max-num-seqs 4 --gpu-memory-utilization 0.15
"""
"""As an owner finds it; 0.15: a virtual node has 8 GiB."""
READY = "sudo -S -p '' sh -c 'systemctl --quiet enable --now lab-rdma; systemctl restart systemd-journald'"
"""A clone of the lab gets its machine-id after the start of journald, whose log the gates read."""


def hub_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what a hub answers for the model, by path: the list of the revision, and each file."""
    siblings = [
        {
            "rfilename": path,
            "size": len(content),
            "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
        }
        for path, content in files.items()
    ]
    listing = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
    lists = {f"api/models/{MODEL}/revision/{revision}": listing for revision in ("main", COMMIT)}
    return lists | {f"{MODEL}/resolve/{COMMIT}/{path}": content for path, content in files.items()}


def publish(lab: Lab) -> str:
    """Publish model and image of the recipe in a running lab; return the address of the hub. Raises LabError."""
    files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": bytes(WEIGHTS)}
    for path, content in hub_files(files).items():
        place = lab.paths.packages / HUB / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    lab.paths.give_to_caller()
    made = base(cache(), lab.say)
    command = [sys.executable, "-m", "lab.images", "--engine", IMAGE, ENGINE, VERSION, lab.layout.registry]
    done = lab.logins.inside([*command, str(made.busybox), str(made.python), FIRST, IMAGE], cwd=PACKAGES)
    if done.returncode:
        raise LabError(f"{IMAGE} cannot be pushed:\n{done.stderr.strip()}")
    return f"{lab.layout.repository}{HUB}"


def main(words: list[str]) -> None:
    """Write the recipe, and publish what it names in the lab of this folder."""
    if len(words) != 1:
        raise SystemExit("served_recipe: FILE")
    if os.geteuid():
        run_again_as_root("lab.served_recipe")
    lab = Lab(LabPaths.here(), print)
    Path(words[0]).write_text(RECIPE)
    hub = publish(lab)
    for node in lab.layout.rack.nodes:
        if lab.logins.run_by_password(node, READY) is None:
            raise SystemExit(f"served_recipe: {node} is not in factory state")
    print(f"recipe: {words[0]}, of {MODEL} on {hub}")


if __name__ == "__main__":
    main(sys.argv[1:])
