"""Files and folders that are not files, have no text for a name, or are missing: one line, and nothing waits."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sparkrack.cli.main import sparkrack
from tests.unit.cli.runs import Ended, command, guarded
from tests.unit.model.racks import DIRECT, changed

NO_FOLDER = """\
import tempfile
tempfile._candidate_tempdir_list = lambda: ["/proc/self/nowhere"]
"""
"""For sitecustomize: a machine whose folders for temporary files are full, read-only or missing."""


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A rack whose nodes do not answer, in a folder with a name that is not a text."""
    folder = Path(os.fsdecode(bytes(tmp_path_factory.mktemp("desk")) + b"/caf\xe9"))
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"], cwd=folder, check=True)
    (folder / "known_hosts").touch()
    rack = changed(
        DIRECT, ("~/.ssh/id_ed25519", "key"), ("known_hosts: known_hosts", "known_hosts: known_hosts, port: 1")
    )
    (folder / "rack.yaml").write_text(
        rack.replace("10.77.0.", "127.77.0.").replace("port: 1}", f"port: {closed_port()}}}")
    )
    yield folder
    shutil.rmtree(folder)


def ended(workdir: Path, *words: str, python_path: Path | None = None) -> Ended:
    # as in most locales; in that of C, Python itself writes such names as they are
    rack, state = workdir / "rack.yaml", str(workdir.parent / "state")
    return command(
        "sparkrack",
        *words,
        "--rack",
        rack,
        python_path=python_path,
        XDG_STATE_HOME=state,
        PYTHONIOENCODING="utf-8:strict",
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check",), 0),
        (("check", "--json"), 0),
        (("plan",), 1),
        (("plan", "--json"), 1),
        (("drift",), 1),
        (("drift", "--json"), 1),
        (("status", "--json"), 1),
    ],
)
def test_a_path_that_is_not_a_text(workdir: Path, words: tuple[str, ...], code: int) -> None:
    reported = ended(workdir, *words)
    assert "Traceback" not in reported.text
    # `check` tells a rack without a driver that none is held.
    warned = [line for line in reported.stderr.splitlines() if "driver: nothing is held" not in line]
    assert (reported.code, warned) == (code, [])
    if "--json" in words:
        assert json.loads(reported.stdout)["file"].endswith("/caf\ufffd/rack.yaml")


def test_a_report_of_a_path_that_is_not_a_text(workdir: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    reported = ended(workdir, "verify", "--only", "driver", "--html", str(page))
    assert "Traceback" not in reported.text
    assert "/caf\ufffd/rack.yaml" in page.read_text()


def test_a_rebuild_needs_a_path_that_is_text(workdir: Path) -> None:
    reported = ended(workdir, "rebuild", "left")
    assert reported.code == 1
    assert "rack.yaml: the path is not UTF-8 text, so no journal can hold it; move the file" in reported.stderr
    assert "Traceback" not in reported.text


@pytest.mark.parametrize(
    "words", [("status",), ("unlock", "unknown"), ("topology", "--seen"), ("verify", "--only", "driver")]
)
def test_no_folder_for_temporary_files(workdir: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_FOLDER)
    reported = ended(workdir, *words, python_path=tmp_path)
    assert (reported.code, reported.stdout) == (1, "")
    assert reported.stderr == "Error: No usable temporary directory found in ['/proc/self/nowhere']\n"


@pytest.mark.parametrize("verb", ["check", "plan", "apply", "drift", "verify", "status", "topology"])
def test_a_fifo_for_a_rack_file(tmp_path: Path, verb: str) -> None:
    os.mkfifo(tmp_path / "rack.yaml")
    words = [verb, "-y"] if verb == "apply" else [verb]
    reported = command("sparkrack", *words, "--rack", tmp_path / "rack.yaml", python_path=guarded(tmp_path))
    what = "cannot be read: is a FIFO, not a regular file; write the rack to a file and name that"
    assert (reported.code, reported.stdout, reported.stderr) == (1, "", f"{tmp_path}/rack.yaml: {what}\n")


def test_a_fifo_for_a_plan_a_public_key_and_fingerprints(workdir: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reported = command("sparkrack", "apply", tmp_path / "fifo", "--rack", workdir / "rack.yaml")
    assert reported.stderr == f"Error: {tmp_path}/fifo: is not a plan that `sparkrack plan --out` has kept\n"
    key = tmp_path / "key"
    shutil.copy(workdir / "key", key)
    os.mkfifo(f"{key}.pub")
    rack = tmp_path / "rack.yaml"
    rack.write_text(changed((workdir / "rack.yaml").read_text(), ("key: key", f"key: {key}")))
    reported = command("sparkrack", "seed", "--all", "--rack", rack, "--out", tmp_path / "seeds")
    what = "cannot be read as a public key: is a FIFO, not a regular file; nothing was written"
    assert reported.stderr == f"Error: {key}.pub: {what}\n"
    reported = command("sparkrack", "bootstrap", "nodes", "--host-keys", tmp_path / "fifo", "--rack", rack, "--dry")
    assert reported.stderr == f"Error: {tmp_path}/fifo cannot be read: is a FIFO, not a regular file\n"


@pytest.mark.parametrize("words", [("status",), ("unlock", "unknown"), ("topology", "--seen")])
def test_a_fifo_for_known_hosts(workdir: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """ssh reads it after it has connected, and would wait for a writer."""
    os.mkfifo(tmp_path / "known_hosts")
    shutil.copy(workdir / "key", tmp_path)
    shutil.copy(workdir / "rack.yaml", tmp_path)
    reported = command("sparkrack", *words, "--rack", tmp_path / "rack.yaml", XDG_STATE_HOME=str(tmp_path))
    what = f"access.known_hosts: {tmp_path}/known_hosts: is a FIFO, not a regular file; name a regular file"
    assert (reported.code, reported.stdout, reported.stderr) == (1, "", f"{tmp_path}/rack.yaml: {what}\n")


def test_init_writes_the_name_of_a_variable(tmp_path: Path) -> None:
    words = ["--node", "a=127.77.0.11", "--ssh-port", str(closed_port()), "--user", "ops", "--key", "no-key"]
    words += ["--switch", "crs-1.lab=127.77.0.2", "--plain", "--api-port", str(closed_port()), "--switch-user", "admin"]
    command("sparkrack", "init", "--out", tmp_path / "rack.yaml", *words)
    reported = command("sparkrack", "check", "--rack", tmp_path / "rack.yaml")
    assert "env: CRS_1_LAB_PASSWORD" in (tmp_path / "rack.yaml").read_text()
    assert "password" not in reported.stderr


def test_a_file_that_may_not_be_read_is_reported_by_the_command_itself() -> None:
    """click would answer with how the command is called."""

    def parameters(group: click.Command) -> Iterator[click.Parameter]:
        yield from group.params
        if isinstance(group, click.Group):
            context = click.Context(group)
            for name in group.list_commands(context):
                below = group.get_command(context, name)
                assert below
                yield from parameters(below)

    read = ("rack", "plan", "host_keys", "admin_file", "new_file")
    found = [one for one in parameters(sparkrack) if isinstance(one.type, click.Path) and one.name in read]
    assert {one.name for one in found} == set(read)
    assert not [one.name for one in found if isinstance(one.type, click.Path) and one.type.readable]
