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
#include "support/convolution_sum.hpp"
#include "support/fft_data.hpp"
#include "support/fft_tolerances.hpp"

namespace ballast::fft {

using core::at;

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
    const std::vector<T> first = words(x), second = words(h);
    const test::convolution_sum<W, T> sum(what, first, second);
    double square = 0;
    for (std::int64_t k = 0; k < sum.results(); ++k) {
      wanted.push_back(sum(k));
      square += static_cast<double>(std::norm(wanted.back()));
    }
    size = sum.norms() + std::sqrt(square);
  }

  static std::vector<T> words(const std::vector<Element>& of) {
    const auto* const begin = reinterpret_cast<const T*>(of.data());
    return {begin, begin + of.size() * (complex ? 2 : 1)};
  }
  static std::vector<Element> data(const std::vector<std::int64_t>& shape, std::uint64_t seed) {
    const std::vector<T> words = test::noise<T>(test::points_of(shape) * (complex ? 2 : 1), seed);
    std::vector<Element> made;
    for (std::int64_t i = 0; i < test::points_of(shape); ++i) {
      if constexpr (complex)
        made.emplace_back(words[at(2 * i)], words[at(2 * i + 1)]);
      else
        made.push_back(words[at(i)]);
    }
    return made;
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
