"""The log of what is asked of each host: `-v` shows it, and a run keeps it beside its journal.

One logger tree of the standard library, `sparkrack`. INFO: one record for each question to a host. DEBUG: what else
happens. A record may have details (`extra={"details": ...}`), which only the file gets.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.util.scrub import count_base64, scrub

LOG = logging.getLogger("sparkrack")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False

VERBOSE = "SPARKRACK_VERBOSE"
"""Environment variable by which processes that this one starts print as it does."""
MAX_BYTES = 8 << 20
"""Bytes of one log, after which only warnings and errors are added."""
MAX_ERROR_BYTES = 1 << 20
"""Bytes that are added to a full log."""
MAX_LOGS = 50
"""Number of logs that are kept beside the journals of a rack."""
_MAX_WAITING = 10_000
"""Records that are kept in memory before the log has a file."""
_MAX_TEXT = 4000
"""Characters of a command or of an output in a record."""
_MAX_LINE = 160
"""Characters of a question that is printed."""


def cut(text: str, most: int = _MAX_TEXT) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


def one_line(text: str) -> str:
    """Return a text as one printable line."""
    return "".join(sign if sign.isprintable() else " " if sign.isspace() else "\ufffd" for sign in text)


@dataclass
class Exchange:
    """One question to a host. `result`: in a word or two. `output`: its answer, for the file only."""

    result: str = "answered"
    output: str = ""


@contextmanager
def timed(host: str, question: str, title: str = "") -> Iterator[Exchange]:
    """Log one question to a host, its result and how long it took; an exception in the block is its result. `title`:
    what is printed instead of a long question.
    """
    exchange = Exchange()
    if not LOG.isEnabledFor(logging.INFO):
        yield exchange
        return
    began = time.monotonic()
    try:
        yield exchange
    except BaseException as error:
        exchange.result = _describe_exception(error)
        raise
    finally:
        took = time.monotonic() - began
        output = f"\n{cut(count_base64(exchange.output))}" if exchange.output else ""
        shown = one_line(cut(scrub(count_base64(title or question)), _MAX_LINE))
        LOG.info(
            "%s: %s: %s, %.3f s",
            *(host, shown, one_line(cut(scrub(exchange.result), _MAX_LINE)), took),
            extra={"details": f"{cut(count_base64(question))}{output}"},
        )


def _describe_exception(error: BaseException) -> str:
    """An exception for the log: the text of a library's may repeat what was sent, such as a password."""
    ours = type(error).__module__.partition(".")[0] in ("core", "roles", "serving", "sparkrack", "switch")
    return f"{type(error).__name__}: {error}" if ours or isinstance(error, OSError) else type(error).__name__


class _Printed(logging.Formatter):
    """A record as a line of the terminal; a host's control characters are replaced."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        return f"{moment}.{int(record.msecs):03} {one_line(scrub(record.getMessage()))}"


class _Kept(logging.Formatter):
    """A record with its details and its traceback, which are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        more = [getattr(record, "details", "")]
        if record.exc_info:
            more.append(self.formatException(record.exc_info))
        lines = [f"{moment}.{int(record.msecs):03}Z {record.levelname} {one_line(scrub(record.getMessage()))}"]
        lines += [f"    {one_line(line)}" for part in more for line in scrub(part).splitlines()]
        return "\n".join(lines) + "\n"


class RunLog(logging.Handler):
    """The debug log of one run, in memory until `keep` names its file. It never makes a run fail."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(_Kept())
        self._waiting: deque[tuple[int, bytes]] = deque(maxlen=_MAX_WAITING)
        self._file: int | None = None
        self._size = 0
        self._full = False

    def keep(self, path: Path) -> None:
        """Write to this file from now on, after what was logged before; the oldest logs beside it are removed."""
        try:
            for old in sorted(path.parent.glob("*.log"))[: -MAX_LOGS + 1]:
                if old != path:
                    old.unlink(missing_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            self._size = os.fstat(self._file).st_size
        except OSError:
            return
        while self._waiting:
            self._write_entry(*self._waiting.popleft())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or keep it until there is a file."""
        try:
            data = self.format(record).encode("utf-8", "backslashreplace")
        except Exception:  # a record that cannot be formatted must not end a run
            data = f"{record.levelname} a record could not be formatted: {record.msg!r}\n".encode("utf-8", "replace")
        if self._file is None:
            self._waiting.append((record.levelno, data))
        else:
            self._write_entry(record.levelno, data)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        super().close()

    def _write_entry(self, level: int, data: bytes) -> None:
        most = MAX_BYTES + (MAX_ERROR_BYTES if level >= logging.WARNING else 0)
        if self._size + len(data) > most:
            if self._full:
                return
            self._full, data = True, f"the log is full at {MAX_BYTES >> 20} MiB; only errors follow\n".encode()
        self._size += len(data)
        try:
            if self._file is not None:
                os.write(self._file, data)
        except OSError:
            self._full, self._size = True, MAX_BYTES + MAX_ERROR_BYTES  # a full disk: the run goes on


def verbose() -> None:
    """Print each question to a host to stderr, from now on, also in processes that this one starts."""
    os.environ[VERBOSE] = "1"
    inherit()


def inherit() -> None:
    """Print as the process that started this one does; without effect when it does not, or when called again."""
    if os.environ.get(VERBOSE) != "1" or any(type(one) is logging.StreamHandler for one in LOG.handlers):
        return
    # A descriptor of its own: pytest, which runs the checks of verify, redirects the usual one.
    handler = logging.StreamHandler(os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace"))
    handler.setLevel(logging.INFO)
    handler.setFormatter(_Printed())
    LOG.addHandler(handler)
    LOG.setLevel(min(LOG.level or logging.INFO, logging.INFO))


@contextmanager
def recording() -> Iterator[RunLog]:
    """Record everything in the block."""
    log, before = RunLog(), LOG.level
    LOG.addHandler(log)
    LOG.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        LOG.removeHandler(log)
        LOG.setLevel(before)
        log.close()
