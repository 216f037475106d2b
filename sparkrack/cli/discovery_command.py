"""What `init` and `adopt` share on the command line: their options, and the lists that they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from core.hardware import registry
from core.model.errors import printable_line
from core.model.fields import PLAIN_API_PORT, SSH_PORT, TLS_API_PORT
from core.model.loader import new_path
from sparkrack.cli.options import password_options
from sparkrack.discovery.discovery_options import DiscoveryOptions, OptionError, parse_options

_Command = Callable[..., Any]

_OPTIONS = (
    click.option(
        "--out",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=lambda _ctx, _param, named: named or new_path(),
        show_default="$RACK, else rack.yaml",
        help="The file to write.",
    ),
    click.option("--name", help="What the rack is called.  [default: the name of the folder of the file]"),
    click.option("--node", "nodes", multiple=True, metavar="NAME=ADDRESS", help="A node, by rank; again for the next."),
    click.option(
        "--vendor", "vendors", multiple=True, metavar="[NODE=]VENDOR", help="Manufacturer of the node, or of all nodes."
    ),
    click.option(
        "--cable",
        "cables",
        multiple=True,
        metavar="NODE/PORT=END",
        help="Where a cable ends, if no machine can report it.",
    ),
    click.option("--user", help="Login user of the nodes.  [default: asked, else ops]"),
    click.option("--key", metavar="PATH", help="Private key for that login.  [default: asked, else ~/.ssh/id_ed25519]"),
    click.option("--known-hosts", default="known_hosts", show_default=True, help="From the folder of the file."),
    click.option(
        "--ssh-port", type=click.IntRange(1, 65535), default=SSH_PORT, show_default=True, help="Of the nodes."
    ),
    click.option(
        "--host-keys",
        type=click.Path(path_type=Path, readable=False, dir_okay=False),
        help="Lines NODE SHA256:... or of a known_hosts file; else fingerprints are shown and confirmed.",
    ),
    click.option(
        "--switch",
        "switch",
        metavar="[NAME=]ADDRESS",
        help="The switch; its name is that of --switch-model otherwise. `-`: there is none.",
    ),
    click.option(
        "--switch-model",
        type=click.Choice([model.name for model in registry.MODELS]),
        help=f"Its model, if it is not read.  [default: {registry.DEFAULT.name}]",
    ),
    click.option(
        "--api-port",
        type=click.IntRange(1, 65535),
        help=f"Its API.  [default: {TLS_API_PORT}, with --plain {PLAIN_API_PORT}]",
    ),
    click.option("--plain", is_flag=True, help="The plain API: the password goes in the clear."),
    click.option("--fingerprint", metavar="SHA256", help="Of its certificate; else it is shown and confirmed."),
    click.option("--switch-user", default="sparkrack", show_default=True, help="API user that reads it."),
    password_options("switch-", "that user's"),
    click.option("--cage", "cages", multiple=True, metavar="CAGE=SPLIT", help="How a cage is split."),
    click.option("-y", "--yes", is_flag=True, help="Write over a file that is there, without asking."),
)


def discovery_options(command: _Command) -> _Command:
    """Add every discovery option to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def given_options(**given: Any) -> DiscoveryOptions:
    """The options as they mean. Raises UsageError."""
    try:
        return parse_options(**given)
    except OptionError as fault:
        raise click.UsageError(str(fault)) from None


def print_list(title: str, lines: Iterable[object]) -> None:
    """Print a list with its title; nothing for an empty one."""
    texts = dict.fromkeys(map(str, lines))
    if texts:
        click.echo(f"{title}:")
        for text in texts:
            click.echo(f"  {printable_line(text)}")
