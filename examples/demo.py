#!/usr/bin/env python3
"""Three real computations, struck by faults: without protection the answer is wrong and nobody says so; with it, it is repaired.

Usage: demo.py PATH_OF_BALLAST
Runs the `ballast` command on Fisher's iris, the yearly sunspot numbers and Longley's regression data, each clean, then with single faults at
several places of the computation, with protection off and on. Exit status 0 only if every fault changed an unprotected answer and no protected one.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"


def fault(place, model="bit_flip", seed=1, bit=62, visit=0):
    chosen = f",bit={bit}" if model == "bit_flip" else ""
    return f"site={place},model={model}{chosen},seed={seed},visit={visit}"


# The computations, the sentence that a person reads off each result, and the faults. A flip of bit 62 of a double (or the bit as far from the top of a smaller word)
# is the worst single flip there is: it changes the exponent by hundreds. K-Means heals a wrong step by its later iterations, so there the faults
# strike the last ones; "last" stands for the number of the last iteration of the clean run.
COMPUTATIONS = [
    {
        "name": "iris",
        "question": "150 flowers in 3 clusters",
        "command": ["kmeans", DATA / "iris.csv", "-k", "3", "--seed", "3"],
        "output": "--labels",
        "element": "label of flower",
        "answer": lambda out: "inertia " + number(out["inertia"]) + ", clusters of " + "/".join(map(str, sorted(out["sizes"]))),
        "faults": [
            fault("kmeans.sum", seed=2, visit="last"),
            fault("kmeans.count", "zero", visit="last"),
            fault("kmeans.centroid", seed=5, visit="last"),
            fault("kmeans.shift", "zero"),
        ],
    },
    {
        "name": "sunspots",
        "question": "the solar cycle, from 309 years",
        "command": ["fft", DATA / "sunspots.csv", "--real"],
        "output": "-o",
        "element": "spectrum at frequency",
        "answer": lambda out: "cycle of " + number(out["peak"]["period"]) + " years, strength " + number(out["peak"]["magnitude"]),
        "faults": [fault("fft.input"), fault("fft.stage"), fault("fft.twiddle", "random_value"), fault("fft.output", "nan", seed=3)],
    },
    {
        "name": "Longley",
        "question": "employment against six causes",
        "command": ["lstsq", DATA / "longley-a.csv", DATA / "longley-b.csv"],
        "output": "-o",
        "element": "coefficient",
        "answer": lambda out: "trend " + number(out["x"][0][6]) + " a year, residual " + number(out["residual"][0]),
        "faults": [fault("qr.panel"), fault("qr.tau", bit=52), fault("qr.trailing"), fault("qr.reflector")],
    },
]


def number(value):
    return value if isinstance(value, str) else f"{value:.6g}"


def run(ballast, computation, folder, *more):
    """The JSON object and the output file's text (None if there is no output)."""
    out = folder / "out.csv"
    out.unlink(missing_ok=True)
    command = [ballast, *computation["command"], computation["output"], out, "--json", *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout), out.read_text() if out.exists() else None


def values(text):
    return [complex(field) for line in text.split() for field in line.split(",")]


def difference(x, y):
    """|x − y|; infinite where it is no number, or too large for one."""
    try:
        size = abs(x - y)
    except OverflowError:
        return math.inf
    return size if math.isfinite(size) else math.inf


def same(text, clean):
    """Equal to the clean run but for rounding: 1e-9 of the largest value (repair sums in another order)."""
    if text is None:
        return False
    a, b = values(text), values(clean)
    size = max(map(abs, b))
    return len(a) == len(b) and all(difference(x, y) <= 1e-9 * size for x, y in zip(a, b))


def wrong_figure(computation, text, clean):
    """The element of the output that is farthest from the clean run's, with both values."""
    a, b = values(text), values(clean)
    at = max(range(len(b)), key=lambda i: difference(a[i], b[i]))
    show = lambda x: f"{x:.6g}" if x.imag or "j" in text else f"{x.real:.6g}"
    return f"{computation['element']} {at} is {show(a[at])}, should be {show(b[at])}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ballast = sys.argv[1]
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for computation in COMPUTATIONS:
            seen, clean = run(ballast, computation, folder)
            print(f"\n{computation['name']}: {computation['question']}")
            print(f"  clean                              {computation['answer'](seen)}   [{seen['verdict']}, {seen['report']['checks']} checks]")
            if seen["verdict"] != "clean":
                failures.append(f"{computation['name']}: the clean run was not clean")
            for struck in computation["faults"]:
                struck = struck.replace("last", str(seen.get("iterations", 1) - 1))
                place = struck.split(",")[0].removeprefix("site=")
                model = struck.split("model=")[1].split(",")[0]
                off, off_text = run(ballast, computation, folder, "--inject", struck, "--protect", "off")
                on, on_text = run(ballast, computation, folder, "--inject", struck)
                found = "; ".join(f"{e['action']} at {e['site']}" + (f"[{e['index']}]" if e["index"] >= 0 else "") for e in on["report"]["events"][:2])
                print(f"  {model} in {place}")
                wrong, right = not same(off_text, clean), same(on_text, clean)
                figure = f"; {wrong_figure(computation, off_text, clean)}" if wrong else ""
                print(f"    protection off                   {computation['answer'](off)}{figure}")
                answer = computation["answer"](on) if on["verdict"] != "uncorrectable" else "no output"
                print(f"    protection on                    {answer}   [{on['verdict']}: {found}]")
                if not wrong:
                    failures.append(f"{place}: the fault did not change the unprotected result")
                if not right or on["verdict"] not in ("corrected", "recomputed"):
                    failures.append(f"{place}: the protected run was {on['verdict']}, result {'right' if right else 'WRONG'}")
                rows.append((computation["name"], f"{model} in {place}", "WRONG, unnoticed" if wrong else "same", on["verdict"], "as clean" if right else "WRONG"))
    head = ("computation", "fault", "protection off", "protection on", "result")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    line = "  ".join("-" * width for width in widths)
    print("\n" + "  ".join(text.ljust(width) for text, width in zip(head, widths)) + "\n" + line)
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)))
    print(line)
    wrong = sum(row[2] != "same" for row in rows)
    right = sum(row[4] == "as clean" for row in rows)
    print(f"{len(rows)} faults: without protection {wrong} wrong answers and no word about them; with protection {right} right answers, every fault reported.")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
