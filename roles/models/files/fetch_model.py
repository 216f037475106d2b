"""Bring the files of one model into its folder on this node.

It runs on a node as root with its python3 alone, so it imports nothing of sparkrack.

    fetch_model.py fetch JOB      the job is a JSON file, which is removed when it has been read: it may hold a token
    fetch_model.py list           the job is standard input; prints the paths of a revision on the hub, and its indexes
    fetch_model.py resolve        the job is standard input; prints size and sha256 of the files at `paths` of it

A job of `fetch`: folder; files, as lists of path, size and sha256; reserve, in bytes; and one source:
    node    ssh, the command line up to the address; folder and unit, of the model on that node; program, the text of
            send_files.py, which runs there
    hub     url, up to the path of a file; token or null
    null    what the operator's machine has written to the parts: what is still missing is listed, and nothing fetched

In the folder of a model, `.sparkrack/parts` has files that are not complete. `.sparkrack/record` has a line for each
file whose sha256 was right, with its size and time of change then; while both are the same, the file is not read again.
A node that takes a file from another one takes its part while that grows. Each node computes the sha256 itself, as the
bytes come; a file with other bytes is asked for once more, then from the record of the other node alone.
A file that is not declared is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 20
PIECE = 64 << 10
"""Bytes of one read of a connection to the hub: a larger buffer costs more, as TLS gives 16 KiB at most."""
SMALL = 16 << 20
"""Bytes: smaller files come many over one connection of ssh, and are written to the disk together."""
MAX_BATCH = 1000
"""Files that are asked for over one connection."""
RECORD_SECONDS = 1.0
"""Seconds after which small files that have come are recorded: other nodes wait for that."""
WORKERS = 4
"""Files that are fetched at a time: one ssh connection or one HTTP connection does not fill a fast link."""
ATTEMPTS = 6
"""Attempts without any progress between them before the hub counts as failed."""
PAUSE = 1.0
"""Seconds before the second attempt; doubled before each further one."""
SECONDS = 60
"""Seconds without a byte after which a connection to the hub is closed."""
MAX_SMALL = 100 << 20
"""Bytes of the largest file that the hub keeps without LFS, hence without a sha256 in its list."""
MAX_LIST = 64 << 20
CONFIGURATIONS = ("config.json", "hf_quant_config.json", "generation_config.json")
MAX_CONFIGURATION = 1 << 20
INDEX = re.compile(r"(?:[^/]+/)*[^/]+\.(safetensors|bin)\.index\.json")
"""An index of weights: it names their files."""
STOPPED = 75
"""Exit status of the command on the other node when its own transfer ended without the file."""


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

    def _write_record(self) -> None:
        new = self.own / "record.new"
        lines = [f"{sha256} {size} {path}\t{changed}\n" for path, (sha256, size, changed) in self._record.items()]
        new.write_text("".join(lines), encoding="utf-8")
        new.chmod(0o644)
        _sync_to_disk(new)
        new.replace(self.own / "record")


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

    def receive(self, source: http.client.HTTPResponse, limit: int) -> None:
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
                raise FetchError(f"{self.name}: cannot be written: {_explain_error(error)}") from None
            self._count_block(rest[:written], written)
            rest = rest[written:]

    def _count_block(self, block: bytes | memoryview, received: int = 0) -> None:
        self._digest.update(block)
        self.size += len(block)
        self.progress.add(len(block), received)


class NodeSource:
    """Another node of the rack, which has the model or is about to have it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._ssh, self._folder, self._unit = list(map(str, job["ssh"])), str(job["folder"]), str(job["unit"])
        self._program = str(job["program"])
        self._running: set[subprocess.Popen[bytes]] = set()

    def stop(self) -> None:
        """End all copies: each may be waiting for the other node."""
        for process in tuple(self._running):
            process.kill()

    def batches(self, files: list[DeclaredFile]) -> list[list[DeclaredFile]]:
        """Return the files, small ones together: a connection costs more than their bytes."""
        found: list[list[DeclaredFile]] = []
        room = 0
        for file in files:
            if not found or file.size > room or len(found[-1]) >= MAX_BATCH:
                found.append([])
                room = SMALL
            found[-1].append(file)
            room -= file.size
        return found

    def copy(
        self,
        wanted: list[tuple[DeclaredFile, PartFile]],
        arrived: Callable[[DeclaredFile, PartFile], None],
        *,
        recorded: bool,
    ) -> None:
        """Append the rest of files to their parts, over one connection: as they come to the other node, else
        (`recorded`) only after their sha256 was right there. arrived: gets each that is complete. Raises FetchError.
        """
        request = {"folder": self._folder, "unit": self._unit, "follows": not recorded}
        rows = [[file.path, file.size, file.sha256, part.path.name, part.size] for file, part in wanted]
        sender = shlex.join(["python3", "-I", "-S", "-B", "-c", self._program])
        with subprocess.Popen(
            [*self._ssh, sender], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        ) as process:
            if process.stdin is None or process.stderr is None or not isinstance(process.stdout, io.RawIOBase):
                raise FetchError("ssh has no output")
            self._running.add(process)
            try:
                if any(part.progress.stopped.is_set() for _, part in wanted):
                    raise FetchError("stopped")
                send_request(process.stdin, json.dumps({**request, "files": rows}).encode())
                lacking = receive_files(process.stdout, wanted, arrived)
                words = process.stderr.read().decode(errors="replace").split("\n")
                code = process.wait()
            finally:
                process.kill()
                self._running.discard(process)
        if code == STOPPED:
            raise FetchError("the transfer of the other node ended before it had the model")
        if code or lacking:
            text = "; ".join(word for word in words if word.strip())[-300:]
            what = lacking or wanted[-1][0]
            raise FetchError(f"{what.path}: {text or f'the other node sent too little, exit {code}'}")


