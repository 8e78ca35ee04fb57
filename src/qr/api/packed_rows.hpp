// Rows of a matrix with any strides, in host memory or on a device, as a matrix of the host without gaps.
// Layer: algorithm, backend-free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/view.hpp>

#include "core/extent.hpp"
#include "cuda/device/device.hpp"
#include "cuda/device/residence.hpp"
#include "qr/arithmetic/scalar.hpp"

namespace ballast::qr {

// Copies a matrix of the host and compares the bits, three times at most. Tiles of rows: each line of the cache is read or written once.
template <class T>
void copy_alike(matrix_view<const T> from, matrix_view<T> to) {
  constexpr std::int64_t tile = 64;
  const auto each_tile = [&](const auto& column) {
    for (std::int64_t i = 0; i < from.rows; i += tile)
      for (std::int64_t j = 0; j < from.columns; ++j) column(i, std::min(tile, from.rows - i), j);
  };
  for (int trial = 0; trial < 3; ++trial) {
    each_tile([&](std::int64_t i, std::int64_t count, std::int64_t j) {
      const T* x = &from(i, j);
      T* y = &to(i, j);
      for (std::int64_t e = 0; e < count; ++e) y[e * to.row_stride] = x[e * from.row_stride];
    });
    bool alike = true;
    each_tile([&](std::int64_t i, std::int64_t count, std::int64_t j) {
      for (std::int64_t e = 0; e < count; ++e) alike = same_bits<T>(to(i + e, j), from(i + e, j)) && alike;
    });
    if (alike) return;
  }
  throw error("qr: expected the bits of a matrix after it was copied, got others three times");
}

// Returns a column-major copy. `device` copies what lies on a device, its own or another.
template <class T>
matrix<T> packed_rows(matrix_view<const T> from, int device) {
  matrix<T> made(from.rows, from.columns, order::column_major);
  if (made.size() == 0) return made;
  if (ballast::cuda::residence_of(from.data) != ballast::cuda::residence::device) {
    copy_alike(from, made.view());
    return made;
  }
  const ballast::cuda::device_scope on(device);
  const auto& by = ballast::cuda::current_device();
  if (from.row_stride == 1) {
    for (std::int64_t j = 0; j < from.columns; ++j)
      by->copy(&made(0, j), &from(0, j), from.rows * static_cast<std::int64_t>(sizeof(T)), nullptr);
    by->synchronize(nullptr);
    return made;
  }
  const auto all = core::extent_of(from);
  std::vector<T> copy(static_cast<std::size_t>(all.bytes()) / sizeof(T));
  by->copy(copy.data(), all.first, all.bytes(), nullptr);
  by->synchronize(nullptr);
  copy_alike(core::in_copy(from, static_cast<const T*>(copy.data())), made.view());
  return made;
}

}  // namespace ballast::qr
