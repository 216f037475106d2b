"""`sparkrack` itself, about the bench's deploy file: `python bench/ours.py plan ...`.

What the command evaluates is the deploy.py of the repository, whose roles ask for docker, netplan and a switch.
"""

import sys
from functools import partial
from pathlib import Path

import sparkrack.run.gevented  # noqa: F401 - first of all: it replaces parts of the standard library
from sparkrack.cli.main import main
from sparkrack.run import deployfile, session  # noqa: F401 - the session takes its inventory from beside the real one

HERE = Path(__file__).parent
if __name__ == "__main__":
    deployfile.code = partial(deployfile.code, path=HERE / "deploy.py")
    deployfile.DEPLOY = HERE / "deploy.py"
    sys.path.insert(0, str(HERE.parent))
    main()
