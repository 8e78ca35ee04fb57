"""Times Ballast from Python beside the libraries that people use. Writes a table in Markdown.

Usage: compare.py [--device cpu|cuda | --overhead] [--one] [--out FILE] [--commit HASH] [--only WORD]
--overhead: what one call of 8 points on the host costs beside the library's own time, from NumPy, PyTorch and JAX. Processor time of the
calling thread, the least of 80 rounds that all calls share: other work on the machine counts little.
Rivals are those that are installed: NumPy, SciPy, DUCC (ducc0), pyFFTW, mkl_fft, PyTorch, scikit-learn, its extension by Intel (sklearnex); on a
device PyTorch and CuPy, for pivoting SciPy on the host with all of its threads; where PyTorch has no such function, the way that its users
write by hand (the cosine transform by a complex transform of the same length, Lloyd's iterations by products). Every call of a row runs in the same rounds, one after the other, and the number is the median over the rounds. Threads: as
many for each as it takes by itself; SciPy and DUCC, which take one by themselves, get all, and so does pyFFTW from 65536 numbers. pyFFTW: its
functions in NumPy's manner (interfaces), with their default effort of planning and their cache of plans.
--one: all on one thread, and the number is the calling thread's processor time, the least of 25 short rounds: other work on the machine counts
little. It is for `taskset -c 0`, because some libraries take as many threads as the process has processors.
"""

import argparse
import datetime
import importlib
import os
import platform
import statistics
import sys
import time
import warnings

import numpy as np

import ballast

ROUNDS, SECONDS = 15, 0.02  # rounds, and seconds of one round of one call, at least
SHORT_ROUNDS, SHORT_SECONDS = 25, 0.002
one = False


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def timed(calls, wait):
    """The median seconds of each of `calls`, a dict by name. "off" runs with protection off."""

    def seconds(name, count):
        with ballast.protection("off" if name == "off" else None, threads=1 if one else None):
            start = clock()
            for _ in range(count):
                calls[name]()
            wait()
            return (clock() - start) / count

    clock = time.thread_time if one else time.perf_counter

    repeats = {}
    for name in calls:
        seconds(name, 1)
        once = min(seconds(name, 1) for _ in range(3))
        repeats[name] = max(1, min(20000, int((SHORT_SECONDS if one else SECONDS) / max(once, 1e-7))))
    seen = {name: [] for name in calls}
    for _ in range(SHORT_ROUNDS if one else ROUNDS):
        for name, count in repeats.items():
            seen[name].append(seconds(name, count))
    return {name: (min if one else statistics.median)(each) for name, each in seen.items()}


def rng_data(shape, dtype):
    rng = np.random.default_rng(0)
    made = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


FFTS = [("fft", shape, dtype) for dtype in ("complex64", "complex128") for shape in
        ((8,), (64,), (1024,), (10007,), (1 << 16,), (1 << 20,), (1000, 64), (4096, 64), (1024, 1024), (64, 16384))]
FFTS += [("rfft", shape, dtype) for dtype in ("float32", "float64") for shape in ((1024,), (1 << 16,), (1024, 1024))]
FFTS += [("fft2", (512, 512), "complex64"), ("fftn", (64, 64, 64), "complex64"), ("fft2", (512, 512), "complex128")]
QRS = [((8, 8), "float64"), ((100, 10), "float64"), ((1000, 50), "float64"), ((500, 500), "float64"), ((20000, 64), "float64"), ((64, 32, 32), "float64"),
       ((1000, 50), "float32")]
LSTSQS = [((100, 10), "float64"), ((1000, 50), "float64"), ((20000, 64), "float64"), ((1000, 50), "float32")]
DCTS = [((4096, 512), "float32"), ((4096, 512), "float64"), ((256, 16384), "float32")]
PIVOTED = [((1024, 1024), "float64"), ((4096, 4096), "float64")]
DEVICE_KMEANS = [((1 << 20, 64), 64, each) for each in ("float32", "float16", "bfloat16")]
KMEANS = [("digits", 10, "float64"), ((10000, 16), 64, "float32"), ((100000, 32), 100, "float32")]


