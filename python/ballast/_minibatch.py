"""Steps of mini-batch K-Means (Sculley, "Web-scale k-means clustering", WWW 2010), protected. Labels and inertia of a batch come from the
library; what moves the centroids is computed twice here, from two copies, with the features in opposite orders, and the bits are compared.
"""

import zlib

import numpy as np
from scipy.sparse import csr_array

from . import _core
from ._protection import compute, current, execution, record
from ._report import compared

__all__ = ["Findings", "State", "nearest", "step"]

_MOST_ATTEMPTS = 3


def nearest(points, weights, centroids, where):
    """Labels and inertia of points in host memory, and the report. Weights without elements: each point counts 1."""
    predict = _core.kmeans_predict_f32 if points.dtype == np.float32 else _core.kmeans_predict_f64
    labels = np.empty(len(points), np.int32)
    report, inertia = compute(predict, points, weights, centroids, labels, where, 0)
    return labels, inertia, report


class Findings:
    """What the checks of several steps saw: those of the library, and the comparisons here."""

    def __init__(self):
        settings = current()
        self.protection = settings.protection
        self.where = execution(settings)
        self._report = None
        self._checks = self._false_alarms = 0
        self._events = []

    @property
    def begun(self):
        """Whether there was a step."""
        return self._report is not None

    def label(self, points, weights, centroids):
        """Labels and inertia."""
        labels, inertia, report = nearest(points, weights, centroids, self.where)
        if self._report is None:
            self._report = report
        else:
            self._report.merge(report)
        return labels, inertia

    def same(self, one, other):
        """The row of the first difference between the bits of two tables, -1 where there is none."""
        self._checks += 1
        word = f"u{one.itemsize}"
        wrong = np.nonzero((one.view(word) != other.view(word)).any(axis=1))[0]
        return int(wrong[0]) if len(wrong) else -1

    def note(self, site, row, action, false_alarm=False):
        """Adds a fault at a row."""
        self._events.append(compared(site, row, action))
        self._false_alarms += false_alarm

    def record(self):
        """Makes all of it the last report. Raises FaultError after a fault that was not repaired."""
        record(self._report, checks=self._checks, events=self._events, false_alarms=self._false_alarms)


class State:
    """Centroids and the total weight of the points that each has had: a table of k × (n + 1), twice, the second time with the features in
    opposite order, and a CRC-32 of the first."""

    def __init__(self, centroids, counts):
        def table(of):
            return np.concatenate((of, counts[:, np.newaxis]), axis=1)

        self._keep(table(centroids), table(centroids[:, ::-1]))

    def _keep(self, first, second):
        self.first, self.second = first, second
        self._seal = zlib.crc32(first)

    @property
    def centroids(self):
        return self.first[:, :-1]

    @property
    def counts(self):
        return self.first[:, -1]

    def verify(self, findings):
        """Compares the copies, and where one changed while it waited, takes the one that the CRC is of. A state that was just made has
        nothing to be restored from; its first step compares it."""
        if findings.protection == "off" or not findings.begun:
            return
        row = findings.same(self.first, _reversed(self.second))
        if row < 0:
            return
        restored = self.first if zlib.crc32(self.first) == self._seal else _reversed(self.second)
        if findings.protection == "detect" or zlib.crc32(restored) != self._seal:
            findings.note("minibatch.centroids", row, "uncorrectable")
            findings.record()
        findings.note("minibatch.centroids", row, "corrected")
        self._keep(restored, _reversed(restored))

    def change(self, make, findings, site):
        """The state becomes make(table, reverse), a table, which is computed for both copies until they agree."""
        if findings.protection == "off":
            self._keep(make(self.first, False), self.second)
            return
        wrong, before = -1, None
        for _ in range(1 if findings.protection == "detect" else _MOST_ATTEMPTS):
            first, second = make(self.first, False), make(self.second, True)
            row = findings.same(first, _reversed(second))
            if wrong >= 0:
                repaired = row < 0
                findings.note(site, wrong, "recomputed", repaired and findings.same(before, first) < 0)
            if row < 0:
                self._keep(first, second)
                return
            wrong, before = row, first
        findings.note(site, wrong, "uncorrectable")
        findings.record()


def _reversed(table):
    """The same table with the features in opposite order; the last column stays."""
    return np.concatenate((table[:, -2::-1], table[:, -1:]), axis=1)


def _moved(points, weights, labels, table):
    """The table after the points have joined their clusters: W' = W + Σ w, c' = (W c + Σ w x) / W', summed in that order for each number by
    itself. Rows whose points have no weight stay."""
    k, m = len(table), len(points)
    rows = np.concatenate((np.arange(k), labels))
    ends = np.cumsum(np.bincount(rows, minlength=k))
    order = np.argsort(rows, kind="stable")
    operand = np.ones((k + m, table.shape[1]), table.dtype)
    operand[:k, :-1] = table[:, :-1]
    operand[k:, :-1] = points
    entries = np.concatenate((table[:, -1], weights))[order]
    sums = csr_array((entries, order, np.concatenate(([0], ends))), shape=(k, k + m)) @ operand
    moved = np.bincount(labels, weights, k) > 0
    made = table.copy()
    made[moved, :-1] = sums[moved, :-1] * (1 / sums[moved, -1:])
    made[moved, -1] = sums[moved, -1]
    return made


def step(points_of, weights, state, findings, random_state, reassign, reassignment_ratio, verbose=False):
    """One batch, as in scikit-learn's _mini_batch_step: moves the centroids of `state`; returns the inertia before. points_of() reads the
    batch from its source: it is asked for each copy. Where `reassign` is set, centroids with few points go to points of the batch that
    `random_state` draws."""
    state.verify(findings)
    inertia, before = 0.0, None

    def move(table, reverse):
        nonlocal inertia, before
        points = points_of()
        if not reverse:  # the first of an attempt
            labels, inertia = findings.label(points, weights, state.centroids)
            before = labels, labels.copy()
        return _moved(points[:, ::-1] if reverse else points, weights, before[reverse], table)

    state.change(move, findings, "minibatch.update")
    if reassign and reassignment_ratio > 0:
        _reassign(points_of, state, findings, random_state, reassignment_ratio, verbose)
    return inertia


def _reassign(points_of, state, findings, random_state, ratio, verbose):
    counts, m = state.counts, len(points_of())
    few = counts < ratio * counts.max()
    if few.sum() > 0.5 * m:
        few[np.argsort(counts)[int(0.5 * m):]] = False
    if not few.any():
        return
    chosen = random_state.choice(m, replace=False, size=few.sum())
    if verbose:
        print(f"[MiniBatchKMeans] Reassigning {few.sum()} cluster centers.")

    def move(table, reverse):
        points = points_of()[chosen]
        made = table.copy()
        made[few, :-1] = points[:, ::-1] if reverse else points
        made[few, -1] = table[~few, -1].min()  # not smaller, or the next batch would move them again
        return made

    state.change(move, findings, "minibatch.reassignment")
