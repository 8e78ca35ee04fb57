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
        print(f"CUDA compiler: {seen['cuda']['without_compiler']}; pip install 'ballast-ecc[cuda{_cuda(seen)}]'")
    for names, serves in _OTHERS:
        found = next((name for name in names if _version(name)), None)
        print(f"{found} {_version(found)}" if found else f"{names[0]} is not installed ({serves}): pip install {_command(names[0], seen)}")
    if _version("jax") and not hasattr(ballast._core, "jax_handlers"):
        print("  ballast.jax: its handlers are not in this build: pip install ./python -C cmake.define.BALLAST_XLA_INCLUDE=\"$(python -c 'import "
              "jax; print(jax.ffi.include_dir())')\"")


# Packages that work with this one, by the names of their distributions, and what each serves.
_OTHERS = (
    (("numpy",), "everything"),
    (("scipy",), "ballast.scipy_fft, MiniBatchKMeans"),
    (("scikit-learn",), "ballast.sklearn"),
    (("torch",), "ballast.torch, tensors"),
    (("jax",), "ballast.jax"),
    (("cupy-cuda12x", "cupy-cuda13x", "cupy"), "arrays of a GPU without PyTorch"),
)


def _command(name, seen):
    return name.replace("12x", f"{_cuda(seen)}x")


def _cuda(seen):
    """The CUDA release whose packages fit the driver: 12, or 13 where the driver has it."""
    return 13 if int(seen["cuda"]["driver"].partition(".")[0] or 12) >= 13 else 12


def _version(name):
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


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
