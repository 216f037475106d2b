"""`sparkrack`, dead by SIGKILL after its Nth write: of a node, or of known_hosts. `killed.py N WORDS...`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from sparkrack.bootstrap.node_bootstrap import NodeBootstrap
from sparkrack.cli.main import main


def dying(after: int) -> None:
    """Count both kinds of write."""
    left = [after]

    def counted(write: Any) -> Any:
        def done(*arguments: Any, **more: Any) -> Any:
            result = write(*arguments, **more)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return done

    NodeBootstrap.write = counted(NodeBootstrap.write)  # type: ignore[method-assign]
    NodeBootstrap.pin = counted(NodeBootstrap.pin)  # type: ignore[method-assign]


if __name__ == "__main__":
    dying(int(sys.argv.pop(1)))
    main()
