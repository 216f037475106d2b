"""Sequence of `sparkrack bootstrap switch`: the first contact with a switch as it comes from its box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from pydantic import SecretStr

from core.model import ConfigError, Rack, SecretError, SecretRef, Switch, yaml_editor
from core.ops.run_lock import Holder
from core.routeros.errors import CheckError, RefusedError, SwitchError, UnreadableError
from core.util.command_error import CommandError
from core.util.screen import Screen
from sparkrack.engine.recorded_run import RecordedRun
from sparkrack.engine.ssh_locking import lock_if_reachable
from switch.bootstrap.context import BootstrapOptions, SwitchBootstrapContext
from switch.bootstrap.menus import FACTORY_USER
from switch.bootstrap.passwords import TYPED_TRIES, FactoryPassword, Password
from switch.bootstrap.runner import SwitchBootstrap

LONGEST_PREFIX = 30
_FAULTS = (SwitchError, CheckError, RefusedError, UnreadableError, SecretError, ConfigError)


@dataclass(frozen=True)
class BootstrapOutcome:
    """Result of a first contact. ready: nothing is missing. warned: the factory's user could not be disabled, or the
    release can be attacked."""

    ready: bool
    warned: bool


def carry_out(
    rack: Rack,
    snapshot: yaml_editor.FileSnapshot,
    switch: Switch,
    options: BootstrapOptions,
    kept: SecretRef | None,
    screen: Screen,
    own: Holder | None,
    record: RecordedRun,
) -> BootstrapOutcome:
    """Run the first contact, under the lock of the rack if it can be taken. `kept`: reference to the factory's
    password, which is asked for otherwise. `screen`: shows the progress. `own`: the run that takes the lock; None for a
    dry run. `record`: gets the reason of a failure. Raises CommandError, ConfigError or SecretError.
    """

    def say(text: str) -> None:
        screen.say(f"{switch.name}: {text}")

    dry = own is None
    try:
        work = SwitchBootstrapContext(switch, snapshot, options, say, Password(switch.password), progress=screen)
        with _hold_lock(rack, switch, screen, own) if own else nullcontext(lambda: "") as work.stopped:
            screen.phase("read the switch" if dry else "bootstrap the switch", [switch.name])
            try:
                contact = SwitchBootstrap(work, factory_password(screen, switch.name, kept, say))
                ready = contact.run(dry=dry)
                return BootstrapOutcome(ready, contact.warned or bool(contact.faults))
            except _FAULTS as fault:
                raise CommandError(f"{switch.name}: {fault}") from None
    except (CommandError, ConfigError, SecretError) as fault:
        record.fail(switch.name, str(fault))
        raise


@contextmanager
def _hold_lock(rack: Rack, switch: Switch, screen: Screen, own: Holder) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack if its first node answers. On the first day it has neither our user nor our key, and
    this machine may be connected by the switch's separate cable without a route to any node.
    """
    screen.phase("take the lock of the rack")

    def alone(why: str) -> None:
        screen.say(f"{switch.name}: {why}; continuing without the lock of the rack")

    with lock_if_reachable(rack, own, alone, screen.warn) as lost:
        yield lost


def natural_prefix(switch: Switch) -> int:
    """Return the prefix length of the management subnet of the switch; 24 when none is declared, or only single
    machines.
    """
    around = [subnet.prefixlen for subnet in switch.management or () if switch.address in subnet]
    return next((length for length in around if length <= LONGEST_PREFIX), 24)


def factory_password(
    screen: Screen, switch: str, kept: SecretRef | None, say: Callable[[str], None]
) -> FactoryPassword:
    """Return the password of the factory's user: a kept one, or one that is typed, which may be mistyped. `say`: prints
    a line about the switch.
    """
    if kept:
        return FactoryPassword(kept.resolve, say)
    return FactoryPassword(partial(_typed_password, screen, switch), say, TYPED_TRIES)


def _typed_password(screen: Screen, switch: str) -> SecretStr:
    """Ask for the password of the factory's user. Raises SecretError without a terminal."""
    if not screen.interactive:
        raise SecretError(
            f"{FACTORY_USER}'s password is needed and there is no terminal for a prompt; pass --password-env or "
            "--password-file"
        )
    return screen.hidden_prompt(f"{switch}: password of {FACTORY_USER} (on the sticker)")
