"""Which verbs a rebuild calls, with which words, and what it says at the end."""

from __future__ import annotations

import json
import shlex
import socket
from pathlib import Path

import pytest

from sparkrack.rebuild import wait_for_ports
from tests.commands import parsed
from tests.unit.rebuild.rebuild_folder import Workdir, after
from tests.unit.roles.watch_tools import AMTOOL, silenced

ALL = ["wait", "bootstrap", "apply", "reboot", "verify"]


def test_the_whole_rack(workdir: Workdir) -> None:
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert workdir.verbs() == ["bootstrap nodes", "bootstrap switch", "apply", "status", "verify"]
    assert workdir.entered() == ALL
    nodes, switch, apply, _, verify = workdir.calls
    assert nodes == ["bootstrap", "nodes", "spark1", "spark2", "--rack", str(workdir.rack), "--timeout", "20"]
    assert switch == ["bootstrap", "switch", "crs812", "--rack", str(workdir.rack), "--timeout", "20"]
    assert apply == ["apply", "-y", "--rack", str(workdir.rack)]
    assert verify == ["verify", "--rack", str(workdir.rack)]
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("done: spark1, spark2, crs812 in ")
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("phase ")) + 1 :]
    assert [line.split()[:2] for line in table[: len(ALL)]] == [[phase, "done"] for phase in ALL]


def test_a_node_alone_reaches_the_others_only_for_keys(workdir: Workdir) -> None:
    assert workdir.run("spark2").returncode == 0
    bootstrap, alone, together, _, own, others = workdir.calls
    assert bootstrap[:3] == ["bootstrap", "nodes", "spark2"]
    assert after(alone, "--limit") == ["spark2"]
    assert {"access", "driver", "fabric", "docker"} <= set(after(alone, "--only"))
    assert not {"images", "switch"} & set(after(alone, "--only"))
    assert after(together, "--limit") == ["spark1", "spark2"]
    assert after(together, "--only") == ["access"], "no images are declared"
    assert after(own, "--limit") == ["spark2"]
    assert (after(others, "--limit"), after(others, "--only")) == (["spark1"], ["access"])


def test_roles_that_the_rack_leaves_alone_are_not_asked_for(workdir: Workdir) -> None:
    workdir.rack.write_text("leave: [access, driver, memory]\n" + workdir.rack.read_text())
    assert workdir.run("spark2").returncode == 0
    assert workdir.verbs() == ["bootstrap nodes", "apply", "status", "verify"]
    assert not {"access", "driver", "memory"} & set(after(workdir.calls[1], "--only"))
    assert {"preflight", "fabric", "docker"} <= set(after(workdir.calls[1], "--only"))


