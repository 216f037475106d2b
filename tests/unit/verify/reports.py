"""Reports of constructed verifications, for tests and for the picture in the documents."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from core.model import Rack, reachable
from core.util.provenance import Origin
from core.verify.checked_roles import CHECKED_ROLES
from core.verify.measurements import AllReduceMeasurement, Bandwidth, Reachability
from core.verify.outcomes import Outcome
from core.verify.report import Report, report
from tests.unit.model.racks import SWITCH, loaded

ORIGIN = Origin(
    when=datetime(2026, 11, 21, 20, 33, 8, tzinfo=UTC), by="ops@desk", file="racks/rack.yaml", revision="0123456789ab"
)
RACK = loaded(SWITCH)
NODES, ALL = tuple(RACK.nodes), (*RACK.nodes, *RACK.switches)
HOSTILE = "<script>document.title = 'run'</script> & \"quoted\" 'twice' <img src=x onerror=alert(1)> {{ 7 * 7 }} \u202e"
"""Words of a machine that wants to be more than words."""
DEAD = "spark2: cannot be asked: ssh: connect to host 10.77.0.12 port 22: No route to host"


def passed(machine: str, part: str, **reported: object) -> Outcome:
    return Outcome(machine, part, f"roles/{part}/verify.py::test_it[{machine}]", passed=True, why="", **reported)  # type: ignore[arg-type]


def failed(machine: str, part: str, why: str, *, unknown: bool = False, check: str = "test_it") -> Outcome:
    name = f"roles/{part}/verify.py::{check}[{machine}]"
    return Outcome(machine, part, name, passed=False, why=why, unknown=unknown)


def skipped(machine: str, part: str, why: str) -> Outcome:
    return Outcome(machine, part, f"roles/{part}/verify.py::test_it[{machine}]", passed=False, why=why, skipped=True)


def reach(rack: Rack, reached: bool | None = True) -> list[Reachability]:
    """Every pair of a rack, all with one result."""
    return [
        Reachability(
            half=here.half.index,
            sender=here.half.node,
            sender_device=here.device,
            receiver=there.half.node,
            receiver_device=there.device,
            mtu=rack.fabric.mtu,
            reached=reached,
        )
        for here, there in reachable(rack)
    ]


def carries(
    sender: str, receiver: str, *gbps: float, verdict: str = "healthy", halves: tuple[int, ...] = (0,)
) -> Bandwidth:
    """A measurement; without figures it is one that was not made."""
    return Bandwidth(
        halves=halves,
        sender=sender,
        sender_devices=tuple(("enp1s0f1np1", "enP2p1s0f1np1")[half] for half in halves),
        receiver=receiver,
        gbps=gbps,
        least=80.0 if gbps else None,
        verdict=verdict if gbps else "not measured",
        good=verdict == "healthy" if gbps else None,
        reason="" if gbps and verdict == "healthy" else "reboot both ends" if gbps else "the other end cannot receive",
    )


def reduced(name: str, *nodes: str, **other: object) -> AllReduceMeasurement:
    """An all-reduce that is fast over a healthy wire, or what differs from one."""
    values: dict[str, object] = {
        "name": name,
        "nodes": nodes,
        "image": "nvcr.io/nvidia/vllm:26.04-py3",
        "image_id": f"sha256:{'4e1b' * 16}",
        "size": 64 << 20,
        "gbytes": 19.24,
        "least": 17.5,
        "best": 19.61,
        "best_when": "2026-11-20T09:12:44Z",
        "nccl": "2.28.9+cuda13.0",
        "networks": ("IB",),
        "wire": (97.1, 97.4),
        "wire_least": 80.0,
        "wire_verdict": "healthy",
        "wire_good": True,
        "slow": "nothing",
        "good": True,
        "reason": "",
    }
    return AllReduceMeasurement.model_validate(values | other)


def unmeasured(name: str, *nodes: str, reason: str) -> AllReduceMeasurement:
    """An all-reduce without a result: nothing of it is known."""
    empty = dict.fromkeys(
        ("image_id", "gbytes", "least", "best", "best_when", "nccl", "wire_least", "wire_good", "slow", "good")
    )
    return reduced(name, *nodes, **empty, networks=(), wire=(), wire_verdict="not measured", reason=reason)


def fine(rack: Rack = RACK) -> list[Outcome]:
    """Everything passes."""
    made = [passed(name, part) for part in CHECKED_ROLES if part not in ("fabric", "switch") for name in rack.nodes]
    made += [passed(value.sender, "fabric", measured=(value,)) for value in reach(rack)]
    return [*made, *(passed(name, "switch") for name in (*rack.nodes, *rack.switches))]


def reported(
    outcomes: Sequence[Outcome], machines: Sequence[str] = ALL, parts: Sequence[str] = CHECKED_ROLES
) -> Report:
    return report(RACK, machines, parts, outcomes, ORIGIN, all_roles=CHECKED_ROLES)


def example(rack: Rack) -> Report:
    """A run of a whole rack with a few things wrong."""
    first, second, third, *_ = rack.nodes
    stale = "a stale ConnectX-7: leave the cables as they are, reboot both ends and measure again"
    made = [one for one in fine(rack) if (one.machine, one.role) not in {(second, "memory"), (third, "docker")}]
    made += [
        passed(first, "rdma", measured=(carries(first, second, 97.4), carries(first, second, 97.1, halves=(1,)))),
        passed(second, "rdma", measured=(carries(second, third, 97.3),)),
        failed(second, "memory", f"{second}: swap is on: /swap.img, 16 GiB", check="test_swap_is_off"),
        failed(second, "rdma", f"{second}/enP2p1s0f1np1 -> {third}: 13.2 Gb/s, {stale}", check="test_bandwidth"),
        passed(second, "rdma", measured=(carries(second, third, 13.2, verdict="stale ConnectX-7", halves=(1,)),)),
        failed(third, "docker", f"{third}: cannot be asked: no answer within 300 s", unknown=True, check="test_info"),
        passed(first, "serving", measured=(reduced("qwen", first, second),)),
        failed(second, "serving", f"{second}: unit llama: all-reduce of 64 MiB 3.0 GB/s", check="test_an_all_reduce"),
        passed(
            second,
            "serving",
            measured=(
                reduced(
                    "llama",
                    second,
                    third,
                    gbytes=3.04,
                    wire=(13.2, 97.3),
                    wire_verdict=f"{second} to {third}: stale ConnectX-7",
                    wire_good=False,
                    slow="wire",
                    good=False,
                    reason="the wire is slow: mend that first (docs/runbooks/bandwidth.md#all-reduce)",
                ),
            ),
        ),
        passed(
            third,
            "serving",
            measured=(unmeasured("gpt", third, first, reason=f"unit gpt runs on {third}; `sparkrack serve stop gpt`"),),
        ),
        skipped(first, "fabric", "rack.yaml leaves hotplug alone"),
        passed(first, "switch", notes=("crs812 was read over REST as sparkrack-reader",)),
    ]
    return report(rack, (*rack.nodes, *rack.switches), CHECKED_ROLES, made, ORIGIN, all_roles=CHECKED_ROLES)
