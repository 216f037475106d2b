"""What a node says of its end of a leg, in the words of its tools."""

from __future__ import annotations

import subprocess

import pytest

from core.model.cabling import Leg, Port
from core.routeros.change_plan import AffectedLink
from switch.link_witness import HalfReport, WitnessReport, witness
from tests.unit.probe_output import decode_answers, probe_output

LINK = AffectedLink("*4", "qsfp56-dd-1-1", Leg("crs812", "qsfp56-dd-1", 1, (1, 2), 100), Port("spark1", 1))
Answers = tuple[dict[str, tuple[int, str]], dict[str, str | None]]
ONE, TWIN = (half.interface for half in LINK.port.halves)


def printed(
    name: str, flags: str | None = "0x1003", link: str | None = "yes", speed: str | None = "100000Mb/s"
) -> Answers:
    """What the command prints for one interface: ethtool's output, and the file of its flags."""
    lines = [f"Settings for {name}:", "\tSupported ports: [ FIBRE ]"]
    lines += [f"\tSpeed: {speed}"] if speed else []
    lines += ["\tDuplex: Full"]
    lines += [f"\tLink detected: {link}"] if link else []
    return {name: (0, "\n".join(lines) + "\n")}, {f"/sys/class/net/{name}/flags": flags}


def both(*answers: Answers) -> str:
    """The output for these interfaces."""
    commands: dict[str, str | tuple[int, str]] = {}
    files: dict[str, str | None] = {}
    for command, file in answers:
        commands |= command
        files |= file
    return probe_output(commands, files)


def seen(output: str | None) -> WitnessReport:
    return witness(lambda _node, _command: output)([LINK])


def test_both_halves_agree() -> None:
    assert seen(both(printed(ONE), printed(TWIN))) == WitnessReport((), ())


@pytest.mark.parametrize(
    ("messages", "reported"),
    [
        ({"link": "no", "speed": "Unknown!"}, "sees no link, should see 100G"),
        ({"speed": "50000Mb/s"}, "runs at 50000Mb/s, should run at 100000Mb/s"),
        ({"speed": "Unknown!"}, "runs at Unknown!, should run at 100000Mb/s"),
    ],
)
def test_a_half_that_sees_another_link_disagrees(messages: dict[str, str], reported: str) -> None:
    assert seen(both(printed(ONE), printed(TWIN, **messages))) == WitnessReport(
        (HalfReport(f"spark1/{TWIN}", reported),), ()
    )


@pytest.mark.parametrize(
    ("messages", "reported"),
    [
        ({"flags": "0x1002"}, "the interface is switched off on the node"),
        ({"flags": ""}, "there is no such interface yet"),
        ({"flags": None}, "there is no such interface yet"),
        ({"flags": "garbage"}, "there is no such interface yet"),
        ({"link": None, "speed": None}, "ethtool does not report"),
    ],
)
def test_a_half_that_does_not_know_is_not_a_disagreement(messages: dict[str, str], reported: str) -> None:
    assert seen(both(printed(ONE, **messages), printed(TWIN))) == WitnessReport(
        (), (HalfReport(f"spark1/{ONE}", reported),)
    )


def test_a_node_out_of_reach_does_not_know() -> None:
    reports = tuple(HalfReport(f"spark1/{name}", "spark1 is not in this run") for name in (ONE, TWIN))
    assert seen(None) == WitnessReport((), reports)


@pytest.mark.parametrize("output", ["", "complete\n", "garbage: x\n", both(printed(ONE), printed(TWIN))[:-2]])
def test_an_output_without_the_interface_does_not_know(output: str) -> None:
    assert len(seen(output).unknown) == 2


def test_names_that_begin_alike_are_not_mixed_up() -> None:
    assert seen(both(printed(f"{ONE}1", link="no"), printed(ONE), printed(TWIN))) == WitnessReport((), ())


def test_each_node_is_asked_once_for_both_halves() -> None:
    asked: list[tuple[str, str]] = []

    def ask(node: str, command: str) -> str:
        asked.append((node, command))
        return both(printed(ONE), printed(TWIN))

    witness(ask)([LINK])
    assert [node for node, _ in asked] == ["spark1"]
    assert ONE in asked[0][1]
    assert TWIN in asked[0][1]


def test_the_command_is_one_that_a_shell_runs() -> None:
    """On this machine there is no such interface: that is what comes out."""
    commands: list[str] = []
    witness(lambda _node, command: commands.append(command))([LINK])
    done = subprocess.run(["sh", "-c", commands[0]], capture_output=True, text=True, check=True)
    assert decode_answers(done.stdout)[f"/sys/class/net/{ONE}/flags"] == (b"", b"absent")
    assert seen(done.stdout).unknown == tuple(
        HalfReport(f"spark1/{name}", "there is no such interface yet") for name in (ONE, TWIN)
    )
