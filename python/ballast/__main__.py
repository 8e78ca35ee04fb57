"""python -m ballast: runs a program over Ballast, describes the machine, shows faults being repaired.

python -m ballast run [--report FILE] (SCRIPT | -m MODULE) [ARGUMENTS…]
python -m ballast info
python -m ballast demo
"""

import json
import runpy
import sys

import ballast


def _run(arguments):
    from ._forward import forwarded, protected_calls

    file = None
    if arguments[:1] == ["--report"]:
        if len(arguments) < 2:
            sys.exit("ballast run: --report needs a file")
        file, arguments = arguments[1], arguments[2:]
    module = arguments[:1] == ["-m"]
    if module:
        arguments = arguments[1:]
    if not arguments:
        sys.exit(__doc__)
    ballast.install()
    sys.argv = arguments
    try:
        if module:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        else:
            import os

            sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        if file is not None:
            handed_on = [{"function": name, "reason": why, "calls": count} for (name, why), count in sorted(forwarded().items())]
            with open(file, "w") as to:
                json.dump({"protected": protected_calls(), "forwarded": handed_on}, to, indent=1)
                to.write("\n")


def _info():
    import importlib.metadata

    seen = ballast.info()
    print(f"ballast {seen['version']}, backends {', '.join(seen['backends'])}")
    print(f"processor: {seen['simd']}, {seen['threads']} threads; BLAS: {seen['blas']}")
    if seen["better_blas_kernels"]:
        print(f"  OpenBLAS does not know this processor: OPENBLAS_CORETYPE={seen['better_blas_kernels']} is faster")
    for number, device in enumerate(seen["devices"]):
        print(f"device {number}: {device['name']}, compute capability {device['compute_capability']}, {device['memory'] >> 20} MiB")
    if seen["cuda"]["unavailable"]:
        print(f"CUDA: {seen['cuda']['unavailable']}")
    elif seen["cuda"]["without_compiler"]:
        print(f"CUDA compiler: {seen['cuda']['without_compiler']}; pip install nvidia-cuda-nvrtc")
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed: pip install {name}")


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "run":
        _run(arguments)
    elif command == "info" and not arguments:
        _info()
    elif command == "demo" and not arguments:
        from ._demo import demo

        sys.exit(demo())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
