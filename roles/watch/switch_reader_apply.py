"""Have the server read the switches every minute, and remove that from a node that no longer does."""

from __future__ import annotations

from pyinfra.api.host import Host

from core.model import Node, Rack
from core.model.declared_secrets import secret_value
from core.model.secrets import SecretRef
from core.ops import host_facts
from core.ops.managed_service import secret_file
from core.ops.operation import Changeset, operation_on_host
from core.ops.shared_values import SharedValue
from roles.watch import services, switch_reader
from roles.watch.facts import FactsAndSecret, WatchFacts

_NONE = "this node reads no switch"
_passwords: SharedValue[dict[SecretRef, str]] = SharedValue()


def _read_facts(host: Host, rack: Rack, node: Node) -> FactsAndSecret:
    facts = WatchFacts(host_facts.read(host, "watch"), rack, node)
    if not (facts.serves and switch_reader.switches(rack)):
        return FactsAndSecret(facts, None)
    refs = switch_reader.secrets(rack)
    values = _passwords.get(host.state, lambda: {ref: secret_value(rack, ref) for ref in refs})
    return FactsAndSecret(facts, switch_reader.passwords_text(rack, values))


@operation_on_host(_read_facts)
def run_switch_reader(here: FactsAndSecret) -> Changeset:
    """Write the program, its units and the passwords, have the timer run, and read the switches at once."""
    facts, service = here.facts, services.SWITCH_READER
    if facts.blockers:
        return Changeset(blockers=facts.blockers)
    if here.wanted is None:
        return service.removal(facts.state(service), _NONE).changeset(_NONE)
    mode = switch_reader.PASSWORDS_MODE
    secret = secret_file(switch_reader.PASSWORDS, here.wanted, facts.passwords, mode=mode)
    changes = service.differences(facts.state(service, switch_reader.files(facts.rack)), also=secret)
    return changes.changeset("the switches are read every minute")
