"""`sparkrack probe`: a description of a machine, for people who do not have one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from core.model import SecretError, load
from core.routeros.errors import SwitchError, UnreadableError
from core.routeros.session import open_connection
from sparkrack.cli.options import rack_option, switch_argument, switches
from switch.probe import ProbeFixture
from switch.probe import probe as probed


@click.group()
def probe() -> None:
    """Record what a machine is like, without changing it."""


@probe.command("switch")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; it goes to standard output otherwise.",
)
def probe_switch(name: str | None, rack: Path, output: Path | None) -> None:
    """Record what the switch prints of the menus this project works with, as a fixture that can be sent.

    Only reads. Serial numbers, MAC addresses, public addresses, names, comments and whatever else is not known to be
    harmless is replaced; look at the file before you send it. The emulated switch can be started from it:
    python -m lab.routeros_emulator --config FILE --fixture FIXTURE.
    """
    switch = switch_argument(load(rack), name)
    try:
        with open_connection(switch, lambda text: click.echo(f"{switch.name}: {text}", err=True)) as line:
            fixture = probed(line)
    except (SwitchError, SecretError, UnreadableError) as fault:
        raise click.ClickException(f"{switch.name}: {fault}") from None
    text = json.dumps(fixture.document, indent=1, ensure_ascii=True)
    if output:
        try:
            _write(output, text + "\n")
        except OSError as fault:
            raise click.ClickException(f"{output}: {fault.strerror}") from None
    else:
        click.echo(text)
    _hand_out(switch.name, fixture, output)


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner may read until it is reviewed."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _hand_out(name: str, fixture: ProbeFixture, output: Path | None) -> None:
    for entry in fixture.document["questions"]:
        click.echo(f"{name}: {entry['question']} {entry['answer']}", err=True)
    for path, why in fixture.document["refused"].items():
        click.echo(f"{name}: {path} could not be read: {why}", err=True)
    for text in fixture.document["lacking"]:
        click.echo(f"{name}: RouterOS {fixture.document['version']} lacks {text}", err=True)
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(fixture.replaced.items()))
    where = f"{output}" if output else "what was printed"
    click.echo(f"{name}: replaced by stand-ins: {counts or 'nothing'}; counters of traffic were left out", err=True)
    click.echo(f"{name}: review {where} before you send it", err=True)
