"""Broken by hand on one node: every single thing is found by the plan, named by the proof and mended by one run. Then
the rack is in sync, and another look changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest

from tests import generated
from tests.browser.browser import MISSING, browser
from tests.generated import REPOSITORY
from tests.lab.conftest import NODES
from tests.lab.drift_table import DRIFTS
from tests.lab.virtual import VirtualRack

NODE = "spark2"
LEG = {"cage": "qsfp56-dd-1", "lane": 5}
"""That of spark3."""
HALVES = {"enp1s0f1np1", "enP2p1s0f1np1"}
KERNEL = "/run/sparkrack-lab/kernel"
"""What a virtual node says that it has booted."""
SUDO = "journalctl --quiet _COMM=sudo --grep 'base64|set -eu|eval.+cat' --output=cat | grep -c COMMAND="
MOVING = ("bytes", "packet", "fec-corrected", "expires-after", "time")


@dataclass(frozen=True)
class Finding:
    """A finding of `sparkrack drift --json`."""

    machine: str
    role: str
    kind: str
    message: str
    diff: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """The report while everything was broken, and what each place holds after the run that repairs it."""

    plan: str
    drift: tuple[Finding, ...]
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
    with other_kinds(rack):
        drift = rack.command("drift", "--json")
    assert drift.returncode == 2, drift.stdout + drift.stderr  # also, the dry run has changed nothing
    screen = rack.command("drift", "--limit", NODE).stdout
    others = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in NODES if node != NODE}
    applied = rack.command("apply", "-y")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    untouched = {node: rack.ssh(node, "tar -c --sort=name /etc | sha256sum") for node in others} == others
    mended = frozenset(done(rack, {name: drift.whole for name, drift in DRIFTS.items()}))
    return Story(plan.stdout + plan.stderr, findings(drift.stdout), screen, proof, page, mended, untouched)


@contextmanager
def other_kinds(rack: VirtualRack) -> Iterator[None]:
    """Meanwhile a cable is pulled out of the switch, and a node has booted another kernel than the others."""
    rack.ssh("spark1", f"cp {KERNEL} {KERNEL}.was; echo 6.17.0-9999-nvidia > {KERNEL}")
    assert rack.control({"op": "cable", "do": "pull", **LEG})["ok"]
    try:
        yield
    finally:
        assert rack.control({"op": "cable", "do": "plug", **LEG})["ok"]
        rack.ssh("spark1", f"mv {KERNEL}.was {KERNEL}")


def findings(text: str) -> tuple[Finding, ...]:
    """What `sparkrack drift --json` found."""
    return tuple(
        Finding(machine["name"], looked["role"], finding["kind"], finding["message"], tuple(finding["diff"]))
        for machine in json.loads(text)["hosts"]
        for looked in machine["roles"]
        for finding in looked["findings"]
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
    lines = [
        line
        for finding in story.drift
        if finding.machine == NODE
        for line in (f"Will {finding.message}", finding.message, *finding.diff)  # as a plan would say it
    ]
    assert any(drift.plan in line for line in lines), "\n".join(lines)
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


def test_the_kinds_of_drift_are_distinguished(story: Story) -> None:
    """A value that differs, a dead link, a node unlike the others, and what is not declared."""

    def found(machine: str, kind: str) -> list[str]:
        return [one.message for one in story.drift if (one.machine, one.kind) == (machine, kind)]

    assert "vm.overcommit_memory: 1 -> 0" in found(NODE, "declared")
    assert {text.split(":")[0] for text in found("spark3", "broken")} == HALVES
    assert [text for text in found("crs812", "broken") if "to spark3 port" in text]
    assert [text for text in found("spark1", "outlier") if "6.17.0-9999" in text]
    assert [one for one in story.drift if (one.role, one.kind) == ("switch", "unmanaged")]


def everything(rack: VirtualRack) -> dict[str, str]:
    """What a command that only looks must leave as it is: files by name, mode, time and content; no journals."""
    script = (
        "tar -c --sort=name /etc /root /usr/local /home /run/sparkrack 2>/dev/null | sha256sum; "
        "find /tmp /var/tmp /run/sparkrack -xdev 2>/dev/null | sort; sysctl vm.min_free_kbytes; apt-mark showhold"
    )
    tables: Any = rack.control({"op": "state"})["tables"]
    rows = {
        path: [{name: value for name, value in row.items() if not name.endswith(MOVING)} for row in menu]
        for path, menu in tables.items()
    }
    return {node: rack.ssh(node, script) for node in NODES} | {"crs812": json.dumps([rows, rack.writes()])}


def test_a_rack_in_sync_costs_one_command_a_node_and_nothing_is_written(rack: VirtualRack, story: Story) -> None:
    """A key of others in an account is reported meanwhile; it is not drift, and it is kept."""
    keys = "/home/ops/.ssh/authorized_keys2"
    rack.ssh(
        "spark3",
        "rm -f /tmp/guest /tmp/guest.pub; ssh-keygen -q -t ed25519 -N '' -C guest@lab -f /tmp/guest < /dev/null; "
        f"install -o ops -g ops -m 600 /tmp/guest.pub {keys}; rm -f /tmp/guest /tmp/guest.pub",
    )
    try:
        before = everything(rack)
        count = {node: int(rack.ssh(node, SUDO)) for node in NODES}
        done = rack.command("drift", "--json")
        # Each look at the journal is a sudo command with these words in it as well.
        assert {node: int(rack.ssh(node, SUDO)) - count[node] for node in NODES} == dict.fromkeys(NODES, 2)
        assert done.returncode == 0, done.stdout + done.stderr
        guests = [one for one in findings(done.stdout) if "(guest@lab)" in one.message]
        assert [(one.machine, one.role, one.kind) for one in guests] == [("spark3", "access", "unmanaged")]
        assert everything(rack) == before
    finally:
        rack.ssh("spark3", f"rm -f {keys}")
