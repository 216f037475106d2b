"""A password that a command line refers to and never holds."""

from __future__ import annotations

import click
from pydantic import ValidationError

from sparkrack.fleet import SecretRef


def reference(variable: str | None, file: str | None, prefix: str = "") -> SecretRef | None:
    """Where a password is, by the options `--PREFIXpassword-env` and `--PREFIXpassword-file`. Raises UsageError."""
    if variable and file:
        raise click.UsageError(f"--{prefix}password-env and --{prefix}password-file exclude one another")
    given = {"env": variable} if variable else {"file": file} if file else None
    try:
        return SecretRef.model_validate(given) if given else None
    except ValidationError:
        raise click.UsageError("that is not the name of a variable or file; never write the password itself") from None
