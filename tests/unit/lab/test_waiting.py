"""`sparkrack lab up` waits for nodes, and says why one does not take its logins."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from lab import namespace, rack_file
from lab.errors import LabError
from lab.lab import REFUSED_SECONDS, Lab
from lab.node import VirtualNode
from lab.node_login import Logins
from lab.paths import LabPaths


def test_a_node_that_was_bootstrapped_with_another_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(namespace, "answers", lambda *_, **__: True)
    monkeypatch.setattr(Logins, "boot_id", lambda *_: None)
    monkeypatch.setattr(VirtualNode, "pids", lambda _: [os.getpid()])
    paths = LabPaths(tmp_path)
    rack_file.write(paths.plan, rack_file.invented(1))
    lab = Lab(paths, print)
    with pytest.raises(LabError, match=r"refuses the key of the lab .* `sparkrack lab down` ends this lab"):
        lab._wait_for_logins(list(lab.machines.nodes))
    assert next(clock) < 3 * REFUSED_SECONDS
