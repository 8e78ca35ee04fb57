// Problems of any rank, nest of loops and strides, with data, and their transforms by the definition in more than working precision.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "core/at.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "inject/plan.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {

using core::at;

// ---- The transform of one array, axis by axis ----

template <class W>
using numbers = std::vector<std::complex<W>>;

// Applies `line` to each line along axis `along`; it may change the length.
template <class W, class Line>
numbers<W> each_line(const numbers<W>& x, std::vector<std::int64_t>& lengths, std::size_t along, const Line& line) {
  std::int64_t inner = 1, outer = 1;
  for (std::size_t i = 0; i < along; ++i) outer *= lengths[i];
  for (std::size_t i = along + 1; i < lengths.size(); ++i) inner *= lengths[i];
  const std::int64_t n = lengths[along];
  numbers<W> made;
  std::int64_t m = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t l = 0; l < inner; ++l) {
      numbers<W> column;
      for (std::int64_t j = 0; j < n; ++j) column.push_back(x[at((o * n + j) * inner + l)]);
      column = line(std::move(column));
      m = std::ssize(column);
      made.resize(at(outer * m * inner));
      for (std::int64_t k = 0; k < m; ++k) made[at((o * m + k) * inner + l)] = column[at(k)];
    }
  }
  lengths[along] = m;
  return made;
}

template <class W>
numbers<W> inverse_dft(numbers<W> x) {
  for (auto& z : x) z = std::conj(z);
  x = dft(std::move(x));
  for (auto& z : x) z = std::conj(z);
  return x;
}

// The sums of the definition, with one root of unity for each term.
template <class W>
numbers<W> by_definition(real_kind kind, const numbers<W>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  const W pi = std::acos(W(-1));
  numbers<W> y(x.size());
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t j = 0; j < n; ++j) {
      const auto turn = [&](W a, W b, std::int64_t d) { return pi * std::fmod(a * b, W(2 * d)) / W(d); };
      const auto J = W(j), K = W(k);
      const W half = W(0.5);
      W f = 0;
      switch (kind) {
        case real_kind::r2hc: f = 2 * k <= n ? std::cos(turn(J * 2, K, n)) : -std::sin(turn(J * 2, W(n - k), n)); break;
        case real_kind::hc2r:
          f = j == 0 || 2 * j == n ? std::cos(turn(2 * J, K, n))
              : 2 * j < n          ? 2 * std::cos(turn(2 * J, K, n))
                                   : -2 * std::sin(turn(W(2 * (n - j)), K, n));
          break;
        case real_kind::dht: f = std::cos(turn(2 * J, K, n)) + std::sin(turn(2 * J, K, n)); break;
        case real_kind::dct1: f = (j == 0 || j == n - 1 ? 1 : 2) * std::cos(turn(J, K, n - 1)); break;
        case real_kind::dct2: f = 2 * std::cos(turn(J + half, K, n)); break;
        case real_kind::dct3: f = (j == 0 ? 1 : 2) * std::cos(turn(J, K + half, n)); break;
        case real_kind::dct4: f = 2 * std::cos(turn(J + half, K + half, n)); break;
        case real_kind::dst1: f = 2 * std::sin(turn(J + 1, K + 1, n + 1)); break;
        case real_kind::dst2: f = 2 * std::sin(turn(J + half, K + 1, n)); break;
        case real_kind::dst3: f = (j == n - 1 ? 1 : 2) * std::sin(turn(J + 1, K + half, n)); break;
        case real_kind::dst4: f = 2 * std::sin(turn(J + half, K + half, n)); break;
      }
      y[at(k)] += f * x[at(j)];
    }
  }
  return y;
}

template <class W>
numbers<W> expected(const problem& what, direction way, numbers<W> x) {
  std::vector<std::int64_t> lengths = what.shape;
  if (what.kind == kind::c2r) {  // the other half, by symmetry
    const std::int64_t n = lengths.back(), stored = n / 2 + 1;
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) rows *= lengths[i];
    numbers<W> whole;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t mirrored = 0, rest = row, place = 1;
      for (std::size_t i = lengths.size() - 1; i-- > 0; rest /= lengths[i]) {
        mirrored += (lengths[i] - rest % lengths[i]) % lengths[i] * place;
        place *= lengths[i];
      }
      for (std::int64_t k = 0; k < n; ++k) {
        const auto own = [&] { return x[at(row * stored + k)]; };
        const auto other = [&] { return std::conj(x[at(mirrored * stored + (n - k) % n)]); };
        whole.push_back(k == 0 || 2 * k == n ? (own() + other()) * W(0.5) : 2 * k < n ? own() : other());
      }
    }
    x = std::move(whole);
  }
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    x = each_line<W>(x, lengths, i, [&](numbers<W> line) {
      if (what.kind == kind::r2r) {
        const real_kind own = what.real_kinds[i];
        return by_definition(way == direction::forward ? own : inverse_of(own), line);
      }
      numbers<W> y = way == direction::forward ? dft(std::move(line)) : inverse_dft(std::move(line));
      if (what.kind == kind::r2c && i + 1 == lengths.size()) y.resize(y.size() / 2 + 1);
      return y;
    });
  }
  const auto scale = static_cast<W>(norm_factor(describe(what), what.norm, way));
  for (auto& z : x) z *= scale;
  return x;
}

