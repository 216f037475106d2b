"""How a described rack becomes a file: judged first, shown where one is there, and then written whole."""

from __future__ import annotations

import difflib
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sparkrack.cli.discovering import Pins, say
from sparkrack.discovery.page import text
from sparkrack.discovery.sheet import Gap, Sheet
from sparkrack.fleet import Rack, RackError, load, regular
from sparkrack.fleet.errors import Fault, one_line
from sparkrack.hostkeys import HostKeyError, pin
from sparkrack.run.files import keep

LARGEST = 1024 * 1024


def judged(content: str, out: Path) -> tuple[Rack | None, tuple[Fault, ...]]:
    """The rack that the text is, in the folder where it will stand; or what `sparkrack check` will say of it."""
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        draft = Path(folder) / "rack.yaml"
        draft.write_text(content, encoding="utf-8")
        try:
            return load(draft), ()
        except RackError as wrong:
            return None, tuple(replace(fault, file=str(out)) for fault in wrong.faults)


def written(sheet: Sheet, out: Path, pins: Pins, known_hosts: Path, port: int, *, yes: bool) -> None:
    """Write file and host keys. A file that is there is shown as a difference first, and stays unless that is agreed
    to. Raises ClickException; then nothing was written."""
    content = text(sheet)
    mode = 0o644
    try:
        if out.exists():
            before = regular.read_bytes(out, LARGEST).decode(errors="backslashreplace")
            mode = stat.S_IMODE(out.stat().st_mode)
            if before != content:
                _shown(before, content, out)
                if not yes:
                    _agreed(out)
        known_hosts.parent.mkdir(parents=True, exist_ok=True)
        for address, keys in pins.items():
            pin(known_hosts, address, port, keys)
        keep(out, content, mode)
    except OSError as fault:
        raise click.ClickException(f"{out}: cannot be written: {fault.strerror or fault}") from None
    except HostKeyError as fault:
        raise click.ClickException(f"{fault}; {out} was not written") from None
    say(f"{out}: written" + (f", and {len(pins)} host keys in {known_hosts}" if pins else ""))


def _shown(before: str, after: str, out: Path) -> None:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{out} (as it is)", f"{out} (new)", lineterm=""
    )
    for line in lines:
        click.echo(one_line(line))


def _agreed(out: Path) -> None:
    if not sys.stdin.isatty():
        raise click.ClickException(f"{out} is there and differs; say --yes to write over it; nothing was written")
    if not click.confirm(f"write over {out}?", err=True):
        raise click.ClickException("nothing was written")


def told(title: str, lines: Mapping[str, None] | tuple[Gap | Fault | str, ...] | list[Gap]) -> None:
    """A list with its title; nothing for an empty one."""
    if lines:
        click.echo(f"{title}:")
        for line in dict.fromkeys(map(str, lines)):
            click.echo(f"  {one_line(line)}")
