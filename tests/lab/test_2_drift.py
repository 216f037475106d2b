"""Broken by hand on one node: every single thing is found by the plan, named by the proof and mended by one run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

import pytest

from tests import generated
from tests.browser.browser import MISSING, browser
from tests.generated import REPOSITORY
from tests.lab.conftest import NODES
from tests.lab.drift_table import DRIFTS
from tests.lab.virtual import VirtualRack

NODE = "spark2"


@dataclass(frozen=True)
class Story:
    """What was said while everything was broken, and what a look at each thing says after the run that mends it."""

    plan: str
    drift: str
    screen: str
    proof: str
    page: Path
    mended: frozenset[str]
    others_untouched: bool


@pytest.fixture(scope="module")
def story(rack: VirtualRack, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """All at once, since a run and a proof cost the same for one thing as for all; each has its own test below."""
    broken = done(rack, {name: drift.breaks for name, drift in DRIFTS.items()})
    assert broken == set(DRIFTS), f"could not be broken: {set(DRIFTS) - broken}"
    whole = done(rack, {name: drift.whole for name, drift in DRIFTS.items()})
    assert not whole, "these were not broken at all"
    page = tmp_path_factory.mktemp("report") / "report.html"
    proof = rack.verify("--limit", NODE, "--html", str(page), check=False).stdout
    plan = rack.deploy("--dry", "--diff")
    drift = rack.command("drift", "--json")
    assert drift.returncode == 2, drift.stdout + drift.stderr  # also, the dry run has changed nothing
    screen = rack.command("drift", "--limit", NODE).stdout
    others = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in NODES if node != NODE}
    applied = rack.command("apply", "-y")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    untouched = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in others} == others
    mended = frozenset(done(rack, {name: drift.whole for name, drift in DRIFTS.items()}))
    return Story(plan.stdout + plan.stderr, findings(drift.stdout), screen, proof, page, mended, untouched)


def findings(text: str) -> str:
    """What `sparkrack drift --json` found on the node, a line each, as a plan would say it."""
    (machine,) = [machine for machine in json.loads(text)["hosts"] if machine["name"] == NODE]
    reported = [finding for looked in machine["roles"] for finding in looked["findings"]]
    return "\n".join(
        line for finding in reported for line in (f"Will {finding['message']}", finding["message"], *finding["diff"])
    )


def done(rack: VirtualRack, texts: Mapping[str, str]) -> set[str]:
    """Run shell texts on the node, one after the other in one login; the names of those that succeed."""
    lines = [f"( {text} ) >/dev/null 2>&1 </dev/null && echo {shlex.quote(name)}" for name, text in texts.items()]
    return set(rack.ssh(NODE, "\n".join([*lines, "true"])).splitlines())


@pytest.mark.parametrize("name", DRIFTS)
def test_it_is_found_named_and_fixed(story: Story, name: str) -> None:
    drift = DRIFTS[name]
    planned = [line for line in story.plan.splitlines() if f"[{NODE}]" in line]
    assert any(drift.plan in line for line in planned), "\n".join(planned)
    assert drift.plan in story.drift, story.drift
    assert drift.proof in story.proof, story.proof
    assert name in story.mended


def test_what_is_shown_is_what_the_documents_show(story: Story) -> None:
    # What differs from lab to lab: names that docker gives, and by some MiB what a kernel takes of a node's memory.
    shown = re.sub(r"(container )[0-9a-f]{12}|[0-9a-f]{12}(?= ->)", r"\g<1>0123456789ab", story.screen)
    shown = re.sub(r"(this node's )\d+M", r"\g<1>8000M", shown)
    generated.check("docs/reference/drift.md", "drift", f"$ sparkrack drift --limit {NODE}\n{shown}")


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_the_page_of_the_proof_names_all_of_it(rack: VirtualRack, story: Story) -> None:
    story.page.write_text(
        story.page.read_text().replace(str(rack.folder), ".lab").replace(f"@{gethostname()}", "@desk")
    )
    with browser() as chromium:
        chromium.open(story.page, height=1600)
        if os.environ.get("UPDATE_DOCS"):
            chromium.picture(REPOSITORY / "docs/pictures/verify.png", whole=False)
        chromium.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        seen = chromium.run("return document.body.innerText")
        assert not [drift.proof for drift in DRIFTS.values() if drift.proof not in seen]
        assert chromium.complaints() == []


def test_no_other_node_was_touched(story: Story) -> None:
    assert story.others_untouched


def test_all_of_it_is_proven_again(rack: VirtualRack, story: Story) -> None:
    assert re.search(r"passed, 0 failed$", rack.verify("--limit", NODE).stdout, re.MULTILINE)
