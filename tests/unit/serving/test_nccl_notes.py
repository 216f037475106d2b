"""NCCL of a unit's image, as the lock file has it: what is known against it, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.image_lock import ImageNccl, Pin
from serving import nccl_notes
from serving.options import served_units
from tests.unit.model.serving_racks import IMAGE_ID, QWEN, VLLM, loaded, machines, text, unit

GOOD = ImageNccl("2.30.7", "system", ())


def notes(nccl: ImageNccl | None, recorded: bool = True, hosts: str = "", **keys: Any) -> list[str]:
    rack = loaded(text({"qwen": unit(QWEN, **keys)}, hosts))
    pin = Pin(None, IMAGE_ID, nccl) if recorded else None
    found = nccl_notes.notes(rack, served_units(rack)["qwen"], pin)
    return [f"{'.'.join(map(str, note.path))}: {note.what}; {note.right}" for note in found]


def test_an_image_with_a_good_nccl_has_no_note() -> None:
    assert notes(GOOD) == []


@pytest.mark.parametrize("recorded", [True, False])
def test_an_image_that_was_not_asked_is_not_known_yet(recorded: bool) -> None:
    assert notes(None, recorded) == [
        (
            f"image: NCCL of {VLLM} is not known yet: the lock file does not have it; "
            "`sparkrack apply --only images` asks the image and records it"
        )
    ]


def test_an_image_that_does_not_tell_is_unknown_and_not_good() -> None:
    (line,) = notes(ImageNccl(None, None, ()))
    assert line.startswith(f"image: NCCL of {VLLM} is unknown: no container of it tells a version; ")


def test_what_is_known_against_a_build_is_reported_before_a_start() -> None:
    (line,) = notes(ImageNccl("2.28.9", "wheel", ()))
    assert line.startswith("image: NCCL 2.28.9 of the image: two ranks spin for ever")
    assert line.endswith("(nccl.2-28-9-wheel, docs/reference/advisories.md)")
    assert notes(ImageNccl("2.28.9", "system", ())) == [], "another build of the version is free of it"


def test_settings_of_the_image_are_told_and_that_ranks_do_not_get_them() -> None:
    nccl = ImageNccl("2.30.7", "system", ("NCCL_IB_USE_INLINE=1", "NCCL_ALGO=Ring"))
    assert notes(nccl) == [
        (
            "image: its /etc/nccl.conf has NCCL_IB_USE_INLINE=1, NCCL_ALGO=Ring, and the ranks get an empty file "
            "instead; write into env what they need"
        )
    ]


def test_nccl_does_not_matter_to_one_rank() -> None:
    alone: dict[str, Any] = {"nodes": ["n0"], "parallel": {"tensor": 1}}
    assert notes(None, **alone) == notes(ImageNccl("2.28.9", "wheel", ("NCCL_ALGO=Ring",)), **alone) == []


def test_a_ring_is_judged_once() -> None:
    """By its cables: topology_notes."""
    ring: dict[str, Any] = {"nodes": ["n0", "n1", "n2", "n3"], "parallel": {"tensor": 1, "pipeline": 4}}
    assert notes(ImageNccl("2.29.0", "system", ()), hosts=machines(4, "ring"), **ring) == []
