"""The program that takes an image from another node: what travels, what is passed on, what a killed transfer leaves.

docker is a stand-in that keeps layers in a folder; as the real one, it accepts an archive without the lowest layers if
it has them. Real dockers are in tests/lab/test_8_images.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roles.images import scripts
from tests.unit.ops.shells import stand_in

PROGRAM = Path(__file__).parents[3] / "roles/images/files/fetch_image.py"
DOCKER = Path(__file__).with_name("docker_layers.py")
LAYERS = [bytes([number]) * 300_000 for number in range(4)]


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def config(layers: list[bytes]) -> bytes:
    return json.dumps({"rootfs": {"diff_ids": [digest(layer) for layer in layers]}}).encode()


IMAGE = digest(config(LAYERS))


def until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not become so within 60 s")


@dataclass(frozen=True)
class DockerNode:
    """A node with the stand-in, and its folder for archives."""

    root: Path

    @classmethod
    def make(cls, root: Path, *images: list[bytes]) -> DockerNode:
        (root / "store").mkdir(parents=True)
        stand_in(root, "docker", f'exec {sys.executable} -I {DOCKER} {root}/store "$@"')
        node = cls(root)
        for layers in images:
            node.add(layers)
        return node

    def add(self, layers: list[bytes]) -> None:
        for content in (config(layers), *layers):
            (self.root / "store" / digest(content).partition(":")[2]).write_bytes(content)
        with (self.root / "store/images").open("a") as images:
            images.write(digest(config(layers)) + "\n")

    @property
    def path(self) -> str:
        return f"{self.root}/bin:{os.environ['PATH']}"

    @property
    def folder(self) -> Path:
        return self.root / "archives"

    @property
    def archive(self) -> Path:
        return self.folder / f"{IMAGE.partition(':')[2]}.tar"

    def has_image(self) -> bool:
        images = self.root / "store/images"
        return images.exists() and IMAGE in images.read_text()

    def fetch(
        self, source: DockerNode, *, login_script: str = "", room: int | None = None, tries: int = 40, **docker: str
    ) -> subprocess.Popen[str]:
        """Start the program; the other node's shell is started with its PATH, as sshd does it.

        login_script: what that shell runs first. room: the bytes that the disk of this node takes of a file.
        tries: how often the program tries to take its lock.
        """
        variables = [f"{key}={value}" for key, value in docker.items()]
        login = ["sh", "-c", f'{login_script}\nexec sh -c "$1"', "sh"] if login_script else ["sh", "-c"]
        ssh = ["env", f"PATH={source.path}", *variables, *login]
        job = self.root / "job"
        # All nodes of the test have the folder of this one in their place.
        job.write_text(json.dumps({"image": IMAGE, "ssh": ssh, "folder": str(self.folder), "size": 0}))
        text = PROGRAM.read_text().replace(
            '"folder": str(self.paths.folder), "left_out"', f'"folder": "{source.folder}", "left_out"'
        )
        assert "\nTRIES = 40\n" in text
        text = text.replace("\nTRIES = 40\n", f"\nTRIES = {tries}\n")
        program = self.root / "program.py"
        program.write_text(text)
        words = [sys.executable, "-I", "-B", str(program), "fetch", str(job)]
        if room is not None:
            words = ["prlimit", f"--fsize={room}", *words]
        return subprocess.Popen(
            words, env={"PATH": self.path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open; one that has ended has none."""
    with suppress(FileNotFoundError):
        return any(entry.readlink() == path for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def ended(process: subprocess.Popen[str]) -> scripts.Progress:
    output, _ = process.communicate(timeout=60)
    assert "Traceback" not in output, output
    return scripts.progress(["inactive", *output.splitlines()])


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Path]:
    """A file; while it is there a `docker save` that knows it stops in the middle. None waits for it after the test."""
    file = tmp_path / "hold"
    file.touch()
    yield file
    file.unlink(missing_ok=True)


def test_only_the_layers_that_are_missing_travel(tmp_path: Path) -> None:
    source = DockerNode.make(tmp_path / "n1", LAYERS)
    taker = DockerNode.make(tmp_path / "n2", LAYERS[:3], LAYERS[:1])
    done = ended(taker.fetch(source))
    assert (done.fine, done.loaded, taker.has_image()) == (True, IMAGE, True), done
    assert 300_000 < (done.copied or 0) < 320_000
    assert not taker.archive.exists()


def test_a_layer_that_the_node_has_above_other_ones_travels(tmp_path: Path) -> None:
    """docker's own store finds a layer by all layers below it."""
    source = DockerNode.make(tmp_path / "n1", LAYERS)
    taker = DockerNode.make(tmp_path / "n2", [LAYERS[0], LAYERS[2], LAYERS[3]])
    done = ended(taker.fetch(source))
    assert (done.fine, taker.has_image()) == (True, True), done
    assert 900_000 < (done.copied or 0) < 920_000


