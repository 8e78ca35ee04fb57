// Checks the arguments of the public functions: sizes, null pointers, strides, overlap.
// Layer: algorithm (driver). Reads addresses, never elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include <ballast/error.hpp>
#include <ballast/view.hpp>

#include "core/extent.hpp"
#include "core/format.hpp"
#include "qr/contract.hpp"

namespace ballast::qr {

inline constexpr index k_most = std::numeric_limits<int>::max();  // the most rows and columns that BLAS can count

// Throws invalid_argument_error, which names the view and the problem's token, unless the view has `least` rows and columns, data, strides
// within 63 bits and (if it is written) no two elements at one address.
template <class S>
void check_view(const matrix_view<S>& view, std::string_view name, std::string_view token, index least = 1) {
  if (view.rows < least || view.columns < least)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected at least {} row and column, got {} × {}", token, name, least, view.rows, view.columns));
  if (view.rows > k_most || view.columns > k_most)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected at most {} rows and columns, got {} × {}", token, name, k_most, view.rows, view.columns));
  if (view.rows == 0 || view.columns == 0) return;
  if (view.data == nullptr) throw invalid_argument_error(fmt::format("{}: {}: expected data, got a null pointer", token, name));
  if (reinterpret_cast<std::uintptr_t>(view.data) % sizeof(S) != 0)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected data at a multiple of {} bytes, an element's size, got another address", token, name, sizeof(S)));
  if (!core::extent_fits(view))
    throw invalid_argument_error(
        fmt::format("{}: {}: expected strides within 63 bits of address, got {} and {}", token, name, view.row_stride, view.column_stride));
  if constexpr (!std::is_const_v<S>) {
    if (!core::elements_apart(view))
      throw invalid_argument_error(fmt::format("{}: {}: expected strides that keep its elements apart, got {} and {} for {} × {}", token,
                                               name, view.row_stride, view.column_stride, view.rows, view.columns));
  }
}

// Throws invalid_argument_error unless there are `expected` scalars of reflectors, with data.
template <class S>
void check_tau(std::span<S> tau, index expected, std::string_view token) {
  if (static_cast<index>(tau.size()) != expected)
    throw invalid_argument_error(fmt::format("{}: tau: expected {} elements, got {}", token, expected, tau.size()));
  if (expected > 0 && tau.data() == nullptr) throw invalid_argument_error(fmt::format("{}: tau: expected data, got a null pointer", token));
}

// Returns whether two extents with elements share an address.
template <class S, class U>
bool overlap(const core::extent<S>& a, const core::extent<U>& b) {
  const std::less<const void*> before;
  return before(a.first, b.end()) && before(b.first, a.end());
}

// Throws invalid_argument_error if two views share an element. Blocks of one matrix may interleave: their strides are equal.
template <class S, class U>
void check_apart(const matrix_view<S>& a, const matrix_view<U>& b, std::string_view names, std::string_view token) {
  const core::extent<S> of_a = core::extent_of(a);
  const core::extent<U> of_b = core::extent_of(b);
  if (of_a.elements == 0 || of_b.elements == 0 || !overlap(of_a, of_b)) return;
  if (a.row_stride == b.row_stride && a.column_stride == b.column_stride && a.row_stride > 0 && a.column_stride > 0) {
    const index offset = static_cast<const std::remove_const_t<S>*>(b.data) - static_cast<const std::remove_const_t<S>*>(a.data);
    const index large = std::max(a.row_stride, a.column_stride), small = std::min(a.row_stride, a.column_stride);
    const bool rows_large = a.row_stride >= a.column_stride;
    for (index q = offset / large - 1; q <= offset / large + 1; ++q) {
      const index rest = offset - q * large;
      if (rest % small != 0) continue;
      const index di = rows_large ? q : rest / small, dj = rows_large ? rest / small : q;
      if (di < a.rows && di > -b.rows && dj < a.columns && dj > -b.columns)
        throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping views", token, names));
    }
    return;
  }
  throw invalid_argument_error(fmt::format("{}: expected {} apart in memory, got overlapping views", token, names));
}

}  // namespace ballast::qr
