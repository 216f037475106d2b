"""The proof of the journals that leave a node: it passes on nodes that are right, and each thing broken fails it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from core.model import Rack
from core.verify.reporter import CheckReporter
from roles.blackbox import certificate_authority, journal_stream, netconsole, verify
from roles.blackbox.certificate_authority import RackAuthority
from roles.blackbox.options import BlackboxOptions
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in
from tests.unit.roles.checked_node import CheckOutcomes, Machine
from tests.unit.roles.test_blackbox_certificates import key

RIGHT = {
    "receive active": "active",
    "receive enabled": "enabled",
    "upload active": "active",
    "upload enabled": "enabled",
    "listens": "10.77.0.11:19532",
    "udp": "10.77.0.11:6666",
    "netconsole active": "active",
    "timer enabled": "enabled",
    "mode": "600 root:root",
    "name": "spark1",
    "arrives": "yes",
}


def rack(remote: str = "tls") -> Rack:
    return loaded(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{remote: {remote}}}")))


def node(root: Path, **broken: str) -> Path:
    """A node whose tools answer as one that is right, but for these; its certificates are real."""
    shown = {**RIGHT, **broken}
    (root / "etc").mkdir(parents=True)
    stand_in(
        root,
        "systemctl",
        f"""case "$*" in
*{journal_stream.RECEIVE}) echo ActiveState={shown["receive active"]}; echo UnitFileState={shown["receive enabled"]};;
*{netconsole.RECEIVE}) echo ActiveState={shown["netconsole active"]}; echo UnitFileState=enabled;;
*{netconsole.TIMER}) echo ActiveState=active; echo UnitFileState={shown["timer enabled"]};;
*) echo ActiveState={shown["upload active"]}; echo UnitFileState={shown["upload enabled"]};; esac""",
    )
    lines = ["0.0.0.0:22", *shown["listens"].split()]
    udp = ["0.0.0.0:68", *shown["udp"].split()]
    stand_in(
        root,
        "ss",
        f"""case $1 in *t*) set -- {" ".join(lines)} ;; *) set -- {" ".join(udp)} ;; esac
