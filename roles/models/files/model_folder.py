"""The folder of a model on this node: its files, what has come of those that are not complete, and its record.

`.sparkrack/parts` in it has files that are not complete. `.sparkrack/record` has a line for each file whose sha256 was
right, with its size and time of change then; while both are the same, the file is not read again. A file that is not
declared is never touched.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import stat
import subprocess
import threading
import time
from pathlib import Path

BLOCK = 1 << 20
PIECE = 64 << 10
"""Bytes of one read of a connection to the hub: a larger buffer costs more, as TLS gives 16 KiB at most."""
SMALL = 16 << 20
"""Bytes: smaller files come many over one connection of ssh, and are written to the disk together."""
RECORD_SECONDS = 1.0
"""Seconds after which small files that have come are recorded: other nodes wait for that."""


class FetchError(Exception):
    """The model cannot be brought. The text is one line."""


class DeclaredFile:
    """A declared file: path within the folder, size in bytes, sha256."""

    def __init__(self, path: str, size: int, sha256: str) -> None:
        """Raises FetchError for values that could lead out of the folder."""
        parts = path.split("/")
        if (
            any(part in ("", ".", "..") for part in parts)
            or parts[0] == ".sparkrack"
            or not path.isprintable()
            or "\\" in path
        ):
            raise FetchError(f"{path!r} is not accepted as the path of a file")
        if size < 0 or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise FetchError(f"{path!r} has no size or no sha256")
        self.path, self.size, self.sha256 = path, size, sha256


class ModelFolder:
    """The folder of a model on this node."""

    def __init__(self, top: str, reserve: int = 0) -> None:
        """Make it, if it is missing. `reserve`: bytes to leave free. Raises FetchError where it is not a folder."""
        self.top, self.reserve = Path(top), reserve
        self.own = self.top / ".sparkrack"
        self.parts = self.own / "parts"
        self.top.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.top, self.own, self.parts):
            _make_folder(folder)
        self._lock = os.open(self.own, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FetchError(f"{top}: another transfer writes this model") from None
        self._writing = threading.Lock()
        self._unrecorded: list[DeclaredFile] = []
        self._recorded_at = time.monotonic()
        self._record: dict[str, tuple[str, int, int]] = {}
        for line in self._read_record():
            head, _, changed = line.rpartition("\t")
            match head.split(" ", 2):
                case [sha256, size, path] if size.isdigit() and changed.isdigit():
                    self._record[path] = (sha256, int(size), int(changed))

    def _read_record(self) -> list[str]:
        try:
            return (self.own / "record").read_text(encoding="utf-8").split("\n")
        except (FileNotFoundError, UnicodeDecodeError):
            return []

    def place(self, file: DeclaredFile) -> Path:
        """Where a file belongs. Its folders are made. Raises FetchError where one is a link or no folder."""
        place = self.top
        for part in file.path.split("/")[:-1]:
            place = place / part
            _make_folder(place)
        return place / file.path.rpartition("/")[2]

    def part(self, path: str, sha256: str) -> Path:
        """Where a file is while it is not complete."""
        return self.parts / f"{hashlib.sha256(path.encode()).hexdigest()[:12]}-{sha256}"

    def state(self, file: DeclaredFile) -> os.stat_result | None:
        """What is in the place of a file; None for nothing. Raises FetchError for a link or a folder."""
        place = self.place(file)
        try:
            found = place.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise FetchError(f"{place} is not a regular file; move it away")
        return found

    def is_recorded(self, file: DeclaredFile) -> bool:
        """Whether a file is as it was when its sha256 was right."""
        found = self.state(file)
        return found is not None and self._record.get(file.path) == (file.sha256, file.size, found.st_mtime_ns)

    def forget(self, files: list[DeclaredFile]) -> None:
        """Remove these from the record: other nodes would take them from here."""
        with self._writing:
            kept = len(self._record)
            for file in files:
                self._record.pop(file.path, None)
            if len(self._record) < kept:
                self._write_record()

    def confirm(self, file: DeclaredFile) -> None:
        """Record a file whose sha256 is right."""
        found = self.place(file).lstat()
        with self._writing:
            self._record[file.path] = (file.sha256, file.size, found.st_mtime_ns)
            self._write_record()

    def accept(self, file: DeclaredFile, part: Path) -> None:
        """Move a complete part with the right sha256 to its place, and record it: a small one with others, later."""
        part.chmod(0o644)
        if file.size < SMALL:
            part.replace(self.place(file))
            with self._writing:
                self._unrecorded.append(file)
                due = time.monotonic() - self._recorded_at > RECORD_SECONDS
            if due:
                self.record_small()
            return
        _sync_to_disk(part)
        part.replace(self.place(file))
        _sync_to_disk(self.place(file).parent)
        self.confirm(file)

    def record_small(self) -> None:
        """Record the small files that have come, after they are on the disk. Raises OSError when the disk fails."""
        with self._writing:
            files, self._unrecorded = self._unrecorded, []
            self._recorded_at = time.monotonic()
        if not files:
            return
        states = [(file, self.place(file).lstat()) for file in files]
        done = subprocess.run(["sync", "--file-system", str(self.top)], capture_output=True, text=True)
        if done.returncode:
            raise OSError(0, done.stderr.strip(), str(self.top))
        with self._writing:
            for file, found in states:
                self._record[file.path] = (file.sha256, file.size, found.st_mtime_ns)
            self._write_record()

    def keep_file(self, file: DeclaredFile, progress: FetchProgress) -> bool:
        """Whether a file is in its place with the right bytes. A part with more bytes than it has is removed."""
        found = self.state(file)
        if found and found.st_size == file.size:
            if _hash_file(self.place(file), progress) == file.sha256:
                self.confirm(file)
                return True
            progress.add(-file.size)
            self._require_free_space(file.size)
        path = self.part(file.path, file.sha256)
        if path.exists() and path.stat().st_size > file.size:
            path.unlink()
        return False

    def check_room(self, files: list[DeclaredFile]) -> None:
        """Raises FetchError unless all that is missing has room, before the first byte."""
        needed = 0
        for file in files:
            part, found = self.part(file.path, file.sha256), self.state(file)
            if found is None or found.st_size != file.size:
                needed += file.size - min(part.stat().st_size if part.exists() else 0, file.size)
        self._require_free_space(needed)

    def remove_parts(self) -> None:
        """When a model is complete, parts are left of other revisions alone."""
        for part in self.parts.iterdir():
            part.unlink()

    def read_content(self, file: DeclaredFile) -> bytes:
        """Return the bytes of a small file that is there, complete or as a part. Raises OSError."""
        part = self.part(file.path, file.sha256)
        return (part if part.exists() else self.place(file)).read_bytes()

    def _write_record(self) -> None:
        new = self.own / "record.new"
        lines = [f"{sha256} {size} {path}\t{changed}\n" for path, (sha256, size, changed) in self._record.items()]
        new.write_text("".join(lines), encoding="utf-8")
        new.chmod(0o644)
        _sync_to_disk(new)
        new.replace(self.own / "record")

    def _require_free_space(self, needed: int) -> None:
        disk = os.statvfs(self.top)
        free = disk.f_bavail * disk.f_frsize
        if needed and free < needed + self.reserve:
            what = f"{self.top} has {free // 10**6} MB free"
            raise FetchError(f"{what}, what it lacks needs {(needed + self.reserve) // 10**6} MB")


class FetchProgress:
    """Bytes that are here and right, or on their way; `received`: those that came since the start."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.received = total, 0, 0
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def add(self, done: int, received: int = 0) -> None:
        """Count bytes; a negative number takes them back. Raises FetchError when another file has failed."""
        if self.stopped.is_set():
            raise FetchError("stopped")
        with self._lock:
            self.done += done
            self.received += received

    def report(self, ended: threading.Event) -> None:
        """Print a line each second."""
        while not ended.wait(1):
            print(f"sparkrack: at {self.done} {self.total} {self.received}", flush=True)


