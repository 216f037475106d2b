"""A node in a folder, and what a check of verify reports about it."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from core.model import Rack
from core.probes.protocol import UnknownError
from core.verify.reporter import FAULT, UNKNOWN, CheckReporter, properties_named
from tests.unit.ops.shells import run

Check = Callable[..., None]


class FolderShell(BaseBackend):  # type: ignore[misc] # testinfra is not checked
    """A backend of testinfra that runs each command on the node whose root is a folder, which no output shows."""

    NAME = "folder-shell"

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.root = root

    def run(self, command: str, *args: str, **options: Any) -> CommandResult:  # noqa: ARG002 - testinfra's own
        done = run(self.quote(command, *args), self.root)
        # The place of a stand-in for a tool is asked for, and used.
        own = re.compile(re.escape(f"{self.root}/") + "(?!bin/)")
        stdout, stderr = (own.sub("/", text) for text in (done.stdout, done.stderr))
        return self.result(done.returncode, command.encode(), stdout, stderr)


class Machine(Host):  # type: ignore[misc]
    """testinfra's host, as verify has it, for such a node."""

    def __init__(self, root: Path) -> None:
        super().__init__(FolderShell(root))
        self.backend.set_host(self)


def reported(check: Check, root: Path, rack: Rack, **values: object) -> list[str]:
    """What a check reports about the rack's first node, in this folder: nothing when it passes, "skipped: " and why, or
    each fault. `values`: other arguments of the check by name.
    """
    properties: list[tuple[str, object]] = []
    known = {
        "rack": rack,
        "node": next(iter(rack.nodes.values())),
        "machine": Machine(root),
        "excluded": frozenset[str](),
        "report": CheckReporter(properties),
        **values,
    }
    try:
        check(**{name: known[name] for name in inspect.signature(check).parameters})
    except pytest.skip.Exception as error:
        return [f"skipped: {error}"]
    except (AssertionError, UnknownError) as error:
        faults = [*properties_named(properties, FAULT), *properties_named(properties, UNKNOWN)]
        return faults or str(error).splitlines()[:1]
    return []


@dataclass
class CheckOutcomes:
    """The first line of each check that fails, and the reason of each that is skipped."""

    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def run(self, check: Check, *arguments: object) -> None:
        try:
            check(*arguments)
        except pytest.skip.Exception as error:
            self.skipped.append(str(error))
        except (AssertionError, pytest.fail.Exception) as error:
            self.failed.append(str(error).splitlines()[0])


def checks(module: ModuleType) -> list[Any]:
    """Each check of a verify module with the values of its marks, as a case of pytest: `(check, values)`."""
    found = []
    for name, check in vars(module).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(check, "pytestmark", []) if mark.name == "parametrize"]
        for chosen in itertools.product(*(mark.args[1] for mark in marks)):
            values = {mark.args[0]: value for mark, value in zip(marks, chosen, strict=True)}
            about = [str(getattr(value, "unit", value)) for value in chosen]
            found.append(pytest.param(check, values, id="-".join([name, *about])))
    return found


def function_of(fixture: Any) -> Callable[..., Any]:
    """The function below a fixture of a verify module."""
    return cast(Callable[..., Any], getattr(fixture, "__wrapped__", fixture))
