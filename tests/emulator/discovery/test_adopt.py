"""`sparkrack adopt`: a rack that was set up by hand, read and described."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from core.model.defaults import folder_name
from sparkrack.cli.main import sparkrack
from sparkrack.engine.subcommands import CALL
from tests.emulator.discovery.discovery_fixtures import HAND, Site, by_hand, settled


def test_a_rack_set_up_by_hand_is_described_and_a_run_would_change_no_value(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    before = site.switch.writes()
    code, reported = site.run("adopt")
    assert site.switch.writes() == before
    assert CliRunner().invoke(sparkrack, ["check", "--rack", str(site.out)]).exit_code == 0
    rack = site.rack
    assert rack.cabling == HAND.cabling
    assert [str(one.interface) for one in rack.addresses] == [str(one.interface) for one in HAND.addresses]
    assert {name: node.host for name, node in rack.nodes.items()} == {"spark1": 10, "spark2": 11}
    switch = rack.switches["crs812"]
    assert (switch.identity, switch.mtu, switch.l2mtu, switch.lossless) == ("rack-switch", 9000, 9500, "none")
    assert {name: cage.split for name, cage in switch.cages.items()} == {"qsfp56-dd-1": "4x100G"}
    assert switch.tls
    assert switch.tls.sha256 == site.switch.fingerprint
    assert "a run would change" not in reported, reported
    # This machine, whose shell answers for the nodes, has no docker.
    assert "nodes.spark1: images: unknown: docker does not run" in reported
    assert code == 2
    port = next(iter(site.nodes.values())).port
    assert (site.folder / "known_hosts").read_text().count(f"]:{port} ecdsa") == 2


def test_what_a_run_would_change_is_reported_row_by_row(site: Site) -> None:
    by_hand(site.switch, companions=False)
    settled(site)
    code, reported = site.run("adopt")
    assert code == 2, reported
    assert "crs812: l2mtu of 4 lanes (bounces all 34 ports): qsfp56-dd-1-2" in reported
    half = HAND.addresses[0].half
    site.world.keep(half, {**site.world.device(half), "mtu": 1500})
    site.nodes["spark1"].answers(site.world.nodes["spark1"])
    code, reported = site.run("adopt", "--yes")
    assert code == 2
    assert "spark1: enp1s0f1np1: mtu 1500 -> 9000" in reported
    assert "fabric.mtu: spark1/enp1s0f1np1 has 1500, most have 9000" in reported


def test_every_node_speaks_before_the_switch_is_read(site: Site) -> None:
    by_hand(site.switch, companions=True)
    site.run("adopt")
    for node in site.nodes.values():
        assert "ping -q -n -c 2 -i 0.2 -W 1 -6 -I enp1s0f1np1 ff02::1" in node.asked
        assert node.commands == ["sudo -n sh"]


def test_a_file_that_is_there_is_shown_and_stays_without_a_yes(site: Site) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    site.out.write_text("rack: mine\n")
    site.out.chmod(0o600)
    code, reported = site.run("adopt")
    assert code == 1
    assert "-rack: mine" in reported
    assert f"+rack: {folder_name(site.folder)}" in reported
    assert "pass --yes" in reported
    assert site.out.read_text() == "rack: mine\n"
    assert not (site.folder / "known_hosts").exists()
    code, reported = site.run("adopt", "--yes")
    assert "-rack: mine" in reported
    assert site.rack.nodes.keys() == {"spark1", "spark2"}
    assert site.out.stat().st_mode & 0o777 == 0o600


def test_a_switch_that_no_one_configured_gives_no_cage_and_no_cable(site: Site) -> None:
    code, reported = site.run("adopt")
    assert code == 2
    assert "switches.crs812.cages: no cage is split" in reported
    assert "nodes.spark1.ports: no machine reports where its cable ends" in reported
    assert "not ready:" in reported
    assert "NOT FOUND" in site.out.read_text()
    assert site.switch.writes() == 0


def test_drift_is_run_with_the_written_file_and_its_end_counts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(site.switch, companions=True)
    settled(site)
    called = site.folder / "called"
    python = site.folder / "python"
    python.write_text(f'#!/bin/sh\necho "$*" > {called}\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr("sparkrack.cli.adopt.CALL", (str(python), *CALL[1:]))
    code, _ = site.run("adopt", "--drift")
    assert code == 1
    assert called.read_text() == f"-P -m sparkrack_start drift --rack {site.out}\n"
