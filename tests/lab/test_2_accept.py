"""`sparkrack accept` with its levels, killed and started again, and a bundle: the virtual rack stays as it was."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkrack.accept.imported import ImportReport
from sparkrack.accept.model import AcceptReport
from sparkrack.accept.state import FILE
from tests.lab.virtual import VirtualRack

SPARE = "crs812/qsfp56-1"
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
