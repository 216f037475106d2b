"""What a node says of itself, and what is missing on it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from core.probes import protocol
from sparkrack.bootstrap.node_facts import (
    FileStat,
    LocalAccount,
    NodeState,
    _list_questions,
    host_keys,
    look,
    parse_node_state,
)
from sparkrack.bootstrap.steps import CLOUD_TEXT, set_up_for_another, steps, with_name
from sparkrack.node_login.errors import BootstrapError
from tests.unit.probe_output import decode_answers, encode_answers, probe_output

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHGvp0Yx9yRxkJ8y3T5oNo6h1Yq3T1r0bq9bC4m3r7aF operator"
SUDOERS = b"# Written by sparkrack: runs log in as ops and become root.\nops ALL=(ALL:ALL) NOPASSWD: ALL\n"
READY = NodeState(
    account=LocalAccount(1001, "/home/ops", "/bin/bash", frozenset({"ops", "sudo", "docker"})),
    groups=frozenset({"sudo", "docker"}),
    things={
        "home": FileStat("directory", 1001, 0o750),
        "folder": FileStat("directory", 1001, 0o700),
        "authorized": FileStat("regular file", 1001, 0o600),
        "sudoers": FileStat("regular file", 0, 0o440),
    },
    authorized=f"# someone's\nssh-rsa AAAA x\n{KEY}\n".encode(),
    sudoers=SUDOERS,
    name="spark1",
    static_name="spark1",
    hosts=b"127.0.0.1 localhost\n127.0.1.1 spark1\n",
    cloud=True,
    cloud_text=CLOUD_TEXT,
    keys={},
    machine_id="0" * 32,
)


def missing(found: NodeState) -> list[str]:
    return [step.what for step in steps(found, "ops", "spark1", KEY)]


def test_a_node_that_is_ready_lacks_nothing() -> None:
    assert missing(READY) == []


CASES: dict[str, tuple[NodeState, list[str]]] = {
    "a group": (
        replace(READY, account=LocalAccount(1001, "/home/ops", "/bin/bash", frozenset({"ops", "sudo"}))),
        ["put ops into docker"],
    ),
    "no home": (
        replace(READY, things={"sudoers": READY.things["sudoers"]}, authorized=b""),
        ["make the home of ops, /home/ops", "let the operator's key in as ops"],
    ),
    "a key that is commented out": (
        replace(READY, authorized=f"# {KEY}\n".encode()),
        ["let the operator's key in as ops"],
    ),
    "a key file that others may write": (
        replace(READY, things={**READY.things, "authorized": FileStat("regular file", 1001, 0o666)}),
        ["put authorized_keys of ops right"],
    ),
    "a key file of root's": (
        replace(READY, things={**READY.things, "authorized": FileStat("regular file", 0, 0o600)}),
        ["put authorized_keys of ops right"],
    ),
    "a drop-in that is not as it should be": (
        replace(READY, sudoers=SUDOERS + b"#"),
        ["let ops use sudo without a password"],
    ),
    "a drop-in that others may read": (
        replace(READY, things={**READY.things, "sudoers": FileStat("regular file", 0, 0o644)}),
        ["let ops use sudo without a password"],
    ),
    "a drop-in that is a link": (
        replace(READY, things={**READY.things, "sudoers": FileStat("symbolic link", 0, 0o440)}),
        ["let ops use sudo without a password"],
    ),
    "cloud-init": (replace(READY, cloud_text=None), ["configure cloud-init to keep the host name"]),
    "no cloud-init": (replace(READY, cloud=False, cloud_text=None), []),
    "another name at boot": (replace(READY, static_name="spark-1a2b"), ["call it spark1 instead of spark1"]),
    "another name": (
        replace(READY, name="spark-1a2b", hosts=b"127.0.1.1 spark-1a2b\n"),
        ["let spark1 stand for itself in /etc/hosts", "call it spark1 instead of spark-1a2b"],
    ),
    "a whole name": (replace(READY, name="spark1.lan", static_name="spark1.lan"), []),
}


def test_a_node_that_is_declared_with_its_domain_has_its_name() -> None:
    whole = replace(READY, name="spark1.lan", static_name="spark1.lan", hosts=b"127.0.1.1 spark1.lan\n")
    assert steps(whole, "ops", "spark1.lan", KEY) == []
    (step,) = steps(replace(whole, static_name="spark1"), "ops", "spark1.lan", KEY)
    assert step.what == "call it spark1.lan instead of spark1.lan"


@pytest.mark.parametrize("name", CASES)
def test_what_is_missing_is_named(name: str) -> None:
    found, expected = CASES[name]
    assert missing(found) == expected


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            replace(READY, account=LocalAccount(1, "/h", "/usr/sbin/nologin", frozenset())),
            "has /usr/sbin/nologin for a shell",
        ),
        (
            replace(READY, account=LocalAccount(1001, "/home/ops", "/usr/bin/tcsh", frozenset({"sudo", "docker"}))),
            "has /usr/bin/tcsh for a shell, which no run supports; on the node: chsh -s /bin/bash ops",
        ),
        (replace(READY, things={**READY.things, "folder": FileStat("symbolic link", 1001, 0o777)}), "symbolic link"),
        (replace(READY, things={**READY.things, "authorized": FileStat("regular file", 1002, 0o600)}), "number 1002"),
    ],
)
def test_what_only_a_person_can_repair_stops(found: NodeState, why: str) -> None:
    with pytest.raises(BootstrapError, match=why):
        missing(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"127.0.1.1 spark1\n"),
        (b"127.0.0.1 localhost", b"127.0.0.1 localhost\n127.0.1.1 spark1\n"),
        (b"127.0.1.1\told.lan\told # mine\n\xff", b"127.0.1.1\told.lan\tspark1 # mine\n\xff"),
        (b"127.0.1.1 older\n", b"127.0.1.1 older\n127.0.1.1 spark1\n"),
        (b"# old\n10.77.0.11 spark1\n", b"# old\n10.77.0.11 spark1\n"),
        (b"127.0.1.1 old#spark1\n", b"127.0.1.1 spark1#spark1\n"),
    ],
)
def test_the_name_comes_into_etc_hosts_and_every_other_byte_stays(before: bytes, after: bytes) -> None:
    assert with_name(before, "spark1", "old") == after


def answer(**changes: str | tuple[int, str] | None) -> bytes:
    """What the script prints of a node, with other values, or without some."""
    reported: dict[str, str | tuple[int, str] | None] = {
        **dict.fromkeys(_list_questions("ops"), ""),
        "groups": "sudo ",
        "name": "spark1\n",
        "static": "spark1\n",
        "machine-id": "0" * 32 + "\n",
        "keys": f"/etc/ssh/k {KEY}\n",
        **changes,
    }
    return probe_output({name: value for name, value in reported.items() if value is not None}).encode()


def test_the_script_is_one_that_a_shell_runs() -> None:
    """On this machine, for a user that does not exist and for one that does."""
    for user, home in (("no-such-user", None), ("root", "/root")):
        done = subprocess.run(["sh", "-c", look(user)], capture_output=True, text=True, check=True)
        found = protocol.parse(done.stdout, _list_questions(user))
        assert not found.unknown
        assert {name for name, one in found.commands.items() if one.code} <= {"keys"}, "sshd may not be installed"
        account = found.commands["account"].text
        assert account.split(":")[5:6] == ([home] if home else [])
        assert bool(found.commands["thing-home"].output) == bool(home)


def test_an_answer_is_read() -> None:
    found = parse_node_state(answer())
    assert (found.account, found.name, found.machine_id, found.cloud) == (None, "spark1", "0" * 32, False)
    assert parse_node_state(answer(**{"machine-id": "uninitialized\n"})).machine_id == ""
    assert parse_node_state(
        answer(account="ops:x:1001:1001::/home/ops:/bin/bash", member="ops")
    ).account == LocalAccount(1001, "/home/ops", "/bin/bash", frozenset({"ops"}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"keys": (255, "Bad configuration option: x\n")}, "its keys cannot be read: Bad configuration option: x"),
        ({"missing": "visudo "}, "lacks visudo"),
        ({"missing": "sshd ", "keys": (127, "")}, "lacks sshd"),
        ({"missing": None}, "does not report its missing"),
        ({"groups": None}, "does not report its groups"),
        ({"name": ""}, "host name"),
        ({"name": "a\x1bb"}, "host name"),
        ({"machine-id": "0123"}, "machine-id"),
        ({"keys": ""}, "no host key"),
        ({"keys": None}, "does not report its keys"),
        ({"keys": f"/etc/$(x) {KEY}"}, "strange path"),
        ({"keys": "/etc/k ssh-rsa AAAA"}, "is not a host key"),
        ({"account": "ops:x"}, "its user"),
        ({"member": None}, "does not report its member"),
        ({"thing-home": "directory"}, "a file status cannot be parsed"),
    ],
)
def test_an_answer_that_is_not_understood_is_no_answer(
    changes: dict[str, str | tuple[int, str] | None], why: str
) -> None:
    with pytest.raises(BootstrapError, match=why.replace("$", r"\$")) as fault:
        parse_node_state(answer(**changes))
    assert str(fault.value).isprintable()


def test_a_garbled_answer_is_no_answer() -> None:
    answers = decode_answers(answer().decode()) | {"name": (b"spark1", b"!")}
    with pytest.raises(BootstrapError, match="cannot be read: name: "):
        parse_node_state(encode_answers((name, text, code.decode()) for name, (text, code) in answers.items()).encode())


@pytest.mark.parametrize("lost", [1, 20, 10_000])
def test_an_answer_that_is_cut_off_is_not_whole(lost: int) -> None:
    with pytest.raises(BootstrapError, match="cannot be used"):
        parse_node_state(answer()[: -lost - 1])


def test_host_keys_go_by_their_file() -> None:
    assert [str(key) for key in host_keys(f"/etc/ssh/k {KEY}\n".encode()).values()] == [KEY.removesuffix(" operator")]


def test_a_node_that_another_user_set_up_is_not_taken_over_by_one_whom_no_file_names() -> None:
    assert set_up_for_another(READY, "ops") == ""
    assert set_up_for_another(replace(READY, sudoers=None), "bob") == ""
    assert set_up_for_another(READY, "bob") == (
        "it was set up for the user ops, and rack.yaml names none, so that would become bob, who runs this; "
        "write access: {user: ops}, or {user: bob} to change it"
    )
