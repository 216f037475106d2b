"""Journal and debug log of a command that changes hosts without a plan: bootstrap, driver, reboot, restore, serve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from core.model import Rack
from core.ops.run_lock import Holder, new_holder
from core.util.command_error import CommandError, DeclinedError
from core.util.debug_log import RunLog
from core.util.paths import state_folder
from core.util.provenance import revision
from core.util.scrub import scrub
from sparkrack.engine.journal import HostError, Line, RunFinished, RunJournal, RunResult, RunStarted, log_path
from sparkrack.engine.run_log import run_log


class RecordedRun:
    """One such command. It has neither journal nor log before `begin`: what only reads keeps none."""

    def __init__(self, rack: Rack, operation: str, log: RunLog) -> None:
        """`operation`: what is done on each host, as `ROLE: SENTENCE`. `log`: in memory until `begin`."""
        self._rack = rack
        self._operation = operation
        self._log = log
        self._journal: RunJournal | None = None
        self._failed: list[str] = []

    def begin(self, scope: str) -> Holder:
        """Begin the journal; return the run, for the lock. `scope`: what is changed, for example `restart of spark1`.
        Raises CommandError, before anything is changed, when no journal can be kept.
        """
        own = new_holder(scope)
        folder = state_folder(self._rack.rack) / "runs"
        started = RunStarted(
            run=own.id,
            operator=own.who,
            scope=own.what,
            file=str(self._rack.source),
            revision=revision(self._rack.source),
            plan="",
        )
        try:
            self._journal = RunJournal(folder, own.id)
            self._journal.write(started)
        except OSError as error:
            why = f"{folder}: no journal can be kept: {error.strerror}; nothing was changed"
            raise CommandError(why) from None
        self._log.keep(log_path(self._journal.path))
        return own

    def fail(self, host: str, reason: str) -> None:
        """Record that the operation failed on a host."""
        self._failed.append(host)
        if self._journal:
            self._write_journal(HostError(run=self._journal.run, host=host, reason=scrub(reason)))

    def end(self, result: RunResult) -> None:
        """End the journal. `result`: of the run; "failed" when a host failed."""
        if self._journal is None:
            return
        failed = tuple(dict.fromkeys(self._failed))
        self._write_journal(
            RunFinished(
                run=self._journal.run,
                result="failed" if failed and result == "done" else result,
                failed=failed,
                in_progress=dict.fromkeys(failed, self._operation),
            )
        )
        self._journal.close()

    def _write_journal(self, line: Line) -> None:
        with suppress(OSError):  # a full disk: the run goes on, and its journal has no end
            if self._journal:
                self._journal.write(line)


@contextmanager
def recorded_run(rack: Rack, operation: str) -> Iterator[RecordedRun]:
    """Keep journal and debug log of the block, once it calls `RecordedRun.begin`. `operation`: see `RecordedRun`."""
    with run_log() as log:
        run = RecordedRun(rack, operation, log)
        result: RunResult = "failed"
        try:
            yield run
            result = "done"
        except (KeyboardInterrupt, DeclinedError):
            result = "interrupted"
            raise
        finally:
            run.end(result)
