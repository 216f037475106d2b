"""How a command line meets the login shells of the field; a csh reads no line of ours but those that refuse it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from core.ops.patch_ssh_connector import _REFUSE_CSH

SCRIPT = f"echo mark\n{_REFUSE_CSH}\nsh -c 'set -eu\nif true; then\necho \"!done\"\nfi'"


def run(shell: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on this machine")
    environment = {"PATH": "/usr/bin:/bin", "SHELL": path, "HOME": "/"}
    return subprocess.run([path, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "ksh", "fish"])
def test_a_shell_that_can_read_the_script_runs_it(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mark\n!done\n", "")


@pytest.mark.parametrize("shell", ["csh", "tcsh"])
def test_csh_is_refused_in_words_and_runs_nothing(shell: str) -> None:
    done = run(shell)
    assert (done.returncode, done.stdout) == (1, "mark\n")
    assert done.stderr == f"login shell: {shutil.which(shell)} is not supported; it would be sh, bash or zsh\n"
