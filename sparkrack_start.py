"""Where the program begins: `sparkrack` and `python -m sparkrack_start`. Its import makes the packages importable.

Their names are general, and another project of the same environment may have a `core` or a `lab` of its own. So a wheel
has them in the folder sparkrack_program, and only a process of this program finds them. In a clone they stand beside
this file.
"""

import sys
from pathlib import Path

_INSTALLED = Path(__file__).parent / "sparkrack_program"

if _INSTALLED.is_dir() and str(_INSTALLED) not in sys.path:
    sys.path.insert(0, str(_INSTALLED))


def main() -> None:
    """Run the command."""
    from sparkrack.cli import main as command

    command.main()


if __name__ == "__main__":
    main()
