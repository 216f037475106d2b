"""One fetch of one image by a node: started, watched, told about."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import gevent
from pyinfra.api.host import Host

from roles.images import scripts
from roles.images.scripts import Progress
from sparkrack.fleet.images import Image
from sparkrack.ops.shell import ask

PAUSE = 1.0
"""Seconds between two looks at a transfer, or at what others have."""
TOLD = 5.0
"""Seconds between two lines about its progress."""
STALL = 1800.0
"""Seconds without progress after which a transfer is ended. docker's own store writes a whole image out before the
first byte is sent, and unpacks it after the last."""


class StoppedError(Exception):
    """This node cannot have an image. The text says why."""


@dataclass(frozen=True)
class Transfer:
    """What fetches an image on a node, as `user`; `folders`: where docker keeps it."""

    host: Host
    image: Image
    user: str
    folders: Sequence[str]

    def start(self, body: str, need: int) -> None:
        """Let the node run this script on its own, if it has `need` bytes of room. Raises StoppedError."""
        self.send(scripts.start(self.image, self.user, body, self.folders, need))

    def watch(self, source: str, size: int | None) -> Progress:
        """Wait until it has ended, and say from time to time how far it is. Raises StoppedError when it hangs."""
        told = moved = time.monotonic()
        before: Progress | None = None
        while True:
            try:
                now = scripts.progress(self.send(scripts.look(self.image)))
            except ValueError as unknown:
                raise StoppedError(str(unknown)) from None
            if not now.running:
                return now
            clock = time.monotonic()
            if now != before:
                moved = clock
            if clock - moved > STALL:
                self.send(scripts.stop(self.image))
                raise StoppedError(f"from {source}: nothing moved for {STALL / 60:.0f} minutes, so it was ended")
            if clock - told >= TOLD:
                told = clock
                self.host.log(f"{self.image.local} from {source}: {far(now, size)}")
            before = now
            gevent.sleep(PAUSE)

    def send(self, script: str) -> list[str]:
        """What a script prints on the node. Raises StoppedError when it fails."""
        fine, output, complaints = ask(self.host, script)
        if not fine:
            raise StoppedError("; ".join(complaints[-3:]) or f"the node could not: {script[:80]}")
        return output


def far(now: Progress, size: int | None) -> str:
    """How far a transfer is, in words."""
    if now.copied is not None:
        whole = f" of {size // 10**6}" if size else ""
        return f"{now.copied // 10**6}{whole} MB"
    done, layers = now.layers
    return f"{done} of {layers} layers" if layers else "begins"


def reason(ended: Progress) -> str:
    """Why a transfer has failed."""
    return "; ".join(ended.said[-3:]) or "it was ended from outside"
