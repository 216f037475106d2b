"""The whole proof of a switch and its legs, against the emulator: it passes when all is well, and each check fails
when its own thing is broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from core.ssh.root_shell import UnreachableError
from switch import verify, verify_client
from switch.verify_client import SwitchChecks, watch_forwarding
from tests.emulator import verify_fixtures
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.verify_fixtures import Kept
from tests.emulator.wait import until

BRIDGE_PORT = "/interface/bridge/port"
LEG2 = "spark2 on leg crs812/qsfp56-dd-1-3, lanes 3-4"


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with verify_fixtures.declared(tmp_path_factory.mktemp("kept")) as made:
        yield made


@pytest.fixture
def kept(declared: Kept, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """A switch as declared; a test mends what it breaks. Nothing is waited for."""
    for module in (verify_client, verify):
        monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(verify, "HEARD_SECONDS", 0.0)
    return declared


def failures(kept: Kept, machine: str, *without: str, **keys: object) -> list[tuple[str, str]]:
    """Check and reason of each failure."""
    return [
        (outcome.check.partition("::test_")[2].partition("[")[0], outcome.why)
        for outcome in kept.proven(machine, *without, **keys)
        if not outcome.passed
    ]


@pytest.mark.parametrize(("machine", "checks"), [("crs812", 5), ("spark2", 6)])
def test_all_is_well(kept: Kept, machine: str, checks: int) -> None:
    outcomes = kept.proven(machine)
    assert [outcome.why for outcome in outcomes] == [""] * checks
    assert all(outcome.passed and outcome.machine == machine for outcome in outcomes)


def test_the_report_says_how_the_switch_was_read(kept: Kept) -> None:
    assert kept.proven("crs812")[0].notes == ("crs812 was read over REST as sparkrack-reader",)
    reported = kept.proven("crs812", "reader", "purge")[0].notes
    assert reported == ("crs812 was read over the API as sparkrack, who may also write",)


def test_a_switch_that_could_not_be_read_was_not_read_over_anything(kept: Kept) -> None:
    kept.emulator.control({"op": "fault", "kind": "drop", "match": "/", "times": 0})
    try:
        outcomes = kept.proven("crs812")
    finally:
        kept.emulator.control({"op": "heal"})
    assert not any(outcome.passed for outcome in outcomes)
    assert not [note for outcome in outcomes for note in outcome.notes]


def test_another_unit(kept: Kept) -> None:
    reason = f"the device has serial number {kept.emulator.config.serial}; the rack file means HX9"
    assert failures(kept, "crs812", serial="HX9") == [
        ("is_the_declared_unit", f"crs812: {reason}"),
        ("is_as_declared", f"crs812: not compared: {reason}"),
    ]


def test_another_name(kept: Kept) -> None:
    assert ("is_the_declared_unit", "crs812: it calls itself crs812, wanted other") in failures(
        kept, "crs812", identity="other"
    )


def test_each_drift_is_a_failure_of_its_own(kept: Kept) -> None:
    kept.by_hand("/ip/service/set .id=telnet disabled=no", "/user/add name=mallory group=read password=canary-9Qx")
    try:
        assert failures(kept, "crs812") == [
            ("is_as_declared", "crs812: user mallory is not in rack.yaml"),
            ("is_as_declared", "crs812: service telnet is on, wanted off"),
        ]
    finally:
        kept.declare()


def test_what_no_one_declared_is_reported_and_is_not_a_failure(kept: Kept) -> None:
    kept.by_hand("/user/add name=mallory group=read password=canary-9Qx")
    try:
        outcomes = kept.proven("crs812", "purge")
        assert all(outcome.passed for outcome in outcomes), outcomes
        assert "crs812: user mallory is not in rack.yaml" in [note for outcome in outcomes for note in outcome.notes]
    finally:
        kept.declare()


def test_firmware_that_is_older_than_its_system(
    kept: Kept, make_switch: Callable[..., Crs812Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Kept(kept.folder, make_switch(firmware="7.20.8"), {})
    found = [why for _, why in failures(old, "crs812")]
    assert [why for why in found if why.startswith("crs812: firmware of the board is 7.20.8, RouterOS brings 7.24.6")]


def test_safe_mode_that_is_held(kept: Kept) -> None:
    with kept.session() as session:
        session.talk("/safe-mode/take", "=on-error=abort")
        ((check, why),) = failures(kept, "crs812")
    assert check == "safe_mode_is_free"
    assert why.startswith("crs812: sparkrack (")


@pytest.mark.parametrize("menu", ["script", "scheduler"])
def test_a_rollback_timer_that_was_left(kept: Kept, menu: str) -> None:
    kept.by_hand(f"/system/{menu}/add name=sparkrack-undo-20260101T000000-0001")
    try:
        ((check, why),) = failures(kept, "crs812")
        assert (check, "sparkrack-undo-20260101T000000-0001" in why) == ("no_rollback_timer_is_armed", True)
    finally:
        kept.by_hand(f"/system/{menu}/remove .id=<{'/system/' + menu} name=sparkrack-undo-20260101T000000-0001>")


@pytest.mark.parametrize("counter", ["rs-fec-uncorrected", "tx-drop", "tx-drop-queue3-packet", "rx-pause", "tx-pause"])
def test_counters_that_grow(kept: Kept, monkeypatch: pytest.MonkeyPatch, counter: str) -> None:
    def grow(_seconds: float) -> None:
        kept.emulator.control({"op": "counters", "interface": "qsfp56-dd-1-3", "add": {counter: 7}})

    monkeypatch.setattr(verify_client, "time", SimpleNamespace(sleep=grow))
    assert failures(kept, "crs812") == [("counters_stand_still", f"{LEG2}: within 0 s {counter} grew by 7")]


def test_a_switch_that_reports_other_counters_is_no_proof(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_client, "COUNTERS", ("rx-of-a-later-release",))
    found = failures(kept, "crs812")
    assert len(found) == len(verify_fixtures.LEGS)
    assert ("counters_stand_still", f"{LEG2}: the switch reports none of its counters") in found


def test_counters_that_grew_before_are_no_failure(kept: Kept) -> None:
    kept.emulator.control({"op": "counters", "interface": "qsfp56-dd-1-3", "add": {"rs-fec-uncorrected": 7}})
    assert failures(kept, "crs812") == []


def test_a_cable_that_is_pulled(kept: Kept) -> None:
    kept.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 3})
    try:
        assert failures(kept, "spark2") == [
            (
                "leg_is_up_on_the_switch",
                (
                    f"{LEG2}: the switch reports status no-link, wanted link-ok; rate unknown, wanted 100Gbps; "
                    "fec unknown, wanted fec91"
                ),
            ),
            ("leg_is_up_on_the_node", f"{LEG2}: enp1s0f1np1 sees no link"),
            ("leg_is_up_on_the_node", f"{LEG2}: enP2p1s0f1np1 sees no link"),
            (
                "leg_goes_to_its_node",
                (
                    "spark2 should be on leg crs812/qsfp56-dd-1-3; the switch hears enp1s0f1np1 and enP2p1s0f1np1 "
                    "behind no port"
                ),
            ),
        ]
    finally:
        plug(kept)


def test_a_node_that_does_not_see_what_the_switch_sees(kept: Kept) -> None:
    kept.emulator.control({"op": "cable", "do": "deafen", "cage": "qsfp56-dd-1", "lane": 3})
    try:
        settled(kept)
        found = failures(kept, "spark2")
        assert "leg_is_up_on_the_switch" not in [check for check, _ in found]
        assert (
            "both_ends_of_leg_agree",
            (
                f"{LEG2}: the switch reports link-ok, enp1s0f1np1 sees no link; the switch reports link-ok, "
                "enP2p1s0f1np1 sees no link"
            ),
        ) in found
    finally:
        plug(kept)


def test_a_node_that_the_switch_has_forgotten_speaks_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that was down takes along what the switch has learned by it."""
    asked: list[str] = []
    answers, learned = verify_fixtures.Node.run, SwitchChecks.hosts

    def run(node: verify_fixtures.Node, command: str) -> SimpleNamespace:
        asked.append(command)
        return answers(node, command)

    monkeypatch.setattr(verify_fixtures.Node, "run", run)
    monkeypatch.setattr(SwitchChecks, "hosts", lambda look, ends: learned(look, ends) if len(asked) > 1 else {})
    assert [check for check, _ in failures(kept, "spark2")] == ["leg_goes_to_its_node"]
    monkeypatch.setattr(verify, "HEARD_SECONDS", 60.0)
    asked.clear()
    assert failures(kept, "spark2") == []
    assert len(asked) == 2


