"""A new password for our user: made, set, proven, and found again by a run that was cut off."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from core.model import SecretRef, load
from core.routeros.errors import CheckError, LoginError, SwitchError
from sparkrack.cli.main import sparkrack
from switch import password_rotation
from switch.bootstrap.first_contact import open_session
from switch.bootstrap.passwords import Password
from switch.password_rotation import PasswordRotation
from tests.emulator.bootstrap_runs import HERE, Workdir


@pytest.fixture
def workdir(box: Workdir) -> Workdir:
    """After first contact."""
    code, text = box.run()
    assert code == 0, text
    return box


def run(workdir: Workdir, *more: str) -> tuple[int, str]:
    words = ["switch", "password", "--rack", str(workdir.rack), "--new-file", str(workdir.folder / "new"), *more]
    done = CliRunner().invoke(sparkrack, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    workdir.keeps_quiet(done.output)
    new = workdir.folder / "new"
    assert not new.exists() or new.read_text().strip() not in done.output + workdir.emulator.config.log.read_text()
    return done.exit_code, done.output


def lets_in(workdir: Workdir, name: str) -> bool:
    switch = load(workdir.rack).switches["crs812"]
    assert switch.tls
    secret = SecretRef(file=workdir.folder / name).resolve()
    try:
        open_session(HERE, workdir.emulator.tls_port, switch.tls.sha256, switch.user, secret).line.close()
    except LoginError:
        return False
    return True


def test_a_new_one_is_made_and_set_and_proven(workdir: Workdir) -> None:
    code, text = run(workdir)
    assert code == 0, text
    assert "sparkrack has the password of file " in text
    assert "now write it in rack.yaml: password: {file: " in text
    assert (workdir.folder / "new").stat().st_mode & 0o777 == 0o600
    assert (lets_in(workdir, "new"), lets_in(workdir, "own")) == (True, False)


def test_again_finds_it_done(workdir: Workdir) -> None:
    run(workdir)
    before = workdir.writes()
    code, text = run(workdir)
    assert (code, workdir.writes()) == (0, before)
    assert "already" in text


def test_cut_off_after_it_was_made(workdir: Workdir) -> None:
    Password(SecretRef(file=workdir.folder / "new")).make()
    assert (lets_in(workdir, "new"), lets_in(workdir, "own")) == (False, True)
    assert run(workdir)[0] == 0
    assert lets_in(workdir, "new")


def test_one_that_does_not_let_us_in_is_taken_back(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = load(workdir.rack).switches["crs812"]
    logins = []

    def second_fails(*words: object) -> object:
        logins.append(words)
        if len(logins) == 2:
            raise SwitchError("nothing answers")
        return open_session(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(password_rotation, "open_session", second_fails)

    def lost() -> str:
        """With the login, too: the old password is set again all the same."""
        return "the lock is now that of another run" if len(logins) > 1 else ""

    with pytest.raises(CheckError, match="the old one is set again"):
        PasswordRotation(switch, Password(SecretRef(file=workdir.folder / "new")), lambda _: None, lost).run()
    assert (lets_in(workdir, "new"), lets_in(workdir, "own")) == (False, True)


def test_without_the_lock_no_password_is_set(workdir: Workdir) -> None:
    switch, before = load(workdir.rack).switches["crs812"], workdir.writes()

    def lost() -> str:
        """It goes after the switch was read."""
        return "the lock is now that of another run" if (workdir.folder / "new").exists() else ""

    with pytest.raises(SwitchError, match="the lock is now that of another run; nothing more is sent"):
        PasswordRotation(switch, Password(SecretRef(file=workdir.folder / "new")), lambda _: None, lost).run()
    assert workdir.writes() == before
    assert (lets_in(workdir, "new"), lets_in(workdir, "own")) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    # serial: HXXXXXXXXXX ", "    serial: HXXXXXXXXXX #", "the device has serial number"),
        ("password: {file: own}", "password: {file: new}", "refers to file"),
    ],
)
def test_refused_with_nothing_written(workdir: Workdir, old: str, new: str, why: str) -> None:
    text = workdir.rack.read_text()
    assert text.count(old) == 1
    workdir.rack.write_text(text.replace(old, new))
    before = workdir.writes()
    code, reported = run(workdir)
    assert code == 1
    assert why in reported
    assert workdir.writes() == before
    assert not (workdir.folder / "new").exists()


def test_without_a_pinned_certificate_nothing_is_sent(box: Workdir) -> None:
    code, text = run(box)
    assert code == 1
    assert "rack.yaml pins no certificate" in text
    assert box.failed_logins() == 0


def test_a_weak_one_is_refused(workdir: Workdir) -> None:
    (workdir.folder / "new").write_text("short\n")
    (workdir.folder / "new").chmod(0o600)
    before = workdir.writes()
    code, text = run(workdir)
    assert (code, workdir.writes()) == (1, before)
    assert "is too weak for a switch" in text
