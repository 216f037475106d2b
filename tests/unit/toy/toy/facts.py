"""What a node says of its toy."""

from __future__ import annotations

from dataclasses import dataclass

from core.model import Rack
from core.ops import host_facts

from .desired import PATH

host_facts.register("toy", host_facts.Probe(files=(PATH,)))


@dataclass(frozen=True)
class ToyFacts:
    """The facts of a node, and the rack."""

    reading: host_facts.HostReading
    rack: Rack