class PartFile:
    """What has come of a file that is not complete; its sha256 is computed as it comes."""

    def __init__(self, path: Path, name: str, progress: FetchProgress) -> None:
        """Read what an earlier transfer has left, which makes the file if there is none. `name`: of the file in the
        folder of the model. Raises FetchError.
        """
        self.path, self.name, self.progress, self.size = path, name, progress, 0
        self._digest = hashlib.sha256()
        with path.open("a+b") as file:
            file.seek(0)
            while block := file.read(BLOCK):
                self._count_block(block)

    @property
    def sha256(self) -> str:
        """Of what has come."""
        return self._digest.hexdigest()

    def restart(self) -> None:
        """Drop what has come."""
        os.truncate(self.path, 0)
        self.progress.add(-self.size)
        self.size, self._digest = 0, hashlib.sha256()

    def receive(self, source: io.BufferedIOBase, limit: int) -> None:
        """Append a stream. Raises FetchError when it has more than `limit` bytes, and when the disk takes no more."""
        with self.path.open("ab", buffering=0) as into:
            while block := source.read1(PIECE):  # what is there: a slow line loses less when it is cut
                limit -= len(block)
                if limit < 0:
                    raise FetchError("more bytes came than the file has")
                self._write_block(into, block)

    def receive_from(self, pipe: io.RawIOBase, buffer: memoryview, limit: int) -> bool:
        """Append `limit` bytes of a pipe. Returns whether all came. Raises FetchError when the disk takes no more."""
        with self.path.open("ab", buffering=0) as into:
            while limit:
                came = pipe.readinto(buffer[: min(limit, len(buffer))])
                if not came:
                    return False
                limit -= came
                self._write_block(into, buffer[:came])
        return True

    def _write_block(self, into: io.FileIO, block: bytes | memoryview) -> None:
        """Write and count a block. A full disk takes a part of it: what is counted is what is in the file."""
        rest = memoryview(block)
        while rest:
            try:
                written = into.write(rest)
            except OSError as error:
                raise FetchError(f"{self.name}: cannot be written: {explain_error(error)}") from None
            self._count_block(rest[:written], written)
            rest = rest[written:]

    def _count_block(self, block: bytes | memoryview, received: int = 0) -> None:
        self._digest.update(block)
        self.size += len(block)
        self.progress.add(len(block), received)


def has_declared_bytes(path: Path, file: DeclaredFile) -> bool:
    """Whether a regular file has the bytes of a declared one."""
    try:
        state = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(state.st_mode)
        and state.st_size == file.size
        and _hash_file(path, FetchProgress(file.size)) == file.sha256
    )


def _hash_file(path: Path, progress: FetchProgress) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            made.update(block)
            progress.add(len(block))
    return made.hexdigest()


def explain_error(error: object) -> str:
    """Return what the system says about an error, in one line; else its text, or its type."""
    return " ".join(f"{getattr(error, 'strerror', None) or error or type(error).__name__}".split())


def _make_folder(folder: Path) -> None:
    """Make a folder. Raises FetchError where it is a link or something else."""
    try:
        folder.mkdir(mode=0o755)
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise FetchError(f"{folder} is not a folder; move it away") from None


def _sync_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
