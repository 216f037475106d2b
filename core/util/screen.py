"""Interface by which code below the command line prints and asks. Pure."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pydantic import SecretStr

from core.util.command_error import CommandError
from core.util.progress import ProgressObserver


class Screen(ProgressObserver, Protocol):
    """The terminal of a command: its progress, lines apart from the progress, and questions. A question raises
    DeclinedError when the operator ends the input at it.
    """

    @property
    def interactive(self) -> bool:
        """Whether a question can be answered."""

    def say(self, text: str, *, err: bool = False) -> None:
        """Print one line; `err`: to stderr."""

    def warn(self, text: str) -> None:
        """Print one line to stderr."""

    def hidden(self) -> AbstractContextManager[None]:
        """Remove the progress during the block, in which another program prints."""

    def confirm(self, question: str, *, default: bool = False) -> bool:
        """Ask a question with the answers yes and no."""

    def require_consent(self, question: str) -> None:
        """Ask a question. Raises DeclinedError unless the answer is yes."""

    def ask(self, question: str, default: str) -> str:
        """Ask for a text."""

    def hidden_prompt(self, question: str, *, skippable: bool = False) -> SecretStr:
        """Ask for a password without showing it; `skippable`: Enter gives an empty one. Raises SecretError for one in
        another encoding than UTF-8.
        """


def ask_before_change(screen: Screen, machine: str, question: str) -> None:
    """Ask before a change of a machine. Raises CommandError without a terminal, DeclinedError unless the answer is
    yes.
    """
    if not screen.interactive:
        raise CommandError(f"{machine}: there is no terminal for a prompt; pass -y")
    screen.require_consent(f"{machine}: {question}")