def send_request(stdin: IO[bytes], request: bytes) -> None:
    """Write a request, and close the pipe. A program that has ended says why by its exit status."""
    try:
        rest = memoryview(request)
        while rest:
            rest = rest[stdin.write(rest) :]
        stdin.close()
    except BrokenPipeError:
        pass


def receive_files(
    pipe: io.RawIOBase,
    wanted: list[tuple[DeclaredFile, PartFile]],
    arrived: Callable[[DeclaredFile, PartFile], None],
) -> DeclaredFile | None:
    """Receive files one after the other. Returns the first that is not complete. Raises FetchError."""
    with contextlib.suppress(OSError):  # a larger pipe than is allowed: it stays as it is
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, BLOCK)
    buffer = memoryview(bytearray(BLOCK))
    for file, part in wanted:
        if not part.receive_from(pipe, buffer, file.size - part.size):
            return file
        arrived(file, part)
    if pipe.readinto(buffer[:1]):
        raise FetchError("more bytes came than the files have")
    return None


class HubSource:
    """A hub with the files of a commit under one address."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._url, self._token = str(job["url"]), job["token"]

    def stop(self) -> None:
        """Nothing: a connection ends by itself."""

    def batches(self, files: list[DeclaredFile]) -> list[list[DeclaredFile]]:
        """Return the files, each alone."""
        return [[file] for file in files]

    def copy(
        self,
        wanted: list[tuple[DeclaredFile, PartFile]],
        arrived: Callable[[DeclaredFile, PartFile], None],
        *,
        recorded: bool,  # noqa: ARG002 - of a node
    ) -> None:
        """Append the rest of files to their parts. arrived: gets each that is complete. Raises FetchError."""
        for file, part in wanted:
            self.append_rest(file, part)
            arrived(file, part)

    def append_rest(self, file: DeclaredFile, part: PartFile) -> None:
        """Append the rest of a file to its part, by ranges, with some patience. Raises FetchError."""
        failed = 0
        while (start := part.size) < file.size:
            try:
                self._fetch_range(file, part)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code not in (408, 429) and error.code < 500:
                    raise FetchError(_explain_http_error(error, file.path)) from None
                failed = 1 if part.size > start else failed + 1
                if failed >= ATTEMPTS:
                    raise FetchError(f"{file.path}: the hub does not give it: {_explain_error(error)}") from None
                if part.progress.stopped.wait(PAUSE * 2 ** (failed - 1)):
                    raise FetchError("stopped") from None

    def _fetch_range(self, file: DeclaredFile, part: PartFile) -> None:
        url, start = self._url + urllib.parse.quote(file.path), part.size
        with _open_url(url, self._token, {"Range": f"bytes={start}-"} if start else {}) as answer:
            if start and answer.status == 206:
                given = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
                if given is None or int(given[1]) != start:
                    raise FetchError(f"{file.path}: the hub gives other bytes than the ones that it was asked for")
            elif start:
                part.restart()
            part.receive(answer, file.size - part.size)
        if part.size < file.size:
            raise OSError("the connection ended early")


def fetch(job: dict[str, Any]) -> None:
    """Bring all files of a job. Raises FetchError."""
    files = [DeclaredFile(*row) for row in job["files"]]
    if len({file.path for file in files}) < len(files):
        raise FetchError("a path is there twice")
    source: NodeSource | HubSource | None = None
    match job["source"]:
        case {"ssh": _}:
            source = NodeSource(job["source"])
        case {"url": _}:
            source = HubSource(job["source"])
    folder = ModelFolder(job["folder"], int(job["reserve"]))
    progress = FetchProgress(sum(file.size for file in files))
    lacking = [file for file in files if not folder.is_recorded(file)]
    progress.add(progress.total - sum(file.size for file in lacking))
    folder.forget(lacking)
    _check_room(folder, lacking)
    ended = threading.Event()
    reporter = threading.Thread(target=progress.report, args=(ended,), daemon=True)
    reporter.start()
    try:
        _fetch_all_files(folder, lacking, source, progress)
    finally:
        ended.set()
        reporter.join()
    missing = [file for file in lacking if not folder.is_recorded(file)]
    for file in missing:
        part = folder.part(file.path, file.sha256)
        here = part.stat().st_size if part.exists() else 0
        print(f"sparkrack: lacks {here} {file.sha256} {part} {file.path}", flush=True)
    if not missing:
        _remove_parts(folder)
    print(f"sparkrack: at {progress.total} {progress.total} {progress.received}", flush=True)


class Revision:
    """A revision of a model on the hub. Files without a sha256 in its list are fetched to the parts."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Ask the hub for its list. Raises FetchError."""
        endpoint, name, self.token = str(job["endpoint"]).rstrip("/"), str(job["name"]), job["token"]
        revision = urllib.parse.quote(str(job["revision"]), safe="")
        found = _request_file_list(f"{endpoint}/api/models/{name}/revision/{revision}?blobs=true", self.token, name)
        self.commit = str(found["sha"])
        self.entries: dict[str, dict[str, Any]] = {entry["rfilename"]: entry for entry in found["siblings"]}
        for path in self.entries:
            DeclaredFile(path, 0, "0" * 64)
        if len(self.entries) < len(found["siblings"]):
            raise FetchError(f"{name}: the hub lists a path twice")
        self.folder = ModelFolder(job["folder"])
        self.base = f"{endpoint}/{name}/resolve/{self.commit}/"

    def file(self, path: str) -> DeclaredFile:
        """A file of it with its sha256. Raises FetchError."""
        entry = self.entries.get(path)
        if entry is None:
            raise FetchError(f"{path!r} is not in the list of the hub")
        if large := entry.get("lfs"):
            return DeclaredFile(path, int(large["size"]), str(large["sha256"]))
        return _fetch_small_file(self.folder, self.base, self.token, path, int(entry["size"]), str(entry["blobId"]))

    def index(self, path: str) -> list[str] | None:
        """The names in an index of weights, None for another file. Raises FetchError."""
        file = self.file(path)
        if file.size > MAX_SMALL:
            return None
        part = self.folder.part(path, file.sha256)
        if (
            self.entries[path].get("lfs")
            and not _has_declared_bytes(self.folder.place(file), file)
            and not _has_declared_bytes(part, file)
        ):
            part.unlink(missing_ok=True)
            coming = PartFile(part, path, FetchProgress(file.size))
            HubSource({"url": self.base, "token": self.token}).append_rest(file, coming)
            if coming.sha256 != file.sha256:
                part.unlink()
                raise FetchError(f"{path}: the hub gives other bytes than its list says")
        try:
            names = json.loads(_read_content(self.folder, file))["weight_map"].values()
            return sorted({str(name) for name in names})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def list_revision(job: dict[str, Any]) -> None:
    """Print the commit of a revision, the paths of its files, and the names in its indexes. Raises FetchError."""
    found = Revision(job)
    indexes = {path: found.index(path) for path in found.entries if INDEX.fullmatch(path)}
    print(json.dumps({"revision": found.commit, "paths": list(found.entries), "indexes": indexes}))


