"""`sparkrack` itself, about the bench's deploy file: `python benchmarks/run_sparkrack.py plan ...`.

What the command evaluates is the deploy.py of the repository, whose roles ask for docker, netplan and a switch.
"""

import sys
from pathlib import Path

import sparkrack.engine.gevent_patch  # noqa: F401 - first of all: it replaces parts of the standard library
from sparkrack.cli.main import main
from sparkrack.engine import session  # it takes its inventory from beside the real deploy.py

HERE = Path(__file__).parent
if __name__ == "__main__":
    session.DEPLOY = HERE / "deploy.py"
    sys.path.insert(0, str(HERE.parent))
    main()
