// The rows of one rank in the calls of row_factors: their factors, in host memory or in that of a device, and what is computed with them.
// Layer: algorithm, over the calls of one rank and group_operation.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

#include "qr/api/group_operation.hpp"
#include "qr/api/packed_rows.hpp"

namespace ballast::qr {

// The elements of a view, row by row.
template <class T>
std::vector<T> rows_of(matrix_view<const T> from, std::int64_t first, std::int64_t count) {
  std::vector<T> made;
  made.reserve(static_cast<std::size_t>(count * from.columns));
  for (std::int64_t i = first; i < first + count; ++i)
    for (std::int64_t j = 0; j < from.columns; ++j) made.push_back(from(i, j));
  return made;
}

// Stores elements, row by row, from row `first` on. Returns false if they are not as many as rows fit.
template <class T>
bool store_rows(std::span<const std::byte> from, matrix_view<T> to, std::int64_t first) {
  const auto row = static_cast<std::size_t>(to.columns) * sizeof(T);
  if (row == 0) return from.empty();
  const auto count = static_cast<std::int64_t>(from.size() / row);
  if (from.size() % row != 0 || first + count > to.rows) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < to.columns; ++j)
      std::memcpy(&to(first + i, j), from.data() + static_cast<std::size_t>(i) * row + static_cast<std::size_t>(j) * sizeof(T), sizeof(T));
  }
  return true;
}

// The elements on and above the diagonal of the first rows, row by row, zeros below.
template <class T>
std::vector<T> triangle_of(matrix_view<const T> storage) {
  const std::int64_t rows = std::min(storage.rows, storage.columns);
  std::vector<T> made = rows_of(storage, 0, rows);
  for (std::int64_t i = 0; i < rows; ++i) std::fill_n(made.begin() + i * storage.columns, i, T(0));
  return made;
}

template <class T>
class own_rows {
 public:
  own_rows() = default;
  own_rows(const own_rows&) = delete;
  own_rows& operator=(const own_rows&) = delete;
  virtual ~own_rows() = default;

  virtual std::int64_t rows() const = 0;
  // Factors the rows, at least one, and returns the min(rows, n) rows of their triangle.
  virtual std::vector<T> factor(group_operation<T>& call, matrix_view<const T> A) = 0;
  // Qᵀ B: the rows that belong to the triangle, row by row.
  virtual std::vector<T> transposed_times(group_operation<T>& call, matrix_view<const T> B) const = 0;
  // to ← Q [top; 0], in host memory; top: the rows that belong to the triangle, row by row.
  virtual void times(group_operation<T>& call, std::span<const std::byte> top, matrix_view<T> to) const = 0;

 protected:
  static void store_top(std::span<const std::byte> top, matrix_view<T> to) {
    if (!store_rows(top, to, 0)) throw error("qr: the rows of a rank have another size than expected");
  }
};

// Rows of a rank of an engine.
template <class T>
class rows_on_host final : public own_rows<T> {
 public:
  explicit rows_on_host(const factors<T>& own) : own_(own) {}
  explicit rows_on_host(factors<T>& own) : own_(own), to_(&own) {}

  std::int64_t rows() const override { return own_.storage.rows(); }

  std::vector<T> factor(group_operation<T>& call, matrix_view<const T> A) override {
    *to_ = qr::factor(A, call.alone(), call.silent());
    call.add(own_.report);
    return triangle_of(storage());
  }

  std::vector<T> transposed_times(group_operation<T>& call, matrix_view<const T> B) const override {
    if (rows() == 0) return {};
    matrix<T> C = packed_rows(B, call.alone().device);
    call.add(ormqr(side::left, transpose::yes, storage(), tau(), C.view(), call.alone(), call.silent()));
    return rows_of(std::as_const(C).view(), 0, std::min(B.rows, own_.storage.columns()));
  }

  void times(group_operation<T>& call, std::span<const std::byte> top, matrix_view<T> to) const override {
    if (rows() == 0) return;
    this->store_top(top, to);
    call.add(ormqr(side::left, transpose::no, storage(), tau(), to, call.alone(), call.silent()));
  }

 private:
  matrix_view<const T> storage() const { return own_.storage.view(); }
  std::span<const T> tau() const { return std::span<const T>(own_.tau); }
  const factors<T>& own_;
  factors<T>* const to_ = nullptr;  // for factor()
};

// Rows of a device. `devices`: the numbers of all that the group has; A and B may lie in the memory of any of them.
template <class T>
std::unique_ptr<own_rows<T>> make_rows_on_device(device_factors<T>& own, std::span<const int> devices);

}  // namespace ballast::qr
