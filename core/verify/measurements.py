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


Found = Annotated[Reachability | Bandwidth, Field(discriminator="kind")]
"""One measured value."""

_FOUND: TypeAdapter[Reachability | Bandwidth] = TypeAdapter(Found)


def parse_measurement(text: str) -> Reachability | Bandwidth:
    """A value from its JSON, as a test's property holds it. Raises pydantic's ValidationError."""
    return _FOUND.validate_json(text)
