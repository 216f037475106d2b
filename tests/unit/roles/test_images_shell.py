"""The shell texts of the images role, run by a real shell in folders like a node's, with stand-ins for its tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import roles.images.facts  # noqa: F401 - registers what is asked
from core.model.image_lock import ImageNccl, Pin
from core.model.image_names import ImageName, image_name
from core.ops import host_facts
from core.ops.distribution import Route
from roles.images import desired, scripts
from tests.unit.ops.shells import calls, run, stand_in

A, D = (f"sha256:{digit * 64}" for digit in "ad")
X = image_name("scitrera/x:1")
ROUTE = Route("n2", "n1", "192.168.100.1", fabric=True)
COMMANDS = host_facts._registered["images"].commands


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose engine runs."""
    for folder in ("run", "proc/7", "etc/docker", "var/lib/docker", "sys/fs/cgroup/system.slice"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "run/docker.pid").write_text("7")
    (tmp_path / "proc/7/comm").write_text("dockerd\n")
    stand_in(tmp_path, "docker", f"echo '{A} scitrera/x 1 <none> 1GB'")
    return tmp_path


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(node), "")


def test_what_it_holds(node: Path) -> None:
    assert desired.local_images(asked(node, desired.STOCK)).named(X)
    assert "image ls --no-trunc --digests" in calls(node)[0]


@pytest.mark.parametrize("path", ["run/docker.pid", "proc/7/comm"])
def test_an_engine_that_does_not_run_is_not_started_by_the_question(node: Path, path: str) -> None:
    (node / path).unlink()
    assert asked(node, desired.STOCK) == "no engine\n"
    assert calls(node) == []


def test_a_number_that_another_program_has_got(node: Path) -> None:
    (node / "proc/7/comm").write_text("bash\n")
    assert asked(node, desired.STOCK) == "no engine\n"


def test_an_engine_that_does_not_answer(node: Path) -> None:
    stand_in(node, "docker", "echo half; exit 1")
    with pytest.raises(ValueError, match="does not answer: half no answer, exit 1"):
        desired.local_images(asked(node, desired.STOCK))


def test_room(node: Path) -> None:
    (free,) = desired.free_space(asked(node, desired.ROOM)).items()
    assert free[0] == "/var/lib/docker"
    assert free[1] > 0
    (node / "var/lib/containerd").mkdir()
    assert list(desired.free_space(asked(node, desired.ROOM))) == ["/var/lib/docker", "/var/lib/containerd"]


def test_what_has_come_of_an_image_is_no_lack_of_room(node: Path) -> None:
    """A killed transfer goes on from its last byte, so that the bytes of its archive are not needed again."""
    archives = node / "var/tmp/sparkrack-images"
    archives.mkdir(parents=True)
    (archives / f"{'a' * 64}.tar").write_bytes(b"x" * 3_000_000)
    came = int(subprocess.run(["du", "-sB1", archives], capture_output=True, text=True, check=True).stdout.split()[0])
    assert came >= 3_000_000
    stand_in(node, "df", "echo Avail; echo 1000")
    assert desired.free_space(asked(node, desired.ROOM)) == {"/var/lib/docker": 1000 + came}
    stand_in(node, "systemd-run", "")
    for need, code in ((1000 + came, 0), (1001 + came, 1)):
        text, stdin = scripts.start_copy(X, scripts.job(ROUTE, "ops", A, 50), [f"{node}/var/lib/docker"], need)
        assert run(scripted(text, stdin), node).returncode == code
    pull = scripts.start(X, "ops", ":", [f"{node}/var/lib/docker"], 1001)
    assert run(pull, node).returncode == 1, "a pull does not use the archive"
    stand_in(node, "stat", "echo $3")
    assert desired.free_space(asked(node, desired.ROOM)) == {"/var/lib/docker": 1000}, "the archive is on another disk"


def test_room_where_the_images_are_moved_to(node: Path) -> None:
    other = node / "da ta"
    other.mkdir()
    (node / "etc/docker/daemon.json").write_text(f'{{\n  "data-root" : "{other}"\n}}\n')
    assert list(desired.free_space(asked(node, desired.ROOM))) == ["/da ta"]


def test_no_folder_is_no_room(node: Path) -> None:
    (node / "etc/docker/daemon.json").write_text('{"data-root": "/nowhere/$(touch /tmp/owned)"}')
    with pytest.raises(ValueError, match="no probe output"):
        desired.free_space(asked(node, desired.ROOM))


def test_what_is_on_its_way(node: Path) -> None:
    assert asked(node, desired.TRANSFERS) == ""
    (node / f"sys/fs/cgroup/system.slice/{scripts.unit(X)}.service").mkdir()
    assert asked(node, desired.TRANSFERS) == f"{scripts.unit(X)}\n"


