"""Try a change that could cut a node off: the node itself takes it back unless somebody proves it good in time."""

from __future__ import annotations

from dataclasses import dataclass

from paramiko import SSHException
from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from sparkrack.ops.files import encoded
from sparkrack.ops.shell import quote, root

FOLDER = "/run/sparkrack"
"""Where a running trial is noted. It is gone after a reboot, as everything on trial is."""


@dataclass(frozen=True)
class Trial:
    """One change on trial. `revert` is the shell script that brings the old state back, `seconds` how long the
    node waits for proof."""

    name: str
    revert: str
    seconds: int

    @property
    def script(self) -> str:
        """The revert script on the node; it is there as long as the trial runs."""
        return f"{FOLDER}/{self.name}.revert"

    @property
    def unit(self) -> str:
        """The systemd unit that runs it, and its timer."""
        return f"sparkrack-revert-{self.name}"

    @property
    def busy(self) -> str:
        """What is said to somebody who comes while it runs."""
        return (
            f"a change of an earlier run is still on trial ({self.name}); "
            f"the node takes it back within {self.seconds} s: run again then"
        )

    def arm(self) -> StringCommand:
        """Start the clock. Fails when another trial of this name runs: its revert would undo this one."""
        # Timers are a minute late by default, hence AccuracySec (measured).
        return root(
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
        return root(
            f"systemctl stop {self.unit}.timer 2>/dev/null || true; "
            f"if [ ! -e {self.script} ] || systemctl is-active --quiet {self.unit}.service; then "
            f"echo {quote('the change was not proven in time and has been taken back')} >&2; exit 1; fi; "
            f"rm {self.script}; {then}",
            stdin=stdin,
        )

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
        """The change was not proven: take it back now, and say how that went. `what` it is that comes back."""
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
