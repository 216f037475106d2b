"""Bring one image into docker of this node: the layers that it lacks, from another node, also while that one gets them.

It runs on a node with its python3 alone, so it imports nothing of sparkrack.

    fetch_image.py fetch JOB      as root; the job is a JSON file, which is removed when it has been read
    fetch_image.py send           on the other node, as the user who logs in there; the request is standard input

A job: image, its ID; ssh, the command line up to the address of the other node; folder; size of the image, in bytes.
A request: image; folder; `stacks`, the layers of each image that the receiver has, or `blobs` in containerd's store;
`left_out` and `came`, of the archive that an earlier transfer has left.
The answer: a line of JSON with `names` (the layers or blobs of the image), `left_out` and `offset`; then the archive of
`docker save` from that offset on, without what is left out, with the same bytes whichever node sends it.

The folder has, for an image, the archive as it comes (`.tar`), the answer's line (`.json`), and a lock that the
receiver holds (`.lock`). Each is named by the hexadecimal part of the image's ID. `docker load` takes a layer that is
left out from docker's store, and it compares each layer with its digest. When it fails, all layers are fetched once.
"""

from __future__ import annotations

import fcntl
import grp
import json
import os
import shlex
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 20
PIPE = 64 << 10
"""Bytes of one read of a connection: what a pipe holds."""
PAUSE = 0.05
"""Interval in seconds at which the size of a growing archive is read."""
TRIES = 40
"""Attempts to take a lock, one in each pause."""
STOPPED = 75
"""Exit status of `send` when the other node's own transfer ended without the image."""
STOPPED_TEXT = "the transfer of the other node ended before it had the image"
RESERVE = 1 << 30
"""Bytes of the disk that stay free."""
CONTENT = ("ctr", "--namespace", "moby", "content")
"""containerd's own client: docker has no command that lists the blobs of its store."""
SNAPSHOTTER = "io.containerd.snapshotter"


class FetchError(Exception):
    """The image cannot be brought. The text is one line."""


class LoadError(FetchError):
    """docker does not accept the archive."""


class SourceStoppedError(FetchError):
    """The other node does not have the image, and does not get it."""


