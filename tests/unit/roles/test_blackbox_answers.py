"""Answers of a node about its evidence, parsed: forms as systemd and the kernel print them, and everything else."""

from __future__ import annotations

import re

import pytest

from core.probes.systemd_units import parse_units
from roles.blackbox import desired
from tests.unit.model.racks import DIRECT, loaded

RACK = loaded(DIRECT + "blackbox: {}\n")
WHOLE = "Id=x.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=yes"


@pytest.mark.parametrize(
    "state", ["active", "activating", "reloading", "refreshing", "inactive", "failed", "deactivating"]
)
def test_a_unit_is_in_a_state_of_systemd(state: str) -> None:
    (found,) = parse_units("blackbox units", WHOLE.replace("=active", f"={state}"), ("x.service",)).values()
    assert found.active == state


@pytest.mark.parametrize(
    ("answer", "wanted", "reason"),
    [
        (WHOLE, ("x.service",), ""),
        (WHOLE + "\n\n" + WHOLE.replace("x.service", "y.timer"), ("y.timer", "x.service"), ""),
        (WHOLE.replace("x.service", "x.mount"), (), "blackbox units: unexpected probe output {answer!r}"),
        (WHOLE.replace("LoadState=loaded", "LoadState="), (), "blackbox units: unexpected probe output {answer!r}"),
        (WHOLE.replace("=active", "=alive"), (), "blackbox units: unexpected probe output {answer!r}"),
        ("", ("a.socket", "b.timer"), "blackbox units: a.socket, b.timer: no answer"),
    ],
)
def test_each_unit_has_its_answer(answer: str, wanted: tuple[str, ...], reason: str) -> None:
    if not reason:
        assert set(parse_units("blackbox units", answer, wanted)) == set(wanted)
        return
    with pytest.raises(ValueError, match=f"^{re.escape(reason.format(answer=answer[:80]))}$"):
        parse_units("blackbox units", answer, wanted)


@pytest.mark.parametrize("line", ["x", "x y", "X y z", "x y/Z z", "9 y z", "a" * 90])
def test_a_line_of_another_form_is_unknown(line: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'blackbox state: unexpected probe output {line[:80]!r}')}$"):
        desired.parse_live(f"x y z\n{line}")
    with pytest.raises(ValueError, match=r"^blackbox state: unexpected probe output 'x y a'$"):
        desired.parse_live("x y z\nx y a")


def test_lines_are_a_subject_a_name_and_a_value() -> None:
    found = desired.parse_live("sysctl kernel/panic  10 \nx_1 y_2 \n")
    assert found == {("sysctl", "kernel/panic"): "10", ("x_1", "y_2"): ""}


@pytest.mark.parametrize(("value", "found"), [("10", 10), ("-1", -1), ("absent", None), ("9" * 10, 9999999999)])
def test_a_kernel_setting_is_a_number_or_absent(value: str, found: int | None) -> None:
    live = {("sysctl", key.replace(".", "/")): "0" for key in desired.sysctls(RACK)}
    assert desired.live_sysctls(live | {("sysctl", "kernel/panic"): value}, RACK)["kernel.panic"] == found


@pytest.mark.parametrize("value", ["9" * 11, "", "x", "no answer"])
def test_a_kernel_setting_that_is_not_a_number_is_unknown(value: str) -> None:
    live = {("sysctl", key.replace(".", "/")): "0" for key in desired.sysctls(RACK)}
    live |= {("sysctl", "kernel/panic"): value}
    if value == "no answer":
        del live["sysctl", "kernel/panic"]
    with pytest.raises(ValueError, match=f"^kernel.panic: is not a number: '{value}'$"):
        desired.live_sysctls(live, RACK)


OFF = ", or set blackbox.pstore: false in rack.yaml"
NO_MODULE = (
    "pstore has no backend: this kernel has no module efi_pstore (CONFIG_EFI_VARS_PSTORE in /boot/config-*); use one "
    "with it"
)
REGISTERED = "pstore has no backend: efi_pstore is loaded and has registered none; look for efi_pstore in `dmesg`"
BUILT_IN = (
    "pstore has no backend: efi_pstore is built into this kernel and disabled; add efi_pstore.pstore_disable=0 to "
    "GRUB_CMDLINE_LINUX, run update-grub and reboot"
)
REBOOT = "efi_pstore was loaded with pstore_disable=Y, so pstore has no backend until the next boot"


@pytest.mark.parametrize(
    ("backend", "module", "disabled", "blocker", "loadable", "reboot"),
    [
        ("efi_pstore", "/lib/x.ko", "N", "", False, False),
        ("efi_pstore", "absent", "absent", "", False, False),
        ("(null)", "absent", "absent", NO_MODULE, False, False),
        ("(null)", "absent", "Y", NO_MODULE, False, True),
        ("(null)", "/lib/x.ko", "N", REGISTERED, False, False),
        ("(null)", "/lib/x.ko", "absent", "", True, False),
        ("(null)", "/lib/x.ko", "Y", "", False, True),
        ("(null)", "(builtin)", "Y", BUILT_IN, False, True),
    ],
)
def test_why_a_node_cannot_store_records(
    backend: str, module: str, disabled: str, blocker: str, loadable: bool, reboot: bool
) -> None:
    found = desired.pstore_backend(
        {("pstore", "backend"): backend, ("efi_pstore", "module"): module, ("efi_pstore", "disabled"): disabled}
    )
    assert found.blockers == ((blocker + OFF,) if blocker else ())
    assert found.reboot == ((REBOOT,) if reboot else ())
    assert found.loadable == loadable


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (("pstore", "backend"), "EFI", "backend of pstore: unexpected probe output 'EFI'"),
        (("pstore", "backend"), "", "backend of pstore: unexpected probe output ''"),
        (("pstore", "backend"), "a" * 41, f"backend of pstore: unexpected probe output '{'a' * 41}'"),
        (("efi_pstore", "disabled"), "y", "pstore_disable of efi_pstore: unexpected probe output 'y'"),
        (("efi_pstore", "module"), "x", "module efi_pstore: unexpected probe output 'x'; is kmod installed?"),
    ],
)
def test_an_answer_about_pstore_of_another_form_is_unknown(key: tuple[str, str], value: str, reason: str) -> None:
    fine = {("pstore", "backend"): "a" * 40, ("efi_pstore", "disabled"): "Y", ("efi_pstore", "module"): "(builtin)"}
    assert desired.pstore_backend(fine).blockers == ()
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        desired.pstore_backend(fine | {key: value})


@pytest.mark.parametrize(("answer", "found"), [("yes", True), ("no", False), ("", None), ("maybe", None), (None, None)])
def test_an_answer_is_yes_or_no_or_unknown(answer: str | None, found: bool | None) -> None:
    live = {} if answer is None else {("clock", "tool"): answer}
    if found is None:
        shown = "no answer" if answer is None else answer
        with pytest.raises(ValueError, match=f"^blackbox state: clock tool: unexpected probe output '{shown}'$"):
            desired.yes_or_no(live, "clock", "tool")
    else:
        assert desired.yes_or_no(live, "clock", "tool") is found
