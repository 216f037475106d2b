"""`sparkrack accept` with its levels, killed and started again, and a bundle: the virtual rack stays as it was."""

from __future__ import annotations

import os
import pty
import random
import re
import select
import signal
import subprocess
import time
from collections import Counter
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


def test_a_bundle_of_the_rack_answers_as_the_rack(rack: VirtualRack, tmp_path: Path) -> None:
    bundle, file = tmp_path / "rack.tar.gz", rack.folder / "named.yaml"
    # The modules of the lab have the vendor SPARKRACK LAB, so that a rack of this name could not leave it out.
    file.write_text(rack.paths.rack.read_text().replace("rack: lab\n", "rack: quiet-desk\n"))
    try:
        done = rack.command("accept", "--bundle", str(bundle), "--json", rack=file)
        assert done.stdout, done.stderr
        found = AcceptReport.model_validate_json(done.stdout)
        imported = rack.command("accept", "--import", str(bundle), "--json", rack=file)
    finally:
        file.unlink()
    assert imported.stdout, imported.stderr
    tests = ImportReport.model_validate_json(imported.stdout).tests
    refuted = {claim.id for claim in found.claims if claim.result == "refuted"}
    assert {test.claim for test in tests if test.outcome == "failed"} <= refuted
    assert not [test for test in tests if test.test == "the replica shows what the rack showed"]
