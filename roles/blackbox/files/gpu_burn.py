"""Load the GPU of this node for some seconds by its tensor cores, and print what it did as one JSON object.

It needs the driver alone (libcuda.so.1) and takes no memory to speak of. It refuses while another process computes on
the GPU. Whoever starts it may go away: it ends by itself.
"""

import argparse
import json
import signal
import subprocess
import sys
import threading
import time

MARGIN_SECONDS = 60
"""Seconds after which it is ended in any case, beyond the burn."""
LOOPS = 1 << 14
"""Rounds of a launch: some hundred milliseconds."""
THREADS = 256
BLOCKS_PER_PROCESSOR = 4
MULTIPROCESSOR_COUNT = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT"""
# Each warp multiplies matrices of ones and adds them up; products and sums are exact, so that every launch has the same
# result. The driver translates it for the GPU that is there.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 loops)
{
    .reg .pred p;
    .reg .b32 r<8>;
    .reg .b32 a<4>;
    .reg .b32 b<2>;
    .reg .f32 c<8>;
    .reg .b64 d<4>;
    ld.param.u64 d0, [out];
    ld.param.u32 r0, [loops];
    cvta.to.global.u64 d0, d0;
    mov.b32 a0, 0x3c003c00;
    mov.b32 a1, 0x3c003c00;
    mov.b32 a2, 0x3c003c00;
    mov.b32 a3, 0x3c003c00;
    mov.b32 b0, 0x3c003c00;
    mov.b32 b1, 0xbc003c00;
    mov.f32 c0, 0f00000000;
    mov.f32 c1, 0f00000000;
    mov.f32 c2, 0f00000000;
    mov.f32 c3, 0f00000000;
    mov.f32 c4, 0f00000000;
    mov.f32 c5, 0f00000000;
    mov.f32 c6, 0f00000000;
    mov.f32 c7, 0f00000000;
again:
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c0,c1,c2,c3}, {a0,a1,a2,a3}, {b0,b0}, {c0,c1,c2,c3};
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {c4,c5,c6,c7}, {a0,a1,a2,a3}, {b0,b1}, {c4,c5,c6,c7};
    sub.u32 r0, r0, 1;
    setp.ne.u32 p, r0, 0;
    @p bra again;
    add.f32 c0, c0, c1;
    add.f32 c2, c2, c3;
    add.f32 c4, c4, c5;
    add.f32 c6, c6, c7;
    add.f32 c0, c0, c2;
    add.f32 c4, c4, c6;
    add.f32 c0, c0, c4;
    mov.u32 r1, %ctaid.x;
    mov.u32 r2, %ntid.x;
    mov.u32 r3, %tid.x;
    mad.lo.u32 r4, r1, r2, r3;
    mul.wide.u32 d1, r4, 4;
    add.u64 d2, d0, d1;
    st.global.f32 [d2], c0;
    ret;
}
\0"""


class Absent(Exception):
    """There is no GPU that can be loaded; the text is one line."""


class Gpu:
    """The first GPU, by the driver's own interface."""

    def __init__(self):
        try:
            import ctypes

            self._c = ctypes
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except (ImportError, OSError) as fault:
            raise Absent(str(fault)) from None
        self._call("cuInit", 0)
        device, context, module, self._burn = (ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3)))
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        count = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSOR_COUNT, device)
        self._call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX))
        self._call("cuModuleGetFunction", ctypes.byref(self._burn), module, b"burn")
        self._blocks = count.value * BLOCKS_PER_PROCESSOR
        self._bytes = self._blocks * THREADS * 4
        self._out = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(self._out), ctypes.c_size_t(self._bytes))

    def launch(self):
        """Load the GPU once and return the result of every thread."""
        c = self._c
        loops = c.c_uint32(LOOPS)
        arguments = (c.c_void_p * 2)(c.addressof(self._out), c.addressof(loops))
        self._call("cuLaunchKernel", self._burn, self._blocks, 1, 1, THREADS, 1, 1, 0, None, arguments, None)
        result = c.create_string_buffer(self._bytes)
        self._call("cuMemcpyDtoH_v2", result, self._out, c.c_size_t(self._bytes))
        return result.raw

    def _call(self, name, *arguments):
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = self._c.c_char_p()
            self._cuda.cuGetErrorString(code, self._c.byref(text))
            raise Absent(f"{name}: {(text.value or b'').decode() or code}")


def smi(*words):
    """Return the lines that nvidia-smi prints."""
    try:
        done = subprocess.run(
            ("nvidia-smi", *words, "--format=csv,noheader,nounits"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise Absent(f"nvidia-smi: {fault}") from None
    if done.returncode:
        raise Absent(f"nvidia-smi: exit {done.returncode}: {(done.stderr or done.stdout).strip()[:200]}")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def sample(over, rows):
    """Append clock (MHz), temperature (C) and power (W) of the GPU to rows until it is over; None for an unknown one."""
    while not over.wait(0.5):
        try:
            line = smi("--query-gpu=clocks.sm,temperature.gpu,power.draw")[0]
        except (Absent, IndexError):
            continue
        rows.append([_number(text) for text in line.split(",")])


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def burn(seconds):
    """Load the GPU for so long and return what it did."""
    if others := smi("--query-compute-apps=pid,process_name"):
        return {"refused": f"{len(others)} processes compute on the GPU: {others[0][:100]}"}
    gpu = Gpu()
    first, launches, wrong, rows, over = gpu.launch(), 0, 0, [], threading.Event()
    sampling = threading.Thread(target=sample, args=(over, rows), daemon=True)
    sampling.start()
    began = time.monotonic()
    try:
        while time.monotonic() - began < seconds:
            wrong += gpu.launch() != first
            launches += 1
    finally:
        over.set()
    return {
        "seconds": round(time.monotonic() - began, 1),
        "launches": launches,
        "wrong": wrong,
        "samples": rows,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=int)
    seconds = parser.parse_args().seconds
    signal.alarm(seconds + MARGIN_SECONDS)
    try:
        found = burn(seconds)
    except Absent as fault:
        found = {"absent": str(fault)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
