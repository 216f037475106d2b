"""/system/scheduler: rows that really run, when they say, as whom they say."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.in_process_device import Bench
from tests.emulator.test_tables import one, rows
from tests.emulator.test_wire_protocol import Connect
from tests.emulator.wait import until

SCHEDULER = "/system/scheduler"
NAME = "/system/identity/set name="


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def add(bench: Bench, name: str = "job", event: str = f"{NAME}fired", *words: str) -> None:
    bench.ask(f"{SCHEDULER}/add", f"=name={name}", f"=on-event={event}", *words)


def identity(bench: Bench) -> str:
    return bench.one("/system/identity")["name"]


def test_the_first_run_is_one_interval_after_the_row_was_added(bench: Bench) -> None:
    add(bench, "job", ":log info tick", "=interval=5m")
    row = bench.one(SCHEDULER)
    due = bench.device.clock.now() + timedelta(minutes=5)
    assert row["next-run"] in {f"{due - timedelta(seconds=late):%Y-%m-%d %H:%M:%S}" for late in (0, 1)}
    assert (row["run-count"], row["owner"], row["interval"]) == ("0", "operator", "5m")
    bench.pass_time(299)
    assert bench.log() == []
    bench.pass_time(2)
    assert bench.log() == ["tick"]
    bench.pass_time(1200)
    assert (bench.log(), bench.one(SCHEDULER)["run-count"]) == (["tick"] * 5, "5")


def test_a_row_without_interval_runs_once_at_its_start(bench: Bench) -> None:
    start = bench.device.clock.now() + timedelta(hours=30)
    add(bench, "job", f"{NAME}once", f"=start-date={start:%Y-%m-%d}", f"=start-time={start:%H:%M:%S}")
    bench.pass_time(30 * 3600 - 60)
    assert identity(bench) == "MikroTik"
    bench.pass_time(120)
    assert identity(bench) == "once"
    row = bench.one(SCHEDULER)
    assert (row["run-count"], "next-run" in row) == ("1", False)
    add(bench, "past", f"{NAME}past", "=start-date=2020-01-01", "=start-time=00:00:00")
    bench.pass_time(86400)
    assert identity(bench) == "once"


def test_removed_and_disabled_rows_do_not_run(bench: Bench) -> None:
    add(bench, "one", f"{NAME}one", "=interval=10s")
    add(bench, "two", f"{NAME}two", "=interval=10s")
    bench.pass_time(5)
    bench.ask(f"{SCHEDULER}/remove", "=numbers=one")
    bench.ask(f"{SCHEDULER}/disable", "=numbers=two")
    assert "next-run" not in bench.one(SCHEDULER)
    bench.pass_time(60)
    assert identity(bench) == "MikroTik"
    bench.ask(f"{SCHEDULER}/enable", "=numbers=two")
    bench.pass_time(10)
    assert identity(bench) == "two"


def test_a_changed_interval_counts_from_the_start(bench: Bench) -> None:
    add(bench, "job", ":log info tick", "=interval=1h")
    bench.pass_time(10)
    bench.ask(f"{SCHEDULER}/set", "=numbers=job", "=interval=20s")
    bench.pass_time(11)
    assert bench.log() == ["tick"]


def test_startup_rows_run_shortly_after_the_start(bench: Bench, tmp_path: Path) -> None:
    add(bench, "job", f"{NAME}up", "=start-time=startup")
    bench.pass_time(1)
    again = Bench(tmp_path)
    assert identity(again) == "MikroTik"
    again.pass_time(4)
    assert identity(again) == "up"


def test_the_schedule_goes_on_after_a_restart(bench: Bench, tmp_path: Path) -> None:
    add(bench, "job", f"{NAME}later", "=interval=60s")
    again = Bench(tmp_path)
    assert again.one(SCHEDULER)["run-count"] == "0"
    again.pass_time(58)
    assert identity(again) == "MikroTik"
    again.pass_time(2)
    assert identity(again) == "later"


def test_a_job_may_remove_itself(bench: Bench) -> None:
    add(bench, "dead man", f'{NAME}undone; {SCHEDULER} remove [find where name="dead man"]', "=interval=30s")
    bench.pass_time(31)
    assert (identity(bench), bench.rows(SCHEDULER)) == ("undone", [])
    bench.pass_time(300)
    assert [row["action"] for row in bench.rows("/system/history")][:2] == [
        "system scheduler removed",
        "system identity changed",
    ]


def test_it_acts_while_a_session_holds_safe_mode(bench: Bench) -> None:
    add(bench, "job", f"{NAME}fired", "=interval=30s")
    bench.ask("/safe-mode/take")
    bench.pass_time(31)
    assert identity(bench) == "fired"
    newest = bench.rows("/system/history")[0]
    assert (newest["action"], newest["by"]) == ("system identity changed", "scheduler:job")
    bench.ask("/safe-mode/unroll")
    assert identity(bench) == "MikroTik", "what any session did under safe mode is taken back"


def test_waits_of_a_job_hold_nothing_up(bench: Bench) -> None:
    add(bench, "slow", f":delay 1m; {NAME}slow", "=interval=10s")
    add(bench, "fast", ":log info tick", "=interval=10s")
    bench.pass_time(35)
    assert (bench.log(), identity(bench)) == (["tick"] * 3, "MikroTik")
    bench.pass_time(40)
    assert identity(bench) == "slow"


def test_a_failing_job_is_in_the_log_and_ends(bench: Bench) -> None:
    add(bench, "bad", f"/interface/ethernet/set none mtu=1500; {NAME}after", "=interval=10s")
    bench.pass_time(11)
    assert identity(bench) == "MikroTik"
    assert bench.log("error") == [
        "executing script from scheduler (bad) failed, please check it manually",
        "(scheduler:bad) no such item (/interface/ethernet/set; line 1)",
    ]


def test_policies_and_owner_bound_a_job(bench: Bench) -> None:
    """MikroTik's manual, 'Scripting', 'Script permissions': the wording of the log is from there."""
    add(bench, "weak", f"{NAME}weak", "=interval=10s", "=policy=read")
    bench.pass_time(11)
    assert bench.log("debug") == ["(scheduler:weak) not enough permissions (9) (/system/identity/set; line 1)"]
    bench.ask(f"{SCHEDULER}/remove", "=numbers=weak")
    bench.ask("/user/group/add", "=name=limited", "=policy=read,write,api")
    bench.ask("/user/add", "=name=small", "=group=limited", "=password=x")
    words = [
        f"{SCHEDULER}/add",
        "=name=greedy",
        f"=on-event={NAME}greedy",
        "=interval=10s",
        "=policy=read,write,policy",
    ]
    bench.ask(*words, client=bench.session(2, "small", "limited"))
    bench.pass_time(11)
    assert bench.log("debug")[-1] == "(scheduler:greedy) not enough permissions (9)"
    bench.ask(f"{SCHEDULER}/set", "=numbers=greedy", "=policy=read,write")
    bench.pass_time(11)
    assert identity(bench) == "greedy"
    bench.ask("/user/remove", "=numbers=small")
    bench.ask("/system/identity/set", "=name=quiet")
    bench.pass_time(60)
    assert identity(bench) == "quiet", "a job without its owner may do nothing"


