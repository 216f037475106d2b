"""Which kernel the nodes get: chosen from what a suite has, named by its recipe, refused where there is no source."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.image import debian, kernel


@pytest.mark.parametrize(
    ("packages", "chosen"),
    [
        (["linux-source", "linux-source-7.2", "linux-source-7.3"], "linux-source-7.2"),
        (["linux-source-7.3", "linux-source-7.10", "linux-source-6.16"], "linux-source-7.10"),
        (["linux-source-6.12", "linux-source-6.16"], "linux-source-6.16"),
    ],
)
def test_the_series_that_was_measured_is_taken_or_else_the_newest(packages: list[str], chosen: str) -> None:
    assert kernel.choose(packages) == chosen


@pytest.mark.parametrize("packages", [[], ["linux-source", "linux-source-6.12", "linux-source-5.10"]])
def test_an_older_series_is_refused(packages: list[str]) -> None:
    with pytest.raises(LabError, match=r"no linux-source of 6\.16 or newer"):
        kernel.choose(packages)


def test_what_a_source_does_not_take_is_named() -> None:
    asked = "# a comment\nCONFIG_VETH=y\nCONFIG_GONE=y\n"
    assert kernel.missing(asked, "CONFIG_VETH=y\n# CONFIG_GONE is not set\n") == ["CONFIG_GONE=y"]


def test_another_configuration_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel.recipe_hash()
    copy = tmp_path / "kernel.config"
    copy.write_bytes(kernel.CONFIG.read_bytes())
    monkeypatch.setattr(kernel, "CONFIG", copy)
    assert kernel.recipe_hash() == before
    copy.write_text(copy.read_text() + "CONFIG_SMP=y\n")
    assert kernel.recipe_hash() != before


def test_another_patch_is_another_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel.recipe_hash()
    copy = tmp_path / "kernel.patch"
    copy.write_bytes(kernel.PATCH.read_bytes() + b"\n")
    monkeypatch.setattr(kernel, "PATCH", copy)
    assert kernel.recipe_hash() != before


def test_a_patch_is_applied_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """The source is what the patch takes out and leaves, as the series that the lab was measured with has it."""
    files: dict[str, dict[int, str]] = {}
    at = 0
    for line in kernel.PATCH.read_text().splitlines():
        if line.startswith("--- "):
            lines = files.setdefault(line.removeprefix("--- a/"), {})
        elif begin := re.match(r"@@ -(\d+)", line):
            at = int(begin[1])
        elif files and (not line or line[0] in " -"):
            lines[at], at = line[1:], at + 1
    assert set(files) == {"arch/um/kernel/um_arch.c", "drivers/net/netconsole.c", "kernel/bpf/memalloc.c"}
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("".join(f"{lines.get(number, '')}\n" for number in range(1, max(lines) + 1)))
    before = {name: (tmp_path / name).read_text() for name in files}
    (tmp_path / "drivers/net/netconsole.c").write_text("another series\n")
    assert not kernel.patch(tmp_path)
    assert (tmp_path / "arch/um/kernel/um_arch.c").read_text() == before["arch/um/kernel/um_arch.c"]
    (tmp_path / "drivers/net/netconsole.c").write_text(before["drivers/net/netconsole.c"])
    assert kernel.patch(tmp_path)
    assert "CON_NBCON" not in (tmp_path / "drivers/net/netconsole.c").read_text()
    assert "if (panic_timeout)" in (tmp_path / "arch/um/kernel/um_arch.c").read_text()
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".rej", ".orig")]


def test_without_a_source_the_lab_says_what_to_do_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    """A mirror that does not answer: port 9 of loopback."""
    with pytest.raises(LabError) as caught:
        kernel.kernel(tmp_path, "http://127.0.0.1:9/debian", lambda _: None)
    reported = str(caught.value)
    assert reported.startswith(
        "the source of the nodes' kernel cannot be downloaded, and the lab runs on no other kernel: "
    )
    assert "SPARKRACK_DEBIAN_MIRROR names another one" in reported
    assert f"copy {tmp_path / f'kernel-{kernel.recipe_hash()}'} from a machine that has built it" in reported
    assert not (tmp_path / f"kernel-{kernel.recipe_hash()}").exists()


def test_a_step_of_the_build_is_seen_line_by_line_and_its_end_is_reported_when_it_fails() -> None:
    seen: list[str] = []
    done = debian.run(["sh", "-c", "echo one; echo two"], "counting", each_line=seen.append)
    assert (seen, done.stdout) == (["one\n", "two\n"], "one\ntwo\n")
    with pytest.raises(LabError, match=r"counting failed \(exit 3\):\nthree"):
        debian.run(["sh", "-c", "echo three >&2; exit 3"], "counting")
    with pytest.raises(LabError, match="counting: not-a-program is not installed; run `make setup`"):
        debian.run(["not-a-program"], "counting")


def test_a_kernel_that_restarts_begins_without_the_descriptors_of_its_old_life(tmp_path: Path) -> None:
    """`linux` beside the script is one that shows its descriptors and its arguments."""
    program = tmp_path / "boot-node"
    program.write_bytes(kernel.BOOT.read_bytes())
    program.chmod(0o755)
    shown = tmp_path / "linux"
    shown.write_text('#!/bin/bash\necho "$@"\nfor one in 3 4 9; do [ ! -e /proc/$$/fd/$one ] || echo open $one; done\n')
    shown.chmod(0o755)
    command = f"exec 3</dev/null 4</dev/null 9</dev/null; exec {program} mem=8G 'umid=a b'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "mem=8G umid=a b\n"
