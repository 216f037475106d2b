"""`sparkrack bootstrap`: take the machines into the rack as they come from their boxes."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from sparkrack.bootstrap.passwords import Passwords
from sparkrack.cli import bootstrap_nodes as of_nodes
from sparkrack.cli import bootstrap_switch as of_switch
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.wordless import reference
from sparkrack.fleet import Rack, RackError, SecretError, edit, load
from sparkrack.fleet.load import DEFAULT
from switch.bootstrap.tables import FACTORY_ADDRESS, FACTORY_USER
from switch.bootstrap.work import Wishes


@click.group(invoke_without_command=True)
@rack_option
@of_nodes.as_option
@click.option("--node-password-env", metavar="VARIABLE", help="Holds that account's password; asked for otherwise.")
@click.option("--node-password-file", metavar="PATH", help="Holds that account's password; nobody else may read it.")
@of_nodes.host_keys_option
@of_nodes.replace_option
@click.option(
    "--switch-address",
    callback=of_switch.an_address,
    default=FACTORY_ADDRESS,
    show_default=True,
    help="Where the switch answers now.",
)
@click.option(
    "--switch-api-port", type=click.IntRange(1, 65535), default=8728, show_default=True, help="Its plain API."
)
@click.option(
    "--switch-password-env", metavar="VARIABLE", help=f"Holds {FACTORY_USER}'s password; asked for otherwise."
)
@click.option(
    "--switch-password-file", metavar="PATH", help=f"Holds {FACTORY_USER}'s password; nobody else may read it."
)
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: another one in rack.yaml is overwritten."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 600),
    default=of_nodes.PATIENCE,
    show_default=True,
    help="Seconds to wait for a machine.",
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
@click.pass_context
def bootstrap(
    context: click.Context,
    rack: Path,
    account: str | None,
    node_password_env: str | None,
    node_password_file: str | None,
    host_keys: Path | None,
    replace_host_key: bool,
    switch_address: str,
    switch_api_port: int,
    switch_password_env: str | None,
    switch_password_file: str | None,
    replace_fingerprint: bool,
    patience: float,
    dry: bool,
) -> None:
    """Take the machines into the rack as they come from their boxes: nodes and switch, or one kind of them.

    Without a command: all nodes, then the switch, then what to run next. What fails for one machine does not keep the
    others; each step looks first, so run it again. Exit 0 when all are ready (with --dry: when they were read), else 1.
    """
    if context.invoked_subcommand:
        given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"options stand after {context.invoked_subcommand}, not before it")
        return
    node_password = reference(node_password_env, node_password_file, "node-")
    switch_password = reference(switch_password_env, switch_password_file, "switch-")
    snapshot = edit.taken(rack)
    found = load(rack)
    failed = _only_switch(found)
    passwords = Passwords(node_password, of_nodes.typed)
    with of_nodes.contact(found, (), account, passwords, host_keys, replace_host_key, patience) as run:
        of_nodes.carry_out(run, dry=dry)
    warned = False
    for switch in [] if failed else found.switches.values():
        wishes = Wishes(
            address=switch_address,
            api_port=switch_api_port,
            prefix=of_switch.natural_prefix(switch),
            replace=replace_fingerprint,
            patience=patience,
        )
        try:
            outcome = of_switch.carry_out(found, snapshot, switch, wishes, switch_password, dry=dry)
        except (click.ClickException, RackError, SecretError) as fault:
            failed = fault.message if isinstance(fault, click.ClickException) else str(fault)
        else:
            warned = warned or outcome.warned
            click.echo(f"{switch.name}: {'ready' if not dry else 'nothing is missing' if outcome.ready else 'read'}")
    if failed:
        click.echo(failed, err=True)
    if failed or run.failed:
        click.echo("what failed is told above; run it again when that is mended")
        sys.exit(1)
    environment = f"RACK={rack} " if rack != DEFAULT else ""
    click.echo("nothing was written" if dry else f"all machines are ready. Next: {environment}sparkrack plan")
    if warned:
        sys.exit(of_switch.WARNED)


def _only_switch(rack: Rack) -> str:
    """Why the switches cannot be done in one go; empty when they can: all have the factory's address at first."""
    if len(rack.switches) < 2:
        return ""
    return f"{', '.join(rack.switches)}: more than one; connect and name each: sparkrack bootstrap switch NAME"


bootstrap.add_command(of_nodes.bootstrap_nodes)
bootstrap.add_command(of_switch.bootstrap_switch)
