#!/usr/bin/env python3
"""Walk a newcomer's way in a virtual rack at 80 columns: what was on the screen, and how long it was silent.

scripts/first_hour.py            runs the steps, and writes docs/evidence/first-hour.md
scripts/first_hour.py --keep     leaves the virtual rack running

Each step runs on a pseudo-terminal, where its questions are answered. Needs root or sudo, as the virtual rack does.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LAB = REPOSITORY / ".lab-first-hour"
OWNER = LAB / "rack"
"""The folder of the owner of the rack."""
FIRST_LOGIN = "@of the nodes@"
"""Stands for the password of the nodes' first account, which `lab up` makes, in the keys of a step."""
STEP_SECONDS = 600
"""Seconds without output after which a step has failed."""
PAGE = REPOSITORY / "docs/evidence/first-hour.md"
BEGIN, END = "<!-- recorded: scripts/first_hour.py -->\n", "<!-- end -->\n"
SHOWN = 14
"""Lines of each step's screen on the page: the last ones."""
_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[=>()][A-Z0-9]?|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+")


@dataclass(frozen=True)
class Step:
    """One command, the exit codes that it may end with, and the keys that are typed, each behind a text on the screen.

    A question that is not asked, since the answer was read, is passed over when a later one is on the screen.
    `owner`: it runs in the owner's folder, inside the network of the virtual rack.
    """

    title: str
    command: str
    codes: tuple[int, ...] = (0,)
    typed: tuple[tuple[str, str], ...] = ()
    owner: bool = True
    printed: bool = False
    """Whether the command is the line of shell that a step before has printed."""


RACK = """\
rack: first
access: {user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}
nodes:
  spark1: {address: 10.77.0.11, vendor: nvidia, ports: {1: spark2/1}}
  spark2: {address: 10.77.0.12, vendor: nvidia}
"""
"""The two Sparks and the cable that are simulated."""
RECIPE = "toy.yaml"
HUB = "http://10.77.0.1:8090/hub"
"""Of the virtual rack, as lab.served_recipe prints it."""
ASKED = re.compile(r"unit \w+: http.*, model \w+")
"""The line of `up` before the one that asks the unit."""


def steps() -> tuple[Step, ...]:
    """The steps in their order. The virtual rack has no mDNS, so the nodes are named; passwords and host keys, which a
    console shows, are in files of the virtual rack. Its kernel shows no watchdog, so black box and watch are declined.
    """
    lab = "--as nvidia --node-password-file ../password --host-keys ../host-keys"
    return (
        Step("Set up", "make setup", owner=False),
        Step(
            "Two Sparks in factory state and one cable, simulated",
            f"sparkrack lab up --factory --rack {LAB.name}/two-sparks.yaml",
            owner=False,
        ),
        Step(
            "The rack file",
            "sparkrack init --node spark1=10.77.0.11 --node spark2=10.77.0.12 --switch - --key ../id_ed25519 "
            "--host-keys ../host-keys",
            typed=(
                ("user that the nodes accept", "\n"),
                ("the account that the first-boot wizard made", "nvidia\n"),
                ("password of nvidia there", f"{FIRST_LOGIN}\n"),
                ("port of spark1", "\n"),
                ("port of spark2", "\n"),
                ("Also ", "n\n"),
            ),
        ),
        Step("Is the rack file good?", "sparkrack check"),
        Step(
            "A model and its recipe, simulated",
            f"python -m lab.served_recipe {LAB.name}/rack/{RECIPE}",
            owner=False,
        ),
        Step(
            "From factory state to a verified rack and a served model",
            f"sparkrack up --serve {RECIPE} {lab}",
            typed=(("[y/N]", "y\n"),),
        ),
        Step("Ask it: the line that `up` has printed", "", printed=True),
        Step("One screen", "sparkrack status"),
        Step("What is served", "sparkrack serve status"),
        Step("Would a run change anything?", "sparkrack plan"),
        Step("The same again", f"sparkrack up --serve {RECIPE}"),
        Step("Stop the unit", "sparkrack serve stop toy"),
        Step("Take it off", "sparkrack remove", typed=(("[y/N]", "y\n"),)),
    )


@dataclass(frozen=True)
class Recorded:
    """What a step showed: its exit code, its seconds, the longest time without output, in seconds, the keys that were
    typed, and the lines of its screen."""

    code: int
    seconds: float
    silence: float
    keys: int
    lines: list[str]


