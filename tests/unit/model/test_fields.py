"""Each kind of value of rack.yaml: the last one that is taken, the first one that is not, and the message about it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from core.model import fields
from core.model.errors import (
    ConfigError,
    ConfigProblem,
    RuleViolation,
    counted,
    format_path,
    printable,
    reason,
    truncate,
)
from core.model.models import HubName

NAME = "a name is 1 to 63 letters, digits, '-', '_' or '.', and begins with a letter or digit"
USER = "write 1 to 32 lower-case letters, digits, '-' or '_' that begin with a letter or '_', like ops"
HOST = "write 1 to 63 letters, digits and '-', a letter or digit first and last, like spark1 or spark1.example.org"
PIN = "name a version, like scitrera/dgx-spark-sglang:0.5.12, or a digest (@sha256:...)"
DIGEST = "@sha256:" + "a" * 64
WHOLE = "an amount of memory; write a whole number of M or G, like"
A = "a" * 63


@pytest.mark.parametrize(
    ("kind", "value", "answer"),
    [
        (fields.Name, A, ""),
        (fields.Name, "a" * 64, f"{'a' * 57}... cannot be a name; {NAME}"),
        (fields.UserName, "_" + "a" * 31, ""),
        (fields.UserName, "a" * 33, f"{'a' * 33} cannot be a user name; {USER}"),
        (fields.UserName, 7, f"7 cannot be a user name; {USER}"),
        (fields.UserName, 7.5, f"7.5 cannot be a user name; {USER}"),
        (fields.UserName, True, f"True cannot be a user name; {USER}"),
        (fields.HostName, A, ""),
        (fields.HostName, f"{'a' * 31}.{'b' * 31}", ""),
        (
            fields.HostName,
            f"{'a' * 32}.{'b' * 31}",
            f"{'a' * 32}.{'b' * 24}... cannot be the name of a machine; {HOST}",
        ),
        (fields.HostName, "a-", f"a- cannot be the name of a machine; {HOST}"),
        (fields.HostName, "a.1", "a.1 is read as an IPv4 address by programs; write a name like spark1"),
        (fields.HostName, "0x7f", "0x7f is read as an IPv4 address by programs; write a name like spark1"),
        (fields.HostName, "LocalHost", "LocalHost is a loopback name; write another name, like spark1"),
        (fields.HostName, "a.localhost", "a.localhost is a loopback name; write another name, like spark1"),
        (fields.HostName, "localhost.x", "localhost.x is a loopback name; write another name, like spark1"),
        (fields.HostName, "ip6-allnodes", "ip6-allnodes is a loopback name; write another name, like spark1"),
        *(
            (fields.HostName, name, f"{name} is a group of pyinfra's inventory; write another name, like spark1")
            for name in ("all", "Inventory", "nodes", "switches")
        ),
        (fields.Model, A, ""),
        (
            fields.Model,
            "CRS/1",
            "CRS/1 cannot be a model; write what /system/routerboard prints as model, like CRS812-8DS-2DQ-2DDQ",
        ),
        (fields.Serial, "A/_-9", ""),
        (fields.Serial, "A 9", "A 9 cannot be a serial number; write letters and digits, like HXXXXXXXXXX"),
        (fields.RouterOsRelease, "7.123.456", ""),
        (fields.RouterOsRelease, "7.1234", "7.1234 is not a release of RouterOS; write its number, like 7.24.6"),
        (fields.DriverVersion, "580", ""),
        (
            fields.DriverVersion,
            "58",
            (
                "58 is not a version of the driver; write its major version, of at least three digits, and as much of "
                "the rest as is to be held, like 580.159"
            ),
        ),
        (fields.Kernel, "6" + "1" * 62, ""),
        (
            fields.Kernel,
            "6.17-",
            "6.17- is not a kernel as packages name it; write what uname -r prints, like 6.17.0-1021-nvidia",
        ),
        (fields.Version, "0" * 63, ""),
        (fields.Version, "beta", "beta is not a version; write one as the machine shows it, like 0104"),
        (fields.End, "spark2/1", ""),
        (
            fields.End,
            "spark2/",
            (
                "spark2/ is not the end of a cable; write a leg like crs812/qsfp56-dd-1-1, or a port of a node "
                "like spark2/1"
            ),
        ),
        (fields.Address, "1.0.0.0", ""),
        (fields.Address, IPv4Address("1.0.0.0"), ""),
        (fields.Address, 7, "7 is not an IPv4 address; write one like 10.77.0.11"),
        (fields.Address, "0.1.2.3", "0.1.2.3 is not the address of one machine; write one like 10.77.0.11"),
        (fields.Address, "224.0.0.1", "224.0.0.1 is not the address of one machine; write one like 10.77.0.11"),
        (fields.Address, "240.0.0.1", "240.0.0.1 is not the address of one machine; write one like 10.77.0.11"),
        (
            fields.Address,
            "169.254.1.1",
            "169.254.1.1 is link-local, which no machine keeps; write the address it is given, like 10.77.0.11",
        ),
        (fields.Subnet, "10.0.0.0/8", ""),
        (fields.Subnet, "10.0.0.0/30", ""),
        (fields.Subnet, IPv4Network("10.0.0.0/31"), ""),
        (
            fields.Subnet,
            "10.0.0.0/31",
            "10.0.0.0/31 has an unfit size; use a prefix length from /8 to /30, like 192.168.100.0/24",
        ),
        (
            fields.Subnet,
            "10.0.0.0/7",
            "10.0.0.0/7 has an unfit size; use a prefix length from /8 to /30, like 192.168.100.0/24",
        ),
        (fields.Pool, "10.0.0.0/24", ""),
        (
            fields.Pool,
            "10.0.0.0/25",
            "10.0.0.0/25 has an unfit size; use a prefix length from /8 to /24, like 10.100.0.0/20",
        ),
        (fields.Management, "10.0.0.7/32", ""),
        (fields.Management, "127.0.0.1/32", ""),
        (
            fields.Pool,
            "127.0.0.0/24",
            "127.0.0.0/24 cannot be used between machines; write a private network like 10.100.0.0/20",
        ),
        (
            fields.Pool,
            "0.0.0.0/8",
            "0.0.0.0/8 cannot be used between machines; write a private network like 10.100.0.0/20",
        ),
        (
            fields.Pool,
            "224.0.0.0/24",
            "224.0.0.0/24 cannot be used between machines; write a private network like 10.100.0.0/20",
        ),
        (
            fields.Pool,
            "240.0.0.0/24",
            "240.0.0.0/24 cannot be used between machines; write a private network like 10.100.0.0/20",
        ),
        (fields.Pool, "10.1.0.0/8", "10.1.0.0/8 is an address inside a network; write the network itself, 10.0.0.0/8"),
        (fields.Pool, "10.0.0.0/99", "10.0.0.0/99 is not an IPv4 network; write one like 10.100.0.0/20"),
        (fields.Pool, "10.0.0.0", "10.0.0.0 is not an IPv4 network; write one like 10.100.0.0/20"),
        (fields.Pool, 7, "7 is not an IPv4 network; write one like 10.100.0.0/20"),
        (
            fields.Subnet,
            "169.254.0.0/24",
            (
                "169.254.0.0/24 is link-local, where no node can determine which half of a port an address is behind; "
                "write a private network like 192.168.100.0/24"
            ),
        ),
        (fields.Syslog, "head", ""),
        (fields.Syslog, "10.77.0.1", ""),
        (
            fields.Syslog,
            "tail",
            "tail is not the address of one machine; write head for the first node, or an address like 10.77.0.1",
        ),
        (fields.Fingerprint, "a" * 64, ""),
        (
            fields.Fingerprint,
            "a" * 63,
            f"{'a' * 57}... is not the SHA-256 fingerprint of a certificate; write its 64 hex digits, colons allowed",
        ),
        (fields.MemorySize, "1024M", ""),
        (fields.MemorySize, "1G", ""),
        (fields.MemorySize, "1023M", "1023M does not fit a GB10 node; write 1G to 128G"),
        (fields.MemorySize, "128G", ""),
        (fields.MemorySize, "131073M", "131073M does not fit a GB10 node; write 1G to 128G"),
        (fields.MemorySize, "8", f"8 is not {WHOLE} 100G"),
        (fields.MemorySize, 8, f"8 is not {WHOLE} 100G"),
        (fields.MemorySize, "0G", f"0G is not {WHOLE} 100G"),
        (fields.DiskSize, "512M", ""),
        (fields.DiskSize, "4096G", ""),
        (fields.DiskSize, "511M", "511M does not fit the disk of a GB10 node; write 512M to 4096G"),
        (fields.DiskSize, "4097G", "4097G does not fit the disk of a GB10 node; write 512M to 4096G"),
        (fields.DiskSize, "x", "x is not an amount of disk; write a whole number of M or G, like 10G"),
        (fields.LogSize, "1M", ""),
        (fields.LogSize, "10G", ""),
        (fields.LogSize, "10241M", "10241M is not a fit size for a log file; write 1M to 10G"),
        (fields.LogSize, "x", "x is not the size of a log file; write a whole number of M or G, like 50M"),
        (fields.Floor, False, ""),
        (fields.Floor, "256M", ""),
        (fields.Floor, "64G", ""),
        (fields.Floor, "255M", "255M is not a fit floor for a GB10 node; write 256M to 64G"),
        (fields.Floor, "65G", "65G is not a fit floor for a GB10 node; write 256M to 64G"),
        (fields.Floor, 0, f"0 is not {WHOLE} 3G"),
        (fields.Duration, "24h", ""),
        (fields.Duration, "1440m", ""),
        (fields.Duration, "86400s", ""),
        (fields.Duration, "86401s", "86401s is too long; write at most 24h"),
        (fields.Duration, "1441m", "1441m is too long; write at most 24h"),
        (fields.Duration, "0s", "0s is not a duration; write a whole number of s, m or h, like 30s"),
        (fields.Duration, 30, "30 is not a duration; write a whole number of s, m or h, like 30s"),
        (fields.Image, "a" * (512 - len(DIGEST)) + DIGEST, ""),
        (fields.Image, "a" * (513 - len(DIGEST)) + DIGEST, f"{'a' * 57}... is not a container image; {PIN}"),
        (fields.Image, "a:1", ""),
        (fields.Image, "a", f"a is not pinned; {PIN}"),
        (fields.Image, "a:nightly-latest", f"a:nightly-latest is not pinned, the tag moves; {PIN}"),
        (HubName, "0/0", ""),
        (HubName, f"{'a' * 96}/{'b' * 96}", ""),
        *(
            (
                HubName,
                name,
                (
                    "is not the name of a model on the hub; write its owner and its name, like "
                    "Qwen/Qwen3-235B-A22B-GPTQ-Int4"
                ),
            )
            for name in (f"{'a' * 97}/b", f"a/{'b' * 97}", "a", "a/-b", "_a/b")
        ),
        (fields.Environment, "_" + "A" * 127, ""),
        (
            fields.Environment,
            "A" * 129,
            "is not the name of an environment variable; write letters, digits and '_', like CRS812_PASSWORD",
        ),
        (fields.FilePath, " x", ""),
        (fields.FilePath, Path("x"), ""),
        (fields.FilePath, "  ", "   is not the name of a file; write a path"),
        (fields.FilePath, "a\x1fb", r"a\x1fb is not the name of a file; write a path"),
        (
            fields.FilePath,
            "~nobody-of-this-name/x",
            "the home folder in ~nobody-of-this-name/x is not known; write the path in full",
        ),
        (
            fields.SshPath,
            '/a"b',
            (
                '/a"b cannot stand in an OpenSSH configuration; use a path without quotation marks, backslashes, "${" '
                "and control characters"
            ),
        ),
        (fields.SshPath, "/a b%\udc80", ""),
        (fields.TcpPort, 0, "Input should be greater than or equal to 1; write another value"),
    ],
)
def test_what_is_said_of_a_value_at_a_limit_of_its_kind(kind: Any, value: object, answer: str) -> None:
    assert fields.unfit(kind, value) == answer


@pytest.mark.parametrize(("kind", "first", "last"), [(fields.Mtu, 1280, fields.MAX_L2MTU), (fields.TcpPort, 1, 65535)])
def test_a_number_is_taken_from_the_first_to_the_last(kind: Any, first: int, last: int) -> None:
    for number, taken in ((first - 1, False), (first, True), (last, True), (last + 1, False)):
        try:
            TypeAdapter(kind).validate_python(number)
        except ValidationError:
            assert not taken
        else:
            assert taken


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("30m", 1800), ("24h", 86400), ("999999h", 3599996400), ("h", None), ("1d", None)]
)
def test_a_duration_in_seconds(text: str, seconds: int | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match=f"^{text} is not a duration$"):
            fields.seconds(text)
    else:
        assert fields.seconds(text) == seconds


@pytest.mark.parametrize(("text", "mebibytes"), [("1M", 1), ("3G", 3072), ("G", None), ("1T", None)])
def test_a_size_in_mebibytes(text: str, mebibytes: int | None) -> None:
    if mebibytes is None:
        with pytest.raises(ValueError, match=f"^{text} is not a size$"):
            fields.mebibytes(text)
    else:
        assert fields.mebibytes(text) == mebibytes


def test_a_path_starts_in_the_folder_of_the_rack_file_or_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ops")
    kind = TypeAdapter[Path](fields.FilePath)
    assert kind.validate_python("x", context={"folder": "/rack"}) == Path("/rack/x")
    assert kind.validate_python("/y", context={"folder": "/rack"}) == Path("/y")
    assert kind.validate_python("~/z", context={"folder": "/rack"}) == Path("/home/ops/z")
    assert kind.validate_python("x") == Path.cwd() / "x"


def test_a_section_takes_no_unknown_key_and_shows_no_value_in_an_error() -> None:
    class Small(fields.Section):
        port: fields.TcpPort

    assert issubclass(fields.Section, BaseModel)
    assert Small(port=1).to_json() == {"port": 1}
    with pytest.raises(ValueError, match=r"(?s)^((?!hunter2).)*$"):
        Small.model_validate({"port": "hunter2", "more": "hunter2"})
    with pytest.raises(ValueError, match="frozen"):
        Small(port=1).port = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + "..."),
        ("", '""'),
        ("a\nb", r"a\nb"),
        (7, "7"),
    ],
)
def test_of_a_value_at_most_60_characters_are_shown_in_one_line(value: object, text: str) -> None:
    assert truncate(value) == text


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("node",), "0 nodes"),
        (1, ("node",), "1 node"),
        (2, ("switch", "switches"), "2 switches"),
        (1, ("switch", "switches"), "1 switch"),
        (None, ("node",), "None nodes"),
    ],
)
def test_things_are_counted_with_their_word(number: int | None, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (OSError(2, "No such file", "/x\n"), r"/x\n: No such file"),
        (OSError(2, "No such file"), "No such file"),
        (OSError("odd"), "odd"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_fault_of_the_system_is_one_line_with_its_file(fault: OSError, text: str) -> None:
    assert reason(fault) == text


def test_text_of_a_machine_keeps_its_tabs_and_moves_no_cursor() -> None:
    assert printable("a\tb\r\x1b[2J") == "a\tb\\r\\x1b[2J"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("nodes", "spark4", "ports", 1), "nodes.spark4.ports.1"),
        (("nodes", "password", "address"), "nodes.password.address"),
        (("switches", "token", "password", "file"), "switches.token.password.file"),
        (("switches", "s", "password", "command", 0), "switches.s.password.command"),
        (("switches", "s", "password", "hunter2"), "switches.s.password"),
        (("switches", "s", "snmp", "encryption", "env", "x"), "switches.s.snmp.encryption.env"),
        (("models", "token", "x"), "models.token.x"),
        (("serving", "units", "token", "api", "key", "hunter2"), "serving.units.token.api.key"),
        (("serving", "units", "token", "env", "token"), "serving.units.token.env.token"),
        (("x" * 61,), "x" * 57 + "..."),
    ],
)
def test_a_place_in_the_file_shows_nothing_below_a_secret_but_its_kind(path: tuple[object, ...], text: str) -> None:
    assert format_path(path) == text


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (RuleViolation(("rack",), "is missing", "write one").at("r.yaml", 3), "r.yaml:3: rack: is missing; write one"),
        (ConfigProblem("r\n.yaml", None, "", "is empty", "write one"), r"r\n.yaml: is empty; write one"),
    ],
)
def test_a_problem_is_one_line(problem: ConfigProblem, text: str) -> None:
    assert str(problem) == text


@pytest.mark.parametrize(
    ("count", "last"), [(50, "r.yaml:49: x; y"), (51, "r.yaml: and 1 more"), (60, "r.yaml: and 10 more")]
)
def test_of_many_problems_fifty_are_shown(count: int, last: str) -> None:
    error = ConfigError(ConfigProblem("r.yaml", number, "", "x", "y") for number in range(count))
    assert str(error).splitlines()[-1] == last
    assert len(str(error).splitlines()) == min(count, 51)
    assert len(error.faults) == count
