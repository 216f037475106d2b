"""What the time role asks of a node, run by a real shell, and what the plan says of its answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops import host_facts
from core.ops.host_facts import HostReading
from roles.time import apply, desired, facts
from tests.unit.ops.shells import calls, run, stand_in, write
from tests.unit.roles.cases import OPERATIONS, node_in, rack_of, read

FROM_DHCP = (
    "systemd-timesyncd.service: uses 10.9.9.9 from DHCP before the declared servers; add to time.ntp in rack.yaml, or "
    "set `use-ntp: false` in the dhcp4-overrides of that interface's netplan file"
)
COMMANDS = host_facts._registered["time"].commands


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node)
    assert done.returncode == 0, done.stderr
    return done.stdout


def running(node: Path, unit: str) -> None:
    stand_in(node, "systemctl", f'[ "$*" = "is-active --quiet {unit}" ]')


def test_a_daemon_that_does_not_run_is_not_asked(tmp_path: Path) -> None:
    """timedatectl would start it."""
    stand_in(tmp_path, "timedatectl")
    stand_in(tmp_path, "chronyc")
    running(tmp_path, "none")
    assert asked(tmp_path, facts.LIVE) == ""
    assert not [call for call in calls(tmp_path) if not call.startswith("systemctl")]


def test_the_servers_of_timesyncd(tmp_path: Path) -> None:
    stand_in(tmp_path, "timedatectl", "printf 'LinkNTPServers=\\nSystemNTPServers=a b\\nFallbackNTPServers=c\\n'")
    running(tmp_path, desired.TIMESYNCD)
    lists = desired.timesyncd_lists(desired.live_answer(asked(tmp_path, facts.LIVE), desired.TIMESYNCD))
    assert lists == {"LinkNTPServers": [], "SystemNTPServers": ["a", "b"], "FallbackNTPServers": ["c"]}


def test_the_sources_of_chrony(tmp_path: Path) -> None:
    stand_in(tmp_path, "chronyc", "echo '^,*,10.77.0.1,2,6,377,23,0.000012,0.000014,0.000321'")
    running(tmp_path, desired.CHRONY)
    assert desired.chrony_sources(desired.live_answer(asked(tmp_path, facts.LIVE), desired.CHRONY)) == {"10.77.0.1"}


SYNCD, CHRONYD = "systemd-timesyncd.service 0\n", "chrony.service 0\n"
FALLBACK = "FallbackNTPServers=0.debian.pool.ntp.org 1.debian.pool.ntp.org\n"


@pytest.mark.parametrize(
    ("answer", "servers"),
    [
        pytest.param("", (), id="no daemon runs"),
        pytest.param(
            f"{SYNCD}LinkNTPServers=10.0.0.1\nSystemNTPServers=10.77.0.1 ntp.example.org\n{FALLBACK}",
            ("10.77.0.1", "ntp.example.org"),
            id="its own first",
        ),
        pytest.param(f"{SYNCD}LinkNTPServers=10.0.0.1\nSystemNTPServers=\n{FALLBACK}", ("10.0.0.1",), id="then DHCP"),
        pytest.param(
            f"{SYNCD}LinkNTPServers=fd00::1\nSystemNTPServers=\n{FALLBACK}",
            ("0.debian.pool.ntp.org", "1.debian.pool.ntp.org"),
            id="a list without a server that rack.yaml takes is passed over",
        ),
        pytest.param(
            f"{SYNCD}SystemNTPServers={' '.join(f'10.0.0.{at}' for at in (1, 1, 2, 3, 4, 5))}\n",
            ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"),
            id="once each, and four at most",
        ),
        pytest.param(
            f"{CHRONYD}#,*,PHC0,0,4,377,9,0,0,0\n^,*,ntp.ubuntu.com,2,6,377,23,0,0,0\n^,?,ntp.ubuntu.com,0,6,0,4,0,0,0\n"
            "^,-,ID#0000000002,0,6,0,4,0,0,0\n=,?,10.77.0.9,0,6,0,4,0,0,0\n",
            ("ntp.ubuntu.com",),
            id="of chrony no clock, no peer, and a pool once",
        ),
    ],
)
def test_the_servers_that_a_node_has_as_rack_yaml_writes_them(answer: str, servers: tuple[str, ...]) -> None:
    assert desired.servers_in_use(answer) == servers


def test_a_daemon_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    stand_in(tmp_path, "chronyc", "echo '506 Cannot talk to daemon'; exit 1")
    running(tmp_path, desired.CHRONY)
    with pytest.raises(ValueError, match="506 Cannot talk to daemon"):
        desired.live_answer(asked(tmp_path, facts.LIVE), desired.CHRONY)


def test_the_folders_that_chrony_reads(tmp_path: Path) -> None:
    assert asked(tmp_path, facts.SOURCE_FOLDERS) == ""
    write(tmp_path, "/etc/chrony/chrony.conf", "pool ntp.ubuntu.com\n#sourcedir /etc/chrony/sources.d\n")
    assert not desired.reads_sources(asked(tmp_path, facts.SOURCE_FOLDERS))
    write(tmp_path, "/etc/chrony/conf.d/x.conf", "sourcedir /etc/chrony/sources.d\n")
    assert desired.reads_sources(asked(tmp_path, facts.SOURCE_FOLDERS))


def test_the_time_zone(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert desired.zone_of(asked(tmp_path, facts.ZONE)) == "UTC"
    link = tmp_path / "etc/localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert desired.zone_of(asked(tmp_path, facts.ZONE)) == "Europe/Berlin"
    link.unlink()
    link.write_text("TZif2")
    assert desired.zone_of(asked(tmp_path, facts.ZONE)) is None


def test_settings_that_are_read_after_ours(tmp_path: Path) -> None:
    for path in ("/etc/systemd/timesyncd.conf.d/a.conf", "/run/systemd/timesyncd.conf.d/b.conf"):
        write(tmp_path, path, "[Time]\n#NTP=x\nNTP=y\nPollIntervalMinSec=32\n")
    assert [line.rpartition("/")[2] for line in asked(tmp_path, facts.SETTINGS).splitlines()] == [
        "a.conf:NTP=y",
        "b.conf:NTP=y",
    ]


def planned(case: str) -> list[str]:
    """What the plan says of a case."""
    printed = read(OPERATIONS / "time" / f"{case}.yaml")
    answers = {key: text.encode() if isinstance(text, str) else text for key, text in node_in("time", printed).items()}
    one = facts.TimeFacts(HostReading(answers, {}), rack_of(printed))
    return [
        event.message
        for operation in (apply.synchronize, apply.set_time_zone)
        for event in (*operation.changeset(one).warnings, *operation.changeset(one).events)
    ]


@pytest.mark.parametrize(
    ("case", "reported"),
    [
        ("already-right", []),
        ("zone-differs", ["time zone: Etc/UTC -> Europe/Berlin"]),
        ("disabled", ["enable systemd-timesyncd.service"]),
        ("failed", ["start systemd-timesyncd.service"]),
        ("written-but-not-taken-up", ["restart systemd-timesyncd.service: it has pool.ntp.org"]),
        ("chrony-not-reloaded", ["reload chrony.service: it does not have ntp.example.org"]),
        (
            "servers-from-dhcp",
            [FROM_DHCP],
        ),
    ],
)
def test_what_the_plan_says(case: str, reported: list[str]) -> None:
    assert planned(case) == reported