def job(node: Path, script: str) -> list[str]:
    """The log of a job that has ended."""
    file = node / "job.sh"
    file.write_text(script)
    path = f"{node}/bin:{os.environ['PATH']}"
    done = subprocess.run(["/bin/sh", file], capture_output=True, text=True, env={"PATH": path}, timeout=120)
    return ["inactive", *(done.stderr + done.stdout).replace("\r", "\n").splitlines()]


def test_a_copy_is_started_with_its_job_and_without_a_shell(node: Path) -> None:
    stand_in(node, "systemd-run", f"cat {node}/run/sparkrack-images/*.job > {node}/job")
    text, stdin = scripts.start_copy(X, scripts.job(ROUTE, "ops", A, 50), [str(node)], 5)
    done = run(scripted(text, stdin), node)
    assert done.returncode == 0, done.stderr
    (call,) = [call for call in calls(node) if call.startswith("systemd-run")]
    assert "--uid" not in call, "root, who reads the blobs of containerd's store and keeps the archive"
    assert call.split()[-5:-2] == ["/usr/bin/python3", "-I", "-B"] or "/usr/bin/python3 -I -B" in call
    sent = json.loads((node / "job").read_text())
    assert (sent["image"], sent["size"], sent["folder"]) == (A, 50, scripts.ARCHIVES)
    assert sent["ssh"][:5] == ["runuser", "-u", "ops", "--", "ssh"]
    assert sent["ssh"][-1] == "192.168.100.1"
    assert "BatchMode=yes" in sent["ssh"]


def scripted(text: str, stdin: str) -> str:
    return f"{{ {text}; }} <<'END'\n{stdin}\nEND\n"


def test_a_pull(node: Path) -> None:
    log = "0123456789ab: Pulling fs layer\n0123456789ac: Already exists\n0123456789ab: Pull complete\nDigest: x"
    stand_in(node, "docker", f"echo '{log}'")
    ended = scripts.progress(job(node, scripts.pull("scitrera/x:1")))
    assert (ended.fine, ended.layers, ended.reported) == (True, (2, 2), ("Digest: x",))


@pytest.mark.parametrize(
    ("lines", "running", "fine"),
    [
        (["active"], True, False),
        (["activating"], True, False),
        (["inactive"], False, False),
        (["failed", "12 bytes copied"], False, False),
        (["active", "sparkrack: load ended 0"], True, False),
        (["inactive", "sparkrack: load ended 0"], False, True),
        (["inactive", "sparkrack: load ended 1"], False, False),
    ],
)
def test_progress(lines: list[str], running: bool, fine: bool) -> None:
    reported = scripts.progress(lines)
    assert (reported.running, reported.fine) == (running, fine)


def test_a_source_that_stopped_is_told_from_a_route_that_failed() -> None:
    stopped = "the transfer of the other node ended before it had the image"
    assert scripts.progress(["inactive", stopped, "sparkrack: load ended 1"]).source_stopped
    assert not scripts.progress(["active", stopped]).source_stopped
    assert not scripts.progress(["inactive", "ssh: no route to host", "sparkrack: load ended 1"]).source_stopped


def test_no_answer_is_no_progress() -> None:
    with pytest.raises(ValueError, match="does not say"):
        scripts.progress([])


def rooted(node: Path, script: str) -> subprocess.CompletedProcess[str]:
    return run(script.replace("install -d", "mkdir -p"), node)


def test_start(node: Path) -> None:
    stand_in(node, "systemd-run")
    done = rooted(node, scripts.start(X, "ops", scripts.pull("scitrera/x:1"), [str(node)], 5))
    assert done.returncode == 0, done.stderr
    (call,) = calls(node)
    assert f"--unit={scripts.unit(X)} --uid=ops" in call
    body = (node / f"run/sparkrack-images/{scripts.unit(X)}.script").read_text()
    assert body.endswith(scripts.pull("scitrera/x:1"))


def test_start_without_room(node: Path) -> None:
    stand_in(node, "systemd-run")
    need = shutil.disk_usage(node).free * 2
    done = rooted(node, scripts.start(X, "ops", "x", [str(node)], need))
    assert done.returncode == 1
    assert f"MB free, {need // 10**6} MB are needed" in done.stderr
    assert calls(node) == []


def test_look(node: Path) -> None:
    (node / "run/sparkrack-images").mkdir()
    (node / f"run/sparkrack-images/{scripts.unit(X)}.log").write_text("1 bytes copied\n2 bytes copied")
    for reported, answer in (("echo active", "active"), ("echo inactive; exit 3", "inactive")):
        stand_in(node, "systemctl", reported)
        done = run(scripts.look(X), node)
        assert done.returncode == 0
        assert done.stdout.splitlines() == [answer, "1 bytes copied", "2 bytes copied"]
    stand_in(node, "systemctl", "exit 1")
    assert run(scripts.look(X), node).returncode == 1, "systemd could not be asked"


