"""Run a proof: the verify files of all roles and of the switch, as one pytest session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from sparkrack.fleet import Rack
from sparkrack.proof.outcome import Outcome
from sparkrack.proof.plugin import Proof


def prove(rack: Rack, files: Iterable[Path], machines: Iterable[str], junit: Path | None) -> list[Outcome]:
    """Prove `rack` by these verify files, limited to these machines; every outcome, in the order of the checks.

    `junit`: where to write the same as JUnit XML. An empty list means that nothing was proven.
    """
    limited = frozenset(machines)
    proof = Proof(rack, nodes=limited & set(rack.nodes), switches=limited & set(rack.switches))
    arguments = [str(file) for file in files]
    # Nothing of the folder that the user stands in may change what is proven.
    arguments += ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:logging", "-c", "/dev/null"]
    arguments += ["--rootdir=/", "--import-mode=importlib", "-o", "python_files=verify.py"]
    if junit:
        junit.parent.mkdir(parents=True, exist_ok=True)
        arguments += [f"--junitxml={junit}", "-o", "junit_suite_name=sparkrack"]
    pytest.main(arguments, plugins=[proof])
    return proof.outcomes
