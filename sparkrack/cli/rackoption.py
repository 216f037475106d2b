"""The option that says which rack a command is about."""

from __future__ import annotations

from pathlib import Path

import click

from sparkrack.fleet import rack_path

rack_option = click.option(
    "--rack",
    "rack",
    type=click.Path(path_type=Path, readable=False),
    default=lambda: rack_path(),
    show_default="$RACK or group_data/rack.yaml",
    help="The file that describes the rack.",
)
