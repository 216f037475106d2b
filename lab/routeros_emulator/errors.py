"""Refusals that a client sees as ``!trap``."""

from __future__ import annotations

#: Trap categories (MikroTik manual, 'API', table of categories).
MISSING_ITEM = 0
ARGUMENT_VALUE = 1
INTERRUPTED = 2
GENERAL_FAILURE = 4


class TrapError(Exception):
    """A command was refused: its text goes to the client word for word, with a category when known."""

    def __init__(self, message: str, category: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.category = category


def no_such_item() -> TrapError:
    """No row has that id or name."""
    return TrapError("no such item", MISSING_ITEM)


def unknown_parameter(name: str) -> TrapError:
    """The command has no such argument (read-only fields included)."""
    return TrapError(f"unknown parameter {name}")


def missing(name: str) -> TrapError:
    """A required argument was not given. The wording is inferred."""
    return TrapError(f"missing ={name}=")


def no_match(argument: str) -> TrapError:
    """A value is not one of the words of its argument."""
    return TrapError(f"input does not match any value of {argument}", ARGUMENT_VALUE)


def failure(what: str) -> TrapError:
    """A well-formed command that the device cannot carry out."""
    return TrapError(f"failure: {what}", GENERAL_FAILURE)
