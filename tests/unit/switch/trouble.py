"""What may happen to the head node, or to us, while the lock of the rack is wanted for work on a switch."""

from __future__ import annotations

import signal

from tests.unit.cli.test_unlock import OTHER, Head, send


class Trouble:
    """An operator's desk beside that head node, with what can go wrong there."""

    head: Head

    def no_sudo(self) -> None:
        (self.head.folder / "sudo").touch()

    def held(self) -> None:
        self.head.put(OTHER.text)

    def no_room(self) -> None:
        """The head node answers, and nothing can be written below /run."""
        self.head.lock.parent.touch()

    def unlocked(self) -> None:
        self.head.lock.unlink()

    def interrupted(self) -> None:
        raise KeyboardInterrupt

    def hung_up(self) -> None:
        send(signal.SIGHUP)
