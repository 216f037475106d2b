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
NO_NAMES = ("", "a\n", "-a", ".a", "_a", "a b", "a/b", "a;b", "a$b", "ä", "a\0", "..", "٣")
IMAGES = (
    *("ubuntu:24.04", "scitrera/dgx-spark-sglang:0.5.12", "nvcr.io/nvidia/vllm:26.05-py3", "a:latestish"),
    *("10.77.0.1:5000/a/b-c__d:v1_x", f"a@sha256:{'0' * 64}", f"a:latest@sha256:{'0' * 64}"),
)
NO_IMAGES = ("a@sha256:00", "A/B:1", "a:1 --privileged", "--privileged", "a:1\n", "a//b:1", f"{'a' * 600}:1")


TAKEN = [
    (fields.Name, [A, "a", "0", "spark-1_x.lab", "A" * 63]),
    (fields.UserName, ["_" + "a" * 31]),
    (fields.HostName, [A, f"{'a' * 31}.{'b' * 31}"]),
    (fields.Model, [A]),
    (fields.Serial, ["A/_-9"]),
    (fields.RouterOsRelease, ["7.123.456"]),
    (fields.DriverVersion, ["580"]),
    (fields.Kernel, ["6" + "1" * 62]),
    (fields.Version, ["0" * 63]),
    (fields.End, ["spark2/1"]),
    (fields.Address, ["1.0.0.0", IPv4Address("1.0.0.0")]),
    (fields.Subnet, ["10.0.0.0/8", "10.0.0.0/30", IPv4Network("10.0.0.0/31")]),
    (fields.Pool, ["10.0.0.0/24"]),
    (fields.Management, ["10.0.0.7/32", "127.0.0.1/32"]),
    (fields.Syslog, ["head", "10.77.0.1"]),
    (fields.Fingerprint, ["a" * 64]),
    (fields.MemorySize, ["1024M", "1G", "128G", "131072M"]),
    (fields.DiskSize, ["512M", "4096G"]),
    (fields.LogSize, ["1M", "10G"]),
    (fields.Floor, [False, "256M", "64G"]),
    (fields.Duration, ["24h", "1440m", "86400s"]),
    (fields.Image, ["a" * (512 - len(DIGEST)) + DIGEST, "a:1", *IMAGES]),
    (HubName, ["0/0", f"{'a' * 96}/{'b' * 96}"]),
    (fields.Environment, ["_" + "A" * 127]),
    (fields.FilePath, [" x", Path("x")]),
    (fields.SshPath, ["/a b%\udc80"]),
]
REFUSED = [
    (fields.Name, f"{{}} cannot be a name; {NAME}", ["a" * 64, *NO_NAMES]),
    (fields.UserName, f"{{}} cannot be a user name; {USER}", ["a" * 33, 7, 7.5, True]),
    (fields.HostName, f"{{}} cannot be the name of a machine; {HOST}", [f"{'a' * 32}.{'b' * 31}", "a-"]),
    (fields.HostName, "{} is read as an IPv4 address by programs; write a name like spark1", ["a.1", "0x7f"]),
    (
        fields.HostName,
        "{} is a loopback name; write another name, like spark1",
        ["LocalHost", "a.localhost", "localhost.x", "ip6-allnodes"],
    ),
    (
        fields.HostName,
        "{} is a group of pyinfra's inventory; write another name, like spark1",
        ["all", "Inventory", "nodes", "switches"],
    ),
    (
        fields.Model,
        "{} cannot be a model; write what /system/routerboard prints as model, like CRS812-8DS-2DQ-2DDQ",
        ["CRS/1"],
    ),
    (fields.Serial, "{} cannot be a serial number; write letters and digits, like HXXXXXXXXXX", ["A 9"]),
    (fields.RouterOsRelease, "{} is not a release of RouterOS; write its number, like 7.24.6", ["7.1234"]),
    (
        fields.DriverVersion,
        (
            "{} is not a version of the driver; write its major version, of at least three digits, and as much of the "
            "rest as is to be held, like 580.159"
        ),
        ["58"],
    ),
    (
        fields.Kernel,
        "{} is not a kernel as packages name it; write what uname -r prints, like 6.17.0-1021-nvidia",
        ["6.17-"],
    ),
    (fields.Version, "{} is not a version; write one as the machine shows it, like 0104", ["beta"]),
    (
        fields.End,
        "{} is not the end of a cable; write a leg like crs812/qsfp56-dd-1-1, or a port of a node like spark2/1",
        ["spark2/"],
    ),
    (fields.Address, "{} is not an IPv4 address; write one like 10.77.0.11", [7]),
    (
        fields.Address,
        "{} is not the address of one machine; write one like 10.77.0.11",
        ["0.1.2.3", "224.0.0.1", "240.0.0.1"],
    ),
    (
        fields.Address,
        "{} is link-local, which no machine keeps; write the address it is given, like 10.77.0.11",
        ["169.254.1.1"],
    ),
    (
        fields.Subnet,
        "{} has an unfit size; use a prefix length from /8 to /30, like 192.168.100.0/24",
        ["10.0.0.0/31", "10.0.0.0/7"],
    ),
    (
        fields.Subnet,
        (
            "{} is link-local, where no node can determine which half of a port an address is behind; "
            "write a private network like 192.168.100.0/24"
        ),
        ["169.254.0.0/24"],
    ),
    (fields.Pool, "{} has an unfit size; use a prefix length from /8 to /24, like 10.100.0.0/20", ["10.0.0.0/25"]),
    (
        fields.Pool,
        "{} cannot be used between machines; write a private network like 10.100.0.0/20",
        ["127.0.0.0/24", "0.0.0.0/8", "224.0.0.0/24", "240.0.0.0/24"],
    ),
    (fields.Pool, "{} is an address inside a network; write the network itself, 10.0.0.0/8", ["10.1.0.0/8"]),
    (fields.Pool, "{} is not an IPv4 network; write one like 10.100.0.0/20", ["10.0.0.0/99", "10.0.0.0", 7]),
    (
        fields.Syslog,
        "{} is not the address of one machine; write head for the first node, or an address like 10.77.0.1",
        ["tail"],
    ),
    (
        fields.Fingerprint,
        "{} is not the SHA-256 fingerprint of a certificate; write its 64 hex digits, colons allowed",
        ["a" * 63, "", "0" * 65, "g" * 64, ":".join(["00"] * 31), "0:" * 32, "00:" * 32],
    ),
    (fields.MemorySize, "{} does not fit a GB10 node; write 1G to 128G", ["1023M", "131073M", "129G"]),
    (
        fields.MemorySize,
        f"{{}} is not {WHOLE} 100G",
        ["8", 8, "0G", "-1G", "100g", "80%", "1.5G", "infinity", "100G\n", "٣G"],
    ),
    (fields.DiskSize, "{} does not fit the disk of a GB10 node; write 512M to 4096G", ["511M", "4097G"]),
    (fields.DiskSize, "{} is not an amount of disk; write a whole number of M or G, like 10G", ["x"]),
    (fields.LogSize, "{} is not a fit size for a log file; write 1M to 10G", ["10241M"]),
    (fields.LogSize, "{} is not the size of a log file; write a whole number of M or G, like 50M", ["x"]),
    (fields.Floor, "{} is not a fit floor for a GB10 node; write 256M to 64G", ["255M", "65G"]),
    (fields.Floor, f"{{}} is not {WHOLE} 3G", [0]),
    (fields.Duration, "{} is too long; write at most 24h", ["86401s", "1441m"]),
    (fields.Duration, "{} is not a duration; write a whole number of s, m or h, like 30s", ["0s", 30]),
    (fields.Image, f"{{}} is not a container image; {PIN}", ["a" * (513 - len(DIGEST)) + DIGEST, *NO_IMAGES]),
    (fields.Image, f"{{}} is not pinned; {PIN}", ["a", "ubuntu", "10.77.0.1:5000/a"]),
    (
        fields.Image,
        f"{{}} is not pinned, the tag moves; {PIN}",
        ["a:nightly-latest", "a:latest", "a:LATEST", "a:latest-cu130"],
    ),
    (
        HubName,
        "is not the name of a model on the hub; write its owner and its name, like Qwen/Qwen3-235B-A22B-GPTQ-Int4",
        [f"{'a' * 97}/b", f"a/{'b' * 97}", "a", "a/-b", "_a/b"],
    ),
    (
        fields.Environment,
        "is not the name of an environment variable; write letters, digits and '_', like CRS812_PASSWORD",
        ["A" * 129],
    ),
    (fields.FilePath, "{} is not the name of a file; write a path", ["  ", "a\x1fb"]),
    (
        fields.FilePath,
        "the home folder in {} is not known; write the path in full",
        ["~nobody-of-this-name/x"],
    ),
    (
        fields.SshPath,
        (
            '{} cannot stand in an OpenSSH configuration; use a path without quotation marks, backslashes, "${" and '
            "control characters"
        ),
        ['/a"b'],
    ),
    (fields.TcpPort, "Input should be greater than or equal to 1; write another value", [0]),
]


@pytest.mark.parametrize(("kind", "values"), TAKEN)
def test_the_last_value_that_a_kind_takes(kind: Any, values: list[object]) -> None:
    assert {value: fields.unfit(kind, value) for value in values} == dict.fromkeys(values, "")


@pytest.mark.parametrize(("kind", "answer", "values"), REFUSED)
def test_the_first_value_that_a_kind_does_not_take(kind: Any, answer: str, values: list[object]) -> None:
    for value in values:
        assert fields.unfit(kind, value) == answer.replace("{}", truncate(value))


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
