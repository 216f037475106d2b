"""The lab's container images: their names, what names their bytes, and how they are pushed."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lab import images
from lab.images import COMMANDS, LIBRARIES, EngineRelease, digest, image, main, target

NAME = "scitrera/dgx-spark-sglang:0.5.12"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (NAME, ("scitrera/dgx-spark-sglang", "0.5.12")),
        ("busybox:1.35", ("library/busybox", "1.35")),
        ("ghcr.io/someone/engine:2", ("someone/engine", "2")),
        ("10.77.0.1:5000/a/b/c:v1", ("a/b/c", "v1")),
        ("localhost/a:1", ("a", "1")),
        (f"a/b@sha256:{'0' * 64}", ("a/b", "pinned")),
        (f"a/b:1.0@sha256:{'0' * 64}", ("a/b", "1.0")),
    ],
)
def test_where_a_name_stands(name: str, expected: tuple[str, str]) -> None:
    assert target(name) == expected


def test_a_name_means_the_same_bytes_everywhere() -> None:
    one, two = image(NAME, b"program", 1000), image(NAME, b"program", 1000)
    assert one == two
    assert image("scitrera/dgx-spark-sglang:0.5.13", b"program", 1000).id != one.id


def test_manifest_and_configuration_name_the_layers() -> None:
    made = image(NAME, b"program", 1000)
    manifest = json.loads(made.manifest)
    config, *layers = made.blobs
    assert manifest["config"]["digest"] == made.id == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert [(layer["digest"], layer["size"]) for layer in manifest["layers"]] == [
        (digest(layer), len(layer)) for layer in layers
    ]
    tars = [gzip.decompress(layer) for layer in layers]
    assert json.loads(config)["rootfs"]["diff_ids"] == [digest(tar) for tar in tars]


def unpacked(layer: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as tar:
        return {member.name: member for member in tar}


def test_what_is_in_it() -> None:
    program, own = map(unpacked, image(NAME, b"program", 5_000).blobs[1:])
    links = {name: member.linkname for name, member in program.items() if member.issym()}
    assert links == {f"bin/{command}": "busybox" for command in COMMANDS}
    assert program["bin/busybox"].mode == 0o755
    assert own["opt/weights"].size == 5_000


def test_an_engine_has_python_and_the_stand_in_of_its_program(tmp_path: Path) -> None:
    for path in (
        f"{LIBRARIES}/libc.so.6.1",
        "usr/bin/python3.11",
        "usr/lib/python3.11/json/a.py",
        "usr/lib/python3.11/x.so",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / LIBRARIES / "libc.so.6").symlink_to("libc.so.6.1")
    (tmp_path / "usr/lib/python3.11/site.py").symlink_to("/etc/hostname")
    made = image(NAME, b"program", 1000, EngineRelease("vllm", "0.19.1", tmp_path))
    plain, engine = image(NAME, b"program", 1000), unpacked(made.blobs[-1])
    assert made.blobs[1:-1] == plain.blobs[1:]
    assert made.id != plain.id
    assert engine["bin/vllm"].linkname == "/opt/engine/engine_standin.py"
    assert engine["opt/engine/engine_standin.py"].mode == 0o755
    assert {"opt/engine/lab/engine/api.py", "opt/engine/serving/engines/vllm/options.json"} <= engine.keys()
    assert "usr/lib/python3.11/vllm-0.19.1.dist-info/METADATA" in engine, "importlib.metadata tells the version"
    assert engine[f"{LIBRARIES}/libc.so.6"].isreg()
    assert {"usr/lib/python3.11/json/a.py", "usr/lib/python3.11/x.so"} <= engine.keys()
    assert "usr/lib/python3.11/site.py" not in engine, "a file of this machine"
    assert (engine["tmp"].isdir(), engine["tmp"].mode) == (True, 0o1777), "measuring tools keep their results there"


class Answers(BaseHTTPRequestHandler):
    """A registry, as far as pushing goes."""

    kept: dict[str, bytes]
    asked: list[str]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(200 if self.path in self.kept else 404)

    def do_POST(self) -> None:
        self.answer(202, self.path + "1?state=x")

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        place, _, query = self.path.partition("?")
        if query:
            name = query.partition("digest=")[2]
            assert name == digest(data)
            place = place.replace("uploads/1", name)
        else:
            manifest = json.loads(data)
            for blob in (manifest["config"], *manifest["layers"]):
                assert any(path.endswith(blob["digest"]) for path in self.kept), "the manifest came before its blobs"
        self.kept[place] = data
        self.answer(201)

    def answer(self, status: int, location: str = "") -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if location:
            self.send_header("Location", location)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Answers]]]:
    handler = type("Fresh", (Answers,), {"kept": {}, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


def test_images_are_pushed_once(
    registry: tuple[str, type[Answers]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = registry
    monkeypatch.setattr(images, "LARGE", 3000)
    monkeypatch.setattr(images, "SMALL", 1000)
    (tmp_path / "busybox").write_bytes(b"program")
    words = [address, str(tmp_path / "busybox"), str(tmp_path), NAME, "other:1"]
    main(words)
    assert "/v2/scitrera/dgx-spark-sglang/manifests/0.5.12" in seen.kept
    assert "/v2/library/other/manifests/1" in seen.kept
    assert len(seen.kept) == 2 * 4
    seen.asked.clear()
    main(words)
    assert [line.split()[0] for line in seen.asked] == ["HEAD", "HEAD"]


def test_what_the_registry_refuses_is_reported(
    registry: tuple[str, type[Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, seen = registry
    monkeypatch.setattr(seen, "do_POST", lambda self: self.answer(507))
    with pytest.raises(OSError, match="POST /v2/a/blobs/uploads/: 507"):
        images.Registry(address).push(image("localhost/a:1", b"program", 10))
