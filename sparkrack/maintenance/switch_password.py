"""Sequence of `sparkrack switch password`: a new password for our user on the switch, under the lock of the rack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from core.model import Rack, SecretError, SecretRef, Switch
from core.routeros.errors import CheckError, RefusedError, SwitchError, UnreadableError
from core.util.command_error import CommandError
from sparkrack.engine.ssh_locking import lock_if_reachable
from switch.bootstrap.passwords import Password
from switch.password_rotation import PasswordRotation

_FAULTS = (SwitchError, CheckError, RefusedError, UnreadableError, SecretError)


def rotate_password(rack: Rack, switch: Switch, new_file: Path, say: Callable[[str], None]) -> None:
    """Give our user on a switch a new password. `new_file`: where the new one is, or is made. Raises CommandError."""
    try:
        new = Password(SecretRef.model_validate({"file": str(new_file.expanduser().absolute())}))
    except ValidationError:
        raise CommandError("--new-file is not the path of a file") from None

    def go_on_without_lock(why: str) -> None:
        say(f"{why}; going on without its lock")

    with lock_if_reachable(rack, f"password of {switch.name}", go_on_without_lock) as lost:
        try:
            PasswordRotation(switch, new, say, lost).run()
        except _FAULTS as fault:
            raise CommandError(f"{switch.name}: {fault}") from None
