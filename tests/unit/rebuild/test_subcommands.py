"""The commands that a rebuild calls, on a system whose kernel cannot be asked for a signal."""

from __future__ import annotations

import ctypes
import signal
import sys

import pytest

from sparkrack.engine.subcommands import CommandRunner, InterruptedCommandError


def test_without_prctl_a_command_is_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library of macOS has no prctl."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    result = CommandRunner(None, as_json=False).call(["--version"], keep=True)
    assert (result.exit, result.output[:10]) == (0, b"sparkrack,")


def test_after_a_signal_no_other_command_is_called() -> None:
    runner = CommandRunner(None, as_json=False)
    with runner.listening():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(InterruptedCommandError):
            runner.check()
        with pytest.raises(InterruptedCommandError):
            runner.call(["--version"], keep=True)
