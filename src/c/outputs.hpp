// Matrices that results are copied to.
// Layer: interface.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <ballast/error.hpp>

#include "c/tensor.hpp"
#include "core/extent.hpp"
#include "core/format.hpp"

namespace ballast::c {

// A tensor in host memory with this many rows and columns. A tensor of one axis is one column.
template <class T>
matrix_view<T> target_of(const tensor& of, std::int64_t rows, std::int64_t columns, bool column = false) {
  const auto refuse = [&](const std::string& what) {
    throw invalid_argument_error(fmt::format("{}: {}: {}", of.as.problem, of.as.name, what));
  };
  const matrix_view<T> made = matrix_of<T>(of, {}, column);
  if (made.rows != rows || made.columns != columns)
    refuse(fmt::format("expected {} × {}, got {} × {}", rows, columns, made.rows, made.columns));
  if (of.on_device()) refuse("expected host memory, got that of a device");
  if (!core::extent_fits(made) || !core::elements_apart(made))
    refuse(fmt::format("expected strides that keep the elements apart and within 63 bits of address, got {} and {}", made.row_stride,
                       made.column_stride));
  return made;
}

template <class T>
void copy(matrix_view<const T> from, matrix_view<T> to) {
  for (std::int64_t j = 0; j < to.columns; ++j) {
    for (std::int64_t i = 0; i < to.rows; ++i) to(i, j) = from(i, j);
  }
}

// Copies geqrf's matrix and its tau, of QR's factors; either tensor may be null.
template <class Factors>
void copy_storage(const Factors& from, const std::string& token, const DLTensor* A, const DLTensor* tau) {
  using T = std::remove_cvref_t<decltype(from.tau.front())>;
  const auto count = static_cast<std::int64_t>(from.tau.size());
  matrix_view<T> matrix, scalars;
  if (A != nullptr) matrix = target_of<T>(tensor(A, {token, "A"}), from.storage.rows(), from.storage.columns());
  if (tau != nullptr) scalars = target_of<T>(tensor(tau, {token, "tau"}), count, 1, true);
  copy<T>(from.storage.view(), matrix);
  copy<T>(column_major(from.tau.data(), count, 1), scalars);
}

}  // namespace ballast::c
