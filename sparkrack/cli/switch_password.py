"""`sparkrack switch password`: rotate the password that a run logs in to the switch with."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option, switch_argument, switches
from sparkrack.maintenance.switch_password import rotate_password


@click.command("password")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "--new-file",
    required=True,
    type=click.Path(path_type=Path, readable=False),
    help="Where the new one is, or is made.",
)
def password(name: str | None, rack: Path, new_file: Path) -> None:
    """Give our user on the switch a new password, and prove it by a new login.

    \b
      sparkrack switch password --new-file ~/secrets/crs812-2

    It logs in with the one that rack.yaml refers to, over the pinned certificate; if that is refused and the new one is
    accepted, all was done before. rack.yaml is left as it is: write the new reference there afterwards. It holds the
    lock of the rack if the first node answers.
    """
    found = load(rack)
    chosen = switch_argument(found, name)

    def say(text: str) -> None:
        click.echo(f"{chosen.name}: {text}")

    rotate_password(found, chosen, new_file, say)
    say(f"now write it in rack.yaml: password: {{file: {new_file}}}")
    next_step(["sparkrack", "plan"], "when it is written there", rack=rack, limit=[chosen.name])
