"""What the role blackbox does to the command line of a kernel, and to its crash kernel, run by a real shell."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from core.model import Rack
from core.ops import remote_files
from core.ops.shell import sudo_script
from roles.blackbox import apply, boot_parameters, desired, facts, kdump, watchdog
from tests.unit.model.racks import SWITCH, changed, faults, loaded
from tests.unit.ops.shells import calls, run, stand_in, write
from tests.unit.roles.kernel_node import TEMPLATE, started, with_grub, with_packages
from tests.unit.roles.test_blackbox_shell import COMMANDS, facts_of

STATE = COMMANDS[facts.KERNEL]


def rack(section: str = "kdump: {}") -> Rack:
    return loaded(changed(SWITCH, ("rack: two", f"rack: two\nblackbox: {{{section}}}")))


def state(root: Path) -> dict[tuple[str, str], str]:
    done = run(STATE, root)
    assert done.returncode == 0, done.stderr
    return desired.parse_live(done.stdout)


def node(root: Path, option: str = "m") -> Path:
    """A node as DGX OS installs it."""
    started(with_grub(root), option)
    stand_in(root, "modprobe")
    stand_in(root, "dpkg-query", "exit 1")
    stand_in(root, "systemctl", "echo not-found; exit 4")
    return root


def test_a_node_without_any_of_it(tmp_path: Path) -> None:
    """The answers are those of the case of a factory node."""
    assert state(node(tmp_path)) == dict(facts_of("factory-fresh").kernel)


@pytest.mark.parametrize("option", ["y", "m", "absent"])
def test_the_options_of_the_running_kernel(tmp_path: Path, option: str) -> None:
    found = state(node(tmp_path, option))
    assert boot_parameters.kernel_option(found, "sbsa_gwdt") == option


def test_options_of_a_kernel_that_shows_them_itself(tmp_path: Path) -> None:
    (node(tmp_path) / "boot/config-6.17.0-1021-nvidia").unlink()
    found = state(tmp_path)
    assert found["config", "sbsa_gwdt"] == found["config", "crash_dump"] == "unknown"
    with pytest.raises(ValueError, match=r"neither /boot/config-\* nor"):
        boot_parameters.kernel_option(found, "sbsa_gwdt")
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_ARM_SBSA_WATCHDOG=y\nCONFIG_CRASH_DUMP=y\n"))
    assert boot_parameters.kernel_option(state(tmp_path), "sbsa_gwdt") == "y"


def test_the_last_value_of_the_first_entry_counts(tmp_path: Path) -> None:
    """As for the kernel. An entry for recovery comes later, and a comment is not an entry."""
    text = (
        "# linux crashkernel=9G\nmenuentry 'crashkernel=8G' {\n"
        "\tlinux\t/vmlinuz ro crashkernel=1G-:0M sbsa_gwdt.action=0  sbsa_gwdt_action=7 crashkernel=1G-:512M "
        "sbsa_gwdt.action=1\n}\n\tlinux /vmlinuz crashkernel=7G\n"
    )
    write(node(tmp_path), boot_parameters.CONFIG, text)
    write(tmp_path, "/proc/cmdline", "crashkernel=1 crashkernel=2G\n")
    found = state(tmp_path)
    assert (found["grub", "crashkernel"], found["grub", "watchdog"]) == ("1G-:512M", "1")
    assert found["booted", "crashkernel"] == "2G"


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("options sbsa_gwdt action=0 timeout=60\noptions sbsa_gwdt action=1\n", "1"),
        ("options sbsa_gwdt action=1\noptions sbsa_gwdt timeout=5 action=0\n", "0"),
        ("options sbsa_gwdt timeout=5\noptions other action=1\nalias x sbsa_gwdt\n", "absent"),
    ],
)
def test_what_modprobe_would_give_the_driver(tmp_path: Path, listed: str, found: str) -> None:
    stand_in(node(tmp_path), "modprobe", f"printf '{listed}'".replace("\n", "\\n"))
    assert state(tmp_path)["modprobe", "action"] == found


@pytest.mark.parametrize("buffer", ["", "echo '[ 9.1] sbsa-gwdt sbsa-gwdt.0: unable to get ws0 interrupt.'"])
def test_the_action_of_the_driver_is_in_the_journal_when_the_buffer_has_lost_it(tmp_path: Path, buffer: str) -> None:
    (tmp_path / "sys/module/sbsa_gwdt").mkdir(parents=True)
    write(tmp_path, "/etc/machine-id", "0123abc\n")
    write(tmp_path, "/proc/sys/kernel/random/boot_id", "0123\n")
    (tmp_path / "var").mkdir()
    stand_in(tmp_path, "dmesg", buffer or "exit 1")
    stand_in(tmp_path, "journalctl", "echo 'sbsa-gwdt sbsa-gwdt.0: Initialized with 10s timeout @ 1000 Hz, action=1.'")
    assert desired.parse_live(run(COMMANDS[facts.LIVE], tmp_path).stdout)["sbsa_gwdt", "action"] == "1"
    stand_in(tmp_path, "journalctl", "echo 'systemd[1]: action=1.'")
    assert desired.parse_live(run(COMMANDS[facts.LIVE], tmp_path).stdout)["sbsa_gwdt", "action"] == "unknown"


@pytest.mark.parametrize(
    ("name", "found"), [("systemd-boot 255.4-1ubuntu8", "systemd-boot"), ("GRUB 2.12", "yes"), ("", "yes")]
)
def test_the_boot_loader_that_started_the_kernel(tmp_path: Path, name: str, found: str) -> None:
    """The files of GRUB can be there on a node that another boot loader starts."""
    variable = write(node(tmp_path), "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
    variable.write_bytes(b"\x06\0\0\0" + f"{name}\0".encode("utf-16-le"))
    assert state(tmp_path)["grub", "program"] == found
    missing = boot_parameters.grub(state(tmp_path)).missing
    assert missing == ("systemd-boot starts this node, and not GRUB" if found == "systemd-boot" else "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[none] integrity confidentiality\n", "none"),
        ("none [integrity] confidentiality\n", "integrity"),
        ("none integrity [confidentiality]\n", "confidentiality"),
    ],
)
def test_the_lockdown_of_the_kernel(tmp_path: Path, text: str, found: str) -> None:
    write(node(tmp_path), "/sys/kernel/security/lockdown", text)
    assert state(tmp_path)["kernel", "lockdown"] == found
    assert kdump.state(state(tmp_path)).lockdown == ("" if found == "none" else found)


def test_a_lockdown_of_another_form_is_unknown(tmp_path: Path) -> None:
    write(node(tmp_path), "/sys/kernel/security/lockdown", "integrity\n")
    with pytest.raises(ValueError, match="kernel lockdown: unexpected probe output"):
        kdump.state(state(tmp_path))


def written(root: Path, file_rack: Rack, sections: str) -> None:
    """Write the fragments of a rack, as its operations do it."""
    wanted = kdump.options(file_rack)
    files = [kdump.fragment(file_rack, wanted)] if wanted and "kdump" in sections else []
    if "watchdog" in sections:
        files.append(boot_parameters.fragment(file_rack, watchdog.FRAGMENT, "sbsa_gwdt.action=1"))
    for file in files:
        write(root, file.path, file.content.decode())


def test_our_fragments_win_over_that_of_the_package(tmp_path: Path) -> None:
    """The package reserves 2 GiB of a node with 121 GiB."""
    with_packages(node(tmp_path))
    run(sudo_script("update-grub"), tmp_path)
    assert state(tmp_path)["grub", "crashkernel"].startswith("2G-4G:320M")
    written(tmp_path, rack(), "kdump watchdog")
    for name, value in ((kdump.PARAMETER, "1G-:512M"), (watchdog.PARAMETER, "1")):
        done = run(sudo_script(boot_parameters.update(kdump.FRAGMENT, name, value)), tmp_path)
        assert done.returncode == 0, done.stderr
    found = state(tmp_path)
    assert (found["grub", "crashkernel"], found["grub", "watchdog"]) == ("1G-:512M", "1")


@pytest.mark.parametrize(
    "line",
    [
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=4G"',
        'GRUB_CMDLINE_LINUX_DEFAULT="quiet"',
    ],
)
def test_a_later_file_that_wins_is_reported(tmp_path: Path, line: str) -> None:
    written(node(tmp_path), rack(), "kdump")
    write(tmp_path, "/etc/default/grub.d/zzz-local.cfg", f"{line}\n")
    done = run(sudo_script(boot_parameters.update(kdump.FRAGMENT, kdump.PARAMETER, "1G-:512M")), tmp_path)
    assert done.returncode == 1
    assert "does not give the kernel crashkernel=1G-:512M: a file of" in done.stderr


def test_what_grub_says_is_shown_when_it_fails(tmp_path: Path) -> None:
    stand_in(node(tmp_path), "update-grub", "echo 'no space left'; exit 3")
    done = run(sudo_script(boot_parameters.update("/etc/x.cfg", "x", "1")), tmp_path)
    assert (done.returncode, done.stderr) == (1, "no space left\n")


def test_a_fragment_is_there_until_grub_has_read_its_removal(tmp_path: Path) -> None:
    written(node(tmp_path), rack(), "kdump")
    fragment = tmp_path / kdump.FRAGMENT.lstrip("/")
    stand_in(tmp_path, "update-grub", "exit 3")
    assert run(sudo_script(boot_parameters.remove(kdump.FRAGMENT)), tmp_path).returncode == 1
    assert fragment.read_text() == ""
    stand_in(tmp_path, "update-grub", f"cat {tmp_path}/etc/default/grub.d/*.cfg > {tmp_path}/read")
    assert run(sudo_script(boot_parameters.remove(kdump.FRAGMENT)), tmp_path).returncode == 0
    assert not fragment.exists()
    assert (tmp_path / "read").read_text() == ""


RESERVED = "reboot required: crashkernel=1G-:512M takes effect at the next boot; programs have 512M less from then on"
SETTINGS = kdump.settings(kdump.options(rack()) or pytest.fail("no kdump"))
HOSTILE = {
    "as the package brings it": TEMPLATE,
    "empty": "",
    "no newline at the end": "USE_KDUMP=0",
    "set twice": "USE_KDUMP=1\nUSE_KDUMP=0\nKDUMP_NUM_DUMPS=9\n",
    "quoted": "USE_KDUMP=\"0\"\nKDUMP_NUM_DUMPS='7'\n",
    "exported and indented": "  export USE_KDUMP=0\n\tKDUMP_NUM_DUMPS=0\n",
    "a form feed in a comment": "# off:\x0cUSE_KDUMP=9\n",
    "a line separator in a comment": "# off:\u2028USE_KDUMP=9\n",
    "a carriage return": "# off\rUSE_KDUMP=9\nX=1\n",
    "names that begin like ours": "KDUMP_NUM_DUMPS_OLD=8\nMY_USE_KDUMP=0\n",
    "a command in a value": 'KDUMP_FAIL_CMD="echo $(id); reboot -f"\nUSE_KDUMP=0; # x\n',
    "no UTF-8": "# caf\udce9\nUSE_KDUMP=0\n",
}


@pytest.mark.parametrize("about", HOSTILE)
def test_settings_are_set_and_every_other_byte_stays(tmp_path: Path, about: str) -> None:
    before = HOSTILE[about].encode("utf-8", "surrogateescape")
    after = kdump.with_settings(before, SETTINGS)
    assert kdump.with_settings(after, SETTINGS) == after, "the second run changes nothing"
    file = tmp_path / "settings"
    file.write_bytes(after)
    words = " ".join(f"${key}" for key in SETTINGS)
    read = subprocess.run(["sh", "-c", f". {file}; echo {words}"], capture_output=True, text=True, check=True)
    assert read.stdout.split() == list(SETTINGS.values())
    others = [line for line in before.split(b"\n") if not any(key.encode() + b"=" in line for key in SETTINGS)]
    assert [line for line in after.split(b"\n") if line in others and line] == [line for line in others if line]
    # The command that writes it accepts it.
    done = run(sudo_script(f"new={file}; {kdump.check_settings(SETTINGS)}"), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", ["if false; then\nUSE_KDUMP=0\nfi\n", "readonly USE_KDUMP=0\n"])
def test_settings_that_a_line_does_not_change_are_not_written(tmp_path: Path, text: str) -> None:
    """The file keeps its content, and the run fails with a reason."""
    file = write(tmp_path, kdump.SETTINGS, text)
    (tmp_path / "var").mkdir()
    after = kdump.with_settings(text.encode(), SETTINGS)
    command = remote_files.put(
        kdump.SETTINGS, after, mode="644", before=text.encode(), check=kdump.check_settings(SETTINGS)
    )
    stand_in(tmp_path, "chown")
    done = run(command, tmp_path)
    assert done.returncode != 0
    assert file.read_text() == text
    assert "in a way that a changed line does not change" in done.stderr


@pytest.mark.parametrize(("loaded_then", "code"), [("1", 0), ("0", 1)])
def test_a_crash_kernel_must_be_loaded(tmp_path: Path, loaded_then: str, code: int) -> None:
    """systemd reports no error for a kernel that was not loaded."""
    write(tmp_path, "/sys/kernel/kexec_crash_loaded", "0\n")
    stand_in(tmp_path, "systemctl", f"echo {loaded_then} > {tmp_path}/sys/kernel/kexec_crash_loaded")
    done = run(sudo_script(kdump.load()), tmp_path)
    assert done.returncode == code
    assert calls(tmp_path) == ["systemctl restart kdump-tools.service"]
    assert ("no crash kernel is loaded" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("listed", "code"), [("options sbsa_gwdt action=1", 0), ("", 1), ("options sbsa_gwdt action=0", 1)]
)
def test_modprobe_must_give_the_action(tmp_path: Path, listed: str, code: int) -> None:
    stand_in(tmp_path, "modprobe", f"echo '{listed}'")
    done = run(sudo_script(watchdog.check_modprobe()), tmp_path)
    assert done.returncode == code
    assert ("modprobe does not give sbsa_gwdt action=1" in done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("case", "reported"),
    [
        (
            "first-stage-waits-for-a-boot",
            ["reboot required: sbsa_gwdt has action=0 until the next boot, and action=1 from then on"],
        ),
        (
            "first-stage-undeclared",
            [
                "remove /etc/modprobe.d/zz-sparkrack-watchdog.conf: takes effect at the next boot",
            ],
        ),
        (
            "first-stage-built-in-not-read",
            [
                "sbsa_gwdt.action in /boot/grub/grub.cfg: (none) -> 1",
                "reboot required: sbsa_gwdt has action=1 until the next boot, and action=0 from then on",
            ],
        ),
        (
            "kdump-waits-for-a-boot",
            [RESERVED],
        ),
        (
            "kdump-package-won",
            [
                "create /etc/default/grub.d/zz-sparkrack-kdump.cfg",
                "write /usr/local/lib/sparkrack/keep-crash-log",
                "write /etc/systemd/system/kdump-tools-dump.service.d/zz-sparkrack.conf",
            ],
        ),
        (
            "kdump-grub-unfinished",
            ["/boot/grub/grub.cfg: an update-grub that failed -> whole"],
        ),
        (
            "kdump-passed-over",
            [
                (
                    "this boot began after /boot/grub/grub.cfg had crashkernel=1G-:512M, and its kernel does not have "
                    "it: another entry of GRUB's menu, or another boot loader, started it"
                )
            ],
        ),
        (
            "first-stage-built-in-passed-over",
            [
                (
                    "this boot began after /boot/grub/grub.cfg had sbsa_gwdt.action=1, and its kernel does not have "
                    "it: another entry of GRUB's menu, or another boot loader, started it"
                )
            ],
        ),
        (
            "kdump-locked-down",
            [
                (
                    "this kernel is locked down (integrity) and loads only a crash kernel with a signature that it "
                    "trusts; kdump-tools has it verified with Secure Boot, and without that with KDUMP_KEXEC_ARGS=-s "
                    "in /etc/default/kdump-tools"
                ),
                RESERVED,
            ],
        ),
        ("kdump-not-loaded", ["restart kdump-tools.service: none is loaded"]),
        (
            "kdump-undeclared",
            [
                "remove /etc/default/grub.d/zz-sparkrack-kdump.cfg: a reboot frees the memory",
                "modify /etc/default/kdump-tools",
                "remove /usr/local/lib/sparkrack/keep-crash-log",
                "remove /etc/systemd/system/kdump-tools-dump.service.d/zz-sparkrack.conf",
            ],
        ),
        (
            "kdump-removal-of-a-run-that-died",
            [
                "remove /etc/default/grub.d/zz-sparkrack-kdump.cfg: a reboot frees the memory",
                "remove /usr/local/lib/sparkrack/keep-crash-log",
                "remove /etc/systemd/system/kdump-tools-dump.service.d/zz-sparkrack.conf",
                (
                    "reboot required: 512M stay reserved for a crash kernel until the next boot, which has "
                    "crashkernel=1G-:0M"
                ),
            ],
        ),
        (
            "kdump-fresh",
            [
                "create /etc/default/grub.d/zz-sparkrack-kdump.cfg",
                "install kdump-tools",
                "install makedumpfile",
                "install kexec-tools",
                "write /usr/local/lib/sparkrack/keep-crash-log",
                "write /etc/systemd/system/kdump-tools-dump.service.d/zz-sparkrack.conf",
                "modify /etc/default/kdump-tools: when the package is installed",
                RESERVED,
            ],
        ),
    ],
)
def test_what_the_plan_says(case: str, reported: list[str]) -> None:
    one = facts_of(case)
    operations = (
        apply.panic_before_reset,
        apply.reserve_memory,
        apply.install_kdump,
        apply.load_crash_kernel,
        apply.report_reboot,
    )
    changesets = [operation.changeset(one) for operation in operations]
    assert [event.message for made in changesets for event in (*made.warnings, *made.events)] == reported


def test_the_reserve_is_part_of_the_memory_of_a_node() -> None:
    found = faults(changed(SWITCH, ("rack: two", "rack: two\nblackbox: {kdump: {reserve: 8G}}")))
    assert found == ["2: blackbox.kdump.reserve: 8G is not a fit amount of memory for a crash kernel; write 256M to 4G"]


def test_the_fragment_is_one_line_that_comes_after_the_package() -> None:
    """A fragment is read by a shell as root: only the declared size, of digits and a unit, is in it."""
    declared = rack("kdump: {reserve: 1G}")
    options = kdump.options(declared)
    assert options is not None
    text = kdump.fragment(declared, options)
    assert text.content.decode().splitlines()[1:] == [
        'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=1G-:1G"'
    ]
    assert Path(text.path).name > "kdump-tools.cfg"
