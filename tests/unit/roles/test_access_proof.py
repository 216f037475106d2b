"""The proof of the access role on a node like a real one: it passes there, and each thing broken fails it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from testinfra.backend.base import CommandResult

from roles.access import verify
from roles.access.node_key import NAME
from roles.access.sshd_config import SETTINGS
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import calls, stand_in, write
from tests.unit.roles import checked_node
from tests.unit.roles.checked_node import Check, checks, reported

RACK = loaded(SWITCH)
REFUSED = "ops@10.77.0.11: Permission denied (publickey)."
SSH = """\
case "$*" in
"-G spark1") echo "host spark1"; echo "stricthostkeychecking true" ;;
-G*) echo "stricthostkeychecking ask" ;;
*PreferredAuthentications=none*) echo "REFUSED" >&2; exit 255 ;;
esac
""".replace("REFUSED", REFUSED)
SSHD = "\n".join(f"echo '{key.lower()} {value}'" for key, value in SETTINGS.items())
GETENT = """\
case "$*" in
*spark1) for kind in STREAM DGRAM; do echo "10.77.0.11 $kind spark1"; done ;;
*spark2) echo "10.77.0.12 STREAM spark2"; echo "10.77.0.12 DGRAM" ;;
esac
"""
KEYS = "home/ops/.ssh"


class AccessMachine(checked_node.Machine):
    """Its account's home is in its folder."""

    def run(self, command: str, *args: str, **options: object) -> CommandResult:
        return super().run(command.replace("~ops/", f"{self.backend.root}/home/ops/"), *args, **options)


def key(root: Path, path: str) -> str:
    """Make a private key and return its public one."""
    file = root / path
    file.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file], check=True)
    return file.with_suffix(".pub").read_text().strip()


def node(root: Path) -> Path:
    (root / KEYS).mkdir(parents=True, mode=0o700)
    own, other = key(root, f"{KEYS}/{NAME}"), key(root, "other")
    write(root, f"{KEYS}/authorized_keys", f"{own} sparkrack:two:spark1\n{other} sparkrack:two:spark2\n")
    stand_in(root, "runuser", 'shift 3; exec "$@"')
    stand_in(root, "ssh", SSH)
    stand_in(root, "sshd", SSHD)
    stand_in(root, "getent", GETENT)
    stand_in(root, "hostname", "echo spark1")
    stand_in(root, "stat", f'shift 2; exec {shutil.which("stat")} -c "%a ops" "$@"')
    return root


def faults(check: Check, root: Path, **values: Any) -> list[str]:
    return reported(check, root, RACK, machine=AccessMachine(root), **values)


@pytest.mark.parametrize(("check", "values"), checks(verify))
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check, values: dict[str, object]) -> None:
    assert faults(check, node(tmp_path), **values) == []


def goals_tried(root: Path) -> set[str]:
    return {call.split()[-2] for call in calls(root) if call.startswith("ssh -o")}


def test_each_node_is_logged_in_to_by_each_of_its_names(tmp_path: Path) -> None:
    faults(verify.test_logs_in_to_every_node, node(tmp_path))
    own = {"spark1", "10.77.0.11", "192.168.100.1", "192.168.101.1"}
    assert goals_tried(tmp_path) == own | {"spark2", "10.77.0.12", "192.168.100.2", "192.168.101.2"}


def test_an_excluded_node_is_not_logged_in_to(tmp_path: Path) -> None:
    faults(verify.test_logs_in_to_every_node, node(tmp_path), excluded=frozenset({"spark2"}))
    assert goals_tried(tmp_path) == {"spark1", "10.77.0.11", "192.168.100.1", "192.168.101.1"}


