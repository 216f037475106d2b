"""Carrying out a script's steps, as a generator that yields each wait and so needs no task of its own."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from lab.routeros_emulator import durations
from lab.routeros_emulator.dispatch import dispatch
from lab.routeros_emulator.errors import TrapError, no_such_item
from lab.routeros_emulator.menu import EmulatedRow, Values
from lab.routeros_emulator.permissions import held, not_permitted
from lab.routeros_emulator.print_verbs import listing
from lab.routeros_emulator.request import Reply, RequestClient
from lab.routeros_emulator.script.lexer import ScriptError
from lab.routeros_emulator.script.parser import Attempt, Delay, Fail, Find, If, RunStep, Span, Step, Value, read
from lab.routeros_emulator.sentence import parse

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

SCRIPT = "/system/script"
Course = Generator[float, None, None]
#: Scripts that call scripts end here; that RouterOS has some limit is inferred, its number is not known.
_DEPTH = 16


def course(device: EmulatedDevice, client: RequestClient, text: str, depth: int = 0) -> Course:
    """Carry out a script's text. Raises ScriptError at the first command that is refused."""
    if depth > _DEPTH:
        raise ScriptError("scripts call one another too deeply")
    yield from _Runner(device, client, depth).run(read(text, device.menus, device.version))


def script_course(
    device: EmulatedDevice, client: RequestClient, name: str, *, own_permissions: bool, depth: int = 0
) -> Course:
    """Carry out a row of /system/script for a client.

    It runs with the client's policies, or with ``own_permissions`` with the row's. A row that asks for more
    than the client has is refused, unless it has ``dont-require-permissions`` (MikroTik manual, 'Scripting',
    'Script permissions'); that such a row then runs with its own policies is inferred.
    """
    row = device.store.find(SCRIPT, name)
    if row is None:
        raise no_such_item()
    wanted = frozenset(filter(None, row.values["policy"].split(",")))
    free = row.values["dont-require-permissions"] == "true"
    if not free and not wanted <= held(device, client):
        raise not_permitted()
    policies = wanted if free or own_permissions else held(device, client)
    origin = f"{client.owner}/script:{row.values['name']}"
    device.jobs.started(SCRIPT, row.id)
    yield from course(device, replace(client, origin=origin, policies=policies), row.values["source"], depth + 1)


class _Runner:
    def __init__(self, device: EmulatedDevice, client: RequestClient, depth: int) -> None:
        self._device, self._client, self._depth = device, client, depth

    def run(self, steps: tuple[Step, ...]) -> Course:
        for step in steps:
            match step:
                case Delay(seconds):
                    yield seconds
                case Fail(message):
                    raise ScriptError(message)
                case If():
                    yield from self.run(step.body if step.test(self._measure_value(step.what)) else step.otherwise)
                case Attempt():
                    yield from self._run_attempt(step)
                case RunStep():
                    yield from self._run_command(step)

    def _measure_value(self, what: Find | Span) -> float:
        if isinstance(what, Find):
            return len(self._find_ids(what))
        (row,) = listing(self._device, self._device.menus[what.menu])
        try:
            return durations.seconds(row.get(what.field, ""))
        except ValueError:
            raise ScriptError(f"{what.field} of {what.menu} is not a time interval") from None

    def _run_attempt(self, step: Attempt) -> Course:
        if step.otherwise is None:
            yield from self.run(step.body)
            return
        try:
            yield from self.run(step.body)
        except ScriptError:
            yield from self.run(step.otherwise)

    def _run_command(self, step: RunStep) -> Course:
        given = {name: self._evaluate_value(value) for name, value in step.arguments.items()}
        if isinstance(step.arguments.get("numbers"), Find) and given["numbers"] == "":
            return  # nothing found is nothing to do, and no error
        try:
            if (step.menu, step.verb) == (SCRIPT, "run"):
                own = "use-script-permissions" in given
                name = given.get("number", "")
                yield from script_course(self._device, self._client, name, own_permissions=own, depth=self._depth)
                return
            words = [f"{step.menu}/{step.verb}", *(f"={name}={value}" for name, value in given.items())]
            reply = dispatch(self._device, self._client, parse(words))
        except TrapError as trap:
            raise ScriptError(f"{trap.message} ({step.menu}/{step.verb}; line {step.line})") from None
        if not isinstance(reply, Reply):
            raise ScriptError(f"not emulated in a script ({step.menu}/{step.verb}; line {step.line})")

    def _evaluate_value(self, value: Value) -> str:
        if isinstance(value, str):
            return value
        return ",".join(self._find_ids(value))

    def _find_ids(self, find: Find) -> list[str]:
        rows = listing(self._device, self._device.menus[find.menu])
        return [row[".id"] for row in rows if ".id" in row and find.test(row)]


def client_of(device: EmulatedDevice, owner: str, origin: str, policies: frozenset[str]) -> RequestClient:
    """Return a client that runs a script for a user. TrapError when the user is gone or lacks permissions for it."""
    row = device.store.find("/user", owner)
    if row is None or row.values["name"] != owner:
        raise not_permitted()
    client = RequestClient(0, owner, row.values["group"], "", "script", device.clock.stamp(), origin)
    if not policies <= held(device, client):
        raise not_permitted()
    return replace(client, policies=policies)


def invalid(device: EmulatedDevice, row: EmulatedRow) -> Values:
    """Report whether a script's text is invalid, as /system/script prints it."""
    return {"invalid": "false" if _is_valid(device, row.values["source"], device.version) else "true"}


@lru_cache(maxsize=64)
def _is_valid(device: EmulatedDevice, source: str, version: tuple[int, ...]) -> bool:
    """Whether a text can be read; kept, since a text of 20 kB takes 50 ms and is printed again and again."""
    try:
        read(source, device.menus, version)
    except ScriptError:
        return False
    return True
