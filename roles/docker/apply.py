"""Bring a node's docker to the state in `desired`."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy

from core.model import Node, Rack
from core.ops import apt, remote_files
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, field_change, file_acted
from roles.docker import ROLE, containers, desired, scripts
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
    right, obstacles = facts.right, facts.obstacles
    if obstacles:
        return Changeset(blockers=tuple(f"{why}; nothing was changed" for why in obstacles))
    if right:
        return Changeset(in_sync_reason="docker runs with the rack's settings")
    return Changeset(events=tuple(_change_events(facts)), commands=tuple(_commands(facts)))


def _commands(facts: DockerFacts) -> Iterator[StringCommand]:
    if not facts.installed:
        yield apt.install(*facts.packages)
    if facts.stale:
        yield sudo_script(f"install -d -m 755 {desired.DROPIN.rpartition('/')[0]}")
        yield remote_files.put(desired.DROPIN, desired.dropin(facts.rack.rack), mode="644")
        if facts.act not in ("start", "restart"):  # those read the units themselves
            yield sudo_script("systemctl daemon-reload")
    if facts.masked:
        yield sudo_script(f"rm -f {quote(*facts.masked)}; systemctl daemon-reload")
    if facts.writes:
        yield from _configured(facts)
    if not facts.enabled:
        yield sudo_script("systemctl enable --quiet docker.service")
    if facts.act == "reload":
        # claim: docker.live-restore-gpu
        live_restore = facts.rack.options(DockerOptions).live_restore
        yield sudo_script(scripts.reload(live_restore, desired.NVIDIA in facts.pending))
    elif facts.act:
        yield sudo_script(scripts.restart(facts.last, idle=facts.must_be_idle))


def _configured(facts: DockerFacts) -> Iterator[StringCommand]:
    if not facts.text:
        yield sudo_script("install -d -m 755 /etc/docker")
    keep = facts.act in ("start", "restart") and not facts.last
    check = scripts.validated(facts.command[1:], facts.nvidia, facts.new_mode, facts.must_be_idle, keep)
    before = facts.reading.content(desired.CONFIG)
    yield remote_files.put(desired.CONFIG, facts.after.encode(), mode=facts.new_mode, before=before, check=check)


def _change_events(facts: DockerFacts) -> list[Event]:
    changes = [] if facts.installed else [*acted(Action.INSTALL, " ".join(facts.packages))]
    if facts.stale:
        changes += file_acted(Action.WRITE, desired.DROPIN, detail="each start of docker notes its daemon.json")
    changes += acted(Action.UNMASK, *facts.masked)
    changes += desired.setting_changes(facts.config, facts.rack.options(DockerOptions))
    if facts.nvidia:
        new, note = "as nvidia-ctk makes it", "nvidia-ctk reformats the file"
        changes.append(field_change(desired.CONFIG, "runtimes nvidia", "none", new, note))
    if facts.mode:
        changes.append(Event(EventKind.CHANGE, path=desired.CONFIG, action=Action.SET, detail=facts.mode))
    if not facts.enabled:
        changes += acted(Action.ENABLE, "docker.service")
    if facts.act:
        end = f", which ends {len(facts.victims)} running containers" if facts.victims else ""
        reason = f"{facts.reason}{end}"
        changes.append(Event(EventKind.RESTART, subject="docker", action=Action(facts.act), detail=reason))
    return changes


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
