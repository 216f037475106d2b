"""What a node says of the memory role's own files when they are right; prints the lines for memory.node.yaml."""

from __future__ import annotations

from roles.memory import ceiling, gate, guard, protect
from sparkrack.fleet import Rack
from tests.unit.fleet.racks import SWITCH, loaded


def lines(rack: Rack) -> list[str]:
    files = [ceiling.unit(rack), *guard.files(rack), gate.script(rack), *protect.dropins(rack)]
    return [f"{file.shown} {file.path}" for file in files]


if __name__ == "__main__":
    print("".join(f"  {line}\n" for line in lines(loaded(SWITCH))), end="")
