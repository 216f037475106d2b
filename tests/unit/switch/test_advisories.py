"""What is known against a release, and RouterOS's own mark of a break-in, in the plan of a switch."""

from __future__ import annotations

import pytest

from core.routeros.errors import RefusedError, UnreadableError
from switch.advisories import COMPROMISED, used_features
from switch.plan import plan
from tests.unit.switch.racks import EVERY_KEY, UNCABLED, MakeRack
from tests.unit.switch.rows import Tables, factory, reading

USERS = "/user"
OPEN = "rack.yaml does not declare `management`, so it does not limit ssh, www and the bandwidth-test server"


def running(version: str) -> Tables:
    tables = factory()
    tables["/system/resource"][0]["version"] = version
    return tables


def flagged(tables: Tables, mark: str = "true") -> Tables:
    tables["/system/device-mode"][0]["flagged"] = mark
    return tables


@pytest.mark.parametrize("version", ["7.23.3 (long-term)", "7.24.1 (stable)"])
def test_a_release_that_attackers_use_is_a_fault_and_changes_are_still_planned(rack: MakeRack, version: str) -> None:
    found = plan(*rack(), reading(running(version)))
    assert found.changes
    assert found.upgrades[0].startswith(f"RouterOS {version}: attackers take switches over by SSH without a password")
    assert "take 7.24.6 (long-term) or 7.25.2 (stable)" in found.upgrades[0]
    assert not any("CVE" in line for line in found.notices)


def test_a_release_that_is_not_affected_has_no_fault(rack: MakeRack) -> None:
    found = plan(*rack(), reading(running("7.24.6 (long-term)")))
    assert (found.upgrades, found.faults, found.notices) == ((), (), ())


def test_what_does_not_open_the_switch_is_a_note(rack: MakeRack) -> None:
    found = plan(*rack(), reading(running("7.24.4 (stable)")))
    assert found.upgrades == ()
    assert [line.partition(":")[0] for line in found.notices] == ["RouterOS 7.24.4 (stable)"]
    assert "schedules with the default start date and time never run" in found.notices[0]


def test_a_row_about_a_feature_is_a_note_where_rack_yaml_declares_the_feature(rack: MakeRack) -> None:
    tables = running("7.24.6 (long-term)")
    (line,) = plan(*rack(lossless="roce"), reading(tables)).notices
    assert "lossless buffers of CRS8xx switches have faults" in line
    assert plan(*rack(lossless="pause"), reading(tables)).notices == ()


def test_the_features_of_a_switch_are_read_from_its_cages_and_its_lossless_policy(rack: MakeRack) -> None:
    assert used_features(rack(**EVERY_KEY)[1]) == {"lossless roce", "QSFP-DD breakout"}
    whole = {"qsfp56-dd-1": {"split": "1x400G"}, "qsfp56-1": {"split": "2x100G"}}
    assert used_features(rack(nodes=UNCABLED, cages=whole)[1]) == frozenset()


def test_open_services_and_undeclared_full_users_are_named_beside_the_release(rack: MakeRack) -> None:
    tables = running("7.23.3 (long-term)")
    tables[USERS] += [
        {".id": "*8", "name": "ops", "group": "full", "disabled": "false"},
        {".id": "*9", "name": "former", "group": "full", "disabled": "true"},
        {".id": "*A", "name": "reader", "group": "read", "disabled": "false"},
        {".id": "*B", "name": "sparkrack", "group": "full", "disabled": "false"},
    ]
    users = "users of the group full that rack.yaml does not name: admin, ops; look at who made them"
    assert plan(*rack(), reading(tables)).upgrades[-2:] == (OPEN, users)
    limited = plan(*rack(management=["10.77.0.0/24"]), reading(tables)).upgrades
    assert OPEN not in limited
    assert limited[-1] == users
    tables["/system/resource"][0]["version"] = "7.24.6 (long-term)"
    assert plan(*rack(), reading(tables)).upgrades == ()


@pytest.mark.parametrize("mark", ["true", "yes"])
def test_a_switch_that_routeros_has_marked_is_refused_although_nothing_differs(rack: MakeRack, mark: str) -> None:
    nothing = rack(nodes=UNCABLED, cages={}, identity="MikroTik")
    assert plan(*nothing, reading(factory())).empty
    with pytest.raises(RefusedError) as refused:
        plan(*nothing, reading(flagged(factory(), mark)))
    assert refused.value.reasons[0] == COMPROMISED
    assert "do not clear the mark" in COMPROMISED
    assert "flagged=no" not in str(refused.value)
    assert "users of the group full that rack.yaml does not name: admin" in refused.value.reasons[1]


def test_the_mark_is_named_beside_other_reasons_to_refuse(rack: MakeRack) -> None:
    with pytest.raises(RefusedError) as refused:
        plan(*rack(serial="HX2"), reading(flagged(factory())))
    assert [reason.partition(" (")[0] for reason in refused.value.reasons[:2]] == [
        "the device has serial number HX1; the rack file means HX2",
        "RouterOS has marked this switch as compromised",
    ]


def test_a_mark_that_cannot_be_read_is_unknown(rack: MakeRack) -> None:
    with pytest.raises(UnreadableError, match="/system/device-mode flagged"):
        plan(*rack(), reading(flagged(factory(), "perhaps")))


def test_a_release_that_rack_yaml_does_not_declare_is_a_fault(rack: MakeRack) -> None:
    tables = running("7.25.2 (stable)")
    assert plan(*rack(), reading(tables)).upgrades == ()
    (line,) = plan(*rack(release="7.24.6"), reading(tables)).upgrades
    assert line.startswith(
        "it runs RouterOS 7.25.2 (stable), rack.yaml declares release 7.24.6: sparkrack upgrade switch"
    )
    assert plan(*rack(release="7.25.2"), reading(tables)).upgrades == ()
