"""A script that a node runs as a transient systemd unit: it outlives the connection and the run that starts it.

A run watches it; the next run finds it still active, or ended.
"""

from __future__ import annotations

import base64
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import gevent
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.host import Host

from core.model import ConfigError
from core.ops.shell import ASK_SECONDS, run_script

POLL_SECONDS = 1.0
"""Seconds between two checks of a unit, or of the sources."""
PROGRESS_SECONDS = 5.0
"""Seconds between two lines about its progress."""
STALL = 1800.0
"""Seconds without progress after which a unit is ended. docker's own store writes a whole image out before the first
byte is sent, and unpacks it after the last."""


class TransferStoppedError(Exception):
    """A node cannot get an image or a model. The text has the reason."""


class UnitState(Protocol):
    """What the output of a unit means; compared as a whole, to see whether anything has moved."""

    @property
    def running(self) -> bool:
        """Whether the unit has not ended yet."""


S = TypeVar("S", bound=UnitState)


def list_running(prefix: str) -> str:
    """Return shell text that prints the units of earlier runs that have not ended: `prefix` begins their names."""
    # systemd removes the folder when the unit has ended.
    return (
        f"for c in /sys/fs/cgroup/system.slice/{prefix}*.service; do "
        '[ ! -d "$c" ] || { c=${c##*/}; echo "${c%.service}"; }; done'
    )


def running_units(output: str, prefix: str, probe: str) -> frozenset[str]:
    """Parse the output of `list_running`. Raises ValueError, which names the probe, for any other output."""
    units = output.split()
    for unit in units:
        if not unit.startswith(prefix):
            raise ValueError(f"{probe}: unexpected probe output {unit[:80]!r}")
    return frozenset(units)


@dataclass(frozen=True)
class DetachedUnit:
    """A transient unit by its name, without .service, and the folder of its script and its log, in /run."""

    name: str
    folder: str

    @property
    def job(self) -> str:
        """The path of what the script reads, for a unit that is started with a job."""
        return f"{self.folder}/{self.name}.job"

    def start(
        self,
        script: bytes,
        interpreter: Sequence[str],
        description: str,
        *,
        user: str = "",
        arguments: Sequence[str] = (),
    ) -> str:
        """Return shell text that starts it, and fails when a unit of that name already runs.

        script: a text or an archive, which the interpreter runs. interpreter: the command before its path. user: root
        if empty. arguments: after the path; when the job is among them, it is read from standard input in base64, and
        only root can read it.
        """
        base = f"{self.folder}/{self.name}"
        encoded = base64.b64encode(script).decode()
        command = shlex.join([*interpreter, f"{base}.script", *arguments])
        launch = (
            f"systemd-run --quiet --collect --unit={self.name} {f'--uid={shlex.quote(user)} ' if user else ''}"
            f"--description={shlex.quote(description)} "
            f"--property=StandardOutput=append:{base}.log --property=StandardError=append:{base}.log {command}"
        )
        if self.job in arguments:
            launch = (
                f"rm -f {self.job}; (umask 077; base64 -d > {self.job}); "
                f"{launch} || {{ code=$?; rm -f {self.job}; exit $code; }}"
            )
        return (
            f"mkdir -p {self.folder}; rm -f {base}.log; printf %s {encoded} | base64 -d > {base}.new; "
            f"mv {base}.new {base}.script; {launch}"
        )

    def look(self) -> str:
        """Return shell text that prints whether the unit runs, and the end of its output."""
        # is-active fails for a unit that has ended; without any output, systemd did not answer.
        return (
            f'state=$(systemctl is-active {self.name}.service) || [ -n "$state" ] || exit 1; echo "$state"; '
            f"[ ! -e {self.folder}/{self.name}.log ] || tail -c 16000 {self.folder}/{self.name}.log | tr '\\r' '\\n'"
        )

    def stop(self) -> str:
        """Return shell text that stops it."""
        return f"systemctl stop {self.name}.service"


def output_of(lines: Collection[str]) -> tuple[bool, list[str]]:
    """Parse the output of `look`: whether the unit runs, and the lines of its log. Raises ValueError for no output."""
    if not lines:
        raise ValueError("the node does not say whether its transfer still runs")
    state, *log = (line.strip() for line in lines)
    return state in ("active", "activating", "deactivating", "reloading"), log


def send(host: Host, script: str, stdin: str | None = None, seconds: float = ASK_SECONDS) -> list[str]:
    """Run a script on a node and return its output. Raises TransferStoppedError when it fails, OSError for the line."""
    fine, output, complaints = run_script(host, script, seconds, stdin)
    if not fine:
        raise TransferStoppedError("; ".join(complaints[-3:]) or f"the node could not: {script[:80]}")
    return output


def deliver(host: Host, role: str, deliveries: Callable[[], None], leave: Callable[[], None]) -> bool:
    """Carry out the deliveries of a node, and report why they stopped. Returns whether all are done.

    role: for the message. leave: called at the end in any case, so that no other node waits for this one.
    """
    try:
        deliveries()
    except (TransferStoppedError, ConfigError) as stopped:
        message = f"{stopped}"
    except (OSError, EOFError, SSHException) as error:
        message = f"{error}; a transfer in progress continues without this run, and the next run waits for it"
    else:
        return True
    finally:
        leave()
    host.log_styled(f"{role}: {message}", fg="red", log_func=logger.error)
    return False


def watch(
    host: Host, unit: DetachedUnit, source: str, parse: Callable[[list[str]], S], report: Callable[[S], None]
) -> S:
    """Wait until a unit has ended, and report its state from time to time. Raises TransferStoppedError when it hangs.

    parse: the state from the output of `look`; raises ValueError. source: where it fetches from, for the message.
    """
    last_report = moved = time.monotonic()
    before: S | None = None
    while True:
        try:
            now = parse(send(host, unit.look()))
        except ValueError as unknown:
            raise TransferStoppedError(str(unknown)) from None
        if not now.running:
            return now
        clock = time.monotonic()
        if now != before:
            moved = clock
        if clock - moved > STALL:
            send(host, unit.stop())
            raise TransferStoppedError(f"from {source}: nothing moved for {STALL / 60:.0f} minutes, so it was ended")
        if clock - last_report >= PROGRESS_SECONDS:
            last_report = clock
            report(now)
        before = now
        gevent.sleep(POLL_SECONDS)
