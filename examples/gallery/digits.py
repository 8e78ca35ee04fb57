"""Handwritten digits in ten clusters, struck by one flipped bit, without protection and with it.

Usage: digits.py FOLDER     writes FOLDER/digits.svg
The bit is one of a centroid that waits for the next iteration. Exit status 1 unless the fault changes the first clustering and the second
equals the clean one.
"""

import struck  # first: it chooses the extension

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from ballast.sklearn import KMeans

# Bit 62 is the highest of a double's exponent: the flip moves a coordinate of a centroid out of reach of every point.
FAULT = "site=kmeans.centroid,model=bit_flip,bit=62,seed=3"


def main():
    folder = struck.folder()
    data = load_digits()
    first = data.data[[list(data.target).index(digit) for digit in range(10)]]
    clean, off, on, report = struck.three_runs(lambda: KMeans(10, init=first).fit(data.data), FAULT)

    moved = int((off.labels_ != clean.labels_).sum())
    right = np.array_equal(on.labels_, clean.labels_) and np.array_equal(on.cluster_centers_, clean.cluster_centers_)
    print(f"protection off: {moved} of {len(data.data)} digits change their cluster; on: {report.verdict}, "
          f"{'equal to the clean run' if right else 'NOT equal to the clean run'}")

    figure, axes = plt.subplots(3, 10, figsize=(9, 3.6))
    rows = ((clean, "clean run", struck.GREY), (off, f"struck, protection off: {moved} of {len(data.data)} digits in another cluster", struck.RED),
            (on, f"struck, protection on: {report.verdict}, as in the clean run", struck.GREEN))
    for row, (model, title, colour) in zip(axes, rows):
        row[0].set_title(title, loc="left", color=colour, fontweight="bold")
        for place, centroid, before in zip(row, model.cluster_centers_, clean.cluster_centers_):
            place.imshow(centroid.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            place.set(xticks=[], yticks=[])
            changed = np.linalg.norm(centroid - before) > 1
            for spine in place.spines.values():
                spine.set(visible=True, color=struck.RED if changed else "0.8", linewidth=2 if changed else 1)
    figure.subplots_adjust(left=0.02, right=0.98, top=0.92, bottom=0.02, hspace=0.35)
    struck.save(figure, folder / "digits.svg")
    return 0 if moved and right else 1


if __name__ == "__main__":
    raise SystemExit(main())
