"""`sparkrack completion`: the script with which a shell completes the command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
    from sparkrack.cli.main import sparkrack

    made = get_completion_class(shell)
    if made is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(made(sparkrack, {}, "sparkrack", "_SPARKRACK_COMPLETE").source(), nl=False)