def test_swapped_cables_are_named_with_both_ends(kept: Kept) -> None:
    swap = {"op": "cable", "do": "swap", "cage": "qsfp56-dd-1", "lane": 1, "to": {"cage": "qsfp56-dd-1", "lane": 3}}
    kept.emulator.control(swap)
    settled(kept)
    try:
        assert failures(kept, "spark1") == [
            (
                "leg_goes_to_its_node",
                (
                    "spark1 is on leg crs812/qsfp56-dd-1-3, where spark2 should be; spark2 is on leg "
                    "crs812/qsfp56-dd-1-1, where spark1 should be"
                ),
            )
        ]
    finally:
        kept.emulator.control(swap)
        settled(kept)


def test_a_leg_whose_frames_reach_the_cpu_only(kept: Kept) -> None:
    """The flags say offloaded; the counters of its frames do not."""
    kept.emulator.control({"op": "stale", "interface": "qsfp56-dd-1-3"})
    port = f"<{BRIDGE_PORT} interface=qsfp56-dd-1-3>"
    try:
        why = "the CPU forwards its frames, not the chip; set hw=no and hw=yes on its bridge port again"
        assert ("leg_is_bridged_in_hardware", f"{LEG2}: {why}") in failures(kept, "spark2")
    finally:
        kept.by_hand(f"{BRIDGE_PORT}/set .id={port} hw=no", f"{BRIDGE_PORT}/set .id={port} hw=yes")
    assert failures(kept, "spark2") == []


