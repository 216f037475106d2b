"""Bring a node's docker to the state in `desired`."""

from __future__ import annotations

from dataclasses import replace

from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.model.errors import counted
from core.ops import apt, remote_files
from core.ops.managed_service import NO_CHANGES, ServiceChanges
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quick_script, quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, field_change
from roles.docker import ROLE, containers, desired, scripts, services
from roles.docker.facts import DockerFacts
from roles.docker.options import DockerOptions


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """An engine that runs with the rack's settings, containers that have a limit, a user that may use it.

    Does not bound memory of CUDA, which no limit of a container counts.
    """
    configure_engine(name="Run docker with the rack's settings, now and after a reboot", rack=rack)
    limit_containers(name="Give every running container a memory limit", rack=rack)
    add_user_to_group(name="Let the rack's user use docker", rack=rack)


@managed_operation("docker", DockerFacts)
def configure_engine(facts: DockerFacts) -> Changeset:
    """Install the engine if there is none; edit daemon.json; reload, restart or start it if needed, or restore the old
    file.
    """
    if facts.obstacles:
        return Changeset(blockers=tuple(f"{why}; nothing was changed" for why in facts.obstacles))
    return engine_changes(facts).changeset("docker runs with the rack's settings")


def engine_changes(facts: DockerFacts) -> ServiceChanges:
    """Return what brings the engine to its desired state on a node without obstacles."""
    # claim: docker.live-restore-gpu
    live_restore = facts.rack.options(DockerOptions).live_restore
    engine = replace(
        services.ENGINE,
        restart=scripts.restart(facts.last, idle=facts.must_be_idle),
        reload=scripts.reload(live_restore, desired.NVIDIA in facts.pending),
    )
    reason = {engine.units[0]: f"{facts.reason}{_ended_containers(facts)}"} if facts.act else {}
    needed = services.NEEDED.differences(facts.state(services.NEEDED))
    return needed + engine.differences(
        facts.state(engine),
        reason if facts.act != "reload" else {},
        NO_CHANGES if facts.installed else _plan_installation(facts),
        _plan_configuration(facts) if facts.writes else NO_CHANGES,
        reload_reasons=reason if facts.act == "reload" else {},
    )


def _ended_containers(facts: DockerFacts) -> str:
    return f", which ends {counted(len(facts.victims), 'running container')}" if facts.victims else ""


def _plan_installation(facts: DockerFacts) -> ServiceChanges:
    return ServiceChanges(acted(Action.INSTALL, " ".join(facts.packages)), (apt.install(*facts.packages),))


def _plan_configuration(facts: DockerFacts) -> ServiceChanges:
    """Return the changes of daemon.json."""
    events = desired.setting_changes(facts.config, facts.rack.options(DockerOptions))
    if facts.nvidia:
        new, note = "as nvidia-ctk makes it", "nvidia-ctk reformats the file"
        events.append(field_change(desired.CONFIG, "runtimes nvidia", "none", new, note))
    if facts.mode:
        events.append(Event(EventKind.CHANGE, path=desired.CONFIG, action=Action.SET, detail=facts.mode))
    folder = () if facts.text else (quick_script("install -d -m 755 /etc/docker"),)
    keep = facts.act in ("start", "restart") and not facts.last
    check = scripts.validated(facts.command[1:], facts.nvidia, facts.new_mode, facts.must_be_idle, keep)
    before = facts.reading.content(desired.CONFIG)
    put = remote_files.put(desired.CONFIG, facts.after.encode(), mode=facts.new_mode, before=before, check=check)
    return ServiceChanges(tuple(events), (*folder, put))


@managed_operation("docker", DockerFacts)
def limit_containers(facts: DockerFacts) -> Changeset:
    """Limit what runs without a limit, and name what runs outside the ceiling: that cannot be moved."""
    running, limits = facts.running, facts.limits
    warnings = tuple(Event(EventKind.UNMANAGED, detail=line) for line in containers.outside_slice(running))
    if not limits:
        reason = "every running container has a limit" if running else "no container runs"
        return Changeset(warnings=warnings, in_sync_reason=reason)
    return Changeset(
        warnings=warnings,
        events=tuple(containers.limit_changes(limits)),
        commands=tuple(
            # A container that has ended since needs no limit.
            sudo_script(
                f"docker -H unix:///run/docker.sock update --memory {limit} --memory-swap {limit} {one.id} >/dev/null "
                f"|| [ ! -e {quote(one.path)} ]"
            )
            for one, limit in limits.items()
        ),
    )


@managed_operation("docker", DockerFacts)
def add_user_to_group(facts: DockerFacts) -> Changeset:
    """Put the user of the rack into group docker."""
    user = facts.rack.access.user
    if facts.apart is None:
        return Changeset(in_sync_reason=f"{user} is in group docker")
    joins = Event(EventKind.CHANGE, subject=user, action=Action.JOIN_GROUP, detail="docker (from the next login on)")
    # The group comes with the package, but an administrator can have removed it.
    command = f"getent group docker >/dev/null || groupadd --system docker; usermod -aG docker {quote(user)}"
    return Changeset(events=(joins,), commands=(sudo_script(command),))