class ArchivePaths:
    """The files of one image in the folder."""

    def __init__(self, folder: str, image: str) -> None:
        """Raises FetchError for an ID that is not one."""
        kind, _, name = image.partition(":")
        if kind != "sha256" or len(name) != 64 or set(name) - set("0123456789abcdef"):
            raise FetchError(f"{image!r} is not the ID of an image")
        self.folder, self.name = Path(folder), name
        self.archive, self.answer, self.lock = (self.folder / f"{name}.{end}" for end in ("tar", "json", "lock"))

    def remove(self) -> None:
        """Remove the archive; a node that reads it keeps its open file."""
        for path in (self.answer, self.archive):
            path.unlink(missing_ok=True)

    def read_answer(self) -> dict[str, Any]:
        """Return the answer's line, empty when there is none."""
        try:
            return dict(json.loads(self.answer.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return {}

    def is_receiving(self) -> bool:
        """Return whether a receiver of this node has the lock."""
        return is_locked(self.lock)


class GrowingFile:
    """An archive that another process writes: a read waits for bytes. Raises SourceStoppedError when none will come."""

    def __init__(self, paths: ArchivePaths) -> None:
        self.paths, self._file = paths, paths.archive.open("rb", buffering=0)
        self._inode = os.fstat(self._file.fileno()).st_ino

    def read(self, size: int = -1) -> bytes:
        """Return what is there, up to `size` bytes; empty never."""
        while True:
            ended = not (self.paths.is_receiving() and self._is_in_place())
            if block := self._file.read(size):
                return block
            if ended:
                raise SourceStoppedError(STOPPED_TEXT)
            time.sleep(PAUSE)

    def _is_in_place(self) -> bool:
        try:
            return self.paths.archive.stat().st_ino == self._inode
        except FileNotFoundError:
            return False


class OffsetWriter:
    """Standard output without its first bytes, which the receiver has."""

    def __init__(self, skipped: int) -> None:
        self._skipped = skipped

    def write(self, block: bytes) -> None:
        """Write what is not skipped."""
        rest = memoryview(block)
        if self._skipped:
            before = min(self._skipped, len(rest))
            self._skipped -= before
            rest = rest[before:]
        while rest:
            rest = rest[os.write(1, rest) :]


def is_locked(path: Path) -> bool:
    """Return whether a process has locked a file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def take_lock(handle: int) -> None:
    """Take the lock of an open file; `is_locked` has it for a moment. Raises FetchError when a receiver has it."""
    for _ in range(TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE)
        else:
            return
    raise FetchError("another transfer of this image is active")


def run_command(*words: str) -> str | None:
    """Return the output of a command, None when it fails or is not there."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def run_content(*words: str) -> str | None:
    """Return the output of containerd's client, which needs root."""
    return run_command(*(() if os.geteuid() == 0 else ("sudo", "-n")), *CONTENT, *words)


def uses_containerd() -> bool:
    """Return whether docker of this node keeps images in containerd's store."""
    return SNAPSHOTTER in (run_command("docker", "info", "--format", "{{json .DriverStatus}}") or "")


def held_here() -> dict[str, list[Any]]:
    """Return what the receiver has: blobs of containerd's store, else the layers of each image."""
    if uses_containerd():
        return {"blobs": (run_content("ls", "--quiet") or "").split()}
    images = sorted(set((run_command("docker", "image", "ls", "--all", "--quiet", "--no-trunc") or "").split()))
    return {"stacks": [layers for image in images if (layers := layers_of(image))]}


def layers_of(image: str) -> list[str] | None:
    """Return the layers of an image of docker's store, the lowest first; None when it does not have the image. Raises
    FetchError when docker does not answer.
    """
    found = run_command("docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", image)
    if found is not None:
        return json.loads(found) or []
    require_docker()
    return None


def require_docker() -> None:
    """Raise FetchError, with the words of docker's client, unless docker answers the user of this process."""
    try:
        done = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise FetchError("docker is not installed") from None
    if done.returncode:
        raise FetchError(" ".join(done.stderr.split())[:300] or f"docker version ended with {done.returncode}")


def blobs_of(image: str) -> list[str]:
    """Return the blobs of an image that are in containerd's store, empty when that does not answer."""
    here, found, asked = set((run_content("ls", "--quiet") or "").split()), list[str](), [image]
    while asked:
        digest = asked.pop()
        if digest not in here or digest in found:
            continue
        found.append(digest)
        try:
            manifest = json.loads(run_content("get", digest) or "{}")
        except ValueError:
            return []
        for child in (manifest.get("config"), *manifest.get("layers", ()), *manifest.get("manifests", ())):
            if child and ("manifest" in child["mediaType"] or "index" in child["mediaType"]):
                asked.append(child["digest"])
            elif child and child["digest"] in here and child["digest"] not in found:
                found.append(child["digest"])
    return found


def left_out_of(names: list[str], request: dict[str, Any]) -> list[str]:
    """Return the names that the receiver has. docker's own store finds a layer by all layers below it."""
    held = set(request.get("blobs", ()))
    stacks = request.get("stacks", ())
    shared = 0
    while shared < len(names) and any(stack[: shared + 1] == names[: shared + 1] for stack in stacks):
        shared += 1
    return [name for place, name in enumerate(names) if place < shared or name in held]


@contextmanager
def saved_image(image: str) -> Iterator[IO[bytes]]:
    """The stream of `docker save`. Raises FetchError when that fails."""
    with subprocess.Popen(
        ["docker", "save", image], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        if process.stdout is None:
            raise FetchError("docker save has no output")
        try:
            yield process.stdout
            while process.stdout.read(BLOCK):
                pass
            if process.wait():
                raise FetchError(f"docker save ended with {process.returncode}")
        finally:
            process.kill()


def send(request: dict[str, Any]) -> None:
    """Print the answer and the archive: from docker, or from the archive that comes to this node. Raises FetchError."""
    image = str(request["image"])
    paths = ArchivePaths(str(request["folder"]), image)
    while True:
        layers = layers_of(image)
        if layers is not None:
            names = blobs_of(image) if uses_containerd() else layers
            left_out = left_out_of(names, request)
            offset = print_answer(request, names, left_out)
            with saved_image(image) as stream:
                copy_members(stream, left_out, offset)
            return
        receiving, answer = paths.is_receiving(), paths.read_answer()
        if not receiving:
            raise SourceStoppedError(STOPPED_TEXT)
        left_out = left_out_of(answer.get("names", []), request)
        # What this node has of the image itself is not in its archive: a receiver that lacks it waits for the image.
        if answer and set(answer["left_out"]) <= set(left_out):
            try:
                growing = GrowingFile(paths)
            except FileNotFoundError:
                continue
            copy_members(growing, left_out, print_answer(request, answer["names"], left_out))
            return
        time.sleep(PAUSE)


def print_answer(request: dict[str, Any], names: list[str], left_out: list[str]) -> int:
    """Print the answer's line, and return the offset: an archive with another content begins again at 0."""
    offset = int(request["came"]) if request["left_out"] == left_out else 0
    OffsetWriter(0).write(json.dumps({"names": names, "left_out": left_out, "offset": offset}).encode() + b"\n")
    return offset


def copy_members(stream: Any, left_out: list[str], offset: int) -> None:
    """Print an archive again without the blobs that are left out; headers have nothing of the node that made it."""
    writer = OffsetWriter(offset)
    dropped = {f"blobs/{name.replace(':', '/')}" for name in left_out}
    with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as archive:
        for member in archive:
            if member.name in dropped:
                continue
            header = tarfile.TarInfo(member.name)
            header.type, header.linkname, header.size = member.type, member.linkname, member.size
            header.mode = 0o755 if member.isdir() else 0o644
            writer.write(header.tobuf(tarfile.GNU_FORMAT))
            content = archive.extractfile(member) if member.isreg() else None
            while content and (block := content.read(BLOCK)):
                writer.write(block)
            writer.write(bytes(-member.size % tarfile.BLOCKSIZE) if content else b"")
    writer.write(bytes(2 * tarfile.BLOCKSIZE))


class Receiver:
    """The receiving end of one image."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.image, self.ssh, self.size = str(job["image"]), list(map(str, job["ssh"])), int(job["size"])
        self.paths = ArchivePaths(str(job["folder"]), self.image)
        self.received, self._handle = 0, -1

    def fetch(self) -> None:
        """Receive and load; once more with all layers when docker does not accept what came. Raises FetchError."""
        make_folder(self.paths.folder)
        self._handle = os.open(self.paths.lock, os.O_RDONLY | os.O_CREAT, 0o640)
        take_lock(self._handle)
        remove_others(self.paths)
        try:
            self._receive_layers(held_here())
            self._load_archive()
        except LoadError as refused:
            print(f"{refused}; all layers are fetched", file=sys.stderr, flush=True)
            self.paths.remove()
            self._receive_layers({})
            try:
                self._load_archive()
            except LoadError:
                self.paths.remove()
                raise

    def _receive_layers(self, held: dict[str, list[Any]]) -> None:
        """Append to the archive what it lacks. Raises FetchError."""
        came = self.paths.archive.stat().st_size if self.paths.archive.exists() else 0
        free = os.statvfs(self.paths.folder)
        if free.f_bavail * free.f_frsize < self.size - came + RESERVE:
            raise FetchError(
                f"{self.paths.folder} has {free.f_bavail * free.f_frsize // 10**6} MB free, "
                f"{(self.size - came + RESERVE) // 10**6} MB are needed"
            )
        before = self.paths.read_answer().get("left_out")
        request = {"image": self.image, "folder": str(self.paths.folder), "left_out": before, "came": came, **held}
        program = Path(__file__).read_text(encoding="utf-8")
        remote = shlex.join(["python3", "-I", "-B", "-c", program, "send"])
        with subprocess.Popen(
            [*self.ssh, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise FetchError("ssh has no output")
            complaints: list[bytes] = []
            listener = threading.Thread(target=lambda: complaints.extend(process.stderr or ()), daemon=True)
            listener.start()
            try:
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
                self._append_archive(process.stdout)
            except BrokenPipeError:
                pass
            except (FetchError, OSError):
                process.terminate()  # it would wait for a reader of its output
                raise
            finally:
                process.stdout.close()
                code = process.wait()
                listener.join()
        if code == STOPPED:
            raise SourceStoppedError(STOPPED_TEXT)  # without the banner of sshd, which is in the same output
        if code:
            words = [line.decode(errors="replace").strip() for line in complaints]
            raise FetchError("; ".join(word for word in words if word)[-300:] or f"ssh ended with {code}")

    def _append_archive(self, stream: Any) -> None:
        line = stream.readline()
        if not line:
            return  # the exit status says why
        try:
            answer = json.loads(line)
            offset = int(answer.pop("offset"))
        except (ValueError, TypeError, AttributeError, KeyError):
            raise FetchError(
                f"the other node printed {line[:60].decode(errors='replace').strip()!r} before its answer; "
                "the shell of the user who logs in there has to print nothing"
            ) from None
        if not offset:
            self.paths.remove()
        with self.paths.archive.open("ab", buffering=0) as archive:
            os.truncate(archive.fileno(), offset)
            new = self.paths.answer.with_suffix(".new")
            new.write_text(json.dumps(answer), encoding="utf-8")
            new.replace(self.paths.answer)
            while block := stream.read1(PIPE):
                rest = memoryview(block)
                while rest:
                    rest = rest[self._write_block(archive, rest) :]
                self.received += len(block)

    def _write_block(self, archive: Any, block: memoryview) -> int:
        try:
            return int(archive.write(block))
        except OSError as error:
            raise FetchError(f"{self.paths.archive}: {error.strerror}") from None

    def _load_archive(self) -> None:
        """Let docker load the archive. Raises LoadError unless it has every layer then, FetchError when docker does not
        answer: what has come is right, as far as is known."""
        with self.paths.archive.open("rb") as archive:
            done = subprocess.run(["docker", "load"], stdin=archive, stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        if done.returncode:
            require_docker()
        # With containerd's store, docker load ends with 0 when it could not unpack the image.
        if done.returncode or "Error unpacking image" in done.stdout or layers_of(self.image) is None:
            raise LoadError("docker load does not accept the archive")
        names = self.paths.read_answer().get("names", [])
        if uses_containerd() and set(names) - set((run_content("ls", "--quiet") or "").split()):
            raise LoadError("containerd's store lacks blobs of the image")
        self.paths.remove()

    def report(self, ended: threading.Event) -> None:
        """Print the bytes that came, each second and at the end."""
        while True:
            last = ended.wait(1)
            print(f"{self.received} bytes copied", flush=True)
            if last:
                return


def make_folder(folder: Path) -> None:
    """Make the folder, which the group docker can read. Raises FetchError where another user has made it."""
    try:
        folder.mkdir(mode=0o750)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise FetchError(f"{folder} is not a folder of root alone; remove it") from None
    try:
        os.chown(folder, -1, grp.getgrnam("docker").gr_gid)
        folder.chmod(0o2750)
    except KeyError:
        pass


def remove_others(paths: ArchivePaths) -> None:
    """Remove what ended transfers of other images have left."""
    for lock in paths.folder.glob("*.lock"):
        if lock != paths.lock and not is_locked(lock):
            for path in paths.folder.glob(f"{lock.stem}.*"):
                path.unlink(missing_ok=True)


def fetch(path: str) -> int:
    """Run a job, and print how it ended."""
    text = Path(path).read_text(encoding="utf-8")
    Path(path).unlink()
    receiver, ended, code = Receiver(json.loads(text)), threading.Event(), 0
    reporter = threading.Thread(target=receiver.report, args=(ended,), daemon=True)
    reporter.start()
    try:
        receiver.fetch()
    except (FetchError, OSError, ValueError) as error:
        code = 1
        print(" ".join(f"{error}".split()), file=sys.stderr, flush=True)
    ended.set()
    reporter.join()
    print(f"sparkrack: load ended {code}", flush=True)
    return code


def main(words: list[str]) -> int:
    """Run one verb."""
    os.umask(0o027)
    match words:
        case ["fetch", path]:
            return fetch(path)
        case ["send"]:
            try:
                send(json.loads(sys.stdin.read()))
            except BrokenPipeError:
                return 1
            except (FetchError, OSError, ValueError, KeyError, TypeError, tarfile.TarError) as error:
                print(error, file=sys.stderr, flush=True)
                return STOPPED if isinstance(error, SourceStoppedError) else 1
            return 0
    print("usage: fetch_image.py fetch JOB | send", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