@pytest.mark.parametrize(
    ("sentences", "check", "why"),
    [
        (
            [f"{BRIDGE_PORT}/remove .id=<{BRIDGE_PORT} interface=qsfp56-dd-1-3>"],
            "leg_is_bridged_in_hardware",
            f"{LEG2}: in bridge (none), wanted bridge",
        ),
        (
            [f"{BRIDGE_PORT}/set .id=<{BRIDGE_PORT} interface=qsfp56-dd-1-3> hw=no"],
            "leg_is_bridged_in_hardware",
            f"{LEG2}: the chip does not forward for it (hw-offload is not true)",
        ),
        (
            ["/interface/ethernet/set .id=qsfp56-dd-1-3 mtu=1500"],
            "leg_carries_full_frames",
            f"{LEG2}: mtu 1500, wanted 9000",
        ),
    ],
)
def test_a_leg_that_is_set_up_wrong(kept: Kept, sentences: list[str], check: str, why: str) -> None:
    kept.by_hand(*sentences)
    try:
        settled(kept)
        assert (check, why) in failures(kept, "spark2")
    finally:
        kept.declare()
        settled(kept)


def test_a_node_that_cannot_be_asked(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> object:
        raise UnreachableError("spark2", "ssh: Connection refused")

    monkeypatch.setattr(verify_fixtures.Node, "run", refused)
    assert {why for _, why in failures(kept, "spark2")} == {"spark2: cannot be asked: ssh: Connection refused"}
    assert len(failures(kept, "spark2")) == 3


def test_a_node_is_asked_once_and_a_menu_too(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    answer = verify_fixtures.Node.run

    def run(node: verify_fixtures.Node, command: str) -> SimpleNamespace:
        asked.append(command)
        return answer(node, command)

    monkeypatch.setattr(verify_fixtures.Node, "run", run)
    seen = len(kept.emulator.log())
    kept.proven("spark2")
    assert len(asked) == 1
    commands = [line["command"] for line in kept.emulator.log()[seen:] if "command" in line]
    assert len(commands) == 9, "four more: two kinds of counters before and after; and each half's address for itself"


def test_a_switch_that_does_not_let_us_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRS812_READER", "canary-wrong-7Hq")
    seen = len(kept.emulator.log())
    outcomes = kept.proven("crs812")
    assert len([line for line in kept.emulator.log()[seen:] if "command" in line]) == 1, "it knocked again"
    assert not any(outcome.passed for outcome in outcomes)
    for outcome in outcomes:
        assert "could not be read over REST as sparkrack-reader: login as sparkrack-reader over REST refused" in (
            outcome.why
        )
        assert "canary" not in str(outcome)


def plug(kept: Kept) -> None:
    kept.emulator.control({"op": "cable", "do": "plug", "cage": "qsfp56-dd-1", "lane": 3})
    settled(kept)


def settled(kept: Kept) -> None:
    until(lambda: {kept.emulator.links()[leg] for leg in verify_fixtures.LEGS} == {"link-ok"})


def forwarded_by_cpu(kept: Kept, *legs: str) -> bool | None:
    rack = kept.rack()
    cabled = [leg for leg, _ in rack.cabling.legs("crs812") if leg.interface in legs]
    assert len(cabled) == len(legs)
    ended = watch_forwarding(rack, cabled)
    time.sleep(0.2)
    return ended()


def test_the_counters_of_a_leg_show_what_forwarded_during_a_measurement(kept: Kept) -> None:
    assert forwarded_by_cpu(kept, "qsfp56-dd-1-1", "qsfp56-dd-1-3") is False
    kept.emulator.control({"op": "stale", "interface": "qsfp56-dd-1-3"})
    port = f"<{BRIDGE_PORT} interface=qsfp56-dd-1-3>"
    try:
        assert forwarded_by_cpu(kept, "qsfp56-dd-1-1", "qsfp56-dd-1-3") is True
        assert forwarded_by_cpu(kept, "qsfp56-dd-1-1") is False
    finally:
        kept.by_hand(f"{BRIDGE_PORT}/set .id={port} hw=no", f"{BRIDGE_PORT}/set .id={port} hw=yes")


def test_what_forwarded_is_unknown_where_no_counter_says_it(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switch.offload.LEAST_FRAMES", 10**9)
    assert forwarded_by_cpu(kept, "qsfp56-dd-1-1") is None
    monkeypatch.setenv("CRS812_READER", "canary-wrong-7Hq")
    assert forwarded_by_cpu(kept, "qsfp56-dd-1-1") is None
    assert forwarded_by_cpu(kept) is None
