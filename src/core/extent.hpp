// The memory range of an operand with strides.
// Layer: foundation.
#pragma once

#include <cstdint>
#include <utility>

#include <ballast/view.hpp>

namespace ballast::core {

// Returns the lowest address of a batch, and the number of elements that it spans from there. Strides may be negative.
template <class T>
std::pair<T*, std::int64_t> extent_of(const matrix_batch_view<T>& v) {
  std::int64_t low = 0, high = 0;
  for (const std::int64_t reach : {(v.count - 1) * v.stride, (v.rows - 1) * v.row_stride, (v.columns - 1) * v.column_stride})
    (reach < 0 ? low : high) += reach;
  return {v.data + low, high - low + 1};
}

}  // namespace ballast::core
