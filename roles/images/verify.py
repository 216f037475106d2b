"""Prove the images of a node: what docker shows of each is what the lock file says, and the same on every node."""

from __future__ import annotations

import json
from functools import cache
from shlex import join
from typing import Any

import pytest

from roles.images.state import images
from sparkrack.fleet import Node, Rack
from sparkrack.fleet.pins import Pin, lock_path, read
from sparkrack.proof.machines import Machine, Machines


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack) -> None:
    if not rack.images:
        pytest.skip("rack.yaml declares no images")


@pytest.fixture(scope="session")
def lock(rack: Rack) -> dict[str, Pin]:
    """What the lock file says."""
    return read(lock_path(rack.source))


@cache
def shown(machine: Machine, names: tuple[str, ...]) -> dict[str, Any]:
    """What docker shows of the images that a node has of these, by name. Asked once: it is one answer for all."""
    done = machine.run(f'for i in {join(names)}; do docker image inspect "$i" 2>/dev/null; done; docker version >&2')
    assert done.rc == 0, f"docker does not answer: {done.stderr.strip()[:200]}"
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
    rack: Rack, node: Node, machines: Machines, limited: frozenset[str]
) -> None:
    """By the hashes of their content, which mean the same in every kind of image store."""
    first = next(name for name in rack.nodes if name in limited)
    names = tuple(image.local for image in images(rack))
    here, there = (shown(machines[name], names) for name in (node.name, first))
    for name in names:
        assert name in here, f"{node.name}: {name} is missing"
        assert name in there, f"{first}: {name} is missing, so {node.name} cannot be compared with it"
        mine, theirs = here[name]["RootFS"]["Layers"], there[name]["RootFS"]["Layers"]
        assert mine == theirs, f"{node.name}: {name} has other layers than on {first}"


def test_nothing_is_on_its_way(node: Node, machine: Machine) -> None:
    """No transfer of a run that was cut off still writes."""
    listed = machine.run("systemctl list-units --no-legend --plain --no-pager 'sparkrack-image-*'")
    assert listed.rc == 0, f"{node.name}: systemctl: {listed.stderr.strip()}"
    assert not listed.stdout.strip(), f"{node.name}: images are still being fetched: {listed.stdout.split()[0]}"