for a in "$@"; do echo "LISTEN 0 64 $a 0.0.0.0:*"; done""",
    )
    stand_in(root, "stat", f"echo {shlex.quote(shown['mode'])}")
    stand_in(root, "logger", f'echo "$3" > {root}/marker')
    public = key(root)
    RackAuthority(root, "two").make()
    authority = RackAuthority(root, "two")
    folder = root / journal_stream.FOLDER.lstrip("/")
    (folder / "node.pem").write_bytes(authority.sign(public, shown["name"], "10.77.0.11"))
    (folder / "ca.pem").write_bytes(authority.pem or b"")
    return root


def outcomes(
    root: Path, found: Rack, excluded: frozenset[str] = frozenset(), received: str = ""
) -> tuple[list[str], list[str]]:
    """What fails, and what is skipped. `received`: the only text that the other node has."""
    one, machine, declared = found.nodes["spark1"], Machine(root), found.options(BlackboxOptions)
    other = root / "spark2"
    stand_in(other, "journalctl", f"echo {received}" if received else f"[ -e {root}/marker ] && cat {root}/marker")
    seen = CheckOutcomes()
    seen.run(
        verify.test_journals_are_received_at_the_management_address, one, machine, found, declared, CheckReporter([])
    )
    seen.run(verify.test_the_node_has_its_own_certificate, one, machine, found, CheckReporter([]))
    machines = {"spark2": Machine(other)}
    seen.run(verify.test_the_journal_arrives_at_another_node, one, machine, found, machines, excluded)
    return seen.failed, seen.skipped


def test_a_node_that_is_right(tmp_path: Path) -> None:
    assert outcomes(node(tmp_path), rack()) == ([], [])


BROKEN: list[tuple[dict[str, str], str]] = [
    ({"receive active": "failed"}, f"{journal_stream.RECEIVE} is failed, wanted active"),
    ({"receive enabled": "disabled"}, f"{journal_stream.RECEIVE} is disabled, wanted enabled"),
    ({"upload active": "activating"}, f"{journal_stream.UPLOAD} is activating, wanted active"),
    ({"upload enabled": "disabled"}, f"{journal_stream.UPLOAD} is disabled, wanted enabled"),
    ({"listens": ""}, "journals are received at no address, wanted 10.77.0.11:19532"),
    ({"listens": "0.0.0.0:19532"}, "journals are received at 0.0.0.0:19532, wanted 10.77.0.11:19532"),
    (
        {"listens": "10.77.0.11:19532 [::]:19532"},
        "journals are received at 10.77.0.11:19532, [::]:19532, wanted 10.77.0.11:19532",
    ),
    ({"mode": "644 root:root"}, f"{journal_stream.KEY} is 644 root:root, wanted 600 root:root"),
]


@pytest.mark.parametrize(("broken", "reported"), BROKEN, ids=[reported for _, reported in BROKEN])
def test_what_is_broken_fails(tmp_path: Path, broken: dict[str, str], reported: str) -> None:
    assert outcomes(node(tmp_path, **broken), rack())[0] == [f"spark1: {reported}"]


def test_a_certificate_for_another_node_fails(tmp_path: Path) -> None:
    (failed,) = outcomes(node(tmp_path, name="spark2"), rack())[0]
    assert failed.startswith(f"spark1: openssl refuses {journal_stream.CERTIFICATE} as sslserver: ")


def test_a_certificate_of_another_key_fails(tmp_path: Path) -> None:
    root = node(tmp_path)
    key(root)
    assert outcomes(root, rack())[0] == [f"spark1: {journal_stream.CERTIFICATE} is not of {journal_stream.KEY}"]


def test_a_certificate_that_is_about_to_end_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_authority, "NODE_DAYS", 29)
    assert outcomes(node(tmp_path / "a"), rack())[0] == [
        f"spark1: {journal_stream.CERTIFICATE} ends within 30 days; run sparkrack apply --only blackbox"
    ]
    monkeypatch.setattr(certificate_authority, "NODE_DAYS", 31)
    assert outcomes(node(tmp_path / "b"), rack())[0] == []


def test_a_port_that_is_open_where_no_journal_comes_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_stream, "senders", lambda _rack, _node: ())
    assert outcomes(node(tmp_path / "a"), rack())[0] == [
        "spark1: journals are received at 10.77.0.11:19532, wanted no address"
    ]
    assert outcomes(node(tmp_path / "b", listens=""), rack())[0] == []


def test_a_line_that_does_not_arrive_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "ARRIVAL_SECONDS", 0)
    (failed,) = outcomes(node(tmp_path), rack(), received="older-line")[0]
    assert failed.startswith("spark1: a line of its journal did not reach spark2 within 0 s; see `journalctl --unit=")


def test_what_is_skipped(tmp_path: Path) -> None:
    stays = "rack.yaml has the journal stay on its node"
    assert outcomes(node(tmp_path / "a"), rack("false")) == (
        [],
        [stays, "rack.yaml declares nothing that is encrypted", stays],
    )
    root = node(tmp_path / "b")
    assert outcomes(root, rack("plain")) == ([], ["rack.yaml declares nothing that is encrypted"])
    assert outcomes(root, rack(), frozenset({"spark2"}))[1] == ["spark2, which receives the journal, is excluded"]


def kernel_outcomes(
    root: Path, arrives: bool = True, section: str = "netconsole: plain"
) -> tuple[list[str], list[str]]:
    """What fails, and what is skipped, of the messages of the kernel."""
    found = loaded(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{{section}}}")))
    one, declared = found.nodes["spark1"], found.options(BlackboxOptions)
    sent = root / "kmsg"
    machine = Machine(root)
    other = root / "spark2"
    stand_in(root, "sh", f'case "$2" in *kmsg*) printf "%s" "$2" > {sent};; esac')
    stand_in(other, "tail", f"cat {sent}" if arrives else "exit 1")
    seen = CheckOutcomes()
    seen.run(
        verify.test_kernel_messages_are_received_at_the_management_address,
        one,
        machine,
        found,
        declared,
        CheckReporter([]),
    )
    machines = {"spark2": Machine(other)}
    nothing = frozenset[str]()
    seen.run(verify.test_the_kernel_messages_arrive_at_another_node, one, machine, found, machines, nothing)
    return seen.failed, seen.skipped


def test_kernel_messages_that_arrive(tmp_path: Path) -> None:
    assert kernel_outcomes(node(tmp_path)) == ([], [])
    stays = "rack.yaml has the messages of the kernel stay on its node"
    assert kernel_outcomes(tmp_path, section="remote: tls") == ([], [stays, stays])


@pytest.mark.parametrize(
    ("broken", "reported"),
    [
        ({"netconsole active": "failed"}, f"{netconsole.RECEIVE} is failed, wanted active"),
        ({"timer enabled": "disabled"}, f"{netconsole.TIMER} is disabled, wanted enabled"),
        ({"udp": "0.0.0.0:6666"}, "messages of kernels are received at 0.0.0.0:6666, wanted 10.77.0.11:6666"),
        ({"udp": ""}, "messages of kernels are received at no address, wanted 10.77.0.11:6666"),
    ],
)
def test_kernel_messages_that_are_broken(tmp_path: Path, broken: dict[str, str], reported: str) -> None:
    assert kernel_outcomes(node(tmp_path, **broken))[0] == [f"spark1: {reported}"]


def test_a_kernel_message_that_does_not_arrive_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "ARRIVAL_SECONDS", 0)
    (failed,) = kernel_outcomes(node(tmp_path), arrives=False)[0]
    assert failed.startswith("spark1: a message of its kernel did not reach spark2 within 0 s; see `journalctl --unit=")
