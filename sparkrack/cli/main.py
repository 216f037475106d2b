"""The command itself: its verbs, and the reporting of foreseeable errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from core.util.fast_start import prepare_fast_start
from sparkrack.terminal.startup_notice import loading

VERB_GROUPS = {
    "Every day": {
        "plan": "Show what apply would change",
        "apply": "Bring the rack to its declared state",
        "drift": "Show where the rack differs from rack.yaml",
        "verify": "Verify the rack by other means than apply uses",
        "status": "Show every node and switch on one screen",
        "topology": "Draw nodes, cables and switch ports",
        "watch": "Show metrics and alerts, live",
    },
    "The first day": {
        "init": "Write the first rack.yaml",
        "adopt": "Write the rack.yaml of a rack set up by hand",
        "up": "Bring a whole rack up, to a served model if named",
        "check": "Validate rack.yaml; connects to nothing",
        "rebuild": "Bring back hosts that are in factory state",
    },
    "Serving": {
        "serve": "Start, stop and watch served models",
    },
    "Trouble": {
        "runs": "List the runs of this machine, the newest first",
        "autopsy": "Say why the latest boot of a node ended",
        "support": "Write an archive without secrets for a report",
        "reboot": "Restart node after node, and verify each",
        "unlock": "Remove the lock of a run that ended",
    },
    "Rarely": {
        "bootstrap": "Prepare new nodes and a new switch for apply",
        "remove": "Take sparkrack off: what was there before comes back",
        "upgrade": "Upgrade a node's driver, or the switch",
        "switch": "Restore the switch, or give it a new password",
        "seed": "Write cloud-init data for the first boot of nodes",
        "drill": "End the boot of a node on purpose, and judge it",
        "accept": "Read which claims about the hardware hold here",
        "export": "Print files for other tools, from rack.yaml",
        "lab": "Run a virtual rack on this machine",
        "completion": "Print the completion script of a shell",
    },
}
"""The line of each verb in `--help`, by when it is used. Each verb is a module of this package, loaded when it is
called and not for `--help`: all modules together take a second.
"""

VERBS = {name: text for verbs in VERB_GROUPS.values() for name, text in verbs.items()}

MOVED = {("driver",): "upgrade driver", ("switch", "upgrade"): "upgrade switch"}
"""First words that a command line once had, and the verb that it has now."""

_LONGEST_VERB = max(map(len, VERBS))

DRIVING = ("plan", "apply", "drift", "remove")
"""Verbs that drive pyinfra, whose transport uses gevent."""


class Verbs(click.Group):
    """Loads only the verb that is called, and ends with the project's exit codes: 1 for wrong usage, too."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click passes it
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        with loading():
            verb = getattr(import_module(f"sparkrack.cli.{cmd_name}"), cmd_name)
        return accept_verbose(verb) if isinstance(verb, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the line of each verb without loading it."""
        for title, verbs in VERB_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{_LONGEST_VERB}}", text) for name, text in verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb in the error about an unknown one: click itself knows only commands that are loaded."""
        for old, new in MOVED.items():
            if tuple(args[: len(old)]) == old:
                raise click.UsageError(f"'{' '.join(old)}' is now 'sparkrack {new}'.", ctx)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as fault:
            if near := get_close_matches(args[0].lower(), VERBS, 1):
                raise click.UsageError(f"{fault.message} Did you mean '{near[0]}'?", ctx) from None
            raise

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Run and never return. A foreseeable error is reported as a message, never as a traceback."""
        words = list(sys.argv[1:] if args is None else args)
        if called_verb(words) in VERBS:
            with loading():
                from core.util.debug_log import inherit
                from sparkrack.cli.next_step import begin
            begin(words)
            inherit()

        # Each line is visible as soon as it is printed, also through a pipe.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # The name of a file may be no text; most terminals' encodings refuse to write it as it is.
                stream.reconfigure(line_buffering=True, errors="backslashreplace")
        if os.environ.get("NO_COLOR"):
            os.environ["TERM"] = "dumb"  # rich by itself leaves colours away and keeps bold letters
        try:
            code = super().main(args, prog_name, **{**more, "standalone_mode": False})
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):  # as Python itself ends with one
                click.echo(code, err=True)
                code = 1
        except click.ClickException as fault:
            fault.show()
            if not isinstance(fault, click.UsageError):  # that one names the command for help
                _print_same_again()
            code = 1
        except click.Abort:
            click.echo("ended", err=True)
            code = 1
        except BrokenPipeError:
            # The reader of our output has exited; Python would report that again when it flushes at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except OSError as fault:
            # Commands report problems of their own files. This is the rest: no temporary folder, a full disk.
            from core.model.errors import reason

            click.echo(f"Error: {reason(fault)}", err=True)
            _print_same_again()
            code = 1
        except Exception as fault:
            code = _print_foreseeable(fault)
        if called_verb(words) in VERBS:
            code = _print_next(code)
        sys.exit(code if isinstance(code, int) else 0)


def _print_next(code: Any) -> Any:
    """Print the next step as the last line of the command. Returns the exit code: 1 where it cannot be printed."""
    from sparkrack.cli.next_step import print_found_steps

    try:
        print_found_steps()
    except OSError:
        return 1
    return code


def _print_foreseeable(fault: Exception) -> int:
    """Print an error of the program's own kinds and the next step; return the exit code. Raises any other again."""
    from core.model import ConfigError, SecretError
    from core.model.loader import is_default
    from core.ops.run_lock import LockError
    from core.util.command_error import CommandError, DeclinedError
    from lab.errors import LabError, NoLabHereError
    from sparkrack.cli.next_step import next_step, print_next, unlock_dead_run

    if isinstance(fault, DeclinedError):
        click.echo("ended", err=True)
        return 1
    if isinstance(fault, CommandError):
        click.ClickException(str(fault)).show()
        if isinstance(fault, LockError) and fault.dead:
            unlock_dead_run(fault.dead)
        else:
            _print_same_again()
        return 1
    if not isinstance(fault, ConfigError | LabError | SecretError):
        raise fault
    click.echo(str(fault), err=True)
    if isinstance(fault, ConfigError) and not any(Path(one.file).exists() for one in fault.faults):
        missing = Path(fault.faults[0].file)
        next_step(["sparkrack", "init", *([] if is_default(missing) else ["--out", str(missing)])])
    elif isinstance(fault, LabError) and fault.then:
        print_next(fault.then)
    elif not isinstance(fault, NoLabHereError):
        _print_same_again()
    return 1


def _print_same_again() -> None:
    from sparkrack.cli.next_step import same_again

    same_again("when this is fixed")


def _show_questions(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given:
        from core.util.debug_log import verbose

        verbose()


def _verbose_option() -> click.Option:
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_questions,
        help="Print to stderr what each host is asked, and how long it took.",
    )


def accept_verbose(command: click.Command) -> click.Command:
    """Let a command, and those below it, take -v as `sparkrack` itself does, and show the line of each whole."""
    if not any("--verbose" in option.opts for option in command.params):
        command.params.append(_verbose_option())
    if isinstance(command, click.Group):
        for below in command.commands.values():
            # click by itself cuts it to what is left of one line
            below.short_help = below.short_help or _first_sentence(below.help or "")
            accept_verbose(below)
    return command


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


def called_verb(words: Sequence[str]) -> str:
    """Return the verb of a command line; empty without one."""
    return next((word for word in words if not word.startswith("-")), "")


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkrack")
def sparkrack() -> None:
    """A rack of DGX Spark / GB10 nodes and its MikroTik switch as code.

    The rack is described in one file: --rack FILE, else the one that RACK names, else rack.yaml of this folder (or
    group_data/rack.yaml in a clone).

    \b
      sparkrack check                      is the file good? connects to nothing
      sparkrack plan                       what would a run change?
      sparkrack apply                      change it
      sparkrack drift                      has it been changed by hand?
      sparkrack verify --html report.html  does it work? proven by other means

    Exit codes: 0 in sync or done, 2 changes pending or drift, 1 an error or something unknown.
    In a clone `pyinfra inventory.py deploy.py` does the same as `apply`, without lock and journal.
    """


accept_verbose(sparkrack)


def main() -> None:
    """Run the command."""
    prepare_fast_start()
    if called_verb(sys.argv[1:]) not in DRIVING:
        sparkrack(prog_name="sparkrack")
    # Before anything else is imported; and not for the others, which use threads and processes.
    with loading():
        import_module("sparkrack.engine.gevent_patch")
        from core.util.signals import interrupt_main_greenlet
    interrupt_main_greenlet()
    try:
        sparkrack(prog_name="sparkrack")
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        # At once: paramiko's cleanup at Python's end finds gevent's threads gone, and prints a traceback.
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
