"""`sparkrack accept --level change`: what a spare cage shows, that the switch is as before, and a run that was ended."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.claims.claims import known_claims
from core.routeros.session import SessionConnection
from core.ssh import node_shells
from lab.routeros_emulator.config import CableTail, EmulatedCable
from sparkrack.accept import trials
from sparkrack.accept.model import AcceptReport, ClaimResult
from sparkrack.accept.state import FILE
from sparkrack.accept.trials import TRIED
from sparkrack.cli.main import sparkrack
from tests.emulator import verify_fixtures
from tests.emulator.switch_runs import waits_for
from tests.emulator.verify_fixtures import Kept, declared
from tests.unit.cli.accept_nodes import Nodes
from tests.unit.cli.runs import command

SPARE = "crs812/qsfp56-1"
CABLE = EmulatedCable(
    cage="qsfp56-1",
    tails=(
        CableTail(lane=1, lanes=2, gbps=100, node="x", port=0),
        CableTail(lane=3, lanes=2, gbps=100, node="x", port=1),
    ),
)
TABLES = (
    *("/interface/ethernet", "/interface/bridge", "/interface/bridge/port", "/interface/ethernet/switch/qos/port"),
    *("/system/script", "/system/scheduler", "/user", "/ip/service", "/system/identity"),
)
SETTINGS = frozenset(
    (
        *("name", "default-name", "disabled", "auto-negotiation", "speed", "fec-mode", "l2mtu", "mtu", "comment"),
        *("bridge", "interface", "hw", "pvid", "trust-l3", "pfc", "egress-rate-queue3", "source", "on-event"),
        *("group", "address", "rx-flow-control", "tx-flow-control", "vlan-filtering"),
    )
)
"""Fields that a user sets, among others that count and change."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A declared switch with a cable in a cage that is not declared."""
    cables = verify_fixtures.reference_cables
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_fixtures, "_cables", lambda folder: (*cables(folder), CABLE))
        with declared(tmp_path_factory.mktemp("change")) as made:
            made.rack()
            waits_for(lambda: "initializing" not in made.emulator.links().values())
            yield made


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Nodes()
    made.silent = {"spark1": "no route to host"}  # the node with the lock
    monkeypatch.setattr(node_shells, "RootShell", made.shell)
    return made


@pytest.fixture(autouse=True)
def _as_before(kept: Kept) -> Iterator[None]:
    """No test leaves anything on the switch."""
    before = tables(kept)
    yield
    kept.emulator.control({"op": "heal"})
    waits_for(lambda: tables(kept) == before)
    assert tables(kept) == before


def tables(kept: Kept) -> Mapping[str, Any]:
    found = kept.emulator.state()["tables"]
    rows = {path: found[path] for path in TABLES if path in found}
    return {path: [{k: v for k, v in row.items() if k in SETTINGS} for row in table] for path, table in rows.items()}


def accept(kept: Kept, *words: str | Path) -> Result:
    arguments = ["accept", "--rack", kept.folder / "rack.yaml", *words]
    return CliRunner().invoke(sparkrack, list(map(str, arguments)), catch_exceptions=False)


def change(kept: Kept, *claims: str, spare: str = SPARE) -> dict[str, ClaimResult]:
    words = [word for claim in claims for word in ("--claim", claim)]
    ended = accept(kept, "--level", "change", "--spare", spare, "-y", "--json", "--limit", "switches", *words)
    found = AcceptReport.model_validate_json(ended.stdout)
    return {one.id: one for one in found.claims}


def test_each_trial_belongs_to_a_claim_of_its_level() -> None:
    levels = {claim.id: claim.level for claim in known_claims()}
    assert {levels[name] for name in TRIED} == {"change"}


def test_a_spare_cage_shows_its_claims(kept: Kept, nodes: Nodes) -> None:
    found = change(kept, *TRIED)
    results = {name: (one.result, one.hosts[0].evidence) for name, one in found.items()}
    observed = {name for name, (result, _) in results.items() if result == "observed"}
    assert observed >= {
        *("switch.lanes.illegal-pair", "switch.lanes.unset-speed", "switch.fec.auto", "switch.scheduler.start-date"),
        *("switch.rollback.script-size", "switch.qos.egress-rate", "switch.breakout.linked", "switch.safe-mode.api"),
    }, results
    assert {result for result, _ in results.values()} == {"observed", "not observed"}, results
    assert not any(one.unknown for one in found.values()), results
