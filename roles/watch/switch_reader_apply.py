"""Have the server read the switches every minute, and remove that from a node that no longer does."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.declared_secrets import secret_value
from core.model.secrets import SecretRef
from core.ops import host_facts, remote_files
from core.ops.managed_service import NO_CHANGES, ServiceChanges
from core.ops.operation import Changeset, operation_on_host
from core.ops.shared_survey import SharedSurvey
from core.ops.shell import quote, sudo_script
from core.util.event import Action, file_acted
from core.util.managed_file import FileState
from roles.watch import services, switch_reader
from roles.watch.facts import WatchFacts

_NONE = "this node reads no switch"
_passwords: SharedSurvey[dict[SecretRef, str]] = SharedSurvey()


@dataclass(frozen=True)
class SwitchReaderFacts:
    """Facts of a node, and the file of the passwords; None where this node reads no switch."""

    facts: WatchFacts
    wanted: bytes | None

    @property
    def state(self) -> FileState:
        """The desired state of the file of the passwords."""
        digest = hashlib.sha256(self.wanted or b"").hexdigest()
        return FileState(f"{switch_reader.PASSWORDS_MODE} root:root", digest)


def _read(host: Host, rack: Rack, node: Node) -> SwitchReaderFacts:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not (facts.serves and switch_reader.switches(rack)):
        return SwitchReaderFacts(facts, None)
    refs = switch_reader.secrets(rack)
    values = _passwords.get(host.state, lambda: {ref: secret_value(rack, ref) for ref in refs})
    return SwitchReaderFacts(facts, switch_reader.passwords_text(rack, values))


@operation_on_host(_read)
def run_switch_reader(here: SwitchReaderFacts) -> Changeset:
    """Write the program, its units and the passwords, have the timer run, and read the switches at once."""
    facts, service = here.facts, services.SWITCH_READER
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return service.removal(facts.state(service), _NONE).changeset(_NONE)
    secret = NO_CHANGES
    if facts.passwords != here.state:
        # Never its content, nor a hash of it.
        action, path = Action.REWRITE if facts.passwords else Action.WRITE, switch_reader.PASSWORDS
        put = remote_files.put(path, here.wanted, mode=switch_reader.PASSWORDS_MODE)
        folder = sudo_script(f"umask 022; mkdir -p {quote(switch_reader.FOLDER)}")
        secret = ServiceChanges(file_acted(action, path), (folder, put))
    changes = service.differences(facts.state(service, switch_reader.files(facts.rack)), also=secret)
    return changes.changeset("the switches are read every minute")
