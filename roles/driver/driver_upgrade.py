"""The walk by which one node gets another driver: what it asks and does there, as shell text. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from core.model import CONTAINER_SLICE
from roles.driver.desired import NodePackage, hold_all

RUNNING = (
    f"e=/sys/fs/cgroup/{CONTAINER_SLICE}/cgroup.events; "
    "if [ -n \"$(find /sys/fs/cgroup -type d -name 'docker-*.scope')\" ] || "
    "{ [ -e \"$e\" ] && grep -qx 'populated 1' \"$e\"; }; then docker ps --format '{{.Names}}' || true; echo; fi"
)
"""Prints the names of the containers, and an empty line, if any runs: their libraries are the driver's."""


def candidates(name: str) -> str:
    """Prints the versions of a package that the repositories have, the newest first."""
    return f"apt-cache madison -- {shlex.quote(name)} | cut -d '|' -f 2 | tr -d ' '"


def perform(wait: str, install: str, unhold: Iterable[str]) -> str:
    """Unhold, install, hold again, whatever becomes of the middle. `wait` and `install`: shell texts of their own."""
    names = shlex.join(unhold)
    return (
        f"set -eu\n{wait}\nagain() {{ {hold_all()}; }}\ntrap again EXIT\ntrap 'exit 1' HUP INT TERM PIPE\n"
        f"{f'apt-mark unhold {names} > /dev/null' if names else ':'}\nset +e\n(\nset -eu\n{install}\n)\nexit $?\n"
    )


def moved(before: Iterable[NodePackage], after: Iterable[NodePackage]) -> list[str]:
    """Return the changes, one line each."""
    old = {one.name: one.version for one in before if one.there}
    return [
        f"{one.name}: {old.get(one.name, 'absent')} -> {one.version}"
        for one in after
        if one.there and old.get(one.name) != one.version
    ]
