"""Why a rank ended at its start: the telling line of what it printed, in words, and never a secret."""

from __future__ import annotations

import re

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


PRINTED = {
    ("docker gave the container no GPU", "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"): (
        "unresolvable CDI devices nvidia.com/gpu=all",
    ),
    (
        "the NVIDIA container toolkit is in CDI mode and refuses `--gpus`",
        "`nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto`",
    ): ("Using requested mode 'cdi'", "invoking the NVIDIA Container Runtime Hook directly"),
    ("docker knows no runtime for the GPU", "`sparkrack apply --only docker`"): (
        "could not select device driver",
        "unknown or invalid runtime name: nvidia",
        "Unknown runtime specified nvidia",
        "unknown runtime specified nvidia",
    ),
    ("the image wants another driver than the node has", "use an image for this driver, or declare driver.version"): (
        "unsatisfied condition: cuda>=13.2",
        "requirement error: x",
        "driver version is insufficient for CUDA runtime version",
        "driver on your system is too old (found version 12080)",
        "forward compatibility was attempted on non supported HW",
        "unsupported display driver / cuda driver combination",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    ),
    ("the NVIDIA container toolkit failed", "`sparkrack verify --only docker --only driver`; restart the node"): (
        "nvidia-container-cli: initialization error",
        "nvidia-container-runtime: x",
        "libnvidia-container.so.1: cannot open shared object file",
    ),
    (
        "the image does not have the program of the engine",
        "use an image that has it; vllm-ray needs one with Ray",
    ): (
        "executable file not found in $PATH",
        'exec: "/opt/vllm": stat /opt/vllm: no such file or directory',
        'exec: \\"/opt/vllm\\": stat /opt/vllm: no such file or directory',
        "the image has no program ray",
        "the image has no module sglang",
    ),
    ("the program that runs before the engine failed", "its own lines are above in the log"): (
        "sparkrack: the program of before ended with 3",
    ),
    (
        "the engine of the image was built without CUDA, and would compute on the CPU",
        "use an image with its CUDA backend for arm64",
    ): ("--list-devices names no CUDA0",),
    ("the image is of another architecture", "use an image for the CPU of the node (arm64)"): ("exec format error",),
    ("the node has no device for docker to hand over", "`sparkrack verify --only rdma`"): (
        'gathering device information while adding custom device "/dev/infiniband"',
    ),
    ("the container lacks a file", "correct the option, or the image"): (
        "the container has no file /models/t.jinja",
        "the container has no libcuda.so.1: its runtime gave it no driver",
    ),
    ("a container with its name is left", "`docker rm -f` it"): (
        'The container name "/sparkrack-qwen" is already in use by container "0a"',
    ),
    ("docker does not have the image", "`sparkrack apply --only images`"): (
        "No such image: sha256:0a",
        "Unable to find image 'x:1' locally",
    ),
    ("docker does not run", "look at `systemctl status docker`"): (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock",
    ),
    ("a disk or /dev/shm is full", "look at `df`; shm of the unit is /dev/shm"): (
        "No space left on device",
        "no space left on device",
    ),
    (
        "the GPU's memory does not suffice",
        "lower memory, context or sequences; if it sufficed before, restart the node",
    ): (
        "CUDA out of memory.",
        "OutOfMemoryError: x",
        "CUDA error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "NV_ERR_NO_MEMORY",
    ),
    ("less memory is free for the GPU than the engine is to take", "end what holds memory, or restart the node"): (
        "Free memory on device cuda:0 (80.1/119.7 GiB) on startup is less than desired GPU memory utilization",
        "memory capacity is unbalanced.",
    ),
    ("the weights leave too little room for keys and values", "raise memory, or lower context"): (
        "No available memory for the cache blocks.",
        "KV cache is needed, which is larger than the available KV cache memory",
        "larger than the maximum number of tokens that can be stored in KV cache",
        "Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    ("CUDA does not work in the container", "restart the node"): (
        "CUDA unknown error - this may be due to an incorrectly set up environment",
        "CUDA error: unknown error",
        "no CUDA-capable device is detected",
        "No CUDA GPUs are available",
        "CUDA_ERROR_UNKNOWN",
        "CUDA_ERROR_NO_DEVICE",
        "CUDA_ERROR_NOT_INITIALIZED",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA answers 999 (CUDA_ERROR_OF_TEST)",
        "CUDA shows no GPU",
    ),
    ("the engine refuses an option", "is version of the unit that of the image?"): (
        "unrecognized arguments: --x",
        "error: argument --tensor-parallel-size/-tp: invalid int value: 'x'",
        "error: the following arguments are required: --model",
        "error: ambiguous option: --max could match --max-model-len",
    ),
    ("the image is too old for the model", "use an image with a later release of the engine"): (
        "does not recognize this architecture",
        "Model architectures ['Qwen9'] are not supported for now",
        "model architecture Qwen9 is not supported",
    ),
    (
        "the engine wants a file that the container does not have",
        "name no repository in args, or put the file into the model",
    ): (
        "LocalEntryNotFoundError: x",
        "OfflineModeIsEnabled: x",
        "outgoing traffic has been disabled",
        "is not a local folder and is not a valid model identifier",
        "couldn't connect to 'https://huggingface.example'",
    ),
    ("the image lacks a Python module", "use an image that has it"): (
        "ModuleNotFoundError: x",
        "No module named 'ray'",
    ),
    ("a port of the unit is in use", "`ss -ltnp` names the process"): (
        "Address already in use",
        "address already in use",
    ),
    (
        "NCCL failed between the ranks",
        "`sparkrack verify --only fabric --only rdma`; read the log of the other ranks too",
    ): (
        "ibv_create_qp failed",
        "ibv_modify_qp to RTR failed with error Connection timed out",
        "ncclSystemError: x",
        "ncclInternalError: x",
        "ncclRemoteError: x",
        "NCCL error in: x",
    ),
}
"""What docker, CUDA, PyTorch and the engines print, by its reported meaning and the remedy."""


