"""The files that roles blackbox and watch write, as a whole, for racks with every key, without programs and alerts.

tests/cases/blackbox/files.md and tests/cases/watch/files.md have them; UPDATE_DOCS=1 renews both. Of a file that was
shown before only the lines that differ are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path

import pytest

from core.model import Rack, load
from core.util.managed_file import ManagedFile
from roles.blackbox import boot_evidence, clock_cap, desired, journal_stream, kdump, netconsole, recorder, watchdog
from roles.blackbox.options import BlackboxOptions
from roles.watch import desired as watch_desired
from roles.watch import node_metrics, notifications, rules, scrape, switch_reader
from tests import generated
from tests.unit.model import serving_racks

DEVICE = watchdog.WatchdogDevice("watchdog0", watchdog.SBSA, True, 60, 1, 120)
READER = (
    "    password: {env: SWITCH_PASSWORD}\n",
    "    password: {env: SWITCH_PASSWORD}\n    reader: {user: watcher, password: {env: READER}, port: 8443}\n",
)
BLACKBOX = {
    "every key": (
        "watchdog: 90s, panic: {after: 20s, oops: false, softlockup: false, rcu_stalls: 7, hung_task: true}, "
        "journal: {sync: 2m, keep: 3G}, clock_cap: {nvidia: 2200, n1: 1800}, remote: tls, netconsole: plain, "
        "server: n1, recorder: {rate: 4, keep: 5m}, kdump: {reserve: 1G, vmcore: true}"
    ),
    "every key but these, and plain": (
        "panic: {rcu_stalls: false}, remote: plain, recorder: {rate: 1, keep: 1h}, kdump: {reserve: 384M}"
    ),
    "no key": "",
}
NOTIFY = (
    "{webhook: {env: HOOK}, heartbeat: {env: BEAT}, email: {to: a@example.org, sender: b@example.org, "
    "smarthost: 'mail.example.org:587', user: c, password: {env: MAIL}}}"
)
WATCH = {
    "every key": (
        f"server: n1, interval: 30s, keep: {{days: 3, size: 2G}}, notify: {NOTIFY}, switch: true, psus: 2, "
        "allow: [10.9.0.0/24, 10.8.0.1/32]"
    ),
    "a webhook alone": "notify: {webhook: {env: HOOK}}, switch: false",
    "mail without a login, and a server outside": (
        "server: 10.9.9.9, notify: {email: {to: a@example.org, sender: b@example.org, smarthost: 'm.example.org:25'}}"
    ),
    "no key": "",
}
VALUES = {"HOOK": "https://hook.example.org/x", "BEAT": "https://beat.example.org/y", "MAIL": "of mail", "READER": "r"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def racked(folder: Path, blackbox: str, watch: str, leave: str = "") -> Rack:
    """A rack of three nodes behind a switch with a reader, with units of both engines that are up and down."""
    units = {
        "qwen": serving_racks.unit(nodes=["n0", "n1"]),
        "nemotron": serving_racks.unit(
            serving_racks.NEMOTRON, nodes=["n2"], parallel={"tensor": 1}, api={"port": 9000, "listen": "fabric"}
        ),
        "asleep": serving_racks.unit(nodes=["n0", "n1"], state="down"),
    }
    hosts = serving_racks.machines(3).replace(*READER)
    text = serving_racks.text(units, hosts) + f"blackbox: {{{blackbox}}}\nwatch: {{{watch}}}\nleave: [{leave}]\n"
    path = folder / "rack.yaml"
    path.write_text(text)
    return load(path)


def shown(files: Iterable[ManagedFile], before: dict[str, list[str]]) -> list[str]:
    """Each file with its mode and its check; of a program its path alone. `before`: what was shown, by path."""
    lines = []
    for file in files:
        lines.append(f"## {file.path} {file.mode}" + (f" ({file.validate})" if file.validate else ""))
        if file.path.startswith("/usr/local/lib/"):
            continue
        content = file.content.decode().splitlines()
        if file.path in before:
            lines += [*unified_diff(before[file.path], content, n=0, lineterm="")][2:]
        else:
            lines += content
            before[file.path] = content
    return lines


def of_blackbox(rack: Rack) -> Iterable[tuple[str, list[ManagedFile]]]:
    wanted = rack.options(BlackboxOptions)
    yield (
        "all nodes",
        [
            watchdog.file(rack, DEVICE),
            desired.panic_file(rack),
            *desired.pstore_files(rack),
            desired.journal_file(rack),
            *boot_evidence.files(rack),
            *([kdump.fragment(rack, wanted.kdump), *kdump.files(rack, wanted.kdump)] if wanted.kdump else ()),
        ],
    )
    for node in rack.nodes.values():
        cap, files = clock_cap.cap(rack, node), recorder.files(rack, node)
        files += [clock_cap.unit(rack, cap)] if cap else []
        if to := journal_stream.receiver(rack, node):
            files += journal_stream.sender_files(rack, to)
        if journal_stream.senders(rack, node):
            files += journal_stream.receiver_files(rack, node)
        if to := netconsole.receiver(rack, node):
            files += netconsole.sender_files(rack, node, to)
        if netconsole.senders(rack, node):
            files += netconsole.receiver_files(rack, node)
        yield node.name, files


def test_the_files_of_blackbox(folder: Path) -> None:
    lines, before = list[str](), dict[str, list[str]]()
    for name, section in BLACKBOX.items():
        for title, files in of_blackbox(racked(folder, section, "")):
            lines += [f"# {name}: {title}", *shown(files, before)]
    generated.check("tests/cases/blackbox/files.md", "blackbox", "".join(f"{line}\n" for line in lines))


def of_watch(rack: Rack) -> Iterable[ManagedFile]:
    values = {ref: VALUES[ref.env or ""] for ref in (*notifications.secrets(rack), *switch_reader.secrets(rack))}
    yield from (watch_desired.exporter_dropin(rack, node) for node in rack.nodes.values())
    yield watch_desired.prometheus_dropin(rack)
    yield watch_desired.alertmanager_dropin(rack)
    yield from node_metrics.files(rack)
    yield scrape.prometheus_file(rack)
    text = notifications.alertmanager_text(rack, values)
    yield ManagedFile(watch_desired.NOTIFICATIONS, text, notifications.MODE)
    yield from switch_reader.files(rack)
    yield ManagedFile(switch_reader.PASSWORDS, switch_reader.passwords_text(rack, values), "600")
    whole = rules.rule_file(rack)
    declared, _, _ = whole.content.decode().partition("\n- name: ")[2].partition("\n- name: ")
    yield ManagedFile(whole.path, declared.encode(), validate=whole.validate)


def test_the_files_of_watch(folder: Path) -> None:
    lines, before = list[str](), dict[str, list[str]]()
    for name, section in {**WATCH, "roles that are left alone": ""}.items():
        rack = racked(folder, BLACKBOX["every key"], section, "" if name in WATCH else "memory, blackbox, fabric")
        alerts = ManagedFile("alerts", "\n".join(rules.alert_names(rack)).encode())
        lines += [f"# {name}", *shown((*of_watch(rack), alerts), before)]
    generated.check("tests/cases/watch/files.md", "watch", "".join(f"{line}\n" for line in lines))
