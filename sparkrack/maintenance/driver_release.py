"""Sequence of `sparkrack upgrade driver`: another driver for one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.model import Rack
from core.ops import apt
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.command_error import CommandError
from core.util.screen import Screen, ask_before_change
from roles.driver import desired
from roles.driver import driver_upgrade as walk
from roles.driver.options import DriverOptions
from roles.driver.reboot_reasons import upstream
from serving.running_engines import PROBE, parse_running_units, unit_blockers
from sparkrack.engine.recorded_run import RecordedRun, recorded_run
from sparkrack.engine.ssh_locking import hold_lock

COMMAND_SECONDS = 3600
"""Seconds for the node: a driver's modules may be built there."""


class ReleaseError(CommandError):
    """The reason why the upgrade of one node ended."""


def release_driver(
    rack: Rack, node: str, version: str | None, kernel: str | None, screen: Screen, *, yes: bool
) -> tuple[str, str | None] | None:
    """Give a node another driver; return the version and kernel that it has now, None if it had them already. `yes`: do
    not ask. Raises CommandError.
    """
    if node not in rack.nodes:
        raise CommandError(f"{node}: not a node; there are {', '.join(rack.nodes)}")
    if rack.declared(DriverOptions) is None:
        raise CommandError(f"{rack.source}: declares no driver, so nothing is held")
    with recorded_run(rack, "driver: Install another driver") as run, _record_failure(run, node):
        own = run.begin(f"driver of {node}")
        screen.phase("take the lock of the rack")
        with open_shells(rack, [node], COMMAND_SECONDS) as shells, hold_lock(rack, own, screen.warn) as held:
            screen.phase("install another driver", [node])
            return _Walk(rack, node, shells[node], held.check, screen).go(version, kernel, yes)


@contextmanager
def _record_failure(run: RecordedRun, node: str) -> Iterator[None]:
    """Record why the block fails. Raises ReleaseError for a node that cannot be reached or has no usable answer."""
    try:
        try:
            yield
        except UnreachableError as fault:
            raise ReleaseError(str(fault)) from None
        except ValueError as fault:
            raise ReleaseError(f"{node}: {fault}") from None
    except CommandError as fault:
        run.fail(node, str(fault))
        raise


class _Walk:
    """The upgrade of one node."""

    def __init__(self, rack: Rack, node: str, shell: RootShell, sure: Callable[[], None], screen: Screen) -> None:
        """`sure`: raises CommandError when another run may change the rack now. `screen`: shows the progress."""
        self._rack = rack
        self._node = node
        self._shell = shell
        self._sure = sure
        self._screen = screen

    def go(self, version: str | None, kernel: str | None, yes: bool) -> tuple[str, str | None] | None:
        """The version and kernel it has now; None if it had them already."""
        self._show_step("read its containers")
        running = self._run_on_node(walk.RUNNING)
        units = parse_running_units(self._run_on_node(PROBE))
        if lines := unit_blockers(self._rack, units, "packages of the driver must be installed"):
            raise ReleaseError("\n".join(f"{self._node}: {line}" for line in lines))
        if running:
            names = ", ".join(running.split()) or "something in the containers' slice"
            raise ReleaseError(f"{self._node}: {names} runs; stop it first, it has the driver's libraries open")
        self._sure()
        self._say_of_node("brings the package lists up to date")
        self._show_step("update the package lists")
        self._run_on_node(f"set -eu\n{apt.wait()}\napt-get -q update > /dev/null")
        self._show_step("read its packages")
        before = desired.packages(self._run_on_node(desired.listed()))
        # Checked by `state` as it is what names packages; pydantic's words are about rack.yaml.
        number = self._choose_version(before, version)
        wanted = DriverOptions.model_construct(version=number, kernel=kernel)
        words = desired.apt_arguments(before, wanted)
        if not words:
            self._say_of_node(f"has driver {number}{f' and kernel {kernel}' if kernel else ''} already")
            return None
        on_hold = [one.name for one in before if one.want == "hold" and desired.held(one.bare)]
        self._say_of_node(f"unhold {len(on_hold)} packages, install, hold again:")
        for change in desired.changes(before, words):
            self._say_of_node(f"  {change.message}")
        self._ask_consent(yes)
        self._sure()
        self._install_packages(before, words, on_hold, downgrade=version is not None)
        return number, kernel

    def _choose_version(self, before: list[desired.NodePackage], version: str | None) -> str:
        """Return the requested version, or the newest of the installed major version."""
        whole = [one.bare for one in before if one.there and desired.WHOLE.fullmatch(one.bare)]
        if not whole:
            raise ReleaseError(f"{self._node}: has no driver of which another version could be installed; deploy first")
        if version is not None:
            wanted = DriverOptions.model_construct(version=version)
            for blocker in desired.blockers(before, wanted, "--version is"):
                raise ReleaseError(f"{self._node}: {blocker}")
            return version
        there = self._run_on_node(walk.candidates(whole[0])).split()
        if not there:
            raise ReleaseError(f"{self._node}: no configured repository has {whole[0]}")
        return upstream(there[0])

    def _install_packages(
        self, before: list[desired.NodePackage], words: list[str], on_hold: list[str], downgrade: bool
    ) -> None:
        install = apt.install_script(*words, downgrade=downgrade, held=False)
        self._show_step(f"install packages, at most {COMMAND_SECONDS} s")
        done = self._shell.run(walk.perform(apt.wait(), install, on_hold))
        self._show_step("read its packages")
        after = desired.packages(self._run_on_node(desired.listed()))
        moved = walk.moved(before, after)
        for line in moved:
            self._say_of_node(line)
        loose = desired.to_hold(after)
        if loose:
            self._say_of_node(f"NOT on hold: {', '.join(loose)}; the next deploy holds them")
        else:
            self._say_of_node("everything is on hold again")
        if done.rc != 0:
            raise ReleaseError(f"{self._node}: {done.stderr.strip() or f'exit {done.rc}'}")
        if moved:
            self._say_of_node("reboot required: until then the old driver is loaded")

    def _ask_consent(self, yes: bool) -> None:
        if not yes:
            ask_before_change(self._screen, self._node, "do this?")

    def _run_on_node(self, script: str) -> str:
        done = self._shell.run(script)
        if done.rc != 0:
            raise ReleaseError(f"{self._node}: {done.stderr.strip() or f'exit {done.rc}'}")
        return str(done.stdout)

    def _say_of_node(self, text: str) -> None:
        self._screen.say(f"{self._node}: {text}")

    def _show_step(self, activity: str) -> None:
        self._screen.step(self._node, activity)
