// Repair of a block from its two checksum columns.
// Layer: algorithm, backend-free.
// Source: docs/protection.md; abft/locate.hpp and abft/correct.hpp for the mathematics.
#pragma once

#include <cmath>
#include <utility>

#include "abft/correct.hpp"
#include "abft/locate.hpp"
#include "core/memory.hpp"
#include "inject/injector.hpp"
#include "qr/checks/largest.hpp"
#include "qr/contract.hpp"
#include "qr/sites.hpp"

namespace ballast::qr {

// A block X (element (i, j) exists for i < rows(j)) with checksums c1 = Σ_j d_j x_j and c2 = Σ_j e_j x_j, and the residuals r, s of both (m
// values each). If one column j has changed, s = (e_j / d_j) r. S is real: a block of complex numbers is one of real numbers with twice the
// rows, since its weights are real.
template <class S>
struct checked_block {
  index columns = 0;
  S* X = nullptr;
  index ldx = 0;
  // rows(j) = components · (full_rows + (triangle ? j + 1 : 0)): with `triangle` the last rows of the block are upper triangular.
  index full_rows = 0;
  bool triangle = false;
  index components = 1;  // the rows of X that a number takes: 2 if it is complex
  const S* c1 = nullptr;
  const double* d = nullptr;
  const double* e = nullptr;
  const double* r = nullptr;
  const double* s = nullptr;
  double threshold = 0;
  index rows(index j) const { return components * (triangle ? full_rows + j + 1 : full_rows); }
  // The first column of X that row i has.
  index first(index i) const { return i / components < full_rows ? 0 : i / components - full_rows; }
};

// Rebuilds the elements that the residuals locate: one column, or single elements in different rows. Returns the column, or −1 if the fault
// could not be located; then nothing is changed. The caller verifies again, with weights that were not used to locate the fault.
template <class S>
index repair_block(const checked_block<S>& b, inject::active_injector& injector, const inject::position& where) {
  const index last = b.rows(b.columns - 1);
  const auto rebuild = [&](index i, index j) {
    const index from = b.first(i);
    const double value = abft::rebuild(static_cast<double>(b.c1[i]), j - from, b.columns - from,
                                       [&](index c) { return b.d[from + c] * static_cast<double>(b.X[i + (from + c) * b.ldx]); }) /
                         b.d[j];
    S made = static_cast<S>(value);
    return made;
  };
  // Rebuilds only rows whose residuals exceed rounding: in the other rows a rebuilt element would only gain the checksum's own rounding,
  // and the changes that a fault made there are below the threshold, all of them together. `all`: the column holds Inf or NaN, so that the
  // residuals carry no information.
  const double rounding = b.threshold / std::sqrt(static_cast<double>(last));
  const auto rebuild_column = [&](index j, bool all) {
    for (index i = 0; i < b.rows(j); ++i) {
      if (all || std::abs(b.r[i]) > rounding || std::abs(b.s[i]) > rounding) b.X[i + j * b.ldx] = rebuild(i, j);
    }
    injector.strike(site::corrector, where, b.X + j * b.ldx, b.rows(j));
    return j;
  };

  // A column with Inf or NaN needs no locating.
  index odd = -1;
  int odd_columns = 0;
  for (index j = 0; j < b.columns; ++j) {
    for (index i = 0; i < b.rows(j); ++i) {
      if (std::isfinite(b.X[i + j * b.ldx])) continue;
      odd = j;
      ++odd_columns;
      break;
    }
  }
  if (odd_columns == 1) return rebuild_column(odd, true);
  if (odd_columns > 1) return -1;

  largest size;
  for (index i = 0; i < last; ++i) {
    size.add(b.r[i]);
    size.add(b.s[i]);
  }
  const double top = size.value();
  if (!(top > 0) || !std::isfinite(top)) return -1;
  double rr = 0, rs = 0, ss = 0;
  for (index i = 0; i < last; ++i) {
    const double r = b.r[i] / top, s = b.s[i] / top;
    rr += r * r;
    rs += r * s;
    ss += s * s;
  }
  // Index 0 stands for the checksum c1 itself: a fault in c1 changes r and not s.
  const auto weight = [&](index l) { return l == 0 ? 0.0 : b.e[l - 1] / b.d[l - 1]; };
  const abft::location found = abft::locate_column(rr, rs, ss, b.columns + 1, weight);
  if (found.index == 0) return -1;
  if (found.index > 0) return rebuild_column(found.index - 1, false);

  // Faults that have not spread: each row is located on its own. More than k_most such rows are left to recomputation.
  constexpr int k_most = 64;
  core::vector<std::pair<index, index>> positions;
  for (index i = 0; i < last; ++i) {
    if (std::abs(b.r[i]) <= b.threshold && std::abs(b.s[i]) <= b.threshold) continue;
    const double r = b.r[i] / top, s = b.s[i] / top;
    const index at = abft::locate_column(r * r, r * s, s * s, b.columns + 1, weight).index;
    if (at <= 0 || at - 1 < b.first(i) || static_cast<int>(positions.size()) == k_most) return -1;
    positions.emplace_back(i, at - 1);
  }
  if (positions.empty()) return -1;
  for (const auto& [i, j] : positions) b.X[i + j * b.ldx] = rebuild(i, j);
  const auto [i, j] = positions.front();
  injector.strike(site::corrector, where, b.X + i + j * b.ldx, 1);
  return j;
}

}  // namespace ballast::qr
