"""One of the examples that serve, vLLM on Ray on two nodes, from factory state to a completion, and stopped again.

`python -m tests.lab.serve_examples` does more, and for all of them.
"""

from __future__ import annotations

import pytest

from tests.lab.serve_examples import EXAMPLES, walk
from tests.lab.virtual import REPOSITORY


@pytest.mark.soak
def test_an_example_serves_from_factory_state() -> None:
    with walk(EXAMPLES["qwen3-235b-2-nodes-ray"], REPOSITORY / ".lab-test-example") as (found, file, _):
        found.to_first_completion(file)
        found.stops()
