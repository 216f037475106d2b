"""A node's answer for the memory role's own files in their desired state; prints the lines for memory.node.yaml."""

from __future__ import annotations

from core.model import Rack
from roles.memory import container_slice, daemon_protection, memory_gate, memory_guard
from tests.unit.model.racks import SWITCH, loaded


def lines(rack: Rack) -> list[str]:
    files = [
        container_slice.unit(rack),
        *memory_guard.files(rack),
        memory_gate.script(rack),
        *daemon_protection.dropins(rack),
    ]
    return [f"{file.state.permissions} {file.state.sha256} {file.path}" for file in files]


if __name__ == "__main__":
    print("".join(f"  {line}\n" for line in lines(loaded(SWITCH))), end="")