def resolve(job: dict[str, Any]) -> None:
    """Print the commit of a revision, the files at `paths`, and their configurations. Raises FetchError."""
    found = Revision(job)
    rows: list[list[Any]] = []
    texts: dict[str, str] = {}
    for path in map(str, job["paths"]):
        file = found.file(path)
        rows.append([file.path, file.size, file.sha256])
        if path in CONFIGURATIONS and not found.entries[path].get("lfs") and file.size <= MAX_CONFIGURATION:
            texts[path] = _read_content(found.folder, file).decode(errors="replace")
    print(json.dumps({"revision": found.commit, "files": rows, "configurations": texts}))


def _request_file_list(url: str, token: str | None, name: str) -> dict[str, Any]:
    for attempt in range(ATTEMPTS):
        try:
            with _open_url(url, token, {}) as answer:
                text = answer.read(MAX_LIST + 1)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in (408, 429) and error.code < 500:
                raise FetchError(_explain_http_error(error, name)) from None
            if attempt == ATTEMPTS - 1:
                raise FetchError(f"{name}: the hub does not answer: {_explain_error(error)}") from None
            time.sleep(PAUSE * 2**attempt)
        else:
            break
    try:
        found = json.loads(text)
        entries = found["siblings"]
        sound = (
            bool(entries)
            and re.fullmatch("[0-9a-f]{40}", found["sha"])
            and all(isinstance(entry["rfilename"], str) and isinstance(entry["size"], int) for entry in entries)
            and all(entry.get("lfs") or re.fullmatch("[0-9a-f]{40}", entry["blobId"]) for entry in entries)
            and all(
                isinstance(entry["lfs"]["size"], int) and isinstance(entry["lfs"]["sha256"], str)
                for entry in entries
                if entry.get("lfs")
            )
        )
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise FetchError(f"{name}: the hub's list of files cannot be used")
    return dict(found)


