#!/usr/bin/env python3
"""usage: scripts/check_engine_kernels.py

Compiles the engine's CUDA kernels with the NVRTC that scripts/setup.sh fetches, for both dtypes of activations and both generations of
GPUs, without warnings: no GPU is needed. Exit status: 0, 1 where one does not compile, 3 where there is no NVRTC (NOT RUN).
"""

import ctypes
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "engine/src/one_token/kernels.cu"
# As engine/src/one_token/launch.rs has them.
ARCHITECTURES = ["compute_80", "compute_90"]
DTYPES = ["ELEMENT_F32", "ELEMENT_BF16"]


def compiled(nvrtc: ctypes.CDLL, options: list[str]) -> tuple[bool, str]:
    """Whether the kernels compile, and what the compiler says."""
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), b"kernels.cu", 0, None, None) != 0:
        return False, "no program could be made"
    arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    status = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    nvrtc.nvrtcGetProgramLog(program, text)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status == 0, text.value.decode(errors="replace").strip()


def main() -> int:
    if len(sys.argv) > 1:
        print(__doc__.strip(), file=sys.stdout if sys.argv[1] in ("-h", "--help") else sys.stderr)
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "nvrtc/13"
    if not (folder / "libnvrtc.so.13").exists():
        print(f"NOT RUN: no NVRTC 13 in {folder}: run scripts/setup.sh")
        return 1 if os.environ.get("CI") else 3
    # NVRTC loads this one by its name.
    for part in folder.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.13"))
    failed = False
    for architecture in ARCHITECTURES:
        for dtype in DTYPES:
            options = [f"--gpu-architecture={architecture}", f"-D{dtype}", "--std=c++17"]
            good, text = compiled(nvrtc, options)
            print(f"{architecture}, {dtype}: {'compiles' if good and not text else 'FAILED'}")
            if not good or text:
                print(text)
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
