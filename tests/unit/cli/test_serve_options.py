"""`sparkrack serve options` judges the command line of an engine by its release, and connects to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack


def serve_options(*words: str) -> Result:
    return CliRunner().invoke(sparkrack, ["serve", "options", *words])


def test_a_line_that_the_release_accepts() -> None:
    found = serve_options("vllm", "0.21.0", "model", "--tensor-parallel-size", "2", "--enable-prefix-caching")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "accepted by vllm 0.21.0\n", "")


def test_a_wrong_option_is_named_with_the_nearest() -> None:
    found = serve_options("vllm", "0.21.0", "model", "--prefix-caching")
    assert found.exit_code == 1
    assert "--prefix-caching" in found.stderr
    assert "--enable-prefix-caching" in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize("version", ["0.1.0", "latest"])
def test_an_unknown_release_accepts_nothing(version: str) -> None:
    found = serve_options("sglang", version, "--model-path", "model")
    assert found.exit_code == 1
    assert "accepted" not in found.stdout
    assert found.stderr


def test_a_release_after_the_newest_is_judged_by_it_which_is_said() -> None:
    found = serve_options("sglang", "99.0.0", "--model-path", "model")
    assert (found.exit_code, found.stdout) == (0, "99.0.0 is judged by 0.5.23\naccepted by sglang 0.5.23\n")


def test_the_program_that_lists_options_is_printed_as_it_runs_in_an_image() -> None:
    found = serve_options("--program")
    assert found.exit_code == 0
    made = subprocess.run([sys.executable, "-", "none"], input=found.stdout, capture_output=True, text=True)
    assert made.stderr.strip().endswith("KeyError: 'none'"), "it is whole: it knows vllm and sglang only"


def test_a_neighbour_that_judges_is_named() -> None:
    found = serve_options("vllm", "0.19.0", "model", "--help-me")
    assert "0.19.1" in found.stdout
    assert found.exit_code == 1
