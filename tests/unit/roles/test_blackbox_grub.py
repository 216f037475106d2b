"""The role's parameters of the kernel, and its settings of kdump-tools, read by the real programs of both packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.ops.shell import sudo_script
from roles.blackbox import boot_parameters, facts, kdump, watchdog
from roles.blackbox.desired import parse_live
from tests.tiers import crossed, sampled
from tests.unit.roles.grub_node import FIRST, PACKAGES, GrubNode, made, needs_grub
from tests.unit.roles.test_blackbox_kernel import rack
from tests.unit.roles.test_blackbox_shell import COMMANDS

pytestmark = needs_grub
OURS = {kdump.PARAMETER: (kdump.FRAGMENT, "1G-:512M"), watchdog.PARAMETER: (watchdog.FRAGMENT, "1")}
NORMAL = "simple", "advanced 1021", "advanced 1014"


def written(node: GrubNode, *names: str) -> None:
    """Write fragments of ours."""
    for name in names or OURS:
        path, value = OURS[name]
        node.write(path, boot_parameters.fragment(rack(), path, f"{name}={value}").content.decode())


def applied(node: GrubNode, name: str) -> str:
    """Have GRUB read our fragment of a parameter, as the role does it. Returns what is wrong."""
    path, value = OURS[name]
    done = node.run(sudo_script(boot_parameters.update(path, name, value)))
    assert (done.returncode == 0) == (not done.stderr), done
    return done.stderr


def state(node: GrubNode) -> dict[tuple[str, str], str]:
    done = node.run(COMMANDS[facts.KERNEL])
    assert done.returncode == 0, done.stderr
    return parse_live(done.stdout)


def values(entry: str, name: str) -> list[str]:
    return [word.partition("=")[2] for word in entry.split() if word.startswith(f"{name}=")]


@pytest.mark.parametrize("distribution", ["ubuntu", "debian"])
def test_each_entry_has_our_parameters_once_and_last_and_keeps_all_others(tmp_path: Path, distribution: str) -> None:
    """The entries for recovery have what packages give all entries, and nothing of ours. Removal leaves what was."""
    node = made(tmp_path, distribution)
    before, text = node.entries(), node.read(boot_parameters.CONFIG)
    packaged = values(before[0], kdump.PARAMETER)
    assert before[0].startswith(f"{FIRST} crashkernel=1G-:0M quiet splash crashkernel="), before[0]
    assert packaged[0] == "1G-:0M", "the factory's, and that of kdump-tools after it"
    assert len(packaged) == 2
    written(node)
    for name in OURS:
        assert applied(node, name) == ""
    after = node.entries()
    assert len(after) == len(before) == len(NORMAL) + 2
    for old, new in zip(before, after, strict=True):
        recovery = re.search(r"\b(single|recovery)\b", old)
        for name, (_, value) in OURS.items():
            assert values(new, name) == values(old, name) + ([] if recovery else [value])
        ours = {f"{name}={value}" for name, (_, value) in OURS.items()}
        assert [word for word in new.split(" ") if word not in ours] == old.split(" ")
    found = state(node)
    assert (found["grub", "crashkernel"], found["grub", "watchdog"]) == ("1G-:512M", "1")
    for path, _ in OURS.values():
        assert node.run(sudo_script(boot_parameters.remove(path))).returncode == 0
    assert node.read(boot_parameters.CONFIG) == text


def test_a_second_run_writes_the_same_menu(tmp_path: Path) -> None:
    node = made(tmp_path)
    written(node)
    texts = set()
    for _ in range(2):
        for name in OURS:
            assert applied(node, name) == ""
        texts.add(node.read(boot_parameters.CONFIG))
    assert len(texts) == 1


LATER = {
    "appends": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=4G sbsa_gwdt.action=0"',
    "replaces the line": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"',
    "replaces it unquoted": "GRUB_CMDLINE_LINUX_DEFAULT=quiet",
}


@pytest.mark.parametrize(("line", "name"), crossed(LATER, list(OURS)))
def test_a_file_that_is_read_later_and_wins_is_named(tmp_path: Path, line: str, name: str) -> None:
    """The next run finds it as well: what GRUB has differs from what is declared."""
    node = made(tmp_path)
    node.write("/etc/default/grub.d/zzz-local.cfg", f"{LATER[line]}\n")
    node.write("/etc/default/grub.d/zzz-other.cfg", "GRUB_TIMEOUT=3\n")
    written(node)
    value = OURS[name][1]
    assert applied(node, name) == (
        f"/boot/grub/grub.cfg does not give the kernel {name}={value}: a file of /etc/default/grub.d that is read "
        "later wins: /etc/default/grub.d/zzz-local.cfg\n"
    )
    found = state(node)
    assert found["grub", "crashkernel" if name == kdump.PARAMETER else "watchdog"] != value


@pytest.mark.parametrize("style", [LATER["appends"], 'GRUB_CMDLINE_LINUX="crashkernel=4G"'])
def test_a_file_that_is_read_earlier_does_not_win(tmp_path: Path, style: str) -> None:
    node = made(tmp_path)
    node.write("/etc/default/grub.d/zz-a.cfg", f"{style}\n")
    node.write("/etc/default/grub.d/ZZZ.cfg", f"{style}\n")
    written(node)
    assert [applied(node, name) for name in OURS] == ["", ""]


def unfinished(node: GrubNode) -> tuple[bool, str]:
    found = state(node)
    return boot_parameters.grub(found).unfinished, found["grub", "crashkernel"]


@pytest.mark.parametrize(
    ("mounts", "said"),
    [
        ('mount --bind "$root/boot" "$root/boot"; mount -o remount,bind,ro "$root/boot"', "Read-only file system"),
        ('mount -t tmpfs -o size=4k none "$root/boot/grub"; : > "$root/boot/grub/grub.cfg"', "No space left on device"),
    ],
)
def test_a_folder_of_grub_that_cannot_be_written_fails_the_run(tmp_path: Path, mounts: str, said: str) -> None:
    node = made(tmp_path)
    written(node)
    node.write("/mounts", f"{mounts}\n")
    assert said in applied(node, kdump.PARAMETER)
    (node.root / "mounts").unlink()
    assert unfinished(node)[1] != "1G-:512M", "the next run sees that GRUB has not read it"
    assert applied(node, kdump.PARAMETER) == ""
    assert unfinished(node) == (False, "1G-:512M")


FAILS = {
    "a fragment that is not a shell text": ("/etc/default/grub.d/zzz.cfg", 'GRUB_TIMEOUT="3\n'),
    "a fragment that fails": ("/etc/default/grub.d/zzz.cfg", "false\n"),
    "a generator that fails": ("/etc/grub.d/50_local", "#!/bin/sh\nexit 7\n"),
    "a menu that GRUB could not read": ("/etc/grub.d/50_local", "#!/bin/sh\necho 'menuentry x {'\n"),
}


@pytest.mark.parametrize("about", sampled(FAILS, 2))
def test_an_update_that_fails_changes_nothing_and_is_seen_by_the_next_run(tmp_path: Path, about: str) -> None:
    node = made(tmp_path)
    text = node.read(boot_parameters.CONFIG)
    path, content = FAILS[about]
    node.write(path, content).chmod(0o755)
    written(node)
    assert applied(node, kdump.PARAMETER) != ""
    assert node.read(boot_parameters.CONFIG) == text
    assert unfinished(node)[1] != "1G-:512M"
    (node.root / path.lstrip("/")).unlink()
    assert applied(node, kdump.PARAMETER) == ""


def test_a_menu_that_was_copied_in_part_is_not_a_menu(tmp_path: Path) -> None:
    """grub-mkconfig copies the new menu over the old one. Where that fails the first entry can be right, and the rest
    is missing: GRUB would show an error at the boot."""
    node = made(tmp_path)
    written(node)
    assert applied(node, kdump.PARAMETER) == ""
    menu = node.read(boot_parameters.CONFIG)
    page = 4096
    # The disk has room for the new menu, and for the pages of its copy up to the first entry.
    needed, first = -(-len(menu) // page), menu.index("crashkernel=1G-:512M") // page + 1
    assert first < needed
    blocks = f"size={(needed + first) * page}"
    full = f'mount -t tmpfs -o {blocks} none "$root/boot/grub"; : > "$root/boot/grub/grub.cfg"'
    node.write("/mounts", f"{full}\n{MOUNTS_THAT_RETURN}")
    failed = node.run("update-grub")
    assert "No space left on device" in failed.stderr
    (node.root / "mounts").unlink()
    cut = node.read("/cut")
    assert "crashkernel=1G-:512M" in cut, "the first entry is whole"
    assert len(cut) < len(menu)
    assert "grub.cfg.new" in node.read("/names")
    node.write(boot_parameters.CONFIG, cut)
    node.write(f"{boot_parameters.CONFIG}.new", menu)
    assert unfinished(node) == (True, "1G-:512M")
    assert applied(node, kdump.PARAMETER) == ""
    assert unfinished(node) == (False, "1G-:512M")
    assert node.read(boot_parameters.CONFIG) == menu


MOUNTS_THAT_RETURN = """chroot "$root" /bin/sh -c "$script" || status=$?
cat "$root/boot/grub/grub.cfg" > "$root/cut"
ls "$root/boot/grub" > "$root/names"
exit ${status:-0}
"""
"""Ends the mounts after the script, so that what it left on them can be kept."""


def test_a_menu_that_is_older_than_the_boot(tmp_path: Path) -> None:
    node = made(tmp_path)
    assert not boot_parameters.grub(state(node)).older
    (started,) = re.findall(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    node.run(f"touch -d @{int(started) - 60} {boot_parameters.CONFIG}")
    assert boot_parameters.grub(state(node)).older


def with_kdump(node: GrubNode, declared: str) -> dict[str, str]:
    """Install the settings of the package, and write ours, as the role does it."""
    template = (PACKAGES / "usr/share/kdump-tools/kdump-tools.conf").read_bytes()
    wanted = kdump.options(rack(declared))
    settings = kdump.settings(wanted, template) if wanted else {}
    node.write(kdump.SETTINGS, (kdump.with_settings(template, settings) if wanted else kdump.off(template)).decode())
    for file in kdump.files(rack(declared), wanted) if wanted else ():
        node.write(file.path, file.content.decode()).chmod(int(file.mode, 8))
    return settings


@pytest.mark.parametrize("declared", ["kdump: {}", "kdump: {vmcore: true}", "kdump: false"])
def test_kdump_tools_reads_our_settings(tmp_path: Path, declared: str) -> None:
    node = made(tmp_path)
    settings = with_kdump(node, declared)
    on = "1" if settings else "0"
    done = node.run("kdump-config show")
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^USE_KDUMP:\s*(\S*)$", done.stdout, re.MULTILINE)
    assert shown == [on]
    # The script of the unit loads nothing for USE_KDUMP=0, which is not an error.
    started = node.run("/etc/init.d/kdump-tools start")
    assert (started.returncode == 0 and not started.stdout) == (not settings), started


def savecore(node: GrubNode, script: str, makedumpfile: str = ': > "$last"') -> list[str]:
    """Run what the crash kernel runs. Returns the calls of the programs that read the memory, and of reboot."""
    log = 'echo "${0##*/} $*" >> /calls; for last in "$@"; do :; done; '
    for name, text in (("makedumpfile", makedumpfile), ("vmcore-dmesg", "echo log"), ("reboot", ":")):
        node.write(f"/stand-in/{name}", f"#!/bin/sh\n{log}{text}\n").chmod(0o755)
    # The scripts set a PATH of their own, and then read this file.
    node.write(kdump.SETTINGS, f"{node.read(kdump.SETTINGS)}PATH=/stand-in:$PATH\n")
    node.write("/calls")
    node.run(script)
    return node.read("/calls").splitlines()


def test_the_scripts_of_the_package_write_the_memory_whatever_is_set(tmp_path: Path) -> None:
    """Why the role has a program of its own: no setting of kdump-tools keeps the log alone."""
    node = made(tmp_path)
    with_kdump(node, "kdump: {}")
    node.write(kdump.SETTINGS, node.read(kdump.SETTINGS) + "KDUMP_SKIP_VMCORE=1\n")
    found = savecore(node, "kdump-config savecore")
    assert [call for call in found if "/proc/vmcore" in call and "--dump-dmesg" not in call], found


def test_our_program_keeps_the_log_alone_and_restarts_the_node(tmp_path: Path) -> None:
    node = made(tmp_path)
    with_kdump(node, "kdump: {}")
    (stamp,) = node.run("date +%Y").stdout.split()
    for name in ("202401010101", "202501010101", "202501010102", "kexec_cmd", "kdump_lock"):
        node.write(f"/var/crash/{name}/dump")
    found = savecore(node, kdump.PROGRAM)
    folders = sorted(path.name for path in (node.root / "var/crash").iterdir())
    assert folders[-2:] == ["kdump_lock", "kexec_cmd"]
    assert folders[:2] == ["202501010101", "202501010102"], "the last three are kept"
    assert folders[2].startswith(stamp)
    assert len(folders) == 5
    log = f"/var/crash/{folders[2]}/dmesg.{folders[2]}"
    assert found == [f"makedumpfile --dump-dmesg /proc/vmcore {log}", "reboot -f"]
    assert node.read(log) == ""


def test_the_log_is_kept_by_the_other_program_where_makedumpfile_fails(tmp_path: Path) -> None:
    """A kernel that is newer than makedumpfile. The folder is the owner's."""
    node = made(tmp_path)
    with_kdump(node, "kdump: {}")
    node.write(kdump.SETTINGS, node.read(kdump.SETTINGS).replace("/var/crash", "/srv/crash"))
    found = savecore(node, kdump.PROGRAM, "exit 1")
    (log,) = (node.root / "srv/crash").glob("*/dmesg.*")
    assert [call.split()[0] for call in found] == ["makedumpfile", "vmcore-dmesg", "reboot"]
    assert log.read_text() == "log\n"


def test_the_unit_of_the_crash_kernel_is_the_one_that_we_change() -> None:
    (unit,) = PACKAGES.glob("**/systemd/system/kdump-tools-dump.service")
    assert unit.name == Path(kdump.DUMP_DROPIN).parent.name.removesuffix(".d")
    assert "Type=oneshot" in unit.read_text()
    script = (PACKAGES / "usr/sbin/kdump-config").read_text()
    assert f"systemd.unit={unit.name}" in script
