"""Proof that RDMA over a half carries what its cable can, since the last boot and change of carrier at either end.

A ConnectX-7 may carry 13 Gbit/s after a boot, or after its link was down, with a link that looks healthy (reported):
only a measurement shows it. So each half that NCCL uses has sent to the next node of its unit by `ib_write_bw` once
since then.

The gates of all nodes of a unit meet: each one listens on its halves, tells a peer its boot ID and its counter of
carrier changes, and runs the receiving end when that peer has no proof for them. A gate that is run alone compares its
records with the state of its own halves.

A record is /var/lib/sparkrack/serve/rdma/INTERFACE.PEER.json:

    half, peer, gbps, least, measured
    here, there    {"boot", "carrier_changes"} of this node's half and of the peer's, before the measurement

Fields of `proof` in the file of the gate; its messages are those of serve_unit.py, with the secret of the unit:

    secret_file, meeting_port, options (of ib_write_bw), stale_remedy
    sends      [{"peer", "half", "device", "address", "peer_address", "port", "least", "stale"}, ...]; Gbit/s,
               stale: [from, to] of the known fault, or null
    receives   [{"peer", "half", "device", "address", "port"}, ...]
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from serve_gate_command import GateCommand, GateError, run
from serve_unit import (
    ServeError,
    ask_at,
    challenge,
    line,
    read_line,
    read_private,
    read_record,
    seal,
    unseal,
    write_record,
)

RECORDS = "/var/lib/sparkrack/serve/rdma"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
GID_INDEX = "/usr/local/lib/sparkrack/gid-index"
MEETING_LIMIT = 60.0
"""Seconds that the gate of a peer may begin later than this one."""
MESSAGE_LIMIT = 3.0
LISTEN_LIMIT = 8.0
"""Seconds until the receiving tool listens."""
TOOL_LIMIT = 15.0
"""Seconds for one measurement, which takes 5 and the time to connect."""
MOST_HALVES = 4
ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", re.MULTILINE)
"""A row of ib_write_bw: bytes, iterations, peak, average, messages."""


class RdmaProof:
    """The proofs of one node. `place`: where a path of the node is; `listening`: its TCP ports with a listener."""

    def __init__(
        self,
        names: tuple[str, str],
        wanted: Mapping[str, Any],
        place: Callable[[str], str],
        listening: Callable[[], set[int]],
        alone: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """`alone`: while it is held, no gate of another unit of this node measures."""
        self.node, self.unit = names
        self.wanted, self.place, self.listening, self.alone = wanted, place, listening, alone
        self.refusals: dict[str, str] = {}
        """Why the gate of a peer has refused: its last message."""

    def check(self, together: bool) -> None:
        """Compare the records, and measure what has none if the gates of all nodes run. Raises GateError."""
        if together:
            self._meet_peers()
            return
        for half in self.wanted["sends"]:
            if reason := self.unproven(half, self.state(half["half"]), None):
                raise GateError(
                    f"RDMA over {half['half']} to {half['peer']} is not proven: {reason}; `sparkrack serve start "
                    f"{self.unit}` measures it"
                )

    def state(self, half: str) -> dict[str, Any]:
        """Return boot ID and counter of carrier changes of a half. Raises GateError when they cannot be read."""
        found = []
        for path in (BOOT_ID, f"/sys/class/net/{half}/carrier_changes"):
            try:
                found.append(Path(self.place(path)).read_text(encoding="ascii").strip())
            except (OSError, ValueError) as error:
                shown = getattr(error, "strerror", None) or "not ASCII"
                raise GateError(f"{path} cannot be read: {shown}; run `sparkrack verify --only fabric`") from None
        if not found[1].isdigit():
            raise GateError(
                f"carrier_changes of {half} is {line(repr(found[1]), 40)}, expected a number; restart the node"
            )
        return {"boot": found[0], "carrier_changes": int(found[1])}

    def unproven(self, half: Mapping[str, Any], here: object, there: object | None) -> str:
        """Return why a half is not proven, or nothing. `there`: None when the peer was not asked."""
        try:
            record = read_record(self._path_of_record(half))
        except ServeError as error:
            return str(error)
        if record is None:
            return "it was never measured"
        gbps = record.get("gbps")
        if isinstance(gbps, bool) or not isinstance(gbps, int | float):
            return f"{self._path_of_record(half)} has no figure"
        for name, recorded, state in (
            (self.node, record.get("here"), here),
            (half["peer"], record.get("there"), there),
        ):
            if state is not None and recorded != state:
                return f"{name} has booted, or its carrier has changed, since {line(record.get('measured'), 40)}"
        return "" if gbps >= half["least"] else f"it carried {gbps:.1f} Gbit/s, at least {half['least']:g} are expected"

    def _path_of_record(self, half: Mapping[str, Any]) -> str:
        return self.place(f"{RECORDS}/{half['half']}.{half['peer']}.json")

    # All gates together

    def _meet_peers(self) -> None:
        try:
            secret = read_private(self.place(self.wanted["secret_file"])).strip()
        except ServeError as error:
            raise GateError(f"{error}; run `sparkrack apply --only serving`") from None
        receivers = []
        try:
            for half in self.wanted["receives"]:
                receivers.append(ProofReceiver(self, half, secret))
            self._send_flows(secret)
            for receiver in receivers:
                receiver.wait()
        finally:
            for receiver in receivers:
                receiver.end()

    def _send_flows(self, secret: bytes) -> None:
        """Measure what is not proven, then tell each peer that was met that this gate is done, or why it refuses."""
        met: list[Mapping[str, Any]] = []
        refusal: dict[str, str] = {}
        try:
            self._measure_unproven(secret, met)
        except GateError as error:
            refusal = {"refusal": str(error)}
            raise
        finally:
            for half in met:
                with contextlib.suppress(GateError):
                    self._ask_peer(half, secret, "done", 0.0, refusal)

    def _measure_unproven(self, secret: bytes, met: list[Mapping[str, Any]]) -> None:
        """Measure one half after the other: both share the link of their port."""
        until = time.monotonic() + MEETING_LIMIT
        for half in self.wanted["sends"]:
            there = self._ask_peer(half, secret, "state", until)
            met.append(half)
            if fault := there.get("fault"):
                raise GateError(f"the gate of {half['peer']} has no answer: {line(fault, 200)}")
            here = self.state(half["half"])
            if self.unproven(half, here, there):
                with self.alone():
                    if self.unproven(half, here, there):  # no other unit has measured it meanwhile
                        self._measure_half(half, secret, here, there)

    def _ask_peer(
        self, half: Mapping[str, Any], secret: bytes, kind: str, until: float, more: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Ask the gate of the peer, over this half, until it answers, has refused, or the time has come."""
        address = (half["peer_address"], self.wanted["meeting_port"])
        content = {"kind": kind, "unit": self.unit, "sender": self.node, **(more or {})}
        limit = LISTEN_LIMIT + MESSAGE_LIMIT if kind == "receive" else MESSAGE_LIMIT
        while True:
            try:
                return ask_at(address, secret, content, limit, half["address"])
            except ServeError as error:
                self._raise_refusal(half["peer"])
                raise GateError(
                    f"the gate of {half['peer']} at {address[0]}:{address[1]}: {error}; run `sparkrack apply --only "
                    "serving` for all nodes of the unit"
                ) from None
            except OSError as error:
                self._raise_refusal(half["peer"])
                if time.monotonic() >= until:
                    raise GateError(
                        f"the gate of {half['peer']} does not answer over {half['half']} at {address[0]}:{address[1]} "
                        f"within {MEETING_LIMIT:g} s ({line(error.strerror or error, 60)}), so RDMA is not proven; "
                        f"look at `journalctl -u sparkrack-serve-{self.unit}-agent` there"
                    ) from None
            time.sleep(0.3)

    def _raise_refusal(self, peer: str) -> None:
        """Raise the refusal of a peer whose gate has ended with one: that it does not answer is not the cause."""
        if refusal := self.refusals.get(peer):
            raise GateError(f"the gate of {peer} refuses: {refusal}")

    def _measure_half(
        self, half: Mapping[str, Any], secret: bytes, here: dict[str, Any], there: dict[str, Any]
    ) -> None:
        where = f"RDMA over {half['half']} to {half['peer']}"
        fault = self._ask_peer(half, secret, "receive", 0.0).get("fault")
        if fault:
            raise GateError(f"{where} is not measured: {half['peer']} cannot receive: {line(fault, 200)}")
        code, output, errors = self.tool(half, half["peer_address"]).answer()
        rows = ROW.findall(output)
        if code or not rows:
            self._raise_refusal(half["peer"])
            shown = line((errors or output or "no output").splitlines()[-1], 120)
            raise GateError(
                f"{where} is not measured: ib_write_bw ends with {code}: {shown}; `sparkrack verify --only rdma "
                "--bandwidth` names the cause"
            )
        gbps = float(rows[-1])
        record = {
            "half": half["half"],
            "peer": half["peer"],
            "gbps": gbps,
            "least": half["least"],
            "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "here": here,
            "there": there,
        }
        path = Path(self._path_of_record(half))
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_record(str(path), record)
        except OSError as error:
            raise GateError(f"{RECORDS}/{path.name} cannot be written: {error.strerror}; look at `df`") from None
        if gbps < half["least"]:
            stale = half["stale"] and half["stale"][0] <= gbps < half["stale"][1]
            remedy = "`sparkrack verify --only rdma --bandwidth` names the cause"
            raise GateError(
                f"{where} carries {gbps:.1f} Gbit/s, at least {half['least']:g} are expected; "
                + (f"stale ConnectX-7: {self.wanted['stale_remedy']}" if stale else remedy)
            )

    def tool(self, half: Mapping[str, Any], *peer: str) -> GateCommand:
        """Start ib_write_bw at a half: it sends to `peer`, or receives."""
        folder = self.place(f"/sys/class/net/{half['half']}/device/infiniband")
        try:
            device = min(path.name for path in Path(folder).iterdir())
        except (OSError, ValueError):
            device = half["device"]
        code, number, _ = run(self.place(GID_INDEX), device)
        gid = ["-x", number] if not code and number.isdigit() else []
        words = ["ib_write_bw", "-d", device, *gid, "-p", str(half["port"]), *self.wanted["options"], *peer]
        return GateCommand(*words, limit=TOOL_LIMIT)


