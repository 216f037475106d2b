"""Has `sparkrack serve use` change the unit of a slot under the load of clients, killed at each of its steps:

    python -m tests.serving.use_kills --times 10 --docs    # renews the table of docs/evidence/serve-use.md, too
    python -m tests.serving.use_kills --times 0 --docs     # the table alone, from what was recorded

A third unit is up on the same nodes meanwhile, and has a client of its own, each of whose requests it must answer.

Coordinators, agents and gates are real, on nodes that are network namespaces (root). After each kill what
`serve status` says is kept, and what it names is run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest

from tests.generated import REPOSITORY, check
from tests.serving.killed_use import KILLED_USE

PAGE, RECORD = "docs/evidence/serve-use.md", REPOSITORY / "docs/bench/serve-use-kills.json"
SCHEMA = "sparkrack.serve-use-kills/1"
COORDINATOR, ABSENT = "coordinator of {new} killed, {new} is starting", "nothing killed, {new} does not come"
STEPS = (
    "before down of {old}",
    "after down of {old}",
    "{old} is down",
    "before up of {new}",
    "after up of {new}",
    "{new} is starting",
    "{new} is ready",
    "before down in rack.yaml",
    "after down in rack.yaml",
    "after up in rack.yaml",
    ABSENT,
    COORDINATOR,
)
"""At which the program of the operator is killed, but for the last two."""
UP = ("ready", "busy")
STILL = (*UP, "down", "held")
CLIENT = """\
import json, sys, threading, time
import requests
url, key, certificate, out, *models = sys.argv[1:]
headers = {"Authorization": "Bearer " + open(key).read().strip()}
lock = threading.Lock()
def ask(model):
    body = {"model": model, "messages": [{"role": "user", "content": "2+2="}], "max_tokens": 8}
    while True:
        row = {"asked": model, "at": time.time()}
        try:
            answer = requests.post(url, json=body, headers=headers, timeout=(10, 60), verify=certificate or True)
            row["status"], content = answer.status_code, answer.json()
            if answer.status_code == 200:
                row["from"] = content["system_fingerprint"]
            else:
                error = content["error"]
                row["code"] = error["code"] if isinstance(error, dict) else error
                row["retry"] = answer.headers.get("Retry-After")
        except Exception as fault:
            row["fault"] = f"{type(fault).__name__}: {fault}"[:300]
        row["until"] = time.time()
        with lock, open(out, "a") as file:
            file.write(json.dumps(row) + "\\n")
        time.sleep(0.2)
for model in models:
    threading.Thread(target=ask, args=(model,), daemon=True).start()
