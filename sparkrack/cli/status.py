"""`sparkrack status`: how the rack does right now, on one screen. Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkrack.cli.loading import loading
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option, rack_option

if TYPE_CHECKING:
    from core.model import Rack
    from sparkrack.status.collect_answers import Answer

_REFUSED = ("Permission denied", "a password is required")
"""What ssh and sudo print on a node that `sparkrack bootstrap nodes` has not set up."""


@click.command()
@rack_option
@limit_option
@exclude_option
@json_option
@quiet_option
def status(rack: Path, limit: tuple[str, ...], exclude: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Show every node and switch in a line: reachable, versions, memory, links, images; and what happened before.

    \b
      sparkrack status
      sparkrack status --quiet || echo look at it
      sparkrack status --json | jq '.nodes[] | {name, kernel}'

    All are asked at the same time, once, and a machine that does not answer within 12 s is shown as unknown. This is
    a glance: `sparkrack drift` compares everything with rack.yaml, `sparkrack verify` checks that it works.
    Exit 0 when all that is shown is as declared, 2 when something is not, 1 when something is unknown.
    """
    with loading():
        from rich.console import Console

        from core.model import load
        from core.model.selection import select
        from core.util.paths import state_folder
        from sparkrack.cli.progress import show_progress
        from sparkrack.status.build import build_status
        from sparkrack.status.collect_answers import collect_answers
        from sparkrack.status.render import WIDTH, show

    found = load(rack)
    machines = select(found, limit, exclude).machines
    made = datetime.now(UTC)
    with show_progress(silent=as_json or quiet) as progress:
        answers = collect_answers(found, machines, progress)
    now = build_status(found, machines, answers, state_folder(found.rack), made)
    if as_json:
        click.echo(now.json_text(), nl=False)
    else:
        width = None if sys.stdout.isatty() else WIDTH
        show(now, Console(highlight=False, markup=False, width=width), quiet=quiet)
    if words := _first_contact(found, answers):
        next_step(["sparkrack", *words], "for the first contact", rack=rack, silent=as_json or quiet)
    else:
        next_step(["sparkrack", "drift"], rack=rack, limit=limit, exclude=exclude, silent=as_json or quiet)
    sys.exit(now.code)


def _first_contact(rack: Rack, answers: Mapping[str, Answer]) -> list[str]:
    """Return the command for the first contact with the hosts that had none yet; empty when there are none. Such a node
    has no pinned host key, or refuses our login; such a switch has no pinned certificate.
    """
    from core.ssh.host_keys import HostKeyError, pinned
    from sparkrack.status.collect_answers import NoAnswer
    from switch.bootstrap.menus import PLACEHOLDER

    def known(name: str) -> bool:
        try:
            return bool(pinned(rack.access.known_hosts, str(rack.nodes[name].address), rack.access.port))
        except HostKeyError:
            return True  # `bootstrap` could not pin one, either

    silent = {name: answer.why for name, answer in answers.items() if isinstance(answer, NoAnswer)}
    nodes = [
        name
        for name in rack.nodes
        if name in silent and (not known(name) or any(text in silent[name] for text in _REFUSED))
    ]
    unpinned = [
        name for name, one in rack.switches.items() if name in silent and one.tls and one.tls.sha256 == PLACEHOLDER
    ]
    if nodes and unpinned:
        return ["bootstrap"]
    if nodes:
        return ["bootstrap", "nodes", *(nodes if len(nodes) < len(rack.nodes) else ())]
    return ["bootstrap", "switch", unpinned[0]] if unpinned else []
