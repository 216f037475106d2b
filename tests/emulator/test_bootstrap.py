"""`sparkrack bootstrap switch`: from the box into the rack, and again, and what it refuses to do."""

from __future__ import annotations

import os
import pty
import select
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from switch.bootstrap.tables import OWNER_POLICY
from tests.emulator.bootstrap_runs import HERE, NO_PIN, PROGRAM, THERE, Desk, Way, boxed
from tests.emulator.conftest import MakeSwitch
from tests.emulator.raw import RawClient

MakeBox = Callable[..., Desk]


@pytest.fixture
def make_box(tmp_path: Path, make_switch: MakeSwitch) -> MakeBox:
    """A switch from its box and a desk beside it; `edits` change rack.yaml, the rest the emulator."""

    def make(address: str = HERE, edits: tuple[tuple[str, str], ...] = (), **emulator: Any) -> Desk:
        return Desk(tmp_path / "desk", make_switch(**boxed(tmp_path, **emulator)), address, edits)

    return make


@pytest.fixture
def box(make_box: MakeBox) -> Desk:
    return make_box()


@pytest.fixture
def way(moving: Desk) -> Iterator[Way]:
    laid = Way(moving.emulator)
    yield laid
    laid.close()


@pytest.fixture
def moving(make_box: MakeBox) -> Desk:
    """A switch whose right address is another one than it has."""
    return make_box(THERE)


def admin(desk: Desk) -> RawClient:
    client = RawClient(desk.emulator.plain_port)
    client.login("admin", desk.sticker.read_text().strip())
    return client


# From the box into the rack


def test_from_the_box_into_the_rack_and_again(box: Desk) -> None:
    code, text = box.run()
    assert code == 0, text
    box.is_ready()
    assert "crs812: ready. Next: RACK=" in text
    (group,) = [row for row in box.table("/user/group") if row["name"] == "sparkrack"]
    granted = [word for word in group["policy"].split(",") if not word.startswith("!")]
    assert sorted(granted) == sorted(OWNER_POLICY.split(","))
    before = box.writes()
    code, text = box.run(password=False)  # nobody is asked: our own user is let in
    assert (code, box.writes()) == (0, before), text
    box.is_ready()
    assert box.failed_logins() == 0


def test_only_the_stickers_password_goes_in_the_clear(box: Desk) -> None:
    box.run()
    plain = {line["session"] for line in box.log() if line.get("service") == "api"}
    secret = [line for line in box.log() if any(word.startswith("=password=") for word in line["words"])]
    assert {line["command"] for line in secret if line["session"] in plain} == {"/login"}
    assert "/user/add" in {line["command"] for line in secret}


def test_the_certificate_is_for_servers_and_lasts(box: Desk) -> None:
    box.run()
    (row,) = box.table("/certificate")
    wanted = {"key-size": "2048", "days-valid": "3650", "private-key": "true", "authority": "false"}
    assert {name: row[name] for name in wanted} == wanted
    assert row["key-usage"] == "digital-signature,key-encipherment,tls-server"
    assert row["subject-alt-name"] == f"IP:{HERE}"


def test_dry_tells_and_writes_nothing(box: Desk) -> None:
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


def test_the_clock_of_a_unit_without_battery_is_set_first(box: Desk) -> None:
    client = admin(box)
    client.ask("/system/clock/set", "=date=1970-01-02")
    assert "~ /system/clock: 1970-01-02, which is not today" in box.run("--dry")[1]
    code, text = box.run()
    assert code == 0, text
    assert "set the clock, which said 1970-01-02" in text
    assert box.writes()[1:3] == ["/system/clock/set", "/certificate/add"]
    client.close()


# Passwords


def test_asked_for_once_and_not_shown(box: Desk) -> None:
    """At a terminal of its own, since a hidden prompt is read from there and nowhere else."""
    words = box.words(password=False)
    child, terminal = pty.fork()
    if child == 0:
        os.execv(PROGRAM, [str(PROGRAM), *words])  # noqa: S606 - this is the child
    sticker = box.sticker.read_bytes()
    said, typed = b"", False
    while select.select([terminal], [], [], 60)[0]:
        try:
            said += os.read(terminal, 4096)
        except OSError:  # Linux says so at the end of a terminal
            break
        if not typed and b"password of admin (on the sticker)" in said:
            os.write(terminal, sticker)
            typed = True
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said.decode()
    assert said.count(b"password of admin") == 1
    assert sticker.strip() not in said
    box.is_ready()


