"""`sparkrack accept` with its levels, killed and started again, and a bundle: the virtual rack stays as it was."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
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
from tests.unit.accept.driver_standin import make_driver

SPARE = "crs812/qsfp56-1"
LEG = {"cage": "qsfp56-dd-1", "lane": 5}
"""That of spark3, port 1."""
pytestmark = pytest.mark.soak(sampled=False)
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
    assert not (output / FILE).exists()
    found = AcceptReport.model_validate_json((output / "accept.json").read_text())
    # A virtual node lacks the devices that some claims are about, and a claim that cannot be read stays unknown.
    results = Counter((claim.level, claim.result) for claim in found.claims)
    assert results["look", "observed"] >= 5 <= results["change", "observed"]
    assert not results["change", "refuted"]
    print(results)


def at_the_rack(rack: VirtualRack, words: list[str], last: str = "", seconds: float = 900) -> tuple[int, str]:
    """Run accept on a terminal, whose operator pulls and plugs in as it asks, and kill it once the terminal shows
    `last`, or after these seconds; the exit code, and what the terminal showed.
    """
    screen, its = pty.openpty()
    command = ["sparkrack", "lab", "run", "--", "sparkrack", *words]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=rack.environment, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    shown, asked, until = "", 0, time.monotonic() + seconds
    try:
        while True:
            if not select.select([screen], [], [], max(0, until - time.monotonic()))[0]:
                os.killpg(process.pid, signal.SIGKILL)
                break
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


def test_all_levels_killed_at_ten_random_moments(rack: VirtualRack, tmp_path: Path) -> None:
    """A full run: each of ten is killed at a random moment, wherever it is then, and the last one ends."""
    before = rack.etc(), switch(rack)
    output, moment = tmp_path / "out", random.Random(11)  # noqa: S311 - moments, no secrets
    words = ["accept", "--level", "load", "--spare", SPARE, "--reboot", "spark2", "--pull", "spark3/1", "--burn", "5"]
    words += ["-y", "--output", str(output)]
    places, began = list[str](), time.monotonic()
    while len(places) < 10:
        code, shown = at_the_rack(rack, words, seconds=moment.uniform(1, 30))
        if code in (0, 2):
            # It came to its end: the next one begins again.
            (output / "accept.json").unlink()
            continue
        assert code < 0, shown
        places.append((re.findall(r"\x1b\[1m([a-z].*), \d+ s", shown) or ["load the program"])[-1])
        # A killed run leaves its lock, which expires after two minutes.
        rack.ssh("spark1", "rm -f /run/sparkrack/run.lock")
    code, shown = at_the_rack(rack, words)
    print(f"{time.monotonic() - began:.0f} s; killed in:", *places, shown[-1500:], sep="\n")
    assert code in (0, 2), shown
    assert (rack.etc(), switch(rack)) == before
    assert not (output / FILE).exists()
    found = AcceptReport.model_validate_json((output / "accept.json").read_text())
    for one in found.claims:
        print(one.level, one.result, one.id, one.reason, sep="\t")
    assert [one.id for one in found.claims if one.result == "refuted"] == []
    observed = {one.id for one in found.claims if one.result == "observed"}
    assert observed >= {"rdma.bandwidth-borders", "fabric.pulled-cable", "fabric.reboot", "switch.safe-mode.api"}
    burn = next(one for one in found.claims if one.id == "accept.burn")
    assert [(host.unknown, "libcuda.so.1" in host.evidence) for host in burn.hosts] == [(False, True)] * 3


GPU = {"clocks.sm": "2190 MHz", "power.draw": "61.20 W", "temperature.gpu": "55", "temperature.gpu.tlimit": "30"}
GPU |= {"utilization.gpu": "96 %", "clocks_event_reasons.active": "0x0000000000000004"}
LIBRARY = "/usr/lib/libcuda.so.1"
BURN = ("accept", "--level", "load", "--claim", "accept.burn", "--claim", "blackbox.recorder-gpu", "-y")


@pytest.fixture
def driver(rack: VirtualRack, tmp_path: Path) -> Iterator[None]:
    """Each node has a stand-in of a driver, and an nvidia-smi with every value."""
    made = make_driver(tmp_path / "driver") / "libcuda.so.1"
    hardware = {node: rack.paths.node(node) / "shared/hardware.json" for node in rack.nodes}
    before = {node: file.read_text() for node, file in hardware.items()}
    for node, file in hardware.items():
        document = json.loads(before[node])
        document["gpu"] |= GPU
        file.write_text(json.dumps(document))
        shutil.copy(made, file.with_name("libcuda.so.1"))
        rack.ssh(node, f"cp /lab/libcuda.so.1 {LIBRARY}")
    try:
        yield
    finally:
        for node, file in hardware.items():
            rack.ssh(node, f"rm -f {LIBRARY}")
            file.with_name("libcuda.so.1").unlink()
            file.write_text(before[node])


def burns(rack: VirtualRack) -> dict[str, str]:
    """What of a burn runs on each node, and what is in the folders in which it could leave something."""
    ask = "pgrep -af '^(timeout|python3 -I|(/bin/sh )?(/usr/bin/)?nvidia-smi)'; ls -A /tmp /root"
    return {node: rack.ssh(node, ask) for node in rack.nodes}


@pytest.mark.usefixtures("driver")
def test_a_burn_that_is_killed_leaves_nothing_and_is_begun_again(rack: VirtualRack, tmp_path: Path) -> None:
    before = rack.etc(), burns(rack)
    words = [*BURN, "--output", str(tmp_path / "out"), "--burn"]
    # It alone is killed: its ssh finds the end of what it reads and writes.
    killed = rack.inside("timeout", "-s", "KILL", "25", "sparkrack", *words, "3600", check=False)
    assert "load its GPU for 3600 s" in killed.stderr, killed.stderr
    rack.ssh("spark1", "rm -f /run/sparkrack/run.lock")
    until = time.monotonic() + 60
    while burns(rack) != before[1] and time.monotonic() < until:
        time.sleep(0.5)
    assert (rack.etc(), burns(rack)) == before
    done = rack.command(*words, "3")
    assert done.returncode == 0, done.stdout + done.stderr
    found = AcceptReport.model_validate_json((tmp_path / "out/accept.json").read_text())
    results = {one.id: [(host.result, host.evidence) for host in one.hosts] for one in found.claims}
    print(results)
    assert [result for result, _ in results["accept.burn"]] == ["observed"] * 3, results
    assert all("each with all values" in text for _, text in results["blackbox.recorder-gpu"]), results
    assert (rack.etc(), burns(rack)) == before


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
