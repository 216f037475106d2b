"""What stops a first contact: said in one line, with nothing changed and nothing secret sent."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from core.ssh.host_keys import HostKey, pin, pinned
from sparkrack.node_login.errors import BootstrapError
from sparkrack.node_login.key_shell import ShellResult
from sparkrack.node_login.password_shell import open_password_shell
from tests.contact.conftest import Rack
from tests.contact.nodes import PASSWORD, PATIENCE, Node, Operator, Seed
from tests.contact.nodes import Done as Ended


def attempts(node: Node) -> int:
    """How many passwords its sshd has judged."""
    return node.log.count(" password for ")


def another_key(operator: Operator) -> HostKey:
    """One that no node has."""
    file = operator.folder / "another"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return HostKey.parse(file.with_suffix(".pub").read_text())


def refused(operator: Operator, reported: str, *words: str, secret: bool = True, vouched: bool = True) -> Ended:
    """A run that stops at spark1, for this reason, and leaves it as it was."""
    node = operator.nodes["spark1"]
    before = node.state()
    done = operator.run(*words, secret=secret, vouched=vouched)
    assert done.code == 1, done
    assert reported in done.output, done.output
    assert [line for line in done.errors.splitlines() if line.startswith("spark1: ")], done.errors
    assert node.state() == before
    return done


def test_another_host_key_than_the_pinned_one_stops_before_anything_is_sent(rack: Rack) -> None:
    operator = rack()
    node, other = operator.nodes["spark1"], another_key(operator)
    pin(operator.known_hosts, node.address, node.port, [other])
    done = refused(operator, "pass --replace-host-key; nothing was sent")
    assert other.fingerprint in done.errors
    assert node.keys["ssh-ed25519"].fingerprint in done.errors
    assert attempts(node) == 0
    assert pinned(operator.known_hosts, node.address, node.port) == (other,)
    wrong = refused(operator, "its host key was not confirmed", "--replace-host-key", vouched=False)
    assert "pass --host-keys" in wrong.errors
    assert pinned(operator.known_hosts, node.address, node.port) == (other,), "only a confirmed key replaces one"
    again = operator.run("--replace-host-key")
    assert again.code == 0, again
    assert set(pinned(operator.known_hosts, node.address, node.port)) == set(node.keys.values())


def test_a_fingerprint_that_the_console_did_not_show_stops(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    operator.consoles.write_text(f"spark1 {another_key(operator).fingerprint}\n")
    refused(operator, f"and {operator.consoles} has SHA256:")
    operator.consoles.write_text(f"spark9 {node.keys['ssh-ed25519'].fingerprint}\n")
    refused(operator, f"{operator.consoles} has none for it; nothing was sent")
    assert attempts(node) == 0
    assert not operator.known_hosts.exists()


def test_a_known_hosts_file_vouches_as_well(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    operator.consoles.write_text(f"[{node.address}]:{node.port} {node.keys['ssh-ed25519']}\n")
    assert operator.run("--dry").code == 0


def test_a_wrong_password_by_reference_is_tried_once_on_each_node(rack: Rack) -> None:
    operator = rack(Seed(), Seed(machine_id="f" * 32))
    operator.give("not the password")
    refused(operator, "is wrong there; tried once, so that no account is locked; nothing was changed")
    assert [attempts(node) for node in operator.nodes.values()] == [1, 1]


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a node, and the message about it."""

    breaks: str
    reported: str


TROUBLES = {
    "sudo is not there": Trouble("mv /usr/bin/sudo /usr/bin/sudo.away", "gets no root by sudo"),
    "sudo refuses": Trouble("gpasswd -d nvidia sudo", "gets no root by sudo"),
    "sudo takes another password": Trouble(
        "echo 'Defaults rootpw' > /etc/sudoers.d/r; chmod 440 /etc/sudoers.d/r", "sudo does not take the password"
    ),
    "sudo wants a terminal": Trouble(
        "echo 'Defaults requiretty' > /etc/sudoers.d/r; chmod 440 /etc/sudoers.d/r", "gets no root by sudo"
    ),
    "no passwords by ssh": Trouble(
        "echo 'PasswordAuthentication no' > /etc/ssh/sshd_config.d/t.conf; kill -HUP 1", "sshd takes no passwords"
    ),
    "no visudo": Trouble("mv /usr/sbin/visudo /usr/sbin/visudo.away", "lacks visudo; is it DGX OS"),
    "hostile name": Trouble(
        "printf 'x\\033[2Jy' > /proc/sys/kernel/hostname", "its host name cannot be parsed: x\\x1b[2Jy"
    ),
    "hostile answer": Trouble(
        'printf \'#!/bin/sh\\nprintf "\\033]0;owned\\007%s" "$*"; exit 0\\n\' > /usr/local/bin/base64; '
        "chmod 755 /usr/local/bin/base64",
        "what it says of itself cannot be used: it is garbled, or base64 or mktemp of the node does not work",
    ),
}


