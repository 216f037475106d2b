"""Bring the files of one model into its folder on this node.

It runs on a node as root with its python3 alone, so it imports nothing of sparkrack: it comes in one archive with
model_folder.py and model_hub.py, of which python3 runs it as the main program.

    fetch JOB      the job is a JSON file, which is removed when it has been read: it may hold a token
    list           the job is standard input; prints the paths of a revision on the hub, and its indexes
    resolve        the job is standard input; prints size and sha256 of the files at `paths` of it

A job of `fetch`: folder; files, as lists of path, size and sha256; reserve, in bytes; and one source:
    node    ssh, the command line up to the address; folder and unit, of the model on that node; program, the text of
            send_files.py, which runs there
    hub     url, up to the path of a file; token or null
    null    what the operator's machine has written to the parts: what is still missing is listed, and nothing fetched

A node that takes a file from another one takes its part while that grows. Each node computes the sha256 itself, as the
bytes come; a file with other bytes is asked for once more, then from the record of the other node alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from model_folder import BLOCK, SMALL, DeclaredFile, FetchError, FetchProgress, ModelFolder, PartFile, explain_error
from model_hub import HubSource, list_revision, resolve

MAX_BATCH = 1000
"""Files that are asked for over one connection."""
WORKERS = 4
"""Files that are fetched at a time: one ssh connection or one HTTP connection does not fill a fast link."""
STOPPED = 75
"""Exit status of the command on the other node when its own transfer ended without the file."""


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
    folder.check_room(lacking)
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
        folder.remove_parts()
    print(f"sparkrack: at {progress.total} {progress.total} {progress.received}", flush=True)


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
                    error if isinstance(error, FetchError) else FetchError(f"{name}: {explain_error(error)}")
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
    wrong = [file for file in files if not progress.stopped.is_set() and not folder.keep_file(file, progress)]

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
        print(f"{error.filename or 'the disk'}: {explain_error(error)}", file=sys.stderr, flush=True)
    if words[:1] == ["fetch"]:
        print(f"sparkrack: ended {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