def test_the_archive_is_passed_on_while_it_comes(tmp_path: Path, hold: Path) -> None:
    """docker save stops in the middle: the last node of the chain has what the first one has sent."""
    nodes = [DockerNode.make(tmp_path / "n0", LAYERS), *(DockerNode.make(tmp_path / f"n{n}") for n in (1, 2, 3))]
    fetches = [nodes[1].fetch(nodes[0], HOLD=str(hold)), nodes[2].fetch(nodes[1]), nodes[3].fetch(nodes[2])]
    until(lambda: nodes[3].archive.exists() and nodes[3].archive.stat().st_size > 300_000)
    assert not any(node.has_image() for node in nodes[1:])
    hold.unlink()
    assert [ended(fetch).fine for fetch in fetches] == [True] * 3
    assert all(node.has_image() for node in nodes)


def test_a_node_that_lacks_more_waits_until_the_other_one_has_the_image(tmp_path: Path, hold: Path) -> None:
    first, second = DockerNode.make(tmp_path / "n0", LAYERS), DockerNode.make(tmp_path / "n1", LAYERS[:1])
    third = DockerNode.make(tmp_path / "n2")
    fetches = [second.fetch(first, HOLD=str(hold)), third.fetch(second)]
    until(lambda: second.archive.exists() and second.archive.stat().st_size > 100_000)
    assert not third.archive.exists()
    hold.unlink()
    done = [ended(fetch) for fetch in fetches]
    assert [one.fine for one in done] == [True, True], done
    assert [(one.copied or 0) // 600_000 for one in done] == [1, 2]


def test_a_transfer_that_is_killed_goes_on_from_its_last_byte(tmp_path: Path, hold: Path) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2", LAYERS[:1])
    killed = taker.fetch(source, HOLD=str(hold))
    until(lambda: taker.archive.exists() and taker.archive.stat().st_size > 200_000)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    came = taker.archive.stat().st_size
    hold.unlink()
    done = ended(taker.fetch(source))
    assert (done.fine, taker.has_image()) == (True, True), done
    assert came + (done.copied or 0) < 920_000


def test_a_killed_transfer_goes_on_from_another_node_and_with_another_layer_it_begins_anew(
    tmp_path: Path, hold: Path
) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    killed = taker.fetch(source, HOLD=str(hold))
    until(lambda: taker.archive.exists() and taker.archive.stat().st_size > 200_000)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    taker.add(LAYERS[:1])
    done = ended(taker.fetch(DockerNode.make(tmp_path / "n3", LAYERS)))
    assert (done.fine, taker.has_image()) == (True, True), done
    assert 900_000 < (done.copied or 0) < 920_000


def test_what_docker_does_not_accept_is_fetched_once_more_with_all_layers(tmp_path: Path) -> None:
    """A layer that was there is gone when docker loads the archive."""
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2", LAYERS[:3])
    lost = taker.root / "store" / digest(LAYERS[1]).partition(":")[2]
    fetch = taker.fetch(source, LOSE=str(lost))
    done = ended(fetch)
    assert (done.fine, taker.has_image()) == (True, True), done
    assert "docker load does not accept the archive; all layers are fetched" in done.reported


def test_a_docker_that_ends_while_it_loads_has_not_refused_the_archive(tmp_path: Path) -> None:
    """What has come stays, and the next run loads it without another byte."""
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2", LAYERS[:3])
    down, message = taker.root / "down", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock"
    docker = f'exec {sys.executable} -I {DOCKER} {taker.root}/store "$@"'
    stand_in(
        taker.root,
        "docker",
        f'[ "$1" != load ] || touch {down}; [ ! -e {down} ] || {{ echo {message} >&2; exit 1; }}\n{docker}',
    )
    done = ended(taker.fetch(source))
    assert (done.fine, done.source_stopped, done.reported[-1]) == (False, False, message), done
    came = taker.archive.stat().st_size
    assert came < 2 * 300_000, "one of four layers"
    stand_in(taker.root, "docker", docker)
    done = ended(taker.fetch(source))
    assert (done.fine, done.copied, taker.has_image()) == (True, 0, True), done


def test_bytes_that_changed_on_their_way_are_loaded_nowhere(tmp_path: Path) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    (source.root / "store" / digest(LAYERS[2]).partition(":")[2]).write_bytes(b"x" * 300_000)
    done = ended(taker.fetch(source))
    assert (done.fine, taker.has_image(), taker.archive.exists()) == (False, False, False)
    assert "docker load does not accept the archive" in done.reported


def test_a_source_whose_own_transfer_was_killed(tmp_path: Path, hold: Path) -> None:
    first, second, third = (
        DockerNode.make(tmp_path / "n0", LAYERS),
        *(DockerNode.make(tmp_path / f"n{n}") for n in "12"),
    )
    killed = second.fetch(first, HOLD=str(hold))
    fetch = third.fetch(second)
    until(lambda: third.archive.exists() and third.archive.stat().st_size > 200_000)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    done = ended(fetch)
    assert (done.fine, done.source_stopped) == (False, True), done
    hold.unlink()
    assert ended(third.fetch(first)).fine


def test_a_source_without_the_image(tmp_path: Path) -> None:
    done = ended(DockerNode.make(tmp_path / "n2").fetch(DockerNode.make(tmp_path / "n1")))
    assert (done.fine, done.source_stopped) == (False, True)


def test_a_source_whose_sshd_shows_a_banner_and_whose_own_transfer_ended(tmp_path: Path) -> None:
    """ssh prints the banner of sshd where the program of the other node prints why it ended."""
    source = DockerNode.make(tmp_path / "n1")
    done = ended(DockerNode.make(tmp_path / "n2").fetch(source, login_script="echo 'Authorised users only' >&2"))
    assert (done.fine, done.source_stopped) == (False, True), done


def test_a_source_whose_docker_does_not_answer_the_user_is_not_a_transfer_that_ended(tmp_path: Path) -> None:
    """The line is that of docs/runbooks/images.md."""
    denied = "permission denied while trying to connect to the Docker daemon socket"
    source = DockerNode.make(tmp_path / "n1", LAYERS)
    done = ended(DockerNode.make(tmp_path / "n2").fetch(source, DOWN=denied))
    assert (done.fine, done.source_stopped, done.reported) == (False, False, (denied,))


def test_a_disk_that_is_full_ends_the_transfer_and_names_the_file(tmp_path: Path) -> None:
    """The source has more to send than the connection holds, and waits for a reader."""
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    done = ended(taker.fetch(source, room=400_000))
    assert done.reported == (f"{taker.archive}: File too large",)
    assert taker.archive.stat().st_size == 400_000
    assert ended(taker.fetch(source)).fine


def test_a_shell_of_the_source_that_prints_text_is_named(tmp_path: Path) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    done = ended(taker.fetch(source, login_script="echo Welcome to DGX Spark"))
    assert not done.fine
    assert " ".join(done.reported) == (
        "the other node printed 'Welcome to DGX Spark' before its answer; the shell of the user who logs in there has "
        "to print nothing"
    )


def test_what_transfers_of_other_images_have_left_is_removed(tmp_path: Path) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    taker.folder.mkdir(mode=0o750)
    for end in ("tar", "json", "lock"):
        (taker.folder / f"{'e' * 64}.{end}").touch()
    assert ended(taker.fetch(source)).fine
    assert [path.name for path in taker.folder.iterdir()] == [f"{IMAGE.partition(':')[2]}.lock"]


def test_a_node_that_asks_whether_a_transfer_runs_does_not_end_the_one_that_begins(tmp_path: Path) -> None:
    """The question takes the lock for a moment, here until the receiver has failed to get it."""
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    taker.folder.mkdir(mode=0o750)
    lock = taker.archive.with_suffix(".lock")
    with lock.open("x") as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        fetch = taker.fetch(source, tries=4000)  # this process may be as slow as the machine is
        until(lambda: has_open(fetch.pid, lock))
    assert ended(fetch).fine


def test_a_second_transfer_of_an_image_is_refused(tmp_path: Path) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    taker.folder.mkdir(mode=0o750)
    with taker.archive.with_suffix(".lock").open("x") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = ended(taker.fetch(source))
    assert done.reported == ("another transfer of this image is active",)


@pytest.mark.parametrize("foul", ["writable", "link"])
def test_a_folder_that_another_user_can_write_is_refused(tmp_path: Path, foul: str) -> None:
    source, taker = DockerNode.make(tmp_path / "n1", LAYERS), DockerNode.make(tmp_path / "n2")
    if foul == "link":
        (tmp_path / "elsewhere").mkdir()
        taker.folder.symlink_to(tmp_path / "elsewhere")
    else:
        taker.folder.mkdir()
        taker.folder.chmod(0o777)
    done = ended(taker.fetch(source))
    assert done.reported == (f"{taker.folder} is not a folder of root alone; remove it",)


def test_an_id_that_is_a_path(tmp_path: Path) -> None:
    request: dict[str, Any] = {"image": "sha256:../x", "folder": str(tmp_path), "left_out": None, "came": 0}
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), "send"], input=json.dumps(request), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "'sha256:../x' is not the ID of an image\n")


def test_the_archive_is_the_same_from_each_node(tmp_path: Path) -> None:
    """Names, modes and times of the node that made it are not in it: a transfer goes on from any node."""
    archives = []
    for place in ("n1", "n2"):
        node = DockerNode.make(tmp_path / place, LAYERS)
        request: dict[str, Any] = {
            "image": IMAGE,
            "folder": str(node.folder),
            "left_out": None,
            "came": 0,
            "stacks": [],
        }
        done = subprocess.run(
            [sys.executable, "-I", str(PROGRAM), "send"],
            input=json.dumps(request).encode(),
            capture_output=True,
            env={"PATH": node.path, "MTIME": place[1:]},
        )
        archives.append(done.stdout.partition(b"\n")[2])
    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as archive:
        names = archive.getnames()
    assert len([name for name in names if name.startswith("blobs/sha256/")]) == 5
