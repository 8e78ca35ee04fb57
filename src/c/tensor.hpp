// DLPack's tensors as views of the C++ interface, with all checks of what a tensor says.
// Layer: interface. Reads tensors, never elements.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <ballast/ballast.h>
#include <ballast/execution.hpp>
#include <ballast/view.hpp>

namespace ballast::c {

inline constexpr int k_most_axes = 64;

// The types of elements that Ballast takes.
enum class element : std::uint8_t { i32, f32, f64, c64, c128, i64, f16, bf16 };

template <class T>
inline constexpr element element_of = std::is_same_v<T, std::int32_t>          ? element::i32
                                      : std::is_same_v<T, std::int64_t>        ? element::i64
                                      : std::is_same_v<T, float16>             ? element::f16
                                      : std::is_same_v<T, bfloat16>            ? element::bf16
                                      : std::is_same_v<T, float>               ? element::f32
                                      : std::is_same_v<T, double>              ? element::f64
                                      : std::is_same_v<T, std::complex<float>> ? element::c64
                                                                               : element::c128;

// The types that transforms and matrices have.
constexpr bool is_number(element type) { return type != element::i32 && type < element::i64; }
constexpr bool is_complex(element type) { return type == element::c64 || type == element::c128; }
constexpr precision precision_of_element(element type) {
  return type == element::f32 || type == element::c64 ? precision::f32 : precision::f64;
}

// The names of an operand for messages.
struct named {
  std::string_view problem;  // the token
  std::string_view name;     // the parameter's
};

// A tensor that was checked: not null, 0 to 64 lengths >= 0, strides that fit, a type that Ballast takes.
struct tensor {
  tensor(const DLTensor* given, named as);

  // Throws invalid_argument_error unless the tensor has this type; this number of axes.
  void expect(element wanted) const;
  void expect_axes(int axes) const;
  // Throws invalid_argument_error if there are no elements: the C++ interface takes an empty operand for one that was left out.
  const tensor& expect_elements() const;

  // The first element. Throws invalid_argument_error if there are elements and no address, or if the memory is not that of the device that
  // the tensor names; unsupported_error if that is no host and no CUDA device. `where`: of the plan.
  void* address(const execution& where) const;
  bool on_device() const { return device == BALLAST_DLPACK_CUDA; }

  named as;
  int axes = 0;
  element type = element::f32;
  std::int32_t device = BALLAST_DLPACK_CPU;  // DLPack's number
  bool empty = false;                        // a length is 0
  std::array<std::int64_t, k_most_axes> length, stride;

 private:
  const DLTensor* given_;
};

// A matrix, rows first. `column`: a tensor of one axis is a matrix of one column.
template <class T>
matrix_view<T> matrix_of(const tensor& of, const execution& where, bool column = false) {
  of.expect(element_of<std::remove_const_t<T>>);
  if (!(column && of.axes == 1)) of.expect_axes(2);
  auto* const data = static_cast<T*>(of.address(where));
  if (of.axes == 1) return {data, of.length[0], 1, of.stride[0], of.length[0]};
  return {data, of.length[0], of.length[1], of.stride[0], of.stride[1]};
}

// Matrices in the order of the first axis. `column`: a tensor of two axes has matrices of one column.
template <class T>
matrix_batch_view<T> matrices_of(const tensor& of, const execution& where, bool column = false) {
  of.expect(element_of<std::remove_const_t<T>>);
  if (!(column && of.axes == 2)) of.expect_axes(3);
  auto* const data = static_cast<T*>(of.address(where));
  if (of.axes == 2) return {data, of.length[0], of.length[1], 1, of.stride[1], of.length[1], of.stride[0]};
  return {data, of.length[0], of.length[1], of.length[2], of.stride[1], of.stride[2], of.stride[0]};
}

// Returns the number of elements. Throws invalid_argument_error if there are gaps between them, or too many.
std::int64_t elements_without_gaps(const tensor& of);

// A tensor of `axes` axes without gaps.
template <class T>
std::span<T> elements_of(const tensor& of, int axes, const execution& where) {
  of.expect(element_of<std::remove_const_t<T>>);
  of.expect_axes(axes);
  const std::int64_t count = elements_without_gaps(of);
  return {static_cast<T*>(of.address(where)), static_cast<std::size_t>(count)};
}

// "3 x 4"; "a scalar".
std::string lengths_of(const tensor& of);

}  // namespace ballast::c
