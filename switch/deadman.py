"""The switch's own hand on the brake: a timer on the device that undoes a run unless it is disarmed.

Safe mode guards a session that gets lost; this guards the time after its release, when nobody is left who
could prove the new state. It is two rows: a script with the exact inverse of the plan, and a schedule that
looks every few seconds whether the fuse has burnt down, runs the script then, and both are gone. No reboot,
no backup load (which would reboot).

The fuse is measured in uptime. A schedule's own start time is local time, and a run may change the time zone
or give the unit its first time server: the dead man would act hours early or late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import RefusedError
from .menus import RESOURCE, SAFE_MODE, SCHEDULER, SCRIPT, Release, Sentence
from .safemode import enabled, holder, ours
from .undo import quote, script

if TYPE_CHECKING:
    from .batch import Plan
    from .reading import Reading

PREFIX = "sparkrack-undo-"
"""How the rows of every run begin; what follows is the run's own name."""

LOG_MARK = "sparkrack: "
"""How the lines begin that the script writes to the switch's log."""

LOOK_SECONDS = 10
"""How often it looks whether its time has come."""

POLICY = "read,write,policy,test,password,sensitive"
"""What the inverse of any plan needs: rows of every menu, users among them."""


@dataclass(frozen=True)
class DeadMan:
    """The dead man of one run. `name`: its rows'. `fuse`: seconds until it acts, from when it is armed."""

    name: str
    fuse: float
    todo: Plan
    release: Release

    def arm(self, uptime: float) -> tuple[Sentence, ...]:
        """The sentences that arm it on a unit that has been up for `uptime` seconds. Script first: a schedule
        without one would do nothing."""
        name = quote(self.name)
        own_rows = (f"{menu.path} remove [find where name={name}]" for menu in (SCHEDULER, SCRIPT))
        begin = f":log warning {quote(acting(self.name))}"
        source = "\n".join((begin, script(self.todo.changes, self.release), *own_rows))
        note = "=comment=undoes a run of sparkrack that was not finished; removes itself"
        run = f"{{ {SCRIPT.path} run {name} }}"
        # Less uptime than when it was armed: the unit was restarted, and nobody is left to disarm.
        event = "\n".join(
            f":if ([{RESOURCE.path} get uptime] {when}) do={run}"
            for when in (f"< {int(uptime)}s", f">= {round(uptime + self.fuse)}s")
        )
        look = max(1, min(LOOK_SECONDS, round(self.fuse / 20)))
        return (
            (*(f"{SCRIPT.path}/add", f"=name={self.name}", f"=policy={POLICY}", note), f"=source={source}"),
            (
                *(f"{SCHEDULER.path}/add", f"=name={self.name}", f"=policy={POLICY}", note),
                # A start long ago, so that a clock set back does not let it sleep.
                *("=start-date=1970-01-01", "=start-time=00:00:00", f"=interval={look}s", f"=on-event={event}"),
            ),
        )

    @property
    def fire(self) -> Sentence:
        """Undo now."""
        return (f"{SCRIPT.path}/run", f"=number={self.name}")


def acting(name: str) -> str:
    """What the switch's log says when the timer of a run begins to act."""
    return f"{LOG_MARK}{name} undoes its run"


def left_armed(reading: Reading) -> tuple[str, ...]:
    """The names of all dead men in a reading. Raises RefusedError while another session holds safe mode: the run that
    armed them may still be going on."""
    rows = (row for menu in (SCHEDULER, SCRIPT) for row in reading.tables.get(menu.path, ()))
    names = tuple(dict.fromkeys(name for row in rows if (name := row.get("name", "")).startswith(PREFIX)))
    modes = reading.tables.get(SAFE_MODE.path, ())
    busy = next((row for row in modes if enabled(row) and not ours(row)), None)
    if names and busy:
        raise RefusedError(
            (f"rollback timer {', '.join(names)} is armed and {holder(busy)} holds safe mode: a run is in progress",)
        )
    return names
