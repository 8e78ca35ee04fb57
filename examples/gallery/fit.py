"""A polynomial through noisy data by least squares, struck by one flipped bit, without protection and with it.

Usage: fit.py FOLDER     writes FOLDER/fit.svg
The bit is one of a factor of the QR factorization. Exit status 1 unless the fault moves the first curve and the second equals the clean one.
"""

import struck  # first: it chooses the extension

import matplotlib.pyplot as plt
import numpy as np

from ballast import linalg

# A bit of the exponent of a scalar factor (tau) of a reflector.
FAULT = "site=qr.tau,model=bit_flip,bit=54,seed=2"


def main():
    folder = struck.folder()
    x = np.linspace(-1, 1, 60)
    powers = np.vander(x, 6, increasing=True)
    y = np.sin(3 * x) + 0.1 * np.random.default_rng(1).standard_normal(60)
    clean, off, on, report = struck.three_runs(lambda: linalg.lstsq(powers, y).x, FAULT)

    moved = np.abs(powers @ (off - clean)).max()
    # A column that was corrected and not computed again differs by rounding.
    right = np.abs(powers @ (on - clean)).max() <= 60 * 6 * np.finfo(float).eps * np.abs(y).max()
    print(f"protection off: the curve is wrong by up to {moved:.2f}; on: {report.verdict}, "
          f"{'the curve of the clean run' if right else 'NOT the curve of the clean run'}")

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    rows = ((off, f"protection off: wrong by up to {moved:.2f}", struck.RED), (on, f"protection on: {report.verdict}", struck.GREEN))
    for place, (coefficients, title, colour) in zip(axes, rows):
        place.plot(x, y, ".", color=struck.GREY, markersize=4, label="data")
        place.plot(x, powers @ clean, color="0.7", linewidth=5, label="clean run")
        place.plot(x, powers @ coefficients, color=colour, linewidth=1.5, label="struck")
        place.set_title(title, loc="left", color=colour, fontweight="bold")
        place.set_xlabel("x")
        place.legend(frameon=False)
    figure.tight_layout()
    struck.save(figure, folder / "fit.svg")
    return 0 if moved > 0.1 and right else 1


if __name__ == "__main__":
    raise SystemExit(main())
