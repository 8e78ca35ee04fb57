// Arrays of the caller, of any rank and with any strides, and the dense arrays of a chunk of signals into which they are copied.
// Layer: FFT, over the backends of the host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "fft/cpu/parity.hpp"

namespace ballast::fft::composite {

// Calls visit(number, offset) for each row of an array with these lengths, in C order: the number of its first element, and the offset of
// that by these strides.
template <class Visit>
void for_each_row(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& strides, const Visit& visit) {
  const std::size_t rank = lengths.size();
  core::vector<std::int64_t> index(rank, 0);
  std::int64_t number = 0, offset = 0;
  for (;; number += lengths.back()) {
    visit(number, offset);
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

// Returns the part of a chunk's parity (fft/cpu/parity.hpp) that scalar s of lane l has.
template <class T>
std::uint64_t placed_word(T x, std::int64_t s, std::int64_t l) {
  return cpu::turned<T>(std::bit_cast<cpu::word_of<T>>(x), cpu::chunk_turn<T> * s + l);
}

// Returns the part of scalars s … s + count − 1 of lane l.
template <class T>
std::uint64_t parity_of_run(const T* from, std::int64_t count, std::int64_t s, std::int64_t l) {
  constexpr std::int64_t k_period = cpu::chunk_period<T>;
  cpu::word_of<T> joined[k_period] = {};
  std::int64_t i = 0;
  for (; i + k_period <= count; i += k_period) {
    for (std::int64_t k = 0; k < k_period; ++k) joined[k] ^= std::bit_cast<cpu::word_of<T>>(from[i + k]);
  }
  for (std::int64_t k = 0; i + k < count; ++k) joined[k] ^= std::bit_cast<cpu::word_of<T>>(from[i + k]);
  cpu::word_of<T> made = 0;
  for (std::int64_t k = 0; k < k_period; ++k) made ^= cpu::turned<T>(joined[k], cpu::chunk_turn<T> * (s + k) + l);
  return made;
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

  // Calls visit(place in memory, number in the dense array, scalar of its lane, lane) for each scalar. Elements of a signal or signals
  // are visited one after the other, as they lie closer together in memory: elements as many as a cache line has.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const std::int64_t row = lengths.back(), step = strides.back() * unit;
    const std::int64_t apart = used > 1 ? (offsets[1] - offsets[0]) * unit : 0;
    const bool elements_first = used > 1 && std::abs(step) < std::abs(apart);
    for_each_row(lengths, strides, [&](std::int64_t number, std::int64_t offset) {
      for (int p = 0; p < parts; ++p) {
        T* const base = part[static_cast<std::size_t>(p)] + offset * unit;
        const std::int64_t to = number * lanes * parts + p;
        const auto signal = [&](std::int64_t l) { return base + offsets[static_cast<std::size_t>(l)] * unit; };
        if (!elements_first) {
          for (std::int64_t j = 0; j < row; ++j) {
            for (std::int64_t l = 0; l < used; ++l) visit(signal(l)[j * step], to + (j * lanes + l) * parts, (number + j) * parts + p, l);
          }
          continue;
        }
        for (std::int64_t first = 0; first < row; first += k_piece) {
          const std::int64_t end = std::min(row, first + k_piece);
          for (std::int64_t l = 0; l < used; ++l) {
            T* const from = signal(l);
            for (std::int64_t j = first; j < end; ++j) visit(from[j * step], to + (j * lanes + l) * parts, (number + j) * parts + p, l);
          }
        }
      }
    });
  }
  // Returns the parity of the chunk, from memory.
  std::uint64_t parity() const {
    std::uint64_t made = 0;
    if (strides.back() != 1 || unit != parts) {
      for_each(
          [&](const T& value, std::int64_t, std::int64_t s, std::int64_t l) { made ^= placed_word<std::remove_const_t<T>>(value, s, l); });
      return made;
    }
    const std::int64_t scalars = lengths.back() * parts;
    for_each_row(lengths, strides, [&](std::int64_t number, std::int64_t offset) {
      for (std::int64_t l = 0; l < used; ++l) {
        const std::remove_const_t<T>* const signal = part[0] + (offset + offsets[static_cast<std::size_t>(l)]) * unit;
        made ^= parity_of_run(signal, scalars, number * parts, l);
      }
    });
    return made;
  }

 private:
  static constexpr std::int64_t k_piece = 64 / static_cast<std::int64_t>(sizeof(T));
};

}  // namespace ballast::fft::composite
