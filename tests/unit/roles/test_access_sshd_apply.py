"""Changing sshd: one node at a time, proven by a new login, taken back where that fails."""

from __future__ import annotations

from typing import Any

import pytest

from roles.access import sshd_apply, sshd_config
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.fakenode import Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, node_of, rack_of


class Stubborn(Answers):
    """Fails the same command each time it comes."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "fails" or value is not None or "fails" not in self.__dict__:
            super().__setattr__(name, value)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.access.sshd_apply.time.sleep", lambda _seconds: None)


def factory(kind: type[Answers] = Answers, **knobs: Any) -> Answers:
    """A node whose sshd is as it comes."""
    late = {sshd_config.DROPIN: None, "access-sshd": "authorizedkeysfile .ssh/authorized_keys\n"}
    return kind(node_of("access") | late, **knobs)


def bring_up(**nodes: Answers) -> Ended:
    rack = rack_of({"rack": [["~/.ssh/id_ed25519", "/nowhere/id_ed25519"]]})
    hosts = {name: {"rack": rack, "node": rack.nodes[name], "answers": answers} for name, answers in nodes.items()}
    return run(hosts, DEPLOYS["access"], "yes")


def taken_back(answers: Answers) -> bool:
    return "/bin/sh /run/sparkrack/access.revert" in answers.sent[-1][0]


def test_not_proven() -> None:
    node = factory(Stubborn, fails="sshd -T |")
    ended = bring_up(spark1=node)
    assert ended.failed == ["spark1"]
    assert "not proven: it failed" in ended.log
    assert "the old sshd configuration is back" in ended.log
    assert taken_back(node)
    assert len([text for text, _ in node.sent if "sshd -T |" in text]) == sshd_apply.ATTEMPTS
    assert node.connections == 1 + sshd_apply.ATTEMPTS


def test_no_new_login() -> None:
    node = factory(refuses=True)
    ended = bring_up(spark1=node)
    assert ended.failed == ["spark1"]
    assert "not proven: a new connection to" in ended.log
    assert taken_back(node)


def test_a_port_that_is_closed_for_a_moment() -> None:
    node = factory(fails="sshd -T |")
    assert bring_up(spark1=node).failed == []
    assert "systemctl stop" in node.sent[-1][0]
    assert not taken_back(node)


@pytest.mark.parametrize("fault", ["systemd-run", "sshd -t -f", "sshd -T |"])
def test_after_a_failure_no_other_is_touched(fault: str) -> None:
    nodes = {"spark1": factory(Stubborn, fails=fault), "spark2": factory(Stubborn, fails=fault)}
    # Both are taken for right but for sshd: what else differs on spark2 is not what this is about.
    ended = bring_up(**nodes)
    assert ended.failed == ["spark1", "spark2"]
    trying = [name for name, answers in nodes.items() if any("tmpfiles.d" in text for text, _ in answers.sent)]
    assert len(trying) == 1
    assert f"not touched, since {trying[0]} failed and nodes change one at a time" in ended.log


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("Include /etc/ssh/sshd_config.d/*.conf", True),
        ('Include "/etc/ssh/sshd_config.d/*.conf"', True),
        ("include=sshd_config.d/*.conf", True),
        ("Include /etc/ssh/other.d/*.conf", False),
        ("Include /etc/ssh/sshd_config.d/10-*.conf", False),
    ],
)
def test_the_line_that_reads_drop_ins(line: str, right: bool) -> None:
    assert (sshd_config.dropin_blockers(loaded(SWITCH), f"/etc/ssh/sshd_config:1:{line}\n") == []) == right


def test_an_include_behind_a_match_does_not_count() -> None:
    reported = sshd_config.dropin_blockers(
        loaded(SWITCH),
        "/etc/ssh/sshd_config:1:Match all\n/etc/ssh/sshd_config:2:Include /etc/ssh/sshd_config.d/*.conf\n",
    )
    assert len(reported) == 1
    assert "does not include" in reported[0]
