"""What the gateway and the previous version of a unit answer over root shells, and how it is reported: prepared
answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from core.ssh.root_shell import UnreachableError
from serving.options import served_units
from sparkrack.serving.bench import BenchError, UnitHead
from sparkrack.serving.previous_version import PreviousVersion, PreviousVersionError
from sparkrack.serving.unit_gateway import GatewayError, UnitGateway, gateway_node
from tests.unit.model.serving_racks import loaded, text, unit

RACK = loaded(text({"qwen": unit()}))
IMAGE = "sha256:" + "a" * 64


@dataclass
class Answer:
    """How a script ended."""

    rc: int = 0
    stdout: str = ""
    stderr: str = ""


@dataclass
class Shell:
    """A root shell with one answer to all, or a fault."""

    answer: Answer | Exception = field(default_factory=Answer)
    asked: list[str] = field(default_factory=list)

    def run(self, command: str) -> Any:
        self.asked.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def served() -> Any:
    return served_units(RACK)["qwen"]


# The gateway


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(1, stderr="first\nno unit qwen\n"), "n0: no unit qwen"),
        (Answer(3), "n0: the program ended with exit 3"),
        (UnreachableError("n0", "No route to host"), "n0: the gateway cannot be asked: No route to host"),
        (OSError(2, "No such file or directory"), "n0: the gateway cannot be asked: No such file or directory"),
        (OSError("odd"), "n0: the gateway cannot be asked: odd"),
        (Answer(1, stderr="HF_TOKEN=hf_0123456789abcdef \x1b[2J"), "n0: HF_TOKEN=*** \\x1b[2J"),
    ],
)
def test_a_gateway_that_gives_no_answer_is_reported_with_its_node(answer: Answer | Exception, said: str) -> None:
    with pytest.raises(GatewayError) as failed:
        UnitGateway(served(), "n0", Shell(answer)).close()  # type: ignore[arg-type]
    assert str(failed.value) == said


def test_a_gateway_is_closed_and_opened_for_its_unit_where_there_is_one() -> None:
    for code in (0, 66):
        shell = Shell(Answer(code))
        gateway = UnitGateway(served(), "n0", shell)  # type: ignore[arg-type]
        gateway.close()
        gateway.open()
        closed, opened = shell.asked
        assert closed.endswith(" close qwen")
        assert opened == closed.replace(" close ", " open ")
        assert closed.startswith("[ -e /usr/local/lib/sparkrack/")
        assert "] || exit 66; " in closed


def test_a_rack_without_a_gateway_has_no_node_of_it() -> None:
    assert gateway_node(RACK) is None


# The previous version


def version(**answers: Answer | Exception) -> tuple[PreviousVersion, dict[str, Shell]]:
    shells = {name: Shell(answers.get(name, Answer())) for name in ("n0", "n1")}
    return PreviousVersion(RACK, served(), shells), shells  # type: ignore[arg-type]


def listed(*rows: str) -> Answer:
    return Answer(stdout="".join(f"{row}\n" for row in rows))


@pytest.mark.parametrize(
    ("here", "there", "changed", "generation"),
    [
        ([f"7 n0,n1 {IMAGE} other"], [f"7 n0,n1 {IMAGE} same"], False, 7),
        ([f"7 n0,n1 {IMAGE} same"], [f"7 n0,n1 {IMAGE} same"], True, 7),
        ([f"7 n0,n1 {IMAGE} same", f"9 n0,n1 {IMAGE} other"], ["7 n0,n1 - other"], False, 7),
        ([f"7 n0,n1 {IMAGE} same", f"9 n0,n1 {IMAGE} other"], ["9 n0,n1 - other", "7 n0,n1 - same"], False, 9),
        ([f"10 n0,n1 {IMAGE} other", f"9 n0,n1 {IMAGE} other"], ["9 n0,n1 - other", "10 n0,n1 - other"], False, 10),
    ],
)
def test_the_version_to_go_back_to_is_the_latest_that_each_node_keeps(
    here: list[str], there: list[str], changed: bool, generation: int
) -> None:
    found, _ = version(n0=listed(*here), n1=listed(*there))
    assert found.find(changed=changed) == generation


@pytest.mark.parametrize(
    ("here", "there", "changed", "said"),
    [
        ([], [], False, "there is no previous version: n0, n1 keeps none"),
        ([f"7 n0,n1 {IMAGE} other"], [], False, "there is no previous version: n1 keeps none"),
        (
            [f"7 n0,n1 {IMAGE} other"],
            [f"8 n0,n1 {IMAGE} other"],
            True,
            "there is no previous version: the nodes keep different generations",
        ),
        (
            [f"7 n0,n2 {IMAGE} other"],
            [f"7 n0,n1 {IMAGE} other"],
            True,
            "its previous version was on other nodes: n0,n2",
        ),
        (
            [f"7 n0,n1 {IMAGE} other"],
            [f"7 n0,n1 {IMAGE} absent"],
            True,
            f"n1 no longer has {IMAGE}, the image of its previous version",
        ),
        ([f"7 n0,n1 {IMAGE} same"], [f"7 n0,n1 {IMAGE} same"], False, "its files are those of its last good start"),
        (["7 n0,n1 x other"], [], False, "n0: unexpected output 7 n0,n1 x other"),
        (["\x1b" + "x" * 100], [], False, f"n0: unexpected output \\x1b{'x' * 76}"),
        ([f"{'9' * 19} n0,n1 {IMAGE} other"], [], False, f"n0: unexpected output {'9' * 19} n0,n1 sha256:"),
        ([f"7 n0,n1 {IMAGE} differs"], [], False, "n0: unexpected output 7 n0,n1 sha256:"),
    ],
)
def test_without_a_version_to_go_back_to_the_reason_is_reported(
    here: list[str], there: list[str], changed: bool, said: str
) -> None:
    found, _ = version(n0=listed(*here), n1=listed(*there))
    with pytest.raises(PreviousVersionError) as failed:
        found.find(changed=changed)
    assert str(failed.value).startswith(said)
    assert said.endswith("sha256:") or str(failed.value) == said


def verbs(shells: dict[str, Shell]) -> list[str]:
    """What each node was asked to do, the first node's first."""
    return [
        f"{name}: {' '.join(line.rpartition(' serve-previous ')[2].split())}"
        for name in shells
        for line in shells[name].asked
    ]


