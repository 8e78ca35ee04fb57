// The division of a convolution's operand into blocks whose transforms are fast.
// Layer: FFT, backend-free.
#pragma once

#include <cstdint>
#include <vector>

#include <ballast/types.hpp>

namespace ballast::fft {

// Blocks of an axis of n points for a kernel of m points: the length of a padded block, at least step + m − 1; the points from one block to
// the next; their number.
struct block_division {
  std::int64_t length, step, blocks;
};

// The smallest length of at least `least` whose transform is fast, 1 or even.
std::int64_t fast_length(std::int64_t least);

// The division of one axis with the least cost, L log L for each block of L points.
block_division divide(std::int64_t n, std::int64_t m);

// The division of all axes for a device, slowest first, with the least number of bytes that the steps of a protected or unprotected call
// move. An axis along which the kernel has one point may be divided into blocks of one point, which are not transformed along it.
// n, m: lengths of the same rank.
std::vector<block_division> divide_for_device(const std::vector<std::int64_t>& n, const std::vector<std::int64_t>& m, precision type,
                                              bool complex, bool protect);

}  // namespace ballast::fft
