"""A systemd service that looks for drift, and the timer that starts it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.util import resources
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError

SECRETS = "/etc/sparkrack/drift.env"
"""Optional file with the environment variables that rack.yaml names for passwords."""


class UnitError(CommandError):
    """A value that no unit file can hold. The text is one line."""


@dataclass(frozen=True)
class SystemdTimer:
    """Parameters of the two units.

    `program`: the absolute path of `sparkrack`. `file`: that of the rack file. `user`: an ordinary user who may log in
    to the nodes. `every`: the interval, in the format of `sparkrack drift timer --every`. `state`: that user's state
    folder, where history is kept. `prom`: the file for metrics, if any.
    """

    rack: str
    program: Path
    file: Path
    user: str
    every: str
    state: Path
    prom: Path | None = None

    @property
    def name(self) -> str:
        """Return the name of the units, without their suffix."""
        return f"sparkrack-drift-{self.rack}"


def units(timer: SystemdTimer) -> Mapping[str, str]:
    """The text of each unit, by its file's name. Raises UnitError."""
    return {f"{timer.name}.service": _render_service(timer), f"{timer.name}.timer": _timer_unit(timer)}


def _render_service(timer: SystemdTimer) -> str:
    metrics = f" --prom {_exec_word(timer.prom)}" if timer.prom else ""
    # A dash: a missing path does not prevent the start of the service, and the program reports it.
    folders = [timer.state / "sparkrack", *([timer.prom.parent] if timer.prom else [])]
    writable = " ".join(_path_setting(folder, "-") for folder in folders)
    return resources.file_text(
        "sparkrack.drift",
        "templates/sparkrack-drift.service",
        rack=timer.rack,
        user=_setting_text(timer.user),
        rack_file=_quote_assignment("RACK", timer.file),
        state=_quote_assignment("XDG_STATE_HOME", timer.state),
        secrets=SECRETS,
        program=_exec_word(timer.program),
        metrics=metrics,
        writable=writable,
    )


def _timer_unit(timer: SystemdTimer) -> str:
    return resources.file_text("sparkrack.drift", "templates/sparkrack-drift.timer", rack=timer.rack, every=timer.every)


def _setting_text(text: str) -> str:
    """Text as the value of a setting. Raises UnitError for what would end the line or mean something else."""
    if not text.isprintable() or not text or text.endswith("\\"):
        raise UnitError(f"{text!r} cannot stand in a unit file")
    return text.replace("%", "%%")


def _quoted_setting(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _exec_word(path: Path) -> str:
    """A word of ExecStart, where $ begins a variable."""
    return _quoted_setting(_setting_text(str(path)).replace("$", "$$"))


def _path_setting(path: Path, mark: str) -> str:
    return _quoted_setting(mark + _setting_text(str(path)))


def _quote_assignment(name: str, path: Path) -> str:
    return _quoted_setting(f"{name}={_setting_text(str(path))}")


def write_units(folder: Path, made: Mapping[str, str]) -> Iterator[Path]:
    """Write the unit files into a folder, readable by all, and yield the path of each. Raises CommandError."""
    for name, text in made.items():
        try:
            write_atomic(folder / name, text, 0o644)
        except OSError as fault:
            raise CommandError(f"{folder / name}: {fault}") from None
        yield folder / name


def state_folder_of(user: str) -> Path:
    """Return the state folder of a user (XDG base directories). Raises CommandError for an unknown user and for
    root.
    """
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise CommandError(f"--user {user}: there is no such user here") from None
    if entry.pw_uid == 0:
        raise CommandError(f"--user {user}: name an ordinary user; looking needs no root")
    own = os.environ.get("XDG_STATE_HOME") if entry.pw_uid == os.getuid() else None
    return Path(own or Path(entry.pw_dir) / ".local/state").absolute()
