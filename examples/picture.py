#!/usr/bin/env python3
"""Draws the picture of the README: the spectrum of the sunspot numbers, struck by one flipped bit, without protection and with it.

Usage: picture.py PATH_OF_BALLAST [OUT.svg]     (default: docs/images/sunspots.svg; needs python3-matplotlib)
Runs the `ballast` command three times on examples/data/sunspots.csv: clean; with the fault and protection off; with the fault and protection
on. Draws nothing, with exit status 1, unless the fault moved the strongest cycle of the second result and the third equals the
first bit by bit.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "examples/data/sunspots.csv"
YEARS = 309
# Bit 55 of a double is a bit of the exponent: the flip multiplies or divides one number inside a stage of the FFT by 2^8.
FAULT = "site=fft.stage,model=bit_flip,bit=55,seed=2"


def run(ballast, *more):
    """The JSON object and the spectrum as the command wrote it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "spectrum.csv"
        command = [ballast, "fft", str(DATA), "--real", "-o", str(out), "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout), out.read_text()


def strengths(text):
    """|X_k| over the period in years, k from 1."""
    values = [complex(field) for line in text.split() for field in line.split(",")]
    return [(YEARS / k, abs(value)) for k, value in enumerate(values) if k > 0]


def says(axes, point, colour):
    axes.plot(*[[each] for each in point], "o", color=colour, markersize=5)
    axes.annotate(f"{point[0]:.1f} years", point, textcoords="offset points", xytext=(10, 0), color=colour, fontsize=11, fontweight="bold",
                  verticalalignment="center")


def draw(axes, points, colour, title, counts):
    axes.plot(*zip(*points), color=colour, linewidth=1.5)
    says(axes, max(points, key=lambda each: each[1]), colour)
    axes.set_title(title, fontsize=11.5, loc="left", fontweight="bold", pad=22)
    axes.text(0, 1.035, counts, transform=axes.transAxes, fontsize=9, color="0.25")
    axes.set_xscale("log")
    axes.set_xlim(2, 104)
    axes.set_xticks([2, 5, 11, 20, 50, 100], ["2", "5", "11", "20", "50", "100"])
    axes.minorticks_off()
    axes.set_xlabel("period of the cycle, years (sunspots from 1700 to 2008)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    ballast = sys.argv[1]
    out = Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT / "docs/images/sunspots.svg"
    _, clean = run(ballast)
    broken_said, broken = run(ballast, "--protect", "off", "--inject", FAULT)
    repaired_said, repaired = run(ballast, "--protect", "correct", "--inject", FAULT)
    strongest = [max(strengths(each), key=lambda point: point[1])[0] for each in (broken, clean)]
    if strongest[0] == strongest[1] or repaired != clean or repaired_said["report"]["detected"] == 0:
        print("the fault did not move the strongest cycle of the unprotected result, or the protected result is not the clean one", file=sys.stderr)
        return 1

    plt.rcParams.update({"svg.hashsalt": "ballast", "font.family": "DejaVu Sans", "font.size": 9.5, "axes.edgecolor": "0.4"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.2), sharey=True, layout="constrained")
    seen, kept = broken_said["report"], repaired_said["report"]
    draw(left, strengths(broken), "#c0392b", "One flipped bit, protection off",
         f"checks: {seen['checks']}, faults detected: {seen['detected']}. The strongest cycle is wrong.")
    draw(right, strengths(repaired), "#1e7d4f", "The same flipped bit, protection on",
         f"checks: {kept['checks']}, faults detected: {kept['detected']}, {repaired_said['verdict']}. Same bits as a clean run.")
    left.set_ylabel("strength of the cycle")
    left.set_ylim(0, 1.1 * max(each for _, each in strengths(broken)))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="svg", metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
