"""`sparkrack serve import` prints entries of rack.yaml and writes their files, or lists all that is missing."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from sparkrack.cli.main import sparkrack
from tests.own_terminal import Terminal
from tests.unit.cli.cli_fixtures import SPARKRACK
from tests.unit.model.serving_racks import machines
from tests.unit.serving.test_recipe import EUGR, IMAGE


def imported(path: Path | str, *words: str) -> Result:
    return CliRunner().invoke(sparkrack, ["serve", "import", str(path), *words])


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with one recipe and its mod; the working folder is that of a rack file."""
    root = tmp_path / "registry"
    (root / "recipes").mkdir(parents=True)
    (root / "mods/fix-tiny").mkdir(parents=True)
    (root / "mods/fix-tiny/run.sh").write_text("echo\n")
    (root / "mods/fix-tiny/data.bin").write_bytes(b"\xff\x00")
    (root / "recipes/tiny-fp8.yaml").write_text(EUGR + "mods: [mods/fix-tiny]\n")
    (tmp_path / "rack").mkdir()
    monkeypatch.chdir(tmp_path / "rack")
    return root


FORKED = EUGR.replace("--max_num_seqs 4", "--max_num_seqs 4 --fork-kernel fast --fork-depth 2")
"""A recipe with two options that no release has."""
GIVEN = ("--version", "0.21.0", "--image", IMAGE, "--nodes", "n3, n1", "--context", "4096")


def test_a_recipe_by_its_name_is_printed_and_its_files_are_written(registry: Path) -> None:
    found = imported("tiny-fp8", "--registry", str(registry), *GIVEN)
    assert found.exit_code == 0, found.output
    written = YAML(typ="safe", pure=True).load(found.stdout)
    assert list(written) == ["images", "models", "serving"]
    unit = written["serving"]["units"]["tiny_fp8"]
    assert (unit["nodes"], unit["context"]) == (["n3", "n1"], 4096)
    assert unit["files"] == {"/workspace/recipe": "recipes/tiny_fp8"}
    assert Path("recipes/tiny_fp8/mods/fix-tiny/data.bin").read_bytes() == b"\xff\x00"
    assert Path("recipes/tiny_fp8/before.sh").stat().st_mode & 0o777 == 0o755
    assert found.stderr.splitlines() == [
        *(f"recipes/tiny_fp8/{name}: written" for name in ("mods/fix-tiny/data.bin", "mods/fix-tiny/run.sh")),
        "recipes/tiny_fp8/before.sh: written",
        "warning: tiny-fp8: build_args: --tf5: belongs to the image, which must have it",
    ]


def test_a_rack_file_gives_the_nodes(registry: Path) -> None:
    Path("rack.yaml").write_text(machines(2))
    words = ("--registry", str(registry), *(word for word in GIVEN if word not in ("--nodes", "n3, n1")))
    found = imported("tiny-fp8", *words, "--rack", "rack.yaml")
    assert found.exit_code == 0, found.output
    assert YAML(typ="safe", pure=True).load(found.stdout)["serving"]["units"]["tiny_fp8"]["nodes"] == ["n0", "n1"]
    assert "nodes:" not in found.stderr
    both = imported("tiny-fp8", *words, "--rack", "rack.yaml", "--nodes", "n0,n1")
    assert (both.exit_code, "--nodes or --rack" in both.stderr) == (1, True)


def test_files_that_differ_are_written_over_only_with_force(registry: Path) -> None:
    words = ("--registry", str(registry), *GIVEN, "--files", "units/tiny")
    assert imported("tiny-fp8", *words).exit_code == 0
    assert imported("tiny-fp8", *words).exit_code == 0
    script = Path("units/tiny/before.sh")
    script.write_text("mine")
    Path("units/tiny/mods/fix-tiny/run.sh").unlink()
    refused = imported("tiny-fp8", *words)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: units/tiny/before.sh: is there with another content; --force writes over")
    assert script.read_text() == "mine"
    assert not Path("units/tiny/mods/fix-tiny/run.sh").exists()
    assert imported("tiny-fp8", *words, "--force").exit_code == 0
    assert script.read_text().startswith("#!/bin/bash\n")


