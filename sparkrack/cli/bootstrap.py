"""`sparkrack bootstrap`: take the machines into the rack as they come from their boxes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from core.model import ConfigError, Rack, SecretError, SecretRef, load, rack_path, yaml_editor
from core.model.fields import PLAIN_API_PORT
from core.util.command_error import CommandError
from sparkrack.bootstrap.passwords import Passwords
from sparkrack.cli import bootstrap_nodes as of_nodes
from sparkrack.cli import bootstrap_switch as of_switch
from sparkrack.cli.next_step import next_step, same_again
from sparkrack.cli.options import password_options, rack_option
from sparkrack.cli.progress import show_progress
from sparkrack.engine.recorded_run import recorded_run
from switch.bootstrap.context import BootstrapOptions
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER


@click.group(invoke_without_command=True)
@rack_option
@of_nodes.as_option
@password_options("node-", "that account's")
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
    "--switch-api-port", type=click.IntRange(1, 65535), default=PLAIN_API_PORT, show_default=True, help="Its plain API."
)
@password_options("switch-", f"{FACTORY_USER}'s")
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: another one in rack.yaml is overwritten."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 600),
    default=of_nodes.DEFAULT_WAIT_SECONDS,
    show_default=True,
    help="Seconds to wait for a machine.",
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
@click.pass_context
def bootstrap(
    context: click.Context,
    rack: Path | None,
    account: str | None,
    node_password: SecretRef | None,
    host_keys: Path | None,
    replace_host_key: bool,
    switch_address: str,
    switch_api_port: int,
    switch_password: SecretRef | None,
    replace_fingerprint: bool,
    timeout: float,
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
    rack = rack or rack_path()
    snapshot = yaml_editor.snapshot(rack)
    found = load(rack)
    failed = _only_switch(found)
    warned = False
    with recorded_run(found, of_nodes.BOOTSTRAP) as record, show_progress(silent=False) as screen:
        passwords = Passwords(node_password, partial(of_nodes.typed, screen))
        with of_nodes.contact(found, (), account, passwords, host_keys, replace_host_key, timeout, screen) as run:
            hosts = (*run.names, *(() if failed else found.switches))
            own = None if dry else record.begin(f"bootstrap of {', '.join(hosts)}")
            of_nodes.carry_out(run, screen, own)
            for name, why in run.failed.items():
                record.fail(name, why)
        for switch in [] if failed else found.switches.values():
            options = BootstrapOptions(
                address=switch_address,
                api_port=switch_api_port,
                prefix=of_switch.natural_prefix(switch),
                replace=replace_fingerprint,
                timeout=timeout,
            )
            try:
                outcome = of_switch.carry_out(found, snapshot, switch, options, switch_password, screen, own)
            except (CommandError, ConfigError, SecretError) as fault:
                failed = str(fault)
                record.fail(switch.name, failed)
            else:
                warned = warned or outcome.warned
                result = "ready" if not dry else "nothing is missing" if outcome.ready else "read"
                screen.say(f"{switch.name}: {result}")
    if failed:
        click.echo(failed, err=True)
    if failed or run.failed:
        click.echo("the failures are listed above; fix them and run it again")
        same_again("when they are fixed")
        sys.exit(1)
    click.echo("nothing was written" if dry else "all machines are ready")
    next_step(["sparkrack", "bootstrap" if dry else "plan"], rack=rack)
    if warned:
        sys.exit(of_switch.WARNED)


def _only_switch(rack: Rack) -> str:
    """Return why the switches cannot be handled in one run; empty when they can: all have the factory's address at
    first.
    """
    if len(rack.switches) < 2:
        return ""
    return f"{', '.join(rack.switches)}: more than one; connect and name each: sparkrack bootstrap switch NAME"


bootstrap.add_command(of_nodes.bootstrap_nodes)
bootstrap.add_command(of_switch.bootstrap_switch)
