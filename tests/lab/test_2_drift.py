"""Broken by hand on one node: every single thing is found by the plan, named by the proof and mended by one run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

import pytest

from tests.lab.conftest import NODES
from tests.lab.drifts import DRIFTS
from tests.lab.virtual import VirtualRack

NODE = "spark2"


@dataclass(frozen=True)
class Story:
    """What was said while everything was broken, and what a look at each thing says after the run that mends it."""

    plan: str
    proof: str
    mended: frozenset[str]
    others_untouched: bool


@pytest.fixture(scope="module")
def story(rack: VirtualRack) -> Story:
    """All at once, since a run and a proof cost the same for one thing as for all; each has its own test below."""
    for name, drift in DRIFTS.items():
        rack.ssh(NODE, f"set -e; {{ {drift.breaks}; }} >/dev/null 2>&1 || {{ echo {shlex.quote(name)}; exit 1; }}")
    whole = [name for name, drift in DRIFTS.items() if sound(rack, drift.whole)]
    assert not whole, "these were not broken at all"
    proof = rack.verify("--limit", NODE, check=False).stdout
    plan = rack.deploy("--dry", "--diff")
    others = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in NODES if node != NODE}
    rack.deploy("-y")
    untouched = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in others} == others
    mended = frozenset(name for name, drift in DRIFTS.items() if sound(rack, drift.whole))
    return Story(plan.stdout + plan.stderr, proof, mended, untouched)


def sound(rack: VirtualRack, look: str) -> bool:
    return rack.ssh(NODE, f"if {look}; then echo sound; fi 2>/dev/null").strip() == "sound"


@pytest.mark.parametrize("name", DRIFTS)
def test_it_is_found_named_and_mended(story: Story, name: str) -> None:
    drift = DRIFTS[name]
    planned = [line for line in story.plan.splitlines() if f"[{NODE}]" in line]
    assert any(drift.plan in line for line in planned), "\n".join(planned)
    assert drift.proof in story.proof, story.proof
    assert name in story.mended


def test_no_other_node_was_touched(story: Story) -> None:
    assert story.others_untouched


def test_all_of_it_is_proven_again(rack: VirtualRack, story: Story) -> None:
    assert re.search(r"passed, 0 failed$", rack.verify("--limit", NODE).stdout, re.MULTILINE)
