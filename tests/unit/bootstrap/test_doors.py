"""How long a node that lets nobody in is waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import SecretStr

from sparkrack.bootstrap.doors import Desk, Doors
from sparkrack.bootstrap.errors import AwayError, ContactError
from sparkrack.bootstrap.passwords import Passwords
from tests.unit.bootstrap.test_hostkeys import made
from tests.unit.fleet.racks import SWITCH, loaded

RACK = loaded(SWITCH)


@dataclass
class Attempts:
    """Fails so often, then succeeds."""

    fails: int
    with_what: type[ContactError] = AwayError
    made: int = field(default=0, init=False)

    def __call__(self) -> int:
        self.made += 1
        if self.made <= self.fails:
            raise self.with_what("no")
        return self.made


def doors(folder: Path, patience: float) -> Doors:
    passwords = Passwords(None, lambda _node, _user: SecretStr("x"))
    desk = Desk(RACK, "", lambda: "nvidia", passwords, folder, patience, lambda _text: None)
    return Doors(desk, RACK.nodes["spark1"], (made(folder),))


def test_a_node_that_is_away_is_asked_again(tmp_path: Path) -> None:
    assert doors(tmp_path, 60).patiently(Attempts(2)) == 3


def test_patience_ends(tmp_path: Path) -> None:
    attempts = Attempts(9)
    with pytest.raises(AwayError):
        doors(tmp_path, 0).patiently(attempts)
    assert attempts.made <= 2


def test_what_waiting_does_not_help_is_not_tried_again(tmp_path: Path) -> None:
    attempts = Attempts(9, ContactError)
    with pytest.raises(ContactError):
        doors(tmp_path, 60).patiently(attempts)
    assert attempts.made == 1


def test_a_door_believes_what_was_said_last(tmp_path: Path) -> None:
    found, other = doors(tmp_path, 0), made(tmp_path)
    found.by_key()
    found.believe([other])
    known = (tmp_path / "spark1.known_hosts").read_text()
    assert known == f"10.77.0.11 {other}\n"
    assert f'UserKnownHostsFile "{tmp_path}/spark1.known_hosts"' in (tmp_path / "spark1.ssh_config").read_text()
