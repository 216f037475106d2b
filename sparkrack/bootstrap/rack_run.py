"""Sequence of `sparkrack bootstrap`: the first contact with all nodes, then with the switch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.model import ConfigError, Rack, SecretError, SecretRef, yaml_editor
from core.util.command_error import CommandError
from core.util.screen import Screen
from sparkrack.bootstrap import nodes_run, switch_run
from sparkrack.bootstrap.runner import NodesBootstrap
from sparkrack.engine.recorded_run import RecordedRun
from switch.bootstrap.context import BootstrapOptions


@dataclass(frozen=True)
class RackBootstrap:
    """Result of a first contact with a rack. `failed_switch`: why a switch is not ready. `failed`: whether any machine
    is not. `warned`: see `BootstrapOutcome`."""

    failed_switch: str
    failed: bool
    warned: bool


def bootstrap_rack(
    run: NodesBootstrap,
    snapshot: yaml_editor.FileSnapshot,
    options: BootstrapOptions,
    password: SecretRef | None,
    record: RecordedRun,
    screen: Screen,
    *,
    dry: bool,
) -> RackBootstrap:
    """Take all nodes of a run into the rack, then the switch. What fails for one machine does not keep the others.
    `options`: of each switch, without its prefix. `password`: reference to that of the factory's user.
    """
    rack = run.context.rack
    failed, warned = _refused_switches(rack), False
    switches = () if failed else tuple(rack.switches.values())
    hosts = (*run.names, *(switch.name for switch in switches))
    own = None if dry else record.begin(f"bootstrap of {', '.join(hosts)}")
    nodes_run.carry_out(run, screen, own, record)
    for switch in switches:
        its = replace(options, prefix=switch_run.natural_prefix(switch))
        try:
            outcome = switch_run.carry_out(rack, snapshot, switch, its, password, screen, own, record)
        except (CommandError, ConfigError, SecretError) as fault:
            failed = str(fault)
        else:
            warned = warned or outcome.warned
            result = "ready" if not dry else "nothing is missing" if outcome.ready else "read"
            screen.say(f"{switch.name}: {result}")
    return RackBootstrap(failed, bool(failed or run.failed), warned)


def _refused_switches(rack: Rack) -> str:
    """Return why the switches cannot be handled in one run; empty when they can: all have the factory's address at
    first.
    """
    if len(rack.switches) < 2:
        return ""
    return f"{', '.join(rack.switches)}: more than one; connect and name each: sparkrack bootstrap switch NAME"
