"""A log of a month of faults by device: which device of a fleet is bad.

Usage: month.py FOLDER     writes FOLDER/month.svg and FOLDER/month.jsonl, a line of JSON for each event
Six devices compute each day of a month. Calendar, devices and the days of the faults are made up, one device is bad; calls, faults, events
and repairs are real: each fault strikes a transform, a clustering or a fit, which the log gets by the logger "ballast". Exit status 1
unless each fault is in the log and all results equal those of clean runs.
"""

import struck  # first: it chooses the extension

import datetime
import json
import logging

import matplotlib.pyplot as plt
import numpy as np

import ballast
from ballast.sklearn import KMeans

DEVICES = [f"gpu-{number}" for number in range(6)]
BAD = 4
FAULTS_A_DAY, FAULTS_OF_BAD = 0.02, 0.1  # of the bad one on the first day; it gets worse by as much each day
FIRST_DAY = datetime.date(2026, 10, 1)
DAYS = 31


class Log(logging.Handler):
    """Writes events as lines of JSON. `device` and `day` are those of the job that runs."""

    def __init__(self, file):
        super().__init__(logging.WARNING)
        self._file, self.device, self.day, self.written = file, None, None, 0

    def emit(self, record):
        event = record.ballast_event
        self.written += 1
        self._file.write(json.dumps({"day": self.day.isoformat(), "device": self.device, "problem": record.ballast_problem, "site": event.site,
                                     "index": event.index, "action": event.action}) + "\n")


def jobs(random):
    """Three computations, and the site that a fault strikes in each."""
    signals, points, matrix = random.standard_normal((8, 1024)), random.standard_normal((400, 5)), random.standard_normal((200, 12))
    return ((lambda: ballast.fft.rfft(signals), "fft.stage"), (lambda: KMeans(4, init=points[:4]).fit(points).cluster_centers_, "kmeans.product"),
            (lambda: ballast.linalg.lstsq(matrix, matrix.sum(axis=1)).x, "qr.panel"))


def run_month(log):
    """The number of faults, and whether all results were right."""
    random = np.random.default_rng(7)
    work = [(compute, site, compute()) for compute, site in jobs(random)]
    struck_calls, right = 0, True
    for day in range(DAYS):
        log.day = FIRST_DAY + datetime.timedelta(day)
        for number, log.device in enumerate(DEVICES):
            faults = random.poisson(FAULTS_OF_BAD * (1 + day) if number == BAD else FAULTS_A_DAY)
            for _ in range(faults):
                compute, site, expected = work[random.integers(len(work))]
                before = log.written
                with struck.fault(f"site={site},model=bit_flip,bit=62,seed={random.integers(1, 9)}"):
                    made = compute()
                struck_calls += 1
                right &= log.written > before and np.allclose(made, expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    return struck_calls, bool(right)


def draw(lines):
    counts = np.zeros((len(DEVICES), DAYS), int)
    for line in lines:
        counts[DEVICES.index(line["device"]), (datetime.date.fromisoformat(line["day"]) - FIRST_DAY).days] += 1
    figure, (days, total) = plt.subplots(1, 2, figsize=(9, 3), width_ratios=(5, 1), sharey=True)
    shown = days.imshow(counts, cmap="Reds", aspect="auto", interpolation="nearest", extent=(0.5, DAYS + 0.5, len(DEVICES) - 0.5, -0.5))
    days.set(yticks=range(len(DEVICES)), yticklabels=DEVICES, xlabel=f"day, {FIRST_DAY:%B %Y}")
    days.set_title("repaired faults by device and day", loc="left", fontweight="bold")
    figure.colorbar(shown, ax=days, pad=0.02)
    sums = counts.sum(axis=1)
    total.barh(range(len(DEVICES)), sums, color=[struck.RED if each == sums.max() else struck.GREY for each in sums])
    total.set_xlabel("in the month")
    figure.tight_layout()
    return figure, sums


def main():
    folder = struck.folder()
    with open(folder / "month.jsonl", "w", encoding="utf-8") as file:
        log = Log(file)
        logging.getLogger("ballast").addHandler(log)
        logging.getLogger("ballast").propagate = False
        faults, right = run_month(log)
    lines = [json.loads(line) for line in open(folder / "month.jsonl", encoding="utf-8")]
    figure, sums = draw(lines)
    print(f"{faults} faults, {len(lines)} events, {'every result right' if right else 'WRONG RESULTS'}; most on {DEVICES[int(sums.argmax())]}: "
          f"{sums.max()}")
    struck.save(figure, folder / "month.svg")
    return 0 if right and len(lines) >= faults and sums.argmax() == BAD else 1


if __name__ == "__main__":
    raise SystemExit(main())
