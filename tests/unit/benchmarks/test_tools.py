"""How the tools are called, and how what they say is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import BenchError
from benchmarks.__main__ import main
from benchmarks.contenders import TOOLS, applied, recap, results

RECAP = """\
PLAY RECAP *********************************************************************
spark1                     : ok=13   changed=8    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
spark2                     : ok=13   changed=0    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
"""
RESULTS = """\
--> Results:
    Operation                                               Hosts   Success   Error   No Change
    Access | Make the node's own key pair                   1       1         -       -
    Grand total                                             9       8         -       1

--> Disconnecting from hosts...
"""

APPLIED = """\
spark1: 8 operations changed it
spark2: nothing was changed
done; journal: runs/20260101T000000-0000.ndjson
"""


def test_ansible_says_how_many_hosts_it_changed() -> None:
    assert recap(RECAP) == 1
    assert recap(RECAP.replace("changed=8", "changed=0")) == 0


def test_pyinfra_says_how_many_operations_it_carried_out() -> None:
    assert results(RESULTS) == 8
    assert results(RESULTS.replace("9       8         -       1", "9       -         -       9")) == 0


@pytest.mark.parametrize(
    ("read", "reported"),
    [
        (recap, ""),
        (recap, RECAP.replace("failed=0", "failed=1", 1)),
        (recap, RECAP.replace("unreachable=0", "unreachable=1", 1)),
        (applied, ""),
        (applied, APPLIED.replace("done; ", "failed; ")),
        (results, ""),
        (results, RESULTS.replace("8         -       1", "8         1       -")),
    ],
)
def test_what_failed_or_cannot_be_read_is_not_a_measurement(read: object, reported: str) -> None:
    assert callable(read)
    with pytest.raises(BenchError):
        read(reported)


def test_sparkrack_apply_says_how_many_hosts_it_changed() -> None:
    assert applied(APPLIED) == 1
    assert applied("1 machine, no changes, nothing unknown\nnothing to do\n") == 0


def test_each_tool_has_its_name_alone_and_runs_beside_one_that_brings_a_state() -> None:
    assert len({tool.name for tool in TOOLS}) == len(TOOLS)
    bringing = {tool.name for tool in TOOLS if tool.brings}
    assert all(tool.after in bringing for tool in TOOLS if not tool.brings)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--hosts", "1,x"], "numbers from 1 to 200"),
        (["--hosts", "0"], "numbers from 1 to 200"),
        (["--hosts", "201"], "numbers from 1 to 200"),
        (["--tools", "sparkrack,puppet"], "puppet: there are sparkrack"),
        (["--tools", "connect,stock"], "connect runs after sparkrack"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--answer-after", "11"], "11.0 is not in the range"),
        (["--up-to", "puppet=8"], "write TOOL=HOSTS"),
        (["--up-to", "ansible"], "write TOOL=HOSTS"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_built(words: list[str], reported: str) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert reported in done.output


def test_without_root_it_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    done = CliRunner().invoke(main, ["--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "needs root" in done.output
    assert not (tmp_path / "out").exists()
