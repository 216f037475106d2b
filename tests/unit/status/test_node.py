"""What a node answers -> what is reported of it -> the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.model import Rack
from core.ops import run_lock
from core.ops.run_lock import Holder
from core.probes.protocol import END
from sparkrack.status.model import About, NodeStatus, Status
from sparkrack.status.node_evaluation import NodeEvaluation
from tests.unit.model.racks import changed
from tests.unit.status.machines import (
    ID,
    IMAGE,
    MEMINFO,
    OTHER,
    REFERENCE,
    SWAPS,
    Change,
    answers,
    ethtool,
    held,
    machines,
    reference,
)

HALF = "enp1s0f1np1"
ROW = "scitrera/dgx-spark-sglang 0.5.12 <none> 22.4GB"
GARBAGE = ("garbage", "\x1b[2J\x00", "-1", "9" * 5000)


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    return reference(tmp_path_factory.mktemp("rack"))


def after(rack: Rack, *changes: Change, node: str = "spark2") -> tuple[NodeStatus, Status]:
    made = machines(rack)
    for change in changes:
        change(made)
    status = made.status()
    (found,) = (one for one in status.nodes if one.name == node)
    return found, status


def test_a_healthy_node(rack: Rack) -> None:
    found, status = after(rack)
    assert (found.reachable, found.uptime, found.kernel, found.driver) == (
        True,
        7620,
        "6.17.0-1021-nvidia",
        "580.159.03",
    )
    assert found.memory
    assert (found.memory.total, found.memory.available) == (125480824, 102760448)
    assert (found.swap, found.reboot, found.containers) == ((), False, 1)
    assert [(link.there, link.carrier, link.gbps, link.wanted) for link in found.links] == [(True, True, 100, 100)] * 2
    assert (found.images.declared, found.images.right) == (1, 1)
    assert (found.wrong, found.unknown, found.notes) == ((), (), ())
    assert status.lock.known
    assert status.lock.holder is None
    assert status.code == 0


WRONG: dict[str, tuple[str, list[str], str]] = {
    "kernel": ("kernel", ["6.11.0-1016-nvidia"], "kernel 6.11.0-1016-nvidia runs, wanted 6.17.0-1021-nvidia"),
    "older driver": ("driver", ["580.95.05"], "driver 580.95.05 is loaded, wanted 580.159"),
    "longer number": ("driver", ["580.1590"], "driver 580.1590 is loaded, wanted 580.159"),
    "two drivers": ("driver", ["580.159.03", "570.1"], "driver 570.1 is loaded, wanted 580.159"),
    "memory": (
        "memory",
        ["MemTotal: 125480824 kB", "MemAvailable: 3145727 kB"],
        "3.0G are available, less than memory.floor: containers are ended",
    ),
    "swap": (
        "swap",
        [SWAPS, "/swap.img file 8 0 -2", "/dev/zram0 partition 8 0 5"],
        "swap is on (/swap.img, /dev/zram0), wanted off",
    ),
    "slow": (HALF, ethtool("50000Mb/s"), f"{HALF} runs at 50G, wanted 100G"),
    "fast": (HALF, ethtool("200000Mb/s"), f"{HALF} runs at 200G, wanted 100G"),
    "down": (HALF, ethtool("Unknown!", "no"), f"{HALF} has no carrier"),
    "down, with a speed": (HALF, ethtool("100000Mb/s", "no"), f"{HALF} has no carrier"),
    "removed": (HALF, ["absent"], f"there is no interface {HALF}"),
    "no image": ("images", [], f"image {IMAGE} is missing"),
    "no engine": (
        "images",
        ["no engine"],
        "docker does not run; start it (systemctl start docker), or run sparkrack apply",
    ),
    "another tag": ("images", [f"{ID} {ROW.replace('0.5.12', '0.5.11')}"], f"image {IMAGE} is missing"),
    "another image": ("images", [f"{OTHER} {ROW}"], f"image {IMAGE} is bbbbbbbbbbbb, wanted aaaaaaaaaaaa"),
}


@pytest.mark.parametrize("case", WRONG)
def test_not_as_declared(case: str, rack: Rack) -> None:
    question, lines, text = WRONG[case]
    found, status = after(rack, answers("spark2", question, 0, *lines))
    assert [finding.text for finding in found.wrong] == [text]
    assert (found.unknown, status.code) == ((), 2)


UNKNOWN: dict[str, tuple[str, int, list[str], str]] = {
    "memory: half": ("memory", 0, MEMINFO[:1], "/proc/meminfo does not report"),
    "memory: more than there is": ("memory", 0, ["MemTotal: 5 kB", "MemAvailable: 6 kB"], "/proc/meminfo"),
    "memory: less than none": ("memory", 0, ["MemTotal: 5 kB", "MemAvailable: -6 kB"], "/proc/meminfo"),
    "memory: none": ("memory", 0, ["MemTotal: 0 kB", "MemAvailable: 0 kB"], "/proc/meminfo"),
    "kernel: two": ("kernel", 0, ["6.17", "6.11"], "unexpected output: 6.17 6.11"),
    "driver: garbage below": ("driver", 0, ["580.159.03", "No devices"], "unexpected output"),
    "links: no speed": (HALF, 0, ethtool("Unknown!"), "does not report the speed"),
    "links: no number": (HALF, 0, ethtool("1e5Mb/s"), "does not report the speed"),
    "links: half": (HALF, 1, ethtool("100000Mb/s")[:-1], "does not report whether there is a link"),
    "images: half": ("images", 0, [f"{ID} {ROW}", ID], "unexpected probe output"),
    "reboot: both": ("reboot", 0, ["held none"], "unexpected output"),
}
QUESTIONS = {
    **{name: (name, name) for name in ("uptime", "memory", "swap", "reboot")},
    "kernel": ("kernel", "uname"),
    "driver": ("driver", "nvidia-smi"),
    "containers": ("containers", "find"),
    "links": (HALF, "ethtool"),
    "images": ("images", "docker"),
}
"""What a finding is about: the question, and what a failure of its tool is called."""
for field, (question, tool) in QUESTIONS.items():
    UNKNOWN[f"{field}: in time"] = (question, 124, [], f"{tool} does not answer in time")
    UNKNOWN[f"{field}: killed"] = (question, 137, [], f"{tool} does not answer in time")
    UNKNOWN[f"{field}: no tool"] = (question, 127, [], f"{tool} is not installed")
    UNKNOWN[f"{field}: refused"] = (question, 1, [], f"{tool}: ends with exit 1")
    for number, garbage in enumerate(GARBAGE):
        UNKNOWN[f"{field}: garbage {number}"] = (question, 0, [garbage], "")
    # Nothing at all is an answer where a list is asked for: there are none.
    if field not in ("containers", "images"):
        UNKNOWN[f"{field}: empty"] = (question, 0, [], "")


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown(case: str, rack: Rack) -> None:
    question, code, lines, text = UNKNOWN[case]
    found, status = after(rack, answers("spark2", question, code, *lines))
    about = About(case.partition(":")[0])
    assert [finding.about for finding in found.unknown] == [about]
    assert text in found.unknown[0].text
    assert found.unknown[0].text.isprintable()
    assert len(found.unknown[0].text) < 250
    assert (found.wrong, status.code) == ((), 1)
    value = getattr(found, about)
    if about is About.LINKS:
        assert value[0].carrier is None
    else:
        assert (value.right if about is About.IMAGES else value) is None


@pytest.mark.parametrize("question", ["uptime", "kernel", "driver", "memory", "swap", "reboot", "containers", HALF])
def test_a_question_without_an_answer(question: str, rack: Rack) -> None:
    found, status = after(rack, lambda made: made.nodes["spark2"].pop(question))
    assert [finding.text for finding in found.unknown] == [f"{question}: there is no answer"]
    assert status.code == 1


@pytest.mark.parametrize(
    "output",
    [
        *("", "\n", END, f"{END}\n\n", "uptime MQow\n", f"Last login: today\n{END}\n", f"kernel \n{END}\n"),
        *(f"kernel x\n{END}\n", f"kernel ²\n{END}\n", f"\x1b]0;x\x07\n{END}\n", "bash: sudo: not found\n"),
    ],
)
def test_no_whole_answer(output: str, rack: Rack) -> None:
    found, status = after(rack, lambda made: made.raw.update(spark2=output))
    assert found.reachable
    (finding,) = found.unknown
    assert finding.about is About.ALL
    assert finding.text.startswith("cannot be understood: it ")
    assert (found.kernel, found.memory, found.swap, found.images.right, status.code) == (None, None, None, None, 1)
    assert [link.there for link in found.links] == [None, None]


def test_an_answer_cut_off_anywhere(rack: Rack) -> None:
    """Whatever is left of it, nothing is fine."""
    whole = machines(rack).output("spark2")
    for length in range(0, len(whole) - 1, 37):
        part = whole[:length]
        found, status = after(rack, lambda made, part=part: made.raw.update(spark2=part))  # type: ignore[misc]
        assert (bool(found.unknown), found.kernel, status.code) == (True, None, 1)


def test_ethtool_may_fail_for_what_no_one_asked(rack: Rack) -> None:
    found, status = after(rack, answers("spark2", HALF, 75, *ethtool("100000Mb/s")))
    assert (found.links[0].gbps, status.code) == (100, 0)


def test_a_silent_node(rack: Rack) -> None:
    found, status = after(rack, lambda made: made.silent.update(spark2="cannot be reached: no\nroute"))
    assert (found.reachable, found.unknown[0].text, status.code) == (False, "cannot be reached: no\\nroute", 1)
    assert len(found.links) == 2


def test_a_link_that_is_down_has_no_speed(rack: Rack) -> None:
    found, _ = after(rack, answers("spark2", HALF, 0, *ethtool("100000Mb/s", "no")))
    assert (found.links[0].carrier, found.links[0].gbps) == (False, None)


def test_whatever_a_parser_complains_of_is_one_line(rack: Rack) -> None:
    judging = NodeEvaluation(rack, "spark2", {})

    def read() -> None:
        raise ValueError("what\x1b[2J\n")

    assert judging.value_or_unknown(About.KERNEL, read) is None
    assert [finding.text for finding in judging.unknown] == ["what\\x1b[2J\\n"]


def test_unknown_wins_over_wrong(rack: Rack) -> None:
    _, status = after(rack, answers("spark2", "kernel", 0, "6.11"), answers("spark3", "kernel", 1))
    assert status.code == 1


@pytest.mark.parametrize("asking", [(), ("linux-image-6.17", "linux-base", "linux-base")])
def test_a_reboot_is_worth_knowing(asking: tuple[str, ...], rack: Rack) -> None:
    found, status = after(rack, answers("spark2", "reboot", 0, "held", *asking))
    names = "linux-image-6.17, linux-base" if asking else "a package"
    assert (found.reboot, found.notes, status.code) == (True, (f"a reboot is required, {names} asked for it",), 0)


def test_the_lock_is_a_note(rack: Rack) -> None:
    holder = Holder("20261122T080000-1a2b", "ann@desk", "2026-11-22T08:00:00+00:00", "spark1, spark2")
    _, status = after(rack, lambda made: made.nodes["spark1"].update(lock=held(holder)))
    assert status.lock.holder
    assert status.lock.holder.model_dump() == {
        "id": holder.id,
        "operator": holder.who,
        "since": holder.since,
        "scope": holder.what,
        "silence": None,
        "expired": False,
    }
    assert status.code == 0


@pytest.mark.parametrize(
    ("beat", "silence", "printed"),
    [
        (run_lock.BEAT, 0, (0, False)),
        (run_lock.BEAT, run_lock.EXPIRED, (run_lock.EXPIRED, False)),
        (run_lock.BEAT, run_lock.EXPIRED + 1, (run_lock.EXPIRED + 1, True)),
        (0, run_lock.EXPIRED + 1, (None, False)),  # of a version that renews nothing
    ],
)
def test_a_lock_without_a_heartbeat_expires(
    beat: int, silence: int, printed: tuple[int | None, bool], rack: Rack
) -> None:
    holder = Holder("20261122T080000-1a2b", "ann@desk", "2026-11-22T08:00:00+00:00", "spark1", beat=beat)
    _, status = after(rack, lambda made: made.nodes["spark1"].update(lock=held(holder, silence)))
    assert status.lock.holder
    assert (status.lock.holder.silence, status.lock.holder.expired) == printed
    assert status.code == 0, "a note"


@pytest.mark.parametrize(
    ("code", "lines"),
    [(1, []), (127, []), (0, []), (0, ["\x1b[2J"]), (run_lock.GONE, ["x"]), held("{"), held("{}"), held("[" * 9999)],
)
def test_a_lock_that_is_unknown(code: int, lines: list[str], rack: Rack) -> None:
    found, status = after(rack, answers("spark1", "lock", code, *lines), node="spark1")
    assert [finding.about for finding in found.unknown] == [About.LOCK]
    assert (status.lock.known, status.code) == (False, 1)


@pytest.mark.parametrize(
    ("pinned", "why"),
    [
        ("{", "rack.lock.json"),
        ('{"images": {}}', f"the lock file does not have {IMAGE}, so which image is right is not known"),
    ],
)
def test_no_word_on_which_image_is_right(pinned: str, why: str, tmp_path: Path) -> None:
    found, status = after(reference(tmp_path, pinned=pinned))
    assert why in found.unknown[0].text
    assert (found.images.right, status.code) == (None, 1)


def test_an_image_that_no_one_has_is_missing_whatever_it_is(tmp_path: Path) -> None:
    found, status = after(reference(tmp_path, pinned='{"images": {}}'), answers("spark2", "images", 0))
    assert [finding.text for finding in found.wrong] == [f"image {IMAGE} is missing"]
    assert (found.images.right, status.code) == (0, 1)


def test_a_broken_lock_file_does_not_matter_without_images(tmp_path: Path) -> None:
    text = "\n".join(line for line in REFERENCE.split("\n") if not line.startswith(("images:", "  - ")))
    assert after(reference(tmp_path, text, pinned="{"))[1].code == 0


def test_what_is_not_declared_is_not_judged(tmp_path: Path) -> None:
    text = changed(REFERENCE, ("  swap: false ", "  swap: true "))
    undeclared = ("driver:", "  version:", "  kernel:", "images:", "  - ")
    text = "\n".join(line for line in text.split("\n") if not line.startswith(undeclared))
    other = (answers("spark2", "swap", 0, SWAPS, "/swap.img file 8 0 -2"), answers("spark2", "kernel", 0, "6.1"))
    found, status = after(reference(tmp_path, text), *other, answers("spark2", "driver", 0, "1"))
    assert (found.swap, found.kernel, found.driver, found.images.declared) == (("/swap.img",), "6.1", "1", 0)
    assert (found.wrong, found.unknown, status.code) == ((), (), 0)


def test_what_is_left_alone_is_not_judged(tmp_path: Path) -> None:
    text = REFERENCE + "leave: [driver, memory, images]\n"
    meminfo = [line.replace("102760448", "1024") for line in MEMINFO]
    reported = {"swap": [SWAPS, "/swap.img file 8 0 -2"], "kernel": ["6.1"], "driver": ["1"], "memory": meminfo}
    other = [answers("spark2", question, 0, *lines) for question, lines in reported.items()]
    found, status = after(reference(tmp_path, text), *other)
    assert (found.swap, found.kernel, found.driver, found.images.declared) == (("/swap.img",), "6.1", "1", 0)
    assert (found.wrong, found.unknown, status.code) == ((), (), 0)
    found, status = after(reference(tmp_path), *other)
    assert (len(found.wrong), status.code) == (4, 2)


def test_a_package_version_is_declared(tmp_path: Path) -> None:
    text = changed(REFERENCE, ('version: "580.159"', 'version: "580.159.03-0ubuntu1"'))
    assert after(reference(tmp_path, text))[1].code == 0
