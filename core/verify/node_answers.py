"""What a command of a node prints, for the checks: one that fails fails the check, with its reason."""

from __future__ import annotations

from core.model import Node
from core.ssh.client import Machine


def output(node: Node, machine: Machine, command: str) -> str:
    """Return the output of a command on the node."""
    done = machine.run(f"LC_ALL=C {command}")
    if done.rc != 0:
        why = (done.stderr or done.stdout).strip() or f"exit {done.rc}"
        raise AssertionError(f"{node.name}: {command}: {why}")
    return str(done.stdout)


def unit_properties(node: Node, machine: Machine, unit: str, *properties: str) -> dict[str, str]:
    """Return systemd's properties of a unit; of systemd itself for an empty name."""
    found = output(node, machine, f"systemctl show --property={','.join(properties)} {unit}".rstrip())
    return dict(line.partition("=")[::2] for line in found.splitlines())


def unit_faults(node: Node, machine: Machine, unit: str) -> list[str]:
    """Return why a unit does not run now and at each boot."""
    state = unit_properties(node, machine, unit, "ActiveState", "UnitFileState")
    return [
        f"{unit} is {state.get(key) or 'unknown'}, wanted {wanted}"
        for key, wanted in (("ActiveState", "active"), ("UnitFileState", "enabled"))
        if state.get(key) != wanted
    ]
