"""First contact with something that is not what rack.yaml means, or not as it was."""

from __future__ import annotations

import signal
import ssl
import time
from typing import Any

import pytest

from tests.emulator.bootstrap_runs import HERE, NO_PIN, MakeBox, Workdir, admin
from tests.emulator.conftest import MakeSwitch
from tests.emulator.raw_client import RawClient
from tests.emulator.switch_runs import waits_for


@pytest.mark.parametrize(
    ("edits", "emulator", "reported"),
    [
        ((), {"model": "CRS804-4DDQ"}, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
        ((("# serial: HX", "serial: HX"),), {}, "has serial number HK70AB12CD3; the rack file means HXXXXXXXXXX"),
        ((), {"version": "7.22.1 (stable)"}, "runs RouterOS 7.22.1 (stable); at least 7.23 is needed"),
        ((), {"packages": ["routeros"]}, "package switch-marvell is not installed"),
        ((), {"flagged": True}, "RouterOS has marked this switch as compromised (flagged in /system/device-mode)"),
        (((NO_PIN, "ab" * 32),), {}, f"rack.yaml pins certificate {'ab' * 32}, and the switch has none"),
        ((("user: sparkrack ", "user: admin "),), {}, "user is admin, which every unit has"),
    ],
)
def test_not_the_switch_that_is_meant(
    make_box: MakeBox, edits: tuple[tuple[str, str], ...], emulator: dict[str, Any], reported: str
) -> None:
    box = make_box(edits=edits, **emulator)
    code, text = box.run()
    assert code == 1
    assert reported in text
    assert (box.writes(), box.rack.read_text(), box.own.exists()) == ([], box.before, False)


def test_tls_false_is_refused(make_box: MakeBox) -> None:
    box = make_box()
    lines = box.rack.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith("    tls:"))
    end = next(number for number, line in enumerate(lines) if line.startswith("      sha256:"))
    box.rack.write_text("".join([*lines[:at], "    tls: false\n", *lines[end + 1 :]]))
    code, text = box.run()
    assert code == 1
    assert f'rack.yaml asks for the plain API (tls: false); write tls: {{sha256: "{NO_PIN}"}}' in text


def test_a_switch_that_was_reset_needs_a_word(box: Workdir) -> None:
    box.run()
    pinned = box.rack.read_text()
    box.emulator.control({"op": "reset"})
    code, text = box.run()
    assert code == 1
    assert "and the switch has none; if it was reset or replaced, pass --replace-fingerprint" in text
    assert box.rack.read_text() == pinned
    code, text = box.run("--replace-fingerprint")
    assert code == 0, text
    box.is_ready()


def test_another_certificate_stops_before_a_password_is_sent(box: Workdir) -> None:
    box.run()
    (row,) = box.table("/certificate")
    box.rack.write_text(box.before.replace(NO_PIN, "ab" * 32))
    logins = sum(line.get("command") == "/login" for line in box.log())
    code, text = box.run()
    assert code == 1
    assert f"the switch shows certificate {row['fingerprint']}, pinned is {'ab' * 32}" in text
    assert sum(line.get("command") == "/login" for line in box.log()) == logins


def test_a_switch_that_is_not_pinned_and_has_no_plain_api(box: Workdir) -> None:
    box.run()
    (row,) = box.table("/certificate")
    box.rack.write_text(box.before)
    code, text = box.run()
    assert code == 1
    assert f"rack.yaml does not pin the certificate that api-ssl shows, {row['fingerprint']}: compare it" in text


def test_a_switch_that_does_not_answer_is_named_with_its_ports(box: Workdir) -> None:
    box.emulator.stop()
    code, text = box.run(password=False)
    assert code == 1
    assert f"nothing answers at {HERE} ({box.emulator.plain_port}, {box.emulator.tls_port}): " in text


def test_a_certificate_that_is_not_the_switchs_own_is_not_pinned(box: Workdir, make_switch: MakeSwitch) -> None:
    """Something in between shows its own certificate."""
    other = make_switch()
    box.rack.write_text(box.before.replace(f"port: {box.emulator.tls_port} ", f"port: {other.tls_port} "))
    code, text = box.run("--timeout", "0.2")
    assert code == 1
    assert f"{HERE}:{other.tls_port} shows {other.fingerprint}; is api-ssl limited" in text
    assert NO_PIN in box.rack.read_text()
    assert [row["name"] for row in box.table("/user")] == ["admin"]


def test_a_rack_file_that_was_changed_meanwhile(box: Workdir) -> None:
    box.emulator.control({"op": "fault", "kind": "delay", "match": "/certificate/sign", "seconds": 2})
    process = box.start()
    box.until(lambda: "/certificate/add" in box.writes(), process)
    changed = box.before.replace("rack: spark8", "rack: spark9")
    box.rack.write_text(changed)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    line = 1 + changed.splitlines().index(next(one for one in changed.splitlines() if one.startswith("rack: ")))
    assert f"Error: crs812: {box.rack}:{line}: was changed by another program during this run" in text
    assert box.rack.read_text() == changed
    box.before = changed
    assert box.run()[0] == 0
    box.is_ready()


