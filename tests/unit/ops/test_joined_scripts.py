"""Scripts that are sent as one command, run by real shells: what each had of its own it still has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand

from core.ops.joined_scripts import MAX_INPUT_BYTES, MAX_SCRIPT_BYTES, join_scripts
from core.ops.remote_files import encoded, put
from core.ops.shell import QuickScript, RootScript, quick_script, sudo_script
from tests.unit.ops.shells import stand_in


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(shell: str, *commands: StringCommand, cut: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run what is joined of them, as a node does; its input ends after `cut` bytes."""
    (joined,) = join_scripts(commands)
    assert isinstance(joined, RootScript)
    script, given = joined.get_raw_value(), f"{joined.stdin or ''}\n"
    return subprocess.run([shell, "-c", script], input=given[:cut], capture_output=True, text=True, check=False)


def test_each_has_its_own_input_and_variables(shell: str) -> None:
    first, last = quick_script("own=1; base64 -d; echo", encoded(b"one")), sudo_script("base64 -d", encoded(b"two"))
    done = run(shell, first, quick_script('echo "${own-none}"; cat'), quick_script("cat > /dev/null", ""), last)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\nnone\ntwo", "")


@pytest.mark.parametrize("stdin", [None, encoded(b"x")])
@pytest.mark.parametrize(("failing", "code"), [("false; echo on", 1), ("exit 7", 7), ('echo "$unset"', None)])
def test_the_first_failure_ends_all(shell: str, stdin: str | None, failing: str, code: int | None) -> None:
    done = run(shell, quick_script("echo first"), quick_script(failing, stdin), sudo_script("echo last"))
    assert done.stdout == "first\n"
    assert done.returncode == code if code else done.returncode != 0


@pytest.mark.parametrize("failing", [True, False])
def test_each_cleans_up_after_itself(shell: str, failing: bool, tmp_path: Path) -> None:
    left = tmp_path / "left"
    script = f"trap 'rm {left}' EXIT; touch {left}; {'false' if failing else ':'}"
    done = run(shell, quick_script(script, encoded(b"x")), sudo_script(f"[ ! -e {left} ]; echo gone"))
    assert (done.stdout, left.exists()) == ("" if failing else "gone\n", False)


@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("missing", [0, 2, 4])
def test_a_file_is_written_only_when_all_of_it_came(
    shell: str, size: int, missing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input that ends early is valid base64 where it ends after a multiple of four bytes."""
    stand_in(tmp_path, "chown")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    content = b"a" * size
    path = tmp_path / "file"
    done = run(shell, put(str(path), content, "644"), cut=len(encoded(content)) - missing)
    if missing:
        assert (done.returncode, path.exists()) == (1, False)
        assert done.stderr == "the input of the command was cut off; nothing of it was used\n"
    else:
        assert (done.returncode, path.read_bytes()) == (0, content)


QUICK, SLOW = quick_script("quick"), sudo_script("slow")
GIVEN = quick_script("base64 -d", "QQ==")
LINES = quick_script("cat", "two\nlines")
LIMITED = sudo_script("limited", seconds=60)
OTHER = StringCommand("of pyinfra itself")
LONG = quick_script("x" * (MAX_SCRIPT_BYTES - 4))
LARGE = quick_script("base64 -d", "A" * (MAX_INPUT_BYTES - 3))


@pytest.mark.parametrize(
    ("commands", "groups"),
    [
        ([], []),
        ([QUICK, QUICK, SLOW], [3]),
        ([SLOW, QUICK, QUICK], [1, 2]),
        ([SLOW, SLOW], [1, 1]),
        ([QUICK, LIMITED, QUICK], [1, 1, 1]),
        ([QUICK, OTHER, QUICK], [1, 1, 1]),
        ([QUICK, LINES, QUICK], [1, 1, 1]),
        ([LONG, QUICK], [1, 1]),
        ([LONG, quick_script("four")], [2]),
        ([LARGE, GIVEN, QUICK], [1, 2]),
    ],
    ids=str,
)
def test_what_is_sent_as_one_command(commands: list[StringCommand], groups: list[int]) -> None:
    """Nothing follows what may take long: a run that has lost the lock meanwhile sends nothing more."""
    joined = list(join_scripts(commands))
    assert len(joined) == len(groups)
    at = 0
    for one, count in zip(joined, groups, strict=True):
        part, at = commands[at : at + count], at + count
        if count == 1 and one in commands:
            assert [one] == part
            continue
        assert isinstance(one, RootScript)
        assert all(isinstance(each, RootScript) and each.script in one.script for each in part)
        assert isinstance(one, QuickScript) == all(isinstance(each, QuickScript) for each in part)


def test_what_must_not_stand_in_argv_does_not() -> None:
    (joined,) = join_scripts([quick_script("base64 -d", encoded(b"secret")), SLOW])
    assert isinstance(joined, RootScript)
    assert encoded(b"secret") not in joined.get_raw_value()
    assert joined.connector_arguments["_stdin"] == encoded(b"secret")
