"""`sparkrack serve options` judges the command line of an engine by its release, and connects to nothing."""

from __future__ import annotations

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


@pytest.mark.parametrize("version", ["0.1.0", "99.0.0", "latest"])
def test_an_unknown_release_accepts_nothing(version: str) -> None:
    found = serve_options("sglang", version, "--model-path", "model")
    assert found.exit_code == 1
    assert "accepted" not in found.stdout
    assert found.stderr


def test_a_neighbour_that_judges_is_named() -> None:
    found = serve_options("vllm", "0.19.0", "model", "--help-me")
    assert "0.19.1" in found.stdout
    assert found.exit_code == 1
