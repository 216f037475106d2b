"""Why a rank ended at its start: the telling line of what it printed, in words, and never a secret."""

from __future__ import annotations

import pytest

from tests.serving.serve_modules import serve_causes

DAEMON = "docker: Error response from daemon: failed to create task for container: "
HINT = "Run 'docker run --help' for more information"
TRACE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize(
    ("status", "lines", "expected"),
    [
        (
            125,
            [
                (
                    "docker: Error response from daemon: failed to create task for container: failed to inject CDI "
                    "devices: unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown"
                ),
                "",
                HINT,
            ],
            (
                "docker gave the container no GPU (unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown); "
                "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
            ),
        ),
        (
            125,
            [
                f"{DAEMON}error running prestart hook #0: exit status 1, stdout: , stderr: Using requested mode 'cdi'",
                "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not s",
                HINT,
            ],
            (
                "the NVIDIA container toolkit is in CDI mode and refuses `--gpus` (invoking the NVIDIA Container "
                "Runtime Hook directly (e.g. specifying the docker --gpus flag) is not s); "
                "`nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto`"
            ),
        ),
        (
            125,
            ['docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]]'],
            (
                'docker knows no runtime for the GPU (could not select device driver "" with capabilities: [[gpu]]); '
                "`sparkrack apply --only docker`"
            ),
        ),
        (
            125,
            [f"{DAEMON}nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.2: unknown"],
            (
                "the image wants another driver than the node has (requirement error: unsatisfied condition: "
                "cuda>=13.2: unknown); use an image for this driver, or declare driver.version"
            ),
        ),
        (
            127,
            [f'{DAEMON}exec: "ray": executable file not found in $PATH: unknown', HINT],
            (
                "the image does not have the program of the engine (executable file not found in $PATH: unknown); "
                "use an image that has it; vllm-ray needs one with Ray"
            ),
        ),
        (
            126,
            [f'{DAEMON}exec: "/usr/bin/vllm": exec format error: unknown'],
            (
                "the image is of another architecture (exec format error: unknown); use an image for the CPU of the "
                "node (arm64)"
            ),
        ),
        (125, [], "docker did not start the container, or ended while it ran; look at `systemctl status docker`"),
        (
            125,
            ["docker: Error response from daemon: something new went wrong.", HINT],
            (
                "docker did not start the container, or ended while it ran (something new went wrong.); "
                "look at `systemctl status docker`"
            ),
        ),
        (  # the service removes its container in the end, and docker may have done so before
            137,
            ["Error response from daemon: No such container: sparkrack-toy"],
            "it was killed; `journalctl -k -b` names the memory guard or the kernel, if it was one of them",
        ),
        (
            137,
            ["INFO 11-25 loading, no error"],
            "it was killed; `journalctl -k -b` names the memory guard or the kernel, if it was one of them",
        ),
        (
            0,
            [
                "(EngineCore pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                "Traceback (most recent call last):",
                TRACE,
            ],
            (
                "the GPU's memory does not suffice (OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.)"
                "; lower memory, context or sequences; if it sufficed before, restart the node"
            ),
        ),
        (
            1,
            ["vllm serve: error: unrecognized arguments: --no-such-option"],
            (
                "the engine refuses an option (unrecognized arguments: --no-such-option); "
                "is version of the unit that of the image?"
            ),
        ),
        (1, ["ValueError: heads are not divisible", TRACE], "ValueError: heads are not divisible"),
        (0, ["INFO 11-25 request 7: error in the text of a user", "(APIServer pid=1) INFO: Shutting down"], ""),
        (0, [], ""),
        (None, ["Killed"], ""),
    ],
)
def test_the_telling_line_is_named_with_what_to_do(status: int | None, lines: list[str], expected: str) -> None:
    assert serve_causes.explain(status, lines) == expected


def test_each_cause_has_a_remedy_and_no_cause_hides_another() -> None:
    for pattern, what, remedy in serve_causes.CAUSES:
        assert what, pattern.pattern
        assert remedy, pattern.pattern


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization failed: Bearer sk0123456789abcdef",
        "error: --api-key='topsecretvalue' is refused",
        "error: non-default args: {'api_key': ['topsecretvalue']}",
        "error: HF_TOKEN=hf_abcdefghijklmnop is refused",
        "error: cannot pull https://user:topsecretvalue@registry.example/x",
        "error: token eyJhbGciOiJIUzI1.eyJzdWIiOiIx.SflKxwRJSM failed",
    ],
)
def test_what_looks_like_a_secret_is_not_in_the_reason(secret: str) -> None:
    found = serve_causes.explain(1, [secret])
    assert "***" in found
    for word in ("sk0123456789abcdef", "topsecretvalue", "hf_abcdefghijklmnop", "SflKxwRJSM"):
        assert word not in found


def test_the_reason_is_one_short_line_without_control_characters() -> None:
    found = serve_causes.explain(1, ["error: \x1b[2Jspark1: ready\r\x00 " + "x" * 5000])
    assert found.isprintable()
    assert len(found) <= serve_causes.EVIDENCE_LIMIT
