"""Send the journal of a node to another one, receive those of others, and certify both ends."""

from __future__ import annotations

from dataclasses import dataclass

from gevent.lock import Semaphore
from pyinfra.api.host import Host

from core.model import Node, Rack
from core.ops import apt, host_facts, remote_files
from core.ops.managed_service import ManagedService, ServiceChanges
from core.ops.operation import Changeset, operation_on_host
from core.ops.run_context import run_value
from core.ops.shell import quote, sudo_script
from core.util.event import Action, Event, EventKind, acted, file_acted
from core.util.managed_file import ManagedFile
from roles.blackbox import journal_stream, netconsole, services, stream_routes
from roles.blackbox.certificate_authority import RackAuthority
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.stream_facts import KEY_PERMISSIONS, StreamFacts

_making = Semaphore()
_HAD_AUTHORITY = "blackbox: whether the rack had a CA when the run began"


@dataclass(frozen=True)
class NodeStreams:
    """What a node has, the CA of the rack as it is now, and whether the rack had one when the run began."""

    facts: StreamFacts
    authority: RackAuthority
    had_authority: bool

    @property
    def receiver(self) -> Node | None:
        """The node to which the journal of this one goes."""
        return journal_stream.receiver(self.facts.rack, self.facts.node)

    @property
    def senders(self) -> list[str]:
        """The names of the nodes whose journals come here."""
        return [node.name for node in journal_stream.senders(self.facts.rack, self.facts.node)]

    @property
    def takes_part(self) -> bool:
        """Whether a journal leaves or reaches this node."""
        return bool(self.receiver or self.senders)

    @property
    def encrypted(self) -> bool:
        """Whether this node needs a certificate."""
        return journal_stream.encrypted(self.facts.rack) and self.takes_part

    @property
    def blockers(self) -> tuple[str, ...]:
        """Why this node may not be changed."""
        lines = self.facts.blockers
        if self.encrypted and self.facts.certificate_fault(self.authority.pem):
            fault = self.authority.signing_fault(self.facts.before(journal_stream.AUTHORITY) is not None)
            lines += (fault,) if fault else ()
        return lines

    @property
    def uncertified(self) -> bool:
        """Whether the certificate of this node, or that of the CA on it, is replaced."""
        if not self.encrypted:
            return False
        other = self.facts.before(journal_stream.AUTHORITY) != self.authority.pem
        return other or bool(self.facts.certificate_fault(self.authority.pem))


def _read_streams(host: Host, rack: Rack, node: Node) -> NodeStreams:
    facts = StreamFacts(host_facts.read(host, "blackbox"), rack, node)
    authority = RackAuthority(rack.source.parent, rack.rack)
    if not journal_stream.encrypted(rack):
        return NodeStreams(facts, authority, had_authority=False)
    with _making:
        had = run_value(host.state, lambda: authority.pem is not None, _HAD_AUTHORITY)
        trusts = facts.before(journal_stream.AUTHORITY) is not None
        if host.state.is_executing and authority.pem is None and not authority.signing_fault(trusts):
            authority.make()
            authority = RackAuthority(rack.source.parent, rack.rack)
    return NodeStreams(facts, authority, had)


@operation_on_host(_read_streams)
def install_package(here: NodeStreams) -> Changeset:
    """Install the distribution's sender and receiver of journals."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    if not here.takes_part:
        return Changeset(in_sync_reason="no journal leaves or reaches this node")
    if here.facts.installed:
        return Changeset(in_sync_reason=f"{journal_stream.PACKAGE} is installed")
    return Changeset(
        events=acted(Action.INSTALL, journal_stream.PACKAGE), commands=(apt.install(journal_stream.PACKAGE),)
    )


@operation_on_host(_read_streams)
def make_key(here: NodeStreams) -> Changeset:
    """Make the key of this node for what it sends and receives; the private key goes nowhere."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts = here.facts
    if not here.encrypted:
        return Changeset(in_sync_reason="nothing of this node is encrypted")
    if facts.public and facts.key_permissions == KEY_PERMISSIONS:
        return Changeset(in_sync_reason="the node has its own key")
    if facts.public:
        return Changeset(
            events=file_acted(Action.PERMISSIONS, journal_stream.KEY),
            commands=(sudo_script(f"chown root:root {journal_stream.KEY}; chmod 600 {journal_stream.KEY}"),),
        )
    why = "it cannot be used" if facts.key_permissions else "there is none"
    return Changeset(
        events=acted(Action.GENERATE, journal_stream.KEY, detail=why), commands=(sudo_script(_key_script()),)
    )


