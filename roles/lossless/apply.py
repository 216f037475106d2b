"""Make a node treat loss as `state` says."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.lossless import boot, state
from roles.lossless.view import View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report, unitfiles
from sparkrack.ops.shell import quote, root


@deploy("Lossless")
def apply(rack: Rack, node: Node) -> None:
    """What the switch of each cable says of loss, on both halves of the port; taken back where it says nothing.

    Does not protect from a switch that drops all the same: what it counts is for its own proof to see.
    """
    agree(name="Treat loss on the fabric as the switch does", rack=rack, node=node)


@operation()
def agree(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Pause, or flow control of one priority: live, and by a unit that does it whenever an interface appears.

    + rack: whose switches say what is done about loss
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "lossless"))
        obstacles, right = view.obstacles, view.right
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"lossless: {unknown}; nothing was changed")
        return
    if obstacles:
        yield refusal.refuse(host, *(f"lossless: {obstacle}" for obstacle in obstacles))
        return
    if right:
        host.noop("loss is treated as the switch does" if view.policies else "nothing is set about loss")
        return
    probe.forget(host)
    _tell(host, view)
    yield from _take_back(view)
    if view.policies:
        yield from _write(view)
        yield from _start(view)
    else:
        yield root(f"rm -f {state.SCRIPT} {state.UNIT}; systemctl daemon-reload")


def _tell(host: Host, view: View) -> None:
    for path in view.stale:
        before, after = view.files[path]
        if before == after:
            report.tell(host, [f"{path}: owner and mode are put right"])
        elif after is None:
            report.tell(host, [f"remove {path}"])
        else:
            report.show(host, path, before, after)
    report.tell(host, [f"disable {boot.instance(name)}" for name in view.gone])
    report.tell(host, [f"enable {boot.instance(name)}" for name in view.policies if name not in view.ours])
    for lines in view.wrong.values():
        report.tell(host, lines)


def _take_back(view: View) -> Generator[StringCommand, None, None]:
    """First what is live: without its unit an interface would be forgotten if this failed half-way."""
    for name in [name for name in view.gone if name in view.wrong]:
        # The script for a port without a policy; the one on the node may be another, or gone.
        yield root(f"base64 -d | sh -s {quote(name)}", stdin=files.encoded(boot.script(view.rack.rack, {})))
    if view.gone:
        # `systemctl disable` refuses when somebody has removed the unit and left its links.
        links = " ".join(f"/etc/systemd/system/*.device.wants/{boot.instance(name)}" for name in view.gone)
        yield root(f"systemctl stop {_units(view.gone)} 2>/dev/null || true; rm -f {links}; systemctl daemon-reload")


def _write(view: View) -> Generator[StringCommand, None, None]:
    """Both files, each checked before it stands where systemd finds it; the unit names the script, so that is first."""
    checks = {
        state.SCRIPT: ("755", 'sh -n "$new"'),
        state.UNIT: ("644", unitfiles.sound(state.TEMPLATE)),
    }
    for path in view.stale:
        content = view.files[path][1]
        if content is None:
            continue
        if path == state.SCRIPT and view.files[path][0] is None:
            yield root(f"install -d -m 755 {state.SCRIPT.rpartition('/')[0]}")
        mode, check = checks[path]
        yield files.put(path, content, mode=mode, check=check)


def _start(view: View) -> Generator[StringCommand, None, None]:
    if state.UNIT in view.stale or view.new:
        yield root(f"systemctl daemon-reload; systemctl reenable --quiet {_units(view.policies)}")
    again = [name for name in view.policies if name in view.wrong or name not in view.ours]
    if again:
        yield root(f"systemctl restart {_units(again)}")


def _units(names: Iterable[str]) -> str:
    return quote(*(boot.instance(name) for name in names))
