"""The debug log of a run: what was called, with which versions, and everything after that."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from core.model import ConfigError, SecretError
from core.util.command_error import CommandError, DeclinedError
from core.util.debug_log import LOG, RunLog, recording

PACKAGES = ("sparkrack", "pyinfra", "paramiko", "gevent", "pydantic", "click", "routeros-api", "requests")
"""Packages whose versions a log and a support bundle name."""
_FORESEEN = (CommandError, DeclinedError, ConfigError, SecretError, BrokenPipeError)
"""Errors that the command reports as a message."""


@contextmanager
def run_log() -> Iterator[RunLog]:
    """Log everything in the block, in memory until `RunLog.keep` is called; unexpected errors with a traceback."""
    with recording() as log:
        LOG.debug("%s", versions())
        LOG.debug("command line: %s", shlex.join(sys.argv))
        try:
            yield log
        except _FORESEEN as fault:
            LOG.error("ended: %s", fault)
            raise
        except Exception:
            LOG.exception("unexpected error")
            raise


def versions() -> str:
    """Return the versions of this program, its packages, Python and the operating system, as one line."""
    found = [f"{name} {_version_of_package(name)}" for name in PACKAGES]
    return ", ".join((*found, f"Python {platform.python_version()}", platform.platform()))


def _version_of_package(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
