// Points in compressed rows: one type for indices of 32 and of 64 bits.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include <ballast/kmeans.hpp>
#include <ballast/view.hpp>

namespace ballast::kmeans {

// The operand of a call: csr_view without its type of indices. Verified by check_sparse (api/validation.hpp).
template <class T>
class sparse_rows {
 public:
  sparse_rows() = default;
  template <class Index>
  explicit sparse_rows(const csr_view<const T, Index>& from)
      : rows_(from.rows), columns_(from.columns), values_(from.values.data()), values_end_(static_cast<std::int64_t>(from.values.size())) {
    if constexpr (std::is_same_v<Index, std::int32_t>) {
      offsets32_ = from.offsets.data();
      indices32_ = from.indices.data();
    } else {
      offsets64_ = from.offsets.data();
      indices64_ = from.indices.data();
    }
  }

  bool present() const { return rows_ > 0; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  // The elements of row i are those from first(i) to first(i + 1) − 1.
  std::int64_t first(std::int64_t i) const { return offsets32_ != nullptr ? offsets32_[i] : offsets64_[i]; }
  std::int64_t column(std::int64_t e) const { return indices32_ != nullptr ? indices32_[e] : indices64_[e]; }
  T value(std::int64_t e) const { return values_[e]; }
  std::int64_t stored() const { return values_end_; }

  // The arrays for a device: those of the caller. Indices have 64 bits if they are wide.
  bool wide() const { return offsets64_ != nullptr; }
  const T* values_for_device() const { return near_values_ != nullptr ? near_values_ : values_; }
  const void* offsets_for_device() const { return near_offsets_ != nullptr ? near_offsets_ : offsets(); }
  const void* indices_for_device() const { return near_indices_ != nullptr ? near_indices_ : indices(); }

  // The same places with other values.
  sparse_rows with_values(const T* values) const {
    sparse_rows made = *this;
    made.values_ = made.near_values_ = values;
    made.near_offsets_ = made.offsets();
    made.near_indices_ = made.indices();
    return made;
  }
  // The same rows, of which `given` has other copies: those of the caller, which may lie on a device.
  sparse_rows with_given(const sparse_rows& given) const {
    sparse_rows made = *this;
    made.near_values_ = given.values_;
    made.near_offsets_ = given.offsets();
    made.near_indices_ = given.indices();
    return made;
  }

  // Calls use(column, value) for each stored element of row i.
  template <class Use>
  void each(std::int64_t i, Use&& use) const {
    for (std::int64_t e = first(i), end = first(i + 1); e < end; ++e) use(column(e), value(e));
  }

 private:
  const void* offsets() const { return wide() ? static_cast<const void*>(offsets64_) : offsets32_; }
  const void* indices() const { return wide() ? static_cast<const void*>(indices64_) : indices32_; }

  std::int64_t rows_ = 0, columns_ = 0;
  const T* values_ = nullptr;
  std::int64_t values_end_ = 0;
  const std::int32_t *offsets32_ = nullptr, *indices32_ = nullptr;
  const std::int64_t *offsets64_ = nullptr, *indices64_ = nullptr;
  const T* near_values_ = nullptr;  // null: those above
  const void *near_offsets_ = nullptr, *near_indices_ = nullptr;
};

}  // namespace ballast::kmeans
