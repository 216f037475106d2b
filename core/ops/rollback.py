"""Revert timer on a node: the node itself reverts a change that could cut it off, unless it is confirmed in time."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass

from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.host import Host

from core.ops.remote_files import encoded
from core.ops.shell import quote, sudo_script

FOLDER = "/run/sparkrack"
"""Folder with the state of a pending change. A reboot removes it, as it reverts every pending change."""


@dataclass(frozen=True)
class PendingChange:
    """One pending change. `revert` is the shell script that restores the old state, `seconds` how long the node waits
    for the confirmation.
    """

    name: str
    revert: str
    seconds: int

    @property
    def script(self) -> str:
        """Path of the revert script on the node; it exists while the change is pending."""
        return f"{FOLDER}/{self.name}.revert"

    @property
    def unit(self) -> str:
        """The systemd unit that runs it, and its timer."""
        return f"sparkrack-revert-{self.name}"

    @property
    def busy(self) -> str:
        """Message for another run while the change is pending."""
        return (
            f"a change of an earlier run is still unconfirmed ({self.name}); "
            f"the node reverts it within {self.seconds} s: run again then"
        )

    def arm(self) -> StringCommand:
        """Arm the timer. Fails when another change of this name is pending: its revert would undo this one."""
        # Timers are a minute late by default, hence AccuracySec (measured).
        return sudo_script(
            f"umask 077; mkdir -p {FOLDER}; "
            f"if [ -e {self.script} ]; then echo {quote(self.busy)} >&2; exit 1; fi; "
            f"base64 -d > {self.script}.new; mv {self.script}.new {self.script}; "
            f"systemctl reset-failed {self.unit}.service {self.unit}.timer 2>/dev/null || true; "
            f"systemd-run --quiet --unit={self.unit} --on-active={self.seconds}s "
            f"--timer-property=AccuracySec=100ms /bin/sh {self.script} || {{ rm -f {self.script}; exit 1; }}",
            stdin=encoded(f"{self.revert}\nrm -f {self.script}\n".encode()),
        )

    def keep(self, then: str, stdin: str) -> StringCommand:
        """Stop the clock and make the change last with the script `then`. Fails when the node has taken it back."""
        return sudo_script(
            f"systemctl stop {self.unit}.timer 2>/dev/null || true; "
            f"if [ ! -e {self.script} ] || systemctl is-active --quiet {self.unit}.service; then "
            f"echo {quote('the change was not confirmed in time and has been reverted')} >&2; exit 1; fi; "
            f"rm {self.script}; {then}",
            stdin=stdin,
        )

    def attempt(
        self, host: Host, changes: Iterable[PyinfraCommand], what: str
    ) -> Generator[PyinfraCommand, None, None]:
        """Arm the timer, then make changes, of which the last is `keep`. When one fails, revert now.

        `what`: the state that is restored. Each change is made after the one before it was done.
        """
        armed = kept = False
        try:
            yield self.arm()
            armed = True
            yield from changes
            kept = True
        finally:
            # pyinfra ends an operation at its first failing command by closing this generator.
            if host.state.is_executing and armed and not kept:
                self.take_back(host, what)

    def revert_now(self, host: Host) -> bool:
        """Take the change back at once, without waiting for the clock; whether that went well."""
        command = f"systemctl stop {self.unit}.timer; [ ! -e {self.script} ] || /bin/sh {self.script}"
        done, _ = host.run_shell_command(
            StringCommand(command),
            print_input=host.state.print_input,
            print_output=host.state.print_output,
            _sudo=True,
            _timeout=self.seconds,
        )
        return done

    def take_back(self, host: Host, what: str) -> None:
        """Revert the unconfirmed change now, and report the result. `what`: the state that is restored."""
        try:
            done = self.revert_now(host)
        except (OSError, EOFError, SSHException):
            done = False
        if done:
            host.log(f"{what} is back")
            return
        host.log_styled(
            f"{what} could not be brought back from here; the node does it itself within {self.seconds} s",
            fg="red",
            log_func=logger.error,
        )
