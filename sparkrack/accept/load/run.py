"""The parts of the level `load`, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.claims.claims import Claim, LoadPart
from core.model import Port
from sparkrack.accept.evaluate import claim_result
from sparkrack.accept.load.bandwidth import bandwidth
from sparkrack.accept.load.burn import BURN_SECONDS, burned
from sparkrack.accept.load.cable import pulled_cable
from sparkrack.accept.load.part import LoadRun, Results
from sparkrack.accept.load.restart import restarted_node
from sparkrack.accept.model import ClaimResult

MISSING = {"burn": "--burn SECONDS", "reboot": "--reboot NODE", "pull": "--pull NODE/PORT"}
"""The option that a part needs, where it needs one."""
TITLES: Mapping[LoadPart, str] = {
    "bandwidth": "measure the bandwidth between the nodes",
    "burn": "load the GPUs, one node after the other",
    "pull": "pull a cable and plug it in again",
    "reboot": "restart a node",
}


@dataclass(frozen=True)
class LoadOptions:
    """What is asked for. `reboot`: a node, empty for none; `pull`: a port; `checks`: the verify files that prove a
    node after its restart; `burn`: seconds of load of each GPU, 0 for none.
    """

    reboot: str = ""
    pull: Port | None = None
    checks: tuple[Path, ...] = ()
    burn: int = BURN_SECONDS

    def asks_for(self, part: LoadPart) -> bool:
        """Whether a run has this part."""
        return {"burn": bool(self.burn), "reboot": bool(self.reboot), "pull": self.pull is not None}.get(part, True)


def load_results(claims: Sequence[Claim], options: LoadOptions, run: LoadRun) -> Iterator[ClaimResult]:
    """Observe these claims by the parts that settle them. Raises LoadError."""
    parts: Mapping[LoadPart, Callable[[], Results]] = {
        "bandwidth": lambda: bandwidth(run),
        "pull": lambda: pulled_cable(run, options.pull) if options.pull else {},
        "reboot": lambda: restarted_node(run, options.reboot, options.checks),
        # Last, since it may take a node down.
        "burn": lambda: burned(run, options.burn),
    }
    for part, observe in parts.items():
        wanted = [claim for claim in claims if claim.load == part]
        if not wanted or not options.asks_for(part):
            continue
        hosts = {"reboot": [options.reboot], "pull": [options.pull.node] if options.pull else []}.get(part, run.nodes)
        run.progress.phase(TITLES[part], hosts)
        found = observe()
        for claim in wanted:
            yield claim_result(claim, found.get(claim.id, ()))
