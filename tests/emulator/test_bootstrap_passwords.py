"""First contact: whose password is asked for, made, set and refused."""

from __future__ import annotations

import pytest

from tests.emulator.bootstrap_runs import PROGRAM, MakeBox, Workdir
from tests.emulator.raw_client import RawClient
from tests.own_terminal import Terminal

QUESTION = b"password of admin (on the sticker)"


def typing(box: Workdir, *secrets: bytes) -> tuple[int, bytes]:
    """At a terminal of its own, since a hidden prompt is read from there and nowhere else: exit code and output."""
    with Terminal([PROGRAM, *box.words(password=False)]) as terminal:
        typed = 0
        while terminal.read_more():
            if terminal.shown.encode().count(QUESTION) > typed:
                terminal.type_keys(secrets[typed])
                typed += 1
        return terminal.finish(), terminal.shown.encode()


def test_a_typed_password_in_another_encoding_is_refused(box: Workdir) -> None:
    code, reported = typing(box, b"canary-\xe9-1234\n")
    assert code == 1
    assert reported.endswith(b"the typed password is not UTF-8 text; set the terminal to UTF-8\r\n"), reported
    assert b"canary" not in reported
    assert b"Traceback" not in reported


def test_asked_for_once_and_not_shown(box: Workdir) -> None:
    sticker = box.sticker.read_bytes()
    code, reported = typing(box, sticker)
    assert code == 0, reported.decode()
    assert reported.count(b"password of admin") == 1
    assert sticker.strip() not in reported
    box.is_ready()


def test_a_mistyped_one_is_asked_for_again(box: Workdir) -> None:
    code, reported = typing(box, b"canary-mistyped\n", box.sticker.read_bytes())
    assert code == 0, reported.decode()
    assert b"login as admin refused: invalid user name or password (6); 2 tries left\r\n" in reported
    assert (box.failed_logins(), b"canary" in reported) == (1, False)
    box.is_ready()


def test_three_mistyped_ones_end_the_contact(box: Workdir) -> None:
    code, reported = typing(box, *[b"canary-mistyped\n"] * 3)
    assert (code, box.failed_logins(), box.writes()) == (1, 3, [])
    assert [reported.count(text) for text in (QUESTION, b"2 tries left", b"1 try left")] == [3, 1, 1]
    assert b"Error: crs812: login as admin refused: invalid user name or password (6); no try left" in reported
    assert not box.own.exists()


def test_a_wrong_sticker_password_that_is_kept_is_tried_once(box: Workdir) -> None:
    wrong = "canary-not-the-sticker"
    code, text = box.run("--password-env", "STICKER", password=False, STICKER=wrong)
    assert (code, box.failed_logins(), box.writes()) == (1, 1, [])
    assert text.endswith("\nError: crs812: login as admin refused: invalid user name or password (6)\n")
    assert wrong not in text
    assert not box.own.exists()


def test_no_one_to_ask(box: Workdir) -> None:
    code, text = box.run(password=False)
    assert code == 1
    assert "there is no terminal for a prompt; pass --password-env or --password-file" in text
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


def test_a_password_that_was_changed_here_is_given_again(box: Workdir) -> None:
    box.run("--admin", "password", "--admin-file", str(box.folder / "admin"))
    box.own.write_text("another-password-of-ours-1234\n")
    code, text = box.run("--password-file", str(box.folder / "admin"), "--admin", "disable")
    assert code == 0, text
    assert box.failed_logins() == 1
    assert f"gave sparkrack the password of file {box.own}" in text
    (box.folder / "admin").unlink()
    box.own.write_text(box.own.read_text().strip() + "-made-as-long-as-a-made-one\n")
    assert box.run(password=False)[0] == 1  # there is no terminal for a prompt


def test_admin_gets_a_password_of_its_own(box: Workdir) -> None:
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
