"""A hub on loopback that has models, and the program that fetches them, in local folders with stand-ins for ssh."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from core.util import resources
from roles.models import scripts
from tests.unit.ops.shells import stand_in

COMMIT = "c0ffee" + "0" * 34
NAME = "Qwen/Small"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def model(files: int = 4, size: int = 300_000) -> dict[str, bytes]:
    """A model with files of weights, the same ones each time, and two small files."""
    weights = {
        f"model-{number:05}-of-{files:05}.safetensors": b"".join(
            hashlib.sha256(b"%d %d" % (number, place)).digest() for place in range(size // 32)
        )
        for number in range(1, files + 1)
    }
    return {"config.json": b'{"model_type": "small"}', "nested/vocab file.txt": b"a b\n", **weights}


def rows(files: dict[str, bytes]) -> list[list[Any]]:
    """The list of files of a job."""
    return [[path, len(content), sha256(content)] for path, content in files.items()]


@dataclass
class LoopbackHub:
    """A hub with one model. `cut`: bytes after which an answer ends, by path, each once. `requests`: path, range and
    token of each. `sends`: other bytes than the list says. `without_ranges`: it ignores them. `token`: it asks for it.
    `pause`: an answer stops after `pause_after` bytes until it is set.
    """

    files: dict[str, bytes]
    large: int = 1000
    token: str = ""
    cut: dict[str, int] = field(default_factory=dict)
    sends: dict[str, bytes] = field(default_factory=dict)
    status: dict[str, list[int]] = field(default_factory=dict)
    without_ranges: bool = False
    redirect: str = ""
    listed: Any = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    pause: threading.Event | None = None
    pause_after: int = 0
    url: str = ""

    def listing(self) -> Any:
        if self.listed is not None:
            return self.listed
        entries: list[dict[str, Any]] = []
        for path, content in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324
            entry: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": git}
            if len(content) > self.large:
                entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return {"sha": COMMIT, "siblings": entries}

    def asked(self, path: str) -> list[str]:
        """The ranges that were asked of a file."""
        return [part for asked, part, _ in self.requests if asked.endswith(f"/{path.replace(' ', '%20')}")]


def _make_handler(hub: LoopbackHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, content: bytes, **headers: str) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if hub.pause is not None and len(content) > hub.pause_after:
                self.wfile.write(content[: hub.pause_after])
                self.wfile.flush()
                hub.pause.wait(30)
                content = content[hub.pause_after :]
            self.wfile.write(content)

        def do_GET(self) -> None:
            given = self.headers.get("Range", "")
            token = self.headers.get("Authorization", "")
            hub.requests.append((self.path, given, token))
            cdn = self.path.startswith("/cdn/")
            path = self.path.removeprefix("/cdn").removeprefix(f"/{NAME}/resolve/{COMMIT}/").replace("%20", " ")
            if hub.token and not cdn and token != f"Bearer {hub.token}":
                self.answer(401, b"")
            elif states := hub.status.get(path):
                self.answer(states.pop(0), b"")
            elif self.path.startswith(f"/api/models/{NAME}/revision/"):
                self.answer(200, json.dumps(hub.listing()).encode())
            elif hub.redirect and not cdn:
                self.answer(302, b"", Location=f"{hub.redirect}/cdn{self.path}")
            elif path in hub.files:
                self.file(path, given)
            else:
                self.answer(404, b"")

        def file(self, path: str, given: str) -> None:
            content = hub.sends.get(path, hub.files[path])
            whole, start, status, headers = len(content), 0, 200, {}
            if (found := re.fullmatch(r"bytes=(\d+)-", given)) and not hub.without_ranges:
                start, status = int(found[1]), 206
                headers = {"Content_Range": f"bytes {start}-{whole - 1}/{whole}"}
            content = content[start:]
            limit = hub.cut.pop(path, None)
            if limit is None:
                self.answer(status, content, **headers)
                return
            self.answer(status, content[:limit], **headers, Content_Length=str(len(content)))
            self.close_connection = True

    return Handler


@contextmanager
def serving(hub: LoopbackHub) -> Iterator[LoopbackHub]:
    """The hub, reachable under its `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        if hub.pause is not None:
            hub.pause.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class LocalStore:
    """A node's folder of one model, in a folder of its own."""

    root: Path

    def __post_init__(self) -> None:
        self.root.mkdir(exist_ok=True)
        stand_in(self.root, "systemctl", "exit 3")
        # What the other node would run, here: the last word.
        stand_in(self.root, "ssh", 'for last in "$@"; do :; done; exec sh -c "$last"')

    @property
    def folder(self) -> Path:
        return self.root / "models/m"

    def job(self, files: dict[str, bytes], source: Any, **others: Any) -> dict[str, Any]:
        return {"folder": str(self.folder), "files": rows(files), "reserve": 0, "source": source, **others}

    def start(self, job: dict[str, Any], **patches: Any) -> subprocess.Popen[str]:
        """Start the program with a job. `patches`: constants of the program by name."""
        path = self.root / "job"
        path.write_text(json.dumps(job))
        program = self.root / "program"
        with zipfile.ZipFile(io.BytesIO(scripts.fetch_program())) as archive:
            archive.extractall(program)
        constants = {"PAUSE": 0.01, **patches}
        found = []
        for module in program.iterdir():
            text = module.read_text()
            for name, value in constants.items():
                text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
                found += [name] * count
            module.write_text(text)
        assert sorted(found) == sorted(constants)
        return subprocess.Popen(
            [sys.executable, "-I", "-B", program, "fetch", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": f"{self.root}/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
        )

    def fetch(self, job: dict[str, Any], **patches: Any) -> list[str]:
        """Run a job; return its log."""
        with self.start(job, **patches) as process:
            output, _ = process.communicate(timeout=60)
        assert "Traceback" not in output, output
        return output.splitlines()

    def resolve(
        self, hub: LoopbackHub, revision: str = "main", token: str | None = None, paths: list[str] | None = None
    ) -> tuple[int, str, str]:
        """Run `resolve` for these files, all without them; return its exit status, output and complaints."""
        return self.ask("resolve", hub, revision, token, paths=list(hub.files) if paths is None else paths)

    def ask(
        self, verb: str, hub: LoopbackHub, revision: str = "main", token: str | None = None, **more: Any
    ) -> tuple[int, str, str]:
        """Run a verb that asks the hub; return its exit status, output and complaints."""
        job = {"endpoint": hub.url, "name": NAME, "revision": revision, "token": token, "folder": str(self.folder)}
        job |= more
        program = self.root / "program.zip"
        program.write_bytes(scripts.fetch_program())
        words = [sys.executable, "-I", "-B", str(program), verb]
        done = subprocess.run(words, input=json.dumps(job), capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr.strip()

    def contents(self) -> dict[str, bytes]:
        """The files of the model, without those of the program. `os.walk` passes over a folder that a running transfer
        removes.
        """
        paths = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in paths
            if ".sparkrack" not in path.relative_to(self.folder).parts
        }

    def parts(self) -> list[int]:
        """The sizes of the files that are not complete. A running transfer may rename one after it was listed."""
        found = []
        for path in self.folder.glob(".sparkrack/parts/*"):
            with contextlib.suppress(FileNotFoundError):
                found.append(path.stat().st_size)
        return found

    def recorded(self) -> set[str]:
        """The paths that are recorded."""
        text = (self.folder / ".sparkrack/record").read_text()
        return {line.rpartition("\t")[0].split(" ", 2)[2] for line in text.splitlines()}


def hub_source(hub: LoopbackHub, token: str | None = None) -> dict[str, Any]:
    return {"url": f"{hub.url}/{NAME}/resolve/{COMMIT}/", "token": token}


def node_source(other: LocalStore, ssh: tuple[str, ...] = ("ssh", "192.168.100.1")) -> dict[str, Any]:
    program = resources.file_text("roles.models", "files/send_files.py")
    return {"ssh": ssh, "folder": str(other.folder), "unit": "sparkrack-model-x.service", "program": program}
