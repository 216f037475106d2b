"""Silences of planned work: a run makes them at the server of the watch, with an end, for what it touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from core.model import Node, Port, Rack
from core.ssh.node_shells import ScriptError, open_shells, script_output
from core.util import resources
from roles.watch import desired
from roles.watch.options import WatchOptions
from serving.options import served_units

AUTHOR = "sparkrack"
"""Who makes the silences of runs. Their comment begins with the ID of the run."""
SETTLE_SECONDS = 120
"""Seconds from the end of the work until its alerts are over: scrapes, and the metrics that a node writes of itself."""
ANSWER_SECONDS, CONNECT_SECONDS = 20, 5

Silence = tuple[str, ...]
"""Matchers as amtool reads them: an alert is silenced that all of them match."""


def silences_of_nodes(rack: Rack, names: Iterable[str]) -> list[Silence]:
    """Return what is silent while these nodes are away: their alerts, those of the other ends of their cables, and of
    the units that have a rank there.
    """
    nodes = list(names)
    if not nodes:
        return []
    ports = [port for name in nodes for port in rack.cabling.ports_of(name)]
    far_ends = [
        end for port in ports if (cable := rack.cabling.cable_of(port)) for end in cable.ports if end.node not in nodes
    ]
    return [
        (_match_any("node", nodes),),
        *(
            (_match_any("node", [end.node]), _match_any("device", _list_interfaces(end)), 'alertname=~"Link.+"')
            for end in far_ends
        ),
        (_match_any("to", map(str, ports)), 'alertname=~"Switch(Drops|Errors)"'),
        *silences_of_units(
            unit.name for unit in served_units(rack).values() if set(unit.ranks(rack.nodes)) & set(nodes)
        ),
    ]


def silences_of_units(names: Iterable[str]) -> list[Silence]:
    """Return what is silent while these units stop and start: their alerts."""
    units = list(names)
    return [(_match_any("unit", units),)] if units else []


def silences_of_switches(rack: Rack, names: Iterable[str]) -> list[Silence]:
    """Return what is silent while these switches restart or change: their alerts, and those of the links to them."""
    found: list[Silence] = []
    for name in names:
        found.append((_match_any("switch", [name]),))
        ports = [port for _, port in rack.cabling.legs(name)]
        found += [
            (_match_any("node", [one.node]), _match_any("device", _list_interfaces(one)), 'alertname=~"Link.+"')
            for one in ports
        ]
    return found


def _list_interfaces(port: Port) -> list[str]:
    return [half.interface for half in port.halves]


def _match_any(label: str, values: Iterable[str]) -> str:
    """Return the matcher of a label with one of these values. A name has no other sign of an expression than a dot."""
    return f'{label}=~"{"|".join(value.replace(".", "[.]") for value in values)}"'


@contextmanager
def silenced(
    rack: Rack, run: str, work: str, silences: Iterable[Silence], seconds: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Silence alerts of planned work during the block, and until they are over after it.

    Args:
        rack: the rack. Nothing is done without `watch`.
        run: the ID of the run.
        work: what is done, such as "restart of spark1".
        silences: what it touches.
        seconds: how long it may take at most; the silences of a run that is killed end by then.
        say: prints a line. What cannot be silenced is one line, and never a reason not to do the work.
    """
    wanted = list(silences)
    if not wanted or rack.declared(WatchOptions) is None or not rack.keeps("watch"):
        yield
        return
    server, comment, made = desired.server(rack), f"{run} {work}", list[str]()
    if server is None:
        say(f"{work}: alerts are not silenced: {desired.server_address(rack)}, their server, is not a node of the rack")
        yield
        return
    try:
        made = _make_silences(rack, server, comment, wanted, seconds + SETTLE_SECONDS)
    except ScriptError as fault:
        say(f"{work}: alerts are not silenced: {fault}")
    try:
        yield
    finally:
        if made:
            try:
                _make_silences(rack, server, comment, wanted, SETTLE_SECONDS, made)
            except ScriptError as fault:
                say(f"{work}: its alerts stay silenced for at most {seconds + SETTLE_SECONDS:.0f} s: {fault}")


def _make_silences(
    rack: Rack, server: Node, comment: str, silences: Iterable[Silence], seconds: float, instead_of: Iterable[str] = ()
) -> list[str]:
    """Make silences on the server and return their IDs, then end others; none where no Alertmanager is installed.
    Raises ScriptError.
    """
    script = resources.shell_text("sparkrack.engine", "files/make-silences.sh")
    url = f"http://{desired.listen_address(rack)}:{desired.ALERTMANAGER_PORT}"
    # Matchers have no space; a line has one silence.
    lines = "\n".join(" ".join(matchers) for matchers in silences)
    words = (url, AUTHOR, comment, f"{seconds:.0f}s", lines, *instead_of)
    with open_shells(rack, [server.name], ANSWER_SECONDS, CONNECT_SECONDS) as shells:
        return script_output(shells, server.name, "make-silences", script, words).split()
