"""Questions at the terminal. Each raises DeclinedError when the operator ends the input at it."""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
from pydantic import SecretStr

from core.model import SecretError
from core.util.command_error import CommandError, DeclinedError
from core.util.scrub import declare


def has_terminal() -> bool:
    """Return whether a question can be answered."""
    return bool(sys.stdin and sys.stdin.isatty())


@contextmanager
def _raise_declined_error() -> Iterator[None]:
    """Turn the end of the input, and Ctrl-C, into DeclinedError. Drop what was typed before the question was shown: it
    cannot be meant as its answer.
    """
    if has_terminal():
        with suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        yield
    except click.Abort as end:
        raise DeclinedError(str(end)) from None


def confirm(question: str, *, default: bool = False, err: bool = True) -> bool:
    """Ask a question with the answers yes and no."""
    with _raise_declined_error():
        return click.confirm(question, default=default, err=err)


def require_consent(question: str, *, err: bool = False) -> None:
    """Ask a question. Raises DeclinedError unless the answer is yes."""
    if not confirm(question, err=err):
        raise DeclinedError


def require_terminal(without: str) -> None:
    """Raise CommandError where a question cannot be answered. `without`: what goes on without one, for the error."""
    if not has_terminal():
        raise CommandError(f"there is no terminal for a prompt; {without}")


def ask_before(question: str, without: str) -> None:
    """Ask before a change, on stderr. Raises CommandError without a terminal, DeclinedError unless the answer is yes.

    Args:
        question: the question, which yes or no answers.
        without: what goes on without a question, for the error.
    """
    require_terminal(without)
    require_consent(question, err=True)


def ask(question: str, default: str) -> str:
    """Ask for a text."""
    with _raise_declined_error():
        return str(click.prompt(question, default=default, show_default=bool(default), err=True))


def hidden_prompt(question: str, *, skippable: bool = False) -> SecretStr:
    """Ask for a password without showing it; `skippable`: Enter gives an empty one. Raises SecretError for one in
    another encoding than UTF-8.
    """
    with suppress(UnicodeError), _raise_declined_error():
        text: str = click.prompt(
            question, default="" if skippable else None, show_default=False, hide_input=True, err=True
        )
        text.encode()
        declare(text)
        return SecretStr(text)
    # Raised outside of `except`: the error holds the password.
    raise SecretError("the typed password is not UTF-8 text; set the terminal to UTF-8")