time.sleep(7200)
"""
"""Arguments: URL, file of the key, that of the certificate or nothing, file for the answers, and models. Asks for each
model in a thread, until it is ended, and writes a line for each request."""
NOT_LISTENING = "Connection refused"

Round = dict[str, Any]
"""What one change had: see docs/evidence/serve-use.md."""


class Slot(Protocol):
    """A rack with two units of one slot."""

    file: Path
    names: tuple[str, str]

    def run_verb(self, *words: str) -> tuple[int, str]:
        """Run a verb of the operator; return its exit code and what it printed."""

    def program(self, *words: str) -> subprocess.Popen[str]:
        """Start a Python program of the operator, whose output is read."""

    def client(self, out: Path) -> subprocess.Popen[bytes]:
        """Start CLIENT for the models of both units."""

    def client_beside(self, out: Path) -> subprocess.Popen[bytes]:
        """Start CLIENT for the model of the unit beside the slot."""

    def processes_beside(self) -> list[list[int]]:
        """Return the processes of the unit beside the slot, by node."""

    def ranks(self, unit: str) -> int:
        """Return on how many nodes a rank of a unit runs."""

    def kill_coordinator(self, unit: str) -> None:
        """Kill the coordinator of a unit once it is starting; systemd starts it again."""

    def hinder(self, unit: str, hindered: bool) -> None:
        """Make a gate of a unit fail, or pass again."""


class Load:
    """The clients, and what they got."""

    def __init__(self, out: Path, start: Callable[[Path], subprocess.Popen[bytes]]) -> None:
        self.out = out
        self.out.write_text("")
        self.process = start(self.out)

    def rows(self, begun: float = 0.0) -> list[dict[str, Any]]:
        """The requests that began after a time, those of both clients, by their beginning."""
        lines = self.out.read_text().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return sorted((row for row in rows if row["at"] >= begun), key=lambda row: float(row["at"]))

    def answered(self, unit: str, since: float) -> bool:
        return any(row.get("from") == f"/models/{unit}" for row in self.rows(since))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def client_load(slot: Slot, beside: bool = False) -> Iterator[Load]:
    """The clients of a slot, or the one of the unit beside it; they have had an answer of the unit that is up."""
    start, name = (slot.client_beside, "beside") if beside else (slot.client, "clients")
    found = Load(slot.file.with_name(f"{name}.ndjson"), start)
    try:
        wait("a client has an answer", lambda: any(row.get("from") for row in found.rows()) or None)
        yield found
    finally:
        found.end()


def wait(what: str, look: Any, seconds: float = 600.0) -> Any:
    """Return the first result that is not None."""
    until = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.3)
    return found


def status(slot: Slot) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """Return the states of both units, those that rack.yaml has, and what `serve status` says of the slot."""
    code, text = slot.run_verb("serve", "status", "--json")
    assert text.startswith("{"), f"exit {code}: {text}"
    found = json.loads(text)
    units = [one for one in found["units"] if one["unit"] in slot.names]
    (said,) = found["slots"]
    states, declared = ({one["unit"]: one[key] for one in units} for key in ("state", "desired_state"))
    return states, declared, said


def use(slot: Slot, clients: Load, step: str) -> Round:
    """Have `serve use` change the slot, killed at a step, then run what `serve status` names.

    Raises AssertionError where that does not end with one unit up, or a client has had what none may have.
    """
    declared = status(slot)[1]
    (old,) = (name for name in slot.names if declared[name] == "up")
    (new,) = (name for name in slot.names if name != old)
    begun = time.time()
    code = _run_disturbed(slot, step, old, new)

    def still() -> Any:
        found = status(slot)
        return found if all(found[0][name] in STILL for name in slot.names) else None

    states, declared, said = wait("both units stand still", still)
    up = [name for name in slot.names if states[name] in UP]
    wanted = said["next"] or next(name for name in slot.names if declared[name] == "up")
    assert len(up) < 2, states
    assert bool(said["reason"]) == (up != [wanted] or declared[wanted] != "up"), (states, declared, said)
    assert not said["reason"] or f"`sparkrack serve use {wanted}`" in said["reason"], said
    _continue_use(slot, wanted)
    after, declared, left = status(slot)
    assert [name for name in slot.names if after[name] in UP] == [wanted], after
    assert (left["reason"], declared) == ("", {name: "up" if name == wanted else "down" for name in slot.names})
    assert {name: slot.ranks(name) for name in slot.names} == {name: 2 * (name == wanted) for name in slot.names}
    since = time.time()
    wait("a client has an answer of the unit", lambda: clients.answered(wanted, since) or None)
    return {
        "made": datetime.fromtimestamp(begun).astimezone().isoformat(timespec="seconds"),
        "step": step.format(old="OLD", new="NEW"),
        "old": old,
        "new": new,
        "exit": code,
        "states": states,
        "reason": said["reason"],
        "named": said["next"],
        "up": wanted,
        "load": round(os.getloadavg()[0], 1),
        **measured(clients.rows(begun)),
    }


def _run_disturbed(slot: Slot, step: str, old: str, new: str) -> int:
    """Run `serve use` for the new unit with what happens at a step; return its exit code."""
    rack = ["--rack", str(slot.file)]
    if step not in (COORDINATOR, ABSENT):
        words = ("-c", KILLED_USE, step.format(old=old, new=new), new, *rack)
        output, _ = (killed := slot.program(*words)).communicate(timeout=600)
        if _end_named_lock(slot, output):  # the round before was killed with nothing left to do
            output, _ = (killed := slot.program(*words)).communicate(timeout=600)
        assert killed.returncode in (-9, 137), f"{step} was not reached: {output}"
        return killed.returncode
    if step == ABSENT:
        slot.hinder(new, True)
        code, text = slot.run_verb("serve", "use", new, "-y")
        if _end_named_lock(slot, text):
            code, text = slot.run_verb("serve", "use", new, "-y")
        slot.hinder(new, False)
        assert (code, f"{old} serves again" in text) == (1, True), text
        return code
    verb = "from sparkrack.cli.main import sparkrack; sparkrack()"
    running = slot.program("-c", verb, "serve", "use", new, "-y", *rack)
    slot.kill_coordinator(new)
    running.communicate(timeout=600)
    return running.returncode


def _continue_use(slot: Slot, unit: str) -> None:
    """Run `serve use` as `serve status` names it, and end the lock of the killed run as the refusal says."""
    code, text = slot.run_verb("serve", "use", unit, "-y")
    if _end_named_lock(slot, text):
        code, text = slot.run_verb("serve", "use", unit, "-y")
    assert code == 0, text


def _end_named_lock(slot: Slot, text: str) -> bool:
    """End the lock that a refusal names; return whether it names one."""
    found = re.search(r"sparkrack unlock (\S+)", text)
    if found:
        code, text = slot.run_verb("unlock", found[1])
        assert code == 0, text
    return bool(found)


def measured(rows: Sequence[dict[str, Any]]) -> Round:
    """What the clients had: requests, answers, refusals by code, faults, and the longest time without an answer.

    Raises AssertionError for an answer of another model, for a 503 without a time, and where both units have answered
    in turn.
    """
    answers = [row for row in rows if "from" in row]
    wrong = [row for row in answers if row["from"] != f"/models/{row['asked']}"]
    assert not wrong, wrong
    sources = [row["from"] for row in answers]
    changes = sum(one != later for one, later in pairwise(sources))
    assert changes <= 2, f"both units have answered in turn: {sources}"  # there, and back
    without = [row for row in rows if row.get("status") == 503 and not row["retry"]]
    assert not without, without
    refused = Counter(f"{row['status']} {row['code']}" for row in rows if "code" in row)
    faults = [row["fault"] for row in rows if "fault" in row]
    refused["not listening"] = sum(NOT_LISTENING in fault for fault in faults)
    times = [row["until"] for row in answers]
    return {
        "requests": len(rows),
        "answers": len(answers),
        "refused": {code: count for code, count in sorted(refused.items()) if count},
        "faults": [fault for fault in faults if NOT_LISTENING not in fault],
        "away": round(max((later - one for one, later in pairwise(times)), default=0.0), 1),
    }


def use_beside(slot: Slot, clients: Load, beside: Load, step: str) -> Round:
    """Change the slot as `use` does it; the unit beside it has answered each request, with the same processes."""
    begun, before = time.time(), slot.processes_beside()
    assert all(before), before
    found = use(slot, clients, step)
    assert slot.processes_beside() == before, "the unit beside the slot was started again"
    return found | {"beside": undisturbed(beside.rows(begun))}


def undisturbed(rows: Sequence[dict[str, Any]]) -> Round:
    """The requests to the unit beside the slot, and the longest time without an answer.

    Raises AssertionError where one of them has no answer of that unit.
    """
    wrong = [row for row in rows if row.get("from") != f"/models/{row['asked']}"]
    assert rows, "nothing was asked"
    assert not wrong, wrong
    return {key: value for key, value in measured(rows).items() if key in ("requests", "away")}


def table(rounds: Sequence[Round]) -> str:
    """The table of the page: a line for each step."""
    loads = [one["load"] for one in rounds]
    requests, answers = (sum(one[key] for one in rounds) for key in ("requests", "answers"))
    asked = sum(one["beside"]["requests"] for one in rounds)
    lines = [
        "",
        f"{len(rounds)} changes, {requests} requests, {answers} answers, none of another model. The unit beside",
        f"the slot was asked {asked} times, and answered each time, with the same processes. Load of the machine",
        f"{min(loads)} to {max(loads)}.",
        "",
        "| at | changes | then | `serve status` names | afterwards up | away, s | answers | refused | broken | gap |",
        "| --- | --: | --- | --- | --- | --: | --: | --- | --: | --: |",
    ]
    for step in (one.format(old="OLD", new="NEW") for one in STEPS):
        own = [one for one in rounds if one["step"] == step]
        away = [one["away"] for one in own]
        refused: Counter[str] = Counter()
        for one in own:
            refused.update(one["refused"])
        cells = (
            step,
            str(len(own)),
            counted(
                _in_order(one, ", ".join(f"{name} {state}" for name, state in one["states"].items())) for one in own
            ),
            counted(_in_order(one, f"`serve use {one['named']}`" if one["named"] else "-") for one in own),
            counted(_in_order(one, one["up"]) for one in own),
            f"{statistics.median(away):.1f} ({max(away)})",
            str(sum(one["answers"] for one in own)),
            ", ".join(f"{count} × {code}" for code, count in sorted(refused.items())),
            str(sum(len(one["faults"]) for one in own)),
            str(max(one["beside"]["away"] for one in own)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


def _in_order(one: Round, text: str) -> str:
    """A text with OLD and NEW for the units of a change, OLD first."""
    named = text.replace(one["old"], "OLD").replace(one["new"], "NEW")
    return ", ".join(sorted(named.split(", "), reverse=True))


def counted(texts: Iterable[str]) -> str:
    """Texts with how often each was there, where they differ."""
    found = Counter(texts)
    return "; ".join(f"{text} ({count} ×)" if len(found) > 1 else text for text, count in found.most_common())


def read(record: Path) -> list[Round]:
    """The changes of a record."""
    found = json.loads(record.read_text())
    assert found["schema"] == SCHEMA, f"{record}: not {SCHEMA}"
    rounds: list[Round] = found["rounds"]
    return rounds


def main(words: Sequence[str]) -> int:
    """Make the changes and write them down. Returns the exit code."""
    from tests.serving.serving_rack import ServingRack
    from tests.serving.test_use import SlotRack

    parser = argparse.ArgumentParser(prog="tests.serving.use_kills")
    parser.add_argument("--times", type=int, default=1, help="how often each step is done; default: once")
    parser.add_argument("--docs", action="store_true", help="renew the table of docs/evidence/serve-use.md")
    given = parser.parse_args(words)
    if given.times:
        if os.geteuid():
            parser.error("needs root, for the network namespaces")
        rounds: list[Round] = []
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            rack = ServingRack(Path(folder))
            try:
                slot = SlotRack(rack, patch)
                slot.with_unit_beside()
                with client_load(slot) as clients, client_load(slot, beside=True) as beside:
                    for step in STEPS * given.times:
                        rounds.append(use_beside(slot, clients, beside, step))
                        RECORD.write_text(json.dumps({"schema": SCHEMA, "rounds": rounds}, indent=1) + "\n")
                        print(json.dumps(rounds[-1]), flush=True)
            finally:
                rack.down()
    if given.docs:
        os.environ["UPDATE_DOCS"] = "1"
        check(PAGE, "kills", table(read(RECORD)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
