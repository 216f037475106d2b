"""What the access role asks and does on a node, run by a real shell in folders like a node's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.ops import host_facts, remote_files
from roles.access import etc_hosts, facts, known_hosts, node_key, sshd_config
from roles.access.desired import NodeAccount
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import calls, rooted, run, stand_in

RACK = loaded(SWITCH)
COMMANDS = host_facts._registered["access"].commands


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose user `ops` has a home without keys."""
    (tmp_path / "home/ops").mkdir(parents=True)
    stand_in(tmp_path, "getent", f"echo 'ops:x:1000:1000::{tmp_path}/home/ops:/bin/bash'")
    stand_in(tmp_path, "chown")
    return tmp_path


def account(node: Path) -> NodeAccount:
    return NodeAccount("ops", 1000, 1000, f"{node}/home/ops")


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node, {"SUDO_USER": "ops"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def found(node: Path) -> node_key.KeyPair:
    return node_key.key_pair(asked(node, facts.KEYS).partition("\n")[2], account(node))


def make(node: Path) -> None:
    done = run(f"set -eu; {node_key.make(account(node), 'spark1')}", node)
    assert done.returncode == 0, done.stderr


def test_a_home_without_keys(node: Path) -> None:
    assert asked(node, facts.KEYS) == f"user ops:x:1000:1000::{node}/home/ops:/bin/bash\n"


def test_a_pair_is_made_and_read_without_its_private_half(node: Path) -> None:
    make(node)
    seen = found(node)
    assert seen.key is not None
    assert seen.public == node_key.public_line(seen.key, "spark1")
    assert {name: thing.mode for name, thing in seen.things.items()} == {
        "folder": "700",
        "private": "600",
        "public": "644",
    }
    private = (node / "home/ops/.ssh/id_sparkrack").read_text()
    assert "PRIVATE" in private
    assert not set(private.splitlines()) & set(asked(node, facts.KEYS).splitlines())
    assert node_key.unusable(seen) is None


def test_what_a_killed_run_has_left_is_removed(node: Path) -> None:
    left = node / "home/ops/.ssh/.id_sparkrack.abc"
    left.mkdir(parents=True)
    (left / "key").write_text("a private key")
    make(node)
    assert sorted(path.name for path in (node / "home/ops/.ssh").iterdir()) == ["id_sparkrack", "id_sparkrack.pub"]


def test_a_key_that_cannot_be_made_leaves_the_old_one(node: Path) -> None:
    make(node)
    old = (node / "home/ops/.ssh/id_sparkrack").read_bytes()
    stand_in(node, "ssh-keygen", "exit 1")
    assert run(f"set -eu; {node_key.make(account(node), 'spark1')}", node).returncode != 0
    assert (node / "home/ops/.ssh/id_sparkrack").read_bytes() == old
    assert len(list((node / "home/ops/.ssh").iterdir())) == 2


def test_a_passphrase_and_a_key_of_no_one(node: Path) -> None:
    make(node)
    key = node / "home/ops/.ssh/id_sparkrack"
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "12345", "-f", str(key)], check=True, capture_output=True)
    assert node_key.unusable(found(node)) == "the private key cannot be read without a passphrase, or is none"
    key.write_text("none\n")
    assert found(node).derived is None


def test_without_an_account_nothing_is_known(node: Path) -> None:
    assert run(COMMANDS[facts.KEYS], node).returncode == 9
    stand_in(node, "getent", "exit 2")
    assert run(COMMANDS[facts.KEYS], node, {"SUDO_USER": "ops"}).returncode == 9


def test_a_link_in_place_of_a_file_is_not_read(node: Path) -> None:
    make(node)
    (node / "secret").write_text("secret")
    (node / "home/ops/.ssh/authorized_keys").symlink_to(node / "secret")
    with pytest.raises(ValueError, match="authorized_keys is a symbolic link and is left alone"):
        found(node)


