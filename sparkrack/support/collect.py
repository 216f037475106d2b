"""Fill a support bundle: what this machine keeps of the rack, and what nodes and switches answer now."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from core.model import Rack, SecretError, Switch
from core.routeros.errors import CheckError, SentenceError, SwitchError, UnreadableError
from core.routeros.session import SessionConnection, open_connection
from core.routeros.values import visible_row
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.util import regular_file
from core.util.command_error import CommandError
from core.util.paths import state_folder
from core.util.progress import NO_PROGRESS, ProgressObserver
from sparkrack.engine.journal import log_path
from sparkrack.engine.run_log import versions
from sparkrack.engine.subcommands import CALL
from sparkrack.support.bundle import Bundle, HostAnswer, SupportManifest, newest, rack_without_secrets
from sparkrack.support.node_questions import QUESTION_SECONDS, QUESTIONS, SERIALS
from switch.backup import fetch_export

LAST_RUNS = 5
"""Runs, and rebuilds, whose journals and logs are in a bundle."""
COMMAND_SECONDS = 600
"""Seconds for status, and for drift."""
_MAX_READ = 16 << 20
SENTENCES: Mapping[str, tuple[str, ...]] = {
    "health.json": ("/system/health/print",),
    "resource.json": ("/system/resource/print",),
    "routerboard.json": ("/system/routerboard/print",),
    "packages.json": ("/system/package/print",),
    "interfaces.json": ("/interface/ethernet/print",),
    "log.json": ("/log/print",),
}
"""What a switch is asked, by the name of the file that gets the rows."""


def write_support(
    rack: Rack, file: Path, machines: Sequence[str], out: Path, progress: ProgressObserver, *, anonymize: bool
) -> tuple[Path, SupportManifest]:
    """Write the archive about these hosts into a folder; return its path and what it has. Raises CommandError."""
    made = datetime.now(UTC).replace(microsecond=0)
    path = out / f"sparkrack-support-{rack.rack}-{made:%Y%m%dT%H%M%SZ}.tar.gz"
    try:
        out.mkdir(parents=True, exist_ok=True)
        bundle = collect(rack, file, machines, made, anonymize, progress)
        if anonymize:
            bundle.anonymize()
        return path, bundle.write(path, rack.rack, made, versions(), anonymized=anonymize)
    except (OSError, ValueError) as fault:
        raise CommandError(f"{path}: {getattr(fault, 'strerror', None) or fault}; nothing was written") from None


def collect(
    rack: Rack,
    file: Path,
    machines: Sequence[str],
    made: datetime,
    anonymized: bool,
    progress: ProgressObserver = NO_PROGRESS,
) -> Bundle:
    """Return the bundle about these hosts. A host that does not answer is noted in it; nothing is changed but that
    a switch writes its export to a file, which is removed."""
    bundle = Bundle()
    bundle.add("rack.yaml", rack_without_secrets(regular_file.read_text(file)))
    _add_runs(bundle, state_folder(rack.rack))
    for verb in ("status", "drift"):
        progress.phase(f"run sparkrack {verb}")
        _add_command(bundle, verb, file, machines)
    progress.phase("read what the hosts log", machines)
    nodes = [name for name in machines if name in rack.nodes]
    with open_shells(rack, nodes, QUESTION_SECONDS) as shells, ThreadPoolExecutor(max(1, len(nodes))) as pool:

        def ask(name: str) -> HostAnswer:
            found = _add_node(bundle, name, shells[name], anonymized, progress)
            progress.finish(name, "done" if found.answered else "no answer")
            return found

        bundle.hosts += pool.map(ask, nodes)
    for name in machines:
        if name in rack.switches:
            progress.step(name, "its tables and export")
            bundle.hosts.append(_add_switch(bundle, rack.switches[name], made, anonymized))
            progress.finish(name, "done" if bundle.hosts[-1].answered else "no answer")
    return bundle


def _add_runs(bundle: Bundle, state: Path) -> None:
    for folder in ("runs", "rebuild"):
        for journal in newest((state / folder).glob("*.ndjson"), LAST_RUNS):
            for path in (journal, log_path(journal)):
                try:
                    text = regular_file.read_bytes(path, _MAX_READ).decode(errors="backslashreplace")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    text = f"cannot be read: {error.strerror}\n"
                bundle.add(f"{folder}/{path.name}", text)


def _add_command(bundle: Bundle, verb: str, file: Path, machines: Iterable[str]) -> None:
    words = [verb, "--json", "--rack", str(file), *(word for name in machines for word in ("--limit", name))]
    try:
        done = subprocess.run(
            [*CALL, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        bundle.add(f"{verb}.txt", f"sparkrack {verb} --json gave no result: {type(error).__name__}\n")
        return
    bundle.add(f"{verb}.json", done.stdout.decode(errors="backslashreplace"))
    complaints = done.stderr.decode(errors="backslashreplace")
    bundle.add(f"{verb}.txt", f"{complaints}exit {done.returncode}\n")


def _add_node(bundle: Bundle, name: str, shell: RootShell, anonymized: bool, progress: ProgressObserver) -> HostAnswer:
    why = ""
    for number, (file, question) in enumerate(QUESTIONS.items(), 1):
        progress.step(name, file, number, len(QUESTIONS))
        try:
            done = shell.run(question)
        except UnreachableError as gone:
            why = why or f"{file}: {gone.why}"
            bundle.add(f"nodes/{name}/{file}", f"no answer: {gone.why}\n")
            if file == next(iter(QUESTIONS)):
                break
            continue
        text = f"{done.stdout}{done.stderr}" + (f"exit {done.rc}\n" if done.rc else "")
        bundle.add(f"nodes/{name}/{file}", text)
    if anonymized and not why:
        try:
            bundle.serials += str(shell.run(SERIALS).stdout).split()
        except UnreachableError as gone:
            why = f"its serial numbers are unknown: {gone.why}"
    return HostAnswer(name=name, answered=not why, reason=why)


def _add_switch(bundle: Bundle, switch: Switch, made: datetime, anonymized: bool) -> HostAnswer:
    top, why = f"switches/{switch.name}", ""
    try:
        with open_connection(switch, lambda _: None) as line:
            for file, sentence in SENTENCES.items():
                rows = _answer_rows(line, sentence)
                bundle.add(f"{top}/{file}", json.dumps(rows, indent=1) + "\n")
                if anonymized:
                    bundle.serials += [value for row in rows for key, value in row.items() if "serial" in key and value]
            export = fetch_export(line, f"sparkrack-{made:%Y%m%dT%H%M%S}-5050")
            bundle.add(f"{top}/export.rsc", export.decode(errors="backslashreplace"))
    except (SwitchError, SecretError, UnreadableError, CheckError) as fault:
        why = str(fault)
        bundle.add(f"{top}/error.txt", f"{why}\n")
    return HostAnswer(name=switch.name, answered=not why, reason=why)


def _answer_rows(line: SessionConnection, sentence: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of an answer; one with the reason when the switch refuses the sentence. Raises SwitchError."""
    try:
        return [visible_row(row) for row in line.talk(*sentence)]
    except SentenceError as refused:
        return [{"refused": str(refused)}]
