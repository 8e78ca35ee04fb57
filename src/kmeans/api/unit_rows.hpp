// Rows divided by their norms, for spherical K-Means: copies of points and centroids of unit length.
// Layer: algorithm.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "abft/attempt.hpp"
#include "abft/seal.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "kmeans/driver/refusals.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"
#include "run/settings.hpp"

namespace ballast::kmeans {

// Writes x / ‖x‖ of the row of numbers read(0), …, read(count − 1): the sum of squares in double, of numbers that are divided by the
// largest before, so that none overflows or vanishes. A row with NaN or Inf is copied, for the check of the points. Returns false for a row
// of zeros.
template <class T, class Read>
bool make_unit_row(std::int64_t count, const Read& read, T* to) {
  double largest = 0, sum = 0;
  bool finite = true;
  for (std::int64_t f = 0; f < count; ++f) {
    const double x = std::abs(static_cast<double>(read(f)));
    finite = finite && std::isfinite(x);
    largest = std::max(largest, x);
  }
  for (std::int64_t f = 0; f < count && finite; ++f) {
    const double x = static_cast<double>(read(f)) / largest;
    sum += x * x;
  }
  const double root = std::sqrt(sum);
  for (std::int64_t f = 0; f < count; ++f)
    to[f] = finite ? static_cast<T>(static_cast<double>(read(f)) / largest / root) : static_cast<T>(read(f));
  return !finite || largest > 0;
}

// Fills the copy of rows of unit length. Row i has count(i) numbers, read(i, 0) and so on, and lies from first(i) on. Each row is made
// again from another reading; the bits must agree. Throws invalid_argument_error for a row that is zero in two readings. `name`: of the
// operand.
template <class T, class First, class Count, class Read>
void make_unit_rows(run::recorder& seen, inject::active_injector& injector, const run::settings& how, std::string_view token,
                    std::string_view name, std::int64_t rows, T* copy, const First& first, const Count& count, const Read& read) {
  constexpr std::int64_t k_part = 256;
  const std::int64_t parts = (rows + k_part - 1) / k_part;
  const bool protect = how.protection != protection::off;
  core::parallel_for(core::thread_count(how.threads), parts, [&](std::int64_t part, int slot) {
    const std::int64_t begin = part * k_part, end = std::min(rows, begin + k_part);
    // Returns false for a row that is zero in one reading only: its numbers are not to be used.
    const auto row = [&](std::int64_t i, T* to) {
      const bool made = make_unit_row(
          count(i), [&](std::int64_t f) { return read(i, f); }, to);
      bool zeros = !made;
      for (std::int64_t f = count(i); f-- > 0 && zeros;) zeros = read(i, f) == T(0);
      if (zeros) refuse_zeros(token, name, i);
      return made;
    };
    const auto make = [&] {
      bool all = true;
      for (std::int64_t i = begin; i < end; ++i) all = row(i, copy + first(i)) && all;
      injector.strike(site::points, {part, parts, 0, 1}, copy + first(begin), first(end) - first(begin));
      return all;
    };
    if (!protect) {
      (void)make();
      return;
    }
    core::vector<T> again;
    run::attempt(seen, how.protection, "kmeans.points", slot, [&](int) {
      abft::finding found;
      if (!make()) found.word = abft::k_fail;
      seen.checked(1);
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = begin;
      for (std::int64_t i = end; i-- > begin;) {
        again.resize(core::at(count(i)));
        if (!row(i, again.data())) found.word = abft::k_fail;
        for (std::int64_t f = 0; f < count(i); ++f)
          if (abft::word_of(again[core::at(f)]) != abft::word_of(copy[first(i) + f])) found.word = abft::k_fail;
      }
      return found;
    });
  });
}

}  // namespace ballast::kmeans
