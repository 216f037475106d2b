"""Root shells on the nodes of a rack, for programs that do not drive pyinfra."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

from core.model import Access, Rack
from core.model.errors import printable_line
from core.ssh.client import ssh_config, ssh_config_for
from core.ssh.root_shell import RootShell, UnreachableError

WITNESS_SECONDS = 30
"""Seconds for the answer of a node about its links."""


@contextmanager
def ssh_config_file(text: str) -> Iterator[Path]:
    """A private file with this OpenSSH configuration, which is removed after the block."""
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(text, errors="surrogateescape")
        yield config


@contextmanager
def open_shells(
    rack: Rack, names: Iterable[str], timeout: float, connect_timeout: int | None = None
) -> Iterator[Mapping[str, RootShell]]:
    """A root shell on each of these nodes of a rack by its name, closed after the block. A node is contacted by the
    first command that it is to run.

    timeout: seconds for one command. connect_timeout: seconds for the connection, when less than the usual.
    Raises ConfigError when the rack's key or known_hosts is a special file.
    """
    # OpenSSH takes the first value that it reads of an option.
    first = "" if connect_timeout is None else f"ConnectTimeout {connect_timeout}\n"
    with _open_shells(f"{first}{ssh_config(rack)}", names, timeout) as shells:
        yield shells


@contextmanager
def open_shells_at(
    access: Access, addresses: Mapping[str, object], timeout: float
) -> Iterator[Mapping[str, RootShell]]:
    """The same on machines by name and address, whether or not a rack file has them."""
    with _open_shells(ssh_config_for(access, addresses), addresses, timeout) as shells:
        yield shells


@contextmanager
def _open_shells(config: str, names: Iterable[str], timeout: float) -> Iterator[Mapping[str, RootShell]]:
    with ssh_config_file(config) as file:
        shells = {name: RootShell(name, file, timeout) for name in names}
        try:
            yield shells
        finally:
            for shell in shells.values():
                shell.close()


class ScriptError(Exception):
    """A script did not end well on a node; the text is the reason, in one line that begins with the node."""


class SilentNodeError(ScriptError):
    """A node gave no answer."""


def script_output(shells: Mapping[str, RootShell], node: str, name: str, script: str, words: Iterable[str]) -> str:
    """Run a script on a node with these arguments, and return its output. name: of the script, in its messages.
    Raises ScriptError, SilentNodeError.
    """
    try:
        done = shells[node].run(f"sh -c {quote(script)} {name} {' '.join(map(quote, words))}")
    except UnreachableError as fault:
        raise SilentNodeError(printable_line(f"{node}: {fault.why}")) from None
    if done.rc != 0:
        lines = str(done.stderr).strip().splitlines() or [f"exit {done.rc}"]
        raise ScriptError(printable_line(f"{node}: {lines[-1]}"))
    return str(done.stdout)


class NodeShells:
    """The nodes that answer. A node that does not answer at the beginning is not asked again."""

    def __init__(self, shells: Mapping[str, RootShell]) -> None:
        self._shells = shells
        with ThreadPoolExecutor(max_workers=16) as pool:
            answers = pool.map(lambda name: self._run_command(name, "true") is not None, shells)
        self.silent = frozenset(name for name, there in zip(shells, answers, strict=True) if not there)

    def __call__(self, node: str, command: str) -> str | None:
        """Run a command on a node, as root, and return its output; None for a node that cannot be reached."""
        return None if node in self.silent else self._run_command(node, command)

    def _run_command(self, node: str, command: str) -> str | None:
        try:
            done = self._shells[node].run(command)
        except UnreachableError:
            return None
        return str(done.stdout) if done.rc == 0 else None
