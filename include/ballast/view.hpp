// Non-owning views and the owning matrix.
// Layer: interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

namespace ballast {
inline namespace abi_1 {

// rows × columns elements; element (i, j) is data[i * row_stride + j * column_stride]. Strides are in elements.
// Does not own; `matrix_view<const T>` cannot change what it shows. No argument is checked here: the operations check.
template <class T>
struct matrix_view {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;

  constexpr T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * column_stride]; }

  // The block of `r` × `c` elements whose first is (i, j).
  constexpr matrix_view block(std::int64_t i, std::int64_t j, std::int64_t r, std::int64_t c) const {
    return {data + i * row_stride + j * column_stride, r, c, row_stride, column_stride};
  }

  constexpr matrix_view transposed() const { return {data, columns, rows, column_stride, row_stride}; }

  constexpr operator matrix_view<const T>() const requires(!std::is_const_v<T>) { return {data, rows, columns, row_stride, column_stride}; }
};

// `count` matrices of one shape; element (i, j) of matrix b is data[b * stride + i * row_stride + j * column_stride].
// Does not own. No argument is checked here: the operations check.
template <class T>
struct matrix_batch_view {
  T* data = nullptr;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t stride = 0;

  constexpr matrix_view<T> operator[](std::int64_t b) const { return {data + b * stride, rows, columns, row_stride, column_stride}; }

  // The same block of each matrix.
  constexpr matrix_batch_view block(std::int64_t i, std::int64_t j, std::int64_t r, std::int64_t c) const {
    return {data + i * row_stride + j * column_stride, count, r, c, row_stride, column_stride, stride};
  }

  constexpr matrix_batch_view transposed() const { return {data, count, columns, rows, column_stride, row_stride, stride}; }

  constexpr operator matrix_batch_view<const T>() const requires(!std::is_const_v<T>) {
    return {data, count, rows, columns, row_stride, column_stride, stride};
  }
};

// Contiguous matrices, each like `first`: column_major(data, m, n) makes that of the first, say.
template <class T>
constexpr matrix_batch_view<T> batch_of(const matrix_view<T>& first, std::int64_t count) {
  return {first.data, count, first.rows, first.columns, first.row_stride, first.column_stride, first.rows * first.columns};
}

// C order: rows are contiguous.
template <class T>
constexpr matrix_view<T> row_major(T* data, std::int64_t rows, std::int64_t columns) {
  return {data, rows, columns, columns, 1};
}

// Fortran order, LAPACK's: columns are contiguous, `leading_dimension` ≥ rows apart.
template <class T>
constexpr matrix_view<T> column_major(T* data, std::int64_t rows, std::int64_t columns, std::int64_t leading_dimension) {
  return {data, rows, columns, 1, leading_dimension};
}

template <class T>
constexpr matrix_view<T> column_major(T* data, std::int64_t rows, std::int64_t columns) {
  return column_major(data, rows, columns, rows);
}

// A sparse matrix in compressed rows (CSR). Row i has the element values[e] in column indices[e] for e from offsets[i] to offsets[i + 1] −
// 1; all others are 0. Index is std::int32_t or std::int64_t. Does not own. No argument is checked here: the operations check.
template <class T, class Index>
struct csr_view {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::span<const Index> offsets = {};  // rows + 1, none below the one before
  std::span<const Index> indices = {};  // ascending within a row, in [0, columns)
  std::span<T> values = {};             // as many as indices
};

enum class order : std::uint8_t { row_major, column_major };

// Owns rows × columns elements, contiguous in the given order, zero at first. Empty (0 × 0) after it was moved from.
template <class T>
class matrix {
 public:
  matrix() = default;
  // Throws invalid_argument_error if a size is negative, out_of_memory_error if the elements are more than memory can hold.
  matrix(std::int64_t rows, std::int64_t columns, ballast::order order = ballast::order::row_major)
      : rows_(rows), columns_(columns), order_(order), data_(elements(rows, columns)) {}
  matrix(const matrix&) = default;
  matrix(matrix&& other) noexcept
      : rows_(std::exchange(other.rows_, 0)),
        columns_(std::exchange(other.columns_, 0)),
        order_(other.order_),
        data_(std::exchange(other.data_, {})) {}
  matrix& operator=(matrix other) noexcept {
    rows_ = other.rows_;
    columns_ = other.columns_;
    order_ = other.order_;
    data_.swap(other.data_);
    return *this;
  }
  ~matrix() = default;

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  ballast::order order() const { return order_; }
  T* data() { return data_.data(); }
  const T* data() const { return data_.data(); }
  std::size_t size() const { return data_.size(); }

  matrix_view<T> view() { return make(data_.data()); }
  matrix_view<const T> view() const { return make(data_.data()); }
  operator matrix_view<T>() { return view(); }
  operator matrix_view<const T>() const { return view(); }

  T& operator()(std::int64_t i, std::int64_t j) { return view()(i, j); }
  const T& operator()(std::int64_t i, std::int64_t j) const { return view()(i, j); }

 private:
  static std::size_t elements(std::int64_t rows, std::int64_t columns) {
    if (rows < 0 || columns < 0)
      throw invalid_argument_error("matrix: expected 0 rows and columns or more, got " + std::to_string(rows) + " × " +
                                   std::to_string(columns));
    const std::size_t most = std::vector<T>().max_size();
    if (columns > 0 && static_cast<std::size_t>(rows) > most / static_cast<std::size_t>(columns)) throw std::bad_array_new_length();
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  }

  template <class U>
  matrix_view<U> make(U* p) const {
    return order_ == ballast::order::row_major ? row_major(p, rows_, columns_) : column_major(p, rows_, columns_);
  }

  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  ballast::order order_ = ballast::order::row_major;
  std::vector<T> data_;
};

}  // namespace abi_1
}  // namespace ballast
