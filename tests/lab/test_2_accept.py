"""`sparkrack accept` with its levels, killed and started again, and a bundle: the virtual rack stays as it was."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkrack.accept.imported import ImportReport
from sparkrack.accept.model import AcceptReport
from sparkrack.accept.state import FILE
from tests.lab.virtual import REPOSITORY, VirtualRack

SPARE = "crs812/qsfp56-1"
LEG = {"cage": "qsfp56-dd-1", "lane": 5}
"""That of spark3, port 1."""
pytestmark = pytest.mark.soak(sampled=False)
"""They need a rack for a minute, and what they call is tested against the emulator in `make test`."""
SETTINGS = ("name", "default-name", "disabled", "auto-negotiation", "speed", "fec-mode", "l2mtu", "mtu", "bridge", "hw")


def switch(rack: VirtualRack) -> dict[str, Any]:
    """What is set on the switch."""
    tables = rack.control({"op": "state"})["tables"]
    assert isinstance(tables, dict)
    return {
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
    assert not (output / FILE).exists()
    found = AcceptReport.model_validate_json((output / "accept.json").read_text())
    # A virtual node lacks the devices that some claims are about, and a claim that cannot be read stays unknown.
    results = Counter((claim.level, claim.result) for claim in found.claims)
    assert results["look", "observed"] >= 5 <= results["change", "observed"]
    assert not results["change", "refuted"]
    print(results)


def at_the_rack(rack: VirtualRack, words: list[str], last: str = "") -> tuple[int, str]:
    """Run accept on a terminal, whose operator pulls and plugs in as it asks, and kill it once the terminal shows
    `last`; the exit code, and what the terminal showed.
    """
    screen, its = pty.openpty()
    command = ["sparkrack", "lab", "run", "--", "sparkrack", *words]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=rack.environment, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    shown, asked, until = "", 0, time.monotonic() + 900
    try:
        while time.monotonic() < until:
            if not select.select([screen], [], [], 60)[0]:
                continue
            try:
                part = os.read(screen, 4096)
            except OSError:  # the last process has closed it
                break
            shown += part.decode(errors="replace")
            if last and last in shown:
                os.killpg(process.pid, signal.SIGKILL)
                break
            hands = re.findall(r"(pull|plug) the cable of [^;]*; ENTER when done", shown)
            for hand in hands[asked:]:
                assert rack.control({"op": "cable", "do": hand, **LEG})["ok"]
                os.write(screen, b"\n")
            asked = len(hands)
        return process.wait(60), shown
    finally:
        process.kill()
        os.close(screen)


@pytest.mark.parametrize("killed", [(), ("measure the bandwidth", "plug the cable of", "spark2: restarts")])
def test_load_leaves_the_rack_as_it_was(rack: VirtualRack, killed: tuple[str, ...], tmp_path: Path) -> None:
    """All levels, with a restart and a pulled cable, also after runs that were killed in the middle of a part."""
    before = rack.etc(), switch(rack)
    output = tmp_path / "out"
    words = ["accept", "--level", "load", "--spare", SPARE, "--reboot", "spark2", "--pull", "spark3/1", "-y"]
    words += ["--output", str(output)]
    for last in killed:
        _, shown = at_the_rack(rack, words, last)
        assert last in shown, shown
        rack.ssh("spark1", "rm -f /run/sparkrack/run.lock")
    began = time.monotonic()
    code, shown = at_the_rack(rack, words)
    print(f"{time.monotonic() - began:.0f} s", shown)
    assert code in (0, 2), shown
    assert (rack.etc(), switch(rack)) == before
    found = AcceptReport.model_validate_json((output / "accept.json").read_text())
    for one in found.claims:
        if one.level == "load":
            print(one.id, one.result, one.reason, [host.evidence for host in one.hosts])
    assert not [one.id for one in found.claims if (one.level, one.result) == ("load", "refuted")]
    observed = {one.id for one in found.claims if one.result == "observed"}
    assert observed >= {"rdma.bandwidth-borders", "rdma.bandwidth-neighbours", "fabric.pulled-cable", "fabric.reboot"}


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


def bundle(rack: VirtualRack, path: Path, file: Path) -> tuple[AcceptReport, ImportReport]:
    """What a rack shows, and the tests of the bundle that was made of it."""
    done = rack.command("accept", "--bundle", str(path), "--json", rack=file)
    assert done.stdout, done.stderr
    assert path.exists(), done.stderr
    imported = rack.command("accept", "--import", str(path), "--json", rack=file)
    assert imported.stdout, imported.stderr
    found = ImportReport.model_validate_json(imported.stdout)
    assert found.exit == imported.returncode
    return AcceptReport.model_validate_json(done.stdout), found


def failed(report: ImportReport) -> set[str]:
    return {test.claim for test in report.tests if test.outcome == "failed"}


def test_a_bundle_without_a_difference_has_no_failing_test(whole: VirtualRack, tmp_path: Path) -> None:
    """Under the lab's own name, which is a word of its modules' vendor."""
    assert "rack: lab\n" in whole.paths.rack.read_text()
    report, found = bundle(whole, tmp_path / "rack.tar.gz", whole.paths.rack)
    print([(one.id, one.hosts[0].evidence) for one in report.claims if one.result == "refuted"])
    assert [test for test in found.tests if test.outcome == "failed"] == []
    passed = {test.claim for test in found.tests if test.outcome == "passed"}
    assert passed >= {"switch.monitor.fields", "fabric.ethtool-speed", "fabric.interface-names", "switch.qos.menus"}


@contextmanager
def another_speed_word(rack: VirtualRack) -> Iterator[None]:
    """The node's ethtool prints another unit."""
    rack.ssh("spark1", "sed -i 's|Mb/s|Mbit/s|' /usr/lib/sparkrack-lab/ethtool")
    try:
        yield
    finally:
        rack.ssh("spark1", "sed -i 's|Mbit/s|Mb/s|' /usr/lib/sparkrack-lab/ethtool")


@contextmanager
def a_monitor_without_fec(rack: VirtualRack) -> Iterator[None]:
    rack.control({"op": "monitor", "field": "fec", "value": None})
    try:
        yield
    finally:
        rack.control({"op": "heal"})


@contextmanager
def another_interface_name(rack: VirtualRack) -> Iterator[None]:
    rename = "ip link set {0} down; ip link set {0} name {1}"
    rack.ssh("spark2", rename.format("enp1s0f0np0", "enp1s0f0np9"))
    try:
        yield
    finally:
        rack.ssh("spark2", rename.format("enp1s0f0np9", "enp1s0f0np0"))


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
    "a monitor without fec": ("switch.monitor.fields", a_monitor_without_fec, "fec is absent"),
    "another interface name": ("fabric.interface-names", another_interface_name, "enp1s0f0np9"),
    "another DMI string": ("preflight.dmi", another_dmi_string, "D3LL"),
}


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_difference_is_a_failing_test(case: str, whole: VirtualRack, tmp_path: Path) -> None:
    claim, difference, text = PLANTED[case]
    file = whole.folder / "declared.yaml"
    rack = whole.paths.rack.read_text()
    file.write_text(re.sub(r"vendor: \w+", "vendor: dell", rack, count=1) if claim == "preflight.dmi" else rack)
    try:
        with difference(whole):
            report, found = bundle(whole, tmp_path / "rack.tar.gz", file)
    finally:
        file.unlink()
    assert claim in {one.id for one in report.claims if one.result == "refuted"}
    assert failed(found) == {claim}
    assert any(text in test.text for test in found.tests if test.claim == claim and test.outcome == "failed")
