#!/usr/bin/env python3
"""Walk a newcomer's way in a virtual rack at 80 columns: what was on the screen, and how long it was silent.

scripts/first_hour.py            runs the steps, and writes docs/evidence/first-hour.md
scripts/first_hour.py --keep     leaves the virtual rack running

Each step runs on a terminal that script(1) records with its timing. Needs root or sudo, as the virtual rack does.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).resolve().parents[1]
LAB = REPOSITORY / ".lab-first-hour"
PAGE = REPOSITORY / "docs/evidence/first-hour.md"
BEGIN, END = "<!-- recorded: scripts/first_hour.py -->\n", "<!-- end -->\n"
SHOWN = 14
"""Lines of each step's screen on the page: the last ones."""
_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[=>()][A-Z0-9]?|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+")


@dataclass(frozen=True)
class Step:
    """One command, and the exit codes that it may end with."""

    title: str
    command: str
    codes: tuple[int, ...] = (0,)


def steps() -> tuple[Step, ...]:
    """The steps in their order, with the passwords from the files that the lab makes in place of what is typed."""
    lab, inside = str(LAB.relative_to(REPOSITORY)), "sparkrack lab run -- sparkrack"
    secrets = (
        f"--as nvidia --node-password-file {lab}/password --host-keys {lab}/host-keys "
        f"--switch-password-file {lab}/switches/crs812/sticker"
    )
    return (
        Step("Set up", "make setup"),
        Step("Build a virtual rack in factory state", "sparkrack lab up --factory --nodes 2"),
        Step("Is the rack file good?", f"{inside} check"),
        Step("What is there before the first contact?", f"{inside} status", (1,)),
        Step("From factory state to a verified rack", f"{inside} rebuild --all {secrets}"),
        Step("Would a run change anything?", f"{inside} plan"),
        Step("Was anything changed by hand?", f"{inside} drift"),
        Step("Does it work?", f"{inside} verify --html reports/first-hour.html"),
        Step("The cables", f"{inside} topology --seen"),
        Step("One screen", f"{inside} status"),
    )


def record(step: Step, folder: Path) -> tuple[int, float, float, list[str]]:
    """Run one step on a terminal of 80 columns.

    Returns its exit code, its seconds, the longest silence in seconds (from the start of the command to its first
    output too), and the last lines of its screen.
    """
    out, timing = folder / "out", folder / "timing"
    for file in (out, timing):
        file.unlink(missing_ok=True)
    shell = f"stty cols 80 rows 24; exec {step.command}"
    words = ["script", "-q", "-e", "-f", "-O", str(out), "-T", str(timing), "-c", f"sh -c {shlex.quote(shell)}"]
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("RACK", "NO_COLOR", "COLUMNS")},
        "SPARKRACK_LAB": str(LAB),
        "PATH": f"{REPOSITORY / '.venv/bin'}:{os.environ['PATH']}",
        "TERM": "xterm-256color",
    }
    begin = time.monotonic()
    code = subprocess.run(words, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    seconds = time.monotonic() - begin
    delays = [float(line.split()[0]) for line in timing.read_text().splitlines()]
    silence = max([*delays, seconds - sum(delays)])
    # Not read_text, which makes "\n" of each "\r". The first line is script's own.
    text = out.read_bytes().decode(errors="replace").partition("\n")[2]
    kept = [line for line in screen(text) if line and not line.startswith("Script ")]
    return code, seconds, silence, kept[-SHOWN:]


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
    table = ["| step | seconds | longest silence, s |", "| --- | --: | --: |"]
    screens: list[str] = []
    good = True
    with TemporaryDirectory() as folder:
        for step in steps():
            code, seconds, silence, lines = record(step, Path(folder))
            good &= code in step.codes
            table.append(f"| {step.title} | {seconds:.0f} | {silence:.1f} |")
            screens += [f"## {step.title}", "", f"    {step.command}", "", "```", *lines, "```", ""]
            screens += [f"Exit {code}.", ""]
            if code not in step.codes:
                print(f"first_hour: {step.command}: exit {code}", file=sys.stderr)
    return [*table, "", *screens], good


def main() -> None:
    """Walk, and write the page."""
    subprocess.run([REPOSITORY / ".venv/bin/sparkrack", "lab", "down"], env=os.environ | {"SPARKRACK_LAB": str(LAB)})
    try:
        lines, good = walk()
    finally:
        if "--keep" not in sys.argv[1:]:
            down = [REPOSITORY / ".venv/bin/sparkrack", "lab", "down"]
            subprocess.run(down, env=os.environ | {"SPARKRACK_LAB": str(LAB)})
    before, _, after = PAGE.read_text().partition(BEGIN)
    text = "\n".join(lines).replace(str(REPOSITORY), "sparkrack")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after.partition(END)[2]}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
