"""What a node says of its end of a leg, in the words of its tools."""

from __future__ import annotations

import subprocess

import pytest

from sparkrack.fleet.cabling import Leg, Port
from switch.batch import Link
from switch.witness import Seen, witness

LINK = Link("*4", "qsfp56-dd-1-1", Leg("crs812", "qsfp56-dd-1", 1, (1, 2), 100), Port("spark1", 1))
ONE, TWIN = (half.interface for half in LINK.port.halves)


def printed(name: str, flags: str = "0x1003", link: str | None = "yes", speed: str | None = "100000Mb/s") -> str:
    """What the command prints for one interface."""
    lines = [f"interface={name}", f"flags={flags}", f"Settings for {name}:", "\tSupported ports: [ FIBRE ]"]
    lines += [f"\tSpeed: {speed}"] if speed else []
    lines += ["\tDuplex: Full"]
    lines += [f"\tLink detected: {link}"] if link else []
    return "\n".join(lines) + "\n"


def seen(output: str | None) -> Seen:
    return witness(lambda _node, _command: output)([LINK])


def test_both_halves_agree() -> None:
    assert seen(printed(ONE) + printed(TWIN)) == Seen((), ())


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"link": "no", "speed": "Unknown!"}, "sees no link, should see 100G"),
        ({"speed": "50000Mb/s"}, "runs at 50000Mb/s, should run at 100000Mb/s"),
        ({"speed": "Unknown!"}, "runs at Unknown!, should run at 100000Mb/s"),
    ],
)
def test_a_half_that_sees_another_link_disagrees(told: dict[str, str], said: str) -> None:
    assert seen(printed(ONE) + printed(TWIN, **told)) == Seen((f"spark1/{TWIN}: {said}",), ())


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"flags": "0x1002"}, "the interface is switched off on the node"),
        ({"flags": ""}, "there is no such interface yet"),
        ({"flags": "garbage"}, "there is no such interface yet"),
        ({"link": None, "speed": None}, "ethtool does not tell"),
    ],
)
def test_a_half_that_cannot_tell_is_no_disagreement(told: dict[str, str], said: str) -> None:
    assert seen(printed(ONE, **told) + printed(TWIN)) == Seen((), (f"spark1/{ONE}: {said}",))


def test_a_node_out_of_reach_cannot_tell() -> None:
    texts = tuple(f"spark1/{name}: spark1 is not in this run" for name in (ONE, TWIN))
    assert seen(None) == Seen((), texts)


@pytest.mark.parametrize("output", ["", "interface=\n", "garbage: x\n"])
def test_an_output_without_the_interface_cannot_tell(output: str) -> None:
    assert len(seen(output).cannot_tell) == 2


def test_names_that_begin_alike_are_not_mixed_up() -> None:
    assert seen(printed(f"{ONE}1", link="no") + printed(ONE) + printed(TWIN)) == Seen((), ())


def test_each_node_is_asked_once_for_both_halves() -> None:
    asked: list[tuple[str, str]] = []

    def ask(node: str, command: str) -> str:
        asked.append((node, command))
        return printed(ONE) + printed(TWIN)

    witness(ask)([LINK])
    assert [node for node, _ in asked] == ["spark1"]
    assert ONE in asked[0][1]
    assert TWIN in asked[0][1]


def test_the_command_is_one_that_a_shell_runs() -> None:
    """On this machine there is no such interface: that is what comes out."""
    commands: list[str] = []
    witness(lambda _node, command: commands.append(command))([LINK])
    done = subprocess.run(["sh", "-c", commands[0]], capture_output=True, text=True, check=True)
    assert done.stdout == f"interface={ONE}\nflags=\ninterface={TWIN}\nflags=\n"
    assert seen(done.stdout).cannot_tell == tuple(
        f"spark1/{name}: there is no such interface yet" for name in (ONE, TWIN)
    )