def _key_script() -> str:
    folder = journal_stream.FOLDER
    return (
        f"umask 022; mkdir -p {folder}; umask 077; new=$(mktemp {folder}/.node.key.XXXXXX); "
        "trap 'rm -f \"$new\"' EXIT; "
        'openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$new" 2> /dev/null; '
        f'chmod 600 "$new"; sync "$new"; mv -fT "$new" {journal_stream.KEY}; sync {folder}'
    )


@operation_on_host(_read_streams)
def certify(here: NodeStreams) -> Changeset:
    """Sign the public key of this node with the CA of the rack, where it has no certificate that stays."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts, authority = here.facts, here.authority
    if not here.encrypted:
        return Changeset(in_sync_reason="nothing of this node is encrypted")
    fault, trusts = facts.certificate_fault(authority.pem), facts.before(journal_stream.AUTHORITY)
    if not facts.public or authority.pem is None:
        # The key of the node, or the CA, does not exist while a plan is made.
        more = _authority_events(facts, authority.pem) if trusts is None or trusts != authority.pem else ()
        return Changeset(events=(*_certificate_events(facts, here), *more), provisional=True)
    files = [ManagedFile(journal_stream.AUTHORITY, authority.pem)]
    events = [*(_certificate_events(facts, here) if fault else ())]
    if fault:
        made = authority.sign(facts.public, facts.node.name, stream_routes.address(facts.node))
        files.append(ManagedFile(journal_stream.CERTIFICATE, made))
    else:
        files.append(ManagedFile(journal_stream.CERTIFICATE, facts.before(journal_stream.CERTIFICATE) or b""))
    stale = facts.stale(files)
    if not stale:
        return Changeset(in_sync_reason="the certificate of the node is valid")
    paths = {file.path for file in stale}
    if not fault and journal_stream.CERTIFICATE in paths:
        events += file_acted(Action.PERMISSIONS, journal_stream.CERTIFICATE)
    if journal_stream.AUTHORITY in paths:
        events += _authority_events(facts, authority.pem)
    # Both services read copies that they got when they started.
    marks = services.UPLOAD.set_mark() if here.receiver else ()
    marks += services.RECEIVE.set_mark() if here.senders else ()
    return Changeset(events=tuple(events), commands=(*marks, *map(remote_files.put_managed, stale)))


def _certificate_events(facts: StreamFacts, here: NodeStreams) -> tuple[Event, ...]:
    there = facts.before(journal_stream.CERTIFICATE) is not None
    action = Action.REWRITE if there else Action.WRITE
    by = "signed by the rack's CA" if here.had_authority else "signed by the rack's CA, which is made beside rack.yaml"
    return file_acted(action, journal_stream.CERTIFICATE, detail=by)


def _authority_events(facts: StreamFacts, wanted: bytes | None) -> tuple[Event, ...]:
    before = facts.before(journal_stream.AUTHORITY)
    if before is not None and before == wanted:
        return file_acted(Action.PERMISSIONS, journal_stream.AUTHORITY)
    return file_acted(Action.WRITE if before is None else Action.REWRITE, journal_stream.AUTHORITY)


@operation_on_host(_read_streams)
def receive_journals(here: NodeStreams) -> Changeset:
    """Run the receiver where other nodes send their journals; remove it elsewhere. Received journals stay."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts = here.facts
    if not here.senders:
        return _remove_service(facts, services.RECEIVE)
    files = journal_stream.receiver_files(facts.rack, facts.node)
    reason = f"receives the journals of {', '.join(here.senders)}"
    state = facts.state(services.RECEIVE, files, renewed=here.uncertified)
    return services.RECEIVE.differences(state).changeset(reason)