def test_alerts_of_the_rebuilt_node_are_silent_until_it_is_over(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made at the server of the watch, spark1; a shell there is one of this machine."""
    workdir.rack.write_text(f"{workdir.rack.read_text()}watch: {{server: spark1}}\n")
    shell = f'[ "$4" != "sudo -n sh" ] || PATH="{workdir.folder}/amtool:$PATH" exec sh\n'
    ssh = workdir.folder / "bin/ssh"
    ssh.write_text(ssh.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{shell}"))
    amtool = workdir.folder / "amtool/amtool"
    amtool.parent.mkdir()
    amtool.write_text(AMTOOL)
    amtool.chmod(0o755)
    monkeypatch.setenv("NODES", str(workdir.folder))
    done = workdir.run("spark2")
    assert done.returncode == 0, done.stderr
    assert "not silenced" not in done.stdout + done.stderr
    made = silenced(workdir.folder)
    assert made[0] == 'rebuild of spark2: node=~"spark2"'
    assert not any("spark1" in line and "Link" not in line for line in made)
    assert made[-1].startswith("expire ")
    assert workdir.verbs()[0] == "bootstrap nodes"


def test_a_node_that_is_not_there_is_left_out(workdir: Workdir) -> None:
    assert workdir.run("spark2", "--exclude", "spark1").returncode == 0
    assert workdir.verbs() == ["bootstrap nodes", "apply", "status", "verify"]
    assert after(workdir.calls[1], "--limit") == ["spark2"]
    assert after(workdir.calls[1], "--only") == []
    assert after(workdir.calls[3], "--exclude") == ["spark1"]


def test_the_switch_alone(workdir: Workdir) -> None:
    done = workdir.run("--switch", "--switch-password-file", "sticker", "--replace-fingerprint")
    assert done.returncode == 0, done.stderr
    assert workdir.verbs() == ["bootstrap switch", "apply", "verify"]
    assert workdir.entered() == ["wait", "bootstrap", "apply", "verify"]
    assert after(workdir.calls[0], "--password-file") == [str(Path.cwd() / "sticker")]
    assert "--replace-fingerprint" in workdir.calls[0]
    assert after(workdir.calls[1], "--limit") == ["crs812"]
    assert after(workdir.calls[2], "--only") == ["switch", "lossless", "fabric"]


def test_packages_upgrade_the_switch_before_its_first_contact(workdir: Workdir) -> None:
    done = workdir.run("--switch", "--packages", "npk", "--switch-password-file", "sticker")
    assert done.returncode == 0, done.stderr
    assert [words[:2] for words in workdir.calls[:2]] == [["upgrade", "switch"], ["bootstrap", "switch"]]
    folder, sticker = str(Path.cwd() / "npk"), str(Path.cwd() / "sticker")
    upgrade = ["upgrade", "switch", "crs812", "-y", "--no-nodes", "--rack", str(workdir.rack), "--packages", folder]
    assert workdir.calls[0] == [*upgrade, "--password-file", sticker]
    workdir.works = True
    assert workdir.run("--switch", "--packages", "npk").returncode == 0
    assert workdir.verbs()[-3:] == ["upgrade switch", "apply", "verify"]
    refused = workdir.run("spark1", "--packages", "npk")
    assert refused.returncode == 1
    assert "--packages is for a switch, and none is rebuilt" in refused.stderr


def test_a_switch_that_takes_our_login_gets_no_first_contact(workdir: Workdir) -> None:
    workdir.works = True
    done = workdir.run("--switch")
    assert done.returncode == 0, done.stderr
    assert workdir.verbs() == ["apply", "verify"]
    assert "crs812: takes our login over the pinned certificate; no first contact is needed" in done.stdout


def test_options_go_to_the_verb_they_are_about(workdir: Workdir) -> None:
    nodes = ("--as", "nvidia", "--node-password-env", "A", "--host-keys", "keys", "--replace-host-key")
    switch = ("--switch-password-env", "B", "--switch-address", "127.77.0.2")
    assert workdir.run("--all", *nodes, *switch).returncode == 0
    first, second = workdir.calls[:2]
    assert first[6:] == [
        *("--as", "nvidia", "--password-env", "A", "--host-keys", "keys", "--replace-host-key"),
        *("--timeout", "20"),
    ]
    assert second[5:] == ["--address", "127.77.0.2", "--password-env", "B", "--timeout", "20"]


def test_only_a_node_that_asks_for_it_is_restarted(workdir: Workdir) -> None:
    workdir.status(spark1=False, spark2=True)
    workdir.runs("spark1", 0)
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    (reboot,) = [words for words in workdir.calls if words[0] == "reboot"]
    assert reboot == ["reboot", "-y", "--rack", str(workdir.rack), "--limit", "spark2"]
    assert "restarted: spark2" in done.stdout
    assert workdir.verbs()[-2:] == ["reboot", "verify"]


def test_a_node_that_does_not_say_whether_it_wants_a_restart_ends_it(workdir: Workdir) -> None:
    workdir.status(spark1=False, spark2=None)
    done = workdir.run("--all")
    assert done.returncode == 1
    assert "spark2: whether it should be restarted is unknown" in done.stdout
    assert "reboot" not in workdir.verbs()
    assert "verify" not in workdir.verbs()


def test_a_verb_that_fails_ends_it_and_the_command_goes_on(workdir: Workdir) -> None:
    workdir.does("apply", exit=1)
    done = workdir.run("spark2", "--node-password-env", "A")
    assert done.returncode == 1
    assert "[3/5] apply: failed, " in done.stdout
    assert "sparkrack apply ended with 1" in done.stdout
    assert done.stdout.splitlines()[-1] == "failed"
    again = f"sparkrack rebuild spark2 --rack {workdir.rack} --node-password-env A --timeout 20"
    assert done.stderr == f"Next, to resume: {again}\n"
    workdir.does("apply")
    before = len(workdir.calls)
    assert workdir.run("spark2", "--node-password-env", "A").returncode == 0
    assert workdir.verbs(before) == ["apply", "apply", "status", "verify", "verify"]


def test_a_proof_that_fails_is_not_a_success(workdir: Workdir) -> None:
    workdir.does("verify", exit=2)
    done = workdir.run("--all")
    assert done.returncode == 1
    assert "sparkrack verify ended with 2" in done.stdout


def test_json_is_all_that_stdout_has(workdir: Workdir) -> None:
    done = workdir.run("--all", "--json")
    reported = json.loads(done.stdout)
    assert reported["schema"] == "sparkrack.rebuild/2"
    assert (reported["result"], reported["again"], reported["resumed"]) == ("done", None, None)
    assert [phase["phase"] for phase in reported["phases"]] == ALL
    assert "apply speaks" in done.stderr
    assert reported["journal"] == str(workdir.journals[0])


def test_a_password_is_in_no_word_no_journal_and_no_output(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "canary-of-the-nodes")
    (workdir.folder / "sticker").write_text("canary-of-the-switch\n")
    workdir.does("bootstrap", exit=1)
    words = ("--node-password-env", "A", "--switch-password-file", str(workdir.folder / "sticker"))
    done = workdir.run("--all", *words, "--json")
    workdir.does("bootstrap")
    again = workdir.run("--all", *words)
    kept = [path.read_text() for path in (workdir.folder / "state").rglob("*") if path.is_file()]
    for text in (done.stdout, done.stderr, again.stdout, again.stderr, json.dumps(workdir.calls), *kept):
        assert "canary" not in text
    assert again.returncode == 0
    assert len(kept) == 3, "a journal, its debug log and a lock"


def test_machines_that_never_answer_are_named(workdir: Workdir) -> None:
    workdir.away("spark1")
    workdir.away("spark2")
    done = workdir.run("spark1", "spark2", "--timeout", "0")
    assert done.returncode == 1
    assert "spark1, spark2: no answer within 0 s; look at power, cable and address" in done.stdout
    assert workdir.calls == []


@pytest.mark.parametrize("which", [("--all",), ("spark2",), ("--switch",)])
def test_every_command_that_is_called_exists(workdir: Workdir, which: tuple[str, ...]) -> None:
    workdir.status(spark1=True, spark2=True)
    every = ("--as", "nvidia", "--host-keys", "keys", "--replace-host-key", "--replace-fingerprint")
    secrets = ("--node-password-env", "A", "--switch-password-env", "B", "--switch-address", "127.77.0.2")
    assert workdir.run(*which, *every, *secrets, "--containers", "spark1").returncode == 0
    assert workdir.calls
    for words in workdir.calls:
        parsed(words)


def test_the_command_that_goes_on_exists(workdir: Workdir) -> None:
    workdir.does("apply", exit=1)
    last = workdir.run("--all", "--containers", "spark1", "--as", "nvidia").stderr.splitlines()[-1]
    words = shlex.split(last.partition("Next, to resume: sparkrack ")[2])
    assert words[:2] == ["rebuild", "--all"]
    parsed(words)


def test_each_machine_is_waited_for_by_any_of_its_ports() -> None:
    said: list[str] = []
    checks: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as there, socket.create_server(("127.0.0.1", 0)) as late:
        open_, shut = there.getsockname(), ("127.0.0.2", late.getsockname()[1])
        assert wait_for_ports.answers(open_)
        assert not wait_for_ports.answers(shut)

        def check() -> None:
            checks.append(len(said))

        ports = {"spark2": (shut, open_), "spark1": (open_,), "crs812": (shut,)}
        assert wait_for_ports.wait(ports, 0, said.append, check) == ["crs812"]
    assert said[:2] == ["spark2: answers after 0 s", "spark1: answers after 0 s"]
    assert checks == [0]


def test_what_is_waited_for_is_said_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    rounds = iter([(), ("b",), (), ("a",)])
    there: set[str] = set()
    monkeypatch.setattr(wait_for_ports, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(wait_for_ports, "answers", lambda port: port[0] in there)
    ports = {"a": (("a", 22),), "b": (("b", 22),)}
    assert wait_for_ports.wait(ports, 60, said.append, lambda: there.update(next(rounds))) == []
    assert said == [
        "waiting for a, b",
        "b: answers after 0 s",
        "waiting for a",
        "a: answers after 0 s",
    ]
