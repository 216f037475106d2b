"""Make a node's docker what `state` says."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.docker import containers, scripts, state
from roles.docker.view import View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import apt, files, probe, refusal, report
from sparkrack.ops.account import Sort
from sparkrack.ops.shell import quote, root


@deploy("Docker")
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """An engine that runs with the rack's settings, containers that have a limit, a user that may use it.

    Does not bound memory of CUDA, which no limit of a container counts.
    """
    engine(name="Run docker with the rack's settings, now and after a reboot", rack=rack)
    bound(name="Give every running container a memory limit", rack=rack)
    admit(name="Let the rack's user use docker", rack=rack)


@operation()
def engine(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Install it if there is none; edit daemon.json; reload, restart or start it when that is due, or take it back.

    + rack: whose `docker` section says the settings
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "docker"))
        right, obstacles = view.right, view.obstacles
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"docker: {unknown}; nothing was changed")
        return
    if obstacles:
        yield refusal.refuse(host, *(f"docker: {obstacle}; nothing was changed" for obstacle in obstacles))
        return
    if right:
        host.noop("docker runs with the rack's settings")
        return
    probe.forget(host)
    report.tell(host, _told(view))
    report.restart(host, _restarted(view))
    if not view.installed:
        yield apt.install(*view.packages)
    if view.stale:
        yield root(f"install -d -m 755 {state.DROPIN.rpartition('/')[0]}")
        yield files.put(state.DROPIN, state.dropin(rack.rack), mode="644")
        if view.act not in ("start", "restart"):  # those read the units themselves
            yield root("systemctl daemon-reload")
    if view.masked:
        yield root(f"rm -f {quote(*view.masked)}; systemctl daemon-reload")
    yield from _configured(view)
    if not view.enabled:
        yield root("systemctl enable --quiet docker.service")
    if view.act == "reload":
        yield root(scripts.reload(rack.docker.live_restore, state.NVIDIA in view.pending))
    elif view.act:
        yield root(scripts.restart(view.last, idle=view.must_be_idle))


def _configured(view: View) -> Generator[StringCommand, None, None]:
    if not view.writes:
        return
    if not view.text:
        yield root("install -d -m 755 /etc/docker")
    keep = view.act in ("start", "restart") and not view.last
    check = scripts.validated(view.command[1:], view.nvidia, view.new_mode, view.must_be_idle, keep)
    before = view.reading.content(state.CONFIG)
    yield files.put(state.CONFIG, view.after.encode(), mode=view.new_mode, before=before, check=check)


def _told(view: View) -> list[str]:
    lines = [] if view.installed else [f"install {' '.join(view.packages)}"]
    if view.stale:
        lines.append(f"write {state.DROPIN}: each start of docker notes its daemon.json")
    lines += [f"unmask {link}" for link in view.masked]
    lines += state.shown(view.config, view.rack.docker)
    if view.nvidia:
        lines.append(f"{state.CONFIG}: runtimes nvidia none -> as nvidia-ctk makes it, which lays the file out anew")
    if view.mode:
        lines.append(f"{state.CONFIG}: {view.mode}")
    if not view.enabled:
        lines.append("enable docker.service")
    return lines


def _restarted(view: View) -> str | None:
    end = f", which ends {len(view.victims)} running containers" if view.victims else ""
    return f"{view.act} docker: {view.reason}{end}" if view.act else None


@operation()
def bound(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Limit what runs without a limit, and name what runs outside the ceiling: that cannot be moved.

    + rack: whose `docker.memory` is the most that a container may have
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, probe.read(host, "docker"))
        running, limits = view.running, view.limits
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"docker: {unknown}; nothing was changed")
        return
    for line in containers.outside(running):
        report.warn(host, line, Sort.UNMANAGED)
    if not limits:
        host.noop("every running container has a limit" if running else "no container runs")
        return
    probe.forget(host)
    report.tell(host, containers.shown(limits))
    for one, limit in limits.items():
        # One that has ended meanwhile needs no limit.
        yield root(
            f"docker -H unix:///run/docker.sock update --memory {limit} --memory-swap {limit} {one.id} >/dev/null "
            f"|| [ ! -e {quote(one.path)} ]"
        )


@operation()
def admit(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Put the user of the rack into group docker.

    + rack: whose `access.user` it is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        apart = View(rack, probe.read(host, "docker")).apart
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"docker: {unknown}; nothing was changed")
        return
    user = rack.access.user
    if apart is None:
        host.noop(f"{user} is in group docker")
        return
    probe.forget(host)
    report.tell(host, [f"{user} joins group docker (from the next login on)"])
    # The group comes with the package, but a person can have removed it.
    yield root(f"getent group docker >/dev/null || groupadd --system docker; usermod -aG docker {quote(user)}")
