"""`sparkrack rebuild`: from bare metal to a proven rack, as one command that can be cut off anywhere and run again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparkrack.cli.machines import machines, nodes, switches
from sparkrack.cli.options import json_option
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.rebuilding import rebuilt
from sparkrack.fleet import load
from sparkrack.rebuild.model import RequestError, requested
from sparkrack.rebuild.service import CONTAINERS, asked, refusals
from sparkrack.rebuild.steps import Passing, behind

PATIENCE = 600


@click.command()
@click.argument("names", nargs=-1, metavar="[NODE]...", shell_complete=nodes)
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
    "--exclude", multiple=True, metavar="NAME", shell_complete=machines, help="Is not there now; may be given again."
)
@click.option(
    "--containers",
    multiple=True,
    metavar="NODE",
    shell_complete=nodes,
    help="Its containers may end; may be given again.",
)
@click.option("--fresh", is_flag=True, help="Begin anew, also if an earlier one was cut off.")
@click.option("--as", "login", metavar="USER", help="As `bootstrap nodes --as`.")
@click.option("--node-password-env", metavar="VARIABLE", help="As `bootstrap nodes --password-env`.")
@click.option("--node-password-file", metavar="PATH", help="As `bootstrap nodes --password-file`.")
@click.option("--host-keys", metavar="FILE", help="As `bootstrap nodes --host-keys`.")
@click.option("--replace-host-key", is_flag=True, help="As `bootstrap nodes --replace-host-key`.")
@click.option("--switch-password-env", metavar="VARIABLE", help="As `bootstrap switch --password-env`.")
@click.option("--switch-password-file", metavar="PATH", help="As `bootstrap switch --password-file`.")
@click.option("--switch-address", metavar="ADDRESS", help="As `bootstrap switch --address`.")
@click.option("--replace-fingerprint", is_flag=True, help="As `bootstrap switch --replace-fingerprint`.")
@click.option(
    "--patience",
    type=click.FloatRange(0, 600),
    help=f"Seconds to wait for the machines; passed on to bootstrap when given.  [default: {PATIENCE}]",
)
@json_option
def rebuild(
    names: tuple[str, ...],
    switch: str | None,
    whole: bool,
    rack: Path,
    exclude: tuple[str, ...],
    containers: tuple[str, ...],
    fresh: bool,
    login: str | None,
    node_password_env: str | None,
    node_password_file: str | None,
    host_keys: str | None,
    replace_host_key: bool,
    switch_password_env: str | None,
    switch_password_file: str | None,
    switch_address: str | None,
    replace_fingerprint: bool,
    patience: float | None,
    as_json: bool,
) -> None:
    """Bring machines from bare metal to a proven part of the rack: wait, bootstrap, apply, reboot, verify.

    \b
      sparkrack rebuild --all
      sparkrack rebuild spark2 --replace-host-key
      sparkrack rebuild --switch --replace-fingerprint

    Each phase is noted before it begins; the same command goes on in the phase that was cut off. A machine is
    restarted only if it asks for it. Refuses, before anything, when containers run on a node that would be touched, or
    that hangs on the switch that would be, unless --containers names it. Exit 0 when everything is done and proven.
    """
    found = load(rack)
    for one, other in (("node_password_env", "node_password_file"), ("switch_password_env", "switch_password_file")):
        given = click.get_current_context().params
        if given[one] is not None and given[other] is not None:
            raise click.UsageError(f"--{one} and --{other} exclude one another".replace("_", "-"))
    try:
        request = requested(found, rack, names, switch, whole, exclude)
    except RequestError as fault:
        raise click.UsageError(str(fault)) from None
    for name in containers:
        if name not in found.nodes:
            raise click.UsageError(f"--containers {name}: not a node; there are {', '.join(found.nodes)}")
    passing = Passing(
        login=login,
        node_env=node_password_env,
        node_file=node_password_file,
        host_keys=host_keys,
        replace_host_key=replace_host_key,
        switch_env=switch_password_env,
        switch_file=switch_password_file,
        switch_address=switch_address,
        replace_fingerprint=replace_fingerprint,
        patience=patience,
    )
    wait = PATIENCE if patience is None else patience
    standing = asked(found, behind(found, request), CONTAINERS, wait)
    if why := refusals(standing, request.nodes, containers):
        raise click.ClickException("\n".join((*why, "nothing was begun")))
    sys.exit(
        rebuilt(
            request,
            passing,
            frozenset(containers),
            standing,
            patience=wait,
            fresh=fresh,
            as_json=as_json,
        )
    )