def test_what_is_wrong_with_each_node_is_said_and_nothing_is_changed(rack: Rack) -> None:
    operator = rack(*(Seed() for _ in TROUBLES))
    for node, trouble in zip(operator.nodes.values(), TROUBLES.values(), strict=True):
        node.ask(trouble.breaks)
    before = [node.state() for node in operator.nodes.values()]
    done = operator.run()
    assert done.code == 1, done
    for (name, node), (what, trouble), state in zip(operator.nodes.items(), TROUBLES.items(), before, strict=True):
        assert trouble.reported in done.lines(f"{name}: stopped: ")[0], (what, done)
        assert [line for line in done.errors.splitlines() if line.startswith(f"{name}: ")], (what, done.errors)
        assert node.state() == state, what
    assert "\x1b" not in done.output + done.errors


NO_VISUDO = "cd /usr/local/sbin; printf '#!/bin/sh\\necho syntax error >&2; exit 1\\n' > visudo; chmod 755 visudo"
LINKED = "useradd -m ops; cd /home/ops; mkdir .ssh; ln -s /etc/passwd .ssh/authorized_keys; chown -hR ops: ."


def test_a_drop_in_that_visudo_refuses_never_gets_its_name(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    node.ask(NO_VISUDO)
    done = operator.run()
    assert done.code == 1
    assert "let ops use sudo without a password: syntax error" in done.errors
    assert node.ask("ls -A /etc/sudoers.d") == "README\n"
    node.ask("rm /usr/local/sbin/visudo")
    assert operator.run().code == 0


def test_a_key_file_that_is_a_link_is_not_followed(rack: Rack) -> None:
    operator = rack()
    operator.nodes["spark1"].ask(LINKED)
    refused(operator, ".ssh/authorized_keys of ops is a symbolic link; put a file of its own there")


def test_a_node_that_fails_does_not_keep_the_others(rack: Rack) -> None:
    operator = rack(Seed(), Seed(machine_id="f" * 32))
    operator.nodes["spark1"].ask("mv /usr/bin/sudo /usr/bin/sudo.away")
    done = refused(operator, "spark1: stopped: nvidia gets no root by sudo")
    assert done.lines("spark2: ")[-1] == "spark2: ready"
    assert done.output.endswith("1 of 2 nodes ready\n")
    assert operator.by_key("spark2", "hostname") == "spark2\n"


def test_a_node_that_is_not_there_is_said_after_patience(rack: Rack) -> None:
    operator = rack()
    operator.rack.write_text(operator.rack.read_text().replace("127.0.77.11", "127.0.77.99"))
    done = operator.run("--timeout", "0")
    assert done.code == 1
    assert "does not answer: Connection refused" in done.errors


def test_a_key_that_is_not_there_or_has_a_passphrase_is_said_before_any_connection(rack: Rack) -> None:
    operator = rack()
    operator.key.unlink()
    done = operator.run()
    assert (
        done.errors
        == f"Error: access.key: {operator.key} is not there; make one: ssh-keygen -t ed25519 -f {operator.key}\n"
    )
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a phrase", "-f", operator.key], input=b"y\n", check=True
    )
    assert "has a passphrase and no agent holds it; run ssh-add" in operator.run().errors
    assert attempts(operator.nodes["spark1"]) == 0


def test_a_node_that_shuts_us_out_for_a_while_is_waited_for(rack: Rack) -> None:
    operator = rack(Seed(penalties=True))
    node = operator.nodes["spark1"]
    line = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o"]
    line += ["UserKnownHostsFile=none", "-p", str(node.port), f"nobody@{node.address}", "true"]
    until = time.monotonic() + 60
    while b"Permission denied" in subprocess.run(line, capture_output=True).stderr:
        assert time.monotonic() < until, "it never refuses a client"
    done = operator.run()
    assert done.code == 0, done
    assert "past threshold" in node.log or "penalty" in node.log


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ssh-rsa"])
def test_a_password_goes_to_the_confirmed_key_and_to_no_other(rack: Rack, kind: str) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    other = another_key(operator)
    with pytest.raises(
        BootstrapError, match="shows another host key than the one that was confirmed; nothing was sent"
    ):
        open_password_shell(node.address, node.port, [other], "nvidia", SecretStr(PASSWORD), PATIENCE)
    assert attempts(node) == 0
    root = open_password_shell(node.address, node.port, [node.keys[kind]], "nvidia", SecretStr(PASSWORD), PATIENCE)
    assert root.run("id -u; exit 3") == ShellResult(3, b"0\n", b"")
    root.close()
    assert node.log.count("Accepted password for nvidia") == 1
