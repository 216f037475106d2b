"""`sparkrack serve import` prints entries of rack.yaml on stdout, warnings on stderr, and one line for a refusal."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from ruamel.yaml import YAML

from sparkrack.cli.main import sparkrack
from tests.unit.serving.test_recipe import EUGR, IMAGE


def imported(path: Path, *words: str) -> Result:
    return CliRunner().invoke(sparkrack, ["serve", "import", str(path), *words])


def test_entries_are_printed_and_warnings_are_apart(tmp_path: Path) -> None:
    path = tmp_path / "tiny-fp8.yaml"
    path.write_text(EUGR)
    found = imported(path, "--version", "0.21.0", "--image", IMAGE, "--nodes", "n3, n1", "--context", "4096")
    assert found.exit_code == 0, found.output
    written = YAML(typ="safe", pure=True).load(found.stdout)
    assert list(written) == ["images", "models", "serving"]
    unit = written["serving"]["units"]["tiny_fp8"]
    assert (unit["nodes"], unit["context"]) == (["n3", "n1"], 4096)
    assert found.stderr.splitlines()[1:2] == [
        f"warning: {path}: mods: mods/fix-tiny: no patch is applied at a start; use an image that has it"
    ]


def test_a_refusal_is_one_line_and_prints_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(EUGR)
    found = imported(path)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.splitlines()[0].startswith(f"Error: {path}: container: vllm-node-tiny is in no registry; ")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    for name in ("absent.yaml", "binary.yaml", "."):
        found = imported(tmp_path / name)
        assert (found.exit_code, found.stdout) == (1, "")
        assert "cannot be read: " in found.stderr