def test_safe_mode_of_another_user(box: Workdir) -> None:
    client = admin(box)
    client.ask("/safe-mode/take")
    code, text = box.run("--timeout", "0.2")
    assert code == 1
    assert "safe mode is held by admin (" in text
    client.close()
    assert box.run()[0] == 0
    box.is_ready()


def test_admin_is_not_shut_out_while_no_other_gets_in(box: Workdir) -> None:
    client = admin(box)
    client.ask("/ip/service/set", "=numbers=api-ssl", "=max-sessions=2")  # admin's and ours, and no third as proof
    client.close()
    code, text = box.run()
    assert code == 1
    assert "all changes since safe mode was taken are reverted" in text
    assert {row["name"]: row["disabled"] for row in box.table("/user")} == {"admin": "false", "sparkrack": "false"}
    assert {row["name"]: row["disabled"] for row in box.table("/ip/service")}["api"] == "false"

    def without_admin() -> bool:
        """His session is not needed any more, but a switch takes a moment to notice that those of a run have ended."""
        time.sleep(0.3)
        return box.run(password=False)[0] == 0

    waits_for(without_admin)
    box.is_ready()


def test_a_certificate_that_is_there_already_is_used(box: Workdir) -> None:
    client = admin(box)
    client.ask("/certificate/add", "=name=mine", "=common-name=mine", "=key-size=prime256v1")
    client.ask("/certificate/sign", "=number=mine")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=mine")
    client.close()
    code, text = box.run()
    assert code == 0, text
    assert [row["name"] for row in box.table("/certificate")] == ["mine"]
    box.is_ready()


def test_a_weak_certificate_is_not(box: Workdir) -> None:
    client = admin(box)
    client.ask("/certificate/add", "=name=sparkrack", "=common-name=weak", "=key-size=1024")
    client.ask("/certificate/sign", "=number=sparkrack")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=sparkrack")
    client.close()
    code, text = box.run()
    assert code == 0, text
    assert "api-ssl shows certificate sparkrack-2" in text


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["no-such"], "no-such is not a switch of the rack; it has crs812"),
        (["--address", "switch.example"], "switch.example is not an IPv4 address"),
        (["--admin", "password"], "--admin password and --admin-file PATH belong together"),
        (["--admin-file", "x"], "--admin password and --admin-file PATH belong together"),
        (["--password-env", "A"], "--password-env and --password-file exclude one another"),
        (["--prefix", "31"], "31 is not in the range"),
    ],
)
def test_wrong_words(box: Workdir, words: list[str], reported: str) -> None:
    code, text = box.run(*words)
    assert code == 1
    assert reported in " ".join(text.replace("│", " ").split())


def test_ctrl_c_gives_safe_mode_up(box: Workdir) -> None:
    box.emulator.control({"op": "fault", "kind": "mute", "match": "/user/set"})
    process = box.start()
    box.until(lambda: "/user/set" in box.writes(), process)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 1, text
    assert "Traceback" not in text
    assert box.run()[0] == 0
    box.is_ready()


def test_tls_of_a_unit_from_its_box_has_nothing_to_show(box: Workdir) -> None:
    """Else these tests would not begin where a unit begins."""
    with pytest.raises(ssl.SSLError):
        RawClient(box.emulator.tls_port, secure=True)


def test_a_switch_that_keeps_its_full_user_is_left_with_a_way_in(make_box: MakeBox) -> None:
    """RouterOS may refuse to disable the last user of the group full: it gets a new random password."""
    box = make_box(keeps_full_user=True)
    code, text = box.run()
    assert code == 2, text
    assert "warning: admin stays enabled: the switch refuses to disable it (failure: can not disable last user" in text
    assert "crs812: ready\n" in text
    kept = box.own.with_name("crs812.admin.password")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert f"file {kept}" in text
    assert kept.read_text().strip() not in text
    users = {row["name"]: row["disabled"] for row in box.table("/user")}
    assert users == {"admin": "false", "sparkrack": "false"}
    assert {row["name"]: row["disabled"] for row in box.table("/ip/service")}["api"] == "true"
    assert box.emulator.state()["safe_mode"]["holder"] is None
    password = kept.read_text()
    before = box.writes()
    code, text = box.run(password=False)
    assert (code, kept.read_text()) == (2, password), text
    tried = [line for line in box.writes()[len(before) :] if not line.startswith("/safe-mode")]
    assert tried == ["/user/set"], "it is tried again, and no password is set again"
