// The operands of a convolution and its results by the definition, in more than working precision.
// Layer: backend tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/convolve.hpp>

#include "core/at.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {

using core::at;

inline std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t made = 1;
  for (const std::int64_t n : shape) made *= n;
  return made;
}

// Element is float, double or complex numbers of them.
template <class Element>
struct convolved {
  static constexpr bool complex = !std::is_floating_point_v<Element>;
  using T = typename std::conditional_t<complex, Element, std::complex<Element>>::value_type;
  using W = wide<T>;

  convolution_problem what;
  std::vector<Element> x, h;
  std::vector<std::complex<W>> wanted;
  double size = 0;  // ‖x‖‖h‖ + ‖y‖

  explicit convolved(convolution_problem of) : what(std::move(of)) {
    what.complex = complex;
    what.precision = sizeof(T) == 4 ? precision::f32 : precision::f64;
    x = data(what.first, 3);
    h = data(what.second, 4);
    by_definition();
    double squares[3] = {};
    for (const Element z : x) squares[0] += std::norm(z);
    for (const Element z : h) squares[1] += std::norm(z);
    for (const auto& z : wanted) squares[2] += static_cast<double>(std::norm(z));
    size = std::sqrt(squares[0] * squares[1]) + std::sqrt(squares[2]);
  }

  static std::vector<Element> data(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
    const std::vector<T> words = test::noise<T>(count_of(shape) * (complex ? 2 : 1), seed);
    std::vector<Element> made;
    for (std::int64_t i = 0; i < count_of(shape); ++i) {
      if constexpr (complex)
        made.emplace_back(words[at(2 * i)], words[at(2 * i + 1)]);
      else
        made.push_back(words[at(i)]);
    }
    return made;
  }

  void by_definition() {
    const std::size_t rank = what.first.size();
    std::vector<std::int64_t> first(rank), lengths(rank);
    for (std::size_t i = 0; i < rank; ++i) {
      const std::int64_t n = what.first[i], m = what.second[i];
      const bool same = what.mode == convolution_mode::same, valid = what.mode == convolution_mode::valid;
      first[i] = same ? (m - 1) / 2 : valid ? std::min(n, m) - 1 : 0;
      lengths[i] = same ? n : valid ? std::max(n, m) - std::min(n, m) + 1 : n + m - 1;
    }
    // The terms of a sum are those of the smaller operand.
    const bool swapped = count_of(what.second) > count_of(what.first);
    const std::vector<std::int64_t>&few = swapped ? what.first : what.second, &many = swapped ? what.second : what.first;
    const auto element = [&](bool of_second, std::int64_t at_flat) {
      const std::complex<W> z(of_second ? h[at(what.correlate ? std::ssize(h) - 1 - at_flat : at_flat)] : x[at(at_flat)]);
      return of_second && what.correlate ? std::conj(z) : z;
    };
    for (std::int64_t o = 0; o < count_of(lengths); ++o) {
      std::complex<W> sum = 0;
      for (std::int64_t l = 0; l < count_of(few); ++l) {
        std::int64_t rest_o = o, rest_l = l, place = 0, stride = 1;
        bool inside = true;
        for (std::size_t i = rank; i-- > 0; stride *= many[i]) {
          const std::int64_t j = rest_o % lengths[i] + first[i] - rest_l % few[i];
          rest_o /= lengths[i];
          rest_l /= few[i];
          inside = inside && j >= 0 && j < many[i];
          place += j * stride;
        }
        if (inside) sum += multiply(element(!swapped, l), element(swapped, place));
      }
      wanted.push_back(sum);
    }
  }

  double error(const std::vector<Element>& got) const {
    double squares = 0;
    for (std::size_t i = 0; i < got.size(); ++i) squares += static_cast<double>(std::norm(std::complex<W>(got[i]) - wanted[i]));
    return std::isfinite(squares) ? std::sqrt(squares) / size : 1e300;
  }
  // Three transforms of at most 4 (n + m) points along each axis, each with the error of test::error_bound.
  double allowed() const {
    double points = 1;
    for (std::size_t i = 0; i < what.first.size(); ++i) points *= 4.0 * static_cast<double>(what.first[i] + what.second[i]);
    return 3 * 3 * test::unit_roundoff(what.precision) * std::sqrt(std::log2(points));
  }
};

// Counts what faults at one site did: results that they changed without protection, and verdicts that are not clean.
struct struck_convolutions {
  int changed = 0, found = 0;
};

// Runs a convolution with a fault, without protection if `row` has data, and with it, which must leave no change above the floor of
// `clean`.
template <class Element>
void strike(const convolved<Element>& given, const convolution& guarded, const convolution& open, const std::vector<Element>& clean,
            const inject::site_row& row, const inject::request& wanted, struck_convolutions& seen) {
  const inject::plan faults({wanted});
  const inject::scope struck(&faults);
  std::vector<Element> out(clean.size());
  if (row.role == inject::site_role::data) {
    (void)open.run(given.x, given.h, out);
    seen.changed += out == clean ? 0 : 1;
  }
  const report said = guarded.run(given.x, given.h, out, test::quiet_call());
  seen.found += said.verdict != verdict::clean ? 1 : 0;
  if (wanted.model == inject::model::stuck_at && said.verdict == verdict::uncorrectable) return;
  ASSERT_NE(said.verdict, verdict::uncorrectable) << to_json(said);
  double effect = 0;
  for (std::size_t i = 0; i < out.size(); ++i)
    effect += static_cast<double>(std::norm(std::complex<double>(out[i]) - std::complex<double>(clean[i])));
  const double points = 4.0 * static_cast<double>(given.x.size() + given.h.size());
  ASSERT_LE(std::sqrt(effect), test::k_floor * test::unit_roundoff(given.what.precision) * std::sqrt(std::log2(points) + 1) * given.size)
      << to_json(said);
}

}  // namespace ballast::fft
