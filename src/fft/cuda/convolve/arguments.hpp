// The arguments of convolve.cuh's kernels, for host and device compilers.
// Layer: backend "cuda".
#pragma once

#include <cstdint>

namespace ballast::fft::cuda {

inline constexpr int k_convolve_threads = 256;
inline constexpr int k_convolve_tile = 4096;  // neighbouring elements of a block that a thread block takes
inline constexpr int k_convolve_sums = 6;  // Σ v zᵖ at two points, real and imaginary parts; Σ |v|²; the number of elements that are not 0
// Kernels for few axes are compiled for their number, the others for any: a result of 2⁴⁰ points has at most 40 axes of more than one.
inline constexpr int k_convolve_few_axes = 3, k_convolve_axes = 40;

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

// The blocks of a group, in C order along the axes, each a dense array in C order, and the tiles of each block.
template <int Axes>
struct convolve_blocks {
  std::int64_t length[Axes];       // elements of a block
  std::int64_t step[Axes];         // elements of the operand from one block to the next
  std::int64_t extent[Axes];       // blocks of the group
  std::int64_t first[Axes];        // the number of the group's first block
  std::int64_t turn[Axes];         // the index of element k_convolve_threads of a block; along axis 0 without a limit
  std::int64_t points;             // elements of a block
  std::int64_t parts;              // tiles of a block
  std::int64_t first_tile, tiles;  // those of the call, for injection
  std::int32_t axes;
};

// Element p of block b is element number · step + p of the operand, along each axis, for number = first + b and p < step, and 0 else.
template <int Axes>
struct convolve_pad_arguments {
  convolve_blocks<Axes> blocks;
  const void* from;
  void* to;
  std::int64_t count[Axes];  // lengths of the operand, which is dense
  std::int64_t elements;     // their product
  std::int32_t reversed;     // element j is the conjugate of from[elements − 1 − j]
  std::int32_t turn, turns;  // for injection
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

// Result t = number · step + p along each axis is y[b][p]; along any of the axes the block before adds its element p + step where it has
// one. The result is stored at index t − out_first.
template <int Axes>
struct convolve_add_arguments {
  convolve_blocks<Axes> blocks;
  const void* y;
  void* out;
  std::int64_t all[Axes];      // blocks of the call
  std::int64_t overlap[Axes];  // elements of a block that belong to the next one, too
  std::int64_t lead[Axes];     // blocks of the group that were stored with the group before
  std::int64_t out_first[Axes], out_count[Axes];
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
