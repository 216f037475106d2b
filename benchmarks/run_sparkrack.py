"""`sparkrack` itself, about the bench's deploy file: `python benchmarks/run_sparkrack.py plan ...`.

What the command evaluates is the deploy.py of the repository, whose roles ask for docker, netplan and a switch.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
if __name__ == "__main__":  # each process of `verify` loads this file
    sys.path.insert(0, str(HERE.parent))
    from core.util.fast_start import prepare_fast_start

    prepare_fast_start()  # as sparkrack.cli.main does
    from sparkrack.cli import main as command

    if command.called_verb(sys.argv[1:]) in command.DRIVING:
        import sparkrack.engine.gevent_patch  # noqa: F401 - it replaces parts of the standard library
        from sparkrack.engine import session  # it takes its inventory from beside the real deploy.py

        session.DEPLOY = HERE / "deploy.py"
    command.main()
