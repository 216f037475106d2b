"""The password is nowhere: not in an argument list or an environment, not in the output, not on the node."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from tests.contact.conftest import Rack
from tests.contact.nodes import Done, Seed
from tests.generated import REPOSITORY

PART = b"$(battery)"
"""Of the password, without the signs that quoting would change."""
LOGGED = """\
#!/bin/sh
printf '%s\\n' "$*" >> /argv
exec /bin/bash "$@"
"""
"""A login shell that writes down what it is reported: what lives too short to be seen by a watch."""
KEYBOARD = "PasswordAuthentication no\nKbdInteractiveAuthentication yes\n"


class Watch(threading.Thread):
    """Reads the arguments and environments of all processes of this machine and inside nodes, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit():
                    for name in ("cmdline", "environ"):
                        try:
                            self.seen.add((folder / name).read_bytes())
                        except OSError:
                            continue  # it has ended


def test_the_password_is_in_no_argument_list_and_nowhere_on_the_node(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    node.ask(f"cat > /usr/local/bin/logged <<'EOF'\n{LOGGED}EOF\nchmod 755 /usr/local/bin/logged")
    node.ask("touch /argv; chmod 666 /argv")
    node.ask("usermod --shell /usr/local/bin/logged nvidia")
    watch = Watch()
    watch.start()
    words = ("--as", "nvidia", "--password-file", str(operator.password), "--host-keys", str(operator.consoles))
    done = subprocess.run(  # not forked, so that its own arguments and environment are to be seen
        operator.command("nodes", *words), cwd=REPOSITORY, env=operator.environment(), capture_output=True, timeout=240
    )
    watch.over.set()
    watch.join()
    assert Done.of(done).code == 0, done
    assert any(b"--password-file" in one for one in watch.seen), "it did look at the command"
    assert any(b"sudo\0-k\0-S" in one for one in watch.seen), "it did look while sudo was asked"
    assert not [one for one in watch.seen if PART in one]
    assert "sudo -k -S" in node.ask("cat /argv")
    node.ask("mkdir /planted; printf '%s\\n' '$(battery)' > /planted/it")
    search = "grep -rlF -f /planted/it / --exclude-dir=proc --exclude-dir=dev 2>/dev/null"
    assert node.ask(search, fails=True) == "/planted/it\n"
    ours = [path for path in operator.folder.rglob("*") if path.is_file() and "node-" not in str(path)]
    assert [path.name for path in ours if PART in path.read_bytes()] == ["password"]


def test_keyboard_interactive_and_whatever_a_login_prints(rack: Rack) -> None:
    noise = "\x1b[2J\x1b]0;owned\x07 welcome\n"
    operator = rack(
        Seed({"etc/ssh/sshd_config.d/t.conf": f"{KEYBOARD}Banner /etc/issue.net\n", "etc/issue.net": noise})
    )
    node = operator.nodes["spark1"]
    node.ask("printf 'echo noise; echo noise >&2\\n' | tee -a /home/nvidia/.profile >> /etc/skel/.bashrc")
    node.ask("sed -i '1i echo noise; echo noise >&2' /home/nvidia/.bashrc /etc/skel/.bashrc")
    node.ask("echo 'Defaults lecture=always' > /etc/sudoers.d/l; chmod 440 /etc/sudoers.d/l")
    done = operator.run()
    assert done.code == 0, done
    assert "\x1b" not in done.output + done.errors
    assert node.log.count("Accepted keyboard-interactive/pam for nvidia") == 1


def test_an_account_without_a_password_for_sudo_never_sees_one(rack: Rack) -> None:
    operator = rack(Seed({"etc/sudoers.d/free": "nvidia ALL=(ALL) NOPASSWD: ALL\n"}, {"etc/sudoers.d/free": 0o440}))
    done = operator.run()
    assert done.code == 0, done
