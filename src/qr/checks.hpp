// The comparison that every check of QR goes through, and repair of a block from its two checksum columns.
// Layer: algorithm. Backend-free.
// Source: docs/protection.md; abft/ for the mathematics.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "abft/correct.hpp"
#include "abft/locate.hpp"
#include "abft/threshold.hpp"
#include "abft/verify.hpp"
#include "abft/weights.hpp"
#include "core/counter_rng.hpp"
#include "qr/contract.hpp"
#include "run/recorder.hpp"

namespace ballast::qr {

inline constexpr int k_attempts = 3;  // a tile is computed once and again at most twice

// Streams of random weights; the seed is any number.
inline constexpr std::uint64_t k_weight_seed = 0x5152;
enum weight_stream : std::uint64_t { k_certificate_stream, k_orthogonality_stream, k_checkpoint_stream };

// In ±[1, 2).
inline double random_signed(weight_stream which, std::uint64_t i) {
  const double size = abft::random_weight(k_weight_seed, which, i);
  return core::random_bits(k_weight_seed, which + 16, i) & 1 ? -size : size;
}

// A hash of `count` words: equal for equal bits.
template <class S>
std::uint64_t seal_of(const S* words, index count) {
  std::uint64_t h = 0;
  for (index i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, words + i, sizeof(S));
    h = core::mix64(h ^ word);
  }
  return h;
}

// What a failed check saw.
struct failure {
  const char* site = "";
  index place = -1;
  double residual = 0;
  double threshold = 0;
};

// The largest |x|, NaN if there is one.
class largest {
 public:
  void add(double x) {
    const double size = std::abs(x);
    nan_ |= size != size;
    if (size > most_) most_ = size;
  }
  void add(const double* x, index count) {
    // Branch-free, in lanes that a compiler can keep in registers.
    double most[8] = {}, sum[8] = {};
    index i = 0;
    for (; i + 8 <= count; i += 8) {
      for (int l = 0; l < 8; ++l) {
        const double size = std::abs(x[i + l]);
        most[l] = size > most[l] ? size : most[l];
        sum[l] += size - size;  // NaN for NaN and Inf
      }
    }
    for (; i < count; ++i) add(x[i]);
    for (int l = 0; l < 8; ++l) {
      add(most[l]);
      nan_ |= sum[l] != sum[l];
    }
  }
  double value() const { return nan_ ? std::numeric_limits<double>::quiet_NaN() : most_; }

 private:
  double most_ = 0;
  bool nan_ = false;
};

// One comparison, open to injection. On failure `seen` says what failed.
inline bool passes(run::recorder& seen_by, inject::active_injector& injector, const inject::place& where, double residual, double threshold,
                   const char* site, index place, failure& seen) {
  seen_by.checked(1);
  // A threshold that an infinite value made must not pass that value.
  if (!std::isfinite(residual) || !std::isfinite(threshold)) residual = std::numeric_limits<double>::quiet_NaN();
  abft::guarded_threshold tau(threshold);
  injector.strike(inject::site::qr_threshold, where, &tau.value, 1);
  std::uint32_t word = abft::verify(residual, tau);
  injector.strike(inject::site::qr_comparison, where, &word, 1);
  if (word == abft::k_pass) return true;
  seen = {site, place, residual, threshold};
  return false;
}

// The power of two by which a column of this norm is equilibrated in a checksum.
inline double equilibrating(double norm) { return norm > 0 && std::isfinite(norm) ? std::ldexp(1.0, -std::ilogb(norm)) : 1.0; }

// The largest residual of U x = c, or Uᵀ x = c, against what rounding explains. Scaled by powers of two where doubles would overflow.
struct solve_residual {
  double worst = 0, threshold = 1;
  bool finite = true;  // all that went in, and all that came out
};

