"""How a command line meets the login shells of the field; a csh reads no line of ours but those that refuse it."""

from __future__ import annotations

import shutil
import subprocess
import threading

import paramiko
import pytest

from core.ops.patch_ssh_connector import _REFUSE_CSH, _execute
from tests.unit.sshserver import AnyKey, SshServer

SCRIPT = f"echo mark\n{_REFUSE_CSH}\nsh -c 'set -eu\nif true; then\necho \"!done\"\nfi'"


def run(shell: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    environment = {"PATH": "/usr/bin:/bin", "SHELL": path, "HOME": "/"}
    return subprocess.run([path, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "fish"])
def test_a_shell_that_can_read_the_script_runs_it(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mark\n!done\n", "")


@pytest.mark.parametrize("shell", ["csh", "tcsh"])
def test_csh_is_refused_in_words_and_runs_nothing(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout) == (1, "mark\n")
    assert done.stderr == f"login shell: {shutil.which(shell)} is not supported; it would be sh, bash or zsh\n"


class GreetingServer(SshServer):
    """Runs each command by /bin/sh, after a greeting on both streams, as a file of a login shell prints one."""

    def behind(self, transport: paramiko.Transport) -> AnyKey:  # noqa: ARG002
        class Commands(AnyKey):
            def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
                threading.Thread(target=execute, args=(channel, command), daemon=True).start()
                return True

        def execute(channel: paramiko.Channel, command: bytes) -> None:
            greeted = b"echo Welcome; echo greeting >&2\n" + command
            done = subprocess.run(["/bin/sh", "-c", greeted], stdin=subprocess.DEVNULL, capture_output=True)
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()

        return Commands()


def test_what_a_login_shell_prints_before_a_command_is_not_its_output() -> None:
    server = GreetingServer("127.0.0.1")
    client = paramiko.SSHClient()
    client.get_host_keys().add(f"[127.0.0.1]:{server.port}", server.key.get_name(), server.key)
    try:
        key = paramiko.ECDSAKey.generate()
        client.connect("127.0.0.1", server.port, "ops", pkey=key, look_for_keys=False, allow_agent=False)
        transport = client.get_transport()
        assert transport
        code, output = _execute(
            transport, "echo one; printf two; echo three >&2; printf four >&2; exit 3", None, False, None
        )
    finally:
        client.close()
        server.close()
    assert (code, output.stdout_lines, output.stderr_lines) == (
        3,
        ["one", "two"],
        ["greeting", "three", "four"],
    )
