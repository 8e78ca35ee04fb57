// Arrays of the caller, of any rank and with any strides, and the dense arrays of a chunk of signals into which they are copied.
// Layer: FFT, over the backends of the host.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "abft/seal.hpp"
#include "core/memory.hpp"
#include "fft/contract.hpp"

namespace ballast::fft::composite {

// Calls visit(number, offset) for each element of an array with these lengths, in C order, with its offset by these strides.
template <class Visit>
void for_each_element(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& strides, const Visit& visit) {
  const std::size_t rank = lengths.size();
  core::vector<std::int64_t> index(rank, 0);
  std::int64_t number = 0, offset = 0;
  const std::int64_t row = lengths.back(), step = strides.back();
  for (;;) {
    for (std::int64_t j = 0; j < row; ++j) visit(number++, offset + j * step);
    std::size_t axis = rank - 1;
    for (;;) {
      if (axis == 0) return;
      --axis;
      offset += strides[axis];
      if (++index[axis] < lengths[axis]) break;
      offset -= strides[axis] * lengths[axis];
      index[axis] = 0;
    }
  }
}

// The signals [first, first + used) of one side: where their elements lie in memory, and where in the dense array of a chunk, which has
// `lanes` signals side by side. Element j of lane l is there number j · lanes + l.
template <class T>
struct chunk_view {
  const std::vector<std::int64_t>& lengths;
  const std::vector<std::int64_t>& strides;
  std::array<T*, 2> part = {};  // the first real part, the first imaginary part
  int parts = 1;
  std::int64_t unit = 1;  // scalars from one element to the next
  std::int64_t lanes = 1, used = 1;
  const core::vector<std::int64_t>& offsets;  // one for each signal, in elements

  // Calls visit(place in memory, number in the dense array) for each scalar.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for_each_element(lengths, strides, [&](std::int64_t number, std::int64_t offset) {
      for (int p = 0; p < parts; ++p) {
        T* const base = part[static_cast<std::size_t>(p)] + offset * unit;
        const std::int64_t to = number * lanes * parts + p;
        for (std::int64_t l = 0; l < used; ++l) visit(base[offsets[static_cast<std::size_t>(l)] * unit], to + l * parts);
      }
    });
  }
  // Returns the exclusive or of the words in memory.
  std::uint64_t parity() const {
    std::uint64_t made = 0;
    for_each([&](const T& value, std::int64_t) { made ^= abft::word_of(value); });
    return made;
  }
};

}  // namespace ballast::fft::composite
