// Points in half precision, as their bits.
// Layer: algorithm, backend-free.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <ballast/types.hpp>
#include <ballast/view.hpp>

namespace ballast::kmeans {

// Returns the number whose bits these are. Exact: every float16 and bfloat16 is a float. Without branches, so that compilers vectorize
// loops over it.
inline float widened(bfloat16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }
inline float widened(float16 value) {
  // Shifted into place the exponent is too small by 127 − 15; a product with 2^112 corrects it, of subnormal numbers as well.
  const std::uint32_t magnitude = std::uint32_t{value.bits} << 13 & 0x0fffe000, sign = std::uint32_t{value.bits} >> 15 << 31;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = magnitude >= 0x0f800000 ? 0x7f800000 : 0;  // Inf and NaN
  return std::bit_cast<float>(sign | finite | special);
}

// A matrix of one of the two types, with any strides.
class half_points {
 public:
  half_points() = default;
  explicit half_points(const matrix_view<const float16>& from) : half_points(from, false) {}
  explicit half_points(const matrix_view<const bfloat16>& from) : half_points(from, true) {}

  bool present() const { return data_ != nullptr; }
  bool brain() const { return brain_; }
  // Returns the bits as a matrix of m × n.
  matrix_view<const std::uint16_t> bits(std::int64_t m, std::int64_t n) const { return {data_, m, n, row_stride_, column_stride_}; }
  // Reads a number from memory, each time again.
  float at(std::int64_t i, std::int64_t f) const {
    const volatile std::uint16_t& from = data_[i * row_stride_ + f * column_stride_];
    const std::uint16_t bits = from;
    return brain_ ? widened(bfloat16{bits}) : widened(float16{bits});
  }
  // Writes n features of row i to `to`.
  void read_row(std::int64_t i, std::int64_t n, float* to) const {
    const std::uint16_t* const from = data_ + i * row_stride_;
    if (column_stride_ != 1) {
      for (std::int64_t f = 0; f < n; ++f) to[f] = at(i, f);
    } else if (brain_) {
      for (std::int64_t f = 0; f < n; ++f) to[f] = widened(bfloat16{from[f]});
    } else {
      for (std::int64_t f = 0; f < n; ++f) to[f] = widened(float16{from[f]});
    }
  }

 private:
  template <class Half>
  half_points(const matrix_view<const Half>& from, bool brain)
      : data_(reinterpret_cast<const std::uint16_t*>(from.data)),
        row_stride_(from.row_stride),
        column_stride_(from.column_stride),
        brain_(brain) {
    static_assert(sizeof(Half) == sizeof(std::uint16_t) && std::is_standard_layout_v<Half>);
  }

  const std::uint16_t* data_ = nullptr;  // the one member of each element
  std::int64_t row_stride_ = 0, column_stride_ = 0;
  bool brain_ = false;
};

}  // namespace ballast::kmeans
