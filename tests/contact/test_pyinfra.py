"""Plain pyinfra against a real sshd and sudo: no password is asked for, and nothing of a node moves the cursor."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.ssh.host_keys import pin
from tests.contact.conftest import Rack
from tests.contact.nodes import Operator, Seed
from tests.generated import REPOSITORY
from tests.own_terminal import Terminal

BIN = Path(sys.executable).parent
WANTED = "sudo asks for a password; `sparkrack bootstrap nodes NAME` sets passwordless sudo for access.user"
FREE = Seed({"etc/sudoers.d/ops": "ops ALL=(ALL) NOPASSWD: ALL\n"}, {"etc/sudoers.d/ops": 0o440})
LOGGED = '#!/bin/sh\nprintf \'%s\\n\' "$*" >> /argv\nexec /bin/bash "$@"\n'
"""A login shell that writes down what it is reported."""
HOSTILE = """\
#!/bin/sh
printf '\\033]0;PWNED\\007 \\302\\233 2J \\342\\200\\256 reversed\\nsudo: a password is required\\n' >&2
exit 1
"""
"""A login shell that says what pyinfra takes for sudo's, after control characters: ESC, one of C1, a bidi override."""
OUTDATED = {
    "key exchange": ("KexAlgorithms diffie-hellman-group14-sha1", "no acceptable kex algorithm"),
    "host key": ("HostKeyAlgorithms ssh-rsa", "no acceptable host key"),
    "cipher": ("Ciphers aes256-cbc", "no acceptable ciphers"),
    "MAC": ("Ciphers aes256-ctr\nMACs hmac-sha1", "no acceptable macs"),
}
OLD = """\
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,diffie-hellman-group14-sha256
HostKeyAlgorithms ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512,rsa-sha2-256,ssh-rsa
Ciphers chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com
MACs umac-64-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha1-etm@openssh.com,umac-64@openssh.com,hmac-sha2-256
"""
"""Defaults of OpenSSH 8.2, as far as a newer one still has them."""


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def ready(rack: Rack, *seeds: Seed, shells: Sequence[str] = ("/bin/bash",)) -> Operator:
    """Nodes that accept our user's key; the operator does not have its password. `shells`: one for each node."""
    operator = rack(*seeds)
    key = operator.key.with_suffix(".pub").read_text().strip()
    for node, shell in zip(operator.nodes.values(), shells, strict=True):
        node.ask("useradd --create-home --shell /bin/bash --groups sudo ops; echo ops:secret | chpasswd; touch /argv")
        node.ask(f"cat > /shell <<'END'\n{shell}\nEND\nchmod 755 /shell; chmod 666 /argv")
        if shell.startswith("#!"):
            node.ask("usermod --shell /shell ops")
        node.ask(f"install -d -o ops -m 700 /home/ops/.ssh; echo '{key}' > /home/ops/.ssh/authorized_keys")
        pin(operator.known_hosts, node.address, node.port, tuple(node.keys.values()))
    return operator


def line(*more: str) -> list[str]:
    return [str(BIN / "pyinfra"), "inventory.py", "deploy.py", "--dry", "--limit", "nodes", *more]


def environment(operator: Operator) -> dict[str, str]:
    return {**operator.environment(), "RACK": str(operator.rack), "PYINFRA_PROGRESS": "off", "TERM": "xterm"}


def run(operator: Operator, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        words, cwd=REPOSITORY, env=environment(operator), stdin=subprocess.DEVNULL, capture_output=True, timeout=240
    )
    return done.returncode, (done.stdout + done.stderr).decode()


def test_no_password_of_sudo_is_asked_for(rack: Rack, terminals: list[Terminal]) -> None:
    """The sudo of the first node wants one; the second node only says so."""
    operator = ready(rack, Seed(), Seed(), shells=(LOGGED, HOSTILE))
    terminals.append(Terminal(line(), environment(operator), REPOSITORY))
    assert terminals[0].finish() == 1, terminals[0].shown
    _, piped = run(operator, *line())
    for shown in (terminals[0].shown, piped):
        assert shown.count(WANTED) == 2, shown
        assert "sudo password" not in shown
        assert "echoed" not in shown
        assert "Traceback" not in shown
    assert "PYINFRA_SUDO_PASSWORD" not in operator.nodes["spark1"].ask("cat /argv")