// ---- Arrays of any layout ----

template <class Visit>
void visit_offsets(const array_problem& of, bool input, const Visit& visit) {
  const std::int64_t signals = of.signals();
  for (std::int64_t b = 0; b < signals; ++b) {
    std::int64_t base = input ? of.input.first : of.output.first, rest = b;
    for (std::size_t i = of.loops.size(); i-- > 0; rest /= of.loops[i].count)
      base += rest % of.loops[i].count * (input ? of.loops[i].input : of.loops[i].output);
    std::int64_t elements = 1;
    for (const axis& each : of.axes) elements *= input ? each.in_length : each.out_length;
    for (std::int64_t e = 0; e < elements; ++e) {
      std::int64_t offset = base, left = e;
      for (std::size_t i = of.axes.size(); i-- > 0;) {
        const axis& each = of.axes[i];
        const std::int64_t length = input ? each.in_length : each.out_length;
        offset += left % length * (input ? each.in_stride : each.out_stride);
        left /= length;
      }
      visit(b, e, offset);
    }
  }
}

template <class T>
struct example {
  using W = wide<T>;
  problem what;
  direction way;
  array_problem shape;
  std::vector<T> in;
  std::vector<numbers<W>> wanted;

  example(const problem& of, direction where_to, std::uint64_t seed) : what(of), way(where_to), shape(describe(of)) {
    const std::int64_t parts = shape.input.real ? 1 : 2;
    in = test::noise<T>(shape.input.extent * parts, seed);
    std::vector<numbers<W>> signals(at(shape.signals()));
    visit_offsets(shape, true, [&](std::int64_t b, std::int64_t, std::int64_t offset) {
      signals[at(b)].emplace_back(in[at(offset * parts)], parts == 2 ? in[at(offset * parts + 1)] : T(0));
    });
    for (auto& each : signals) wanted.push_back(expected<W>(what, way, std::move(each)));
  }

  // Kind and extents alone.
  geometry sides() const {
    geometry made;
    made.kind = what.kind;
    made.input.extent = shape.input.extent;
    made.output.extent = shape.output.extent;
    return made;
  }
  std::vector<T> fresh() const { return std::vector<T>(at(shape.output.extent * (shape.output.real ? 1 : 2)), T(77)); }

  report run(const plan& by, const T* from, T* to) const {
    const call now = test::quiet_call();
    if (what.kind != kind::r2r) return test::execute<T>(by, sides(), way, from, to, now);
    const std::span<const T> reals(from, at(shape.input.extent));
    const std::span<T> to_reals(to, at(shape.output.extent));
    return way == direction::forward ? by.forward(reals, to_reals, now) : by.inverse(reals, to_reals, now);
  }
  // The same without waiting, for complex data on one side.
  pending_report enqueue(const plan& by, const T* from, T* to, const call& now) const {
    return test::enqueue<T>(by, sides(), way, from, to, now);
  }

  // The largest error of a signal, relative to its norm.
  double error(const std::vector<T>& out) const {
    const std::int64_t parts = shape.output.real ? 1 : 2;
    std::vector<double> squares(wanted.size()), norms(wanted.size());
    visit_offsets(shape, false, [&](std::int64_t b, std::int64_t e, std::int64_t offset) {
      const std::complex<W> got(out[at(offset * parts)], parts == 2 ? out[at(offset * parts + 1)] : T(0));
      const std::complex<W> right = wanted[at(b)][at(e)];
      squares[at(b)] += static_cast<double>(std::norm(got - (parts == 2 ? right : std::complex<W>(right.real(), 0))));
      norms[at(b)] += static_cast<double>(std::norm(right));
    });
    double most = 0;
    for (std::size_t b = 0; b < norms.size(); ++b)
      most = std::max(most, std::isfinite(squares[b]) ? std::sqrt(squares[b] / norms[b]) : 1e300);
    return most;
  }
  // As test::error_bound_of_kind; a real transform has up to three more steps, each with a rounded factor, than that of its length, and a
  // type I one step for each of its levels.
  double allowed() const {
    return test::error_bound_of_kind(what) * (what.kind == kind::r2r ? std::sqrt(3.0) : 1) +
           (what.norm == norm::backward ? 0 : 1) * test::unit_roundoff(what.precision);
  }
  void expect_gaps_kept(const std::vector<T>& out) const {
    const std::int64_t parts = shape.output.real ? 1 : 2;
    std::vector<bool> written(out.size());
    visit_offsets(shape, false, [&](std::int64_t, std::int64_t, std::int64_t offset) {
      for (std::int64_t p = 0; p < parts; ++p) written[at(offset * parts + p)] = true;
    });
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(written[i] || out[i] == T(77)) << i;
  }
};

// ---- Faults ----

// The fault number `seed` of a model at a site; a flipped bit is the highest of the exponent.
template <class T>
inject::request fault_at(inject::site where, std::size_t model, std::uint64_t seed) {
  inject::request wanted;
  wanted.site = where;
  wanted.model = static_cast<inject::model>(model);
  wanted.seed = seed * 1000 + model;
  wanted.bit = sizeof(T) == 4 ? 30 : 62;
  return wanted;
}

}  // namespace ballast::fft
