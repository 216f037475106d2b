"""Let each node log in to the others, and nobody by a password."""

from __future__ import annotations

import hashlib
from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.access import authorized, fleet, known, names, pair
from roles.access.harden import harden
from roles.access.sshd import looks_elsewhere
from roles.access.view import CLIENT, CLOUD, SSHD, TRIAL, View
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report
from sparkrack.ops.account import Sort, opens
from sparkrack.ops.shell import quote, root


@deploy("Access")
def apply(rack: Rack, node: Node, seconds: int = TRIAL.seconds) -> None:
    """A key pair for each node, keys exchanged and pinned, names that are no loopback, sshd by key only.

    seconds: how long a node waits for a proof that it still lets us in. Does not protect from whoever may log in as
    the account of rack.yaml: on one node it is on all of them.
    """
    own_key(name="Make the node's own key pair", rack=rack, node=node)
    exchange(name="Let the nodes log in to one another", rack=rack, node=node)
    own_name(name="Let the nodes' names stand for their addresses", rack=rack, node=node)
    harden(name="Let sshd take keys only", rack=rack, node=node, seconds=seconds, _serial=True)


@operation()
def own_key(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """The pair of this node, made on it; the private key goes nowhere.

    + rack: whose account it belongs to
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "access"))
        view.complete()
        account, found, _ = view.account, view.pair, view.peer
        others = fleet.of(host, rack, "own_key")
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"access: {unknown}; nothing was changed")
        return
    _compare_accounts(host, view, others)
    why = pair.unusable(found)
    if why is None and node.name in others.twins:
        why = f"{others.twins[node.name]} has the same, so it was copied"
    if why is not None:
        probe.forget(host)
        report.tell(host, [f"make the key pair {pair.NAME}: {why}"])
        yield root(pair.make(account, node.name))
        return
    wanted = pair.public_line(found.key or "", node.name)
    wrong = pair.misplaced(found, account)
    if found.public == wanted and not wrong.keys() - {"authorized"} and "folder" in found.things:
        host.noop("the node has its own key pair")
        return
    probe.forget(host)
    report.tell(host, [f"{name} of the key pair: {was} is put right" for name, was in wrong.items()])
    path = f"{account.folder}/{pair.NAME}.pub"
    if found.public != wanted:
        report.show(host, path, found.public, wanted)
    for name in ("folder", "private"):
        if name in wrong:
            yield root(pair.owned(name, account))
    if found.public != wanted or "public" in wrong:
        yield files.put(path, wanted, mode=pair.MODES["public"], check=_given_to(account.owner))


def _compare_accounts(host: Host, view: View, others: fleet.Fleet) -> None:
    """Tell when the same user has other numbers elsewhere: no fault, but files that are copied change hands."""
    first = next(((name, peer) for name, peer in others.peers.items() if peer), None)
    if first and first[1].account.owner != view.account.owner:
        report.warn(
            host,
            f"access: {view.account.user} is {view.account.owner} on {view.node.name} and {first[1].account.owner} on "
            f"{first[0]}: files that are copied with their numbers change hands",
            Sort.FLEET,
        )


def _given_to(owner: str) -> str:
    """Shell text that gives a new file to its owner before it gets its name."""
    return f'chown {owner} "$new"'


def _unchanged(path: str, before: bytes | None) -> str:
    """Shell text that fails when somebody else has written a file since it was read."""
    look = f"[ ! -e {quote(path)} ]"
    if before is not None:
        look = f"sha256sum < {quote(path)} | grep -q '^{hashlib.sha256(before).hexdigest()} '"
    return f"{look} || {{ echo 'somebody else is writing this file; run again' >&2; exit 1; }}"


@operation()
def exchange(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """Whom this node lets in, whom it believes to be which node, and how its ssh goes there.

    + rack: all nodes
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "access"))
        account, found = view.account, view.pair
        elsewhere = looks_elsewhere(view.reading.text(SSHD), account.home)
        ours = {path: view.reading.content(path) for path in (known.HOSTS, known.CLIENT)}
        shown = view.reading.text(CLIENT)
        others = fleet.of(host, rack, "exchange")
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"access: {unknown}; nothing was changed")
        return
    obstacles = known.faults(rack, shown) if ours[known.CLIENT] == known.client(rack) else []
    if elsewhere:
        obstacles.append(f"sshd takes keys from {elsewhere}, not from .ssh/authorized_keys (AuthorizedKeysFile)")
    if obstacles:
        yield refusal.refuse(host, *(f"access: {obstacle}" for obstacle in obstacles))
        return
    for line in others.untold(rack):
        report.warn(host, f"access: {line}")
    entry = pair.entry(account)
    before = found.authorized
    after = authorized.authorized(rack, node, before or b"", others.peers, fleet.operator_key(rack))
    wanted = {
        known.HOSTS: known.known_hosts(rack, ours[known.HOSTS] or b"", others.peers),
        known.CLIENT: known.client(rack),
    }
    stale = [path for path in wanted if ours[path] != wanted[path] or not view.kept_by_root(path)]
    opened = "authorized" in pair.misplaced(found, account)
    lets_in = after != (before or b"") or opened
    pending = [name for name in others.without_key if name != node.name]
    if not stale and not lets_in and not pending:
        host.noop("the nodes of this run are known and let in")
        return
    probe.forget(host)
    if pending:
        opens(host)
    report.tell(host, [f"let {name} in once its key is made" for name in pending])
    if lets_in:
        report.tell(host, authorized.changes(rack, before or b"", after))
    for path in stale:
        report.show(host, path, ours[path], wanted[path])
    if lets_in:
        check = f"{_unchanged(entry, before)}; {_given_to(account.owner)}"
        yield files.put(entry, after, mode=pair.MODES["authorized"], before=before, check=check)
    for path in stale:
        check = f'ssh -G -F "$new" -- {quote(node.name)} > /dev/null' if path == known.CLIENT else ""
        yield files.put(path, wanted[path], mode="644", check=check)
    if known.CLIENT in stale:
        yield root(known.proof(node))
    elif not host.state.is_executing and not stale and not lets_in:
        # A preview counts what is yielded; the keys of the others are not there to be shown.
        yield root(":")