@pytest.mark.parametrize(
    ("printed", "what", "remedy"),
    [(printed, what, remedy) for (what, remedy), lines in PRINTED.items() for printed in lines],
)
def test_each_line_of_a_known_cause_is_reported_in_its_words(printed: str, what: str, remedy: str) -> None:
    shown = printed if len(printed) <= 130 else f"{printed[:127]}..."
    assert serve_causes.explain(1, ["begin", f"X: {printed}"]) == f"{what} ({shown}); {remedy}"


def test_each_cause_is_that_of_a_line() -> None:
    assert {(what, remedy) for _, what, remedy in serve_causes.CAUSES} == PRINTED.keys()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            125,
            "docker did not start the container, or ended while it ran (x failed); look at `systemctl status docker`",
        ),
        (126, "the program of the image cannot be executed (x failed); use an image for the CPU of the node (arm64)"),
        (127, "the image does not have the program of the engine (x failed); use an image that has it"),
        (
            137,
            "it was killed (x failed); `journalctl -k -b` names the memory guard or the kernel, if it was one of them",
        ),
        (139, "it crashed (SIGSEGV) (x failed); its log has the place"),
        (1, "x failed"),
        (None, "x failed"),
    ],
)
def test_an_exit_code_of_docker_or_a_signal_says_what_it_means(status: int | None, expected: str) -> None:
    assert serve_causes.explain(status, ["x failed"]) == expected


@pytest.mark.parametrize("status", [125, 126, 127])
def test_what_was_printed_before_docker_spoke_is_not_the_reason_of_docker(status: int) -> None:
    found = serve_causes.explain(status, ["CUDA out of memory", "docker: new", "exec failed"])
    assert "(exec failed)" in found
    assert "CUDA" not in found
    assert "CUDA out of memory" in serve_causes.explain(1, ["CUDA out of memory", "docker: new", "exec failed"])


