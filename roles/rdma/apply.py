"""Make a node ready for RDMA as `state` and `environment` say."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from posixpath import dirname

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.rdma import state
from roles.rdma.files import File
from roles.rdma.view import View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report
from sparkrack.ops.shell import quote, root


@deploy("RDMA")
def apply(rack: Rack, node: Node) -> None:
    """The environment of what spans nodes, no limit on pinned memory, and ARP that keeps the halves of a port apart.

    Nothing that runs is restarted: it has the old environment and the old limits until somebody starts it anew.
    """
    environment(name="Tell what spans nodes which devices to use", rack=rack, node=node)
    memlock(name="Let RDMA pin memory", rack=rack, node=node)
    arp(name="Answer for each fabric address on its own half only", rack=rack, node=node)


@operation()
def environment(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Write the environment, and comment out what turns RDMA off in /etc/nccl.conf.

    + rack: whose cables say which devices carry
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "rdma"))
        before, after = view.nccl_conf
        stale = view.stale(view.environment)
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"rdma: {unknown}; nothing was changed")
        return
    if before == after and not stale:
        host.noop("what spans nodes is told which devices to use")
        return
    probe.forget(host)
    _tell(host, view, stale)
    if before != after:
        report.show(host, state.NCCL_CONF, before, after)
    yield from _write(stale)
    if before != after:
        # A last look that nobody else has written in between.
        unchanged = f"base64 -w0 {state.NCCL_CONF} | grep -qxF {quote(files.encoded(before))}"
        yield files.put(state.NCCL_CONF, after, mode="644", before=before, check=unchanged)


@operation()
def memlock(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Take the limit from pinned memory: for logins, and for what systemd starts from now on.

    + rack: whose user logs in
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "rdma"))
        overriders, live = view.memlock_overriders, view.memlock
        stale = view.stale([state.limits(rack), state.manager(rack)])
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"rdma: {unknown}; nothing was changed")
        return
    if overriders:
        yield refusal.refuse(host, *(f"rdma: {line}" for line in overriders))
        return
    if not stale and live == "infinity":
        host.noop("memory may be pinned")
        return
    probe.forget(host)
    _tell(host, view, stale)
    if live != "infinity":
        report.tell(host, [f"{state.MEMLOCK}: {live} -> infinity, for what systemd starts from now on"])
    yield from _write(stale)
    if live != "infinity":
        yield root("systemctl daemon-reload")


@operation()
def arp(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Let each interface answer for its own address only: live, at boot and whenever one appears.

    + rack: whose cables say which interfaces
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "rdma"))
        overriders = view.arp_overriders
        wrong = state.wrong_sysctls(rack, node, view.arp_live)
        stale = view.stale([state.arp_dropin(rack, node)])
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"rdma: {unknown}; nothing was changed")
        return
    if overriders:
        yield refusal.refuse(host, *(f"rdma: {line}" for line in overriders))
        return
    if not stale and not wrong:
        host.noop("each half answers for its own address")
        return
    probe.forget(host)
    _tell(host, view, stale)
    report.tell(host, [f"{key}: {view.arp_live[key]} -> {value}" for key, value in wrong.items()])
    yield from _write(stale)
    if wrong:
        yield root(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}")


def _tell(host: Host, view: View, stale: Iterable[File]) -> None:
    for file in stale:
        before = view.reading.content(file.path)
        if before == file.content:
            report.tell(host, [f"{file.path}: owner and mode are put right"])
        else:
            report.show(host, file.path, before, file.content)


def _write(stale: Iterable[File]) -> Generator[StringCommand, None, None]:
    stale = list(stale)
    folders = sorted({dirname(file.path) for file in stale})
    if folders:
        yield root(f"umask 022; mkdir -p {quote(*folders)}")
    for file in stale:
        yield files.put(file.path, file.content, mode=file.mode, check=file.check)
