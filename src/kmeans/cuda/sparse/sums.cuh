// Sums the points in compressed rows by their labels, in fixed point: integers, so that the order of the additions does not matter.
// Layer: backend "cuda" of K-Means, device code.
#pragma once

#include "cuda/arch/arch.cuh"
#include "cuda/block/injector.cuh"
#include "cuda/block/launch.cuh"
#include "kmeans/cuda/sparse/points.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Adds magic and subtracts it again: the integer nearest to y, |y| ≤ 2^50.
__device__ __forceinline__ double nearest_integer(double y) {
  constexpr double magic = 0x1.8p52;
  return __dsub_rn(__dadd_rn(y, magic), magic);
}

// A warp adds a row: w · x of each element, in words of word_bits bits each, the first one signed and the others the remainders. The second
// half of the blocks takes the rows in reverse, so that other warps compute each of them again.
template <class T, class Injector>
__global__ void __launch_bounds__(k_sparse_threads)
    sparse_sums_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sparse_sums_arguments<T>, Injector> given) {
  const sparse_sums_arguments<T>& a = given.arguments;
  const unsigned blocks = a.check ? gridDim.x / 2 : gridDim.x;
  const bool again = blockIdx.x >= blocks;
  const std::int64_t warp = std::int64_t{again ? blockIdx.x - blocks : blockIdx.x} * (k_sparse_threads / 32) + arch::warp();
  if (warp >= a.points.m) return;
  const std::int64_t row = again ? a.points.m - 1 - warp : warp;
  const std::int64_t end = first_of(a.points, row + 1);
  const double weight = a.point_weights == nullptr ? 1.0 : static_cast<double>(a.point_weights[row] * a.weight_scale);
  const std::int32_t label = a.label[row];
  if (weight == 0 || label < 0 || label >= a.clusters) return;  // a label that is none comes from a fault; the row is missing in the sums
  unsigned long long* const sums = a.sums + ((again ? a.clusters : 0) + label) * a.points.n * a.words;
  const double shift = static_cast<double>(std::int64_t{1} << a.word_bits);
  for (std::int64_t at = first_of(a.points, row) + arch::lane(); at < end; at += 32) {
    const sparse_element<T> mine = load_element(a.points, at);
    double rest = weight * static_cast<double>(mine.x) * a.unit[mine.feature];
    for (int word = 0; word < a.words; ++word) {
      const double whole = nearest_integer(rest);
      arch::add_global(sums + std::int64_t{mine.feature} * a.words + word, static_cast<unsigned long long>(static_cast<long long>(whole)));
      rest = (rest - whole) * shift;
    }
  }
}

// Returns the number that the words of one sum make. Carries leave each later word at most half a unit of the one before, so that words do
// not cancel.
__device__ __forceinline__ double number_of_words(const sparse_convert_arguments& a, const unsigned long long* words, double unit) {
  const std::int64_t half = std::int64_t{1} << (a.word_bits - 1);
  const double shift = 1 / static_cast<double>(std::int64_t{1} << a.word_bits);
  std::int64_t carry = 0;
  double sum = 0;
  for (int word = a.words - 1; word >= 0; --word) {
    const std::int64_t whole = static_cast<std::int64_t>(words[word]) + carry;
    carry = word > 0 ? (whole + half) >> a.word_bits : 0;
    sum = sum * shift + static_cast<double>(whole - carry * 2 * half);
  }
  return sum / unit;
}

// Each thread makes a number of one sum, and again of the sum of the second computation. Both have the same bits, or the sum becomes NaN,
// which no check passes.
template <class Injector>
__global__ void __launch_bounds__(k_sparse_threads)
    sparse_convert_kernel(const __grid_constant__ ballast::cuda::kernel_launch<sparse_convert_arguments, Injector> given) {
  const sparse_convert_arguments& a = given.arguments;
  const std::int64_t first = std::int64_t{blockIdx.x} * k_sparse_threads, at = first + threadIdx.x;
  if (at >= a.count) return;
  double sum = number_of_words(a, a.sums + at * a.words, a.unit[at % a.n]);
  const int threads = static_cast<int>(a.count - first < k_sparse_threads ? a.count - first : k_sparse_threads);
  given.strike(ballast::cuda::index<1>{}, site::sum, {blockIdx.x, gridDim.x, 0, 1, static_cast<int>(threadIdx.x), threads}, &sum);
  a.made[at] = sum;
  if (a.again == nullptr) return;
  const double again = number_of_words(a, a.again + at * a.words, arch::load_itself(a.unit + at % a.n));
  if (__double_as_longlong(again) != __double_as_longlong(arch::load_itself(a.made + at)))
    a.made[at] = __longlong_as_double(0x7ff8000000000000ll);
}

}  // namespace ballast::kmeans::cuda
