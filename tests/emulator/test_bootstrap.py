"""`sparkrack bootstrap switch`: from the box into the rack, and again."""

from __future__ import annotations

import pytest

from switch.bootstrap.menus import OWNER_POLICY
from tests.emulator.bootstrap_runs import HERE, NO_PIN, MakeBox, Workdir, admin


def test_from_the_box_into_the_rack_and_again(box: Workdir) -> None:
    code, text = box.run()
    assert code == 0, text
    box.is_ready()
    assert "crs812: ready\n" in text
    (group,) = [row for row in box.table("/user/group") if row["name"] == "sparkrack"]
    granted = [word for word in group["policy"].split(",") if not word.startswith("!")]
    assert sorted(granted) == sorted(OWNER_POLICY.split(","))
    before = box.writes()
    code, text = box.run(password=False)  # no prompt: our own user is accepted
    assert (code, box.writes()) == (0, before), text
    box.is_ready()
    assert box.failed_logins() == 0


def test_a_release_that_attackers_use_is_named_and_ends_with_a_warning(make_box: MakeBox) -> None:
    box = make_box(version="7.23.3 (long-term)")
    code, text = box.run()
    assert code == 2, text
    box.is_ready()
    assert "crs812: fault: RouterOS 7.23.3 (long-term): attackers take switches over by SSH without a password" in text
    assert text.index("take 7.24.6 (long-term) or 7.25.2 (stable)") < text.index("crs812: ready")


def test_only_the_stickers_password_goes_in_the_clear(box: Workdir) -> None:
    box.run()
    plain = {line["session"] for line in box.log() if line.get("service") == "api"}
    secret = [line for line in box.log() if any(word.startswith("=password=") for word in line["words"])]
    assert {line["command"] for line in secret if line["session"] in plain} == {"/login"}
    assert "/user/add" in {line["command"] for line in secret}


def test_the_certificate_is_for_servers_and_lasts(box: Workdir) -> None:
    box.run()
    (row,) = box.table("/certificate")
    wanted = {"key-size": "2048", "days-valid": "3650", "private-key": "true", "authority": "false"}
    assert {name: row[name] for name in wanted} == wanted
    assert row["key-usage"] == "digital-signature,key-encipherment,tls-server"
    assert row["subject-alt-name"] == f"IP:{HERE}"


@pytest.mark.parametrize(("identity", "common_name"), [("identity: spine ", "spine"), ("", "crs812")])
def test_the_certificate_has_the_identity_or_the_name_of_the_switch(
    make_box: MakeBox, identity: str, common_name: str
) -> None:
    box = make_box(edits=(("identity: crs812 ", identity),))
    box.run()
    (row,) = box.table("/certificate")
    assert row["common-name"] == common_name


def test_dry_tells_and_writes_nothing(box: Workdir) -> None:
    code, text = box.run("--dry")
    assert code == 0, text
    for line in (
        "+ /certificate sparkrack: made on the switch",
        f"~ rack.yaml tls.sha256 {NO_PIN} -> (what is made)",
        f"~ /ip/service api-ssl: port 8729 -> {box.emulator.tls_port}, certificate none -> sparkrack",
        f"+ /user/group sparkrack: policy {OWNER_POLICY}",
        f"+ /user sparkrack: group sparkrack, password (file {box.own})",
        "~ /user admin: disabled false -> yes",
        "~ /ip/service api: disabled false -> yes",
        "nothing was written",
    ):
        assert f"crs812: {line}\n" in text
    assert (box.writes(), box.rack.read_text(), box.own.exists()) == ([], box.before, False)
    box.run()
    assert box.run("--dry")[1].endswith("crs812: nothing is missing\n")


def test_the_clock_of_a_unit_without_battery_is_set_first(box: Workdir) -> None:
    client = admin(box)
    client.ask("/system/clock/set", "=date=1970-01-02")
    assert "~ /system/clock: 1970-01-02, which is not today" in box.run("--dry")[1]
    code, text = box.run()
    assert code == 0, text
    assert "set the clock, which was at 1970-01-02" in text
    assert box.writes()[1:3] == ["/system/clock/set", "/certificate/add"]
    client.close()