def test_a_wrong_sticker_password_is_tried_once(box: Desk) -> None:
    wrong = "canary-not-the-sticker"
    code, text = box.run("--password-env", "STICKER", password=False, STICKER=wrong)
    assert (code, box.failed_logins(), box.writes()) == (1, 1, [])
    assert text == "Error: crs812: login as admin refused: invalid user name or password (6)\n"
    assert wrong not in text
    assert not box.own.exists()


def test_nobody_to_ask(box: Desk) -> None:
    code, text = box.run(password=False)
    assert code == 1
    assert "there is no terminal to ask on; say --password-env or --password-file" in text
    assert "/login" not in [line.get("command") for line in box.log()]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a-short-one-A1", "it has fewer than 20 characters"),
        ("abcabcabcabcabcabcabcabc", "it is made of fewer than 10 different characters"),
        ("ünïcödé-is-not-for-consoles", "characters other than the printable ones of ASCII"),
    ],
)
@pytest.mark.parametrize("kept", ["env", "file", "command"])
def test_a_weak_password_of_our_own_is_refused(make_box: MakeBox, value: str, why: str, kept: str) -> None:
    references = {"env": "{env: OWN}", "file": "{file: own}", "command": "{command: [cat, /dev/null]}"}
    box = make_box(edits=(("password: {file: own} ", f"password: {references[kept]} "),))
    box.own.write_text(value)
    box.own.chmod(0o600)
    if kept == "command":
        box.rack.write_text(box.rack.read_text().replace("/dev/null", str(box.own)))
    code, text = box.run(OWN=value)
    assert code == 1
    assert why in text
    assert value not in text
    assert [line for line in box.log() if line.get("command")] == [], "a connection was made"


def test_a_strong_one_from_elsewhere_is_taken(make_box: MakeBox) -> None:
    box = make_box(edits=(("password: {file: own} ", "password: {env: OWN} "),))
    strong = "correct-horse-battery-Staple-42"
    code, text = box.run(OWN=strong)
    assert code == 0, text
    client = RawClient(box.emulator.tls_port, secure=True)
    client.login("sparkrack", strong)
    client.close()
    assert not box.own.exists()


def test_a_password_that_was_changed_here_is_given_anew(box: Desk) -> None:
    box.run("--admin", "password", "--admin-file", str(box.folder / "admin"))
    box.own.write_text("another-password-of-ours-1234\n")
    code, text = box.run("--password-file", str(box.folder / "admin"), "--admin", "disable")
    assert code == 0, text
    assert box.failed_logins() == 1
    assert f"gave sparkrack the password of file {box.own}" in text
    (box.folder / "admin").unlink()
    box.own.write_text(box.own.read_text().strip() + "-made-as-long-as-a-made-one\n")
    assert box.run(password=False)[0] == 1  # nobody is left who could give it


def test_admin_gets_a_password_of_its_own(box: Desk) -> None:
    kept = box.folder / "admin"
    words = ("--admin", "password", "--admin-file", str(kept))
    code, text = box.run(*words)
    assert code == 0, text
    assert kept.stat().st_mode & 0o777 == 0o600
    (user,) = [row for row in box.table("/user") if row["name"] == "admin"]
    assert user["disabled"] == "false"
    client = RawClient(box.emulator.tls_port, secure=True)
    client.login("admin", kept.read_text().strip())
    assert "invalid user name" in str(
        client.ask("/login", "=name=admin", f"=password={box.sticker.read_text().strip()}")
    )
    client.close()
    writes = box.writes()
    assert box.run(*words)[0] == 0
    assert box.writes() == writes
    assert kept.read_text().strip() not in text


# Its address


@pytest.mark.usefixtures("way")
def test_the_right_address_is_proven_before_the_old_one_goes(moving: Desk) -> None:
    code, text = moving.run()
    assert code == 0, text
    moving.is_ready()
    (row,) = moving.table("/ip/address")
    assert (row["address"], row["interface"]) == (f"{THERE}/24", "bridge")
    assert moving.run()[0] == 0  # same words: it is found where it went
    moving.is_ready()


def test_the_prefix_is_managements_or_as_told(moving: Desk) -> None:
    text = moving.before.replace("    # management: [10.77.0.0/24] ", "    management: [127.0.0.0/16] ")
    assert text != moving.before
    moving.rack.write_text(text)
    assert f"+ /ip/address {THERE}/16: interface bridge" in moving.run("--dry")[1]
    assert f"+ /ip/address {THERE}/20: interface bridge" in moving.run("--dry", "--prefix", "20")[1]


