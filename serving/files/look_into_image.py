"""What runs in a container of an image, to see what the image has.

Its words are program:NAME, module:NAME, file:PATH, cuda; settings:PATH, which prints the lines of a file of the image;
and nccl, which prints the version of its NCCL and its build: the one of the pip wheel, which torch takes first, or that
of the system. NCCL tells it without a GPU.
"""

import importlib.util
import shutil
import sys
from pathlib import Path

for word in sys.argv[1:]:
    kind, _, name = word.partition(":")
    if kind == "program" and not shutil.which(name):
        sys.exit("the image has no program " + name)
    if kind == "module" and importlib.util.find_spec(name) is None:
        sys.exit("the image has no module " + name)
    if kind == "file" and not Path(name).exists():
        sys.exit("the container has no file " + name)
    if kind == "settings" and Path(name).is_file():
        with Path(name).open(errors="replace") as file:
            print("".join(f"{name}: {one.strip()}\n" for one in file if one.strip() and one[0] != "#"), end="")
    if kind == "nccl":
        try:
            import ctypes
        except ImportError:
            continue
        number, found = ctypes.c_int(), importlib.util.find_spec("nvidia")
        wheels = [one + "/nccl/lib/libnccl.so.2" for one in ((found and found.submodule_search_locations) or ())]
        for path, build in [(one, "wheel") for one in wheels if Path(one).exists()] + [("libnccl.so.2", "system")]:
            try:
                if not ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)):
                    # 2.28.9 is 22809 (NCCL_VERSION of nccl.h since 2.9).
                    code = number.value
                    print(f"nccl: {code // 10000}.{code // 100 % 100}.{code % 100} {build}")
                    break
            except (OSError, AttributeError):
                continue
    if kind == "cuda":
        import ctypes

        try:
            library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            sys.exit("the container has no libcuda.so.1: its runtime gave it no driver")
        count, text = ctypes.c_int(), ctypes.c_char_p()
        code = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
        if code:
            library.cuGetErrorName(code, ctypes.byref(text))
            sys.exit(f"CUDA answers {code} ({(text.value or b'unknown').decode()})")
        if not count.value:
            sys.exit("CUDA shows no GPU")
