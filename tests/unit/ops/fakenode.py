"""A fake node for pyinfra: it gives configured answers to the probe, and records every other command."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

from pyinfra.api import arguments, connectors
from pyinfra.api.command import StringCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.deploy import add_deploy
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from core.ops import host_facts
from core.ops.shell import RootScript
from tests.unit.probe_output import encode_answers

MODES = ("dry", "asked", "yes")
"""A dry run; one that shows its plan and then executes it; one that executes without looking first (-y)."""

# pyinfra asks each installed package for its connectors, three times for every inventory (15 ms of CPU time).
vars(connectors)["entry_points"] = cache(vars(connectors)["entry_points"])
# And for each operation it evaluates the types of its own arguments again (3 ms).
vars(arguments)["all_global_arguments"] = cache(arguments.all_global_arguments)

_clock = count(1)


@dataclass
class Answers:
    """Answers of one node, and the received commands. Values of `node`: text or bytes, None for missing, and {exit: n},
    {garbled: text} or {silent: true} for unknown.
    """

    node: Mapping[str, Any]
    probe_fails: str | None = None
    probe_raises: Exception | None = None
    cut: int | None = None
    fails: str | None = None
    """The first command with this text in it fails."""
    refuses: bool = False
    """Refuse a second connection."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Text and decoded standard input of each command but the probe."""
    probes: int = 0
    asked_at: int = 0
    """The place of its latest probe among those of all nodes: pyinfra takes hosts in no particular order."""
    connections: int = 0

    def __copy__(self) -> Answers:
        """pyinfra hands out copies of host data; what is noted must be noted here."""
        return self


@dataclass
class Ended:
    """Result of a run: the failed hosts, and the output."""

    failed: list[str]
    reported: list[str]
    log: str
    changing: int


class Node(FakeConnector):
    """The connector of such a node."""

    def connect(self) -> None:
        answers = self.answers
        answers.connections += 1
        if answers.refuses and answers.connections > 1:
            raise ConnectError("Connection refused")

    @property
    def answers(self) -> Answers:
        found = self.host.data.answers
        assert isinstance(found, Answers)
        return found

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        text, answers = command.get_raw_value(), self.answers
        assert arguments.get("_sudo"), f"not as root: {text}"
        if is_probe(text):
            answers.probes += 1
            answers.asked_at = next(_clock)
            if answers.probe_raises:
                raise answers.probe_raises
            if answers.probe_fails is not None:
                return False, _make_output("stderr", [answers.probe_fails])
            return True, _make_output("stdout", answer(answers.node)[: answers.cut])
        for part in list_scripts(command):
            text, stdin = part.get_raw_value(), str(part.connector_arguments.get("_stdin") or "")
            answers.sent.append((text, base64.b64decode(stdin).decode("utf-8", "backslashreplace")))
            if answers.fails and answers.fails in text:
                answers.fails = None
                return False, _make_output("stderr", ["it failed"])
        return True, CommandOutput([])


def list_scripts(command: StringCommand) -> Sequence[StringCommand]:
    """Return the scripts of which a command was joined, else the command: a fake node runs them one by one, and the
    first that fails ends them.
    """
    return command.parts or (command,) if isinstance(command, RootScript) else (command,)


def is_probe(text: str) -> bool:
    """Return whether a command is the probe, whole or without the constant facts."""
    return text == host_facts.READ


def _make_output(buffer: str, lines: list[str]) -> CommandOutput:
    return CommandOutput([OutputLine(buffer, line) for line in lines])


def answer(node: Mapping[str, Any]) -> list[str]:
    """Return the output of the probe's script on such a node."""
    # Several roles may ask the same question, which the script has once.
    asked = list(dict.fromkeys(key for one in host_facts._registered.values() for key in (*one.files, *one.commands)))
    assert set(node) == set(asked), set(node) ^ set(asked)
    answers = [found for key in asked if (found := encode_answer(key, node[key]))]
    return encode_answers(answers).splitlines()


def encode_answer(key: str, value: Any) -> tuple[str, bytes, object] | None:
    """Return name, content and status of an answer; None where the node is silent."""
    match value:
        case {"exit": code}:
            return key, b"", code
        case {"garbled": text}:
            return key, b"", text
        case {"silent": True}:
            return None
        case None:
            return key, b"", "absent"
        case bytes():
            return key, value, 0
        case str():
            return key, value.encode(), 0
    raise AssertionError(value)


class _Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(hosts: Mapping[str, dict[str, Any]], deploy: Callable[[], None], mode: str, diff: bool = False) -> Ended:
    """Run a deploy on hosts, given by name with their data (`answers` among it)."""
    inventory = Inventory(([(f"@fake/{name}", data) for name, data in hosts.items()], {}))  # type: ignore[no-untyped-call]
    for host in inventory:
        host.connector_cls = Node
    config = Config(DIFF=diff)  # type: ignore[no-untyped-call]
    state = State(inventory, config, check_for_changes=mode != "yes")
    # pyinfra keeps them in a set, whose order depends on where its objects happen to lie in memory.
    inventory.get_active_hosts = lambda: [host for host in inventory if host in state.active_hosts]  # type: ignore[method-assign]
    reported, logger = _Said(), logging.getLogger("pyinfra")
    level = logger.level
    logger.addHandler(reported)
    logger.setLevel(logging.INFO)
    try:
        connect_all(state)
        add_deploy(state, deploy)
        changing = sum(state.meta[host].ops_change for host in inventory)
        if mode != "dry" and state.active_hosts:
            run_ops(state)
    except PyinfraError as error:
        reported.lines.append(str(error))
    finally:
        logger.removeHandler(reported)
        logger.setLevel(level)
    failed = sorted(host.name.removeprefix("@fake/") for host in state.failed_hosts)
    return Ended(failed, reported.lines, "\n".join(reported.lines), changing)
