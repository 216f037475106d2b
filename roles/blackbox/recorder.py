"""The flight recorder of a node, and the receiver of other nodes' samples: program, units and their state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from core.model import Node, Rack
from core.model.fields import seconds
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.blackbox import clock_cap, journal_stream, stream_routes
from roles.blackbox.options import BlackboxOptions, RecorderOptions

NAME = "sparkrack-recorder.service"
RECEIVER = "sparkrack-recorder-receive.service"
NAMES = (NAME, RECEIVER)
PROGRAM = "/usr/local/lib/sparkrack/recorder.py"
UNITS = {name: f"/etc/systemd/system/{name}" for name in NAMES}
FOLDER = "/var/lib/sparkrack/blackbox"
RING = f"{FOLDER}/ring"
PEERS = f"{FOLDER}/peers"
METRICS = "/var/lib/prometheus/node-exporter/sparkrack-recorder.prom"
"""In the folder of the textfile collector, as the package of node_exporter configures it."""
CERTIFICATES = (journal_stream.AUTHORITY, journal_stream.CERTIFICATE, journal_stream.KEY)
"""The authority of the rack, the certificate of the node, which names it, and its key."""
PORT = 6667
SILENT = 60
"""Seconds without a sample after which a recorder that runs does not record."""


class SampleStream(NamedTuple):
    """How the samples of a node leave it: `mode` is tls or plain, `receiver` the node that keeps them."""

    mode: str
    address: str
    receiver: str


def options(rack: Rack) -> RecorderOptions | None:
    """Return the declared recorder; None for none."""
    return rack.options(BlackboxOptions).recorder or None


def sample_stream(rack: Rack, node: Node) -> SampleStream | None:
    """Return where the samples of a node go; None where they stay on it."""
    mode = rack.options(BlackboxOptions).remote
    if not mode or (receiver := stream_routes.receiver(rack, node)) is None:
        return None
    return SampleStream(mode, stream_routes.address(receiver), receiver.name)


def senders(rack: Rack, node: Node) -> dict[str, SampleStream]:
    """Return the streams of samples that this node keeps, by the name of the node that sends."""
    streams = {other.name: sample_stream(rack, other) for other in stream_routes.senders(rack, node)}
    return {name: stream for name, stream in streams.items() if stream is not None}


def files(rack: Rack, node: Node) -> list[ManagedFile]:
    """Return the program and the units of a node, in the order in which they are written; none without a recorder."""
    wanted = options(rack)
    if wanted is None:
        return []
    text = resources.file_text("roles.blackbox", "files/recorder.py")
    found = [ManagedFile(PROGRAM, text.encode(), "755"), unit(rack, node, wanted, sample_stream(rack, node))]
    if sending := senders(rack, node):
        found.append(receive_unit(rack, node, wanted, sending))
    return found


# claim: blackbox.recorder-hang
def unit(rack: Rack, node: Node, wanted: RecorderOptions, stream: SampleStream | None) -> ManagedFile:
    """Return the unit that takes the samples of a node."""
    command = [PROGRAM, "record", "--node", node.name, "--ring", RING, "--metrics", METRICS, *_ring_arguments(wanted)]
    if (cap := clock_cap.cap(rack, node)) is not None:
        command += ["--clock-cap", str(cap)]
    if stream is not None:
        command += ["--send", f"{stream.receiver}={stream.address}:{PORT}", *_tls_arguments(stream.mode)]
    text = resources.file_text(
        "roles.blackbox",
        "templates/sparkrack-recorder.service",
        header=header(rack.rack),
        command=" ".join(command),
        families="AF_UNIX AF_INET" if stream else "AF_UNIX",
    )
    return ManagedFile(UNITS[NAME], text.encode(), validate=validate_unit(NAME))


def receive_unit(rack: Rack, node: Node, wanted: RecorderOptions, sending: Mapping[str, SampleStream]) -> ManagedFile:
    """Return the unit that keeps the samples of other nodes, which all send in one mode."""
    mode = next(iter(sending.values())).mode
    command = [
        PROGRAM,
        "receive",
        "--folder",
        PEERS,
        "--listen",
        f"{stream_routes.address(node)}:{PORT}",
        *_ring_arguments(wanted),
    ]
    for name in sending:
        command += ["--peer", f"{name}={stream_routes.address(rack.nodes[name])}"]
    text = resources.file_text(
        "roles.blackbox",
        "templates/sparkrack-recorder-receive.service",
        header=header(rack.rack),
        command=" ".join([*command, *_tls_arguments(mode)]),
    )
    return ManagedFile(UNITS[RECEIVER], text.encode(), validate=validate_unit(RECEIVER))


def _ring_arguments(wanted: RecorderOptions) -> list[str]:
    return ["--rate", str(wanted.rate), "--keep", str(seconds(wanted.keep))]


def _tls_arguments(mode: str) -> list[str]:
    return ["--tls", *CERTIFICATES] if mode == "tls" else []


def age_text(seconds: float) -> str:
    """Return the age of a sample in words; the clock of a node may have gone back since."""
    return f"{seconds:.0f} s old" if seconds >= 0 else f"{-seconds:.0f} s in the future"


class RecorderState(NamedTuple):
    """What a node says of its recorder. `pending`: a run wrote files that no program has read yet. `age`: seconds since
    the last sample, negative where the clock went back since; None without a ring. `python`: whether there is an
    interpreter.
    """

    pending: bool
    age: int | None
    python: bool


def state(live: Mapping[tuple[str, str], str]) -> RecorderState:
    """Return the state of the recorder. Raises ValueError when it is unknown."""
    pending, age, python = (live.get(("recorder", name), "no answer") for name in ("pending", "age", "python"))
    if {pending, python} - {"yes", "no"} or not re.fullmatch(r"-?[0-9]{1,12}|absent", age):
        raise ValueError(f"blackbox recorder: unexpected probe output {f'{pending} {age} {python}'[:80]!r}")
    return RecorderState(pending == "yes", None if age == "absent" else int(age), python == "yes")
