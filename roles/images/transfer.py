"""One fetch of one image by a node: started, watched and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyinfra.api.host import Host

from core.model.image_names import ImageName
from core.ops import detached_unit
from roles.images import desired, scripts
from roles.images.scripts import Progress


@dataclass(frozen=True)
class Transfer:
    """Parameters of a fetch on a node, as `user`; `folders`: docker's storage folders."""

    host: Host
    image: ImageName
    user: str
    folders: Sequence[str]

    def start(self, body: str, need: int) -> None:
        """Let the node run this script on its own, if it has `need` bytes of room. Raises TransferStoppedError."""
        self.send(scripts.start(self.image, self.user, body, self.folders, need))

    def start_copy(self, job: dict[str, object], size: int) -> None:
        """Let the node run the program that takes an image of `size` bytes from another node. Raises
        TransferStoppedError.
        """
        script, stdin = scripts.start_copy(self.image, job, self.folders, 3 * size + desired.MARGIN)
        detached_unit.send(self.host, script, stdin)

    def watch(self, source: str, size: int | None) -> Progress:
        """Wait until it has ended, and report the progress from time to time. Raises TransferStoppedError when it
        hangs.
        """

        def report(now: Progress) -> None:
            self.host.log(f"{self.image.local} from {source}: {far(now, size)}")

        return detached_unit.watch(self.host, scripts.detached(self.image), source, scripts.progress, report)

    def send(self, script: str) -> list[str]:
        """Run a script on the node and return its output. Raises TransferStoppedError when it fails."""
        return detached_unit.send(self.host, script)


def far(now: Progress, size: int | None) -> str:
    """Return the progress of a transfer as text."""
    if now.copied is not None:
        whole = f" of {size // 10**6}" if size else ""
        return f"{now.copied // 10**6}{whole} MB"
    done, layers = now.layers
    return f"{done} of {layers} layers" if layers else "begins"


def reason(ended: Progress) -> str:
    """Return why a transfer has failed."""
    return "; ".join(ended.reported[-3:]) or "it was ended from outside"
