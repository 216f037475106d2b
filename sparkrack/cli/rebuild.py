"""`sparkrack rebuild`: from factory state to a verified rack, as one command that can be interrupted and resumed
anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from core.model import SecretRef, load
from core.model.selection import SelectionError, select_nodes
from sparkrack.cli.next_step import next_step, print_next
from sparkrack.cli.options import json_option, node_patterns, password_options, patterns, rack_option, switches
from sparkrack.maintenance.rebuild_run import rebuild_hosts
from sparkrack.rebuild.model import RequestError, requested
from sparkrack.rebuild.phase_commands import ForwardedOptions, units_to_start
from sparkrack.rebuild.render import show
from sparkrack.terminal.progress import show_progress
from switch.bootstrap.menus import FACTORY_USER

DEFAULT_WAIT_SECONDS = 600


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=node_patterns)
@click.option(
    "--switch",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    shell_complete=switches,
    help="The switch instead of nodes.",
)
@click.option("--all", "whole", is_flag=True, help="Every node and switch.")
@rack_option
@click.option(
    "--exclude",
    multiple=True,
    metavar="NAME",
    shell_complete=patterns,
    help="Leave out this host, which is absent, or these by a glob or a group (nodes, switches); may be given again.",
)
@click.option(
    "--containers",
    multiple=True,
    metavar="NODE",
    shell_complete=node_patterns,
    help="Allow to end the containers of this node, or these by a glob or the group nodes; may be given again.",
)
@click.option(
    "--stop-units",
    is_flag=True,
    help="Stop the units that run on these nodes first, on all their nodes; start those with state: up at the end.",
)
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier one was interrupted.")
@click.option("--as", "login", metavar="USER", help="As `bootstrap nodes --as`.")
@password_options("node-", "that account's")
@click.option("--host-keys", metavar="FILE", help="As `bootstrap nodes --host-keys`.")
@click.option("--replace-host-key", is_flag=True, help="As `bootstrap nodes --replace-host-key`.")
@password_options("switch-", f"{FACTORY_USER}'s")
@click.option("--switch-address", metavar="ADDRESS", help="As `bootstrap switch --address`.")
@click.option("--replace-fingerprint", is_flag=True, help="As `bootstrap switch --replace-fingerprint`.")
@click.option(
    "--packages",
    type=click.Path(path_type=Path, readable=False),
    metavar="FOLDER",
    help="As `upgrade switch --packages`: upgrade the switch first.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 600),
    help=f"Seconds to wait for the machines; passed on to bootstrap when given.  [default: {DEFAULT_WAIT_SECONDS}]",
)
@json_option
def rebuild(
    names: tuple[str, ...],
    switch: str | None,
    whole: bool,
    rack: Path,
    exclude: tuple[str, ...],
    containers: tuple[str, ...],
    stop_units: bool,
    fresh: bool,
    login: str | None,
    node_password: SecretRef | None,
    host_keys: str | None,
    replace_host_key: bool,
    switch_password: SecretRef | None,
    switch_address: str | None,
    replace_fingerprint: bool,
    packages: Path | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Bring machines from factory state to a verified part of the rack: wait, bootstrap, apply, reboot, start, verify.

    \b
      sparkrack rebuild --all
      sparkrack rebuild spark2 --replace-host-key
      sparkrack rebuild --switch --replace-fingerprint

    Each phase is recorded before it begins; the same command resumes in the phase that was interrupted. A machine is
    restarted only when a reboot is pending. Refuses, before anything, when containers run on a node that would be
    touched, or that is cabled to a switch that would be, unless --containers names it; and when a unit of an inference
    engine runs there, unless --stop-units is given. Before verify, units with state: up are started and proven by a
    completion. Exit 0 when everything is done and verified.
    """
    found = load(rack)
    try:
        request = requested(found, rack, names, switch, whole, exclude)
    except RequestError as fault:
        raise click.UsageError(str(fault)) from None
    request = request.model_copy(update={"units": units_to_start(found, request)})
    if packages and not request.switches:
        raise click.UsageError("--packages is for a switch, and none is rebuilt")
    try:
        containers = select_nodes(found, containers, "--containers") if containers else ()
    except SelectionError as fault:
        raise click.UsageError(str(fault)) from None
    forwarded = ForwardedOptions(
        login=login,
        node_password=node_password,
        host_keys=host_keys,
        replace_host_key=replace_host_key,
        switch_password=switch_password,
        switch_address=switch_address,
        replace_fingerprint=replace_fingerprint,
        packages=str(packages.expanduser().absolute()) if packages else None,
        timeout=timeout,
    )
    wait = DEFAULT_WAIT_SECONDS if timeout is None else timeout
    with show_progress(silent=as_json) as screen:
        report = rebuild_hosts(
            found, request, forwarded, containers, stop_units, screen, timeout=wait, fresh=fresh, as_json=as_json
        )
    show(report, Console(highlight=False, markup=False, soft_wrap=True, stderr=as_json))
    if as_json:
        click.echo(report.model_dump_json(by_alias=True, indent=1))
    if report.again:
        print_next(report.again, "to resume", silent=as_json)
    else:
        next_step(["sparkrack", "status"], rack=Path(report.file), silent=as_json)
    sys.exit(report.code)
