"""Rollback timer on the switch: it reverts a run unless it is disarmed.

Safe mode guards against a lost session; the timer guards the time after the release of safe mode, in case no client is
left to verify the new state. It consists of two rows: a script with the exact inverse of the plan, and a schedule that
checks every few seconds whether its time is over, runs the script then, and both are removed. No reboot, no backup load
(which would reboot).

The time is measured in uptime, and the schedule starts at ``startup``, which with an interval means one interval after
it was added. A date as start is local time: a run may change the time zone or give the unit its first time server, so
that the timer would fire hours early, or years late; and RouterOS 7.24 to 7.24.4 do not run a schedule with the default
date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import RESOURCE, SAFE_MODE, SCHEDULER, SCRIPT, Release, Sentence
from core.routeros.rollback_script import quote, script
from core.routeros.safe_mode import enabled, holder, ours

if TYPE_CHECKING:
    from core.routeros.change_plan import ChangePlan
    from core.routeros.reading import SwitchReading

PREFIX = "sparkrack-undo-"
"""Prefix of the names of the rows of every run; the run's own name follows."""

_NAME = re.compile(rf"{PREFIX}(?:\d{{8}}T\d{{6}}-[0-9a-f]{{4}}(?:-restore)?|accept-[0-9a-f]{{8}})")
"""The names that runs give: a script of an owner that begins as they do is not ours."""

LOG_MARK = "sparkrack: "
"""Prefix of the lines that the script writes to the switch's log."""

LOOK_SECONDS = 1
"""Interval in seconds at which the schedule checks its time. No longer: each run waits for the first check before it
writes anything else.
"""

PROOF_SECONDS = 10.0
"""Seconds within which the schedule must have run."""

POLICY = "read,write,policy,test,password,sensitive"
"""Policies that the inverse of any plan needs: rows of every menu, users among them."""


@dataclass(frozen=True)
class RollbackTimer:
    """The rollback timer of one run. `name`: of its rows. `fuse`: seconds until it acts, from when it is armed."""

    name: str
    fuse: float
    todo: ChangePlan
    release: Release

    def arm(self, uptime: float) -> tuple[Sentence, ...]:
        """The sentences that arm it on a unit that has been up for `uptime` seconds. Script first: a schedule
        without one would do nothing."""
        name = quote(self.name)
        # claim: switch.rollback.script-size
        own_rows = (f"{menu.path} remove [find where name={name}]" for menu in (SCHEDULER, SCRIPT))
        begin = f":log warning {quote(acting_message(self.name))}"
        source = "\n".join((begin, script(self.todo.changes, self.release), *own_rows))
        note = "=comment=undoes a run of sparkrack that was not finished; removes itself"
        run = f"{{ {SCRIPT.path} run {name} }}"
        # Less uptime than when it was armed: the unit was restarted, and no run is left to disarm it.
        event = "\n".join(
            f":if ([{RESOURCE.path} get uptime] {when}) do={run}"
            for when in (f"< {int(uptime)}s", f">= {round(uptime + self.fuse)}s")
        )
        return (
            (*(f"{SCRIPT.path}/add", f"=name={self.name}", f"=policy={POLICY}", note), f"=source={source}"),
            (
                *(f"{SCHEDULER.path}/add", f"=name={self.name}", f"=policy={POLICY}", note),
                # claim: switch.scheduler.startup, switch.scheduler.after-restart, switch.scheduler.start-date
                *("=start-time=startup", f"=interval={LOOK_SECONDS}s", f"=on-event={event}"),
            ),
        )

    @property
    def question(self) -> Sentence:
        """Return the sentence that asks how often the schedule has run."""
        return (f"{SCHEDULER.path}/print", "=.proplist=run-count", f"?name={self.name}")

    @property
    def not_run(self) -> str:
        """Return the reason not to rely on a schedule that did not run, with the release and the remedy."""
        release = ".".join(map(str, self.release[:3])).removesuffix(".0")
        return (
            f"the schedule of the rollback timer did not run within {PROOF_SECONDS:.0f} s on this device with RouterOS "
            f"{release}, so nothing would undo a run that is cut off; nothing else was written. Upgrade the switch "
            "(sparkrack upgrade switch --packages FOLDER), or look why schedules do not run (/system/scheduler/print, "
            "/system/device-mode/print)"
        )

    @property
    def fire(self) -> Sentence:
        """Return the sentence that reverts the run now."""
        return (f"{SCRIPT.path}/run", f"=number={self.name}")


def is_timer(name: str) -> bool:
    """Return whether a schedule or script of that name is the rollback timer of a run."""
    return _NAME.fullmatch(name) is not None


def acting_message(name: str) -> str:
    """Return the line in the switch's log when the timer of a run begins to act."""
    return f"{LOG_MARK}{name} undoes its run"


def armed_timers(reading: SwitchReading) -> tuple[str, ...]:
    """Return the names of all rollback timers in a reading. Raises RefusedError while another session holds safe mode:
    the run that armed them may still be active; UnreadableError when the switch does not report whether a session holds
    it.
    """
    rows = (row for menu in (SCHEDULER, SCRIPT) for row in reading.tables.get(menu.path, ()))
    names = tuple(dict.fromkeys(name for row in rows if is_timer(name := row.get("name", ""))))
    if not names:
        return ()
    modes = reading.tables.get(SAFE_MODE.path, ())
    if len(modes) != 1 or "enabled" not in modes[0]:
        raise UnreadableError(
            f"rollback timer {', '.join(names)} is armed and {SAFE_MODE.path} does not show if a run is in progress"
        )
    (mode,) = modes
    if enabled(mode) and not ours(mode):
        raise RefusedError(
            (f"rollback timer {', '.join(names)} is armed and {holder(mode)} holds safe mode: a run is in progress",)
        )
    return names
