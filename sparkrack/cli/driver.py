"""`sparkrack driver`: what is done to a node's driver besides keeping it as declared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from roles.driver import release as walk
from roles.driver import state
from roles.driver.reboot import upstream
from sparkrack.cli.holding import holding
from sparkrack.cli.machines import nodes
from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Driver, Rack, load
from sparkrack.ops import apt
from sparkrack.proof.machines import ssh_config
from sparkrack.proof.shell import RootShell, UnreachableError

SECONDS = 3600
"""How long the node may take: a driver's modules may be built there."""


class Fault(click.ClickException):
    """Why the walk ended, about one node."""


@click.group()
def driver() -> None:
    """Work on the driver of a node."""


@driver.command()
@click.argument("node", shell_complete=nodes)
@rack_option
@click.option("--version", help="The version, as driver.version has it.  [default: the newest of its major]")
@click.option("--kernel", help="A kernel to install with it, as driver.kernel has it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def release(node: str, rack: Path, version: str | None, kernel: str | None, yes: bool) -> None:
    """Give one node another driver, to try it before the others get it.

    Takes what the rack holds off hold, installs, holds it again, also when the middle fails. Nothing is rebooted. A
    deploy brings the node back to driver.version of the rack, unless that is changed.
    """
    found = load(rack)
    if node not in found.nodes:
        raise click.ClickException(f"{node}: not a node; there are {', '.join(found.nodes)}")
    if found.driver is None:
        raise click.ClickException(f"{rack}: declares no driver, so nothing is held")
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(found), errors="surrogateescape")
        shell = RootShell(node, config, SECONDS)
        try:
            with holding(found, config, f"driver of {node}") as held:
                changed = _Walk(node, shell, held.check).go(version, kernel, yes)
        except (UnreachableError, ValueError) as fault:
            text = str(fault).removeprefix(f"{node}: ")
            raise Fault(f"{node}: {text}") from None
        finally:
            shell.close()
    if changed:
        _next(node, found, *changed)


class _Walk:
    """The walk on one node."""

    def __init__(self, node: str, shell: RootShell, sure: Callable[[], None]) -> None:
        """`sure`: raises ClickException when another run may change the rack now."""
        self._node = node
        self._shell = shell
        self._sure = sure

    def go(self, version: str | None, kernel: str | None, yes: bool) -> tuple[str, str | None] | None:
        """The version and kernel it has now; None if it had them already."""
        running = self._ask(walk.RUNNING)
        if running:
            names = ", ".join(running.split()) or "something in the containers' slice"
            raise Fault(f"{self._node}: {names} runs; stop it first, it has the driver's libraries open")
        self._say("brings the package lists up to date")
        self._ask(f"set -eu\n{apt.wait()}\napt-get -q update > /dev/null")
        before = state.packages(self._ask(state.listed()))
        # Checked by `state` as it is what names packages; pydantic's words are about rack.yaml.
        wanted = Driver.model_construct(version=self._version(before, version), kernel=kernel)
        words = state.words(before, wanted)
        if not words:
            self._say(f"has driver {wanted.version}{f' and kernel {kernel}' if kernel else ''} already")
            return None
        on_hold = [one.name for one in before if one.want == "hold" and state.held(one.bare)]
        self._say(f"unhold {len(on_hold)} packages, install, hold again:")
        for line in state.changes(before, words):
            self._say(f"  {line}")
        self._agree(yes)
        self._sure()
        self._perform(before, words, on_hold, downgrade=version is not None)
        return wanted.version, kernel

    def _version(self, before: list[state.Package], version: str | None) -> str:
        """What is asked for, or the newest of the major that is installed."""
        whole = [one.bare for one in before if one.there and state.WHOLE.fullmatch(one.bare)]
        if not whole:
            raise Fault(f"{self._node}: has no driver of which another version could be installed; deploy first")
        if version is not None:
            wanted = Driver.model_construct(version=version)
            for obstacle in state.obstacles(before, wanted):
                raise Fault(f"{self._node}: {obstacle}".replace("rack.yaml declares driver.version", "--version is"))
            return version
        there = self._ask(walk.candidates(whole[0])).split()
        if not there:
            raise Fault(f"{self._node}: no configured repository has {whole[0]}")
        return upstream(there[0])

    def _perform(self, before: list[state.Package], words: list[str], on_hold: list[str], downgrade: bool) -> None:
        install = apt.install_script(*words, downgrade=downgrade, held=False)
        done = self._shell.run(walk.perform(apt.wait(), install, on_hold))
        after = state.packages(self._ask(state.listed()))
        moved = walk.moved(before, after)
        for line in moved:
            self._say(line)
        loose = state.to_hold(after)
        if loose:
            self._say(f"NOT on hold: {', '.join(loose)}; the next deploy holds them")
        else:
            self._say("everything is on hold again")
        if done.rc != 0:
            raise Fault(f"{self._node}: {done.stderr.strip() or f'exit {done.rc}'}")
        if moved:
            self._say("reboot required: until then the old driver is loaded")

    def _agree(self, yes: bool) -> None:
        if yes:
            return
        if not (sys.stdin and sys.stdin.isatty()):
            raise Fault(f"{self._node}: there is no terminal to ask on; say -y")
        click.confirm(f"{self._node}: do this?", abort=True)

    def _ask(self, script: str) -> str:
        done = self._shell.run(script)
        if done.rc != 0:
            raise Fault(f"{self._node}: {done.stderr.strip() or f'exit {done.rc}'}")
        return str(done.stdout)

    def _say(self, text: str) -> None:
        click.echo(f"{self._node}: {text}")


def _next(node: str, rack: Rack, version: str, kernel: str | None) -> None:
    lines = f'version: "{version}"' + (f" and kernel: {kernel}" if kernel else "")
    click.echo(
        f"Next: restart {node}, then sparkrack verify --limit {node}: only what the rack declares otherwise fails."
    )
    click.echo(f"If it is good, write {lines} under driver in {rack.source} and deploy: the others follow, one by one.")
    click.echo(f"If it is not, deploy as the rack is: {node} gets its old version back.")
