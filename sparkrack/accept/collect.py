"""Read a rack, and evaluate what it shows of each claim. Nothing is changed, and no lock is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from core.claims.claims import CheckLook, Claim, NodeLook, SwitchLook
from core.model import Rack, SecretError, Switch
from core.probes import protocol
from core.probes.protocol import InvalidAnswerError, UnknownError
from core.routeros.errors import SwitchError, UnreadableError
from core.routeros.menus import RESOURCE
from core.routeros.session import open_connection
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util.progress import NO_PROGRESS, ProgressObserver
from core.util.provenance import Origin
from sparkrack.accept.bundle import IDENTITY, IDENTITY_COMMAND, Recording
from sparkrack.accept.checks import COMPARED_WITH_SWITCH, NODE_CHECKS, SWITCH_CHECKS
from sparkrack.accept.claim_results import claim_result, evidence, node_result, switch_result, unknown
from sparkrack.accept.model import AcceptReport, ClaimResult, HostReading, MachineResult
from switch.accept_record import ProbeReading, read_probe
from switch.verify_client import SwitchChecks

ANSWER_SECONDS = 90.0
"""Seconds for all commands of a node; lspci alone may take 20."""
CONNECT_SECONDS = 5
ORDER = ("refuted", "observed", "not observed")
"""The order of claims in a report, by their results."""


@dataclass(frozen=True)
class _Readings:
    """`commands`: those of each node by claim, and `nodes` their answers, or why there are none; `silent`: why a switch
    does not answer.
    """

    commands: Mapping[str, Mapping[str, str]]
    nodes: Mapping[str, protocol.Answers | str]
    switches: Mapping[str, SwitchChecks]
    silent: Mapping[str, str]


def accept(
    rack: Rack,
    machines: Sequence[str],
    claims: Sequence[Claim],
    origin: Origin,
    progress: ProgressObserver = NO_PROGRESS,
    *,
    recording: Recording | None = None,
) -> AcceptReport:
    """Read these hosts and return what they show of these claims.

    recording: gets all that the hosts answer, and of each switch all that a probe reads. Raises ConfigError when the
    rack's key or known_hosts is a special file.
    """
    commands = {name: _list_commands(rack, name, claims) for name in machines if name in rack.nodes}
    asked = [name for name, texts in commands.items() if texts]
    if recording is not None:
        commands = {name: {**texts, IDENTITY: IDENTITY_COMMAND} for name, texts in commands.items()}
        asked = list(commands)
    if recording is not None or any(_reads_switch(claim) for claim in claims):
        asked += [name for name in machines if name in rack.switches]
    progress.phase("read the claims", asked)
    with _open_readings(rack, asked, commands, progress) as readings:
        results = [_claim_result(rack, machines, claim, readings) for claim in claims]
        hosts = [_host_reading(name, readings) for name in asked]
        if recording is not None:
            recording.nodes |= readings.nodes
            recording.switches |= {name: _probe_switch(rack.switches[name]) for name in readings.switches}
    return AcceptReport(
        rack=rack.rack,
        origin=origin,
        level="look",
        hosts=tuple(hosts),
        claims=tuple(sorted(results, key=lambda one: ORDER.index(one.result))),
    )


def _probe_switch(switch: Switch) -> ProbeReading | str:
    """All that a switch prints to its user over the API, also when its reader gets no answer; or why it does not."""
    try:
        with open_connection(switch, lambda _: None) as line:
            return read_probe(line)
    except (SwitchError, SecretError, UnreadableError) as fault:
        return str(fault)


def _check_of_claim(claim: Claim) -> str:
    return claim.look.check if isinstance(claim.look, CheckLook) else ""


def _reads_switch(claim: Claim) -> bool:
    return isinstance(claim.look, SwitchLook) or _check_of_claim(claim) in {*SWITCH_CHECKS, *COMPARED_WITH_SWITCH}


def _list_commands(rack: Rack, node: str, claims: Sequence[Claim]) -> dict[str, str]:
    """The commands of a node by the id of the claim."""
    found = {}
    for claim in claims:
        check = NODE_CHECKS.get(_check_of_claim(claim))
        text = claim.look.node if isinstance(claim.look, NodeLook) else check.command(rack, node) if check else ""
        if text:
            found[claim.id] = text
    return found


@contextmanager
def _open_readings(
    rack: Rack,
    asked: Sequence[str],
    commands: Mapping[str, Mapping[str, str]],
    progress: ProgressObserver,
) -> Iterator[_Readings]:
    nodes = [name for name in asked if name in rack.nodes]
    with ExitStack() as stack:
        looks = {name: SwitchChecks(rack, rack.switches[name]) for name in asked if name in rack.switches}
        for look in looks.values():
            stack.callback(look.close)
        shells = stack.enter_context(open_shells(rack, nodes, ANSWER_SECONDS, CONNECT_SECONDS))
        with ThreadPoolExecutor(max(1, len(asked))) as pool:

            def ask(name: str) -> protocol.Answers | str:
                answer = _ask_node(shells[name], commands[name])
                progress.finish(name, "no answer" if isinstance(answer, str) else "answered")
                return answer

            def reach(name: str) -> str:
                why = _why_unreachable(looks[name])
                progress.finish(name, "no answer" if why else "answered")
                return why

            answers, reached = pool.map(ask, nodes), pool.map(reach, looks)
            silent = {name: why for name, why in zip(looks, reached, strict=True) if why}
            found = dict(zip(nodes, answers, strict=True))
        yield _Readings(commands, found, looks, silent)


def _ask_node(shell: RootShell, commands: Mapping[str, str]) -> protocol.Answers | str:
    try:
        done = shell.run(protocol.script(commands))
        return protocol.parse(bytes(done.stdout_bytes).decode(errors="backslashreplace"), commands)
    except UnreachableError as gone:
        return f"cannot be reached: {gone.why}"
    except InvalidAnswerError as fault:
        return f"cannot be understood: {fault}"


def _why_unreachable(look: SwitchChecks) -> str:
    """Return why a switch does not answer; empty when it does."""
    try:
        look.ask(RESOURCE.sentence())
    except UnknownError as fault:
        return fault.reason
    return ""


def _host_reading(name: str, readings: _Readings) -> HostReading:
    answer = readings.nodes.get(name)
    why = answer if isinstance(answer, str) else readings.silent.get(name, "")
    return HostReading(host=name, answered=not why, reason=evidence(why))


def _claim_result(rack: Rack, machines: Sequence[str], claim: Claim, readings: _Readings) -> ClaimResult:
    nodes = [name for name in machines if claim.id in readings.commands.get(name, ())]
    found = [_of_node(rack, name, claim, readings) for name in nodes]
    if isinstance(claim.look, SwitchLook) or _check_of_claim(claim) in SWITCH_CHECKS:
        switches = [rack.switches[name] for name in machines if name in rack.switches]
        found += [_of_switch(one, claim, readings) for one in switches]
    return claim_result(claim, filter(None, found))


def _of_node(rack: Rack, name: str, claim: Claim, readings: _Readings) -> MachineResult | None:
    answers = readings.nodes[name]
    if isinstance(answers, str):
        return unknown(name, answers)
    try:
        text = answers.reading.text(claim.id)
        if isinstance(claim.look, NodeLook):
            return node_result(claim.look, name, text)
        return NODE_CHECKS[_check_of_claim(claim)].evaluate(rack, name, text, readings.switches)
    except UnknownError as fault:
        return unknown(name, fault.reason)


def _of_switch(switch: Switch, claim: Claim, readings: _Readings) -> MachineResult | None:
    name, wanted = switch.name, claim.look
    if isinstance(wanted, SwitchLook) and wanted.model not in (None, switch.hardware.name):
        return None
    if name in readings.silent:
        return unknown(name, readings.silent[name])
    look = readings.switches[name]
    try:
        if isinstance(wanted, SwitchLook):
            fields = dict.fromkeys(("name", *wanted.where, *wanted.fields))
            return switch_result(wanted, name, look.ask((f"{wanted.menu}/print", f"=.proplist={','.join(fields)}")))
        return SWITCH_CHECKS[_check_of_claim(claim)](look)
    except UnknownError as fault:
        return unknown(name, fault.reason)
