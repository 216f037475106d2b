"""Operations as pure functions: facts in, a changeset out, without pyinfra."""

from __future__ import annotations

from core.ops.host_facts import HostReading
from core.ops.operation import Changeset
from core.ops.run_lock import Holder
from roles.access import apply as access
from roles.access.desired import Peer
from roles.access.facts import AccessFacts
from roles.access.peer_exchange import PeerFacts
from roles.docker import apply as docker
from roles.docker.facts import DockerFacts
from roles.fabric import apply as fabric
from roles.fabric.facts import FabricFacts
from roles.memory import apply as memory
from roles.memory.facts import MemoryFacts
from roles.preflight import apply as preflight
from roles.rdma import apply as rdma
from roles.rdma.facts import RdmaFacts
from tests.unit.roles.cases import node_of, rack_of
from tests.unit.roles.nodefacts import facts as machine_facts


def reading(role: str, **answers: str | None) -> HostReading:
    """What a node answers on which the role has nothing to do, but for these answers."""
    reported = {**node_of(role), **answers}
    return HostReading({key: text.encode() if isinstance(text, str) else text for key, text in reported.items()}, {})


def texts(changes: Changeset) -> list[str]:
    return [str(command).partition("; export LC_ALL=C; ")[2] for command in changes.commands]


def test_memory_with_nothing_to_do() -> None:
    facts = MemoryFacts(reading("memory"), rack_of({}))
    operations = (
        memory.swap_off,
        memory.keep_free,
        memory.limit_containers,
        memory.protect_daemons,
        memory.run_memory_guard,
        memory.install_memory_gate,
    )
    assert all(operation.changeset(facts).in_sync_reason for operation in operations)


def test_memory_with_a_kernel_setting_that_differs() -> None:
    facts = MemoryFacts(reading("memory", **{"/proc/sys/vm/overcommit_memory": "2\n"}), rack_of({}))
    changes = memory.keep_free.changeset(facts)
    assert [event.message for event in changes.events] == ["vm.overcommit_memory: 2 -> 0"]
    assert texts(changes) == ["sysctl -qw vm.overcommit_memory=0"]


def test_memory_with_a_file_that_overrides_ours() -> None:
    facts = MemoryFacts(
        reading("memory", **{"sysctl-settings": "/etc/sysctl.d/zzz.conf:vm.min_free_kbytes = 1\n"}), rack_of({})
    )
    changes = memory.keep_free.changeset(facts)
    assert len(changes.blockers) == 1
    assert "/etc/sysctl.d/zzz.conf" in changes.blockers[0]
    assert not changes.commands


def test_other_roles_with_nothing_to_do() -> None:
    rack = rack_of({})
    node = rack.nodes["spark1"]
    made = [
        *(
            one.changeset(DockerFacts(reading("docker"), rack))
            for one in (docker.limit_containers, docker.add_user_to_group)
        ),
        docker.configure_engine.changeset(DockerFacts(reading("docker"), rack)),
        *(one.changeset(RdmaFacts(reading("rdma"), rack, node)) for one in (rdma.environment, rdma.memlock, rdma.arp)),
        access.own_name.changeset(AccessFacts(reading("access"), rack, node)),
        fabric.declare_hotplug.changeset(FabricFacts(reading("fabric"), rack, node)),
    ]
    assert all(one.in_sync_reason for one in made)


def test_a_node_whose_key_is_made_later_is_a_provisional_change() -> None:
    """Its key does not exist while a plan is made, so there is an event and no command yet."""
    rack = rack_of({})
    facts = AccessFacts(reading("access"), rack, rack.nodes["spark1"])
    known = facts.peer
    peers = PeerFacts({"spark1": known, "spark2": Peer(known.account, None, known.host_keys)}, {})
    changes = access.exchange.changeset(access.ExchangeFacts(facts, peers))
    assert changes.provisional
    assert "let spark2 in once its key is made" in [event.message for event in changes.events]


def test_a_held_lock_warns_in_a_plan_and_blocks_a_run() -> None:
    rack = rack_of({})
    node, machine = rack.nodes["spark1"], machine_facts()
    holder = Holder("1", "ops@laptop", "2026-11-23T00:00:00Z", "spark1: memory")
    for executing in (False, True):
        facts = preflight.GateFacts(rack, node, machine, {"spark1": machine}, holder, executing)
        changes = preflight.check_gates.changeset(facts)
        assert (holder.busy in changes.blockers) == executing
        assert (holder.busy in [event.detail for event in changes.warnings]) != executing
