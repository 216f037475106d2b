"""The proof of the role blackbox: it passes on a node that is right, and each thing broken fails it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from core.model import Rack
from core.verify.reporter import CheckReporter
from roles.blackbox import boot_evidence, clock_cap, desired, verify, watchdog
from roles.blackbox.options import BlackboxOptions
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import CheckOutcomes, Machine

JOURNAL_LINE = 'GPU clocks set to "(gpuClkMin 300, gpuClkMax 2200)" for GPU 0000000F:01:00.0'
EVIDENCE = f"{boot_evidence.BOOTS}/1f0e1d2c3b4a5968778695a4b3c2d1e0/evidence.json"
RIGHT = {
    "manager": "RuntimeWatchdogUSec=1min\nRebootWatchdogUSec=10min",
    "state": "active",
    "timeout": "60",
    "backend": "efi_pstore",
    "mounted": "pstore",
    "records": "",
    "pstore unit": "enabled",
    "flush unit": "static",
    "pstore.conf": "[PStore]\nStorage=external\nUnlink=yes",
    "tmpfiles": f"d {desired.ARCHIVE} 0755 root root 14d\nx {desired.ARCHIVE}/*",
    "journald.conf": "[Journal]\nStorage=auto\n[Journal]\nStorage=persistent\nSyncIntervalSec=1s\nSystemMaxUse=2048M\n"
    "SystemKeepFree=5G",
    "entry": "1700000000.1 spark1 kernel: x",
    "written": "1700000000",
    "now": "1700000100",
    "age": "   90",
    "cap load": "loaded",
    "cap active": "active",
    "cap file": "enabled",
    "cap line": JOURNAL_LINE,
    "clock": "2177",
    "mark active": "active",
    "collect file": "enabled",
    "evidence": "",
    "sysctl.d": "",
    "lacking": "",
}


def rack(section: str = "clock_cap: {asus: 2200}") -> Rack:
    return loaded(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{{section}}}")))


def node(root: Path, found: Rack, **broken: str) -> Path:
    """A node whose tools answer as one that is right, but for these; `sysctl NAME` stands for a live value."""
    shown = {**RIGHT, **{key: value for key, value in broken.items() if key in RIGHT}}
    live = {key: str(value) for key, value in desired.sysctls(found).items()}
    live |= {key.removeprefix("sysctl "): value for key, value in broken.items() if key.startswith("sysctl ")}
    boot = shown["sysctl.d"] or "\n".join(f"-{key} = {value}" for key, value in desired.sysctls(found).items())

    def say(key: str) -> str:
        return f"printf '%s\\n' {shlex.quote(shown[key])}"

    cap = "\n".join(
        f"{key}={shown[word]}"
        for key, word in (("LoadState", "cap load"), ("ActiveState", "cap active"), ("UnitFileState", "cap file"))
    )
    stand_in(
        root,
        "systemctl",
        f"""case "$*" in
*RuntimeWatchdogUSec*) {say("manager")};;
*{desired.PSTORE_UNIT}) echo UnitFileState={shown["pstore unit"]};;
*{desired.FLUSH_UNIT}) echo UnitFileState={shown["flush unit"]};;
*{desired.JOURNAL_UNIT}) echo MainPID=321;;
*{boot_evidence.MARK}) printf 'LoadState=loaded\\nActiveState={shown["mark active"]}\\nUnitFileState=enabled\\n';;
*{boot_evidence.COLLECT}) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState={shown["collect file"]}\\n';;
*{clock_cap.NAME}) printf '%s\\n' {shlex.quote(cap)};;
*) exit 1;; esac""",
    )
    stand_in(
        root,
        "systemd-analyze",
        f"""case "$*" in *sysctl.d*) printf '%s\\n' {shlex.quote(boot)};;
