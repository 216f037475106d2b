"""What an engine prints when a phase of its start begins and ends. Pure.

Each engine has its own lines. serving/files/serve_phases.py has the phases, and reads the lines on each node.
"""

from __future__ import annotations

from collections.abc import Mapping

PhaseLines = Mapping[str, Mapping[str, str]]
"""Regular expressions by phase: `begin` and `end`. An end may have the seconds that the engine prints as the group
`seconds`."""
SECONDS = r"(?P<seconds>[0-9]+(?:\.[0-9]+)?)"
