"""A password that is typed at the terminal."""

from __future__ import annotations

from contextlib import suppress

import click
from pydantic import SecretStr

from sparkrack.fleet import SecretError


def hidden(question: str) -> SecretStr:
    """Ask for a password without showing it. Raises SecretError for one in another encoding than UTF-8."""
    with suppress(UnicodeError):
        text: str = click.prompt(question, hide_input=True, err=True)
        text.encode()
        return SecretStr(text)
    # Raised outside of `except`: the error holds the password.
    raise SecretError("the typed password is not UTF-8 text; set the terminal to UTF-8")
