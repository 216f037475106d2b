"""The advisories: their file, their page, the order of versions, and what documents show."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from core.advisories.advisories import (
    ADVISORIES,
    CDI_MODE,
    KERNEL,
    NGINX,
    NVIDIA_DRIVER,
    PAGE,
    ROUTEROS,
    TOOLKIT,
    WITHOUT_KHO,
    Severity,
    advisory_line,
    advisory_table,
    current_releases,
    known_against,
    read_advisories,
    version_key,
)
from serving.rules import VLLM_RAY
from switch.advisories import BREAKOUT, LOSSLESS
from tests.generated import REPOSITORY, check

NOT_CONFIGURED = {"MLAG", "DHCPv6", "console", "l2mtu", "build of the pip wheel", "a ring"}
"""Features of rows that stand in the page only: sparkrack configures none of the first three, each plan says what a
change of l2mtu disturbs, and the NCCL of an image is known when it runs."""
SHOWN = re.compile(r"routeros-(7\.\d+(?:\.\d+)?)|\b(7\.\d+(?:\.\d+)?) \((?:stable|long-term|testing)\)")
"""A release of RouterOS that a document shows or recommends."""


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def ids(version: str, *features: str) -> list[str]:
    return [row.id.removeprefix("routeros.") for row in known_against(ROUTEROS, version, features)]


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("7.23.7 (long-term)", "7.23.8"),
        ("7.9", "7.23"),
        ("7.24alpha2", "7.24beta1"),
        ("7.24beta9", "7.24beta10"),
        ("7.24rc4 (testing)", "7.24 (stable)"),
        ("7.24", "7.24.1"),
        ("580.95.05", "580.159.03-0ubuntu1"),
        ("6.17.0-1014-nvidia", "6.17.0-1021-nvidia"),
        ("1.24.0-2ubuntu7", "1.24.0-2ubuntu7.8"),
        ("1.24.0-2ubuntu7.8", "1.24.0-2ubuntu7.15"),
        ("0.9.2", "0.10.0rc1"),
    ],
)
def test_versions_have_an_order(lower: str, higher: str) -> None:
    first, second = version_key(lower), version_key(higher)
    assert first is not None
    assert second is not None
    assert first < second


def test_a_version_is_the_same_with_zeros_at_its_end() -> None:
    assert version_key("7.24") == version_key("7.24.0") == version_key("7.24 (stable)")
    assert version_key("banana") is None


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ("7.22.1 (stable)", ["mikrotrick", "ssh-keys-certificates-webfig", "www-request", "rx-stall"]),
        ("7.23.3", ["mikrotrick", "ssh-keys-certificates-webfig", "www-request", "rx-stall"]),
        ("7.23.4", ["www-request", "rx-stall"]),
        ("7.23.7 (long-term)", ["www-request", "rx-stall"]),
        ("7.23.8", ["rx-stall"]),
        ("7.24", ["mikrotrick", "ssh-keys-certificates-webfig", "scheduler", "find", "rx-stall"]),
        ("7.24.1", ["mikrotrick", "ssh-keys-certificates-webfig", "scheduler"]),
        ("7.24.2", ["scheduler"]),
        ("7.24.4", ["scheduler"]),
        ("7.24.5", []),
        ("7.25beta2", ["mikrotrick", "ssh-keys-certificates-webfig"]),
        ("7.25beta3", []),
        ("7.25.2", []),
        ("banana", []),
    ],
)
def test_a_release_has_the_rows_that_are_known_against_it_the_worst_first(version: str, rows: list[str]) -> None:
    assert ids(version) == rows


def test_a_row_about_a_feature_counts_only_where_the_feature_is_used() -> None:
    assert ids("7.24.6", LOSSLESS) == ["lossless"]
    assert ids("7.24.2", BREAKOUT) == ["scheduler", "breakout-link"]
    assert ids("7.24.6", BREAKOUT) == []


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        ("1.24.0-2ubuntu7", ["nginx.rewrite", "nginx.map-regex"]),
        ("1.24.0-2ubuntu7.7", ["nginx.rewrite", "nginx.map-regex"]),
        ("1.24.0-2ubuntu7.8", ["nginx.map-regex"]),
        ("1.24.0-2ubuntu7.15", ["nginx.map-regex"]),
        ("1.24.0-2ubuntu7.16", []),
        ("1.24.0-2ubuntu7.18", []),
        ("1.30.4-1~noble", []),
    ],
)
def test_a_package_of_nginx_has_the_rows_that_are_known_against_it(version: str, rows: list[str]) -> None:
    assert [row.id for row in known_against(NGINX, version)] == rows


@pytest.mark.parametrize(
    ("subject", "version", "feature", "rows"),
    [
        (NVIDIA_DRIVER, "580.159.03", "", []),
        (NVIDIA_DRIVER, "590.48.01", "", ["driver.590-graphs"]),
        (NVIDIA_DRIVER, "595.84", "", []),
        (KERNEL, "6.17.0-1008-nvidia", "", ["kernel.6-17-1008"]),
        (KERNEL, "6.17.0-1021-nvidia", "", []),
        (KERNEL, "7.0.0-1019-nvidia", "", []),
        (KERNEL, "7.0.0-1019-nvidia", WITHOUT_KHO, ["kernel.kexec-handover"]),
        (TOOLKIT, "1.19.1-1", CDI_MODE, ["toolkit.cdi-freeze"]),
        (TOOLKIT, "1.19.1-1", "", []),
        (TOOLKIT, "1.19.0-1", CDI_MODE, []),
        ("nvcr.io/nvidia/vllm", "26.05-py3", VLLM_RAY, ["image.vllm-ray"]),
        ("nvcr.io/nvidia/vllm", "26.04-py3", VLLM_RAY, []),
        ("vllm/vllm-openai", "0.17.1", VLLM_RAY, []),
        ("vllm/vllm-openai", "0.18.1", VLLM_RAY, ["image.vllm-openai-ray"]),
    ],
)
def test_what_a_node_runs_has_the_rows_that_are_known_against_it(
    subject: str, version: str, feature: str, rows: list[str]
) -> None:
    assert [row.id for row in known_against(subject, version, [feature])] == rows


def test_another_subject_has_no_row_of_routeros() -> None:
    assert known_against("another program", "7.23.1") == ()


def test_the_line_of_a_row_names_the_release_to_take_and_the_page() -> None:
    (row, *_) = known_against(ROUTEROS, "7.23.1")
    line = advisory_line(row, "7.23.1 (stable)")
    assert line.startswith("RouterOS 7.23.1 (stable): attackers take switches over by SSH without a password (CVE-")
    assert "; take 7.24.6 (long-term) or 7.25.2 (stable); until then declare `management`" in line
    assert line.endswith("(routeros.mikrotrick, docs/reference/advisories.md)")


def test_the_page_has_the_releases_to_take() -> None:
    rows = [
        (subject, one.version, one.channel, str(one.date))
        for subject, releases in advisory_table().current.items()
        for one in releases
    ]
    check(PAGE, "current", table(("subject", "version", "channel", "of"), rows))


def test_the_page_has_every_row() -> None:
    rows = [
        (
            f"`{row.id}`",
            row.severity.value,
            "; ".join(f"{row.subject} {part}" for part in row.versions)
            + (f", with {row.feature}" if row.feature else ""),
            row.effect,
            row.remedy or "",
            row.source + (f". Not seen: {row.unseen}" if row.unseen else ""),
            str(row.date),
        )
        for row in advisory_table().advisories
    ]
    head = ("id", "severity", "versions", "what happens", "besides an upgrade", "source", "of")
    check(PAGE, "advisories", table(head, rows))


def test_each_feature_of_a_row_is_one_that_the_program_knows() -> None:
    named = {row.feature for row in advisory_table().advisories if row.feature}
    assert named == {LOSSLESS, BREAKOUT, WITHOUT_KHO, CDI_MODE, VLLM_RAY} | NOT_CONFIGURED


def test_no_document_shows_a_release_that_can_be_attacked_or_runs_no_schedule() -> None:
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*")]
    pages += [REPOSITORY / "sparkrack/cli/upgrade_switch.py", REPOSITORY / "lab/routeros_emulator/config.py"]
    found = [
        f"{page.relative_to(REPOSITORY)}: {match[0]}"
        for page in pages
        if page.name != "CHANGELOG.md"
        for match in SHOWN.finditer(page.read_text(encoding="utf-8"))
        if any(row.severity is not Severity.DEFECT for row in known_against(ROUTEROS, match[1] or match[2]))
    ]
    assert found == [], f"show {current_releases(ROUTEROS)}"


GOOD = """
current: {RouterOS: [{version: "7.24.6", channel: long-term, date: 2026-10-30}]}
advisories:
- id: routeros.one
  subject: RouterOS
  versions: [{since: "7.24", fixed: "7.24.6"}]
  severity: security
  effect: it fails
  remedy: none is known
  source: release notes
  date: 2026-09-29
