"""pyinfra facts of a switch. An answer is known (rows, perhaps none) or unknown, and unknown is never a value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase
from typing_extensions import override

from core.routeros.errors import SwitchError
from core.routeros.menus import Sentence
from core.routeros.reading import Ask

if TYPE_CHECKING:
    from pyinfra.api.host import Host


class Rows(FactBase[list[dict[str, str]] | None]):
    """The rows of a menu; None when they could not be read, for which pyinfra also marks the host as failed.

    + path: the menu, /interface/bridge/port
    + fields: the fields to ask for, comma separated; all of them, counters included, when left out

        pyinfra inventory.py fact core.routeros.pyinfra_facts.Rows path=/system/identity
    """

    @override
    def command(self, path: str, fields: str = "") -> StringCommand:
        return to_command((f"{path}/print", *((f"=.proplist={fields}",) if fields else ())))

    @override
    def process(self, output: list[str]) -> list[dict[str, str]]:
        try:
            return rows(output)
        except SwitchError as fault:
            raise FactProcessError(str(fault)) from None


def to_command(sentence: Sentence) -> StringCommand:
    """A sentence as a pyinfra command, each word quoted where it needs to be."""
    command, *words = sentence
    return StringCommand(command, *(QuoteString(word) for word in words))


def rows(lines: list[str]) -> list[dict[str, str]]:
    """The connector's output as rows. Raises SwitchError if a line is not a row."""
    found = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise SwitchError(f"not a row: {line[:80]!r}")
        found.append(row)
    return found


def host_client(host: Host) -> Ask:
    """Return a reader of menus of `host` that keeps unknown unknown: an unreadable menu raises SwitchError.

    `host.get_fact` would return the default of a fact that failed, and send the changes that follow from it; in an
    interactive run it also stops the whole run with a question.
    """

    def ask(sentence: Sentence) -> list[dict[str, str]]:
        state = host.state
        fine, output = host.run_shell_command(
            to_command(sentence), print_output=state.print_fact_output, print_input=state.print_fact_input
        )
        if not fine:
            raise SwitchError("; ".join(output.stderr_lines) or f"{sentence[0]} failed")
        return rows(output.stdout_lines)

    return ask