class ProofReceiver:
    """One half of this node, to which one peer sends: it answers the gate of the peer, in a thread of its own."""

    def __init__(self, proof: RdmaProof, half: Mapping[str, Any], secret: bytes) -> None:
        self.proof, self.half, self.secret = proof, half, secret
        self._begun = time.monotonic()
        self._asked, self._ended = threading.Event(), threading.Event()
        self._tool: GateCommand | None = None
        address = (half["address"], proof.wanted["meeting_port"])
        try:
            self._listener = socket.create_server(address)
        except OSError as error:
            raise GateError(
                f"the gate cannot listen at {address[0]}:{address[1]}: {error.strerror}; `ss -ltnp 'sport = "
                f":{address[1]}'` names what does"
            ) from None
        self._listener.settimeout(0.2)
        self._thread = threading.Thread(target=self._serve_connections, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the peer is done. One that never comes has a gate that fails, or does not run."""
        self._asked.wait(max(0.0, self._begun + MEETING_LIMIT - time.monotonic()))
        if self._asked.is_set():
            most = MEETING_LIMIT + MOST_HALVES * TOOL_LIMIT
            self._ended.wait(max(0.0, self._begun + most - time.monotonic()))

    def end(self) -> None:
        """End the thread and the tool."""
        self._ended.set()
        self._thread.join()
        if self._tool:
            self._tool.end()

    def _serve_connections(self) -> None:
        with self._listener:
            while not self._ended.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # nothing has connected
                    continue
                with connection, contextlib.suppress(OSError, ServeError):  # the peer asks again
                    self._answer_question(connection)

    def _answer_question(self, connection: socket.socket) -> None:
        once = challenge()
        connection.settimeout(MESSAGE_LIMIT)
        connection.sendall(f"{once}\n".encode())
        content = unseal(self.secret, "question", once, read_line(connection, time.monotonic() + MESSAGE_LIMIT))
        if (content.get("unit"), content.get("sender")) != (self.proof.unit, self.half["peer"]):
            return
        self._asked.set()
        if refusal := content.get("refusal"):
            self.proof.refusals[self.half["peer"]] = line(refusal, 400)
        answer: dict[str, Any] = {}
        try:
            if content.get("kind") == "state":
                answer = self.proof.state(self.half["half"])
            elif content.get("kind") == "receive":
                self._start_receiver()
        except GateError as error:
            answer = {"fault": str(error)}
        connection.sendall(seal(self.secret, "answer", f"{once}{content['nonce']}", answer))
        if content.get("kind") == "done":
            self._ended.set()

    def _start_receiver(self) -> None:
        """Start the tool and wait until it listens."""
        if self._tool:
            self._tool.end()
        self._tool = self.proof.tool(self.half)
        until = time.monotonic() + LISTEN_LIMIT
        while self.half["port"] not in self.proof.listening():
            if self._tool.ended:
                code, output, errors = self._tool.answer()
                shown = line((errors or output or "no output").splitlines()[-1], 120)
                raise GateError(f"ib_write_bw ends with {code}: {shown}; look at its package perftest")
            if time.monotonic() >= until:
                raise GateError(
                    f"ib_write_bw does not listen on port {self.half['port']} within {LISTEN_LIMIT:g} s; look at "
                    "`rdma link`"
                )
            time.sleep(0.1)