def test_a_link_is_not_written_through(registry: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    Path("units").mkdir()
    Path("units/before.sh").symlink_to(outside)
    words = ("--registry", str(registry), *GIVEN, "--files", "units")
    assert imported("tiny-fp8", *words).exit_code == 1
    assert imported("tiny-fp8", *words, "--force").exit_code == 0
    assert outside.read_text() == "mine"
    assert not Path("units/before.sh").is_symlink()


def test_a_refusal_lists_all_that_is_missing_and_writes_nothing(registry: Path) -> None:
    found = imported("tiny-fp8", "--registry", str(registry))
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.splitlines()[:3] == [
        "Error: tiny-fp8: 2 things do not come over:",
        "  container: vllm-node-tiny is in no registry; push the image to one and give --image",
        "  version: the recipe does not say which vLLM is in its image; give --version (0.10.2 to 0.33.0)",
    ]
    assert not Path("recipes").exists()


def test_one_thing_that_is_missing_is_one_line(registry: Path) -> None:
    found = imported(registry / "recipes/tiny-fp8.yaml", "--version", "0.21.0")
    assert found.exit_code == 1
    path = registry / "recipes/tiny-fp8.yaml"
    assert found.stderr.splitlines()[0].startswith(f"Error: {path}: container: vllm-node-tiny is in no registry; ")


@pytest.mark.parametrize("folder", ["/srv/x", "../x", "a/../../x"])
def test_files_outside_of_the_folder_of_rack_yaml_are_refused(folder: str, registry: Path) -> None:
    found = imported("tiny-fp8", "--registry", str(registry), *GIVEN, "--files", folder)
    assert found.exit_code == 1
    assert found.stderr.startswith(f"Error: --files {folder}: is not a path in the folder of rack.yaml")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    for name in ("absent.yaml", "binary.yaml"):
        found = imported(tmp_path / name)
        assert (found.exit_code, found.stdout) == (1, "")
        assert "cannot be read: " in found.stderr


def answered(recipe: Path, *answers: tuple[str, str]) -> tuple[str, str]:
    """What is printed, and what the terminal shows, when each question is answered once it is there."""
    words = [SPARKRACK, "serve", "import", str(recipe), *GIVEN]
    with Terminal(words, stdout=subprocess.PIPE) as terminal:
        for question, answer in answers:
            terminal.answer(question, answer)
        assert terminal.process.stdout
        return terminal.process.stdout.read(), terminal.shown


def test_on_a_terminal_the_reason_of_each_option_is_asked_for_and_stands_as_it_was_typed(registry: Path) -> None:
    path = registry / "recipes/forked.yaml"
    path.write_text(FORKED)
    printed, seen = answered(
        path,
        ("args.fork-kernel: why is it accepted?", "   "),
        ("args.fork-kernel: why is it accepted?", "measured: 12 % faster"),
        ("args.fork-depth: why is it accepted?", ""),
    )
    accept = YAML(typ="safe", pure=True).load(printed)["serving"]["units"]["forked"]["accept"]
    assert accept["fork-kernel"] == "measured: 12 % faster"
    assert "gives it to its image; by the table it" in accept["fork-depth"]
    assert "A reason is one line of text." in seen


def test_without_a_terminal_nothing_is_asked_and_the_reason_names_the_recipe(registry: Path) -> None:
    path = registry / "recipes/forked.yaml"
    path.write_text(FORKED)
    found = imported(path, *GIVEN)
    assert found.exit_code == 0, found.output
    accept = YAML(typ="safe", pure=True).load(found.stdout)["serving"]["units"]["forked"]["accept"]
    assert all("gives it to its image; by the table it" in reason for reason in accept.values())
    assert list(accept) == ["fork-kernel", "fork-depth"]
    assert "why is it accepted" not in found.output


def test_nothing_is_asked_where_the_recipe_is_refused(registry: Path) -> None:
    path = registry / "recipes/forked.yaml"
    path.write_text(FORKED + "post_exec: [x]\n")
    screen, terminal = pty.openpty()
    words = [SPARKRACK, "serve", "import", str(path), *GIVEN]
    done = subprocess.run(words, stdin=terminal, capture_output=True, text=True, check=False, timeout=300)
    os.close(terminal)
    os.close(screen)
    assert (done.returncode, done.stdout) == (1, "")
    assert "post_exec: nothing runs after a start" in done.stderr
    assert "why is it accepted" not in done.stderr