@pytest.mark.parametrize(
    "after",
    [
        "Engine core initialization failed.",
        "error: See root cause above.",
        "resource_tracker: error",
        "error: destroy_process_group() was not called",
        "failed: see docker run --help",
        "Failed core proc(s): {}",
        "error: Engine process failed to start",
        "engine process failed to start",
        "error: leaked semaphore objects",
        "error: leaked shared_memory objects",
        "Traceback (most recent call last): error",
        "subprocess.CalledProcessError: x",
        "error: Received sigquit from a child process",
        "WorkerProc initialization failed",
        "Error response from daemon: No such container: x",
        "INFO no error",
        "DEBUG no error",
    ],
)
def test_what_follows_a_cause_does_not_name_it(after: str) -> None:
    assert serve_causes.explain(1, ["ValueError: x", after]) == "ValueError: x"


@pytest.mark.parametrize(
    "telling",
    [
        *("ERROR x", "Fatal x", "cannot x", "could not x", "unable x", "x not found", "no such x", "x refused"),
        *("access denied", "failed x", "no program x"),
    ],
)
def test_a_line_that_tells_of_a_failure_is_the_reason_without_a_known_cause(telling: str) -> None:
    assert serve_causes.explain(1, [telling, "goodbye"]) == telling
    assert serve_causes.explain(1, ["goodbye"]) == ""


def test_the_last_of_several_lines_counts() -> None:
    assert serve_causes.explain(1, ["error: a", "error: b"]) == "error: b"
    assert serve_causes.explain(1, ["CUDA unknown error", "exec format error"]).startswith("the image is of another")


@pytest.mark.parametrize(
    ("logged", "fault"),
    [
        ("NVRM: Xid (PCI:000f:01:00): 79, pid=7", True),
        ("NVRM: Xid (PCI:000f:01:00): 43, pid=7", False),
        ("NVRM: Xid (PCI:000f:01:00): 45, pid=7", False),
        ("NVRM: Xid (PCI:000f:01:00): 44, pid=7", True),
        ("NVRM: Xid (PCI:000f:01:00): 451, pid=7", True),
        ("NVRM: Xid (PCI:000f:01:00): 145, pid=7", True),
        ("NVRM: nvAssertFailed: [NV_ERR_NO_MEMORY] (0x00000051)", True),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module", False),
    ],
)
def test_an_xid_of_a_killed_or_faulty_process_is_no_fault_of_the_driver(logged: str, fault: bool) -> None:
    assert bool(re.search(serve_causes.DRIVER_FAULT, logged)) == fault


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization failed: Bearer sk0123456789abcdef",
        "error: --api-key='topsecretvalue' is refused",
        "error: non-default args: {'api_key': ['topsecretvalue']}",
        "error: HF_TOKEN=hf_abcdefghijklmnop is refused",
        "error: cannot pull https://user:topsecretvalue@registry.example/x",
        "error: token eyJhbGciOiJIUzI1.eyJzdWIiOiIx.SflKxwRJSM failed",
        "error: Basic topsecretvalue is refused",
        "error: bearer abcdefgh is refused",
        *(
            f"error: {name}=topsecretvalue is refused"
            for name in ("password", "passwd", "passphrase", "secret", "api-key", "apikey", "ACCESS_KEY", "credential")
        ),
        "error: token 'topsecretvalue' is refused",
        'error: {"secret_of_x": "topsecretvalue"}',
        *(
            f"error: {begin}topsecretvalue is refused"
            for begin in (
                *("hf_", "nvapi-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxa-", "xoxb-"),
                *("xoxp-", "xoxr-", "xoxs-", "sk-", "AKIA", "ASIA"),
            )
        ),
        "error: hf_abcdefgh is refused",
    ],
)
def test_what_looks_like_a_secret_is_not_in_the_reason(secret: str) -> None:
    found = serve_causes.explain(1, [secret])
    assert "***" in found
    for word in ("sk0123456789abcdef", "secretvalue", "abcdefgh", "SflKxwRJSM"):
        assert word not in found


def test_the_reason_is_one_short_line_without_control_characters() -> None:
    found = serve_causes.explain(1, ["error: \x1b[2Jspark1: ready\r\x00 " + "x" * 5000])
    assert found.isprintable()
    assert len(found) <= serve_causes.EVIDENCE_LIMIT