def test_each_step_is_done_on_all_nodes() -> None:
    found, shells = version()
    found.keep(7)
    assert verbs(shells) == ["n0: keep qwen 7", "n0: forget qwen 7", "n1: keep qwen 7", "n1: forget qwen 7"]
    found, shells = version()
    found.restore(7)
    assert verbs(shells) == [
        f"{name}: {verb}" for name in ("n0", "n1") for verb in ("begin qwen", "restore qwen 7", "end qwen")
    ]


def test_a_step_that_fails_on_a_node_ends_all_and_names_it() -> None:
    for answer, said in (
        (Answer(1, stderr="a\ngeneration 7 of unit qwen is not kept\n"), "n0: generation 7 of unit qwen is not kept"),
        (Answer(4), "n0: keep ended with exit 4"),
        (UnreachableError("n0", "off"), "n0: cannot be asked: off"),
        (OSError(2, "No such file or directory"), "n0: cannot be asked: No such file or directory"),
        (OSError("odd"), "n0: cannot be asked: odd"),
    ):
        found, shells = version(n0=answer)
        with pytest.raises(PreviousVersionError) as failed:
            found.keep(7)
        assert str(failed.value) == said
        assert shells["n1"].asked == []


# The head of a unit that is measured


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(1, stderr="a\n b \n\n"), "n0: the state of unit qwen is unknown: b"),
        (Answer(1), "n0: the state of unit qwen is unknown: no output"),
        (Answer(1, stderr="c" * 400), f"n0: the state of unit qwen is unknown: {'c' * 300}"),
        (Answer(stdout="{"), "n0: the coordinator of unit qwen gave no state"),
        (Answer(stdout='{"state": "ready"}'), "n0: the coordinator of unit qwen gave no state"),
        (Answer(stdout='{"state": "ready", "generation": "x"}'), "n0: the coordinator of unit qwen gave no state"),
        (Answer(stdout="[]"), "n0: the coordinator of unit qwen gave no state"),
        (
            Answer(stdout='{"state": "held", "generation": 7, "reason": "a gate failed"}'),
            "n0: unit qwen is held: a gate failed; it can be measured when it is ready or busy",
        ),
        (
            Answer(stdout='{"state": "draining", "generation": 7}'),
            "n0: unit qwen is draining: ; it can be measured when it is ready or busy",
        ),
    ],
)
def test_a_unit_that_does_not_answer_is_not_measured(answer: Answer, said: str) -> None:
    with pytest.raises(BenchError) as refused:
        UnitHead(served(), "n0", Shell(answer)).state()  # type: ignore[arg-type]
    assert str(refused.value) == said


@pytest.mark.parametrize("state", ["ready", "busy"])
def test_a_unit_that_answers_is_measured_in_its_generation(state: str) -> None:
    shell = Shell(Answer(stdout=f'{{"state": "{state}", "generation": 7}}'))
    assert UnitHead(served(), "n0", shell).state() == (state, 7)  # type: ignore[arg-type]
    program, file = "/usr/local/lib/sparkrack/serve/serve_coordinator.py", "/etc/sparkrack/serve/qwen.json"
    assert shell.asked == [f"{program} {file} status"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(1, stderr="No such object"), "n0: No such object"),
        (Answer(1), "n0: no output"),
        (Answer(stdout="a b c\n"), "n0: docker describes the container sparkrack-qwen in an unknown form"),
        (Answer(stdout="a"), "n0: docker describes the container sparkrack-qwen in an unknown form"),
        (
            Answer(stdout=f"{'a' * 60} {'b' * 60}"),
            "n0: the container sparkrack-qwen does not tell the version of vllm",
        ),
    ],
)
def test_a_container_that_is_not_described_is_not_measured(answer: Answer, said: str) -> None:
    with pytest.raises(BenchError) as refused:
        UnitHead(served(), "n0", Shell(answer)).running(7)  # type: ignore[arg-type]
    assert str(refused.value) == said
