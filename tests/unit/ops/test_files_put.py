"""Writing a file of a node, run by a real shell: whole or not at all, private while it is written, old one kept."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.ops import remote_files
from tests.unit.ops.shells import calls, rooted, run, stand_in


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node with an /etc."""
    (tmp_path / "etc").mkdir()
    stand_in(tmp_path, "chown")
    return tmp_path


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(
    node: Path, content: bytes, mode: str = "644", before: bytes | None = None, check: str = "", name: str = "file"
) -> subprocess.CompletedProcess[str]:
    return run(remote_files.put(f"/etc/{name}", content, mode, before, check), node)


@pytest.mark.parametrize("mode", ["644", "600", "440", "755"])
def test_a_new_file(node: Path, mode: str) -> None:
    done = put(node, b"content\n", mode)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file = node / "etc/file"
    assert file.read_bytes() == b"content\n"
    assert f"{file.stat().st_mode & 0o7777:o}" == mode
    assert listed(node / "etc") == ["file"]
    (owner,) = calls(node)
    assert owner.startswith(f"chown root:root {node}/etc/.file.")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_content_arrives_byte_for_byte(node: Path, content: bytes) -> None:
    assert put(node, content).returncode == 0
    assert (node / "etc/file").read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"$(reboot) `id` $HOME '\"\\ %s\n", b"EOF\n", b"\r\n\xff\xfe", b"x" * 500_000]
)
def test_hostile_content_arrives_byte_for_byte(node: Path, content: bytes) -> None:
    assert put(node, content).returncode == 0
    assert (node / "etc/file").read_bytes() == content


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'a"b', "$(touch owned)", "a;touch owned", "-rf", "*", "ä", "a\\b", "%s"]
)
def test_hostile_names_are_taken_as_they_are(node: Path, name: str) -> None:
    (node / "etc" / name).write_bytes(b"old")
    assert put(node, b"new", before=b"old", name=name).returncode == 0
    assert listed(node / "etc") == [name]
    assert (node / "etc" / name).read_bytes() == b"new"
    assert [path.read_bytes() for path in (node / "var/backups/sparkrack").iterdir()] == [b"old"]


def test_content_is_not_in_the_command() -> None:
    command = remote_files.put("/etc/file", b"hunter2", "600")
    assert remote_files.encoded(b"hunter2") not in command.get_raw_value()
    assert "hunter2" not in command.get_raw_value()


@pytest.mark.parametrize("check", ["false", 'grep -q good "$new"', "no-such-validator"])
def test_what_does_not_pass_its_check_changes_nothing(node: Path, check: str) -> None:
    (node / "etc/file").write_bytes(b"old")
    assert put(node, b"bad", check=check).returncode != 0
    assert (node / "etc/file").read_bytes() == b"old"
    assert listed(node / "etc") == ["file"]


def test_the_check_sees_the_new_file_with_its_mode(node: Path) -> None:
    assert put(node, b"good\n", "600", check='grep -qx good "$new"; [ "$(stat -c %a "$new")" = 600 ]').returncode == 0
    assert (node / "etc/file").read_bytes() == b"good\n"


def test_it_is_private_until_it_is_whole(node: Path) -> None:
    """No one else may read a file that is going to be mode 600, not even while it is written."""
    stand_in(node, "chown", 'stat -c "%a" "$2" >> ' + str(node / "modes"))
    assert put(node, b"secret", "600").returncode == 0
    assert (node / "modes").read_text() == "600\n"


@pytest.mark.parametrize("tool", ["chown", "chmod", "sync", "mv", "base64", "mktemp"])
def test_when_a_step_fails_the_old_file_stays(node: Path, tool: str) -> None:
    (node / "etc/file").write_bytes(b"old")
    stand_in(node, tool, "exit 1")
    assert put(node, b"new", before=b"old").returncode != 0
    assert (node / "etc/file").read_bytes() == b"old"
    assert listed(node / "etc") == ["file"]


def test_garbled_input_changes_nothing(node: Path) -> None:
    (node / "etc/file").write_bytes(b"old")
    command = remote_files.put("/etc/file", b"new", "644")
    command.connector_arguments["_stdin"] = "%%%"
    assert run(command, node).returncode != 0
    assert (node / "etc/file").read_bytes() == b"old"


def test_no_backup_no_write(node: Path) -> None:
    (node / "etc/file").write_bytes(b"old")
    stand_in(node, "cp", "exit 1")
    assert put(node, b"new", before=b"old").returncode != 0
    assert (node / "etc/file").read_bytes() == b"old"


def test_the_first_backup_of_a_content_is_kept(node: Path) -> None:
    (node / "etc/file").write_bytes(b"old")
    (node / "etc/file").chmod(0o640)
    for _ in range(2):
        assert put(node, b"new", before=b"old").returncode == 0
    folder = node / "var/backups/sparkrack"
    assert f"{folder.stat().st_mode & 0o777:o}" == "700"
    copy = folder / f"file.{hashlib.sha256(b'old').hexdigest()[:12]}"
    assert listed(folder) == [copy.name]
    assert copy.read_bytes() == b"old"
    assert f"{copy.stat().st_mode & 0o777:o}" == "640"


def test_a_link_is_replaced_not_followed(node: Path) -> None:
    (node / "elsewhere").write_bytes(b"theirs")
    (node / "etc/file").symlink_to(node / "elsewhere")
    assert put(node, b"ours").returncode == 0
    assert (node / "elsewhere").read_bytes() == b"theirs"
    assert not (node / "etc/file").is_symlink()


def test_a_folder_is_not_written_into(node: Path) -> None:
    (node / "etc/file").mkdir()
    assert put(node, b"new").returncode != 0
    assert listed(node / "etc/file") == []


def test_a_reader_sees_the_old_or_the_new_file_only(node: Path) -> None:
    old, new = b"o" * 100_000, b"n" * 100_000
    file = node / "etc/file"
    file.write_bytes(old)
    loop = "seen=0; while [ ! -e /run/stop ]; do cksum < /etc/file || echo gone; seen=$((seen+1)); done; echo $seen >&2"
    (node / "run").mkdir()
    with subprocess.Popen(
        ["/bin/sh", "-c", rooted(loop, node)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        for content in (new, old, new):
            command = remote_files.put("/etc/file", content, "644")
            assert run(command, node).returncode == 0
        (node / "run/stop").touch()
        output, count = reader.communicate(timeout=120)
    sums = {subprocess.run(["cksum"], input=side, capture_output=True).stdout.decode() for side in (old, new)}
    assert {f"{line}\n" for line in output.splitlines()} <= sums
    assert int(count) > 0


def test_files_of_others_are_moved_to_names_of_their_whole_paths(node: Path) -> None:
    for name in ("a b", "etc"):
        (node / "etc" / name).write_text(name)
    done = run(remote_files.move_aside(["/etc/a b", "/etc/etc"]), node)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    backups = node / "var/backups/sparkrack"
    assert {path.name: path.read_text() for path in backups.iterdir()} == {"etc-a b": "a b", "etc-etc": "etc"}
    assert backups.stat().st_mode & 0o777 == 0o700
    assert listed(node / "etc") == []
