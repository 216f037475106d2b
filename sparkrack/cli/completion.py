"""`sparkrack completion`: the script with which a shell completes the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from core.util.command_error import CommandError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
      eval "$(sparkrack completion bash)"     # in ~/.bashrc
      eval "$(sparkrack completion zsh)"      # in ~/.zshrc
      sparkrack completion fish > ~/.config/fish/completions/sparkrack.fish

    Exit 0 when the script is printed, else 1.
    """
    program = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    if made is None:
        raise CommandError(f"click has no completion for {shell}")
    click.echo(made(program, {}, "sparkrack", "_SPARKRACK_COMPLETE").source(), nl=False)