@operation()
def own_name(rack: Rack, node: Node) -> Generator[PyinfraCommand, None, None]:
    """The block of /etc/hosts that is ours, and the node's own name on no line of loopback.

    + rack: all nodes
    + node: the one this host is
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        view = View(rack, node, probe.read(host, "access"))
        found = view.reading.content(names.HOSTS)
        before = names.BARE if found is None else found
        after = names.hosts(rack, node, view.host_name, before)
        boot, dropin = names.cloud(view.reading.text(CLOUD)), view.reading.content(names.CLOUD)
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"access: {unknown}; nothing was changed")
        return
    if boot.later:
        said = f"has cloud-init write {names.HOSTS} at boot and is read after {names.CLOUD}; remove that line"
        yield refusal.refuse(host, *(f"access: {path} {said}" for path in boot.later))
        return
    if boot.user_data:
        said = f"the user data of cloud-init says manage_etc_hosts, and so {names.HOSTS} is undone at each boot"
        report.warn(host, f"access: {said}")
    if not names.is_one_of(view.host_name, [node.name]):
        said = f"calls itself {view.host_name}; `hostnamectl hostname {node.name}` corrects that"
        report.warn(host, f"access: {node.name} {said}")
    undone = boot.writes and dropin != names.CLOUD_TEXT
    if found == after and not undone:
        host.noop("the names of the nodes stand for their addresses")
        return
    probe.forget(host)
    if undone:
        report.show(host, names.CLOUD, dropin, names.CLOUD_TEXT)
    if found != after:
        report.show(host, names.HOSTS, found, after)
    if undone:
        yield files.put(names.CLOUD, names.CLOUD_TEXT, mode="644")
    if found != after:
        yield files.put(names.HOSTS, after, mode="644", before=found, check=_unchanged(names.HOSTS, found))