@pytest.mark.parametrize("hostile", ["$(touch {0}/owned)", "`touch {0}/owned`", "a'; touch {0}/owned; '", "-x"])
def test_what_is_read_or_declared_is_never_run(node: Path, hostile: str) -> None:
    word = hostile.format(node)
    for tool in ("docker", "ssh", "systemd-run", "systemctl"):
        stand_in(node, tool, "cat >/dev/null")
    foul = ImageName(word, word, word, None)
    route = Route("n2", "n1", word, fabric=True)
    for script in (
        scripted(*scripts.start_copy(foul, scripts.job(route, word, word, 0), [word], 0)),
        scripts.pull(word),
        scripts.inspect(word),
        scripts.name(foul, word),
        scripts.drop(word),
        scripts.ask_nccl(word),
        scripts.look(foul),
        scripts.stop(foul),
        scripts.start(foul, word, "x", [word], 0),
    ):
        run(script, node)
    assert not (node / "owned").exists()


def test_inspected() -> None:
    line = f'{A} 50 ["other/x@{A}","scitrera/x@{D}"]'
    assert scripts.inspected(X, [line]) == (Pin(D, A), 50)
    assert scripts.inspected(X, [f"{A} 50 null"]) == (Pin(None, A), 50)
    for garbage in ([], [""], ["a b c"], [f"{A} many []"], [f"{A} 5 []", "x"], ["x 5 []"], [f"{A} 5 {{"]):
        with pytest.raises(ValueError, match=r"unexpected probe output|Expecting|invalid literal"):
            scripts.inspected(X, garbage)


IN_CONTAINER = """
[ "$1" = run ] || exit 0
while [ "$1" != -c ]; do shift; done
exec sh "$@"
"""
"""docker whose containers have the files of this machine."""


def ask_nccl(node: Path) -> ImageNccl | None:
    done = run(scripts.ask_nccl(A), node, {"PYTHONPATH": str(node)})
    assert done.returncode == 0, done.stderr
    return scripts.parse_nccl(done.stdout.replace(str(node), "").splitlines(), done.stderr.splitlines())


def test_an_image_is_asked_for_its_nccl_in_a_container_that_takes_nothing_from_a_unit(node: Path) -> None:
    library = node / "nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    source = node / "nccl.c"
    source.write_text("int ncclGetVersion(int *version) { *version = 22809; return 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    (node / "etc/nccl.conf").write_text("# comment\n\nNCCL_IB_USE_INLINE=1\nNCCL_ALGO=Ring")
    stand_in(node, "docker", IN_CONTAINER)
    assert ask_nccl(node) == ImageNccl("2.28.9", "wheel", ("NCCL_IB_USE_INLINE=1", "NCCL_ALGO=Ring"))
    (asked_with,) = [call for call in calls(node) if call.startswith("docker run")]
    words = asked_with.split()
    for word in ("--rm", "--pull=never", "--network=none", "--runtime=runc", "--memory=256m", "--memory-swap=256m"):
        assert word in words
    assert not {"--gpus", "--privileged", "--volume"} & set(words)


@pytest.mark.parametrize(
    ("docker", "found"),
    [
        (IN_CONTAINER, ImageNccl(None, None, ())),
        (
            '[ "$1" != run ] || { echo "exec: sh: executable file not found" >&2; exit 127; }',
            ImageNccl(None, None, None),
        ),
        ('[ "$1" != run ] || { echo "nccl: 2.28.9 wheel"; exit 9; }', ImageNccl(None, None, None)),
        ('[ "$1" != run ] || { echo "Cannot connect to the Docker daemon" >&2; exit 125; }', None),
    ],
)
def test_what_is_not_told_is_unknown_and_what_docker_could_not_do_is_no_answer(
    node: Path, docker: str, found: ImageNccl | None
) -> None:
    stand_in(node, "docker", docker)
    assert ask_nccl(node) == found


@pytest.mark.parametrize("client", ["exec sleep 600", "{ trap '' TERM; exec sleep 600; }"])
def test_a_container_that_does_not_end_is_removed(node: Path, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    """Also where docker's client does not end at the signal, as that of release 28: `timeout` exits with 137 then."""
    monkeypatch.setattr(scripts, "NCCL_SECONDS", 0.5)
    stand_in(node, "docker", f'[ "$1" != run ] || {client}')
    assert ask_nccl(node) is None
    assert calls(node)[-1] == "docker rm --force sparkrack.image-look"


def test_the_lines_of_an_image_that_are_kept_are_bounded() -> None:
    lines = [f"/etc/nccl.conf: {'x' * 5000}"] * 500
    found = scripts.parse_nccl(lines, ["sparkrack: container ended 0"])
    assert found
    assert found.conf
    assert sum(map(len, found.conf)) <= 10_000