def test_an_event_may_be_the_name_of_a_script(bench: Bench) -> None:
    bench.ask("/system/script/add", "=name=bare", "=policy=", f"=source={NAME}named")
    add(bench, "direct", "bare", "=interval=10s", "=policy=read,write")
    bench.pass_time(11)
    assert bench.log("error") == [
        "executing script bare from scheduler (direct) failed, please check it manually",
        "not enough permissions (9) (/system/identity/set; line 1)",
    ]
    bench.ask(f"{SCHEDULER}/set", "=numbers=direct", "=on-event=/system script run bare")
    bench.pass_time(11)
    assert identity(bench) == "named"
    assert bench.rows("/system/history")[0]["by"] == "scheduler:direct/script:bare"


def test_setting_the_clock_moves_the_schedule(bench: Bench) -> None:
    add(bench, "job", f"{NAME}fired", "=start-date=2030-01-01", "=start-time=12:00:00")
    bench.ask("/system/clock/set", "=date=2030-01-01", "=time=11:59:00")
    bench.pass_time(50)
    assert identity(bench) == "MikroTik"
    bench.pass_time(15)
    assert identity(bench) == "fired"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["=interval=soon"], "invalid value for argument interval"),
        (["=start-time=25:00:00"], "invalid value for argument start-time"),
        (["=start-date=2026-13-01"], "invalid value for argument start-date"),
        (["=policy=everything"], "input does not match any value of policy"),
        (["=owner=admin"], "unknown parameter owner"),
        (["=next-run=now"], "unknown parameter next-run"),
    ],
)
def test_refusals(bench: Bench, words: list[str], message: str) -> None:
    with pytest.raises(TrapError) as raised:
        add(bench, "job", "", *words)
    assert raised.value.message == message
    assert bench.rows(SCHEDULER) == []


