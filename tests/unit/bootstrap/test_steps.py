"""What a node says of itself, and what is missing on it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from sparkrack.bootstrap.errors import ContactError
from sparkrack.bootstrap.reading import Account, Seen, Thing, host_keys, seen
from sparkrack.bootstrap.steps import CLOUD_TEXT, steps, with_name

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHGvp0Yx9yRxkJ8y3T5oNo6h1Yq3T1r0bq9bC4m3r7aF operator"
SUDOERS = b"# Written by sparkrack: runs log in as ops and become root.\nops ALL=(ALL:ALL) NOPASSWD: ALL\n"
READY = Seen(
    account=Account(1001, "/home/ops", "/bin/bash", frozenset({"ops", "sudo", "docker"})),
    groups=frozenset({"sudo", "docker"}),
    things={
        "home": Thing("directory", 1001, 0o750),
        "folder": Thing("directory", 1001, 0o700),
        "authorized": Thing("regular file", 1001, 0o600),
        "sudoers": Thing("regular file", 0, 0o440),
    },
    authorized=f"# somebody's\nssh-rsa AAAA x\n{KEY}\n".encode(),
    sudoers=SUDOERS,
    name="spark1",
    static_name="spark1",
    hosts=b"127.0.0.1 localhost\n127.0.1.1 spark1\n",
    cloud=True,
    cloud_text=CLOUD_TEXT,
    keys={},
    machine_id="0" * 32,
)


def missing(found: Seen) -> list[str]:
    return [step.what for step in steps(found, "ops", "spark1", KEY)]


def test_a_node_that_is_ready_lacks_nothing() -> None:
    assert missing(READY) == []


CASES: dict[str, tuple[Seen, list[str]]] = {
    "a group": (
        replace(READY, account=Account(1001, "/home/ops", "/bin/bash", frozenset({"ops", "sudo"}))),
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
        replace(READY, things={**READY.things, "authorized": Thing("regular file", 1001, 0o666)}),
        ["put authorized_keys of ops right"],
    ),
    "a key file of root's": (
        replace(READY, things={**READY.things, "authorized": Thing("regular file", 0, 0o600)}),
        ["put authorized_keys of ops right"],
    ),
    "a drop-in that is not as it should be": (
        replace(READY, sudoers=SUDOERS + b"#"),
        ["let ops use sudo without a password"],
    ),
    "a drop-in that others may read": (
        replace(READY, things={**READY.things, "sudoers": Thing("regular file", 0, 0o644)}),
        ["let ops use sudo without a password"],
    ),
    "a drop-in that is a link": (
        replace(READY, things={**READY.things, "sudoers": Thing("symbolic link", 0, 0o440)}),
        ["let ops use sudo without a password"],
    ),
    "cloud-init": (replace(READY, cloud_text=None), ["tell cloud-init to leave the host name alone"]),
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
            replace(READY, account=Account(1, "/h", "/usr/sbin/nologin", frozenset())),
            "has /usr/sbin/nologin for a shell",
        ),
        (replace(READY, things={**READY.things, "folder": Thing("symbolic link", 1001, 0o777)}), "symbolic link"),
        (replace(READY, things={**READY.things, "authorized": Thing("regular file", 1002, 0o600)}), "number 1002"),
    ],
)
def test_what_only_a_person_can_repair_stops(found: Seen, why: str) -> None:
    with pytest.raises(ContactError, match=why):
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


def answer(**changes: str | None) -> bytes:
    """What the script prints of a node, with other values, or without some."""
    said: dict[str, str | None] = {
        "missing": "",
        "groups": "sudo ",
        "name": "spark1\n",
        "static": "spark1\n",
        "hosts": "",
        "machine-id": "0" * 32 + "\n",
        "keys": f"/etc/ssh/k {KEY}\n",
        "end": "whole",
        **changes,
    }
    lines = [f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in said.items() if text is not None]
    return "\n".join(lines).encode()


def test_an_answer_is_read() -> None:
    found = seen(answer())
    assert (found.account, found.name, found.machine_id, found.cloud) == (None, "spark1", "0" * 32, False)
    assert seen(answer(**{"machine-id": "uninitialized\n"})).machine_id == ""
    assert seen(answer(account="ops:x:1001:1001::/home/ops:/bin/bash", member="ops")).account == Account(
        1001, "/home/ops", "/bin/bash", frozenset({"ops"})
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"end": None}, "is not whole"),
        ({"end": "half"}, "is not whole"),
        ({"missing": "visudo "}, "lacks visudo"),
        ({"missing": None}, "does not say its missing"),
        ({"groups": None}, "does not say its groups"),
        ({"name": ""}, "host name"),
        ({"name": "a\x1bb"}, "host name"),
        ({"machine-id": "0123"}, "machine-id"),
        ({"keys": None}, "no host key"),
        ({"keys": f"/etc/$(x) {KEY}"}, "strange path"),
        ({"keys": "/etc/k ssh-rsa AAAA"}, "is no host key"),
        ({"account": "ops:x"}, "its user"),
        ({"account": "ops:x:1:1::/h:/bin/sh"}, "does not say its member"),
        ({"thing-home": "directory"}, "a file cannot be told"),
    ],
)
def test_an_answer_that_is_not_understood_is_no_answer(changes: dict[str, str | None], why: str) -> None:
    with pytest.raises(ContactError, match=why.replace("$", r"\$")) as fault:
        seen(answer(**changes))
    assert str(fault.value).isprintable()
    with pytest.raises(ContactError):
        seen(answer().replace(b"name ", b"name !"))


def test_host_keys_go_by_their_file() -> None:
    assert [str(key) for key in host_keys(f"/etc/ssh/k {KEY}\n".encode()).values()] == [KEY.removesuffix(" operator")]