@operation_on_host(_read_streams)
def send_journal(here: NodeStreams) -> Changeset:
    """Send the journal of this node to its receiver; stop where rack.yaml no longer declares it."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts, to = here.facts, here.receiver
    if to is None:
        return _remove_service(facts, services.UPLOAD)
    warnings: tuple[Event, ...] = ()
    if facts.rack.options(BlackboxOptions).remote == "plain":
        detail = (
            f"its journal goes to {to.name} unencrypted (blackbox.remote: plain): any host on the management network "
            "can read and forge it; tls encrypts it"
        )
        warnings = (Event(EventKind.NOTE, detail=detail),)
    files = journal_stream.sender_files(facts.rack, to)
    reason = f"the journal goes to {to.name}"
    state = facts.state(services.UPLOAD, files, renewed=here.uncertified)
    return services.UPLOAD.differences(state).changeset(reason, warnings)


@operation_on_host(_read_streams)
def receive_kernel_messages(here: NodeStreams) -> Changeset:
    """Run the receiver where kernels of other nodes send their messages; remove it elsewhere. Received ones stay."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts, names = here.facts, [node.name for node in netconsole.senders(here.facts.rack, here.facts.node)]
    if not names:
        return _remove_service(facts, services.NETCONSOLE_RECEIVE)
    files = netconsole.receiver_files(facts.rack, facts.node)
    reason = f"receives the kernel messages of {', '.join(names)}"
    service = services.NETCONSOLE_RECEIVE
    return service.differences(facts.state(service, files)).changeset(reason)


@operation_on_host(_read_streams)
def send_kernel_messages(here: NodeStreams) -> Changeset:
    """Have the kernel of this node send its messages; stop where rack.yaml no longer declares it."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts = here.facts
    to = netconsole.receiver(facts.rack, facts.node)
    if to is None:
        return _without_netconsole(facts)
    detail = (
        f"messages of its kernel go to {to.name} unencrypted (blackbox.netconsole: plain): any host on the management "
        "network can read and forge them"
    )
    warnings = (Event(EventKind.NOTE, detail=detail),)
    files = netconsole.sender_files(facts.rack, facts.node, to)
    reason = f"messages of the kernel go to {to.name}"
    changes = services.NETCONSOLE.differences(facts.state(services.NETCONSOLE, files))
    if changes.events or not netconsole.armed(facts.netconsole, facts.node, to):
        # The service arms the target; the timer only repeats it.
        event = Event(EventKind.RESTART, subject=netconsole.SERVICE, action=Action.START)
        changes += ServiceChanges((event,), (sudo_script(f"systemctl start {netconsole.SERVICE}"),))
    return changes.changeset(reason, warnings)


def _without_netconsole(facts: StreamFacts) -> Changeset:
    there = facts.before(netconsole.PROGRAM) is not None
    off = f"{netconsole.PROGRAM} --off" if there else ""
    return _remove_service(facts, services.NETCONSOLE, off)


def _remove_service(facts: StreamFacts, service: ManagedService, then: str = "") -> Changeset:
    changes = service.removal(facts.state(service), "rack.yaml no longer declares it", then)
    return changes.changeset("rack.yaml declares none of it")


@operation_on_host(_read_streams)
def remove_certificates(here: NodeStreams) -> Changeset:
    """Remove the key and the certificates of a node that needs none any more."""
    if here.blockers:
        return Changeset(blockers=here.blockers)
    facts = here.facts
    there = [path for path in journal_stream.PUBLIC_PATHS if facts.before(path) is not None]
    there += [journal_stream.KEY] if facts.key_permissions else []
    if here.encrypted or not there:
        return Changeset(in_sync_reason="the node has no certificate that it does not need")
    return Changeset(
        events=file_acted(Action.REMOVE, *there, detail="nothing of this node is encrypted"),
        commands=(sudo_script(f"rm -f {quote(*there)}; rmdir --ignore-fail-on-non-empty {journal_stream.FOLDER}"),),
    )
