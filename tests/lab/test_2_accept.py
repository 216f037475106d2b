"""`sparkrack accept` with both levels, killed and started again, and a bundle: the virtual rack stays as it was."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkrack.accept.model import AcceptReport
from tests.lab.virtual import VirtualRack

SPARE = "crs812/qsfp56-1"
pytestmark = pytest.mark.soak
"""They need a rack for a minute, and what they call is tested against the emulator in `make test`."""
SETTINGS = ("name", "default-name", "disabled", "auto-negotiation", "speed", "fec-mode", "l2mtu", "mtu", "bridge", "hw")


EXPORT = """\
import sys
from pathlib import Path
from core.model import load
from core.routeros.session import open_connection
from switch.backup import fetch_export
with open_connection(load(Path(sys.argv[1])).switches["crs812"], lambda _: None) as line:
    sys.stdout.write(fetch_export(line, "accept-test").decode())
"""


def switch(rack: VirtualRack) -> dict[str, Any]:
    """What is set on the switch: its export, and settings of its tables."""
    export = rack.inside(sys.executable, "-c", EXPORT, str(rack.paths.rack)).stdout.splitlines()
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    return {"export": [line for line in export if not line.startswith("#")]} | {
        path: [{name: row[name] for name in SETTINGS if name in row} for row in rows]
        for path, rows in tables.items()
        if path.startswith(("/interface", "/system/script", "/system/scheduler", "/user", "/ip/service"))
    }


@pytest.mark.parametrize("kills", [1, 10])
def test_a_run_with_all_its_levels_leaves_the_rack_as_it_was(rack: VirtualRack, kills: int, tmp_path: Path) -> None:
    before = rack.etc(), switch(rack)
    output, moment = tmp_path / "out", random.Random(kills)  # noqa: S311 - moments, no secrets
    words = ["accept", "--level", "change", "--spare", SPARE, "-y", "--output", str(output)]
    for _ in range(kills):
        # A killed run leaves its lock, which expires after two minutes.
        rack.ssh("spark1", "rm -f /run/sparkrack/run.lock")
        seconds = f"{moment.uniform(2, 12):.1f}"
        rack.inside("timeout", "-s", "KILL", seconds, "sparkrack", *words, check=False)
    rack.ssh("spark1", "rm -f /run/sparkrack/run.lock")
    done = rack.command(*words)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    print(done.stdout)
    assert (rack.etc(), switch(rack)) == before
    found = AcceptReport.model_validate_json((output / "accept.json").read_text())
    # A virtual node lacks the devices that some claims are about, and a claim that cannot be read stays unknown.
    results = Counter((claim.level, claim.result) for claim in found.claims)
    assert results["look", "observed"] >= 5 <= results["change", "observed"]
    assert not results["change", "refuted"]
    print(results)


def test_a_port_without_a_cable_refutes_no_name(rack: VirtualRack) -> None:
    """A virtual node has only the functions of its cabled ports."""
    done = rack.command("accept", "--claim", "fabric.interface-names", "--json")
    (found,) = AcceptReport.model_validate_json(done.stdout).claims
    assert (found.result, found.unknown) == ("not observed", False)
    assert "spark1, spark2, spark3: the node has no function 0000:01:00.0, 0002:01:00.0; the rest holds" in found.reason


@pytest.fixture(scope="module")
def whole(rack: VirtualRack) -> Iterator[VirtualRack]:
    """The rack, whose nodes have the interfaces of both ports: a virtual node has only those with a cable."""
    for node in rack.nodes:
        rack.ssh(node, "ip link add enp1s0f0np0 type veth peer name enP2p1s0f0np0")
    try:
        yield rack
    finally:
        for node in rack.nodes:
            rack.ssh(node, "ip link del enP2p1s0f0np0", check=False)


def test_the_lab_makes_a_bundle_under_its_own_name(whole: VirtualRack, tmp_path: Path) -> None:
    """Which is a word of its modules' vendor."""
    assert "rack: lab\n" in whole.paths.rack.read_text()
    path = tmp_path / "rack.tar.gz"
    done = whole.command("accept", "--bundle", str(path), "--json")
    assert done.stdout, done.stderr
    assert path.exists(), done.stderr
    found = AcceptReport.model_validate_json(done.stdout)
    observed = {one.id for one in found.claims if one.result == "observed"}
    assert observed >= {"switch.monitor.fields", "fabric.ethtool-speed", "fabric.interface-names", "switch.qos.menus"}
    assert [one.id for one in found.claims if one.result == "refuted"] == []


@contextmanager
def another_speed_word(rack: VirtualRack) -> Iterator[None]:
    """The node's ethtool prints another unit."""
    rack.ssh("spark1", "sed -i 's|Mb/s|Mbit/s|' /usr/lib/sparkrack-lab/ethtool")
    try:
        yield
    finally:
        rack.ssh("spark1", "sed -i 's|Mbit/s|Mb/s|' /usr/lib/sparkrack-lab/ethtool")


@contextmanager
def another_interface_name(rack: VirtualRack) -> Iterator[None]:
    """The node has the function of this interface, as a node with both ports has."""
    rename = "ip link set {0} down; ip link set {0} name {1}"
    file = rack.paths.node("spark2") / "shared/hardware.json"
    before = file.read_text()
    document = json.loads(before)
    document["pci"]["0000:01:00.0"] = document["pci"]["0000:01:00.1"]
    file.write_text(json.dumps(document))
    rack.ssh("spark2", rename.format("enp1s0f0np0", "enp1s0f0np9"))
    try:
        yield
    finally:
        rack.ssh("spark2", rename.format("enp1s0f0np9", "enp1s0f0np0"))
        file.write_text(before)


@contextmanager
def another_dmi_string(rack: VirtualRack) -> Iterator[None]:
    """The node that rack.yaml declares as one of Dell names another maker."""
    read = "cat /lab/hardware.json"
    before = rack.ssh("spark1", read)
    document = json.loads(before)
    document["dmi"] |= {"system-manufacturer": "D3LL Inc.", "baseboard-manufacturer": "D3LL Inc."}
    file = rack.paths.node("spark1") / "shared/hardware.json"
    file.write_text(json.dumps(document))
    try:
        assert "D3LL" in rack.ssh("spark1", read)
        yield
    finally:
        file.write_text(before)


PLANTED: Mapping[str, tuple[str, Callable[[VirtualRack], AbstractContextManager[None]], str]] = {
    "another speed word": ("fabric.ethtool-speed", another_speed_word, "100000Mbit/s"),
    "another interface name": ("fabric.interface-names", another_interface_name, "enp1s0f0np9"),
    "another DMI string": ("preflight.dmi", another_dmi_string, "D3LL"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_difference_refutes_its_claim(case: str, whole: VirtualRack) -> None:
    claim, difference, text = PLANTED[case]
    file = whole.folder / "declared.yaml"
    rack = whole.paths.rack.read_text()
    file.write_text(re.sub(r"vendor: \w+", "vendor: dell", rack, count=1) if claim == "preflight.dmi" else rack)
    try:
        with difference(whole):
            done = whole.command("accept", "--json", rack=file)
    finally:
        file.unlink()
    assert done.returncode == 2, done.stderr
    (refuted,) = (one for one in AcceptReport.model_validate_json(done.stdout).claims if one.result == "refuted")
    assert refuted.id == claim
    assert any(text in host.evidence for host in refuted.hosts)
