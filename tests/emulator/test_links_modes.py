"""Every speed as a client sees it: one switch with a cable for each mode, configured over the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.routeros_emulator.config import CableTail, EmulatedCable
from tests.emulator.emulator_process import USER, Crs812Process, stop_all
from tests.emulator.raw_client import RawClient
from tests.emulator.test_links import ETHERNET, monitor, node
from tests.emulator.wait import until

# cage, lane, lanes of the tail, Gb/s, medium, speed, fec-mode, interface, rate, fec that monitor shows
LEGS = [
    ("qsfp56-dd-1", 1, 4, 200, "copper", "200G-baseCR4", "fec91", "qsfp56-dd-1-1", "200Gbps", "fec91"),
    ("qsfp56-dd-1", 5, 4, 40, "copper", "40G-baseCR4", "fec74", "qsfp56-dd-1-5", "40Gbps", "fec74"),
    ("qsfp56-dd-2", 1, 8, 400, "optic", "400G-baseSR8-LR8", "auto", "qsfp56-dd-2-1", "400Gbps", "fec91"),
    ("qsfp56-1", 1, 4, 100, "copper", "100G-baseCR4", "fec91", "qsfp56-1-1", "100Gbps", "fec91"),
    ("qsfp56-2", 1, 2, 50, "optic", "50G-baseSR2-LR2", "fec74", "qsfp56-2-1", "50Gbps", "fec74"),
    ("qsfp56-2", 3, 2, 100, "optic", "100G-baseSR2-LR2", "fec91", "qsfp56-2-3", "100Gbps", "fec91"),
    ("sfp56-1", 1, 1, 50, "copper", "50G-baseCR", "fec91", "sfp56-1", "50Gbps", "fec91"),
    ("sfp56-2", 1, 1, 25, "copper", "25G-baseCR", "fec74", "sfp56-2", "25Gbps", "fec74"),
    ("sfp56-3", 1, 1, 25, "optic", "25G-baseSR-LR", "fec91", "sfp56-3", "25Gbps", "fec91"),
    ("sfp56-4", 1, 1, 10, "copper", "10G-baseCR", "off", "sfp56-4", "10Gbps", "off"),
    ("sfp56-5", 1, 1, 1, "optic", "1G-baseX", "auto", "sfp56-5", "1Gbps", "off"),
]
_ETHTOOL = {"fec91": "RS", "fec74": "BaseR", "off": "Off"}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Crs812Process, RawClient]]:
    """A switch whose legs are all configured as LEGS says."""
    folder = tmp_path_factory.mktemp("modes")
    cables: dict[str, EmulatedCable] = {}
    for number, (cage, lane, lanes, gbps, medium, *_) in enumerate(LEGS):
        state = folder / f"spark{number}.json"
        tail = CableTail.model_validate(
            {"lane": lane, "lanes": lanes, "gbps": gbps, "node": f"spark{number}", "port": 0, "state_file": state}
        )
        before = cables[cage].tails if cage in cables else ()
        cables[cage] = EmulatedCable.model_validate({"cage": cage, "medium": medium, "tails": (*before, tail)})
    switch = Crs812Process(folder, cables=tuple(cables.values())).start()
    client = RawClient(switch.plain_port)
    client.login(USER, switch.password)
    for *_, speed, fec, interface, _rate, _shown in LEGS:
        words = ["=auto-negotiation=no", f"=speed={speed}", f"=fec-mode={fec}"]
        assert client.ask(f"{ETHERNET}/set", f"=numbers={interface}", *words) == [["!done"]]
    until(lambda: "initializing" not in switch.links().values())
    yield switch, client
    client.close()
    stop_all([switch])


@pytest.mark.parametrize("number", range(len(LEGS)))
def test_a_leg_of_that_mode_is_up_at_both_ends(wired: tuple[Crs812Process, RawClient], number: int) -> None:
    switch, client = wired
    *_, lanes, gbps, _medium, _speed, _fec, interface, rate, shown = LEGS[number]
    seen = monitor(client, interface)
    assert (seen["status"], seen.get("rate"), seen.get("fec")) == ("link-ok", rate, shown)
    link = node(switch, number)["links"]["0"]
    assert link == {
        "carrier": True,
        "speed": gbps * 1000,
        "lanes": lanes,
        "fec": _ETHTOOL[shown],
        "leg": interface,
        "vlans": None,
    }
