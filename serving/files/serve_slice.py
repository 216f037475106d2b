"""The processes of a served unit on this node, as the kernel's control groups show them, whatever docker answers.

The container of a unit is in a slice of its own, sparkrack.slice/sparkrack-NAME.slice. Standard library only, Python
3.10 or later. serve_agent.py and serve_hang.py import it from their own folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from serve_unit import ServeError, line

CGROUPS = "/sys/fs/cgroup"
"""Where the control groups of version 2 are mounted."""
PARENT = "sparkrack.slice"
SHOWN = 8
"""Processes that a sentence names."""


class UnitSlice:
    """The control group of the container of one unit. `root`: where control groups are mounted."""

    def __init__(self, unit: str, root: str = CGROUPS) -> None:
        self.folder, self._root = f"{root}/{PARENT}/sparkrack-{unit}.slice", root

    def populated(self) -> bool:
        """Return whether a process is in it. A slice that is not there has none, where its parents can be listed.

        Raises ServeError when the kernel does not answer: whether a process is left is then unknown.
        """
        file = f"{self.folder}/cgroup.events"
        for _ in range(2):
            try:
                text = Path(file).read_text(encoding="ascii")
            except OSError as error:
                # ENODEV: it was removed between opening and reading.
                if error.errno not in (errno.ENOENT, errno.ENODEV):
                    raise ServeError(f"{file} cannot be read: {error.strerror}") from None
                if self._is_absent():
                    return False
                continue
            values = dict(row.split(" ", 1) for row in text.splitlines() if " " in row)
            if values.get("populated") in ("0", "1"):
                return values["populated"] == "1"
            raise ServeError(f"{file} does not say whether it has processes: {line(repr(text), 80)}")
        raise ServeError(f"{file} is missing")

    def _is_absent(self) -> bool:
        """Return whether the folder is not there. Raises ServeError when that cannot be determined."""
        place = Path(self._root)
        try:
            if not any(place.iterdir()):
                raise ServeError(f"{place} is empty: no control groups are mounted there")
            for name in (PARENT, Path(self.folder).name):
                if place / name not in place.iterdir():
                    return True
                place /= name
        except OSError as error:
            raise ServeError(f"{place} cannot be listed: {error.strerror}") from None
        return False

    def processes(self) -> list[int]:
        """Return the processes in it and below it."""
        found: list[int] = []
        for folder, _, names in os.walk(self.folder):
            if "cgroup.procs" in names:
                try:
                    found += map(int, Path(folder, "cgroup.procs").read_text(encoding="ascii").split())
                except (OSError, ValueError):
                    continue  # it was removed meanwhile, or has threads of its own kind
        return found

    def describe(self) -> str:
        """Return its processes as words for a sentence: `4112 vllm (D), 4130 python3 (R)`."""
        pids = self.processes()
        more = f" and {len(pids) - SHOWN} more" if len(pids) > SHOWN else ""
        return (
            ", ".join(f"{pid} {_describe_process(pid)}" for pid in pids[:SHOWN]) + more
            or "processes that are not listed"
        )

    def kill(self) -> None:
        """Have the kernel send KILL to all its processes, those that are started meanwhile too. Raises OSError."""
        with Path(f"{self.folder}/cgroup.kill").open("w", encoding="ascii") as file:
            file.write("1")


def running_units(root: str = CGROUPS) -> list[str]:
    """Return the units of which a process runs on this node; one that cannot be read is not known to run."""
    found = []
    for folder in sorted(Path(root, PARENT).glob("sparkrack-*.slice")):
        unit = folder.name.removeprefix("sparkrack-").removesuffix(".slice")
        with contextlib.suppress(ServeError):
            if UnitSlice(unit, root).populated():
                found.append(unit)
    return found


def _describe_process(pid: int) -> str:
    """Return name and state of a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(ended)"
    # The name is in brackets, and may have brackets itself.
    name, _, rest = text.partition("(")[2].rpartition(")")
    return f"{line(name, 20)} ({rest.split()[0]})"