def test_an_address_that_does_not_answer_leaves_the_old_one(moving: Desk) -> None:
    code, text = moving.run("--patience", "0.2")
    assert code == 1
    assert f"{THERE} is set and does not answer from here; {HERE} stays. Run again" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]
    assert next(row for row in moving.table("/user") if row["name"] == "admin")["disabled"] == "false"
    way = Way(moving.emulator)
    code, text = moving.run("--address", THERE, password=False)
    way.close()
    assert code == 0, text
    # The one it was met at is not known any more, and is nobody's business unless it is the factory's.
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]


def test_the_factory_address_goes_in_a_later_run(make_box: MakeBox) -> None:
    moving = make_box(THERE, management="192.168.88.1/24")
    assert moving.run("--patience", "0.2")[0] == 1
    way = Way(moving.emulator)
    code, text = moving.run("--address", THERE, password=False)
    way.close()
    assert code == 0, text
    moving.is_ready()


def test_told_to_keep_the_old_address(moving: Desk) -> None:
    code, text = moving.run("--keep-address", "--patience", "0.2")
    assert code == 0, text
    assert f"{THERE} does not answer from here; {HERE} stays" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24", f"{THERE}/24"]
    assert next(row for row in moving.table("/user") if row["name"] == "admin")["disabled"] == "true"