def test_a_password_of_sudo_that_is_given_is_not_sent(rack: Rack, terminals: list[Terminal]) -> None:
    operator = ready(rack, Seed(), shells=[LOGGED])
    terminals.append(Terminal(line("--same-sudo-password"), environment(operator), REPOSITORY))
    terminals[0].answer("sudo password: ", "canary-of-sudo")
    assert terminals[0].finish() == 1, terminals[0].shown
    assert WANTED in terminals[0].shown
    assert "canary-of-sudo" not in terminals[0].shown + operator.nodes["spark1"].ask("cat /argv")


def test_what_a_node_says_moves_no_cursor(rack: Rack) -> None:
    operator = ready(rack, Seed(), shells=[HOSTILE])
    _, shown = run(operator, str(BIN / "pyinfra"), "inventory.py", "exec", "--limit", "spark1", "--", "id")
    assert "\\x1b]0;PWNED\\x07 \\x9b 2J \\u202e reversed" in shown
    assert not [sign for sign in "\x07\x9b\u202e" if sign in shown]
    assert "\x1b]" not in shown


def test_the_most_verbose_run_shows_no_content_of_files(rack: Rack) -> None:
    content = b'{"http-proxy": "http://user:canary-of-the-proxy@10.77.0.1"}'
    operator = ready(rack, FREE)
    node = operator.nodes["spark1"]
    node.ask(f"mkdir -p /etc/docker; cat > /etc/docker/daemon.json <<'END'\n{content.decode()}\nEND")
    _, shown = run(operator, *line("-vvv", "--debug"))
    assert "characters of base64)" in shown
    for printed in (content, operator.key.with_suffix(".pub").read_bytes()):
        assert base64.b64encode(printed).decode()[:24] not in shown


def test_a_server_with_outdated_algorithms_only_is_refused(rack: Rack) -> None:
    seeds = [Seed({"etc/ssh/sshd_config.d/old.conf": f"{settings}\n"}) for settings, _ in OUTDATED.values()]
    operator = ready(rack, *seeds, shells=["/bin/bash"] * len(seeds))
    code, shown = run(operator, str(BIN / "sparkrack"), "plan")
    assert code == 1
    for name, (_, lacking) in zip(operator.nodes, OUTDATED.values(), strict=True):
        (reported,) = (line for line in shown.splitlines() if "offers only" in line and name in line)
        assert f"offers only outdated algorithms: {lacking}; update OpenSSH there" in reported


def test_the_defaults_of_an_old_one_are_enough(rack: Rack) -> None:
    operator = ready(rack, Seed({**FREE.files, "etc/ssh/sshd_config.d/old.conf": OLD}, FREE.modes))
    node = operator.nodes["spark1"]
    # The one that pins ssh-rsa alone needs rsa-sha2, which has another name.
    pin(operator.known_hosts, node.address, node.port, (node.keys["ssh-rsa"],))
    _, shown = run(operator, str(BIN / "sparkrack"), "plan", "--limit", "spark1")
    assert "unreachable" not in shown, shown
    assert "sudo asks" not in shown


def test_a_folder_whose_name_has_a_percent_sign(rack: Rack) -> None:
    operator = ready(rack, FREE)
    folder = operator.folder / "100%home rack"
    folder.mkdir()
    for file in (operator.rack, operator.known_hosts):
        shutil.move(file, folder)
    operator.rack = folder / operator.rack.name
    _, shown = run(operator, str(BIN / "sparkrack"), "status", "--json")
    assert "verification failed" not in shown
    assert '"unreachable"' not in shown, shown
    _, shown = run(operator, str(BIN / "sparkrack"), "verify", "--only", "preflight", "--brief")
    assert "cannot be asked" not in shown, shown
    assert os.listdir(folder)  # noqa: PTH208
