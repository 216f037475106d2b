#!/usr/bin/python3
"""What CUDA reports of this node, as one line of JSON: {"driver", "integrated", "free"}.

    serve_cuda.py

`driver`: the release of CUDA that the driver has, such as 13000 for 13.0. `integrated`: whether the GPU uses the memory
of the machine. `free`: bytes that CUDA reports free. A process of its own: a driver that hangs must not hang the gate,
and the context, which takes memory, ends with it. Exit codes: 0 done, 1 CUDA fails, 3 the node has no libcuda.so.1;
the reason is on stderr.
"""

from __future__ import annotations

import ctypes
import json
import sys

NO_LIBRARY = 3
INTEGRATED = 18
"""CU_DEVICE_ATTRIBUTE_INTEGRATED of cuda.h."""


class CudaError(Exception):
    """A call of CUDA that failed."""


def check(library: ctypes.CDLL, call: str, *arguments: object) -> None:
    """Call a function. Raises CudaError with its name and that of the error."""
    if code := getattr(library, call)(*arguments):
        name = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(name))
        raise CudaError(f"{call} fails with {code} ({(name.value or b'unknown').decode()})")


def ask(library: ctypes.CDLL) -> dict[str, int]:
    """Return what CUDA reports of the first GPU. Raises CudaError."""
    driver, device, integrated = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    check(library, "cuInit", 0)
    check(library, "cuDriverGetVersion", ctypes.byref(driver))
    check(library, "cuDeviceGet", ctypes.byref(device), 0)
    check(library, "cuDeviceGetAttribute", ctypes.byref(integrated), INTEGRATED, device)
    check(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    check(library, "cuCtxSetCurrent", context)
    # With _v2 in its name: without it sizes have 32 bits (cuda.h maps the one to the other).
    check(library, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return {"driver": driver.value, "integrated": integrated.value, "free": free.value}


def main() -> int:
    """Run the program. Returns its exit code."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(error, file=sys.stderr)
        return NO_LIBRARY
    try:
        print(json.dumps(ask(library)))
    except (CudaError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
