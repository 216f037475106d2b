#!/usr/bin/env python3
"""Print the man page sparkrack.1, made from the help of each command: scripts/manpage.py > sparkrack.1"""

from __future__ import annotations

from collections.abc import Iterator

import click

from sparkrack.cli.main import sparkrack


def escaped(text: str) -> str:
    """A line as roff prints it: no escape, and no request at its start."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from commands(click.Context(below, parent=context, info_name=name))


def page() -> Iterator[str]:
    yield '.TH SPARKRACK 1 "" "sparkrack" "User Commands"'
    yield ".SH NAME"
    yield "sparkrack \\- a rack of DGX Spark / GB10 nodes and its MikroTik switch as code"
    settings = {**sparkrack.context_settings, "terminal_width": 78, "max_content_width": 78}
    for context in commands(click.Context(sparkrack, info_name="sparkrack", **settings)):
        yield f'.SH "{context.command_path.upper()}"'
        yield ".nf"
        yield from map(escaped, context.get_help().splitlines())
        yield ".fi"


if __name__ == "__main__":
    print("\n".join(page()))
