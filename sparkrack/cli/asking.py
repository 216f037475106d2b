"""Asking nodes over OpenSSH whether they see the link that the switch sees."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparkrack.fleet import Rack
from sparkrack.proof.machines import ssh_config
from sparkrack.proof.shell import RootShell, UnreachableError

_SECONDS = 30


class Nodes:
    """The nodes of a rack that answer. Whoever does not answer at the beginning is not asked again."""

    def __init__(self, rack: Rack, folder: Path, names: Iterable[str]) -> None:
        """`folder`: private, short-lived; holds the ssh configuration."""
        config = folder / "ssh_config"
        config.write_text(ssh_config(rack), errors="surrogateescape")
        self._shells = {name: RootShell(name, config, _SECONDS) for name in names}
        with ThreadPoolExecutor(max_workers=16) as pool:
            answers = pool.map(lambda name: self._run(name, "true") is not None, self._shells)
        self.silent = frozenset(name for name, there in zip(self._shells, answers, strict=True) if not there)

    def __call__(self, node: str, command: str) -> str | None:
        """What a command prints on a node, as root; None for a node that cannot be asked."""
        return None if node in self.silent else self._run(node, command)

    def close(self) -> None:
        """End every shell."""
        for shell in self._shells.values():
            shell.close()

    def _run(self, node: str, command: str) -> str | None:
        try:
            done = self._shells[node].run(command)
        except UnreachableError:
            return None
        return str(done.stdout) if done.rc == 0 else None
