"""Words for a shell: whatever is in them, it is handed on as it is."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops.shell import quote, run_script, sudo_script

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=4))
def test_words_arrive(reported: list[str]) -> None:
    done = subprocess.run(["/bin/sh", "-c", f"printf '%s\\0' {quote(*reported)}"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == reported


def test_a_root_script_stops_at_its_first_failure() -> None:
    for script in ("false; echo on", "echo $unset; echo on"):
        done = subprocess.run(["/bin/sh", "-c", sudo_script(script).get_raw_value()], capture_output=True, text=True)
        assert done.returncode
        assert "on" not in done.stdout


def test_a_script_without_its_own_limit_may_take_two_hours_and_a_probe_five_minutes() -> None:
    assert sudo_script("true").connector_arguments["_timeout"] == 2 * 3600
    assert sudo_script("true", seconds=9.5).connector_arguments["_timeout"] == 9
    limits: list[float] = []

    def run_shell_command(*_: object, **arguments: Any) -> tuple[bool, SimpleNamespace]:
        limits.append(arguments["_timeout"])
        return True, SimpleNamespace(stdout_lines=[], stderr_lines=[])

    state = SimpleNamespace(print_fact_output=False, print_fact_input=False)
    host: Any = SimpleNamespace(state=state, run_shell_command=run_shell_command)
    assert run_script(host, "true") == (True, [], [])
    assert limits == [5 * 60]
