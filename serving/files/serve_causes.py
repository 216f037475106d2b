"""Why a container or an engine ended at its start: one line of what it printed, in words, with what to do about it.

`explain` reads the last lines that a rank, or docker, printed. The result is one printable line of bounded length,
without what looks like a secret: it goes into the record of the unit, reports and logs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from serve_unit import line

DRIVER_FAULT = r"NVRM: Xid(?! \([^)]*\): 4[35](?![0-9]))|NV_ERR_NO_MEMORY"
"""Lines of the kernel's log after which the GPU or its driver is not as after a boot, as a pattern. Xid 45 is none,
which the driver logs when a process is killed, nor 43, which follows a fault of a process (NVIDIA, Xid errors)."""
EVIDENCE_LIMIT = 130
"""Characters of the line that is shown."""

_SECRETS = (
    (re.compile(r"(?i)\b(bearer|basic)([ \t]+)[A-Za-z0-9._~+/=-]{8,}"), r"\1\2***"),
    (
        re.compile(
            r"(?i)((?:password|passwd|passphrase|token|secret|api[_-]?key|access[_-]?key|credential)[\w.-]{0,60}"
            r"[\"']?(?:\s*[=:]\s*|[ \t]+(?=[\"'\[]))\[?[\"']?)[^\s\"',;\]]+"
        ),
        r"\1***",
    ),
    (re.compile(r"(://[^\s/:@\"']*:)[^\s/@\"']+(?=@)"), r"\1***"),
    (
        re.compile(
            r"\b(?:hf_|nvapi-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|AKIA|ASIA)[A-Za-z0-9_-]{8,}"
            r"|\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"
        ),
        "***",
    ),
)
_TELLING = re.compile(r"error|fatal|cannot|could not|unable|not found|no such|refused|denied|failed|no program", re.I)
_LEVEL = re.compile(r"\b(INFO|DEBUG)\b")
# What follows a cause and does not name it: vLLM's last words, and the end of other processes.
_AFTERMATH = re.compile(
    r"Engine core initialization failed|See root cause above|resource_tracker|destroy_process_group|docker run --help"
    r"|Failed core proc|[Ee]ngine process failed to start|leaked (semaphore|shared_memory)|Traceback \(most recent"
    r"|subprocess\.CalledProcessError|Received sigquit from a child|WorkerProc initialization failed|No such container"
)
_DOCKER = re.compile(r"docker: (?:Error response from daemon: )?")

# claim: serving.causes
CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), what, remedy)
    for pattern, what, remedy in (
        (
            r"sparkrack: the program of before ended with [0-9]+",
            "the program that runs before the engine failed",
            "its own lines are above in the log",
        ),
        # Of docker and the NVIDIA container toolkit: their messages, as published in reports of users.
        (
            r"unresolvable CDI devices",
            "docker gave the container no GPU",
            "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        ),
        (
            r"Using requested mode 'cdi'|invoking the NVIDIA Container Runtime Hook directly",
            "the NVIDIA container toolkit is in CDI mode and refuses `--gpus`",
            "`nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto`",
        ),
        (
            r"could not select device driver|unknown or invalid runtime name|[Uu]nknown runtime specified",
            "docker knows no runtime for the GPU",
            "`sparkrack apply --only docker`",
        ),
        (
            r"unsatisfied condition|requirement error",
            "the image wants another driver than the node has",
            "use an image for this driver, or declare driver.version",
        ),
        (
            r"nvidia-container-cli|nvidia-container-runtime|libnvidia-container",
            "the NVIDIA container toolkit failed",
            "`sparkrack verify --only docker --only driver`; restart the node",
        ),
        (
            r"executable file not found|exec: \\?\"[^\"]+\": [^:]*: no such file|the image has no (program|module) \S+",
            "the image does not have the program of the engine",
            "use an image that has it; vllm-ray needs one with Ray",
        ),
        (
            r"--list-devices names no CUDA0",
            "the engine of the image was built without CUDA, and would compute on the CPU",
            "use an image with its CUDA backend for arm64",
        ),
        (
            r"exec format error",
            "the image is of another architecture",
            "use an image for the CPU of the node (arm64)",
        ),
        (
            r"gathering device information while adding custom device",
            "the node has no device for docker to hand over",
            "`sparkrack verify --only rdma`",
        ),
        (r"the container has no (file|libcuda)\b", "the container lacks a file", "correct the option, or the image"),
        (r"The container name .* is already in use", "a container with its name is left", "`docker rm -f` it"),
        (r"No such image|Unable to find image", "docker does not have the image", "`sparkrack apply --only images`"),
        (r"Cannot connect to the Docker daemon", "docker does not run", "look at `systemctl status docker`"),
        (r"[Nn]o space left on device", "a disk or /dev/shm is full", "look at `df`; shm of the unit is /dev/shm"),
        # Of CUDA and PyTorch: their texts of the errors.
        (
            (
                r"driver version is insufficient|driver on your system is too old|forward compatibility was attempted"
                r"|unsupported display driver|CUDA_ERROR_(SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED\w*)"
            ),
            "the image wants another driver than the node has",
            "use an image for this driver, or declare driver.version",
        ),
        (
            r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|NV_ERR_NO_MEMORY",
            "the GPU's memory does not suffice",
            "lower memory, context or sequences; if it sufficed before, restart the node",
        ),
        (
            r"Free memory on device .* is less than desired|memory capacity is unbalanced",
            "less memory is free for the GPU than the engine is to take",
            "end what holds memory, or restart the node",
        ),
        (
            (
                r"No available memory for the cache blocks|KV cache is needed, which is larger than the available"
                r"|larger than the maximum number of tokens that can be stored|Not enough memory"
            ),
            "the weights leave too little room for keys and values",
            "raise memory, or lower context",
        ),
        (
            (
                r"CUDA unknown error|CUDA error: unknown error|no CUDA-capable device|No CUDA GPUs are available"
                r"|CUDA_ERROR_(UNKNOWN|NO_DEVICE|NOT_INITIALIZED|DEVICE_UNAVAILABLE)|CUDA (answers|shows) "
            ),
            "CUDA does not work in the container",
            "restart the node",
        ),
        # Of the engines.
        (
            r"unrecognized arguments|error: (argument|the following arguments|ambiguous option)",
            "the engine refuses an option",
            "is version of the unit that of the image?",
        ),
        (
            r"does not recognize this architecture|[Mm]odel architectures? .* (is|are) not supported",
            "the image is too old for the model",
            "use an image with a later release of the engine",
        ),
        (
            (
                r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"
                r"|is not a local folder and is not a valid model identifier|couldn't connect to 'https://huggingface"
            ),
            "the engine wants a file that the container does not have",
            "name no repository in args, or put the file into the model",
        ),
        (r"ModuleNotFoundError|No module named", "the image lacks a Python module", "use an image that has it"),
        (r"[Aa]ddress already in use", "a port of the unit is in use", "`ss -ltnp` names the process"),
        (
            r"ibv_\w+ (failed|.* failed with error)|ncclSystemError|ncclInternalError|ncclRemoteError|NCCL error",
            "NCCL failed between the ranks",
            "`sparkrack verify --only fabric --only rdma`; read the log of the other ranks too",
        ),
    )
)
"""Pattern of a line, what it says, and what to do. The first that matches a line counts."""
_EXITS = {
    125: ("docker did not start the container, or ended while it ran", "look at `systemctl status docker`"),
    126: ("the program of the image cannot be executed", "use an image for the CPU of the node (arm64)"),
    127: ("the image does not have the program of the engine", "use an image that has it"),
    137: ("it was killed", "`journalctl -k -b` names the memory guard or the kernel, if it was one of them"),
    139: ("it crashed (SIGSEGV)", "its log has the place"),
}


def explain(status: int | None, lines: Sequence[str]) -> str:
    """Return why a program ended, from its exit code and the lines that it printed last, and what to do; else "".

    Args:
        status: the exit code, of docker's client: 125 to 127 are docker's own. None when it is unknown.
        lines: what it printed, the oldest first.
    """
    if status in (125, 126, 127):
        begin = next((place for place, one in enumerate(lines) if one.startswith("docker: ")), None)
        lines = lines if begin is None else lines[begin:]
    candidates = [one for one in lines if not _LEVEL.search(one) and not _AFTERMATH.search(one)]
    for one in reversed(candidates):
        for pattern, what, remedy in CAUSES:
            if found := pattern.search(one):
                return f"{what} ({_shorten_evidence(one[found.start() :])}); {remedy}"
    last = next((one for one in reversed(candidates) if _TELLING.search(one)), "")
    shown = _shorten_evidence(_DOCKER.sub("", last)) if last else ""
    if status in _EXITS:
        what, remedy = _EXITS[status]
        return f"{what}{f' ({shown})' if shown else ''}; {remedy}"
    return shown


def _shorten_evidence(text: str) -> str:
    for pattern, kept in _SECRETS:
        text = pattern.sub(kept, text)
    return line(text, EVIDENCE_LIMIT)
