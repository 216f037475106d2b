"""Measured values of checks: a report shows them in tables instead of parsing sentences."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from core.model import Address
from core.util.records import Record


class Reachability(Record):
    """Whether frames of full size reach the same half of another node's port."""

    kind: Literal["reach"] = "reach"
    half: int = Field(description="0 or 1: which half (twin) of a port")
    sender: str = Field(description="the node that asks")
    sender_device: str = Field(description="its network device")
    receiver: str = Field(description="the node that has to answer")
    receiver_device: str = Field(description="its network device")
    mtu: int = Field(description="bytes of the frames that were sent")
    reached: bool | None = Field(description="null: the sender could not be asked")

    @classmethod
    def between(cls, here: Address, there: Address, mtu: int, reached: bool | None) -> Reachability:
        """From the half that has one address to the half that has the other."""
        return cls(
            half=here.half.index,
            sender=here.half.node,
            sender_device=here.device,
            receiver=there.half.node,
            receiver_device=there.device,
            mtu=mtu,
            reached=reached,
        )


class Bandwidth(Record):
    """Rate from one half to a neighbour, or from both halves of a port at once."""

    kind: Literal["bandwidth"] = "bandwidth"
    halves: tuple[int, ...] = Field(description="which halves (twins) of the port sent at once")
    sender: str = Field(description="the node that sends")
    sender_devices: tuple[str, ...] = Field(description="its network devices, in the order of `halves`")
    receiver: str = Field(description="the node that receives")
    gbps: tuple[float, ...] = Field(description="Gbit/s of each half; empty: not measured")
    least: float | None = Field(description="Gbit/s of all halves together that are enough; null: not measured")
    verdict: str = Field(description="`healthy`, a name of docs/runbooks/bandwidth.md, or `not measured`")
    good: bool | None = Field(description="whether there is nothing to do; null: not measured")
    reason: str = Field(description="the next step, or the reason for which nothing was measured")


class AllReduceMeasurement(Record):
    """An all-reduce over nodes in containers of one image, beside the rate of the wire between the same nodes."""

    kind: Literal["all_reduce"] = "all_reduce"
    name: str = Field(description="of what rack.yaml runs on these nodes")
    nodes: tuple[str, ...] = Field(description="one rank on each, in rank order")
    image: str = Field(description="as in rack.yaml")
    image_id: str | None = Field(description="null: unknown")
    size: int = Field(description="bytes of one all-reduce")
    gbytes: float | None = Field(description="GB/s of bus bandwidth, as nccl-tests counts it; null: not measured")
    least: float | None = Field(
        description="GB/s that are enough at the speed of the slowest node's links; null: unknown"
    )
    best: float | None = Field(description="GB/s of the best earlier result with this image; null: none is kept")
    best_when: str | None = Field(description="when that was, UTC; null: none is kept")
    nccl: str | None = Field(description="version of NCCL in the image; null: unknown")
    networks: tuple[str, ...] = Field(description="that NCCL names, `IB` or `Socket`; empty: unknown")
    wire: tuple[float, ...] = Field(
        description="Gbit/s of the slowest and the fastest half between these nodes by ib_write_bw; empty: not measured"
    )
    wire_least: float | None = Field(description="Gbit/s of the slowest half that are enough; null: not measured")
    wire_verdict: str = Field(description="`healthy`, what is wrong and between which nodes, or `not measured`")
    wire_good: bool | None = Field(description="null: not measured between all of them")
    slow: Literal["nothing", "wire", "all-reduce"] | None = Field(
        description="which is too slow; a slow wire is the cause of a slow all-reduce; null: unknown"
    )
    good: bool | None = Field(description="whether there is nothing to do; null: not measured")
    reason: str = Field(description="the next step, or the reason for which nothing was measured")


Measured = Reachability | Bandwidth | AllReduceMeasurement
Found = Annotated[Measured, Field(discriminator="kind")]
"""One measured value."""

_FOUND: TypeAdapter[Measured] = TypeAdapter(Found)


def parse_measurement(text: str) -> Measured:
    """A value from its JSON, as a test's property holds it. Raises pydantic's ValidationError."""
    return _FOUND.validate_json(text)
