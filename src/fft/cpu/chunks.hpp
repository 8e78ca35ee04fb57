// The SIMD kernels of many reals side by side: the dense arrays of composite/, where element j of lane l is number j · lanes + l. One table
// of functions for each precision and instruction set.
// Layer: backend "cpu". chunks-inl.hpp implements them.
#pragma once

#include <cstdint>

namespace ballast::fft::cpu {

// The place of a scalar of lane 0, whose lanes lie `stride` apart: 2 for the parts of complex numbers.
struct row_place {
  std::int64_t offset, stride;
};

// Sums of `rows` elements of all lanes, complex, with one weight or two for each element. lanes: 1, or a multiple of chunk_kernels::lanes.
template <class T>
struct chunk_sum {
  const T* from = nullptr;
  std::int64_t rows = 0, lanes = 1;
  const double *re[2] = {}, *im[2] = {};   // the weights; re[1] null: there is only one vector
  double *high = nullptr, *low = nullptr;  // they are added to: re, im of the first sum, then of the second, each for all lanes
  double* squares = nullptr;               // Σ x² of each lane is added; null: it is not computed
};

// A sparse map of `lanes` ≥ 1 lines side by side, for `outer` blocks of them: result i is Σ factor · source over the terms begin[i] …
// begin[i + 1] − 1. Block o lies stride · o · from_outer (to_outer) further. paired[i]: results i and i + 1 are the parts of complex
// numbers. A row of results may be one of its sources, and overlaps no other.
template <class T>
struct chunk_map {
  const std::int64_t* begin = nullptr;
  const row_place *source = nullptr, *target = nullptr;
  const std::uint8_t* paired = nullptr;
  std::int64_t rows = 0, lanes = 1, outer = 1;
  std::int64_t from_outer = 0, to_outer = 0;
  const T* factors = nullptr;
  const T* from = nullptr;
  T* to = nullptr;
};

// `lanes` signals of `count` contiguous reals, `distance` scalars apart, and a dense array of them. lanes: a multiple of
// chunk_kernels::lanes.
template <class T>
struct chunk_copy {
  const T* from = nullptr;
  T* to = nullptr;
  std::int64_t distance = 0, count = 0, lanes = 0;
};

template <class T>
struct chunk_kernels {
  int lanes;
  // Returns the parity of what it summed as the beginning of a chunk (parity.hpp), from the same registers.
  std::uint64_t (*sum)(const chunk_sum<T>& of);
  void (*map)(const chunk_map<T>& of);
  // gather: from signals to the dense array. scatter: from the dense array to signals.
  void (*gather)(const chunk_copy<T>& of);
  void (*scatter)(const chunk_copy<T>& of);
};

template <class T>
const chunk_kernels<T>& chunks();
template <>
const chunk_kernels<float>& chunks();
template <>
const chunk_kernels<double>& chunks();

}  // namespace ballast::fft::cpu
