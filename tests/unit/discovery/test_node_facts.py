"""What a node says of itself: the script in a real shell, and answers that are none."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model import Half
from core.probes.protocol import parse_commands
from sparkrack.discovery.node_facts import parse_node_facts, with_neighbours
from sparkrack.discovery.probe_script import QUESTIONS, neighbour_script, script
from tests.unit.discovery.worlds import printed, world
from tests.unit.model.racks import RING, SWITCH, TAGGED, loaded

WRITING = ("rm ", "mv ", " > /", ">/etc", "tee ", "sed -i", "systemctl start", "systemctl enable", "apt-mark hold")


def test_the_script_answers_every_question_in_a_real_shell() -> None:
    done = subprocess.run(["sh", "-c", script()], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
    reported = parse_commands(done.stdout)
    assert set(reported) == set(QUESTIONS)
    facts = parse_node_facts("here", reported)
    assert facts.kernel == subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
    assert facts.options["memory.min_free_kbytes"]
    assert facts.options["memory.swap"] is not None


def test_the_script_writes_nothing() -> None:
    asked = script().replace("> /dev/null", "").replace(">/dev/null", "")
    assert not [word for word in WRITING if word in asked]


def test_a_daemon_json_tells_no_password(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("etc") / "daemon.json"
    file.write_text(
        '{"proxies": {"http-proxy": "http://me:hunter2@p"}, "log-opts": {"max-size": "5m"}, "live-restore":true}'
    )
    reported = {}
    for option in ("log_size", "log_files", "live_restore"):
        question = QUESTIONS[f"docker.{option}"].replace("/etc/docker/daemon.json", str(file))
        done = subprocess.run(["sh", "-c", question], capture_output=True, text=True)
        assert (done.returncode, "hunter2" in done.stdout) == (0, False)
        reported[f"docker.{option}"] = printed(*done.stdout.splitlines())
    assert parse_node_facts("n", reported).options == {"docker.log_size": "5M", "docker.live_restore": True}


def test_a_silent_node_tells_nothing_and_says_so_for_each_question() -> None:
    facts = parse_node_facts("n", {})
    assert set(facts.unknown) == set(QUESTIONS)
    assert facts.halves == {}
    assert facts.hotplug is None


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(QUESTIONS)), st.lists(st.text(max_size=40), max_size=3), st.sampled_from([0, 1]))
def test_no_answer_can_break_it(question: str, lines: list[str], code: int) -> None:
    facts = parse_node_facts("n", {**world(loaded(SWITCH)).nodes["spark1"], question: printed(*lines, code=code)})
    assert all(why.isprintable() for why in facts.unknown.values())


@pytest.mark.parametrize("links", ["", "nonsense", "{}", '[{"ifname": 1}]', '[{"ifname": "enp1s0f1np1", "flags": []}]'])
def test_interfaces_that_is_unknown_are_none(links: str) -> None:
    reported = {**world(loaded(SWITCH)).nodes["spark1"], "links": printed(links)}
    facts = parse_node_facts("spark1", reported)
    assert facts.halves == {}
    assert "links" in facts.unknown or links in ("", "{}")


def test_a_vlan_on_a_half_is_its_address() -> None:
    facts = world(loaded(TAGGED)).facts()["spark1"]
    half = facts.halves[Half("spark1", 1, 1)]
    assert (half.vlan, half.device, str(half.addresses[0])) == (1101, "fabric1", "192.168.101.1/24")


def test_every_half_speaks_to_the_peers_of_its_subnets() -> None:
    facts = world(loaded(RING)).facts()
    text = neighbour_script(facts["spark1"], facts.values())
    assert "-6 -I enp1s0f0np0 ff02::1" in text
    assert " 10.100.0.2 " in text  # spark2, on the same cable
    assert " 10.100.4.2 " not in text  # spark3, on another
    alone = neighbour_script(facts["spark1"], [facts["spark1"]])
    assert " 10.100.0.254 " in alone
    assert text.endswith("wait\nip -j neigh")


def test_neighbours_are_taken_from_an_answer_and_kept_without_one() -> None:
    facts = world(loaded(SWITCH)).facts()["spark1"]
    row = '[{"dst":"192.168.100.2","dev":"enp1s0f1np1","lladdr":"02:5B:00:00:00:01","state":["REACHABLE"]},{"dst":"x"}]'
    heard = with_neighbours(facts, row)
    assert heard.neighbours == {"enp1s0f1np1": frozenset({"02:5b:00:00:00:01"})}
    assert with_neighbours(heard, "garbled") is heard
