"""/system/scheduler at work: when each row runs next, and running it (MikroTik manual, 'Scheduler').

Rows with a date start by the clock; rows that start at ``startup`` count from the start of the unit, or from when they
were added, whatever the clock shows. What else a unit may do is in the configuration (``schedules``,
``keeps_next_run``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lab.routeros_emulator import durations
from lab.routeros_emulator.errors import TrapError
from lab.routeros_emulator.links import LinkTimer
from lab.routeros_emulator.menu import EmulatedRow
from lab.routeros_emulator.script.interpreter import SCRIPT, Course, client_of, course, script_course
from lab.routeros_emulator.script.lexer import ScriptError
from lab.routeros_emulator.store import StoreAction

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

SCHEDULER, CLOCK = "/system/scheduler", "/system/clock"
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: ``startup`` without an interval means so long after the start of the unit (s).
_STARTUP = 3.0
#: Releases that do not run a row with the default start, and which start that is. That it is this one is inferred: the
#: release notes of 7.24.5 do not name it, and rows without a start were seen to run with 7.24.2.
_BROKEN_SINCE, _MENDED = (7, 24), (7, 24, 5)
_DEFAULT_START = ("1970-01-01", "00:00:00")
_LONGEST_WAIT = 86400.0
_SLACK = timedelta(seconds=0.05)


class Schedule:
    """One timer for each row that has a next run. Rows that are saved go on after a restart of the unit from
    the start they were saved with; a run that was due while it was off is left out (inferred)."""

    def __init__(self, device: EmulatedDevice, later: Callable[[float, Callable[[], None]], LinkTimer]) -> None:
        self._device, self._later = device, later
        self._timers: dict[int, LinkTimer] = {}
        self._next: dict[int, datetime] = {}
        self._exact: dict[int, datetime] = {}
        self._boot = device.clock.up()
        #: Uptime when each row that starts at ``startup`` was added since the start of the unit, or got another start.
        self._added: dict[int, float] = {}
        self._fired: set[int] = set()
        device.store.observers.append(self._follow_action)

    def boot(self) -> None:
        """Arm the saved rows: the unit is up."""
        self._boot = self._device.clock.up()
        self._exact.clear()
        self._added.clear()
        self._fired.clear()
        self.arm_all()

    def stop(self) -> None:
        """Let no timer fire any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._next.clear()

    def next_run(self, number: int) -> datetime | None:
        """Return the time of a row's next run."""
        return self._next.get(number)

    def clock_moved(self) -> None:
        """The clock was set, by hand or by a time server. A unit that keeps its next runs reaches them when its clock
        does: one that was set back by years does not run them for years.
        """
        if not self._device.config.keeps_next_run:
            self.arm_all()
            return
        kept = dict(self._next)
        self.arm_all()
        for number, due in kept.items():
            row = self._device.store.get(SCHEDULER, number)
            if row.values["start-time"] != "startup" and number in self._timers:
                self._timers.pop(number).cancel()
                self._wait_for(number, due)

    def arm_all(self) -> None:
        """Compute every row's next run again, for example after a change of the clock or its zone."""
        self.stop()
        for row in self._device.store.rows(CLOCK):
            self._device.clock.live_in(row.values["time-zone-name"])
        for row in self._device.store.rows(SCHEDULER):
            self._arm_timer(row)

    def _read_clock(self) -> datetime:
        return self._device.clock.now().astimezone(UTC)

    def _follow_action(self, action: StoreAction) -> None:
        for change in action.changes:
            if change.path == CLOCK:
                self.clock_moved()
            elif change.path == SCHEDULER:
                if timer := self._timers.pop(change.id, None):
                    timer.cancel()
                self._next.pop(change.id, None)
                if change.after is not None:
                    self._remember_start(change.id, change.after, change.fields())
                    self._arm_timer(EmulatedRow(change.id, change.after))

    def _remember_start(self, number: int, values: dict[str, str], fields: frozenset[str]) -> None:
        """A row that starts now starts at this very moment, although it keeps whole seconds only."""
        if fields & {"start-date", "start-time"}:
            self._exact.pop(number, None)
            self._added[number] = self._device.clock.up()
            self._fired.discard(number)
            start, now = self._parse_start(values), self._read_clock()
            if start is not None and timedelta() <= now - start < timedelta(seconds=1):
                self._exact[number] = now

    def _parse_start(self, values: dict[str, str]) -> datetime | None:
        if values["start-time"] == "startup":
            return None
        text = f"{values['start-date']} {values['start-time']}"
        start = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=self._device.clock.zone)
        return start.astimezone(UTC)  # so that an interval stays as long as it is when summer ends

    def _next_due(self, row: EmulatedRow) -> datetime | None:
        if row.values["disabled"] == "true" or self._is_broken(row):
            return None
        interval = timedelta(seconds=durations.seconds(row.values["interval"]))
        now, start = self._read_clock(), self._exact.get(row.id) or self._parse_start(row.values)
        if start is None:
            return self._due_by_uptime(row, interval, now)
        if start > now:
            return start
        return start + ((now - start) // interval + 1) * interval if interval else None

    def _due_by_uptime(self, row: EmulatedRow, interval: timedelta, now: datetime) -> datetime | None:
        """The next run of a row that starts at ``startup``: with an interval one interval after the start of the unit,
        or after it was added.
        """
        config, up = self._device.config, self._device.clock.up()
        if not interval:
            left = self._boot + _STARTUP - up
            return now + timedelta(seconds=left) if left > 0 else None
        if config.schedules == "not-after-restart" and row.id not in self._added:
            return None
        start = self._added.get(row.id, self._boot)
        past = timedelta(seconds=up - start)
        if config.first_run is not None and row.id not in self._fired:
            return max(now, now + timedelta(seconds=config.first_run) - past)
        # Wall time and uptime are two clocks: a run that is due by the one may be due a moment later by the other.
        return now + ((past + _SLACK) // interval + 1) * interval - past

    def _is_broken(self, row: EmulatedRow) -> bool:
        """Whether the unit does not run this row at all."""
        if self._device.config.schedules == "never":
            return True
        default = (row.values["start-date"], row.values["start-time"]) == _DEFAULT_START
        return default and _BROKEN_SINCE <= self._device.version < _MENDED

    def _arm_timer(self, row: EmulatedRow) -> None:
        due = self._next_due(row)
        if due is not None:
            self._wait_for(row.id, due)

    def _wait_for(self, number: int, due: datetime) -> None:
        self._next[number] = due
        # A wait of years is longer than a timer can be: it is divided.
        wait = min((due - self._read_clock()).total_seconds(), _LONGEST_WAIT)
        self._timers[number] = self._later(max(wait, 0.0), lambda: self._fire_timer(number, due))

    def _fire_timer(self, number: int, due: datetime) -> None:
        self._timers.pop(number, None)
        self._next.pop(number, None)
        row = self._device.store.get(SCHEDULER, number)
        if self._read_clock() < due:  # a timer may come a moment early; the run must not come twice
            self._wait_for(number, due)
            return
        self._fired.add(number)
        self._arm_timer(row)
        days = list(filter(None, row.values.get("days", "").split(",")))
        if not days or DAYS[due.astimezone(self._device.clock.zone).weekday()] in days:
            self._run_event(row)

    def _run_event(self, row: EmulatedRow) -> None:
        """Run the event as the row's owner, with the row's policies. An event that is just the name of a
        script runs that with the script's own permissions."""
        device, name, event = self._device, row.values["name"], row.values["on-event"]
        device.jobs.started(SCHEDULER, row.id)
        policies = frozenset(filter(None, row.values["policy"].split(",")))
        named = device.store.find(SCRIPT, event.strip())
        script = f" {event.strip()}" if named is not None else ""

        def ended(error: ScriptError | TrapError | None) -> None:
            if error is None:
                return
            text = f"executing script{script} from scheduler ({name}) failed, please check it manually"
            device.tell("script,error", text)
            prefix = "" if script else f"(scheduler:{name}) "
            device.tell("script,error,debug", f"{prefix}{error}")

        def steps() -> Course:
            client = client_of(device, row.values.get("owner", ""), f"scheduler:{name}", policies)
            if named is not None:
                yield from script_course(device, client, event.strip(), own_permissions=True)
            else:
                yield from course(device, client, event)

        device.jobs.start(steps(), ended)
