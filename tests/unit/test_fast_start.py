"""The start of the program: what it does not do more often than it has to."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

from core.util import fast_start

COUNTED = """
import gc, json, os, sys
from importlib import metadata

searches = []
find, leave = metadata.MetadataPathFinder.find_distributions, os._exit

def count(context):
    if context.name is None:
        searches.append(context)
    return find(context)

def report(code):
    full = gc.get_stats()[2]["collections"] - before
    print(json.dumps({"searches": len(searches), "collections": full}), flush=True)
    leave(code)

metadata.MetadataPathFinder.find_distributions, os._exit = count, report
before = gc.get_stats()[2]["collections"]
sys.argv = ["sparkrack", "drift", "--help"]
from sparkrack_start import main
main()
"""
"""Loads all that `drift` needs, and counts searches of all installed packages, and complete collections of garbage."""


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_installed_packages_are_searched_once(counts: dict[str, int]) -> None:
    """gevent alone searches them 25 times."""
    assert counts["searches"] == 1


def test_no_complete_collection_of_garbage_is_made_while_modules_load(counts: dict[str, int]) -> None:
    assert counts["collections"] == 0


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"group": "pyinfra.connectors"}, id="a group"),
        pytest.param({"group": "pyinfra.connectors", "name": "ssh"}, id="one of it"),
        pytest.param({"group": "no such group"}, id="none"),
    ],
)
def test_the_entry_points_are_those_that_python_finds(
    properties: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = list(metadata.entry_points(**properties))
    monkeypatch.setattr(metadata, "entry_points", metadata.entry_points)  # and back again after the test
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)
    fast_start.prepare_fast_start()
    assert list(metadata.entry_points(**properties)) == expected
