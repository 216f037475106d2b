"""Errors that end a command with a message for its operator, raised by code that does not know the terminal."""

from __future__ import annotations


class CommandError(Exception):
    """A foreseeable reason why a command ends. Its text is printed, without a traceback, and the exit code is 1."""


class DeclinedError(Exception):
    """The operator has declined a question, or ended the input at it; nothing more is done."""
