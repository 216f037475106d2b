"""The command itself: its verbs, and how a foreseeable fault reaches the user."""

from __future__ import annotations

import sys

import click

from sparkrack.cli.bootstrap import bootstrap
from sparkrack.cli.check import check
from sparkrack.cli.driver import driver
from sparkrack.cli.lab import lab
from sparkrack.cli.probe import probe
from sparkrack.cli.reboot import reboot
from sparkrack.cli.switch import switch
from sparkrack.cli.verify import verify
from sparkrack.fleet import RackError, SecretError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def sparkrack() -> None:
    """A rack of DGX Spark / GB10 nodes and its CRS812 switch as code.

    The rack is described in one file, group_data/rack.yaml or the one that RACK names. It is brought to that
    state by `pyinfra inventory.py deploy.py`.
    """


sparkrack.add_command(bootstrap)
sparkrack.add_command(check)
sparkrack.add_command(driver)
sparkrack.add_command(probe)
sparkrack.add_command(reboot)
sparkrack.add_command(switch)
sparkrack.add_command(verify)
sparkrack.add_command(lab)


def main() -> None:
    """Run the command; a fault that can be foreseen is told in words, never as a traceback."""
    from lab.errors import LabError

    try:
        sparkrack(prog_name="sparkrack")
    except (RackError, LabError, SecretError) as fault:
        click.echo(str(fault), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