*pstore.conf*) {say("pstore.conf")};; *journald.conf*) {say("journald.conf")};; *) exit 1;; esac""",
    )
    stand_in(root, "systemd-tmpfiles", say("tmpfiles"))
    stand_in(root, "findmnt", say("mounted"))
    stand_in(root, "ps", say("age"))
    stand_in(root, "stat", say("written"))
    stand_in(root, "date", say("now"))
    stand_in(root, "nvidia-smi", say("clock"))
    stand_in(root, "journalctl", f'case "$*" in *--unit=*) {say("cap line")};; *) {say("entry")};; esac')
    values = " ".join(f"{key}) echo '{value}';;" for key, value in live.items() if key != shown["lacking"])
    stand_in(root, "sysctl", f'case "$2" in {values} *) echo "cannot stat $2" >&2; exit 255;; esac')
    for key in live:
        if key != shown["lacking"]:
            write(root, "/proc/sys/" + key.replace(".", "/"))
    if shown["state"]:
        write(root, f"{watchdog.SYSFS}/watchdog0/state", f"{shown['state']}\n")
        write(root, f"{watchdog.SYSFS}/watchdog0/timeout", f"{shown['timeout']}\n")
    write(root, "/sys/module/pstore/parameters/backend", f"{shown['backend']}\n")
    write(root, "/proc/sys/kernel/random/boot_id", "1f0e1d2c-3b4a-5968-7786-95a4b3c2d1e0\n")
    if shown["evidence"] != "absent":
        write(root, EVIDENCE, shown["evidence"] or json.dumps({"boot": "1f0e1d2c3b4a5968778695a4b3c2d1e0"}))
    (root / "sys/fs/pstore").mkdir(parents=True)
    for name in shown["records"].split():
        write(root, f"/sys/fs/pstore/{name}")
    return root


def outcomes(root: Path, found: Rack, name: str = "spark1") -> tuple[list[str], list[str]]:
    """What fails, and what is skipped."""
    one, machine, declared = found.nodes[name], Machine(root), found.options(BlackboxOptions)
    seen = CheckOutcomes()
    seen.run(verify.test_systemd_feeds_the_watchdog, one, machine, declared, CheckReporter([]))
    for key in verify.SETTINGS:
        seen.run(verify.test_kernel_setting_is_live, one, machine, found, key)
        seen.run(verify.test_kernel_setting_comes_back_at_boot, one, machine, found, key)
    if declared.pstore:
        seen.run(verify.test_the_kernel_can_store_a_panic, one, machine)
        seen.run(verify.test_records_are_archived, one, machine, CheckReporter([]))
    seen.run(verify.test_the_journal_is_on_the_disk, one, machine)
    seen.run(verify.test_the_journal_is_synchronized, one, machine, found, CheckReporter([]))
    seen.run(verify.test_the_clock_is_capped, one, machine, found, CheckReporter([]))
    seen.run(verify.test_the_boot_has_its_evidence, one, machine, declared, CheckReporter([]))
    return seen.failed, seen.skipped


def test_a_node_that_is_right(tmp_path: Path) -> None:
    assert outcomes(node(tmp_path, rack()), rack()) == ([], [])


BROKEN: list[tuple[dict[str, str], str]] = [
    (
        {"manager": "RuntimeWatchdogUSec=0\nRebootWatchdogUSec=10min"},
        "RuntimeWatchdogUSec of systemd is 0 s, wanted 60 s",
    ),
    (
        {"manager": "RuntimeWatchdogUSec=1min\nRebootWatchdogUSec=0"},
        "RebootWatchdogUSec of systemd is 0 s, wanted 600 s",
    ),
    ({"state": "inactive"}, "no watchdog is active with 60 s: inactive 60"),
    ({"timeout": "10"}, "no watchdog is active with 60 s: active 10"),
    ({"state": ""}, "no watchdog is active with 60 s: there is none"),
    ({"sysctl kernel.panic": "0"}, "kernel.panic is 0, wanted 10"),
    ({"lacking": "kernel.softlockup_panic"}, "this kernel has no kernel.softlockup_panic (CONFIG_SOFTLOCKUP_DETECTOR)"),
    ({"backend": "(null)"}, "pstore has no backend"),
    ({"mounted": ""}, "/sys/fs/pstore is not mounted"),
    (
        {"records": "dmesg-efi-1 dmesg-efi-2"},
        "2 records in /sys/fs/pstore are not archived; `systemctl start systemd-pstore.service`",
    ),
    ({"pstore unit": "disabled"}, "systemd-pstore.service is disabled, wanted enabled"),
    ({"pstore.conf": "[PStore]\n#Storage=external"}, "Storage of systemd-pstore is unset, wanted external"),
    (
        {"tmpfiles": f"d {desired.ARCHIVE} 0755 root root 14d"},
        "systemd-tmpfiles deletes records in /var/lib/systemd/pstore by age",
    ),
    ({"entry": ""}, "/var/log/journal has no entry of this boot"),
    ({"flush unit": "masked"}, "systemd-journal-flush.service is masked: a boot's journal is lost"),
    (
        {"journald.conf": f"{RIGHT['journald.conf']}\nSyncIntervalSec=5m"},
        "SyncIntervalSec of journald is 5m, wanted 1s",
    ),
    ({"age": "200"}, f"journald started before {desired.JOURNAL} was written and has not read it"),
    ({"age": "unknown"}, "age of journald: 'unknown'"),
    ({"cap active": "failed"}, "sparkrack-clock-cap.service is failed, wanted active"),
    ({"cap file": "disabled"}, "sparkrack-clock-cap.service is disabled, wanted enabled"),
    ({"cap line": ""}, "nvidia-smi has set no range in this boot, wanted 300 to 2200 MHz"),
    (
        {"cap line": JOURNAL_LINE.replace("2200", "2600")},
        "nvidia-smi has set 300 to 2600 in this boot, wanted 300 to 2200 MHz",
    ),
    ({"clock": "2405"}, "the clock of the GPU is 2405 MHz, wanted at most 2200 MHz"),
    ({"clock": "[N/A]"}, "clock of the GPU is unknown: '[N/A]'"),
    ({"mark active": "inactive"}, "sparkrack-clean-stop.service is inactive, wanted active"),
    ({"collect file": "disabled"}, "sparkrack-boot-evidence.service is disabled, wanted enabled"),
    (
        {"evidence": "absent"},
        f"{EVIDENCE} is not there; journalctl --boot --unit=sparkrack-boot-evidence.service",
    ),
    ({"evidence": "{"}, f"{EVIDENCE} is not evidence: '{{'"),
    ({"evidence": '{"boot": "0"}'}, f"{EVIDENCE} is about boot 0"),
]


@pytest.mark.parametrize(("broken", "reported"), BROKEN, ids=[reported for _, reported in BROKEN])
def test_what_is_broken_fails(tmp_path: Path, broken: dict[str, str], reported: str) -> None:
    assert outcomes(node(tmp_path, rack(), **broken), rack())[0] == [f"spark1: {reported}"]


@pytest.mark.parametrize(("words", "why"), [("echo 'permission denied' >&2; ", "permission denied"), ("", "exit 255")])
def test_a_kernel_setting_that_cannot_be_read_fails(tmp_path: Path, words: str, why: str) -> None:
    stand_in(node(tmp_path, rack()), "sysctl", f"{words}exit 255")
    said = outcomes(tmp_path, rack())[0]
    assert said == [f"spark1: sysctl -n {key}: {why}" for key in verify.SETTINGS]


def test_a_later_drop_in_wins(tmp_path: Path) -> None:
    boot = "\n".join(f"{key} = {value}" for key, value in desired.sysctls(rack()).items())
    failed, _ = outcomes(node(tmp_path, rack(), **{"sysctl.d": f"{boot}\nkernel.panic=0"}), rack())
    assert failed == ["spark1: kernel.panic will be 0 after a boot, wanted 10"]


def test_a_node_of_the_lab(tmp_path: Path) -> None:
    """What a virtual node cannot have is declared off, and skipped with the reason; nothing of it passes unseen."""
    found = rack("watchdog: false, pstore: false, panic: {softlockup: false, rcu_stalls: false}")
    root = node(
        tmp_path, found, state="", backend="(null)", lacking="kernel.softlockup_panic", **{"cap load": "not-found"}
    )
    failed, skipped = outcomes(root, found)
    assert failed == []
    assert skipped == [
        "rack.yaml leaves the watchdog alone",
        "this kernel has no kernel.softlockup_panic, and rack.yaml declares it off",
        *["rack.yaml declares nothing that sets kernel.max_rcu_stall_to_panic"] * 2,
    ]


def test_a_cap_that_is_not_declared_any_more(tmp_path: Path) -> None:
    failed, _ = outcomes(node(tmp_path, rack()), rack(), "spark2")
    assert failed == ["spark2: sparkrack-clock-cap.service is there, and no cap is declared"]


def test_units_of_the_boot_evidence_that_are_not_declared_any_more(tmp_path: Path) -> None:
    found = rack("clock_cap: {asus: 2200}, boot_evidence: false")
    failed, _ = outcomes(node(tmp_path, found), found)
    assert failed == ["spark1: sparkrack-clean-stop.service is there, and boot_evidence is false"]
