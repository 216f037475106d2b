"""Questions on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = "from sparkrack.terminal.prompts import confirm; print('answer', confirm('Apply this?'), flush=True)"


def test_what_was_typed_before_the_question_is_not_its_answer() -> None:
    screen, terminal = pty.openpty()
    os.write(screen, b"y\n")
    asking = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    try:
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(screen, 4096)
        os.write(screen, b"n\n")
        while b"answer" not in shown.rpartition(b"[y/N]")[2] or not shown.endswith(b"\n"):
            shown += os.read(screen, 4096)
        assert shown.split(b"answer ")[-1].split()[0] == b"False"
    finally:
        asking.kill()
        asking.wait()
        os.close(screen)