def ssh_files(node: Path) -> None:
    for path, text in {
        sshd_config.MAIN: "# x\nInclude /etc/ssh/sshd_config.d/*.conf\n#PasswordAuthentication yes\nUsePAM yes\n",
        f"{sshd_config.FOLDER}/50-cloud-init.conf": "\tpasswordauthentication=yes\nX11Forwarding no\n",
    }.items():
        file = Path(f"{node}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_lines_of_sshd(node: Path) -> None:
    ssh_files(node)
    reported = asked(node, facts.SSHD_LINES).replace(str(node), "")
    assert reported.splitlines() == [
        "/etc/ssh/sshd_config:2:Include /etc/ssh/sshd_config.d/*.conf",
        "/etc/ssh/sshd_config.d/50-cloud-init.conf:1:\tpasswordauthentication=yes",
    ]
    assert sshd_config.dropin_blockers(RACK, reported) == []
    assert sshd_config.lines(reported)[1].value == "yes"


def test_lines_of_sshd_without_drop_ins_and_unreadable(node: Path) -> None:
    ssh_files(node)
    (node / f"{sshd_config.FOLDER[1:]}/50-cloud-init.conf").unlink()
    assert len(asked(node, facts.SSHD_LINES).splitlines()) == 1
    Path(f"{node}{sshd_config.MAIN}").unlink()
    assert run(COMMANDS[facts.SSHD_LINES], node).returncode != 0


def test_modes_and_client_where_nothing_is_yet(node: Path) -> None:
    stand_in(node, "ssh")
    assert asked(node, facts.MODES) == ""
    assert asked(node, facts.CLIENT) == ""
    file = Path(f"{node}{known_hosts.CLIENT}")
    file.parent.mkdir(parents=True)
    file.write_bytes(known_hosts.client(RACK))
    asked(node, facts.CLIENT)
    assert calls(node) == [f"ssh -G -F {node}/etc/ssh/ssh_config -- spark1"]


@pytest.mark.parametrize("text", ["", "Host\n", "x\nHost -oProxyCommand=reboot x\n"])
def test_a_drop_in_of_the_client_that_is_not_ours_starts_nothing(node: Path, text: str) -> None:
    stand_in(node, "ssh")
    file = Path(f"{node}{known_hosts.CLIENT}")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert asked(node, facts.CLIENT) == ""
    assert calls(node) == []


def test_cloud_init(node: Path) -> None:
    assert asked(node, facts.CLOUD) == ""
    folder = node / "etc/cloud/cloud.cfg.d"
    folder.mkdir(parents=True)
    (node / "etc/cloud/cloud.cfg").write_text("users: []\nmanage_etc_hosts: true\n")
    (folder / "05.cfg").write_text("manage_etc_hosts: localhost # x\npassword: secret\n")
    reported = asked(node, facts.CLOUD).replace(str(node), "")
    assert "secret" not in reported
    assert etc_hosts.cloud(reported) == etc_hosts.Cloud(writes=True, later=(), user_data=False)
    (folder / "zz-sparkrack.cfg").write_bytes(etc_hosts.CLOUD_TEXT)
    assert etc_hosts.cloud(asked(node, facts.CLOUD).replace(str(node), "")).writes
    (node / "etc/cloud/cloud-init.disabled").touch()
    assert asked(node, facts.CLOUD) == ""


@pytest.mark.parametrize("good", [True, False])
def test_the_drop_in_of_sshd_is_tried_before_it_stands(node: Path, good: bool) -> None:
    ssh_files(node)
    (node / "run/sparkrack").mkdir(parents=True)
    stand_in(node, "sshd", f"cat {node}/run/sparkrack/sshd_config.tried > {node}/seen; exit {0 if good else 1}")
    wanted = sshd_config.dropin(RACK)
    assert wanted
    done = run(remote_files.put_managed(wanted), node)
    assert (done.returncode == 0) == good
    assert Path(f"{node}{sshd_config.DROPIN}").exists() == good
    seen = (node / "seen").read_text().splitlines()
    assert seen[0].startswith(f"Include {node}/etc/ssh/sshd_config.d/.00-sparkrack.conf.")
    assert seen[1:3] == ["# x", "Include /etc/ssh/sshd_config.d/*.conf"]
    assert not (node / "run/sparkrack/sshd_config.tried").exists()
    assert len(list(Path(f"{node}{sshd_config.FOLDER}").iterdir())) == (2 if good else 1)


@pytest.mark.parametrize("before", [None, b"# old 'x' $(reboot)\nPort 22\n"])
def test_the_way_back(node: Path, before: bytes | None) -> None:
    ssh_files(node)
    stand_in(node, "systemctl")
    (node / "etc/tmpfiles.d").mkdir()
    for path in (sshd_config.DROPIN, sshd_config.AT_BOOT):
        Path(f"{node}{path}").write_text("new\n")
    assert run(sshd_config.revert(before), node).returncode == 0
    file = Path(f"{node}{sshd_config.DROPIN}")
    assert (file.read_bytes() if file.exists() else None) == before
    assert not Path(f"{node}{sshd_config.AT_BOOT}").exists()
    assert calls(node) == ["systemctl try-reload-or-restart ssh.service"]


SHOWN = "\n".join(f"{key.lower()} {value}" for key, value in sshd_config.SETTINGS.items())
REFUSED = "echo 'ops@10.77.0.11: Permission denied (publickey).' >&2; exit 255"


@pytest.mark.parametrize(
    ("shows", "answers", "fault"),
    [
        (SHOWN, REFUSED, ""),
        (SHOWN.replace("30:30", "10:30"), REFUSED, "sshd -T does not show"),
        ("", REFUSED, "sshd -T does not show"),
        (SHOWN, REFUSED.replace("(publickey", "(publickey,password"), "login without a key: ops@10.77.0.11: Perm"),
        (SHOWN, "exit 0", "sshd does not refuse a login without a key: \n"),
        (SHOWN, "echo refused >&2; exit 255", "sshd does not refuse a login without a key: refused"),
    ],
)
def test_the_proof(node: Path, shows: str, answers: str, fault: str) -> None:
    stand_in(node, "sshd", f"echo 'port 22'; echo '{shows}'")
    stand_in(node, "ssh", answers)
    done = run(sshd_config.proof(RACK, "10.77.0.11"), node)
    assert (done.returncode == 0) == (not fault), done.stdout
    assert fault in done.stdout


def test_where_sshd_is_left_alone_the_login_is_the_proof() -> None:
    rack = loaded(changed(SWITCH, ("  known_hosts: known_hosts", "  known_hosts: known_hosts\n  hardening: false")))
    assert sshd_config.proof(rack, "10.77.0.11") == "true"


def test_ssh_that_does_not_read_the_drop_in_is_reported(node: Path) -> None:
    stand_in(node, "ssh", "echo globalknownhostsfile /etc/ssh/ssh_known_hosts")
    done = run(f"set -eu; {known_hosts.proof(RACK.nodes['spark1'])}", node)
    assert done.returncode == 1
    assert "ssh does not read" in done.stderr
    stand_in(node, "ssh", f"echo globalknownhostsfile {node}/etc/ssh/sparkrack_known_hosts")
    assert run(f"set -eu; {known_hosts.proof(RACK.nodes['spark1'])}", node).returncode == 0


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in COMMANDS.values():
        for top in ("/etc/", "/run/", "/var/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")