def test_somebody_else_has_the_right_address(moving: Desk, make_switch: MakeSwitch) -> None:
    other = make_switch()  # with a certificate of its own
    way = Way(moving.emulator, other.tls_port)
    code, text = moving.run()
    way.close()
    assert code == 1
    assert f"{THERE} belongs to something else: the switch shows certificate {other.fingerprint}" in text
    assert "everything since safe mode was taken is taken back" in text
    assert [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24"]


# What is refused


@pytest.mark.parametrize(
    ("edits", "emulator", "said"),
    [
        ((), {"model": "CRS804-4DDQ"}, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
        ((("# serial: HX", "serial: HX"),), {}, "has serial number HK70AB12CD3; the rack file means HXXXXXXXXXX"),
        ((), {"version": "7.22.1 (stable)"}, "runs RouterOS 7.22.1 (stable); at least 7.23 is needed"),
        ((), {"packages": ["routeros"]}, "package switch-marvell is not installed"),
        (((NO_PIN, "ab" * 32),), {}, f"rack.yaml pins certificate {'ab' * 32}, and the switch has none"),
        ((("user: sparkrack\n", "user: admin\n"),), {}, "user is admin, whom everybody knows"),
    ],
)
def test_not_the_switch_that_is_meant(
    make_box: MakeBox, edits: tuple[tuple[str, str], ...], emulator: dict[str, Any], said: str
) -> None:
    box = make_box(edits=edits, **emulator)
    code, text = box.run()
    assert code == 1
    assert said in text
    assert (box.writes(), box.rack.read_text(), box.own.exists()) == ([], box.before, False)


def test_tls_false_is_refused(make_box: MakeBox) -> None:
    box = make_box()
    lines = box.rack.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.strip() == "tls:")
    box.rack.write_text("".join([*lines[:at], "    tls: false\n", *lines[at + 3 :]]))
    code, text = box.run()
    assert code == 1
    assert f'rack.yaml asks for the plain API (tls: false); write tls: {{sha256: "{NO_PIN}"}}' in text


def test_a_switch_that_was_reset_needs_a_word(box: Desk) -> None:
    box.run()
    pinned = box.rack.read_text()
    box.emulator.control({"op": "reset"})
    code, text = box.run()
    assert code == 1
    assert "and the switch has none; if it was reset or replaced, say --replace-fingerprint" in text
    assert box.rack.read_text() == pinned
    code, text = box.run("--replace-fingerprint")
    assert code == 0, text
    box.is_ready()


def test_another_certificate_stops_before_a_password_is_sent(box: Desk) -> None:
    box.run()
    (row,) = box.table("/certificate")
    box.rack.write_text(box.before.replace(NO_PIN, "ab" * 32))
    logins = sum(line.get("command") == "/login" for line in box.log())
    code, text = box.run()
    assert code == 1
    assert f"the switch shows certificate {row['fingerprint']}, pinned is {'ab' * 32}" in text
    assert sum(line.get("command") == "/login" for line in box.log()) == logins


def test_a_switch_that_is_not_pinned_and_has_no_plain_api(box: Desk) -> None:
    box.run()
    (row,) = box.table("/certificate")
    box.rack.write_text(box.before)
    code, text = box.run()
    assert code == 1
    assert f"rack.yaml does not pin the certificate that api-ssl shows, {row['fingerprint']}: compare it" in text


def test_nobody_there(box: Desk) -> None:
    box.emulator.stop()
    code, text = box.run(password=False)
    assert code == 1
    assert f"nothing answers at {HERE} ({box.emulator.plain_port}, {box.emulator.tls_port}): " in text


def test_a_certificate_that_is_not_the_switchs_own_is_not_pinned(box: Desk, make_switch: MakeSwitch) -> None:
    """Something in between shows its own certificate."""
    other = make_switch()
    box.rack.write_text(box.before.replace(f"port: {box.emulator.tls_port} ", f"port: {other.tls_port} "))
    code, text = box.run("--patience", "0.2")
    assert code == 1
    assert f"{HERE}:{other.tls_port} shows {other.fingerprint}; is api-ssl limited" in text
    assert NO_PIN in box.rack.read_text()
    assert [row["name"] for row in box.table("/user")] == ["admin"]


def test_a_rack_file_that_was_changed_meanwhile(box: Desk) -> None:
    box.emulator.control({"op": "fault", "kind": "delay", "match": "/certificate/sign", "seconds": 2})
    process = box.start()
    box.until(lambda: "/certificate/add" in box.writes(), process)
    changed = box.before.replace("rack: spark8", "rack: spark9")
    box.rack.write_text(changed)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Error: crs812: {box.rack}:4: was changed here by somebody else while this ran" in text
    assert box.rack.read_text() == changed
    box.before = changed
    assert box.run()[0] == 0
    box.is_ready()


def test_safe_mode_of_somebody_else(box: Desk) -> None:
    client = admin(box)
    client.ask("/safe-mode/take")
    code, text = box.run("--patience", "0.2")
    assert code == 1
    assert "safe mode is held by admin (" in text
    client.close()
    assert box.run()[0] == 0
    box.is_ready()


def test_admin_is_not_shut_out_while_nobody_else_gets_in(box: Desk) -> None:
    client = admin(box)
    client.ask("/ip/service/set", "=numbers=api-ssl", "=max-sessions=2")  # admin's and ours, and no third as proof
    client.close()
    code, text = box.run()
    assert code == 1
    assert "everything since safe mode was taken is taken back" in text
    assert {row["name"]: row["disabled"] for row in box.table("/user")} == {"admin": "false", "sparkrack": "false"}
    assert {row["name"]: row["disabled"] for row in box.table("/ip/service")}["api"] == "false"
    assert box.run(password=False)[0] == 0  # admin's session is not needed any more
    box.is_ready()


def test_a_certificate_that_is_there_already_is_used(box: Desk) -> None:
    client = admin(box)
    client.ask("/certificate/add", "=name=mine", "=common-name=mine", "=key-size=prime256v1")
    client.ask("/certificate/sign", "=number=mine")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=mine")
    client.close()
    code, text = box.run()
    assert code == 0, text
    assert [row["name"] for row in box.table("/certificate")] == ["mine"]
    box.is_ready()


def test_a_weak_certificate_is_not(box: Desk) -> None:
    client = admin(box)
    client.ask("/certificate/add", "=name=sparkrack", "=common-name=weak", "=key-size=1024")
    client.ask("/certificate/sign", "=number=sparkrack")
    client.ask("/ip/service/set", "=numbers=api-ssl", "=certificate=sparkrack")
    client.close()
    code, text = box.run()
    assert code == 0, text
    assert "api-ssl shows certificate sparkrack-2" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such"], "no-such is no switch of the rack; it has crs812"),
        (["--address", "switch.example"], "switch.example is not an IPv4 address"),
        (["--admin", "password"], "--admin password and --admin-file PATH belong together"),
        (["--admin-file", "x"], "--admin password and --admin-file PATH belong together"),
        (["--password-env", "A"], "--password-env and --password-file exclude one another"),
        (["--prefix", "31"], "31 is not in the range"),
    ],
)
def test_wrong_words(box: Desk, words: list[str], said: str) -> None:
    code, text = box.run(*words)
    assert code == 2
    assert said in " ".join(text.replace("│", " ").split())


def test_ctrl_c_gives_safe_mode_up(box: Desk) -> None:
    box.emulator.control({"op": "fault", "kind": "mute", "match": "/user/set"})
    process = box.start()
    box.until(lambda: "/user/set" in box.writes(), process)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=30)
    assert process.returncode == 1, text
    assert "Traceback" not in text
    assert box.run()[0] == 0
    box.is_ready()


def test_tls_of_a_unit_from_its_box_has_nothing_to_show(box: Desk) -> None:
    """Else these tests would not begin where a unit begins."""
    with pytest.raises(ssl.SSLError):
        RawClient(box.emulator.tls_port, secure=True)
