"""A rebuild passes a switch by only when it takes our login over the pinned certificate."""

from __future__ import annotations

from core.model import load
from sparkrack.maintenance.rebuild_run import switch_works
from tests.emulator.bootstrap_runs import Workdir


def works(workdir: Workdir) -> bool:
    return switch_works(load(workdir.rack), "crs812")


def test_a_switch_from_its_box_does_not(box: Workdir) -> None:
    assert not works(box)
    assert box.failed_logins() == 0


def test_one_after_first_contact_does_until_it_is_reset(box: Workdir) -> None:
    code, text = box.run()
    assert code == 0, text
    assert works(box)
    pinned = box.rack.read_text()
    box.emulator.control({"op": "reset"})
    assert box.rack.read_text() == pinned
    assert not works(box)


def test_one_with_another_password_does_not(box: Workdir) -> None:
    assert box.run()[0] == 0
    box.own.write_text("another-password-0123456789\n")
    assert not works(box)
