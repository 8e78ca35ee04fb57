// The memory of operands with strides: the addresses that an operand reaches, its place in a copy of them, elements at one address.
// Layer: foundation.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <numeric>
#include <span>
#include <type_traits>

#include <ballast/view.hpp>

namespace ballast::core {

// The memory from the lowest to the highest address of an operand, with the gaps between its elements. An operand without elements has
// none.
template <class T>
struct extent {
  T* first = nullptr;
  std::int64_t elements = 0;

  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(sizeof(T)); }
  T* end() const { return first + elements; }
  std::span<T> span() const { return {first, static_cast<std::size_t>(elements)}; }
};

// Returns the extent of an operand whose extent_fits(). Strides may be negative.
template <class T>
extent<T> extent_of(const matrix_batch_view<T>& v) {
  if (v.data == nullptr || v.count < 1 || v.rows < 1 || v.columns < 1) return {v.data, 0};
  std::int64_t low = 0, high = 0;
  for (const std::int64_t reach : {(v.count - 1) * v.stride, (v.rows - 1) * v.row_stride, (v.columns - 1) * v.column_stride})
    (reach < 0 ? low : high) += reach;
  return {v.data + low, high - low + 1};
}
template <class T>
extent<T> extent_of(const matrix_view<T>& v) {
  return extent_of(matrix_batch_view<T>{v.data, 1, v.rows, v.columns, v.row_stride, v.column_stride, 0});
}

// Returns whether the extent of an operand with elements has less than 2^63 bytes.
template <class T>
bool extent_fits(const matrix_batch_view<T>& v) {
  std::int64_t elements = 1;
  const std::int64_t sides[][2] = {{v.count, v.stride}, {v.rows, v.row_stride}, {v.columns, v.column_stride}};
  for (const auto& [count, stride] : sides) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(count - 1, stride, &reach) || reach == INT64_MIN ||
        __builtin_add_overflow(elements, std::abs(reach), &elements))
      return false;
  }
  return !__builtin_mul_overflow(elements, static_cast<std::int64_t>(sizeof(T)), &elements);
}
template <class T>
bool extent_fits(const matrix_view<T>& v) {
  return extent_fits(matrix_batch_view<T>{v.data, 1, v.rows, v.columns, v.row_stride, v.column_stride, 0});
}

// Returns the operand in a copy of its extent; `copy` is the copy of extent::first.
template <class View, class T = std::remove_pointer_t<decltype(View::data)>>
View in_copy(View v, std::type_identity_t<T>* copy) {
  v.data = copy + (v.data - extent_of(v).first);
  return v;
}

// Returns whether the strides of a view keep its elements apart. Elements (i, j) and (i', j') coincide if (i − i') · down =
// ± (j − j') · across, whose least solution has the factors across / gcd and down / gcd.
template <class T>
bool elements_apart(const matrix_view<T>& v) {
  const std::int64_t down = std::abs(v.row_stride), across = std::abs(v.column_stride), common = std::gcd(down, across);
  return common == 0 ? v.rows * v.columns == 1 : across / common >= v.rows || down / common >= v.columns;
}

}  // namespace ballast::core
