// The arguments of convolve.cuh's kernels, for host and device compilers.
// Layer: backend "cuda".
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_convolve_threads = 256;
inline constexpr int k_convolve_tile = 4096;  // neighbouring elements of a block that a thread block takes
inline constexpr int k_convolve_sums = 6;  // Σ v zᵖ at two points, real and imaginary parts; Σ |v|²; the number of elements that are not 0

// The numbers of one call, or of one group of blocks of it, that the host reads.
struct convolve_verdict {
  unsigned long long differing;                 // thread blocks that found other bits than those of a second computation
  unsigned long long passed, failed, unjudged;  // blocks, by their check from end to end
  unsigned long long bits;                      // the hash of all results
};

// The check of one block from end to end.
struct convolve_judgement {
  double residual, threshold;
  std::uint32_t word;
  std::int32_t open;  // not 0: no checksum can judge these data
};

// An operand in device memory, as it is convolved.
struct convolve_operand {
  const void* data;
  std::int64_t count;
  std::int32_t reversed;  // element j is the conjugate of data[count − 1 − j]
};

// Blocks of an operand: element p of block b is element number · step + p of the operand for number = first + b and p < step, and 0 else.
struct convolve_pad_arguments {
  convolve_operand from;
  void* to;  // blocks of `length` elements
  std::int64_t length, step, first, parts;
  std::int64_t first_tile, tiles;  // those of the call, for injection
  std::int32_t turn, turns;        // the same
  // The check reads and writes these.
  const double* powers;  // for both points, the powers of z up to 255 and those with exponents 0, 4096, …: complex numbers
  double stride[4];      // z²⁵⁶ at both points
  double* sums;          // k_convolve_sums for each tile
  convolve_verdict* verdict;
};

// to[b][i] = from[b][i] · kernel[i], i < points.
struct convolve_product_arguments {
  const void *from, *kernel;
  void* to;
  std::int64_t points, parts;
  std::int64_t first_tile, tiles;
  convolve_verdict* verdict;
};

// Result t = number · step + p is y[b][p], and y[b − 1][p + step] is added where it exists. It is stored at out[t − out_first].
struct convolve_add_arguments {
  const void* y;  // blocks of `length` elements
  void* out;
  std::int64_t length, step, overlap, first, blocks, parts;  // overlap: elements of a block that belong to the next one, too
  std::int64_t lead;                                         // blocks of the group that were stored with the group before
  std::int64_t out_first, out_count;
  std::int64_t first_tile, tiles;
  const double* powers;
  double stride[4];
  double* sums;
  convolve_verdict* verdict;
};

struct convolve_judge_arguments {
  const double *in, *kernel, *out;  // sums of tiles
  std::int64_t blocks, parts;       // blocks of this launch, tiles of each
  std::int64_t first_block, all_blocks;
  double relative, smallest, largest, root;  // the threshold's parts; norms up to `largest` are judged; √N
  double low;                                // the smallest square that is valid
  convolve_judgement* judged;
  convolve_verdict* verdict;
};

}  // namespace ballast::fft::cuda