def record(step: Step) -> Recorded:
    """Run one step on a terminal of 80 columns, and type its keys where their texts appear."""
    words = shlex.split(step.command)
    if step.owner:
        words = ["sparkrack", "lab", "run", "--", "env", "-u", "RACK", *words]
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("RACK", "NO_COLOR", "COLUMNS")},
        "SPARKRACK_LAB": str(LAB),
        "PATH": f"{REPOSITORY / '.venv/bin'}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "HF_ENDPOINT": HUB,
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    begin = time.monotonic()
    with subprocess.Popen(
        words,
        cwd=OWNER if step.owner else REPOSITORY,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        text, silence, keys = _type_keys(ours, _with_password(step.typed), begin)
        code = process.wait()
    os.close(ours)
    lines = [line for line in screen(text) if line]
    return Recorded(code, time.monotonic() - begin, silence, keys, lines)


def _with_password(typed: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return the questions and keys with the password of the nodes."""
    file = LAB / "password"
    return [
        (text, keys.replace(FIRST_LOGIN, file.read_text().strip()) if FIRST_LOGIN in keys else keys)
        for text, keys in typed
    ]


def _type_keys(terminal: int, typed: list[tuple[str, str]], begin: float) -> tuple[str, float, int]:
    """Read all output, and type the keys. Returns the output, the longest silence (seconds), and the number of keys."""
    output, read, silence, keys, last = b"", 0, 0.0, 0, begin
    while True:
        ready, _, _ = select.select([terminal], [], [], STEP_SECONDS)
        if not ready:
            raise TimeoutError(f"no output for {STEP_SECONDS} s")
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            part = b""
        now = time.monotonic()
        silence, last = max(silence, now - last), now
        if not part:
            return output.decode(errors="replace"), silence, keys
        output += part
        asked = next((at for at, (question, _) in enumerate(typed) if question.encode() in output[read:]), None)
        if asked is not None:
            _, answer = typed[asked]
            del typed[: asked + 1]
            read = len(output)
            time.sleep(0.5)  # a program drops what is typed before its question
            os.write(terminal, answer.encode())
            keys += len(answer)


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows after this output: pictures of progress are drawn, moved over, erased."""
    rows, row, column = [""], 0, 0
    for token in _TOKENS.finditer(text):
        match token[2], token[0]:
            case "A", _:
                row = max(0, row - int(token[1] or 1))
            case "K", _:
                rows[row] = ""
            case None, "\r":
                column = 0
            case None, "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            case None, words if words[0] != "\x1b":
                rows[row] = rows[row][:column].ljust(column) + words + rows[row][column + len(words) :]
                column += len(words)
    return [line.rstrip() for line in rows]


def walk() -> tuple[list[str], bool]:
    """Run all steps; return the lines of the page's table and screens, and whether each ended as it should."""
    table = ["| step | seconds | longest silence, s | keys typed |", "| --- | --: | --: | --: |"]
    screens: list[str] = []
    good = True
    asks = ""
    for given in steps():
        step = replace(given, command=shlex.join(["bash", "-c", asks])) if given.printed else given
        found = record(step)
        asks = next((after for line, after in pairwise(found.lines) if ASKED.fullmatch(line)), asks).strip()
        good &= found.code in step.codes
        table.append(f"| {step.title} | {found.seconds:.0f} | {found.silence:.1f} | {found.keys} |")
        shown = shlex.split(step.command)[-1] if step.printed else step.command
        screens += [
            f"## {step.title}",
            "",
            f"    {shown}",
            "",
            "```",
            *found.lines[-SHOWN:],
            "```",
            "",
        ]
        screens += [f"Exit {found.code}.", ""]
        if found.code not in step.codes:
            print(f"first_hour: {step.command}: exit {found.code}", *found.lines[-SHOWN:], sep="\n", file=sys.stderr)
    return [*table, "", *screens], good


def main() -> None:
    """Walk, and write the page."""
    down = [REPOSITORY / ".venv/bin/sparkrack", "lab", "down"]
    subprocess.run(down, env=os.environ | {"SPARKRACK_LAB": str(LAB)})
    shutil.rmtree(OWNER, ignore_errors=True)
    OWNER.mkdir(parents=True)
    (LAB / "two-sparks.yaml").write_text(RACK)
    try:
        lines, good = walk()
    finally:
        if "--keep" not in sys.argv[1:]:
            subprocess.run(down, env=os.environ | {"SPARKRACK_LAB": str(LAB)})
    before, _, after = PAGE.read_text().partition(BEGIN)
    text = "\n".join(lines).replace(str(REPOSITORY), "sparkrack")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after.partition(END)[2]}")
    sys.exit(0 if good else 1)


main()
