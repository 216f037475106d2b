"""What a node says of itself: the script in a real shell, and answers that are none."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkrack.discovery.asking import QUESTIONS, script, speaking
from sparkrack.discovery.node import hearing, understood
from sparkrack.fleet import Half
from sparkrack.status.question import Answer, answers
from tests.unit.fleet.racks import RING, SWITCH, TAGGED, loaded

from .worlds import world

WRITING = ("rm ", "mv ", " > /", ">/etc", "tee ", "sed -i", "systemctl start", "systemctl enable", "apt-mark hold")


def test_the_script_answers_every_question_in_a_real_shell() -> None:
    done = subprocess.run(["sh", "-c", script()], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    said = answers(done.stdout)
    assert set(said) == set(QUESTIONS)
    facts = understood("here", said)
    assert facts.kernel == subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    assert facts.min_free
    assert facts.swap is not None


def test_the_script_writes_nothing() -> None:
    asked = script().replace("> /dev/null", "").replace(">/dev/null", "")
    assert not [word for word in WRITING if word in asked]


def test_a_daemon_json_tells_no_password(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("etc") / "daemon.json"
    file.write_text(
        '{"proxies": {"http-proxy": "http://me:hunter2@p"}, "log-opts": {"max-size": "5m"}, "live-restore":true}'
    )
    question = QUESTIONS["daemon"].replace("/etc/docker/daemon.json", str(file))
    done = subprocess.run(["sh", "-c", question], capture_output=True, text=True)
    assert "hunter2" not in done.stdout
    assert understood("n", {"daemon": Answer(0, tuple(done.stdout.splitlines()))}).daemon == {
        "max-size": "5m",
        "live-restore": "true",
    }


def test_a_silent_node_tells_nothing_and_says_so_for_each_question() -> None:
    facts = understood("n", {})
    assert set(facts.untold) == set(QUESTIONS)
    assert facts.halves == {}
    assert facts.hotplug is None


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(QUESTIONS)), st.lists(st.text(max_size=40), max_size=3), st.sampled_from([0, 1]))
def test_no_answer_can_break_it(question: str, lines: list[str], code: int) -> None:
    facts = understood("n", {**world(loaded(SWITCH)).nodes["spark1"], question: Answer(code, tuple(lines))})
    assert all(why.isprintable() for why in facts.untold.values())


@pytest.mark.parametrize("links", ["", "nonsense", "{}", '[{"ifname": 1}]', '[{"ifname": "enp1s0f1np1", "flags": []}]'])
def test_interfaces_that_cannot_be_told_are_none(links: str) -> None:
    said = {**world(loaded(SWITCH)).nodes["spark1"], "links": Answer(0, (links,) if links else ())}
    facts = understood("spark1", said)
    assert facts.halves == {}
    assert "links" in facts.untold or links in ("", "{}")


def test_a_vlan_on_a_half_is_its_address() -> None:
    facts = world(loaded(TAGGED)).facts()["spark1"]
    half = facts.halves[Half("spark1", 1, 1)]
    assert (half.vlan, half.device, str(half.addresses[0])) == (1101, "fabric1", "192.168.101.1/24")


def test_every_half_speaks_to_the_peers_of_its_subnets() -> None:
    facts = world(loaded(RING)).facts()
    text = speaking(facts["spark1"], facts.values())
    assert "-6 -I enp1s0f0np0 ff02::1" in text
    assert " 10.100.0.2 " in text  # spark2, on the same cable
    assert " 10.100.4.2 " not in text  # spark3, on another
    alone = speaking(facts["spark1"], [facts["spark1"]])
    assert " 10.100.0.254 " in alone
    assert text.endswith("wait\nip -j neigh")


def test_neighbours_are_taken_from_an_answer_and_kept_without_one() -> None:
    facts = world(loaded(SWITCH)).facts()["spark1"]
    row = '[{"dst":"192.168.100.2","dev":"enp1s0f1np1","lladdr":"02:5B:00:00:00:01","state":["REACHABLE"]},{"dst":"x"}]'
    heard = hearing(facts, row)
    assert heard.neighbours == {"enp1s0f1np1": frozenset({"02:5b:00:00:00:01"})}
    assert hearing(heard, "garbled") is heard
