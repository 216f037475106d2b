"""/file, /system/backup and /export: what a tool fetches before it changes anything."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.in_process_device import Bench
from tests.emulator.raw_client import attributes
from tests.emulator.test_tables import rows
from tests.emulator.test_wire_protocol import Connect


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def read(bench: Bench, name: str, chunk: int = 32768) -> str:
    """A file's text, piece by piece."""
    text = ""
    for _ in range(100):
        words = [f"=file={name}", f"=chunk-size={chunk}", f"=offset={len(text.encode())}"]
        (row,) = bench.ask("/file/read", *words).rows
        text += row["data"]
        if not row["data"]:
            return text
    raise AssertionError("a file that never ends")


def export(bench: Bench, *words: str, path: str = "") -> list[str]:
    """The lines of an export, without the comments at its head."""
    bench.ask(f"{path}/export", "=file=e", *words)
    return [line for line in read(bench, "e.rsc").splitlines() if not line.startswith("#")]


def test_files_are_added_changed_read_and_removed(bench: Bench) -> None:
    reply = bench.ask("/file/add", "=name=notes.txt", "=contents=Kühl und trocken")
    row = bench.one("/file")
    wanted = {"name": "notes.txt", "type": ".txt file", "size": "17", "contents": "Kühl und trocken"}
    assert row == row | wanted | {".id": reply.ret}
    assert row["last-modified"][:10] == f"{bench.device.clock.now():%Y-%m-%d}"
    bench.ask("/file/set", "=numbers=notes.txt", "=contents=abcdefg", "=name=other.txt")
    assert read(bench, "other.txt", 3) == "abcdefg"
    bench.ask("/file/add", "=name=flash", "=type=directory")
    assert {row["name"]: row["type"] for row in bench.rows("/file")} == {
        "flash": "directory",
        "other.txt": ".txt file",
    }
    bench.ask("/file/remove", "=numbers=flash,other.txt")
    assert bench.rows("/file") == []


def test_contents_stop_at_60_kib(bench: Bench) -> None:
    bench.ask("/file/add", "=name=small.txt", f"=contents={'x' * 61440}")
    bench.ask("/file/add", "=name=large.txt", f"=contents={'x' * 61441}")
    assert {row["name"]: "contents" in row for row in bench.rows("/file")} == {"small.txt": True, "large.txt": False}
    assert len(read(bench, "large.txt")) == 61441


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/file/read", "=file=none"], "no such item"),
        (["/file/read"], "missing =file="),
        (["/file/read", "=file=x", "=chunk-size=40000"], "value of chunk-size out of range (1..32768)"),
        (["/file/read", "=file=x", "=colour=red"], "unknown parameter colour"),
        (["/file/add", "=contents=x"], "missing =name="),
        (["/file/add", "=name=x"], "failure: already have file with such name"),
        (["/file/remove", "=numbers=none"], "no such item"),
        (["/system/backup/save", "=name=x", "=encryption=rot13"], "input does not match any value of encryption"),
        (["/system/backup/save", "=file=x"], "unknown parameter file"),
        (["/export", "=colour=red"], "unknown parameter colour"),
    ],
)
def test_refusals(bench: Bench, words: list[str], message: str) -> None:
    bench.ask("/file/add", "=name=x")
    with pytest.raises(TrapError) as raised:
        bench.ask(*words)
    assert raised.value.message == message


@pytest.mark.parametrize("name", ["../escape", "/etc/escape", "..", ".", "a/b/c", "ä %2F"])
def test_a_name_is_never_a_path_of_this_machine(bench: Bench, tmp_path: Path, name: str) -> None:
    bench.ask("/file/add", f"=name={name}", "=contents=x")
    assert [row["name"] for row in bench.rows("/file")] == [name]
    (file,) = (tmp_path / "state.files").iterdir()
    assert file.resolve().parent == (tmp_path / "state.files").resolve()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_files_are_outside_safe_mode_and_history(bench: Bench, tmp_path: Path) -> None:
    bench.ask("/safe-mode/take")
    bench.ask("/file/add", "=name=kept.txt", "=contents=x")
    bench.ask("/safe-mode/unroll")
    assert bench.rows("/system/history") == []
    assert [row["name"] for row in Bench(tmp_path).rows("/file")] == ["kept.txt"]


def test_a_backup_is_binary_and_holds_no_password(bench: Bench) -> None:
    bench.ask("/system/backup/save", "=name=before", "=password=swordfish")
    bench.ask("/system/backup/save", "=name=plain", "=dont-encrypt=yes")
    found = {row["name"]: row for row in bench.rows("/file")}
    assert {name: row["type"] for name, row in found.items()} == {"before.backup": "backup", "plain.backup": "backup"}
    assert not any("contents" in row for row in found.values())
    files = bench.device.files
    assert files.read("plain.backup")[:4] == b"\x88\xac\xa1\xb1" != files.read("before.backup")[:4]
    assert not any(secret in files.read(name) for name in found for secret in (b"swordfish", b"correct horse"))


