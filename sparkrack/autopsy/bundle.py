"""The archive of an autopsy: the report, and what it rests on, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from core.model import Rack
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from roles.blackbox.stream_routes import receiver
from sparkrack.autopsy.evidence import Evidence
from sparkrack.autopsy.model import AutopsyReport
from sparkrack.autopsy.questions import ABSENT, BUNDLE_SECONDS, CLOCK, FILES, of_receiver
from sparkrack.autopsy.render import lines
from sparkrack.engine.run_log import versions
from sparkrack.support.bundle import Bundle, HostAnswer


def fill(rack: Rack, evidence: Evidence, report: AutopsyReport) -> Bundle:
    """Return the bundle: the report, the files of the node if it answers, and what its receiver has of it."""
    bundle = Bundle()
    bundle.add("autopsy.json", report.model_dump_json(by_alias=True, indent=1) + "\n")
    bundle.add("autopsy.txt", "".join(f"{line}\n" for line in lines(report)))
    bundle.hosts.append(_add_answers(bundle, rack, evidence.node, f"nodes/{evidence.node}", FILES))
    if (peer := receiver(rack, rack.nodes[evidence.node])) is not None:
        asked = {f"{key}.txt": text for key, text in of_receiver(evidence.node, None).items() if key != CLOCK}
        bundle.hosts.append(_add_answers(bundle, rack, peer.name, f"nodes/{peer.name}/of-{evidence.node}", asked))
    return bundle


def _add_answers(bundle: Bundle, rack: Rack, name: str, top: str, questions: Mapping[str, str]) -> HostAnswer:
    """Add the answers of a node, and return whether it answered."""
    with open_shells(rack, [name], BUNDLE_SECONDS) as shells:
        for file, question in questions.items():
            try:
                done = shells[name].run(question)
            except UnreachableError as gone:
                return HostAnswer(name=name, answered=False, reason=gone.why)
            if done.rc == ABSENT:
                continue
            text = (done.stdout_bytes + done.stderr_bytes).decode(errors="replace")
            text += f"exit {done.rc}\n" if done.rc else ""
            bundle.add(f"{top}/{file}", text)
    return HostAnswer(name=name, answered=True)


def write_archive(rack: Rack, evidence: Evidence, report: AutopsyReport, folder: Path) -> Path:
    """Write the archive and return its path. Raises CommandError."""
    made = datetime.now(UTC).replace(microsecond=0)
    path = folder / f"sparkrack-autopsy-{rack.rack}-{report.node}-{made:%Y%m%dT%H%M%SZ}.tar.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fill(rack, evidence, report).write(path, rack.rack, made, versions(), anonymized=False)
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or fault
        raise CommandError(f"{path}: {why}; no archive was written") from None
    return path
