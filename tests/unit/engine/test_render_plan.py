"""A plan on the screen: its summary, and hosts that are alike shown once, with nothing of any host lost."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterator, Sequence

import pytest
from rich.console import Console

from core.util.event import Action, Event, EventKind, value_change
from sparkrack.drift.findings import drift_of
from sparkrack.drift.render import show_drift
from sparkrack.engine.alike_hosts import NEW_FILE_LINES
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan
from sparkrack.engine.render_plan import line, show_plan
from tests.unit.drift.plans import machine, modified, plan, unreachable

NODES = ("spark1", "spark2", "spark3")
NUMBERED = [f"line number {number} of the file" for number in range(100)]
"""Their keys are equal, and their texts are not."""


def shown(made: Plan, *, full: bool = False, quiet: bool = False, width: int = 0) -> str:
    paper = io.StringIO()
    if width:
        console = Console(file=paper, highlight=False, markup=False, width=width, height=50, force_terminal=True)
        console.no_color = True
    else:
        console = Console(file=paper, highlight=False, markup=False, soft_wrap=True)
    show_plan(made, full=full, quiet=quiet, console=console)
    return paper.getvalue()


def new_file(path: str, lines: Sequence[str]) -> Event:
    return Event(EventKind.FILE, path=path, action=Action.CREATE, diff=tuple(f"+{text}" for text in lines))


def restart(unit: str, reason: str = "its file changes") -> Event:
    return Event(EventKind.RESTART, subject=unit, action=Action.RESTART, detail=reason)


def of_roles(name: str, **events: Sequence[Event]) -> HostPlan:
    steps = tuple(
        OperationPlan(role=role, title=f"Settle {role}", commands=1, events=tuple(map(Message.of, reported)))
        for role, reported in events.items()
    )
    return HostPlan(name=name, kind="node", state=HostState.CHANGES, operations=steps)


def numbered(name: str) -> HostPlan:
    """A node whose changes differ from those of others in its number."""
    number = name[-1]
    return of_roles(
        name,
        memory=[value_change(f"vm.setting_{at}", at, at + 1) for at in range(15)],
        docker=[restart("docker")],
        fabric=[
            new_file("/etc/netplan/60.yaml", ["network:", f"  address: 192.168.100.{number}/24", "  mtu: 9000"]),
            value_change("enp1s0f1np1", "no address", f"192.168.100.{number}/24"),
        ],
    )


def lines_of_hosts(text: str) -> dict[str, list[str]]:
    """Read a plan back: what is shown below the titles, for each host, in its order."""
    details = text.rpartition("\n\n")[2].splitlines()[:-1]
    read: dict[str, list[str]] = {}
    above: list[list[str]] = []
    for shown_line in details:
        depth = (len(shown_line) - len(shown_line.lstrip(" "))) // 2
        text = shown_line.strip()
        if not depth:
            if ": changes" in text:
                above = [text.partition(": changes")[0].split(", ")]
            continue
        label = re.match(r"((?:spark\d(?:, )?)+): ", text)
        # Content of a file is indented itself; it has no lines below it.
        depth = min(depth, 4)
        hosts = label[1].split(", ") if label else above[depth - 1]
        entry = text[label.end() :] if label else text
        above = [*above[:depth], hosts]
        for host in hosts:
            read.setdefault(host, []).append(entry.strip())
    return read


def expected_lines(host: HostPlan) -> Iterator[str]:
    role = None
    for step in host.operations:
        if step.role != role:
            yield step.role
        role = step.role
        yield step.title
        for event in step.events:
            yield line(event).plain
            yield from (text.strip() for text in event.diff)


def test_three_alike_nodes_are_shown_once_and_what_differs_names_its_node() -> None:
    one, three = (shown(plan(*map(numbered, names))) for names in (NODES[:1], NODES))
    # Of 27 lines 2 differ: the address in the file, and the one of the interface.
    assert len(three.splitlines()) == len(one.splitlines()) + 2 * 2
    assert "spark1, spark2, spark3: changes, alike but for 2 of 27 lines, which name their hosts" in three
    for number, name in enumerate(NODES, 1):
        assert f"        {name}: +  address: 192.168.100.{number}/24\n" in three
        assert f"      {name}: ~ enp1s0f1np1: no address -> 192.168.100.{number}/24\n" in three
    assert three.count("vm.setting_3: 3 -> 4") == 1


def test_nodes_that_have_little_in_common_are_shown_one_by_one() -> None:
    other = of_roles("spark2", rdma=[value_change("limit", 1, 2)])
    text = shown(plan(numbered("spark1"), other))
    assert "\nspark1: changes\n" in text
    assert "\nspark2: changes\n" in text


def random_plan(seed: int) -> Plan:
    chosen = random.Random(seed)  # noqa: S311 - chooses cases
    pool = {
        "memory": [value_change(f"vm.setting_{at}", at, 9) for at in range(4)],
        "docker": [
            restart("docker"),
            Event(EventKind.NOTE, action=Action.REBOOT, detail="a kernel is installed"),
            Event(EventKind.FILE, path="/etc/old.conf", action=Action.REMOVE, diff=("-a", "-b")),
            Event(EventKind.CHANGE, subject="unit tiny", action=Action.STOP),
        ],
        "fabric": [
            modified("/etc/hosts", "@@ -1 +1 @@", "-old", "+new 1", "+new 2"),
            new_file("/etc/new.conf", ["a", "b", "a", "b", "c 1"]),
            restart("systemd-networkd"),
        ],
    }

    def events_of(role: str, number: int) -> list[Event]:
        kept = [event for event in pool[role] if chosen.random() < 0.75]
        own = [
            value_change(f"setting_{chosen.randrange(2)}", 0, number),
            modified(f"/etc/node-{number}.conf", "-a", f"+{number}"),
        ]
        return [*kept, *(event for event in own if chosen.random() < 0.5)]

    return plan(
        *(
            of_roles(name, **{role: found for role in pool if (found := events_of(role, number))})
            for number, name in enumerate(NODES)
        )
    )


@pytest.mark.parametrize("seed", range(60))
def test_each_line_of_each_host_can_be_read_back_in_its_order(seed: int) -> None:
    """So no restart, removal, stop or pending reboot is lost, whatever the nodes have in common."""
    made = random_plan(seed)
    read = lines_of_hosts(shown(made))
    assert read == {host.name: list(expected_lines(host)) for host in made.hosts if host.operations}


def test_a_new_file_is_folded_after_twenty_lines_and_whole_with_full() -> None:
    made = plan(of_roles("spark1", watch=[new_file("/etc/rules.yml", NUMBERED)]))
    folded, whole = shown(made), shown(made, full=True)
    assert f"+{NUMBERED[NEW_FILE_LINES - 1]}\n        ... 80 more lines: sparkrack plan --full\n" in folded
    assert f"+{NUMBERED[NEW_FILE_LINES]}\n" not in folded
    assert all(f"+{text}\n" in whole for text in NUMBERED)
    assert "more lines" not in whole


def test_the_line_of_a_folded_file_counts_the_hidden_lines_that_differ() -> None:
    lines = {name: [*NUMBERED[:30], f"name: {name}"] for name in NODES}
    text = shown(plan(*(of_roles(name, watch=[new_file("/etc/rules.yml", lines[name])]) for name in NODES)))
    assert "... 11 more lines, 1 of them not the same on all hosts: sparkrack plan --full" in text


@pytest.mark.parametrize("action", [Action.MODIFY, Action.REMOVE])
def test_lines_of_a_file_that_is_changed_or_removed_are_never_folded(action: Action) -> None:
    diff = tuple(f"-{text}" for text in NUMBERED)
    text = shown(plan(of_roles("spark1", watch=[Event(EventKind.FILE, path="/etc/rules", action=action, diff=diff)])))
    assert all(f"-{line}\n" in text for line in NUMBERED)


def test_full_shows_each_host_by_itself() -> None:
    text = shown(plan(*map(numbered, NODES)), full=True)
    assert [text.count(f"\n{name}: changes\n") for name in NODES] == [1, 1, 1]
    assert text.count("      ~ vm.setting_3: 3 -> 4\n") == 3


def test_the_summary_names_what_is_disturbed_and_on_which_nodes() -> None:
    many = [value_change(f"vm.setting_{at}", at, at + 1) for at in range(20)]
    pending = Event(EventKind.NOTE, action=Action.REBOOT, detail="the old module is loaded")
    stopped = [Event(EventKind.CHANGE, subject=f"unit{at}", action=Action.STOP) for at in range(5)]
    effects = [
        Event(EventKind.EFFECT, subject="cage 1", detail="restarts cage 1 (spark1)"),
        Event(EventKind.EFFECT, subject="users", detail="disturbs nothing"),
    ]
    first = of_roles("spark1", memory=[*many, restart("ssh.service"), restart("docker")], driver=stopped)
    second = of_roles("spark2", memory=[*many, restart("docker"), pending], driver=[*stopped, value_change("a", 1, 2)])
    switch = machine("crs812", *(("switch", effect) for effect in effects), kind="switch")
    summary = shown(plan(first, second, switch)).partition("\n\n")[0]
    after = "reboots: spark2 (by sparkrack reboot, not by this run)"
    reboot = "reboot required: the old module is loaded (spark2)"
    assert summary.splitlines() == [
        "spark1, spark2: 27 changes each",
        "  memory: 21 to 22 changes; restart ssh.service (spark1); restart docker; " + reboot,
        "  driver: 5 to 6 changes; stop unit0, unit1, unit2 and 2 more",
        "crs812: in sync, 0 changes",
        "  switch: restarts cage 1 (spark1)",
        f"{after}; restarts: ssh.service (spark1), docker (spark1, spark2); crs812: restarts cage 1 (spark1)",
        "3 hosts, 54 changes, 0 unknown",
    ]


def test_the_summary_says_what_is_away_during_the_run() -> None:
    many = [value_change(f"vm.setting_{at}", at, at + 1) for at in range(20)]
    busy = restart("docker", "its settings change, which ends 3 running containers")
    started = Event(EventKind.RESTART, subject="chrony", action=Action.START)
    text = shown(plan(of_roles("spark1", memory=[*many, started]), of_roles("spark2", memory=[*many])))
    assert "\nreboots: none; restarts: none\n2 hosts" in text
    text = shown(plan(of_roles("spark1", docker=[*many, busy]), of_roles("spark2", docker=[*many, restart("docker")])))
    assert "\nreboots: none; restarts: docker (spark1: ends 3 running containers; spark2)\n2 hosts" in text
    text = shown(plan(of_roles("spark1", memory=many), unreachable("spark2")))
    assert "\nreboots: none; restarts: none; unknown: spark2\n2 hosts" in text


def test_the_summary_names_everything_that_is_restarted() -> None:
    units = [f"unit{number}.service" for number in range(12)]
    text = shown(plan(of_roles("spark1", memory=[*map(restart, units)], docker=[restart("docker")] * 10)))
    assert f"\n  memory: 12 changes; restart {', '.join(units)}\n" in text


def test_a_host_that_is_refused_or_unreachable_is_not_folded_into_those_that_change() -> None:
    reason = Event(EventKind.REFUSED, detail="another swap file is used")
    alike = numbered("spark3")
    (first, *rest) = alike.operations
    first = first.model_copy(update={"events": (*first.events, Message.of(reason))})
    refused = alike.model_copy(update={"state": HostState.REFUSED, "operations": (first, *rest)})
    text = shown(plan(numbered("spark1"), refused, numbered("spark2"), unreachable("spark4"), unreachable("spark5")))
    summary, _, details = text.partition("\n\n")
    for part in (summary, details):
        assert "refused: another swap file is used" in part
        assert "spark4: unreachable: no route to host" in part
        assert "spark5: unreachable: no route to host" in part
    assert "spark1, spark2: changes" in details
    assert "spark3: refused" in details
    assert text.splitlines()[-1] == "5 hosts, 54 changes, 3 unknown"


def test_a_plan_of_a_few_lines_has_no_summary() -> None:
    text = shown(plan(of_roles("spark1", memory=[value_change("vm.min_free_kbytes", 1, 2)])))
    assert text == (
        "~ changes\nspark1: changes\n  memory\n    Settle memory\n      ~ vm.min_free_kbytes: 1 -> 2\n"
        "1 host, 1 change, 0 unknown\n"
    )


def test_the_legend_has_the_marks_that_occur_and_no_other() -> None:
    def legend(*events: Event) -> str:
        return shown(plan(of_roles("spark1", memory=events))).splitlines()[0]

    assert legend(restart("docker")) == "! starts, restarts, reloads, stops"
    assert legend(modified("/etc/hosts", "-a"), value_change("a", 1, 2)) == "~ changes  - removes"
    assert legend(new_file("/etc/a", ["a"])) == "+ adds"
    assert legend(Event(EventKind.EFFECT, subject="cage 1", detail="restarts cage 1")) == "> disturbs"


@pytest.mark.parametrize("width", [60, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    made = plan(*map(numbered, NODES), machine("crs812", ("switch", restart("x" * 20)), kind="switch"))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(made, width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert any("vm.setting_14:" in line for line in lines)


def test_quiet_has_problems_and_the_last_line_only() -> None:
    broken = machine("spark2", ("fabric", EventKind.BROKEN, "enp1s0f1np1 has no carrier"))
    assert shown(plan(numbered("spark1"), broken), quiet=True) == (
        "spark2: does not work: enp1s0f1np1 has no carrier\n2 hosts, 18 changes, 0 unknown\n"
    )


def test_drift_of_alike_nodes_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_drift(drift_of(plan(*map(numbered, NODES))))
    text = capsys.readouterr().out
    assert text.count("vm.setting_3: 3 -> 4") == 1
    assert "  spark1, spark2, spark3\n" in text
    assert "    spark2: fabric: enp1s0f1np1: no address -> 192.168.100.2/24\n" in text
