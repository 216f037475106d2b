"""Verify the models of a node: sha256sum of every file is that of the lock file, so all nodes have the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import join, quote

import pytest

from core.model import Node, Rack
from core.model.lock_file import lock_path
from core.model.model_lock import ModelFile, ModelRecord, read
from core.model.models import Model
from core.ssh.client import Machine

BATCH = 16 << 30
"""Bytes that one command reads: a command has a time limit, and a slow disk reads this in a minute."""


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack) -> None:
    if not rack.models:
        pytest.skip("rack.yaml declares no models")


@pytest.fixture(scope="session")
def lock(rack: Rack) -> dict[str, ModelRecord]:
    """Content of the lock file."""
    return read(lock_path(rack.source))


def _split_into_batches(files: tuple[ModelFile, ...]) -> Iterator[list[ModelFile]]:
    batch: list[ModelFile] = []
    for file in files:
        if batch and (sum(one.size for one in batch) + file.size > BATCH or len(batch) == 100):
            yield batch
            batch = []
        batch.append(file)
    yield batch


def _hash_on_node(machine: Machine, model: Model, files: list[ModelFile]) -> dict[str, str]:
    """The sha256 of these files on a node, by path; a file that is missing has none."""
    names = join(file.path for file in files)
    # A file is read by one process, and four at a time: one core hashes more slowly than a disk reads.
    done = machine.run(
        f"cd {quote(str(model.folder))} 2>/dev/null || exit 0; for f in {names}; do "
        '[ ! -f "$f" ] || [ -L "$f" ] || printf \'%s\\0\' "$f"; done | xargs -0 -r -n 1 -P 4 sha256sum --'
    )
    assert done.rc == 0, f"{model.folder}: {(done.stderr.strip().splitlines() or ['sha256sum fails'])[-1][:200]}"
    rows = (line.partition("  ") for line in str(done.stdout).splitlines())
    return {path: sha256 for sha256, _, path in rows}


def test_each_file_is_what_the_lock_file_says(
    rack: Rack, node: Node, machine: Machine, lock: dict[str, ModelRecord]
) -> None:
    """By reading every byte."""
    unknown = [name for name in rack.models if name not in lock]
    assert not unknown, f"{node.name}: {lock_path(rack.source).name} does not have {', '.join(unknown)}; run the deploy"
    for name, model in rack.models.items():
        for batch in _split_into_batches(lock[name].files):
            found = _hash_on_node(machine, model, batch)
            for file in batch:
                assert file.path in found, f"{node.name}: {model.folder}/{file.path} is missing"
                assert found[file.path] == file.sha256, (
                    f"{node.name}: {model.folder}/{file.path} has the sha256 {found[file.path][:12]}, "
                    f"wanted {file.sha256[:12]}"
                )


def test_no_file_is_incomplete(rack: Rack, node: Node, machine: Machine) -> None:
    """No part of a file is left that an interrupted transfer would continue."""
    for model in rack.models.values():
        parts = f"{model.folder}/.sparkrack/parts"
        listed = machine.run(f"[ ! -e {quote(parts)} ] || ls -A {quote(parts)}")
        assert listed.rc == 0, f"{node.name}: {parts}: {listed.stderr.strip()}"
        assert not listed.stdout.split(), f"{node.name}: {parts} has files that are not complete; run the deploy"


def test_nothing_is_on_its_way(node: Node, machine: Machine) -> None:
    """No transfer of an interrupted run is still active."""
    listed = machine.run("systemctl list-units --no-legend --plain --no-pager 'sparkrack-model-*'")
    assert listed.rc == 0, f"{node.name}: systemctl: {listed.stderr.strip()}"
    assert not listed.stdout.strip(), f"{node.name}: models are still being fetched: {listed.stdout.split()[0]}"
