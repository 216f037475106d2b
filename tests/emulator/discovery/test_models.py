"""`sparkrack adopt` and `sparkrack init` of a CRS804: its model is what the switch reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from core.hardware.crs804 import CRS804
from core.hardware.crs812 import CRS812
from core.routeros.api import ApiSession
from sparkrack.cli.main import sparkrack
from tests.emulator.conftest import MakeSwitch
from tests.emulator.discovery.conftest import two_nodes
from tests.emulator.discovery.discovery_fixtures import Site, by_hand, settled
from tests.emulator.emulator_process import USER, Crs812Process


@pytest.fixture
def four(tmp_path: Path, make_switch: MakeSwitch) -> Iterator[Site]:
    yield from two_nodes(tmp_path, make_switch, model="CRS804-4DDQ")


def split_the_fourth_cage(switch: Crs812Process) -> None:
    """The commands that a person gives for a cage of two legs at 200G."""
    secret = SecretStr(switch.password)
    with ApiSession("127.0.0.1", switch.plain_port, tls=None, user=USER, password=secret) as session:
        for lane in (1, 5):
            row = session.talk("/interface/ethernet/print", "=.proplist=.id", f"?default-name=qsfp56-dd-4-{lane}")[0]
            forced = ("=auto-negotiation=no", "=speed=200G-baseCR4", "=fec-mode=fec91", "=l2mtu=9500", "=mtu=9000")
            session.talk("/interface/ethernet/set", f"=.id={row['.id']}", *forced)


def test_adopt_writes_the_model_and_its_cages(four: Site) -> None:
    by_hand(four.switch, companions=True)
    split_the_fourth_cage(four.switch)
    settled(four)
    code, reported = four.run("adopt", "--cage", "qsfp56-dd-3=2x200G")
    assert code in (0, 2), reported
    assert CliRunner().invoke(sparkrack, ["check", "--rack", str(four.out)]).exit_code == 0
    (switch,) = four.rack.switches.values()
    assert (switch.model, switch.hardware) == ("CRS804-4DDQ", CRS804)
    assert {name: cage.split for name, cage in switch.cages.items()} == {
        "qsfp56-dd-1": "4x100G",
        "qsfp56-dd-3": "2x200G",
        "qsfp56-dd-4": "2x200G",
    }


def test_a_switch_that_is_not_read_has_the_model_that_is_given(four: Site) -> None:
    code, reported = four.run(
        "init", "--switch-model", "crs804", "--cage", "qsfp56-dd-4=4x100G", "--yes", password="not this one"
    )
    assert code in (0, 2), reported
    assert "model: CRS804-4DDQ\n" in four.out.read_text()
    assert "crs804: not read: " in reported
    assert "\n  crs804:\n" in four.out.read_text()


def test_without_a_model_that_is_given_it_is_a_crs812(four: Site) -> None:
    code, reported = four.run("init", "--cage", "qsfp56-dd-1=4x100G", "--yes", password="not this one")
    assert code in (0, 2), reported
    assert f"model: {CRS812.board}\n" in four.out.read_text()
    assert f"crs812: model {CRS812.board} is written, since it was not read" in reported
    assert "\n  crs812:\n" in four.out.read_text()
