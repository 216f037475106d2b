"""The command itself: its verbs, and how a foreseeable fault reaches the user."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from sparkrack.fleet import RackError, SecretError
from sparkrack.fleet.errors import reason

VERBS = (
    *("check", "plan", "apply", "drift", "verify", "topology", "status"),
    *("init", "adopt", "bootstrap", "rebuild", "seed", "driver", "probe", "reboot", "switch", "unlock", "lab"),
)
"""In the order of `--help`: what is used most comes first. Each is a module of this package, loaded when it is used."""

DRIVING = ("plan", "apply", "drift")
"""Those that drive pyinfra, whose transport is gevent's."""


class Verbs(click.Group):
    """Loads only the verb that is called, and ends with the project's exit codes: 1 for wrong usage, too."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        verb = getattr(import_module(f"sparkrack.cli.{cmd_name}"), cmd_name)
        return verb if isinstance(verb, click.Command) else None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Never returns. A fault that can be foreseen is told in words, never as a traceback."""
        from lab.errors import LabError

        # A line is there for whoever reads it as soon as it is said, also through a pipe.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # The name of a file may be no text; most terminals' encodings refuse to write it as it is.
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
        if os.environ.get("NO_COLOR"):
            os.environ["TERM"] = "dumb"  # rich by itself leaves colours away and keeps bold letters
        try:
            code = super().main(args, prog_name, **{**more, "standalone_mode": False})
        except click.ClickException as fault:
            fault.show()
            code = 1
        except click.Abort:
            click.echo("ended", err=True)
            code = 1
        except (RackError, LabError, SecretError) as fault:
            click.echo(str(fault), err=True)
            code = 1
        except BrokenPipeError:
            # Whoever read our output has gone; Python would complain once more when it flushes at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except OSError as fault:
            # Commands tell what is wrong with their own files. This is the rest: no temporary folder, a full disk.
            click.echo(f"Error: {reason(fault)}", err=True)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkrack")
def sparkrack() -> None:
    """A rack of DGX Spark / GB10 nodes and its CRS812 switch as code.

    The rack is described in one file, group_data/rack.yaml or the one that RACK names.

    \b
      sparkrack check                      is the file good? connects to nothing
      sparkrack plan                       what would a run change?
      sparkrack apply                      change it
      sparkrack drift                      has anybody else changed it?
      sparkrack verify --html report.html  does it work? proven by other means

    Exit codes: 0 in sync or done, 2 changes pending or drift, 1 an error or something that could not be told.
    `pyinfra inventory.py deploy.py` does the same as `apply`, without lock and journal.
    """


def main() -> None:
    """Run the command."""
    if not (sys.argv[1:2] and sys.argv[1] in DRIVING):
        sparkrack(prog_name="sparkrack")
    # Before anything else is imported; and not for the others, which use threads and processes.
    import_module("sparkrack.run.gevented")
    try:
        sparkrack(prog_name="sparkrack")
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        # At once: what paramiko leaves to Python's own end finds gevent's threads gone, and complains with a traceback.
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