def test_days_of_the_week_from_7_24_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, version="7.24.1 (stable)")
    bench.ask("/system/clock/set", "=date=2030-01-07", "=time=10:00:00")  # a Monday
    add(bench, "job", ":log info tick", "=interval=1d", "=days=wed,tue")
    assert bench.one(SCHEDULER)["days"] == "tue,wed"
    bench.pass_time(7 * 86400 + 60)
    assert bench.one(SCHEDULER)["run-count"] == "2"


def test_dates_and_times_are_normalised(bench: Bench) -> None:
    add(bench, "job", "", "=start-date=jan/02/2030", "=start-time=07:30", "=interval=90")
    row = bench.one(SCHEDULER)
    assert (row["start-date"], row["start-time"], row["interval"]) == ("2030-01-02", "07:30:00", "1m30s")


def test_a_rollback_timer_on_a_real_switch(crs812: Crs812Process, connect: Connect) -> None:
    """Over the wire, in real time, across a restart of the switch."""
    client = connect(crs812)
    event = f"{NAME}undone; {SCHEDULER}/remove dead"
    client.ask(f"{SCHEDULER}/add", "=name=dead", "=interval=1s", f"=on-event={event}")
    crs812.stop()
    client = connect(crs812.start())
    until(lambda: one(client, "/system/identity")["name"] == "undone")
    assert rows(client, SCHEDULER) == []
    assert "script:" not in str(rows(client, "/log", "?topics=script,error"))


def test_an_interval_is_as_long_in_the_night_when_summer_ends(bench: Bench) -> None:
    bench.ask("/system/clock/set", "=time-zone-name=Europe/Berlin")
    bench.ask("/system/clock/set", "=date=2030-10-27", "=time=02:45:00")  # the first of two such moments
    add(bench, "job", f"{NAME}fired", "=interval=2h", "=start-date=2030-10-27", "=start-time=00:30:00")
    bench.pass_time(104 * 60)
    assert identity(bench) == "MikroTik"
    bench.pass_time(120)
    assert (identity(bench), bench.one("/system/clock")["time"][:5]) == ("fired", "03:31")


DEFAULT_START = ("=start-date=1970-01-01", "=start-time=00:00:00")
TEN_YEARS = 10 * 365 * 86400


def runs(bench: Bench) -> int:
    return int(bench.one(SCHEDULER)["run-count"])


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_startup_row_with_an_interval_runs_one_interval_after_it_was_added(bench: Bench, zone: str) -> None:
    bench.ask("/system/clock/set", f"=time-zone-name={zone}")
    add(bench, "job", ":log info tick", "=start-time=startup", "=interval=10s")
    bench.pass_time(9.5)
    assert runs(bench) == 0
    bench.pass_time(1)
    assert runs(bench) == 1
    bench.pass_time(30)
    assert runs(bench) == 4