"""


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text + "  colour: red", "colour"),
        (lambda text: text.replace("  source: release notes\n", ""), "source"),
        (lambda text: text.replace("severity: security", "severity: bad"), "severity"),
        (lambda text: text.replace('fixed: "7.24.6"', 'fixed: "7.23"'), "is not after since 7.24"),
        (lambda text: text.replace('since: "7.24"', 'since: "seven"'), "seven is not a version"),
        (lambda text: text.replace('since: "7.24"', "since: 7.24"), "string"),
        (
            lambda text: text.replace(', fixed: "7.24.6"', ""),
            "7.24.6 (long-term) is current and affected by routeros.one",
        ),
        (lambda text: text + text.partition("advisories:\n")[2], "occurs more than once"),
        (lambda text: text.replace("routeros.one", "RouterOS one"), "id"),
        (lambda text: text.replace("it fails", "it | fails"), "effect"),
        (lambda text: text + "  - [", "advisories.yaml"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[str], str], reason: str) -> None:
    path = tmp_path / ADVISORIES.name
    path.write_text(GOOD)
    assert len(read_advisories(path).advisories) == 1
    path.write_text(damage(GOOD))
    with pytest.raises(ValueError, match=re.escape(str(path))) as refusal:
        read_advisories(path)
    assert reason in str(refusal.value)
