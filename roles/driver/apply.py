"""Make a node's driver and kernel what `state` says, and keep them so."""

from __future__ import annotations

from collections.abc import Generator
from weakref import WeakKeyDictionary

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from roles.driver import closed, state
from roles.driver.view import View
from sparkrack.fleet import Driver, Node, Rack
from sparkrack.ops import apt, files, probe, refusal, report
from sparkrack.ops.shell import quote, root

_failed: WeakKeyDictionary[State, str] = WeakKeyDictionary()
"""The node of a run whose packages could not be changed, after which no other is touched."""


@deploy("Driver")
def apply(rack: Rack, node: Node) -> None:
    """Driver and kernel at their declared versions, held, and no automatic upgrade; nothing if none is declared.

    Does not protect from a person who upgrades with --allow-change-held-packages: the next run takes that back.
    """
    if rack.driver is None:
        return
    close(name="Close every way by which the node upgrades itself", rack=rack, driver=rack.driver)
    hold(name="Hold driver, kernel and container engine", rack=rack, driver=rack.driver)
    install(
        name="Install the declared versions of driver and kernel",
        rack=rack,
        driver=rack.driver,
        node=node,
        _serial=True,
    )
    tell_reboot(name="Say whether a reboot is needed", rack=rack, driver=rack.driver)


def _look(host: Host, rack: Rack, driver: Driver, first: bool = False) -> View | PyinfraCommand:
    """The node as it is, or the command that refuses it; a plan tells the reasons once, at its first operation."""
    told = first or host.state.is_executing
    try:
        view = View(rack, driver, probe.read(host, "driver"))
        reasons = view.obstacles
    except (probe.UnknownError, ValueError) as unknown:
        return refusal.unknown(host, *([f"driver: {unknown}; nothing was changed"] if told else []))
    if reasons:
        return refusal.refuse(host, *(f"driver: {reason}" for reason in reasons if told))
    return view


@operation()
def close(rack: Rack, driver: Driver) -> Generator[PyinfraCommand, None, None]:
    """No timer and no service upgrades packages by itself, and apt's own would do nothing.

    + rack: whose name stands in the drop-in
    + driver: what is declared
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    view = _look(host, rack, driver, first=True)
    if not isinstance(view, View):
        yield view
        return
    wanted = closed.conf(rack)
    if view.conf == wanted and not view.open:
        host.noop("nothing upgrades the node by itself")
        return
    probe.forget(host)
    if view.conf != wanted:
        report.show(host, closed.CONF, view.conf, wanted)
    report.tell(host, [f"stop and mask {unit.name}" for unit in view.open])
    report.tell(host, [f"{unit.instead} is moved to {files.BACKUPS}" for unit in view.open if unit.instead])
    if view.open:
        yield _mask(view.open)
    if view.conf != wanted:
        yield files.put(closed.CONF, wanted, mode="644", check='apt-config -c "$new" dump > /dev/null')


def _mask(units: list[closed.Unit]) -> StringCommand:
    """One that upgrades right now is waited for: stopped, it would leave dpkg in the middle. Stopped before it is
    masked, since the mask is what the next run looks at, and again after it: nothing starts it any more by then."""
    names = quote(*(unit.name for unit in units))
    aside = "".join(
        f"install -d -m 700 {files.BACKUPS}; [ ! -e {quote(unit.instead)} ] && [ ! -L {quote(unit.instead)} ] || "
        f"mv -fT --backup=numbered {quote(unit.instead, f'{files.BACKUPS}/{unit.name}')}; "
        for unit in units
        if unit.instead
    )
    return root(
        f"{apt.wait()}\nsystemctl stop {names} || true; {aside}systemctl --no-reload mask --quiet {names}; "
        f"systemctl daemon-reload; systemctl stop {names}"
    )


@operation()
def hold(rack: Rack, driver: Driver) -> Generator[PyinfraCommand, None, None]:
    """What must not move is on hold, as far as it is installed.

    + rack: the rack
    + driver: what is declared
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    view = _look(host, rack, driver)
    if not isinstance(view, View):
        yield view
        return
    names = state.to_hold(view.packages)
    if not names:
        host.noop("what must not move is on hold")
        return
    probe.forget(host)
    report.tell(host, [f"hold {name}" for name in names])
    yield apt.hold(*names)


@operation()
def install(rack: Rack, driver: Driver, node: Node) -> Generator[PyinfraCommand, None, None]:
    """The declared versions, also older ones, on one node after the other; none after one that failed.

    + rack: the rack
    + driver: what is declared
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    view = _look(host, rack, driver)
    if not isinstance(view, View):
        yield view
        return
    if not view.words and not view.interrupted:
        host.noop("driver and kernel are as declared")
        return
    if host.state in _failed:
        before = _failed[host.state]
        yield refusal.refuse(host, f"driver: not touched, since {before} failed and nodes change one at a time")
        return
    probe.forget(host)
    if view.interrupted:
        report.tell(host, ["dpkg was interrupted: dpkg --configure -a"])
    report.tell(host, state.changes(view.packages, view.words))
    done = False
    try:
        if view.words:
            yield apt.install(*view.words, downgrade=True, held=True)
            # By patterns: what came along is not known here, and would be left for the next run.
            yield root(f"{apt.wait()}\n{state.hold_all()}")
        else:
            yield apt.finish()
        done = True
    finally:
        # pyinfra ends an operation at its first failing command by closing this generator.
        if host.state.is_executing and not done:
            _failed[host.state] = node.name


@operation()
def tell_reboot(rack: Rack, driver: Driver) -> Generator[PyinfraCommand, None, None]:
    """A reboot is a result, never an act.

    + rack: the rack
    + driver: what is declared
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    view = _look(host, rack, driver)
    if not isinstance(view, View):
        yield view
        return
    for reason in view.reboot:
        report.warn(host, f"reboot required: {reason}")
    host.noop("a reboot is needed" if view.reboot else "no reboot is needed")
