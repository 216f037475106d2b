"""What of a declared unit is not a mistake and yet a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model.errors import truncate
from tests.unit.model.serving_racks import (
    record,
    text,
)
from tests.unit.serving.declared_units import QWEN_SIZE, RECORDS, P, notes, qwen


@pytest.mark.parametrize(
    ("keys", "models", "expected"),
    [
        ({}, RECORDS, []),
        (
            {},
            {},
            [
                (
                    f"{P}.model: whether qwen fits, and divides by the split, is unknown: the lock file has no "
                    "record of "
                    "it; `sparkrack apply` fetches the model and records it"
                )
            ],
        ),
        (
            {},
            {"qwen": record("GLM-5.3-Flash", QWEN_SIZE)},
            [
                (
                    f"{P}.model: whether qwen fits is unknown: the architecture glm5_next is not one whose memory is "
                    "known here; start it, and record what it takes with `sparkrack serve calibrate qwen`"
                )
            ],
        ),
        (
            {
                "args": {
                    "speculative-config": {"method": "eagle3", "model": "/opt/draft", "num_speculative_tokens": 3}
                },
                "accept": {"speculative-config": "the image has a draft"},
            },
            RECORDS,
            [
                (
                    f"{P}.model: whether qwen fits is unknown: the lock file has nothing of the draft model, which has "
                    "weights and a cache of its own; start it, and record what it takes with `sparkrack serve "
                    "calibrate qwen`"
                )
            ],
        ),
        (
            {"version": "0.19.0"},
            RECORDS,
            [
                (
                    f"{P}.version: vLLM 0.19.0 is not in the table of options, 0.19.1 judges args; "
                    "what the image takes can differ"
                )
            ],
        ),
        (
            {"api": {"listen": "management"}},
            RECORDS,
            [
                (
                    f"{P}.api: no machine but the nodes of the unit reaches it: there is no gateway, and api.direct "
                    "names "
                    "none; write serving.gateway, or the networks of clients at api.direct"
                )
            ],
        ),
        (
            {"api": {"listen": "management", "direct": ["10.9.0.0/16"]}},
            RECORDS,
            [
                (
                    f"{P}.api: each machine of 10.9.0.0/16 can use the model, as there is no key; "
                    "write a reference at api.key, like {file: qwen.key}"
                ),
                (
                    f"{P}.api.direct: 10.9.0.0/16 reaches each path and port of the unit on its head, past the "
                    "gateway: "
                    "/invocations, /tokenize and more answer without the key; "
                    "serving.gateway lets through what clients need"
                ),
            ],
        ),
        *(
            (
                {"cache": "none", "args": {"compilation-config": config}},
                RECORDS,
                [
                    (
                        f"{P}.args.compilation-config: compiles all custom operations at each start, when the weights "
                        "leave little memory for it; remove cache: none, so that what was compiled is kept"
                    )
                ],
            )
            for config in ({"custom_ops": ["all"]}, '{"custom_ops": ["all"]}')
        ),
        *(
            ({**cache, "args": {"compilation-config": {"custom_ops": ["all"]}}}, RECORDS, [])
            for cache in ({}, {"cache": "20G"})
        ),
        (
            {"memory": 0.5, "fit": {"override": "seen to run"}},
            RECORDS,
            [
                (
                    f"{P}.memory: qwen needs 71.6 GiB a node (weights 57.7, keys and values 5.9, overhead 8.0), "
                    "and 0.50 "
                    "of 121.69 GiB is 60.8; accepted by fit.override: seen to run"
                )
            ],
        ),
    ],
)
def test_what_is_not_a_mistake_is_a_warning(
    keys: dict[str, Any], models: Any, expected: list[str], tmp_path: Path
) -> None:
    assert notes(text(qwen(**keys)), tmp_path, models) == expected


@pytest.mark.parametrize(
    ("image", "lacks"),
    [
        ("nvcr.io/nvidia/vllm:26.04-py3", False),
        ("nvcr.io/nvidia/vllm:26.05-py3", True),
        ("nvcr.io/nvidia/vllm:27.01-py3", True),
        ("nvcr.io/nvidia/vllm@sha256:" + "ab" * 32, False),
        ("vllm/vllm-openai:v0.17.1", False),
        ("vllm/vllm-openai:v0.18.0", True),
        ("docker.io/vllm/vllm-openai:v0.33.0-aarch64", True),
        ("registry.example/nvcr.io/nvidia/vllm:26.05-py3", False),
    ],
)
def test_an_image_that_is_known_to_lack_ray_is_a_warning(image: str, lacks: bool, tmp_path: Path) -> None:
    """There is no warning about an unknown image: the gate examines it."""

    def warnings(**keys: Any) -> list[str]:
        found = notes(text(qwen(image=image, **keys), images=[image]), tmp_path)
        return [note for note in found if note.startswith(f"{P}.image: ")]

    said = (
        f"{P}.image: {truncate(image)} has no Ray, by which vllm-ray joins nodes: the gate will refuse each start; "
        "write engine: vllm, which needs none, or an image that has it"
    )
    assert warnings(engine="vllm-ray") == ([said] if lacks else [])
    assert warnings(engine="vllm") == []
    assert warnings(engine="vllm-ray", nodes=["n0"], parallel=None) == [], "one node needs no Ray"
