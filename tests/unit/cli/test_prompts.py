"""Questions on a terminal."""

from __future__ import annotations

import sys

from tests.own_terminal import Terminal

PROGRAM = "from sparkrack.terminal.prompts import confirm; print('answer', confirm('Apply this?'), flush=True)"


def test_what_was_typed_before_the_question_is_not_its_answer() -> None:
    with Terminal([sys.executable, "-c", PROGRAM]) as terminal:
        terminal.type_keys(b"y\n")
        terminal.answer("[y/N]", "n")
        assert terminal.finish() == 0
        assert terminal.shown.splitlines()[-1] == "answer False"
