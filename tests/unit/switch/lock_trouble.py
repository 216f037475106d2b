"""Failures of the head node, or of this run, while work on a switch needs the lock of the rack."""

from __future__ import annotations

import signal

from tests.unit.cli.test_unlock import OTHER, Head, send


class Trouble:
    """An operator's folder beside that head node, with possible failures."""

    head: Head

    def no_sudo(self) -> None:
        (self.head.folder / "sudo").touch()

    def held(self) -> None:
        self.head.put(OTHER.text)

    def no_room(self) -> None:
        """The head node answers, and nothing can be written below /run."""
        self.head.lock.parent.touch()

    def interrupted(self) -> None:
        raise KeyboardInterrupt

    def hung_up(self) -> None:
        send(signal.SIGHUP)