def test_after_a_restart_it_runs_one_interval_after_the_start(bench: Bench, tmp_path: Path) -> None:
    add(bench, "job", ":log info tick", "=start-time=startup", "=interval=10s")
    bench.pass_time(7)
    again = Bench(tmp_path)
    again.pass_time(9.5)
    assert runs(again) == 0
    again.pass_time(1)
    assert runs(again) == 1


def test_a_unit_may_run_it_until_the_restart_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, schedules="not-after-restart")
    add(bench, "job", ":log info tick", "=start-time=startup", "=interval=10s")
    bench.pass_time(11)
    assert runs(bench) == 1
    again = Bench(tmp_path, schedules="not-after-restart")
    again.pass_time(3600)
    assert (runs(again), "next-run" in again.one(SCHEDULER)) == (0, False)


@pytest.mark.parametrize(
    ("version", "count"),
    [("7.23.7", 3), ("7.24", 0), ("7.24.1", 0), ("7.24.4", 0), ("7.24.5", 3), ("7.24.6", 3), ("7.25.1", 3)],
)
def test_some_releases_do_not_run_the_default_start(tmp_path: Path, version: str, count: int) -> None:
    bench = Bench(tmp_path, version=f"{version} (stable)")
    add(bench, "default", "", "=interval=10s", *DEFAULT_START)
    bench.pass_time(30)
    row = bench.one(SCHEDULER)
    assert (int(row["run-count"]), "next-run" in row) == (count, count > 0)
    bench.ask(f"{SCHEDULER}/remove", "=numbers=default")
    for name, start in (("without", ()), ("startup", ("=start-time=startup",)), ("other", ("=start-date=1970-01-02",))):
        add(bench, name, "", "=interval=10s", *start)
        bench.pass_time(30)
        assert runs(bench) >= 2, f"{name} on {version}"
        bench.ask(f"{SCHEDULER}/remove", f"=numbers={name}")


def test_a_unit_may_run_no_schedule_at_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, schedules="never")
    add(bench, "job", "", "=start-time=startup", "=interval=10s")
    bench.pass_time(3600)
    assert (runs(bench), "next-run" in bench.one(SCHEDULER)) == (0, False)


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("moved", [-TEN_YEARS, TEN_YEARS])
def test_a_startup_row_does_not_notice_that_the_clock_moves(tmp_path: Path, keeps: bool, moved: int) -> None:
    bench = Bench(tmp_path, keeps_next_run=keeps, ntp_moves=moved)
    add(bench, "job", "", "=start-time=startup", "=interval=10s")
    bench.pass_time(5)
    before = bench.device.clock.now()
    bench.ask("/system/ntp/client/set", "=enabled=yes", "=servers=10.0.0.1")
    assert abs((bench.device.clock.now() - before).days) == 3650
    bench.pass_time(5.5)
    assert runs(bench) == 1
    bench.pass_time(20)
    assert runs(bench) == 3


@pytest.mark.parametrize(("keeps", "moved", "count"), [(False, -TEN_YEARS, 3), (True, -TEN_YEARS, 0), (True, 15, 3)])
def test_a_row_with_a_date_may_wait_for_the_clock_that_was_set_back(
    tmp_path: Path, keeps: bool, moved: int, count: int
) -> None:
    bench = Bench(tmp_path, keeps_next_run=keeps, ntp_moves=moved)
    add(bench, "job", "", "=start-date=2001-01-01", "=start-time=00:00:00", "=interval=10s")
    bench.ask("/system/ntp/client/set", "=enabled=yes", "=servers=10.0.0.1")
    bench.pass_time(30)
    assert runs(bench) in (count, count + 1)


def test_the_first_run_of_a_startup_row_may_come_at_once_for_tests(tmp_path: Path) -> None:
    bench = Bench(tmp_path, first_run=0)
    add(bench, "job", "", "=start-time=startup", "=interval=10s")
    bench.pass_time(0)
    assert runs(bench) == 1
    bench.pass_time(9)
    assert runs(bench) == 1
    bench.pass_time(2)
    assert runs(bench) == 2
