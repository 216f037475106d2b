"""From factory to verified: what a run promises, in the order in which a user meets it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import generated
from tests.lab.conftest import NODES, Worker
from tests.lab.converged import is_made, keep, making
from tests.lab.virtual import VirtualRack

README_ROLES = ("switch", "memory", "fabric")
PAIRS = len(NODES) * (len(NODES) - 1) * 2


UPGRADE = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -y -qq full-upgrade >/dev/null 2>&1"
HELD = "apt-mark showhold | xargs dpkg-query -W | tr '\\t' ' '"
VERSIONS = "dpkg-query -W 'nvidia-*' 'libnvidia-*' 'linux-*' docker.io containerd | tr '\\t' ' '"


@pytest.fixture(scope="module")
def factory(worker: Worker) -> VirtualRack:
    """A rack as it comes up."""
    found = VirtualRack(worker.folder, NODES)
    found.lab("down")
    worker.rack = None
    found.lab("up", "--nodes", str(len(NODES)))
    return found


@pytest.fixture(scope="module")
def snapshot(factory: VirtualRack) -> Iterator[ExitStack]:
    """The right to make the snapshot from which the other workers restore their rack, unless there is one: they wait
    for it, since this file converges a rack anyway.
    """
    with ExitStack() as held:
        held.enter_context(making())
        if is_made(NODES):
            held.close()
        yield held


@pytest.fixture(scope="module")
def rack(
    snapshot: ExitStack, factory: VirtualRack, worker: Worker, request: pytest.FixtureRequest
) -> Iterator[VirtualRack]:
    """The same rack after a run. Unless a test here fails, the next files of this worker have it."""
    failures = request.session.testsfailed
    factory.deploy("-y")
    yield factory
    if request.session.testsfailed == failures:
        worker.rack, worker.failures = factory, failures


def unreached(reported: str) -> list[str]:
    return re.findall(r"(spark\d)/\S+ does not reach (?:spark\d)/", reported)


def test_a_factory_rack_is_not_proven(snapshot: ExitStack, factory: VirtualRack) -> None:
    done = factory.verify("--only", "memory", "--only", "fabric", check=False)
    assert done.returncode == 2
    assert len(unreached(done.stdout)) == PAIRS
    assert "spark1: swap is on" in done.stdout
    assert "/proc/swaps" not in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.soak
def test_a_dry_run_shows_the_change_and_makes_none(factory: VirtualRack) -> None:
    """In the first tier, test_2_drift.py makes a dry run, and the next command there finds everything as it was."""
    before = factory.etc(), factory.writes(), factory.ssh("spark1", "cat /proc/swaps; ip -br address; ls -A /tmp /run")
    done = factory.deploy("--dry", "--diff")
    shown = done.stdout + done.stderr
    assert "-/swap.img\tnone\tswap" in shown
    assert "enp1s0f1np1: mtu 1500 -> 9000" in shown
    assert "restarts cage qsfp56-dd-1 (spark1, spark2, spark3)" in shown
    after = factory.etc(), factory.writes(), factory.ssh("spark1", "cat /proc/swaps; ip -br address; ls -A /tmp /run")
    assert before == after


def test_a_plan_shows_every_change_and_makes_none(factory: VirtualRack) -> None:
    before = factory.etc(), factory.writes(), factory.ssh("spark1", "cat /proc/swaps; ip -br address; ls -A /tmp /run")
    done = factory.command("plan")
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.sub(r"^\d+ s: .*\n", "", done.stderr, flags=re.MULTILINE) == ""  # nothing but progress
    after = factory.etc(), factory.writes(), factory.ssh("spark1", "cat /proc/swaps; ip -br address; ls -A /tmp /run")
    assert before == after
    # What differs from lab to lab: its folder, its keys, and by some MiB what a kernel takes of a node's memory.
    anywhere = re.sub(
        r"(ssh-ed25519) [A-Za-z0-9+/=]{60,}", r"\1 AAAA...", done.stdout.replace(str(factory.folder), ".lab")
    )
    anywhere = re.sub(r" +$", "", re.sub(r"(this node's) \d+M", r"\1 8000M", anywhere), flags=re.MULTILINE)
    generated.check("docs/reference/plan.md", "plan", anywhere)
    generated.check("README.md", "plan", extract(anywhere))


EXCERPT = 4
"""Lines that the README shows of an operation."""


def extract(plan: str) -> str:
    """The excerpt in the README: the summary, and the first operation of each role that a reader knows at once, without
    file contents.
    """
    summary, _, details = plan.partition("\n\n")
    kept = [f"{summary}\n\n"]
    role, operations, lines = "", 0, 0
    for line in details.splitlines(keepends=True):
        if not line.startswith(" "):
            kept.append(line)
        elif re.match(r" {2}\w", line):
            role, operations = line.strip(), 0
            kept += [line] if role in README_ROLES else []
        elif role in README_ROLES and re.match(r" {4}\w", line):
            operations, lines = operations + 1, 0
            kept += [line] if operations == 1 else []
        elif role in README_ROLES and operations == 1 and not re.match(r" {6}[-+~] /(?!etc)| {8}", line):
            lines += 1
            kept += [line] if lines <= EXCERPT else []
            kept += ["      ...\n"] if lines == EXCERPT + 1 else []
    return "".join(kept)


@pytest.mark.soak
def test_a_full_upgrade_moves_a_factory_node(factory: VirtualRack) -> None:
    """What the hold is for, and the proof that the test of it can fail."""
    factory.ssh("spark3", UPGRADE)
    moved = factory.ssh("spark3", VERSIONS)
    assert "nvidia-driver-580-open 580.173" in moved
    assert "linux-image-nvidia-hwe-24.04 6.17.0-1029" in moved
    factory.lab("reset", "spark3")


def test_a_limited_run_changes_only_the_switch(factory: VirtualRack) -> None:
    before = factory.etc()
    factory.deploy("-y", "--limit", "switches")
    assert factory.writes() > 0
    assert factory.etc() == before


def test_a_run_makes_it_so_and_it_is_proven_from_outside(rack: VirtualRack, tmp_path: Path) -> None:
    junit = tmp_path / "verify.xml"
    done = rack.verify("--junit", str(junit))
    assert re.search(r"^\d+ passed, 0 failed$", done.stdout, re.MULTILINE)
    cases = list(ElementTree.parse(junit).iter("testcase"))  # noqa: S314 - we wrote it
    assert len([case for case in cases if "test_full_frames_reach" in str(case.get("name"))]) == PAIRS


def test_a_reboot_brings_nothing_back(snapshot: ExitStack, rack: VirtualRack) -> None:
    """The first run of the tests shuts all nodes down here, and keeps them for the other files."""
    if is_made(NODES):
        rack.lab("reboot", "spark3")
    else:
        keep(rack)
        snapshot.close()
    assert rack.verify("--limit", "spark3").returncode == 0
    assert "swap.img" not in rack.ssh("spark3", "cat /proc/swaps")
    assert rack.ssh("spark3", "systemctl --failed --no-legend --plain").strip() == ""


def test_a_second_run_changes_nothing_and_costs_one_command_a_node(rack: VirtualRack) -> None:
    commands = "journalctl --quiet _COMM=sudo --grep 'base64|set -eu|eval.+cat' --output=cat | grep -c COMMAND="

    def sent() -> dict[str, int]:
        return {node: int(rack.ssh(node, commands)) for node in NODES}

    before = rack.etc(), rack.writes()
    count = sent()
    done = rack.deploy("-y")
    grew = {node: number - count[node] for node, number in sent().items()}
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", done.stderr + done.stdout, re.MULTILINE)
    assert (rack.etc(), rack.writes()) == before
    # Each look at the journal is a sudo command with these words in it as well.
    assert grew == dict.fromkeys(NODES, 2)


def test_a_full_upgrade_leaves_what_is_held(rack: VirtualRack) -> None:
    before = rack.ssh("spark1", HELD)
    assert "nvidia-driver-580-open 580.159" in before
    rack.ssh("spark1", UPGRADE)
    assert rack.ssh("spark1", HELD) == before
    assert rack.ssh("spark1", "dpkg-query -W -f '${Version}' lab-sample") == "1.1", "nothing was upgraded at all"


def test_a_secret_is_in_no_output_and_no_log(rack: VirtualRack) -> None:
    password = (rack.paths.switch("crs812") / "password").read_text().strip()
    done = rack.deploy("-y", "-vvv", "--diff", "--debug", "--limit", "switches", "--limit", "spark1")
    assert "/interface/ethernet/print" in done.stderr + done.stdout
    assert password not in done.stdout + done.stderr
    for path in [Path("pyinfra-debug.log"), *rack.paths.switch("crs812").glob("*.ndjson")]:
        assert not path.exists() or password not in path.read_text()
    data = rack.inside("pyinfra", "inventory.py", "debug-inventory")
    assert password not in data.stdout + data.stderr


def test_the_lab_is_out_of_the_machines_own_network(rack: VirtualRack) -> None:
    links = json.loads(rack.run("ip", "-j", "address").stdout)
    names = {link["ifname"] for link in links}
    addresses = {entry["local"] for link in links for entry in link["addr_info"]}
    assert not names & {"br-mgmt", "br-fabric", "n1-m", "n1-p1h0"}
    assert not [address for address in addresses if address.startswith("10.77.0.")]
