"""Verify the images of a node: docker shows each as in the lock file, and the same on every node."""

from __future__ import annotations

import json
from functools import cache
from shlex import join
from typing import Any

import pytest

from core.model import Node, Rack
from core.model.image_lock import Pin, read
from core.model.lock_file import lock_path
from core.ssh.client import Machine, NodeConnections
from roles.images.desired import images


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack) -> None:
    if not rack.images:
        pytest.skip("rack.yaml declares no images")


@pytest.fixture(scope="session")
def lock(rack: Rack) -> dict[str, Pin]:
    """Content of the lock file."""
    return read(lock_path(rack.source))


@cache
def shown(machine: Machine, names: tuple[str, ...]) -> dict[str, Any]:
    """docker's data of the images with these names on a node, by name. Read once for all."""
    done = machine.run(f'for i in {join(names)}; do docker image inspect "$i" 2>/dev/null; done; docker version >&2')
    # `docker version` reports the client first, and why the engine does not answer last.
    assert done.rc == 0, (
        f"docker does not answer: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:200]}"
    )
    found: dict[str, Any] = {}
    decoder, text = json.JSONDecoder(), str(done.stdout).strip()
    while text:
        (image,), end = decoder.raw_decode(text)
        found |= dict.fromkeys(image["RepoTags"], image)
        text = text[end:].strip()
    return found


def test_each_image_is_what_the_lock_file_says(rack: Rack, node: Node, machine: Machine, lock: dict[str, Pin]) -> None:
    """By its ID, which is a hash over its content."""
    declared = images(rack)
    unknown = [image.name for image in declared if image.name not in lock]
    assert not unknown, f"{node.name}: {lock_path(rack.source).name} does not have {', '.join(unknown)}; run the deploy"
    here = shown(machine, tuple(image.local for image in declared))
    for image in declared:
        wanted = lock[image.name].id
        there = here[image.local]["Id"] if image.local in here else "missing"
        assert there == wanted, f"{node.name}: {image.local} is {there}, wanted {wanted}"


def test_each_image_has_the_same_layers_everywhere(
    rack: Rack, node: Node, machines: NodeConnections, limited: frozenset[str]
) -> None:
    """By the hashes of their content, which mean the same in every kind of image store."""
    first = next(name for name in rack.nodes if name in limited)
    names = tuple(image.local for image in images(rack))
    here, there = (shown(machines[name], names) for name in (node.name, first))
    for name in names:
        assert name in here, f"{node.name}: {name} is missing"
        assert name in there, f"{first}: {name} is missing, so {node.name} cannot be compared with it"
        own, theirs = here[name]["RootFS"]["Layers"], there[name]["RootFS"]["Layers"]
        assert own == theirs, f"{node.name}: {name} has other layers than on {first}"


def test_nothing_is_on_its_way(node: Node, machine: Machine) -> None:
    """No transfer of an interrupted run is still active."""
    listed = machine.run("systemctl list-units --no-legend --plain --no-pager 'sparkrack-image-*'")
    assert listed.rc == 0, f"{node.name}: systemctl: {listed.stderr.strip()}"
    assert not listed.stdout.strip(), f"{node.name}: images are still being fetched: {listed.stdout.split()[0]}"