TOOLS: dict[tuple[Check, str], dict[str, str]] = {
    (verify.test_logs_in_to_every_node, "ssh"): {
        'case "$*" in *192.168.101.2*) echo "Connection refused" >&2; exit 255;; esac': (
            "spark1 cannot log in to 192.168.101.2: Connection refused"
        ),
    },
    (verify.test_logs_in_to_every_node, "runuser"): {
        "echo 'user ops does not exist' >&2; exit 1": "spark1: logins could not be tried: user ops does not exist",
    },
    (verify.test_host_keys_are_pinned_for_no_one_else, "ssh"): {
        SSH.replace(
            "stricthostkeychecking true", "stricthostkeychecking accept-new"
        ): "spark1: ssh takes new keys of the nodes",
        SSH.replace(
            "checking ask", "checking ask; echo userknownhostsfile sparkrack_hosts"
        ): "spark1: ssh is changed for other hosts than the nodes",
    },
    (verify.test_its_name_is_not_a_loopback, "getent"): {
        "case $* in *spark1) echo 10.77.0.11 STREAM; echo 127.0.1.1 STREAM;; esac": (
            "spark1: $(hostname) stands for 127.0.1.1"
        ),
        "case $* in *spark1) echo ::1 STREAM; echo 10.77.0.11 STREAM;; esac": "spark1: $(hostname) stands for ::1",
        "exit 2": "spark1: $(hostname) does not stand for 10.77.0.11",
    },
    (verify.test_its_name_is_not_a_loopback, "hostname"): {
        "echo ubuntu": "spark1: $(hostname) does not stand for 10.77.0.11",
    },
    (verify.test_every_node_is_known_by_its_name, "getent"): {
        GETENT.replace("10.77.0.12", "10.77.0.99"): "spark1: spark2 is 10.77.0.99",
        GETENT.replace("*spark2)", "nothing)"): "spark1: spark2 is unknown",
    },
    (verify.test_sshd_takes_keys_only, "sshd"): {
        **{
            SSHD.replace(
                f"{setting.lower()} {value}'", f"{setting.lower()} other'"
            ): f"spark1: sshd has not {setting} {value}"
            for setting, value in SETTINGS.items()
        },
    },
    (verify.test_sshd_takes_keys_only, "ssh"): {
        SSH.replace("(publickey)", "(publickey,password)"): "spark1: sshd takes publickey,password, wanted publickey",
        "echo 'Connection timed out' >&2; exit 255": (
            "spark1: sshd does not refuse who offers nothing: Connection timed out"
        ),
    },
    (verify.test_key_is_private_and_its_own, "stat"): {
        "echo 600 root; echo 700 ops": "spark1: the key and its folder are 600 root, 700 ops",
    },
}


@pytest.mark.parametrize(
    ("check", "tool", "script", "says"),
    [(*key, *answer) for key, answers in TOOLS.items() for answer in answers.items()],
)
def test_what_a_tool_says(tmp_path: Path, check: Check, tool: str, script: str, says: str) -> None:
    stand_in(node(tmp_path), tool, script)
    assert faults(check, tmp_path) == [says]


def test_sshd_is_left_alone_where_the_rack_says_so(tmp_path: Path) -> None:
    rack = loaded(changed(SWITCH, ("  user: ops\n", "  user: ops\n  hardening: false\n")))
    stand_in(node(tmp_path), "sshd", "exit 1")
    assert reported(verify.test_sshd_takes_keys_only, tmp_path, rack) == ["skipped: rack.yaml leaves sshd alone"]


@pytest.mark.parametrize("path", ["/etc/tmpfiles.d/sparkrack-access.conf", "/run/sparkrack/access.revert"])
def test_a_change_that_would_be_reverted_fails(tmp_path: Path, path: str) -> None:
    write(node(tmp_path), path)
    assert faults(verify.test_nothing_is_on_trial, tmp_path) == [f"spark1: a change of sshd is still on trial: {path}"]


def test_a_private_key_that_others_read_fails(tmp_path: Path) -> None:
    (node(tmp_path) / KEYS / NAME).chmod(0o644)
    assert faults(verify.test_key_is_private_and_its_own, tmp_path) == [
        "spark1: the key and its folder are 644 ops, 700 ops"
    ]


def test_a_private_key_that_is_not_there_fails(tmp_path: Path) -> None:
    shutil.rmtree(node(tmp_path) / KEYS)
    assert faults(verify.test_key_is_private_and_its_own, tmp_path) == ["spark1: the key and its folder are not there"]


def test_a_file_that_is_not_a_key_fails(tmp_path: Path) -> None:
    (node(tmp_path) / KEYS / NAME).write_text("no key\n")
    assert faults(verify.test_key_is_private_and_its_own, tmp_path) == [f"spark1: {NAME} is not a key that can be used"]


def test_a_key_that_another_node_has_fails(tmp_path: Path) -> None:
    authorized = node(tmp_path) / KEYS / "authorized_keys"
    own, _ = authorized.read_text().splitlines()
    authorized.write_text(f"{own}\n{own.replace(':spark1', ':spark2')}\n")
    assert faults(verify.test_key_is_private_and_its_own, tmp_path) == [
        "spark1: its private key is that of sparkrack:two:spark2 as well"
    ]


def test_a_node_that_does_not_let_another_one_in_fails(tmp_path: Path) -> None:
    authorized = node(tmp_path) / KEYS / "authorized_keys"
    authorized.write_text(authorized.read_text().splitlines()[0] + "\n")
    assert faults(verify.test_key_is_private_and_its_own, tmp_path) == ["spark1: does not accept spark2"]
