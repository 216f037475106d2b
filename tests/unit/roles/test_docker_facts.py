"""What follows from what a node says of its docker: nothing to do, a reload, a restart, or a reason to refuse."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from core.model import CONTAINER_SLICE, Rack
from core.ops.host_facts import HostReading
from core.ops.managed_service import NO_CHANGES
from core.util.event import Action, EventKind
from roles.docker import containers, desired, json_edit
from roles.docker.apply import engine_changes
from roles.docker.facts import CONTAINERS, ENGINE, UNITS, USERS, DockerFacts
from roles.docker.options import DockerOptions
from serving import running_engines as running_units
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.roles.cases import OPERATIONS, read

NODE = read(OPERATIONS / "docker.node.yaml")
GOOD: str = NODE[desired.CONFIG]
LIVE = GOOD.replace('"live-restore": false', '"live-restore": true')
OLD = GOOD.replace('"50m"', '"1m"')
A, B = (f"{containers.CGROUPS}/{CONTAINER_SLICE}/docker-{letter * 64}.scope" for letter in "ab")
LIMITED = f"{A} 107374182400 0\n"


def rack(docker: str = "") -> Rack:
    return loaded(changed(SWITCH, ("fabric:\n", f"docker: {{{docker}}}\n\nfabric:\n")))


def engine(started: str | None = GOOD, drop: str = "", add: str = "", **lines: str) -> str:
    """The lines of the engine on a node that is right, with some changed."""
    reported = dict(line.split(" ", 1) for line in NODE[ENGINE].splitlines() if line.split()[0] not in drop.split())
    reported |= {key.replace("_", "-"): value for key, value in lines.items()}
    if started is None:
        reported.pop("with")
    elif "with" in reported:
        reported["with"] = base64.b64encode(started.encode()).decode()
    return "".join(f"{key} {value}\n" for key, value in reported.items()) + add


def command(*words: str) -> str:
    return base64.b64encode("".join(f"{word}\0" for word in words).encode()).decode()


def view(docker: str = "", **changes: Any) -> DockerFacts:
    node = (
        NODE
        | {"config": NODE[desired.CONFIG], "engine": NODE[ENGINE], "running": "", "users": NODE[USERS], "ranks": ""}
        | {"units": NODE[UNITS]}
        | changes
    )
    found = {
        desired.CONFIG: node["config"],
        desired.DROPIN: node[desired.DROPIN],
        ENGINE: node["engine"],
        CONTAINERS: node["running"],
        USERS: node["users"],
        UNITS: node["units"],
        running_units.FACT: node["ranks"],
    }
    reading = HostReading({key: None if v is None else v.encode() for key, v in found.items()}, {})
    return DockerFacts(reading, rack(docker))


STOPPED = {"engine": engine(drop="cgroup command start with"), "units": NODE[UNITS].replace("active", "inactive", 1)}
LOOPS = {**STOPPED, "units": NODE[UNITS].replace("active", "activating", 1)}
NEW = {
    "engine": "candidate docker.io\n",
    "config": None,
    "units": NODE[UNITS].replace("=loaded", "=not-found").replace("=active", "=inactive").replace("=enabled", "="),
}


@pytest.mark.parametrize(
    ("docker", "changes"),
    [
        ("", {}),
        ("", {"running": LIMITED}),
        ("", {"engine": engine(add="swarm yes\n")}),
        ("live_restore: true", {"config": LIVE, "engine": engine(LIVE)}),
        (
            "log_size: 1G, log_files: 2",
            {"config": (c := OLD.replace("1m", "1g").replace('"5"', '"2"')), "engine": engine(c)},
        ),
        ("", {"engine": engine(stat="600:root:root:regular file")}),
        ("", {"engine": engine(GOOD.replace('"log-driver"', '"debug": true, "log-driver"'))}),
        ("", {"engine": engine(command=command("/usr/bin/dockerd", f"--config-file={desired.CONFIG}"))}),
    ],
)
def test_right(docker: str, changes: dict[str, Any]) -> None:
    seen = view(docker, **changes)
    assert (engine_changes(seen), seen.obstacles, seen.limits, seen.apart) == (NO_CHANGES, [], {}, None)


@pytest.mark.parametrize(
    ("docker", "changes", "act", "reason"),
    [
        ("", {"engine": engine(OLD)}, "restart", "log-opts max-size"),
        ("", {"engine": engine("")}, "restart", "cgroup-parent, exec-opts, log-driver, log-opts max-size"),
        ("", {"engine": engine("{")}, "restart", "it is not known which daemon.json it was started with"),
        ("", {"engine": engine(None)}, "restart", "it is not known"),
        ("", STOPPED, "start", "it does not run"),
        ("", LOOPS, "restart", "it does not run"),
        ("", NEW, "start", "it is new"),
        ("live_restore: true", {}, "reload", "live-restore"),
        ("live_restore: true", {"engine": engine(OLD)}, "restart", "log-opts max-size, live-restore"),
        ("", {"engine": engine(GOOD.replace('"nvidia"', '"other"'))}, "reload", "runtimes nvidia"),
        ("", {"config": OLD}, None, ""),
    ],
)
def test_what_the_engine_needs(docker: str, changes: dict[str, Any], act: str | None, reason: str) -> None:
    seen = view(docker, **changes)
    assert seen.act == act
    assert seen.reason.startswith(reason)
    events = [event for event in engine_changes(seen).events if event.kind is EventKind.RESTART]
    assert [(event.action, event.subject, event.detail) for event in events] == (
        [(Action(act), "docker.service", seen.reason)] if act else []
    )
    assert engine_changes(seen) != NO_CHANGES
    assert seen.obstacles == []


@pytest.mark.parametrize(
    ("units", "messages"),
    [
        (
            NODE[UNITS].replace("Reload=no", "Reload=yes", 1),
            ["reload systemd: it has not read the files of docker.service"],
        ),
        (NODE[UNITS].replace("enabled", "masked-runtime", 1), ["unmask docker.service", "enable docker.service"]),
        (NODE[UNITS][::-1].replace("delbane", "deksam", 1)[::-1], ["unmask containerd.service"]),
    ],
)
def test_an_engine_that_runs_stays_up_when_its_units_are_mended(units: str, messages: list[str]) -> None:
    assert [event.message for event in engine_changes(view(units=units, running=LIMITED)).events] == messages


@pytest.mark.parametrize(
    ("changes", "ended"), [({}, "1 running container"), ({"running": LIMITED * 2}, "2 running containers")]
)
def test_a_restart_names_how_many_containers_it_ends(changes: dict[str, Any], ended: str) -> None:
    seen = view("restart: always", **({"engine": engine(OLD), "running": LIMITED} | changes))
    (event,) = engine_changes(seen).events
    assert event.message == f"restart docker.service: log-opts max-size, which ends {ended}"


DIES = "container runs that would die of it (aaaaaaaaaaaa); stop them, or write docker.restart: always"


@pytest.mark.parametrize(
    ("docker", "changes", "says"),
    [
        (
            "",
            {"engine": engine(OLD), "running": LIMITED},
            f"docker must be restarted (log-opts max-size), and 1 {DIES}",
        ),
        (
            "",
            {**STOPPED, "running": LIMITED},
            f"docker must be started (it does not run), and 1 {DIES}",
        ),
        ("live_restore: true", {"engine": engine(OLD), "running": LIMITED}, DIES),
        ("", {"engine": engine(LIVE.replace("50m", "1m")), "running": LIMITED}, DIES),
        ("live_restore: true", {"engine": engine(add="swarm yes\n")}, "this node is in a docker swarm"),
        ("", {"engine": ""}, "no engine is installed, and apt knows neither docker-ce nor docker.io"),
        (
            "",
            {"engine": engine(command=command("dockerd", "--log-driver=syslog"))},
            "dockerd is started with --log-driver",
        ),
        (
            "",
            {"engine": engine(command=command("dockerd", "--cgroup-parent", "x"))},
            "dockerd is started with --cgroup-par",
        ),
        (
            "",
            {"engine": engine(command=command("dockerd", "--config-file=/x"))},
            "dockerd is started with --config-file",
        ),
        ("", {"engine": engine(cgroup="0::/user.slice/x.scope")}, "dockerd runs in /user.slice/x.scope, not as docker"),
    ],
)
def test_obstacles(docker: str, changes: dict[str, Any], says: str) -> None:
    (obstacle,) = view(docker, **changes).obstacles
    assert says in obstacle


@pytest.mark.parametrize(
    ("docker", "changes"),
    [
        ("restart: always", {"engine": engine(OLD), "running": LIMITED}),
        ("live_restore: true", {"engine": engine(LIVE.replace("50m", "1m")), "running": LIMITED, "config": LIVE}),
        ("live_restore: true", {**STOPPED, "running": LIMITED, "config": LIVE}),
        ("live_restore: true", {"running": LIMITED}),
        ("", {"config": OLD, "running": LIMITED}),
    ],
)
def test_containers_that_are_no_obstacle(docker: str, changes: dict[str, Any]) -> None:
    assert view(docker, **changes).obstacles == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": '{"log-opts": "x"}'}, f"{desired.CONFIG}: log-opts is not an object"),
        ({"config": '{"exec-opts": "native.cgroupdriver=systemd"}'}, f"{desired.CONFIG}: exec-opts is not a list"),
        ({"config": '{"default-ulimits": []}'}, f"{desired.CONFIG}: default-ulimits is not an object"),
        ({"config": '{"runtimes": 1}'}, f"{desired.CONFIG}: runtimes is not an object"),
        ({"config": '{"a": 1, "a": 2}'}, f'{desired.CONFIG}: "a" is there twice'),
        ({"engine": "dockerd\n"}, "docker-engine: unexpected probe output 'dockerd'"),
        ({"engine": "nonsense x\n"}, "docker-engine: unexpected probe output 'nonsense x'"),
        ({"units": ""}, "docker-units: docker.socket, containerd.service, docker.service: no answer"),
        ({"engine": engine(command="%")}, "docker-engine: unexpected probe output"),
        ({"engine": engine(stat="644")}, f"{desired.CONFIG}: its mode is unknown: unexpected output '644'"),
        ({"engine": engine(stat="644:root:root:fifo")}, f"{desired.CONFIG}: is a fifo"),
        ({"running": f"{A} lots 0\n"}, "running containers: unexpected probe output"),
        ({"running": f"{A} 1\n"}, "running containers: unexpected probe output"),
        ({"running": f"/etc/docker-{'a' * 64}.scope 1 0\n"}, "running containers: unexpected probe output"),
        (
            {"running": f"{containers.CGROUPS}/docker-$(reboot).scope 1 0\n"},
            "running containers: unexpected probe output",
        ),
        ({"users": "root:0\n\ndocker:x:998:ops\n"}, "access.user: ops is not in /etc/passwd of the node"),
        ({"users": "ops:1000\n\ndocker:x\n"}, "group docker: unexpected probe output"),
        ({"users": "ops:1000\n"}, "users of the node: unknown"),
    ],
)
def test_what_is_unknown(changes: dict[str, Any], says: str) -> None:
    seen = view(**changes)
    with pytest.raises(ValueError, match=re.escape(says)):
        _ = seen.obstacles


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"json-file"', '"syslog"'),
        ('"native.cgroupdriver=systemd"', '"native.cgroupdriver=cgroupfs"'),
        ('"Hard": -1', '"Hard": 64'),
        ("false", "true"),
        ('"5"', "5"),
        ('  "cgroup-parent": "sparkrack.slice",\n', ""),
    ],
)
def test_what_differs_is_put_right_and_shown(before: str, after: str) -> None:
    seen = view(config=GOOD.replace(before, after))
    assert seen.writes
    assert json_edit.parse(seen.after) == json_edit.parse(GOOD)
    (change,) = desired.setting_changes(seen.config, seen.rack.options(DockerOptions))
    assert change.message.startswith(f"{desired.CONFIG}: ")
    assert " -> " in change.message


def test_options_of_another_log_driver_are_removed_and_not_shown() -> None:
    options = '"splunk-token": "hush", "tag": "x", "max-size"'
    seen = view(config=GOOD.replace('"json-file"', '"splunk"').replace('"max-size"', options))
    assert seen.after == GOOD.replace('"max-size"', '"tag": "x", "max-size"')
    changes = desired.setting_changes(seen.config, seen.rack.options(DockerOptions))
    lines = [change.message for change in changes]
    assert f"{desired.CONFIG}: log-opts splunk-token is removed, json-file has no such option" in lines
    assert "hush" not in repr(changes)


def test_the_journal_as_log_takes_no_size() -> None:
    seen = view("logs: journald")
    assert seen.after == GOOD.replace('"json-file"', '"journald"').replace('"max-size": "50m", "max-file": "5"', "")
    lines = [change.message for change in desired.setting_changes(seen.config, seen.rack.options(DockerOptions))]
    assert f'{desired.CONFIG}: log-driver "json-file" -> "journald"' in lines
    assert f"{desired.CONFIG}: log-opts max-size is removed, journald has no such option" in lines
    again = view("logs: journald", config=seen.after, engine=engine(seen.after))
    assert not again.writes
    assert not view("logs: json-file", config=seen.after).after.count("journald")


def test_other_exec_options_stay() -> None:
    own = view(config=GOOD.replace('["native', '["isolation=x", "native.cgroupdriver=cgroupfs", "native')).after
    assert own == GOOD.replace('["native', '["isolation=x", "native')


@pytest.mark.parametrize(
    ("stat", "fault", "mode"),
    [
        ("644:root:root:regular file", False, "644"),
        ("640:root:root:regular file", False, "640"),
        ("600:root:root:regular empty file", False, "600"),
        ("666:root:root:regular file", True, "644"),
        ("755:root:root:regular file", True, "644"),
        ("600:ops:ops:regular file", True, "600"),
        ("640:root:docker:regular file", True, "640"),
        ("777:root:root:symbolic link", True, "644"),
    ],
)
def test_mode(stat: str, fault: bool, mode: str) -> None:
    assert (desired.mode_fault(stat) is not None, desired.mode_of(stat)) == (fault, mode)


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        (f"{A} max max", 107374182400),
        (f"{A} 107374182400 max", 107374182400),
        (f"{A} 137438953472 0", 107374182400),
        (f"{A} 1073741824 1073741824", 1073741824),
        (f"{A} 1073741824 0", None),
        (f"{A} 1073741824 -", None),
        (f"{containers.CGROUPS}/{CONTAINER_SLICE}/docker-4x7v0q9zk2m1abcd.scope max max", None),
        (f"{containers.CGROUPS}/docker/{'c' * 64} max 0", 107374182400),
    ],
)
def test_limits(line: str, limit: int | None) -> None:
    assert list(view(running=line + "\n").limits.values()) == ([] if limit is None else [limit])


def test_containers_outside_the_ceiling() -> None:
    inner = A.replace("/docker-", "/sparkrack-mine.slice/docker-")
    away = B.replace(CONTAINER_SLICE, "system.slice")
    (line,) = containers.outside_slice(view(running=f"{A} 1 0\n{inner} 1 0\n{away} 1 0\n").running)
    assert line.startswith(f"container {'b' * 12} is outside {CONTAINER_SLICE} and its ceiling (/system.slice/docker-b")


@pytest.mark.parametrize(
    ("users", "apart"),
    [
        ("root:0\nops:1000\n\ndocker:x:998:a,ops\n", None),
        ("ops:998\n\ndocker:x:998:\n", None),
        ("ops:1000\n\ndocker:x:998:opsx,xops\n", "membership"),
        ("ops:1000\n\n", "group docker"),
    ],
)
def test_the_user(users: str, apart: str | None) -> None:
    assert view(users=users).apart == apart


@pytest.mark.parametrize(
    ("known", "packages"),
    [
        ("docker-ce docker-ce-cli docker.io docker-cli", ["docker-ce", "docker-ce-cli"]),
        ("docker.io docker-cli docker-ce-cli", ["docker.io", "docker-cli"]),
        ("docker.io", ["docker.io"]),
        ("docker-cli", []),
    ],
)
def test_packages(known: str, packages: list[str]) -> None:
    assert view(engine="".join(f"candidate {name}\n" for name in known.split())).packages == packages


@pytest.mark.parametrize(
    ("docker", "changes", "act"),
    [
        ("", {"engine": engine(OLD)}, "restart"),
        ("", STOPPED, "start"),
        ("live_restore: true", {}, "reload"),
        ("", {}, None),
    ],
)
def test_a_unit_that_runs_is_in_the_way_of_a_start_and_a_restart_alone(
    docker: str, changes: dict[str, Any], act: str | None
) -> None:
    seen = view(docker, **changes, ranks="/sparkrack.slice/sparkrack-qwen.slice\n")
    assert seen.act == act
    if act not in ("start", "restart"):
        assert seen.unit_blockers == []
        return
    (line,) = seen.unit_blockers
    assert "qwen" in line
    assert f"docker must be {act}ed ({seen.reason})" in line