def _fetch_small_file(
    folder: ModelFolder, base: str, token: str | None, path: str, size: int, blob: str
) -> DeclaredFile:
    """A file of which the hub gives the hash of git alone: it is fetched, and its sha256 taken from its bytes."""
    if size > MAX_SMALL:
        raise FetchError(f"{path}: the hub gives no sha256 for this file of {size // 10**6} MB")
    unknown = DeclaredFile(path, size, "0" * 64)
    for place in (folder.place(unknown), *folder.parts.glob(f"{folder.part(path, '').name}*")):
        if place.is_file() and not place.is_symlink() and place.stat().st_size == size:
            content = place.read_bytes()
            if _git_blob_hash(content) == blob:
                return DeclaredFile(path, size, hashlib.sha256(content).hexdigest())
    part = folder.part(path, "git")
    part.unlink(missing_ok=True)
    HubSource({"url": base, "token": token}).append_rest(unknown, PartFile(part, path, FetchProgress(size)))
    content = part.read_bytes()
    if _git_blob_hash(content) != blob:
        part.unlink()
        raise FetchError(f"{path}: the hub gives other bytes than its list says")
    file = DeclaredFile(path, size, hashlib.sha256(content).hexdigest())
    part.replace(folder.part(path, file.sha256))
    return file


def _read_content(folder: ModelFolder, file: DeclaredFile) -> bytes:
    part = folder.part(file.path, file.sha256)
    return (part if part.exists() else folder.place(file)).read_bytes()


def _has_declared_bytes(path: Path, file: DeclaredFile) -> bool:
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


def _git_blob_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _fetch_all_files(
    folder: ModelFolder, files: list[DeclaredFile], source: NodeSource | HubSource | None, progress: FetchProgress
) -> None:
    """Bring files side by side; the first failure stops the others. Raises FetchError."""
    failures: list[FetchError] = []

    def one(batch: list[DeclaredFile]) -> None:
        try:
            try:
                _fetch_batch(folder, batch, source, progress)
            finally:
                folder.record_small()
        except (FetchError, OSError) as error:
            if not progress.stopped.is_set():
                name = batch[0].path if len(batch) == 1 else str(folder.top)
                failures.append(
                    error if isinstance(error, FetchError) else FetchError(f"{name}: {_explain_error(error)}")
                )
            progress.stopped.set()
            if source is not None:
                source.stop()

    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(one, source.batches(files) if source else [[file] for file in files]):
            pass
    if failures:
        raise failures[0]


def _fetch_batch(
    folder: ModelFolder, files: list[DeclaredFile], source: NodeSource | HubSource | None, progress: FetchProgress
) -> None:
    """Bring files over one connection; those that came with other bytes once more. Raises FetchError."""
    wrong = [file for file in files if not progress.stopped.is_set() and not keep_file(folder, file, progress)]

    def judge(file: DeclaredFile, part: PartFile) -> None:
        if part.sha256 == file.sha256:
            folder.accept(file, part.path)
            return
        progress.add(-file.size)
        part.path.unlink()
        wrong.append(file)

    for attempt in range(2):
        wanted = []
        lacking, wrong = wrong, []
        for file in lacking:
            path = folder.part(file.path, file.sha256)
            if source is None and (not path.exists() or path.stat().st_size < file.size):
                continue
            part = PartFile(path, file.path, progress)
            if part.size < file.size:
                wanted.append((file, part))
            else:
                judge(file, part)
        if source is not None and wanted:
            source.copy(wanted, judge, recorded=attempt > 0)
    if wrong:
        raise FetchError(f"{wrong[0].path}: what came has another sha256 than the one that was recorded, twice")