def host_rows(only):
    scipy_fft, ducc, pyfftw, mkl, torch = map(optional, ("scipy.fft", "ducc0.fft", "pyfftw.interfaces", "mkl_fft", "torch"))
    scipy_linalg, cluster, intel = map(optional, ("scipy.linalg", "sklearn.cluster", "sklearnex.cluster"))
    mine = optional("ballast.sklearn") if cluster else None
    cores = len(os.sched_getaffinity(0))
    nothing = lambda: None
    for name, shape, dtype in FFTS:
        row = f"{name} {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        x = rng_data(shape, dtype)
        call = getattr(ballast.fft, name)
        calls = {"Ballast": lambda: call(x), "off": lambda: call(x), "NumPy": lambda: getattr(np.fft, name)(x)}
        if scipy_fft:
            calls["SciPy"] = lambda: getattr(scipy_fft, name)(x, workers=cores)
        axes = {"fft": (-1,), "rfft": (-1,), "fft2": (-2, -1), "fftn": tuple(range(x.ndim))}[name]
        if ducc:
            transform = ducc.r2c if name == "rfft" else ducc.c2c
            calls["DUCC"] = lambda: transform(x, axes=axes, nthreads=cores)
        if pyfftw:
            pyfftw.cache.enable()
            pyfftw.cache.set_keepalive_time(600)
            crew = cores if x.size >= 1 << 16 else 1
            calls["pyFFTW"] = lambda: getattr(pyfftw.numpy_fft, name)(x, threads=crew)
        if mkl:
            calls["mkl_fft"] = lambda: getattr(mkl, name)(x)
        if torch:
            t = torch.from_numpy(x)
            calls["PyTorch"] = lambda: getattr(torch.fft, name)(t)
        yield row, timed(calls, nothing)
    for shape, dtype in QRS:
        row = f"qr {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        a = rng_data(shape, dtype)
        calls = {"Ballast": lambda: ballast.linalg.qr(a), "off": lambda: ballast.linalg.qr(a), "NumPy": lambda: np.linalg.qr(a)}
        if scipy_linalg and a.ndim == 2:
            calls["SciPy"] = lambda: scipy_linalg.qr(a, mode="economic")
        if torch:
            t = torch.from_numpy(a)
            calls["PyTorch"] = lambda: torch.linalg.qr(t)
        yield row, timed(calls, nothing)
    for shape, dtype in LSTSQS:
        row = f"lstsq {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        a, b = rng_data(shape, dtype), rng_data(shape[0], dtype)
        calls = {"Ballast": lambda: ballast.linalg.lstsq(a, b), "off": lambda: ballast.linalg.lstsq(a, b),
                 "NumPy": lambda: np.linalg.lstsq(a, b)}
        if scipy_linalg:
            calls["SciPy"] = lambda: scipy_linalg.lstsq(a, b)
        if torch:
            t, u = torch.from_numpy(a), torch.from_numpy(b)[:, None]
            calls["PyTorch"] = lambda: torch.linalg.lstsq(t, u)
        yield row, timed(calls, nothing)
    if mine is None:
        return
    warnings.simplefilter("ignore")
    for shape, k, dtype in KMEANS:
        row = f"KMeans {shape if isinstance(shape, str) else '×'.join(map(str, shape))}, k {k}, {dtype}, 20 iterations from given centroids"
        if only not in row:
            continue
        x = importlib.import_module("sklearn.datasets").load_digits().data.astype(dtype) if shape == "digits" else rng_data(shape, dtype)
        first = x[:: len(x) // k][:k]
        how = {"n_clusters": k, "init": first, "n_init": 1, "max_iter": 20, "tol": 0}
        fit = lambda: mine.KMeans(**how).fit(x)
        calls = {"Ballast": fit, "off": fit, "scikit-learn": lambda: cluster.KMeans(**how).fit(x)}
        if intel:
            calls["sklearnex"] = lambda: intel.KMeans(**how).fit(x)
        yield row, timed(calls, nothing)


def device_rows(only):
    import torch

    cupy = optional("cupy")
    import ballast.torch as operators

    def wait():
        torch.cuda.synchronize()
        if cupy:
            cupy.cuda.get_current_stream().synchronize()

    for name, shape, dtype in FFTS:
        row = f"{name} {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        x = rng_data(shape, dtype)
        t = torch.from_numpy(x).cuda()
        mine, operator = getattr(ballast.fft, name), getattr(operators, name)
        calls = {"Ballast": lambda: mine(t), "operator": lambda: operator(t), "off": lambda: mine(t),
                 "PyTorch": lambda: getattr(torch.fft, name)(t)}
        if cupy:
            c = cupy.asarray(x)
            calls["CuPy"] = lambda: getattr(cupy.fft, name)(c)
        yield row, timed(calls, wait)
    for shape, dtype in QRS + [((4096, 4096), "float32"), ((1000000, 32), "float64")]:
        row = f"qr {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        t = torch.from_numpy(rng_data(shape, dtype)).cuda()
        calls = {"Ballast": lambda: ballast.linalg.qr(t), "operator": lambda: operators.qr(t), "off": lambda: ballast.linalg.qr(t),
                 "PyTorch": lambda: torch.linalg.qr(t)}
        yield row, timed(calls, wait)
    for shape, dtype in LSTSQS:
        row = f"lstsq {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        t, u = torch.from_numpy(rng_data(shape, dtype)).cuda(), torch.from_numpy(rng_data((shape[0], 1), dtype)).cuda()
        calls = {"Ballast": lambda: ballast.linalg.lstsq(t, u), "off": lambda: ballast.linalg.lstsq(t, u),
                 "PyTorch": lambda: torch.linalg.lstsq(t, u)}
        yield row, timed(calls, wait)


    for shape, dtype in DCTS:
        row = f"dct {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        t = torch.from_numpy(rng_data(shape, dtype)).cuda()
        n = shape[1]
        turns = 2 * torch.exp(torch.arange(n, device="cuda", dtype=t.dtype) * (-0.5j * np.pi / n))
        by_hand = lambda: (torch.fft.fft(torch.cat([t[:, ::2], t[:, 1::2].flip(1)], 1)) * turns).real
        assert torch.allclose(by_hand(), ballast.fft.dct(t), atol=1e-5 * n, rtol=0)
        calls = {"Ballast": lambda: ballast.fft.dct(t), "off": lambda: ballast.fft.dct(t), "PyTorch": by_hand}
        yield row, timed(calls, wait)
    scipy_linalg = optional("scipy.linalg")
    for shape, dtype in PIVOTED if scipy_linalg else ():
        row = f"qr with pivoting {'×'.join(map(str, shape))} {dtype}"
        if only not in row:
            continue
        a = rng_data(shape, dtype)
        t = torch.from_numpy(a).cuda()
        calls = {"Ballast": lambda: ballast.linalg.qr(t, mode="r", pivoting=True), "off": lambda: ballast.linalg.qr(t, mode="r", pivoting=True),
                 "SciPy": lambda: scipy_linalg.qr(a, mode="r", pivoting=True)}
        yield row, timed(calls, wait)
    mine = optional("ballast.sklearn") if optional("sklearn") else None
    for shape, k, dtype in DEVICE_KMEANS if mine else ():
        row = f"KMeans {'×'.join(map(str, shape))}, k {k}, {dtype}, 20 iterations from given centroids"
        if only not in row:
            continue
        points = torch.from_numpy(rng_data(shape, "float32")).cuda().to(getattr(torch, dtype))
        first = points[:: len(points) // k][:k]
        start = first.float().cpu().numpy()

        def lloyd(points=points, first=first):
            centroids = first
            for _ in range(20):
                labels = ((centroids.float() ** 2).sum(1) / 2 - (points @ centroids.T)).argmin(1)
                counts = torch.bincount(labels, minlength=len(centroids)).clamp(min=1)
                sums = torch.zeros(centroids.shape, device="cuda").index_add_(0, labels, points.float())
                centroids = (sums / counts[:, None]).to(points.dtype)
            return labels, centroids

        fit = lambda: mine.KMeans(n_clusters=k, init=start, n_init=1, max_iter=20, tol=0).fit(points)
        yield row, timed({"Ballast": fit, "off": fit, "PyTorch": lloyd}, wait)


def overhead_calls():
    """(name, Ballast's call, the rival's call)."""
    torch, jax = optional("torch"), optional("jax")
    z, m = rng_data((8,), "complex128"), rng_data((4, 4), "complex128")
    yield ("ballast.fft.fft, NumPy", lambda: ballast.fft.fft(z), lambda: np.fft.fft(z))
    yield ("ballast.fft.fft2, NumPy", lambda: ballast.fft.fft2(m), lambda: np.fft.fft2(m))
    if torch:
        import ballast.torch as operators

        torch.set_num_threads(1)
        t, u, r = torch.from_numpy(z), torch.from_numpy(m), torch.from_numpy(z.real.copy())
        g = t.clone().requires_grad_()
        yield ("ballast.fft.fft, PyTorch", lambda: ballast.fft.fft(t), lambda: torch.fft.fft(t))
        yield ("ballast.torch.fft", lambda: operators.fft(t), lambda: torch.fft.fft(t))
        yield ("ballast.torch.rfft", lambda: operators.rfft(r), lambda: torch.fft.rfft(r))
        yield ("ballast.torch.fft2", lambda: operators.fft2(u), lambda: torch.fft.fft2(u))
        yield ("ballast.torch.fft, gradient wanted", lambda: operators.fft(g), lambda: torch.fft.fft(g))
        yield ("torch.ops.ballast.fft_c2c", lambda: torch.ops.ballast.fft_c2c(t, [-1], 0, True), lambda: torch.fft.fft(t))
    if jax and hasattr(ballast._core, "jax_handlers"):
        import ballast.jax as programs

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_cpu_enable_async_dispatch", False)  # in the calling thread, whose time is measured
        mine, theirs, x = jax.jit(programs.fft), jax.jit(jax.numpy.fft.fft), jax.numpy.asarray(z)
        yield ("jax.jit(ballast.jax.fft)", lambda: mine(x), lambda: theirs(x))


def overhead(only):
    calls = [each for each in overhead_calls() if only in each[0]]
    whole, library, rival = ([float("inf")] * len(calls) for _ in range(3))

    def seconds(call):
        start = time.thread_time()
        for _ in range(300):
            call()
        return (time.thread_time() - start) / 300

    with ballast.protection(threads=1):
        for _ in range(80):
            for i, (_, mine, theirs) in enumerate(calls):
                whole[i], rival[i] = min(whole[i], seconds(mine)), min(rival[i], seconds(theirs))
                ballast.last_report()  # JAX's is that of all calls since
                for _ in range(20):
                    mine()
                    library[i] = min(library[i], ballast.last_report().seconds)
    lines = ["| call | whole | in the library | beside it | rival's call |", "|---|---:|---:|---:|---:|"]
    for (name, *_), each, inside, theirs in zip(calls, whole, library, rival):
        lines.append(f"| {name} | {shown(each)} | {shown(inside)} | {shown(each - inside)} | {shown(theirs)} |")
    return lines


def shown(seconds):
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def comparison(of, device, only):
    """The lines of the table of the rows that `of` yields."""
    rows = []
    for row, times in of(only):
        rows.append((row, times))
        print(row, {name: shown(each) for name, each in times.items()}, flush=True)
    rivals = list(dict.fromkeys(name for _, times in rows for name in times if name not in ("Ballast", "operator", "off")))
    columns = ["Ballast", *(["operator"] if device == "cuda" else []), "off", *rivals]
    lines = ["| call | " + " | ".join(columns) + " | best rival / Ballast |", "|---|" + "---:|" * (len(columns) + 1)]
    ratios = []
    for row, times in rows:
        ratio = min(times[name] for name in rivals if name in times) / times["Ballast"]
        ratios.append(ratio)
        lines.append(f"| {row} | " + " | ".join(shown(times[name]) if name in times else "" for name in columns) + f" | {ratio:.2f} |")
    if ratios:
        lines += ["", f"Geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f} over {len(ratios)} calls; below 1: {sum(r < 1 for r in ratios)}."]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--one", action="store_true", help="one thread, by its processor time")
    parser.add_argument("--out")
    parser.add_argument("--commit", default="")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    wanted = parser.parse_args()
    global one
    one = wanted.one
    if one and len(os.sched_getaffinity(0)) > 1:
        parser.error("--one: expected one processor, as under `taskset -c 0`, got several")
    versions = []
    for name in ("numpy", "scipy", "ducc0", "pyfftw", "mkl_fft", "sklearn", "sklearnex", "torch", "cupy", *(["jax"] if wanted.overhead else [])):
        module = sys.modules.get(name) or optional(name)
        if module is not None:
            versions.append(f"{name} {getattr(module, '__version__', '')}".strip())
    seen = ballast.info()
    hardware = seen["devices"][0]["name"] if wanted.device == "cuda" else f"{seen['simd']}, {seen['threads']} threads, {platform.processor() or platform.machine()}"
    lines = [f"{hardware}; ballast {ballast.__version__} {wanted.commit}, {', '.join(versions)}; BLAS {seen['blas']}; {datetime.date.today()}.", ""]
    lines += overhead(wanted.only) if wanted.overhead else comparison(device_rows if wanted.device == "cuda" else host_rows, wanted.device, wanted.only)
    text = "\n".join(lines) + "\n"
    if wanted.out:
        with open(wanted.out, "w") as to:
            to.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