template <class S>
solve_residual residual_of(bool transposed, index n, const S* U, index ldu, const S* x, const S* c) {
  largest u_size, x_size;
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i <= j; ++i) u_size.add(static_cast<double>(U[i + j * ldu]));
    x_size.add(static_cast<double>(x[j]));
    x_size.add(static_cast<double>(c[j]));
  }
  solve_residual made;
  made.finite = std::isfinite(u_size.value()) && std::isfinite(x_size.value());
  double u_scale = 1, x_scale = 1;
  if (made.finite && u_size.value() > 0x1p400) u_scale = std::ldexp(1.0, -std::ilogb(u_size.value()));
  if (made.finite && x_size.value() > 0x1p400) x_scale = std::ldexp(1.0, -std::ilogb(x_size.value()));
  constexpr double tiny = std::numeric_limits<S>::denorm_min();
  std::vector<double> residual(static_cast<std::size_t>(n)), size(residual), drowned(residual);
  for (index i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    residual[at] = static_cast<double>(c[i]) * x_scale * u_scale;
    size[at] = std::abs(residual[at]);
  }
  for (index j = 0; j < n; ++j) {
    const double xj = static_cast<double>(x[j]) * x_scale;
    for (index i = transposed ? j : 0; i < (transposed ? n : j + 1); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double u = static_cast<double>(transposed ? U[j + i * ldu] : U[i + j * ldu]) * u_scale;
      const double term = u * xj;
      residual[at] -= term;
      size[at] += std::abs(term);
      // An element of x is off by the smallest number, and so is the reciprocal of the diagonal that the solve may multiply by.
      drowned[at] += std::abs(u) * x_scale * tiny;
      if (i == j) drowned[at] += std::abs(term) * (std::abs(u) / u_scale * tiny);
    }
  }
  // What products lost to underflow, here (in double) and in the solve.
  const double lost = 4 * static_cast<double>(n) *
                      (std::numeric_limits<double>::min() + static_cast<double>(std::numeric_limits<S>::min()) * x_scale * u_scale);
  for (index i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double threshold = abft::qr_solve_threshold<S>(size[at], n) + 4 * static_cast<double>(n) * drowned[at] + lost;
    const double off = std::abs(residual[at]);
    if (!std::isfinite(off) || !std::isfinite(threshold)) {
      made = {std::numeric_limits<double>::quiet_NaN(), threshold, false};  // a row that compares well must not follow it
      break;
    }
    // Not by products, which would underflow for small numbers.
    if (off / threshold <= made.worst / made.threshold) continue;
    made.worst = off;
    made.threshold = threshold;
    if (made.worst > made.threshold) break;
  }
  return made;
}

// A block X (its element (i, j) is there for i < rows(j)) with checksums c1 = Σ_j d_j x_j and c2 = Σ_j d_j w_j x_j, w equispaced, and the
// residuals r, s of both (m values each).
template <class S>
struct checked_block {
  index m = 0;
  index columns = 0;
  S* X = nullptr;
  index ldx = 0;
  index full_rows = 0;  // rows(j) = full_rows + (triangle ? j + 1 : 0), full_rows otherwise: the block's last rows are upper triangular
  bool triangle = false;
  const S* c1 = nullptr;
  const double* d = nullptr;
  const double* r = nullptr;
  const double* s = nullptr;
  double threshold = 0;
  index rows(index j) const { return triangle ? full_rows + j + 1 : full_rows; }
  index first(index i) const { return i < full_rows ? 0 : i - full_rows; }  // the first column that row i has
};

// Rebuilds what the residuals place: one column, or single elements in different rows. Returns the column, −1 if the fault could not be
// placed (nothing is changed then). The caller verifies again: that is what makes a wrong placing harmless.
template <class S>
index repair_block(const checked_block<S>& b, inject::active_injector& injector, const inject::place& where) {
  const index last = b.rows(b.columns - 1);
  const auto rebuild = [&](index i, index j) {
    const index from = b.first(i);
    const double value = abft::rebuild(static_cast<double>(b.c1[i]), j - from, b.columns - from,
                                       [&](index c) { return b.d[from + c] * static_cast<double>(b.X[i + (from + c) * b.ldx]); }) /
                         b.d[j];
    S made = static_cast<S>(value);
    return made;
  };
  const auto rebuild_column = [&](index j) {
    for (index i = 0; i < b.rows(j); ++i) b.X[i + j * b.ldx] = rebuild(i, j);
    injector.strike(inject::site::qr_corrector, where, b.X + j * b.ldx, b.rows(j));
    return j;
  };

  // A column with Inf or NaN tells its place itself.
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
  if (odd_columns == 1) return rebuild_column(odd);
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
  // Place 0 stands for the checksum c1 itself: a fault there gives r and no s.
  const auto weight = [&](index l) { return l == 0 ? 0.0 : abft::equispaced_weight(l - 1, b.columns); };
  const abft::location found = abft::locate_column(rr, rs, ss, b.columns + 1, weight);
  if (found.index == 0) return -1;
  if (found.index > 0) return rebuild_column(found.index - 1);

  // Faults that have not spread: each row on its own. They are few, or there is no point.
  constexpr int k_most = 64;
  std::vector<std::pair<index, index>> places;
  for (index i = 0; i < last; ++i) {
    if (std::abs(b.r[i]) <= b.threshold && std::abs(b.s[i]) <= b.threshold) continue;
    const double r = b.r[i] / top, s = b.s[i] / top;
    const index at = abft::locate_column(r * r, r * s, s * s, b.columns + 1, weight).index;
    if (at <= 0 || at - 1 < b.first(i) || static_cast<int>(places.size()) == k_most) return -1;
    places.emplace_back(i, at - 1);
  }
  if (places.empty()) return -1;
  for (const auto& [i, j] : places) b.X[i + j * b.ldx] = rebuild(i, j);
  const auto [i, j] = places.front();
  injector.strike(inject::site::qr_corrector, where, b.X + i + j * b.ldx, 1);
  return j;
}

}  // namespace ballast::qr
