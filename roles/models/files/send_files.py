"""Print files of a model, one after the other, each from an offset on, also while they come to this node.

It runs by ssh on the node that gives a model, as the user who logs in there, with its python3 alone.
fetch_model.py of the receiving node has its text. The output has the bytes that were asked for and nothing else.

The request is standard input, JSON: folder and unit of the model on this node; follows, whether a part that grows
may be sent; files, as lists of path, size, sha256, name of the part, offset.
The exit status is 75 when the transfer of this node ended without a file.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
PAUSE = 50
"""Milliseconds between two looks at a part that grows."""
WAIT = 200
"""Milliseconds between two questions for the unit."""
STOPPED = 75


class UnitStoppedError(Exception):
    """The transfer of this node ended without the file."""


class FileSender:
    """The sending end of one request."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.folder, self.unit = Path(request["folder"]), str(request["unit"])
        self.follows = bool(request["follows"])
        self._recorded: set[str] = set()
        self._state: tuple[int, int] | None = None
        self._output = select.poll()
        self._output.register(1, 0)

    def send(self, path: str, size: int, sha256: str, part: str, offset: int) -> None:
        """Print one file from `offset` on. Raises UnitStoppedError, and OSError where it cannot be read."""
        while offset < size:
            handle, pid = self._open_file(f"{sha256} {size} {path}", path, part, offset)
            try:
                offset = self._copy_file(handle, offset, size, pid)
            finally:
                os.close(handle)

    def _open_file(self, line: str, path: str, part: str, offset: int) -> tuple[int, int]:
        """Wait for a file. Returns its descriptor, and the process that writes it; 0 for a file that is complete."""
        growing = self.folder / ".sparkrack/parts" / part
        while True:
            if self._is_recorded(line):
                return os.open(self.folder / path, os.O_RDONLY), 0
            if self._ask_systemd("is-active", "-q", self.unit) is None and not self._is_recorded(line):
                raise UnitStoppedError
            pid = int(self._ask_systemd("show", "-P", "MainPID", self.unit) or 0) if self.follows else 0
            if pid > 0 and size_of(growing) > offset:
                try:
                    return os.open(growing, os.O_RDONLY), pid
                except FileNotFoundError:
                    continue
            self._wait_for_reader(WAIT)

    def _copy_file(self, handle: int, offset: int, size: int, pid: int) -> int:
        """Print what is there and what comes. Returns the offset of the next byte, less than `size` when the part was
        removed. The descriptor stays on the part when it gets its name.
        """
        while offset < size:
            ended = pid and not is_running(pid)
            if sent := os.sendfile(1, handle, offset, min(size - offset, CHUNK)):
                offset += sent
            elif not pid:
                raise OSError(0, "is shorter than its record says")
            elif not os.fstat(handle).st_nlink:
                break
            elif ended:
                raise UnitStoppedError
            else:
                self._wait_for_reader(PAUSE)
        return offset

    def _is_recorded(self, line: str) -> bool:
        """Whether the record has a file. It is read again when it has changed."""
        record = self.folder / ".sparkrack/record"
        try:
            found = record.stat()
            if self._state != (found.st_ino, found.st_mtime_ns):
                self._recorded = {one.rpartition("\t")[0] for one in record.read_text(encoding="utf-8").split("\n")}
                self._state = (found.st_ino, found.st_mtime_ns)
        except FileNotFoundError:
            self._recorded, self._state = set(), None
        return line in self._recorded

    def _ask_systemd(self, *words: str) -> str | None:
        """Return the output of systemctl, None when it fails."""
        import subprocess  # a node that has the model does not need it, and its import is slow

        done = subprocess.run(["systemctl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return None if done.returncode else done.stdout.strip()

    def _wait_for_reader(self, milliseconds: int) -> None:
        """Wait. Raises BrokenPipeError when the output has no reader any more."""
        if self._output.poll(milliseconds):
            raise BrokenPipeError


def size_of(path: Path) -> int:
    """Return the size of a file, 0 when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def is_running(pid: int) -> bool:
    """Return whether there is a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    sender = FileSender(request)
    for path, size, sha256, part, offset in request["files"]:
        try:
            sender.send(path, size, sha256, part, offset)
        except UnitStoppedError:
            return STOPPED
        except BrokenPipeError:
            return 1
        except OSError as error:
            print(f"{sender.folder}/{path}: {error.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
