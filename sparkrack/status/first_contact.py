"""Which hosts a status shows as unknown because they had no first contact yet."""

from __future__ import annotations

from collections.abc import Mapping

from core.model import Rack
from core.ssh.host_keys import HostKeyError, pinned
from sparkrack.status.collect_answers import Answer, NoAnswer
from switch.bootstrap.menus import PLACEHOLDER

_REFUSED = ("Permission denied", "a password is required")
"""What ssh and sudo print on a node that `sparkrack bootstrap nodes` has not set up."""


def first_contact(rack: Rack, answers: Mapping[str, Answer]) -> list[str]:
    """Return the command for the first contact with the hosts that had none yet; empty when there are none. Such a node
    has no pinned host key, or refuses our login; such a switch has no pinned certificate.
    """

    def known(name: str) -> bool:
        try:
            return bool(pinned(rack.access.known_hosts, str(rack.nodes[name].address), rack.access.port))
        except HostKeyError:
            return True  # `bootstrap` could not pin one, either

    silent = {name: answer.why for name, answer in answers.items() if isinstance(answer, NoAnswer)}
    nodes = [
        name
        for name in rack.nodes
        if name in silent and (not known(name) or any(text in silent[name] for text in _REFUSED))
    ]
    unpinned = [
        name for name, one in rack.switches.items() if name in silent and one.tls and one.tls.sha256 == PLACEHOLDER
    ]
    if nodes and unpinned:
        return ["bootstrap"]
    if nodes:
        return ["bootstrap", "nodes", *(nodes if len(nodes) < len(rack.nodes) else ())]
    return ["bootstrap", "switch", unpinned[0]] if unpinned else []
