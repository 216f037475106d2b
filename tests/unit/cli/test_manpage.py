"""The man page has each command and is sound roff; `sparkrack completion` prints what click makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from tests.generated import REPOSITORY
from tests.unit.cli.runs import command
from tests.unit.cli.test_help import ALL


@pytest.fixture(scope="module")
def page() -> str:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts/manpage.py"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_of_the_wheel_is_the_one_that_the_help_makes(page: str) -> None:
    kept = REPOSITORY / "docs/sparkrack.1"
    if os.environ.get("UPDATE_DOCS"):
        kept.write_text(page)
    assert kept.read_text() == page, "UPDATE_DOCS=1 renews docs/sparkrack.1"


def test_each_command_has_a_section(page: str) -> None:
    sections = {line.removeprefix(".SH ").strip('"') for line in page.splitlines() if line.startswith(".SH ")}
    assert sections == {"NAME", *(" ".join(("sparkrack", *words)).upper() for words in ALL)}


def test_groff_has_no_warning(page: str) -> None:
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Kutf8"], input=page, capture_output=True, text=True, timeout=60
    )
    if "preconv" in done.stderr or "can't find macro" in done.stderr or "fatal" in done.stderr:
        pytest.skip(f"groff has no man macros here: {done.stderr.splitlines()[0]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_click(shell: str) -> None:
    ended = CliRunner().invoke(sparkrack, ["completion", shell])
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.strip() == command("sparkrack", _SPARKRACK_COMPLETE=f"{shell}_source").stdout.strip()
