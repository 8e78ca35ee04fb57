// Selects the implementation of a problem on the CPU: one pass, a volume or a convolution.
// Layer: backend "cpu".
#include <cstdint>
#include <memory>
#include <utility>

#include "fft/cpu/convolution.hpp"
#include "fft/cpu/long_real.hpp"
#include "fft/cpu/one_pass.hpp"
#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {
namespace {

// Lines of up to this many points are transformed in one pass: the two buffers of a tile (128 bytes a row with AVX-512) then stay in the
// second-level cache. With many signals one pass is faster for buffers up to the size of the third-level cache, because each check is
// computed once, not twice: 2^24 points as 16384 × 1024, protected, take 25 ms in one pass and 32 ms in two; unprotected they take the same
// (2 threads, Zen 5, f32).
constexpr std::int64_t k_one_pass = 2048;
constexpr std::int64_t k_one_pass_many = k_longest_line;
constexpr std::int64_t k_many_tiles = 16;

// Axes of length 1 waste lanes, so problems get their other axes last. Real kinds keep their last axis.
geometry with_short_axes_first(geometry shape) {
  for (std::size_t axis = shape.kind == kind::c2c ? 2 : 1; axis > 0; --axis) {
    for (std::size_t rest = axis; shape.n[axis] == 1 && rest > 0; --rest) {
      for (side* each : {&shape.input, &shape.output}) {
        std::swap(each->length[axis], each->length[rest - 1]);
        std::swap(each->stride[axis], each->stride[rest - 1]);
      }
      std::swap(shape.n[axis], shape.n[rest - 1]);
    }
  }
  return shape;
}

template <class T>
std::unique_ptr<transform> make(const geometry& given, bool protect) {
  const geometry shape = with_short_axes_first(given);
  const std::int64_t n = shape.n[2];
  if (shape.n[0] != 1 || shape.n[1] != 1) return std::make_unique<volume<T>>(shape, std::nullopt, protect);
  const int lanes = kernels<T>().lanes;
  const std::int64_t length = shape.kind != kind::c2c && n % 2 == 0 ? n / 2 : n;  // points of the complex transform
  const std::int64_t most = shape.batch >= k_many_tiles * lanes ? k_one_pass_many : k_one_pass;
  const bool along = one_pass<T>::goes_along(shape);
  const bool few = !along && shape.batch < lanes / 2 && length >= 16 * lanes;  // too few signals to fill the lanes of a tile
  if (long_real<T>::takes(shape) && !along && (few || length > most)) {
    if (const auto half = split_line(length)) return std::make_unique<long_real<T>>(shape, *half, protect);
  }
  const auto split = split_line(n);
  if (split && ((!along && length > most) || (few && shape.kind == kind::c2c))) return std::make_unique<volume<T>>(shape, split, protect);
  if (!split && length > k_longest_convolved_line) return std::make_unique<convolution<T>>(shape, protect);
  return std::make_unique<one_pass<T>>(shape, protect);
}

}  // namespace

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect) {
  if (type == precision::f32) return make<float>(shape, protect);
  return make<double>(shape, protect);
}

}  // namespace ballast::fft::cpu
