"""First contact: the right address comes before the old one goes."""

from __future__ import annotations

import pytest

from tests.emulator.bootstrap_runs import HERE, THERE, MakeBox, Way, Workdir
from tests.emulator.conftest import MakeSwitch


@pytest.mark.usefixtures("way")
def test_the_right_address_is_proven_before_the_old_one_goes(moving: Workdir) -> None:
    code, text = moving.run()
    assert code == 0, text
    moving.is_ready()
    (row,) = moving.table("/ip/address")
    assert (row["address"], row["interface"]) == (f"{THERE}/24", "bridge")
    assert moving.run()[0] == 0  # same words: it is found where it went
    moving.is_ready()


def test_the_prefix_is_managements_or_as_reported(moving: Workdir) -> None:
    text = moving.before.replace("    # management: [10.77.0.0/24] ", "    management: [127.0.0.0/16] ")
    assert text != moving.before
    moving.rack.write_text(text)
    assert f"+ /ip/address {THERE}/16: interface bridge" in moving.run("--dry")[1]
    assert f"+ /ip/address {THERE}/20: interface bridge" in moving.run("--dry", "--prefix", "20")[1]


def test_an_address_that_does_not_answer_leaves_the_old_one(moving: Workdir) -> None:
    code, text = moving.run("--timeout", "0.2")
    assert code == 1
    assert f"{THERE} is set and does not answer from here; {HERE} stays. Run again" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]
    assert next(row for row in moving.table("/user") if row["name"] == "admin")["disabled"] == "false"
    way = Way(moving.emulator)
    code, text = moving.run("--address", THERE, password=False)
    way.close()
    assert code == 0, text
    # The one it was met at is not known any more, and matters only if it is the factory's.
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]


def test_the_factory_address_goes_in_a_later_run(make_box: MakeBox) -> None:
    moving = make_box(THERE, management="192.168.88.1/24")
    assert moving.run("--timeout", "0.2")[0] == 1
    way = Way(moving.emulator)
    code, text = moving.run("--address", THERE, password=False)
    way.close()
    assert code == 0, text
    moving.is_ready()


def test_reported_to_keep_the_old_address(moving: Workdir) -> None:
    code, text = moving.run("--keep-address", "--timeout", "0.2")
    assert code == 0, text
    assert f"{THERE} does not answer from here; {HERE} stays" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]
    assert next(row for row in moving.table("/user") if row["name"] == "admin")["disabled"] == "true"


def test_another_user_has_the_right_address(moving: Workdir, make_switch: MakeSwitch) -> None:
    other = make_switch()  # with a certificate of its own
    way = Way(moving.emulator, other.tls_port)
    code, text = moving.run()
    way.close()
    assert code == 1
    assert f"{THERE} belongs to something else: the switch shows certificate {other.fingerprint}" in text
    assert "all changes since safe mode was taken are reverted" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24"]
