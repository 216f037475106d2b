"""`sparkrack bootstrap`: take the machines into the rack as they come from their boxes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from core.model import SecretRef, load, rack_path, yaml_editor
from core.model.fields import PLAIN_API_PORT
from sparkrack.bootstrap import nodes_run, switch_run
from sparkrack.bootstrap.nodes_run import BOOTSTRAP
from sparkrack.bootstrap.rack_run import bootstrap_rack
from sparkrack.bootstrap.switch_run import LONGEST_PREFIX
from sparkrack.cli.next_step import next_step, same_again
from sparkrack.cli.options import (
    an_address,
    node_patterns,
    password_options,
    rack_option,
    switch_argument,
    switches,
)
from sparkrack.engine.recorded_run import recorded_run
from sparkrack.node_login.passwords import Passwords
from sparkrack.terminal.progress import show_progress
from switch.bootstrap.context import BootstrapOptions
from switch.bootstrap.menus import FACTORY_ADDRESS, FACTORY_USER

DEFAULT_WAIT_SECONDS = 15.0
WARNED = 2
"""Exit code of a contact that is done with a warning."""

as_option = click.option(
    "--as",
    "account",
    metavar="USER",
    help="The account that the first-boot wizard made.  [default: asked for, or access.user]",
)
host_keys_option = click.option(
    "--host-keys",
    type=click.Path(path_type=Path, readable=False, dir_okay=False),
    help="Fingerprints read off the consoles, NODE SHA256:... a line; or a known_hosts file.",
)
replace_option = click.option(
    "--replace-host-key", is_flag=True, help="The nodes were re-imaged: other pinned host keys may be replaced."
)


@click.group(invoke_without_command=True)
@rack_option
@as_option
@password_options("node-", "that account's")
@host_keys_option
@replace_option
@click.option(
    "--switch-address",
    callback=an_address,
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
    default=DEFAULT_WAIT_SECONDS,
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
    options = BootstrapOptions(
        address=switch_address, api_port=switch_api_port, replace=replace_fingerprint, timeout=timeout
    )
    with recorded_run(found, BOOTSTRAP) as record, show_progress(silent=False) as screen:
        passwords = Passwords(node_password, partial(nodes_run.typed_password, screen))
        with nodes_run.contact(found, (), account, passwords, host_keys, replace_host_key, timeout, screen) as run:
            done = bootstrap_rack(run, snapshot, options, switch_password, record, screen, dry=dry)
    if done.failed_switch:
        click.echo(done.failed_switch, err=True)
    if done.failed:
        click.echo("the failures are listed above; fix them and run it again")
        same_again("when they are fixed")
        sys.exit(1)
    click.echo("nothing was written" if dry else "all machines are ready")
    next_step(["sparkrack", "bootstrap" if dry else "plan"], rack=rack)
    if done.warned:
        sys.exit(WARNED)


@bootstrap.command("nodes")
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=node_patterns)
@rack_option
@as_option
@password_options("", "that account's")
@host_keys_option
@replace_option
@click.option(
    "--timeout",
    type=click.FloatRange(0, 3600),
    default=DEFAULT_WAIT_SECONDS,
    show_default=True,
    help="Seconds to wait for a node.",
)
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_nodes(
    names: tuple[str, ...],
    rack: Path,
    account: str | None,
    password: SecretRef | None,
    host_keys: Path | None,
    replace_host_key: bool,
    timeout: float,
    dry: bool,
) -> None:
    """Bring nodes from their first-boot wizard to where a run can reach them.

    Shows the host keys of nodes that are not known yet and asks whether they are theirs; logs in once with a password
    if the operator's key is not accepted; makes access.user with that key and sudo without a password; names the node;
    gives it host keys and a machine-id of its own if another node has the same. All nodes, or those that are named;
    each for itself. Each step looks first and writes what is missing; run it again after any interruption. It holds
    the lock of the rack if the first node accepts our key already. Exit 0 when all these nodes are ready (with --dry:
    when they were read), else 1.
    """
    found = load(rack)
    with recorded_run(found, BOOTSTRAP) as record, show_progress(silent=False) as screen:
        passwords = Passwords(password, partial(nodes_run.typed_password, screen))
        with nodes_run.contact(found, names, account, passwords, host_keys, replace_host_key, timeout, screen) as run:
            own = None if dry else record.begin(f"bootstrap of {', '.join(run.names)}")
            nodes_run.carry_out(run, screen, own, record)
    if run.failed:
        same_again("when this is fixed")
        sys.exit(1)
    if dry:
        click.echo("nothing was written" if run.missing else "nothing is missing")
    if dry and run.missing:
        next_step(["sparkrack", "bootstrap", "nodes", *names], rack=rack)
    else:
        next_step(["sparkrack", "plan"], rack=rack, limit=names)


@bootstrap.command("switch")
@click.argument("name", required=False, shell_complete=switches)
@rack_option
@click.option(
    "--address", callback=an_address, default=FACTORY_ADDRESS, show_default=True, help="Where the switch answers now."
)
@click.option(
    "--api-port", type=click.IntRange(1, 65535), default=PLAIN_API_PORT, show_default=True, help="Its plain API."
)
@password_options("", f"{FACTORY_USER}'s")
@click.option(
    "--prefix",
    type=click.IntRange(8, LONGEST_PREFIX),
    help="Length of the address it gets.  [default: management's, 24]",
)
@click.option(
    "--admin",
    type=click.Choice(["disable", "password"]),
    default="disable",
    show_default=True,
    help=f"What becomes of {FACTORY_USER}: disabled, or a new password.",
)
@click.option(
    "--admin-file", type=click.Path(path_type=Path, readable=False), help="Where that password is, or is made."
)
@click.option("--keep-address", is_flag=True, help="The old address stays, and the new one need not answer yet.")
@click.option(
    "--replace-fingerprint", is_flag=True, help="The switch was reset: another one in rack.yaml is overwritten."
)
@click.option("--timeout", type=click.FloatRange(0, 600), default=15, show_default=True, help="Seconds to wait for it.")
@click.option("--dry", is_flag=True, help="Only show what is missing.")
def bootstrap_switch(
    name: str | None,
    rack: Path,
    address: str,
    api_port: int,
    password: SecretRef | None,
    prefix: int | None,
    admin: str,
    admin_file: Path | None,
    keep_address: bool,
    replace_fingerprint: bool,
    timeout: float,
    dry: bool,
) -> None:
    """Bring a switch from its box to where a run can reach it: certificate, user, address.

    Connect this machine to its first RJ45 port, and to nothing else, until the fingerprint is in rack.yaml: until
    then the sticker's password goes in the clear. Each step looks first and writes what is missing; run it again
    after any interruption. It holds the lock of the rack if the first node answers already. Exit 0 when the switch
    is ready (with --dry: when it was read), 2 when it is ready with a warning: the switch refuses to disable the user
    admin, which has a new password instead, or its release can be attacked (docs/reference/advisories.md); else 1.
    """
    if (admin == "password") != (admin_file is not None):
        raise click.UsageError("--admin password and --admin-file PATH belong together")
    # Snapshot before the reading: a later write replaces exactly the content that was read, or fails.
    snapshot = yaml_editor.snapshot(rack)
    found = load(rack)
    switch = switch_argument(found, name)
    options = BootstrapOptions(
        address=address,
        api_port=api_port,
        prefix=prefix or switch_run.natural_prefix(switch),
        admin=admin_file.absolute() if admin_file else None,
        keep_address=keep_address,
        replace=replace_fingerprint,
        timeout=timeout,
    )
    with recorded_run(found, BOOTSTRAP) as record, show_progress(silent=False) as screen:
        own = None if dry else record.begin(f"bootstrap of {switch.name}")
        outcome = switch_run.carry_out(found, snapshot, switch, options, password, screen, own, record)
    if dry:
        click.echo(f"{switch.name}: {'nothing is missing' if outcome.ready else 'nothing was written'}")
    else:
        click.echo(f"{switch.name}: ready")
    again = dry and not outcome.ready
    next_step(["sparkrack", *(("bootstrap", "switch", switch.name) if again else ("plan",))], rack=rack)
    if outcome.warned and not dry:
        sys.exit(WARNED)
