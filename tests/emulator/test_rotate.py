"""A new password for our user: made, set, proven, and found again by a run that was cut off."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.fleet import SecretRef, load
from switch import rotate
from switch.bootstrap.contact import opened
from switch.bootstrap.passwords import Password
from switch.errors import CheckError, LoginError, SwitchError
from switch.rotate import Rotation
from tests.emulator.bootstrap_runs import HERE, Desk


@pytest.fixture
def desk(box: Desk) -> Desk:
    """After first contact."""
    code, text = box.run()
    assert code == 0, text
    return box


def run(desk: Desk, *more: str) -> tuple[int, str]:
    words = ["switch", "password", "--rack", str(desk.rack), "--new-file", str(desk.folder / "new"), *more]
    done = CliRunner().invoke(sparkrack, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    desk.keeps_quiet(done.output)
    new = desk.folder / "new"
    assert not new.exists() or new.read_text().strip() not in done.output + desk.emulator.config.log.read_text()
    return done.exit_code, done.output


def lets_in(desk: Desk, name: str) -> bool:
    switch = load(desk.rack).switches["crs812"]
    assert switch.tls
    secret = SecretRef(file=desk.folder / name).resolve()
    try:
        opened(HERE, desk.emulator.tls_port, switch.tls.sha256, switch.user, secret).line.close()
    except LoginError:
        return False
    return True


def test_a_new_one_is_made_and_set_and_proven(desk: Desk) -> None:
    code, text = run(desk)
    assert code == 0, text
    assert "sparkrack has the password of file " in text
    assert "now write it in rack.yaml: password: {file: " in text
    assert (desk.folder / "new").stat().st_mode & 0o777 == 0o600
    assert (lets_in(desk, "new"), lets_in(desk, "own")) == (True, False)


def test_again_finds_it_done(desk: Desk) -> None:
    run(desk)
    before = desk.writes()
    code, text = run(desk)
    assert (code, desk.writes()) == (0, before)
    assert "already" in text


def test_cut_off_after_it_was_made(desk: Desk) -> None:
    Password(SecretRef(file=desk.folder / "new")).make()
    assert (lets_in(desk, "new"), lets_in(desk, "own")) == (False, True)
    assert run(desk)[0] == 0
    assert lets_in(desk, "new")


def test_one_that_does_not_let_us_in_is_taken_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = load(desk.rack).switches["crs812"]
    logins = []

    def second_fails(*words: object) -> object:
        logins.append(words)
        if len(logins) == 2:
            raise SwitchError("nothing answers")
        return opened(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(rotate, "opened", second_fails)
    with pytest.raises(CheckError, match="the old one is set again"):
        Rotation(switch, Password(SecretRef(file=desk.folder / "new")), lambda _: None).run()
    assert (lets_in(desk, "new"), lets_in(desk, "own")) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    # serial: HXXXXXXXXXX ", "    serial: HXXXXXXXXXX #", "the device has serial number"),
        ("password: {file: own}", "password: {file: new}", "refers to file"),
    ],
)
def test_refused_with_nothing_written(desk: Desk, old: str, new: str, why: str) -> None:
    text = desk.rack.read_text()
    assert text.count(old) == 1
    desk.rack.write_text(text.replace(old, new))
    before = desk.writes()
    code, said = run(desk)
    assert code == 1
    assert why in said
    assert desk.writes() == before
    assert not (desk.folder / "new").exists()


def test_without_a_pinned_certificate_nothing_is_sent(box: Desk) -> None:
    code, text = run(box)
    assert code == 1
    assert "rack.yaml pins no certificate" in text
    assert box.failed_logins() == 0


def test_a_weak_one_is_refused(desk: Desk) -> None:
    (desk.folder / "new").write_text("short\n")
    (desk.folder / "new").chmod(0o600)
    before = desk.writes()
    code, text = run(desk)
    assert (code, desk.writes()) == (1, before)
    assert "is too weak for a switch" in text
