"""Evaluation of answers by what claims.yaml expects, and of a claim by its hosts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from core.claims.claims import Claim, HandLook, NodeLook, SwitchLook
from core.model.errors import counted, printable_line
from core.routeros.menus import Row
from core.util.scrub import scrub
from sparkrack.accept.model import ClaimResult, MachineResult

EVIDENCE_LENGTH = 400
"""Maximum characters of the evidence of one host."""


def evidence(text: str) -> str:
    """Return text of a machine as one printable line without secrets, cut to EVIDENCE_LENGTH."""
    # Scrubbed before it is cut: the rest of a secret would not be recognized.
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in scrub(text).split("\n"))
    line = printable_line(" / ".join(filter(None, lines)))
    return line if len(line) <= EVIDENCE_LENGTH else line[: EVIDENCE_LENGTH - 3] + "..."


def observed(host: str, text: str) -> MachineResult:
    """A host on which the claim holds."""
    return MachineResult(host=host, result="observed", evidence=evidence(text))


def refuted(host: str, text: str) -> MachineResult:
    """A host on which the claim does not hold."""
    return MachineResult(host=host, result="refuted", evidence=evidence(text))


def unknown(host: str, text: str) -> MachineResult:
    """A host without an answer, or with one that is not understood."""
    return MachineResult(host=host, result="not observed", evidence=evidence(text), unknown=True)


def not_shown(host: str, text: str) -> MachineResult:
    """A host that answered and where the claim cannot be seen."""
    return MachineResult(host=host, result="not observed", evidence=evidence(text))


def node_result(look: NodeLook, host: str, answer: str) -> MachineResult | None:
    """Evaluate what the command of a claim printed on a node; None when the claim is not about this node."""
    if look.when and not look.when.search(answer):
        return None
    if look.needs and not look.needs.search(answer):
        return unknown(host, f"the answer is not understood: {answer or 'it is empty'}")
    absent = [one.pattern.removeprefix("(?m)") for one in look.expect if not one.search(answer)]
    wrong = [f"not in the answer: {', '.join(absent)}"] if absent else []
    wrong += [line.strip() for line in answer.splitlines() if any(one.search(line) for one in look.reject)]
    if wrong and look.excuse and (match := look.excuse.search(answer)):
        return not_shown(host, f"{'; '.join(wrong)}; this may have another cause {match[0]}; answer: {answer}")
    if wrong:
        return refuted(host, f"{'; '.join(wrong)}; answer: {answer}")
    return not_shown(host, f"{look.rest}; the rest holds: {answer}") if look.rest else observed(host, answer)


def switch_result(look: SwitchLook, host: str, rows: Sequence[Row]) -> MachineResult:
    """Evaluate the rows of a menu."""
    counting = [
        row for row in rows if all(pattern.fullmatch(row.get(name, "")) for name, pattern in look.where.items())
    ]
    if not counting:
        return unknown(host, f"{look.menu} has no such row" if rows else f"{look.menu} has no rows")
    wrong, right = [], []
    for row in counting:
        name = row.get("name") or row.get("default-name") or look.menu
        for field in look.fields:
            value = row.get(field)
            if value is None:
                wrong.append(f"{name}: {field} is absent")
            elif look.matches and not look.matches.fullmatch(value):
                wrong.append(f"{name}: {field} is {value}")
            else:
                right.append(f"{field} is {value}")
    if look.count is not None and len(counting) != look.count:
        wrong.insert(0, f"{counted(len(counting), 'row')}, wanted {look.count}")
    if wrong and not (look.rows == "some" and right):
        return refuted(host, f"{look.menu}: {'; '.join(wrong)}")
    return observed(host, f"{look.menu}: {'; '.join(dict.fromkeys(right))}")


def claim_result(claim: Claim, hosts: Iterable[MachineResult], reason: str = "") -> ClaimResult:
    """Return the result of a claim: refuted when one host refutes it, observed when each host that it is about shows
    it, else not observed. reason: why no host was asked.
    """
    found = tuple(hosts)
    results = {one.result for one in found}
    if "refuted" in results:
        result = "refuted"
    elif found and not any(one.unknown for one in found) and "observed" in results:
        result = "observed"
    else:
        result, reason = "not observed", reason or _result_reason(claim, found)
    return ClaimResult.model_validate(
        {
            **claim.model_dump(include={"id", "level", "claim", "observe", "refutes", "matters"}),
            "result": result,
            "reason": reason,
            "hosts": found,
        }
    )


def _result_reason(claim: Claim, hosts: Sequence[MachineResult]) -> str:
    if isinstance(claim.look, HandLook):
        return f"by hand: {claim.look.by_hand}"
    missing: dict[str, list[str]] = {}
    for one in hosts:
        if one.unknown or not any(other.unknown for other in hosts):
            missing.setdefault(one.evidence, []).append(one.host)
    texts = [f"{', '.join(names)}: {text}" for text, names in missing.items()]
    return evidence("; ".join(texts)) if texts else "this rack has no host that it is about"
