"""Which switch a command is about."""

from __future__ import annotations

import click

from sparkrack.fleet import Rack, Switch


def the_switch(rack: Rack, name: str | None) -> Switch:
    """The switch of that name, or the only one. Raises UsageError."""
    known = ", ".join(rack.switches) or "none"
    if name is None:
        if len(rack.switches) != 1:
            raise click.UsageError(f"say which switch; the rack has {known}")
        return next(iter(rack.switches.values()))
    if name not in rack.switches:
        raise click.UsageError(f"{name} is no switch of the rack; it has {known}")
    return rack.switches[name]
