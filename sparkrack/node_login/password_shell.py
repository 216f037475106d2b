"""A root shell on a node by the password of an account that its first-boot wizard made."""

from __future__ import annotations

import logging
import secrets
import shlex
import socket
import time
from collections.abc import Sequence

import paramiko
from pydantic import SecretStr

from core.model.errors import truncate
from core.ops.ssh_transport import nodelay_transport
from core.ssh.host_keys import HostKey, known_as
from core.util.debug_log import timed
from sparkrack.node_login.errors import BootstrapError, NodeUnreachableError, WrongPasswordError, last_line
from sparkrack.node_login.key_shell import MAX_ANSWER_BYTES, SCRIPT_SECONDS, ShellResult, receiver

_PAUSE = 0.02
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
# paramiko's messages about a failed connection are reported by us, in one line.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class PasswordShell:
    """By a password that is sent only to a machine with a key that was confirmed, and only to the sudo that asks."""

    def __init__(self, transport: paramiko.Transport, user: str, secret: SecretStr) -> None:
        """`transport`: logged in as `user`."""
        self.who = f"{user}, by password"
        self._transport = transport
        self._user = user
        self._secret = secret

    def run(self, script: str) -> ShellResult:
        """One script, as root: a channel and a sudo of its own. Raises BootstrapError, also when sudo refuses."""
        prompt, ready = secrets.token_hex(16), secrets.token_hex(16)
        shell = f"sh -c {shlex.quote(receiver(ready))}"
        # -k: never by a login of before, so sudo asks or needs no password; -S: on standard input.
        sudo = f"exec sudo -k -S -p {prompt} -- {shell}"
        command = f'export LC_ALL=C; if [ "$(id -u)" = 0 ]; then exec {shell}; fi; {sudo}'
        try:
            channel = self._transport.open_session(timeout=30)
            try:
                with timed(str(self._transport.getpeername()[0]), f"ssh as {self._user}: {script}") as exchange:
                    channel.exec_command(f"sh -c {shlex.quote(command)}")
                    done = self._run_script(channel, prompt.encode(), f"{ready}\n".encode(), script.encode())
                    exchange.result = f"exit {done.code}"
                return done
            finally:
                channel.close()
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise BootstrapError(f"the connection ended: {truncate(error)}") from None

    def close(self) -> None:
        """Log out."""
        self._transport.close()

    def _run_script(self, channel: paramiko.Channel, prompt: bytes, ready: bytes, script: bytes) -> ShellResult:
        output, complaints = b"", b""
        asked = root = False
        until = time.monotonic() + SCRIPT_SECONDS
        while True:
            ended = channel.exit_status_ready()
            while channel.recv_ready() and len(output) < MAX_ANSWER_BYTES:
                output += channel.recv(1 << 16)
            while channel.recv_stderr_ready() and len(complaints) < MAX_ANSWER_BYTES:
                complaints += channel.recv_stderr(1 << 16)
            if not root and ready in output:
                root, output, complaints = True, output.partition(ready)[2], b""
                channel.sendall(script)
                channel.shutdown_write()
            elif not root and prompt in complaints:
                if asked:
                    raise BootstrapError(f"sudo does not take the password of {self._user}; nothing was changed")
                asked, complaints = True, complaints.partition(prompt)[2]
                channel.sendall(self._secret.get_secret_value().encode() + b"\n")
            elif ended or channel.closed:
                break
            elif time.monotonic() > until:
                raise BootstrapError(f"gives no answer within {SCRIPT_SECONDS:g} s")
            else:
                time.sleep(_PAUSE)
        if not root:
            why = last_line(complaints) or f"it ends with {channel.recv_exit_status()}"
            raise BootstrapError(f"{self._user} gets no root by sudo: {why}; nothing was changed")
        return ShellResult(channel.recv_exit_status(), output, complaints)


def open_password_shell(
    address: str, port: int, trusted: Sequence[HostKey], user: str, secret: SecretStr, seconds: float
) -> PasswordShell:
    """Log in. No secret is sent before the machine has proven that it holds one of the trusted keys.

    Raises WrongPasswordError when it rejects the password, which was tried exactly once; NodeUnreachableError when
    nothing was sent yet and waiting may help; BootstrapError for anything else.
    """
    where = known_as(address, port)
    try:
        sock = socket.create_connection((address, port), timeout=seconds)
    except OSError as error:
        raise NodeUnreachableError(f"{where} does not answer: {error.strerror or error}") from None
    transport = None
    try:
        transport = nodelay_transport(sock)
        # Only types of keys that are known for this machine are negotiated.
        names = [name for key in trusted for name in _ALGORITHMS.get(key.kind, (key.kind,))]
        transport.get_security_options().key_types = names
        _begin_transport(transport, where, seconds)
        _require_trusted_key(transport, where, trusted)
        _authenticate_user(transport, user, secret)
    except (paramiko.SSHException, OSError, EOFError) as error:
        _close_connection(transport, sock)
        raise BootstrapError(f"{where}: {truncate(error)}") from None
    except BaseException:
        _close_connection(transport, sock)
        raise
    return PasswordShell(transport, user, secret)


def _close_connection(transport: paramiko.Transport | None, sock: socket.socket) -> None:
    if transport:
        transport.close()
    sock.close()


def _begin_transport(transport: paramiko.Transport, where: str, seconds: float) -> None:
    try:
        transport.start_client(timeout=seconds)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise NodeUnreachableError(f"{where}: {truncate(error)}") from None


def _require_trusted_key(transport: paramiko.Transport, where: str, trusted: Sequence[HostKey]) -> None:
    if transport.get_remote_server_key().get_base64() not in {key.blob for key in trusted}:
        raise BootstrapError(f"{where} shows another host key than the one that was confirmed; nothing was sent")


def _authenticate_user(transport: paramiko.Transport, user: str, secret: SecretStr) -> None:
    """One way only: two would be two failures for one wrong password, and machines count."""
    try:
        transport.auth_none(user)
    except paramiko.BadAuthenticationType as error:
        ways = error.allowed_types
    else:
        return
    try:
        if "password" in ways:
            more = transport.auth_password(user, secret.get_secret_value(), fallback=False)
        elif "keyboard-interactive" in ways:
            more = transport.auth_interactive(user, _Answers(secret))
        else:
            raise BootstrapError(f"sshd takes no passwords, only {truncate(', '.join(ways))}; nothing was changed")
    except paramiko.BadAuthenticationType:
        raise BootstrapError("sshd takes no passwords from here; nothing was changed") from None
    except paramiko.AuthenticationException:
        raise WrongPasswordError(f"does not take the password of {user}") from None
    if more:
        raise BootstrapError(f"wants more than the password of {user}: {truncate(', '.join(more))}")


class _Answers:
    """Answers to PAM: one question without echo, once. A round without questions ends it; another question is about
    more than the password, for example that it has expired.
    """

    def __init__(self, secret: SecretStr) -> None:
        self._secret: SecretStr | None = secret

    def __call__(self, _title: str, _text: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        if not prompts:
            return []
        secret, self._secret = self._secret, None
        if secret is None or len(prompts) > 1 or prompts[0][1]:
            raise paramiko.SSHException(f"it asks for more than a password: {truncate(prompts[0][0].strip())}")
        return [secret.get_secret_value()]
