"""`sparkrack` in a process of its own, forked from a server that has imported it: importing takes most of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.generated import REPOSITORY

_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["__main__", "sparkrack.cli.bootstrap", "sparkrack.node_login.password_shell", "sparkrack.engine.ssh_locking"]
)


def run(
    words: Sequence[str], environment: Mapping[str, str], seconds: float, kill: int | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `sparkrack` with these words, this environment and no input, as `subprocess.run` does.

    `kill`: it dies by SIGKILL after that many writes: of a node, or of known_hosts. Raises TimeoutExpired.
    """
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("output", "errors")]
        process = _SERVER.Process(target=_run_sparkrack, args=(list(words), dict(environment), files, kill))
        process.start()
        process.join(seconds)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, seconds)
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, *(file.read_bytes() for file in files))


def _run_sparkrack(words: list[str], environment: dict[str, str], files: list[Path], kill: int | None) -> None:
    """The forked process."""
    os.chdir(REPOSITORY)
    os.environ.clear()
    os.environ.update(environment)
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    sys.argv = ["sparkrack", *words]
    from sparkrack.cli.main import main

    if kill is not None:
        _die_after(kill)
    main()


def _die_after(writes: int) -> None:
    from sparkrack.bootstrap.node_bootstrap import NodeBootstrap

    left = [writes]

    def counted(write: Any) -> Any:
        def done(*arguments: Any, **more: Any) -> Any:
            result = write(*arguments, **more)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return done

    NodeBootstrap.write = counted(NodeBootstrap.write)  # type: ignore[method-assign]
    NodeBootstrap.pin = counted(NodeBootstrap.pin)  # type: ignore[method-assign]
