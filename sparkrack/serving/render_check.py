"""What `sparkrack serve check` found, as tables, and what `sparkrack serve render` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from core.model.errors import printable_line
from core.util.tables import print_sentence, print_whole
from serving.engines.memory_fit import COMFORTABLE_SHARE, HIGHEST_SHARE, MEMORY_GIB, Demand, Fit, Parallel, fits_on
from serving.engines.model_shape import ModelShape
from serving.launch import RankLaunch
from sparkrack.serving.check_units import ServeUnitsRecord, WeightSource, size_of_weights

COUNTS = (1, 2, 3, 4, 8)
"""Numbers of nodes that are shown when none is named."""
_WEIGHTS = {
    "lock file": "from the lock file",
    "config": "counted from the configuration",
    "declared": "as declared",
}
_SOURCES = {
    "measured": "measured at the last good start",
    "declared": "as declared",
    "default": "a default that nothing measured",
}


def show_units(found: ServeUnitsRecord) -> None:
    """Print the units as a table, and below it where the figures come from."""
    table = Table(box=None, pad_edge=False)
    table.add_column("unit", no_wrap=True)
    table.add_column("nodes", justify="right")
    table.add_column("split", no_wrap=True)
    for title in ("weights", "kv", "state", "overhead", "host", "GiB a node", "allowed"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("tokens left", justify="right", no_wrap=True)
    for one in found.units:
        sums = (one.weights, one.kv, one.state, one.overhead, one.host, one.total, one.allowed)
        table.add_row(
            one.unit,
            str(one.nodes),
            str(Parallel(one.tensor_parallel, one.pipeline_parallel)),
            *("-" if part is None else f"{part:.1f}" for part in sums),
            one.fits,
            "-" if one.tokens_left is None else str(one.tokens_left),
        )
    console = Console(highlight=False, markup=False)
    print_whole(console, table)
    for line in _describe_units(found):
        print_sentence(console, printable_line(line))


def _describe_units(found: ServeUnitsRecord) -> Iterator[str]:
    for one in found.units:
        if one.overhead is not None and one.overhead_from:
            weights = _WEIGHTS.get(one.weights_from or "", "of unknown size")
            yield f"{one.unit}: weights {weights}; overhead {one.overhead:.1f} GiB, {_SOURCES[one.overhead_from]}"
        if one.not_calibrated:
            yield f"{one.unit}: the calibration in the lock file does not count: {one.not_calibrated}"
        if one.reason:
            yield f"{one.unit}: {one.fits}: {one.reason}"
    for node in found.shared:
        parts = ", ".join(f"{name} {gib:.1f}" for name, gib in node.units.items())
        yield f"{node.node}: {parts}: {node.total:.1f} GiB together, at most {node.allowed:.1f} are allowed"
    kept = f", of which blackbox.kdump reserves {found.reserved:.2f}" if found.reserved else ""
    whole = "what is left" if kept else "it"
    share = f"the memory of a unit is the share of {whole} that its engine may take"
    yield f"A GB10 node has {MEMORY_GIB} GiB{kept}; {share}"


def show_model(
    shape: ModelShape, weights: float | None, source: WeightSource, demand: Demand, fits: dict[int, Fit]
) -> None:
    size, count = size_of_weights(shape, weights), sum(shape.parameters.values()) / 1e9
    words = {"option": "as given", "lock file": "from the lock file", "config": "counted from the configuration"}[
        source
    ]
    console = Console(highlight=False, markup=False)
    print_sentence(
        console,
        (f"{count:.1f} billion parameters, " if count else "an unknown number of parameters, ")
        + (f"{size / 1e9:.1f} GB of weights ({words}); " if size is not None else "weights of unknown size; ")
        + f"{demand.context} tokens in {demand.kv_format}, {demand.sequences} sequences",
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("nodes", justify="right")
    table.add_column("split", no_wrap=True)
    for title in ("weights", "kv", "state", "overhead", "GiB a node"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    table.add_column("tokens left", justify="right", no_wrap=True)
    for count, one in fits.items():
        cache = "cache" in one.unknown
        sums = (
            None if "weights" in one.unknown else one.weights,
            None if cache else one.kv,
            None if cache else one.state,
            one.overhead,
            one.total,
        )
        table.add_row(
            str(count),
            str(one.parallel),
            *("-" if part is None else f"{part:.1f}" for part in sums),
            one.verdict,
            "-" if cache else str(one.context_left),
        )
    print_whole(console, table)
    reasons: dict[str, list[int]] = {}
    for nodes, one in fits.items():
        if one.reason:
            reasons.setdefault(f"{one.verdict}: {one.reason}", []).append(nodes)
    for reason, numbers in reasons.items():
        print_sentence(console, f"{', '.join(map(str, numbers))} node{'' if numbers == [1] else 's'}: {reason}")
    fitting = [str(count) for count, one in fits.items() if one.verdict in ("yes", "tight")]
    limits = f"yes up to {COMFORTABLE_SHARE:.0%}, tight up to {HIGHEST_SHARE:.0%} of {MEMORY_GIB} GiB"
    if fitting:
        print_sentence(console, f"It fits on {', '.join(fitting)} node{'' if fitting == ['1'] else 's'} ({limits})")
        return
    if any(one.verdict == "unknown" for one in fits.values()):
        print_sentence(console, f"Whether it fits is unknown ({limits})")
        return
    possible = fits_on(shape, demand, weights, COUNTS)
    others = [str(count) for count, one in possible.items() if one.verdict in ("yes", "tight")]
    print_sentence(
        console, f"It does not fit ({limits}); it fits on {', '.join(others) or 'no number of nodes up to 8'}"
    )


def launch_lines(launch: RankLaunch, ranks: int) -> Iterator[str]:
    """What a rank runs, one argument a line. `ranks`: how many the unit has."""
    yield f"{launch.node}: rank {launch.rank} of {ranks}" + (", the head" if launch.rank == 0 else "")
    for title, lines in (
        ("command", launch.argv),
        ("docker run", (*launch.docker, launch.image)),
        ("environment", tuple(f"{name}={value}" for name, value in launch.environment.items())),
    ):
        yield f"  {title}:"
        yield from (f"    {printable_line(line)}" for line in lines)