def test_bytes_of_a_backup_come_over_the_wire_as_they_are(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/system/backup/save", "=name=b")
    (row,) = rows(client, "/file", "?name=b.backup", "=.proplist=size")
    client.send("/file/read", "=file=b.backup", "=offset=0", "=chunk-size=4")
    data = client._read_exactly(1 + 3 + 1 + 6 + 4 + 1)
    assert data == b"\x03!re\x0a=data=\x88\xac\xa1\xb1\x00"
    assert client.read() == ["!done"]
    assert int(row["size"]) > 4
    crs812.stop()
    assert [row["name"] for row in rows(connect(crs812.start()), "/file")] == ["b.backup"]
    crs812.stop()
    assert rows(connect(crs812.start("--factory")), "/file") == []


def test_an_export_has_what_differs_from_the_factory(bench: Bench) -> None:
    bench.ask("/interface/ethernet/set", "=.id=*4", "=speed=100G-baseCR2", "=auto-negotiation=no", "=comment=a b$c")
    bench.ask("/ip/service/set", "=numbers=telnet", "=disabled=yes")
    bench.ask("/system/ntp/client/set", "=enabled=yes", "=servers=10.77.0.1")
    bench.ask("/system/logging/action/set", "=numbers=remote", "=remote=10.77.0.1")
    lines = export(bench)
    wanted = [
        "/interface ethernet",
        'set [ find default-name=qsfp56-dd-1-1 ] auto-negotiation=no comment="a b\\$c" speed=100G-baseCR2',
        "/ip service",
        "set telnet disabled=yes",
        "/system ntp client",
        "set enabled=yes",
        "/system ntp client servers",
        "add address=10.77.0.1",
        "/system logging action",
        "set remote remote=10.77.0.1",
        "/ip address",
        "add address=192.168.88.1/24 interface=bridge",
    ]
    assert [line for line in wanted if line not in lines] == []
    for header, command in zip(wanted[::2], wanted[1::2], strict=True):
        assert lines.index(header) < lines.index(command)
    assert "/user" not in lines
    assert lines == export(bench), "only the comment with the time may differ between two exports"


def test_an_export_can_be_run_as_a_script(bench: Bench, tmp_path: Path) -> None:
    """The same text brings a new switch to the same state, row by row."""
    for words in (
        ["/interface/ethernet/set", "=.id=*5,*6", "=l2mtu=9500", "=mtu=9000", "=comment=two words"],
        ["/snmp/community/add", "=name=monitor", "=security=private", "=addresses=10.0.0.0/8"],
        ["/system/clock/set", "=time-zone-name=Europe/Berlin"],
        ["/system/script/add", "=name=s", '=source=:log info "a \\"b\\" $\n# end"', "=comment=ours"],
    ):
        bench.ask(*words)
    menus = ("/interface/ethernet", "/snmp/community", "/system/clock", "/system/script", "/ip/dns")
    source = "\n".join(line for path in menus for line in export(bench, path=path))
    other = tmp_path / "other"
    other.mkdir()
    fresh = Bench(other)
    fresh.ask("/system/script/add", "=name=import", f"=source={source}")
    fresh.ask("/system/script/run", "=number=import")
    fresh.ask("/system/script/remove", "=numbers=import")
    for path in menus:
        stored = [dict(row.values) for row in fresh.device.store.rows(path)]
        assert stored == [dict(row.values) for row in bench.device.store.rows(path)], path


def test_an_export_of_a_menu_and_a_verbose_one(bench: Bench) -> None:
    assert export(bench, path="/system/clock") == []
    assert export(bench, "=verbose=", path="/system/clock") == [
        "/system clock",
        "set time-zone-autodetect=yes time-zone-name=manual",
    ]


def test_no_secret_is_in_an_export(bench: Bench) -> None:
    secrets = ["=authentication-password=canary-one", "=encryption-password=canary-two"]
    bench.ask("/snmp/community/add", "=name=v3", *secrets)
    assert not any("canary" in line or "password" in line for line in export(bench))


def test_the_head_of_an_export_names_the_unit(crs812: Crs812Process, connect: Connect) -> None:
    client = connect(crs812)
    client.ask("/export", "=file=all", "=compact=")
    row = attributes(client.ask("/file/read", "=file=all.rsc")[0])
    head = row["data"].splitlines()[:5]
    assert head[0].startswith("# 20")
    assert head[0].endswith(" by RouterOS 7.24.6")
    assert head[3:] == ["# model = CRS812-8DS-2DQ-2DDQ", "# serial number = HK70AB12CD3"]
