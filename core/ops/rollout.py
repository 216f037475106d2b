"""Change the nodes of a run one at a time, and no other node after one has failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyinfra.api.host import Host

from core.ops.run_context import run_value


@dataclass
class Rollout:
    """Progress of one role in one run. The operation must be called with `_serial=True`.

    done: names of the nodes that are as declared. failed: name of the node whose change failed.
    """

    done: set[str] = field(default_factory=set)
    failed: str | None = None

    @property
    def blockers(self) -> tuple[str, ...]:
        """Why no other node may be changed; empty if none has failed."""
        if self.failed is None:
            return ()
        return (f"not touched, since {self.failed} failed and nodes change one at a time",)

    @contextmanager
    def step(self, host: Host, node: str) -> Iterator[None]:
        """Note the result of the change of a node, whose commands an operation yields inside this context.

        While a plan is made nothing is noted: an operation that is drained there has changed nothing.
        """
        try:
            yield
        # pyinfra ends an operation at its first failing command by closing its generator: GeneratorExit.
        except BaseException:
            if host.state.is_executing:
                self.failed = node
            raise
        if host.state.is_executing:
            self.done.add(node)


def rollout(host: Host, role: str) -> Rollout:
    """Return the progress of a role in the run of this host."""
    return run_value(host.state, Rollout, (Rollout, role))
