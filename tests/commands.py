"""Commands that documents name, or that the program gives to itself: every word of them is one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sparkrack.cli.main import sparkrack


def parsed(words: Sequence[str]) -> None:
    """The words after `sparkrack`: verbs and options exist, options have their values, and a choice is one of its
    kind. Raises click.UsageError. Nothing is run, and no name of a machine is looked up."""
    command: click.Command = sparkrack
    # With the settings of the real one: a command keeps the words for help that it was first asked with.
    context = click.Context(command, info_name="sparkrack", **command.context_settings)
    left = list(words)
    while isinstance(command, click.Group) and left and not left[0].startswith("-"):
        below = command.get_command(context, left[0])
        if below is None:
            if command.invoke_without_command:
                break
            raise click.UsageError(f"no verb {left[0]} in {context.command_path}")
        command, context = below, click.Context(below, parent=context, info_name=left.pop(0))
    if isinstance(command, click.Group) and not command.invoke_without_command and left not in (["-h"], ["--help"]):
        if left:
            raise click.UsageError(f"no option {left[0]} of {context.command_path}")
        return
    given, over, _ = command.make_parser(context).parse_args(left)
    if over:
        raise click.UsageError(f"{over[0]} is one word too many for {context.command_path}")
    for parameter in command.params:
        value = given.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and value is not None:
            for one in value if parameter.multiple else [value]:
                parameter.type.convert(one, parameter, context)