def keep_file(folder: ModelFolder, file: DeclaredFile, progress: FetchProgress) -> bool:
    """Whether a file is in its place with the right bytes. A part with more bytes than it has is removed."""
    found = folder.state(file)
    if found and found.st_size == file.size:
        if _hash_file(folder.place(file), progress) == file.sha256:
            folder.confirm(file)
            return True
        progress.add(-file.size)
        _require_free_space(folder, file.size)
    path = folder.part(file.path, file.sha256)
    if path.exists() and path.stat().st_size > file.size:
        path.unlink()
    return False


def _check_room(folder: ModelFolder, files: list[DeclaredFile]) -> None:
    """Raises FetchError unless all that is missing has room, before the first byte."""
    needed = 0
    for file in files:
        part, found = folder.part(file.path, file.sha256), folder.state(file)
        if found is None or found.st_size != file.size:
            needed += file.size - min(part.stat().st_size if part.exists() else 0, file.size)
    _require_free_space(folder, needed)


def _require_free_space(folder: ModelFolder, needed: int) -> None:
    disk = os.statvfs(folder.top)
    free = disk.f_bavail * disk.f_frsize
    if needed and free < needed + folder.reserve:
        what = f"{folder.top} has {free // 10**6} MB free"
        raise FetchError(f"{what}, what it lacks needs {(needed + folder.reserve) // 10**6} MB")


def _remove_parts(folder: ModelFolder) -> None:
    """When a model is complete, parts are left of other revisions alone."""
    for part in folder.parts.iterdir():
        part.unlink()


def _hash_file(path: Path, progress: FetchProgress) -> str:
    made = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            made.update(block)
            progress.add(len(block))
    return made.hexdigest()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to another host without the token, and never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request for the new address."""
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme != "https" and old.scheme == "https":
            raise FetchError("the hub redirects to an address without TLS")
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and (new.scheme, new.netloc) == (old.scheme, old.netloc):
            for key, value in req.unredirected_hdrs.items():
                if key == "Authorization":
                    made.add_unredirected_header(key, value)
        return made


def _open_url(url: str, token: str | None, headers: dict[str, str]) -> http.client.HTTPResponse:
    if urllib.parse.urlsplit(url).scheme not in ("https", "http"):
        raise FetchError("the address of the hub is neither https nor http")
    request = urllib.request.Request(url, headers={"User-Agent": "sparkrack", **headers})  # noqa: S310
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    answer: http.client.HTTPResponse = urllib.request.build_opener(_Redirects).open(request, timeout=SECONDS)
    return answer


def _explain_http_error(error: urllib.error.HTTPError, what: str) -> str:
    known = {
        401: "it needs a token, or the token is not valid",
        403: "the token has no access to it",
        404: "is not there",
    }
    return f"{what}: the hub answers {error.code}: {known.get(error.code, error.reason)}"


def _explain_error(error: BaseException) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return " ".join(f"{getattr(inner, 'strerror', None) or inner or type(inner).__name__}".split())


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


def main(words: list[str]) -> int:
    """Run one job; the exit status is 1 after a failure, whose reason is printed."""
    os.umask(0o022)
    code = 0
    try:
        match words:
            case ["fetch", path]:
                text = Path(path).read_text(encoding="utf-8")
                Path(path).unlink()
                fetch(json.loads(text))
            case ["list"]:
                list_revision(json.loads(sys.stdin.read()))
            case ["resolve"]:
                resolve(json.loads(sys.stdin.read()))
            case _:
                code = 2
                print("usage: fetch_model.py fetch JOB | list | resolve", file=sys.stderr)
    except FetchError as error:
        code = 1
        print(error, file=sys.stderr, flush=True)
    except OSError as error:
        code = 1
        print(f"{error.filename or 'the disk'}: {_explain_error(error)}", file=sys.stderr, flush=True)
    if words[:1] == ["fetch"]:
        print(f"sparkrack: ended {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
