"""A password that is typed at the terminal."""

from __future__ import annotations

from contextlib import suppress

import click
from pydantic import SecretStr

from core.model import SecretError
from core.util.scrub import declare


def hidden_prompt(question: str) -> SecretStr:
    """Ask for a password without showing it. Raises SecretError for one in another encoding than UTF-8."""
    with suppress(UnicodeError):
        text: str = click.prompt(question, hide_input=True, err=True)
        text.encode()
        declare(text)
        return SecretStr(text)
    # Raised outside of `except`: the error holds the password.
    raise SecretError("the typed password is not UTF-8 text; set the terminal to UTF-8")
