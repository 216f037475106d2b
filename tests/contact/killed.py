"""`sparkrack`, dead by SIGKILL after its Nth write: of a node, or of known_hosts. `killed.py N WORDS...`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from sparkrack.bootstrap.contact import Contact
from sparkrack.cli.main import main


def dying(after: int) -> None:
    """Let both kinds of write count."""
    left = [after]

    def counted(write: Any) -> Any:
        def done(*arguments: Any, **more: Any) -> Any:
            result = write(*arguments, **more)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return done

    Contact.write = counted(Contact.write)  # type: ignore[method-assign]
    Contact.pin = counted(Contact.pin)  # type: ignore[method-assign]


if __name__ == "__main__":
    dying(int(sys.argv.pop(1)))
    main()
