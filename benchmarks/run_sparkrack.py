"""`sparkrack` itself, about the bench's deploy file: `python benchmarks/run_sparkrack.py plan ...`.

What the command evaluates is the deploy.py of the repository, whose roles ask for docker, netplan and a switch.
"""

import sys
from pathlib import Path

from core.util.fast_start import prepare_fast_start

prepare_fast_start()  # as sparkrack.cli.main does
import sparkrack.engine.gevent_patch  # noqa: E402, F401 - it replaces parts of the standard library
from sparkrack.cli.main import main  # noqa: E402
from sparkrack.engine import session  # noqa: E402 - it takes its inventory from beside the real deploy.py

HERE = Path(__file__).parent
if __name__ == "__main__":
    session.DEPLOY = HERE / "deploy.py"
    sys.path.insert(0, str(HERE.parent))
    main()
