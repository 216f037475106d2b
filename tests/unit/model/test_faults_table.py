"""What a user is reported about wrong files: the exact lines, for whole files and for edits of sound ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from core.model import ConfigError, load
from tests.unit.model.racks import CASES, VALID, changed, faults

EXPECTED = sorted(CASES.glob("*.expected"))
EDITS = yaml.load(CASES.with_name("rack_faults.yaml").read_text(), Loader=yaml.CSafeLoader)


def test_the_promised_cases_are_all_there() -> None:
    assert [path.stem for path in EXPECTED] == [
        "duplicate-address",
        "duplicate-key",
        "empty-file",
        "lane-not-in-split",
        "leg-used-twice",
        "missing-file",
        "mtu-above-l2mtu",
        "overlapping-subnets",
        "syntax-error",
        "two-switches",
        "typo-in-key",
        "unknown-switch",
        "wrong-type",
    ]
    assert {path.stem for path in CASES.glob("*.yaml")} == {path.stem for path in EXPECTED} - {"missing-file"}


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.stem)
def test_wrong_file(expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)
    with pytest.raises(ConfigError) as caught:
        load(f"{expected.stem}.yaml")
    assert str(caught.value) + "\n" == expected.read_text()


@pytest.mark.parametrize("case", EDITS, ids=lambda case: case["about"])
def test_edited_file(case: dict[str, Any]) -> None:
    sound = (VALID / f"{case['base']}.yaml").read_text()
    assert faults(sound) == []
    assert faults(changed(sound, *map(tuple, case["edits"]))) == case["faults"]
