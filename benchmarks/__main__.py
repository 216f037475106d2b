"""`python -m benchmarks`: run the measurements and write what came out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from benchmarks import BenchError, image, report
from benchmarks.contenders import TOOLS

REPOSITORY = Path(__file__).parent.parent
CACHE = REPOSITORY / ".bench"
NAMES = tuple(tool.name for tool in TOOLS)
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Everything runs in namespaces that end with this process, however it ends: nothing is exposed or left behind."""


def _parse_counts(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    found = [int(word) for word in value.split(",") if word.isdigit() and 1 <= int(word) <= 200]
    if len(found) != len(value.split(",")):
        raise click.BadParameter("give numbers from 1 to 200, as in 1,8,32")
    return found


def _parse_names(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    found = value.split(",")
    unknown = [name for name in found if name not in NAMES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]}: there are {', '.join(NAMES)}")
    for tool in TOOLS:
        if tool.name in found and not tool.brings and tool.after not in found:
            raise click.BadParameter(f"{tool.name} runs after {tool.after}: name that too")
    return found


def _parse_most_hosts(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    most: dict[str, int] = {}
    for value in values:
        name, _, number = value.partition("=")
        if name not in NAMES or not number.isdigit():
            raise click.BadParameter(f"{value}: write TOOL=HOSTS, as in ansible=8; there are {', '.join(NAMES)}")
        most[name] = int(number)
    return most


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hosts", default="1,8,32,128", show_default=True, callback=_parse_counts, help="How many targets.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often everything is run.")
@click.option("--tools", default=",".join(NAMES), show_default=True, callback=_parse_names, help="What is compared.")
@click.option(
    "--up-to", "most", multiple=True, callback=_parse_most_hosts, help="TOOL=HOSTS: that tool with no more than these."
)
@click.option(
    "--answer-after",
    "after",
    type=click.FloatRange(0, 10),
    metavar="SECONDS",
    help="Measure as well, without changes, targets that answer from a record after so long and use no CPU here.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=CACHE / "last", help="For what came out."
)
@click.option("--docs", is_flag=True, help="Put the results into docs/evidence/bench.md as well.")
def main(
    hosts: list[int], rounds: int, tools: list[str], most: dict[str, int], after: float | None, out: Path, docs: bool
) -> None:
    """Bring the same targets to the same state by sparkrack and by others, and compare what that costs.

    \b
      python -m benchmarks --hosts 1,8 --rounds 1
      python -m benchmarks --docs
      python -m benchmarks --up-to ansible=8 --up-to stock=32

    Needs root for namespaces and overlay mounts. Nothing listens outside of them, and nothing stays.
    """
    if os.geteuid():
        raise click.ClickException("needs root, for namespaces and overlay mounts")
    try:
        root, others = image.root(CACHE, _say_line), image.others(CACHE, _say_line)
        out.mkdir(parents=True, exist_ok=True)
        found = report.Results(machine=report.machine(root, others), runs=[])
        what = {"hosts": hosts, "rounds": rounds, "tools": tools, "most": most, "after": after}
        _run_measurements({**what, "root": str(root), "others": str(others)}, found, out)
        report.write(found, out, others)
        if docs:
            report.publish(found, out)
    except BenchError as fault:
        raise click.ClickException(str(fault)) from None
    click.echo(report.table(found))


def _run_measurements(asked: dict[str, object], found: report.Results, out: Path) -> None:
    """The measurements, each kept as it comes. Raises BenchError when they end early."""
    work = Path(tempfile.mkdtemp(prefix="sparkrack-bench-"))
    (out / "asked.json").write_text(json.dumps({**asked, "work": str(work)}))
    command = [*NAMESPACES, sys.executable, "-m", "benchmarks.runner", str((out / "asked.json").absolute())]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    try:
        with (out / "runs.ndjson").open("w") as kept:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
            try:
                for line in process.stdout or ():
                    kept.write(line)
                    kept.flush()
                    run = json.loads(line)
                    found.runs.append(run)
                    _say_line("{hosts:4} hosts  round {round}  {tool:10} {state:10} {wall:8.2f} s".format(**run))
                process.wait()
            finally:
                process.kill()  # nothing, where it has ended
                process.wait()
        if process.returncode:
            raise BenchError("ended early; what was measured until then is in runs.ndjson")
    finally:
        work.rmdir()


def _say_line(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
