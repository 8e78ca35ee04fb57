// The SIMD kernels of the FFT as a table of functions: one table for each precision and instruction set.
// Layer: backend "cpu". The *-inl.hpp files implement them; the best set for the running CPU is chosen once.
//
// A tile is a matrix of `rows` × 2W scalars, W = lanes: row j holds the real parts of element j of W signals, then the imaginary
// parts. Every arithmetic loop runs over whole vectors. As a matrix of 2·rows × W scalars, a tile is the transpose of the W signals in
// memory. `swapped` exchanges the roles of the two halves: a forward transform then computes the inverse.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace ballast::fft::cpu {

inline constexpr int k_max_lanes = 16;
inline constexpr int k_block = 16;  // rows summed in working precision before the sum is promoted

// Weighted sums of the lanes of a tile: re and im of both vectors.
struct alignas(64) lane_sums {
  double high[4][k_max_lanes];
  double low[4][k_max_lanes];   // what high lost to rounding; kept for double data only
  double squares[k_max_lanes];  // Σ|x|², from the encode side only
  std::uint64_t parity[8];      // of all words that were summed, in pieces: see parity_of
};

// One comparison for each lane and weight vector, as abft::guarded_threshold and abft::verify do it for a single one.
struct alignas(64) lane_verdicts {
  double value[k_max_lanes];           // thresholds
  double twin[k_max_lanes];            // and their copies
  double size[2][k_max_lanes];         // |residual|, as |re| + |im|
  std::uint64_t word[2][k_max_lanes];  // k_lane_pass, k_lane_repeat, or anything else
};
inline constexpr std::uint64_t k_lane_pass = 0x5aa5c33c3cc3a55a;
inline constexpr std::uint64_t k_lane_repeat = 0xa5c33c5aa53c5ac3;  // right if it comes out the same again, bit by bit

// The input side. Weights are rows of 4 scalars (b₀.re, b₀.im, b₁.re, b₁.im) for complex-linear checks, or of 8 (for each vector: what re
// adds to (re, im) of the sum, then what im adds) for real-linear ones.
template <class T>
struct encoder {
  const T* weights = nullptr;  // null: do not encode
  bool general = false;
  lane_sums* sums = nullptr;
};

// The output side of a line: weights of both vectors in one (fft/tables/weights.hpp). The sums are those of the first half of the rows plus
// and minus those of the second. Weights: a row has 2 scalars (re, im) if the check is complex-linear, else 4 (what the real part adds to
// re and im of the sum, then what the imaginary part does). With `coarse`, rows are freed of their twiddle factors on the way (see
// twiddle_rows).
template <class T>
struct output_sum {
  const T* weights = nullptr;
  bool general = false;
  lane_sums* sums = nullptr;
  const T* coarse = nullptr;
  const T* fine = nullptr;
  bool swapped = false;
};

// What the next tile will be loaded from, fetched towards the second-level cache while this one is transformed: runs of contiguous
// bytes, `period` bytes from one to the next. Without it loads and arithmetic take turns instead of overlapping.
struct read_ahead {
  const char* next = nullptr;
  const char* run_end = nullptr;
  std::int64_t skip = 0;  // from the end of a run to the start of the next
  std::int64_t period = 0;
  std::int64_t lines = 0;     // cache lines to go
  std::int64_t per_step = 0;  // for each butterfly

  static constexpr std::int64_t k_line = 64;

  read_ahead() = default;
  read_ahead(const void* base, std::int64_t runs, std::int64_t run, std::int64_t step) {
    if (run == step) {
      run *= runs;
      step = run;
      runs = 1;
    }
    const std::int64_t rounded = (run + k_line - 1) / k_line * k_line;
    next = static_cast<const char*>(base);
    run_end = next + rounded;
    skip = step - rounded;
    period = step;
    lines = runs * (rounded / k_line);
  }
  void step() {
    for (std::int64_t i = per_step < lines ? per_step : lines; i > 0; --i) {
      __builtin_prefetch(next, 0, 2);
      --lines;
      next += k_line;
      if (next == run_end) {
        next += skip;
        run_end += period;
      }
    }
  }
};

template <class T>
using word_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// All words of a tile joined by exclusive or, however they lie: what was read or stored in another order has the same.
template <class T>
std::uint64_t parity_of(const lane_sums& sums) {
  std::uint64_t joined = 0;
  for (const std::uint64_t piece : sums.parity) joined ^= piece;
  return sizeof(T) == 4 ? (joined ^ joined >> 32) & 0xffffffffu : joined;
}

// The same of `count` scalars.
template <class T>
std::uint64_t joined_scalars(const T* from, std::int64_t count) {
  word_of<T> joined = 0;
  for (std::int64_t i = 0; i < count; ++i) joined ^= std::bit_cast<word_of<T>>(from[i]);
  return joined;
}

template <class T>
struct kernel_table {
  int lanes;

  // Loads: `used` lanes (the others become zero), `rows` rows, and the sums of them. Strides in scalars. load_rows: lane l is 2·rows
  // contiguous scalars at base + l·lane_stride. load_columns: row j is `used` contiguous complex numbers. Both return the parity of the
  // source: it is that of the numbers that were encoded (parity_of), or one of them was struck.
  std::uint64_t (*load_rows)(const T* base, std::int64_t lane_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode);
  std::uint64_t (*load_columns)(const T* base, std::int64_t row_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode);
  // load_blocks: row-wise from blocks that store_blocks wrote: block t holds elements tW … tW + W − 1 of each lane, lane l in its row l.
  // Returns the number of blocks whose seal (at seals + t·seal_stride) does not match what lies in the tile now.
  std::int64_t (*load_blocks)(const T* base, std::int64_t block_stride, int used, std::int64_t rows, T* tile, const T* seals,
                              std::int64_t seal_stride, const encoder<T>& encode);
  void (*sum_tile)(const T* tile, std::int64_t rows, const encoder<T>& encode);    // starts from zero
  void (*sum_outputs)(const T* tile, std::int64_t rows, const output_sum<T>& of);  // starts from zero

  // threshold = factor · √squares + least, for each lane. False if some of the `used` squares are outside [low, high] or NaN.
  bool (*set_thresholds)(const lane_sums& input, int used, double factor, double least, double low, double high, lane_verdicts& to);
  void (*compare)(const lane_sums& input, const lane_sums& output, double scale, lane_verdicts& to);

  // Stores of the first `used` lanes of verified tiles. They return the parity of all lanes, taken of what the registers hold once they
  // are stored.
  std::uint64_t (*store_rows)(const T* tile, std::int64_t scalars, int used, T* base, std::int64_t lane_stride, bool stream);
  std::uint64_t (*store_columns)(const T* tile, std::int64_t rows, int used, T* base, std::int64_t row_stride, bool stream);
  std::uint64_t (*join_rows)(const T* tile, std::int64_t rows);  // the parity of rows

  // Seals: words that change with every bit of what they are made of. seal_blocks: one word for each W rows, of their first `used` lanes.
  // It is the same for those numbers transposed, as load_blocks sees them. seal_rows: a word for each lane, of all rows. extend_seals: row
  // j extends `from` to `to`, of a word for each lane.
  void (*seal_blocks)(const T* tile, std::int64_t rows, int used, T* seals);
  void (*seal_rows)(const T* tile, std::int64_t rows, T* seal);
  void (*extend_seals)(const T* tile, std::int64_t rows, const T* from, T* to);

  // One stage of the transform of length n = radix · s · m, s being the product of the radices done. twiddles: m rows of radix − 1 complex
  // numbers, null for m = 1. roots: for odd radices cos and sin of 2πjk/radix, j, k = 1 … (radix − 1)/2.
  void (*stage)(int radix, const T* x, T* y, std::int64_t n, std::int64_t s, const T* twiddles, const T* roots, bool swapped,
                read_ahead& ahead);

  // Row j of y is that of x times w[j / same] (or the conjugate), w a table of complex numbers; `rows` is a multiple of `same`. Rows from
  // `rows` to `padded` become zero.
  void (*multiply_rows)(const T* x, T* y, std::int64_t rows, std::int64_t padded, const T* w, std::int64_t same, bool swapped);
  // Row j times coarse[j] · fine[j][lane], the twiddle factors between the two passes of a large transform, or their conjugates.
  // Unless `seals` is null, the results are sealed as seal_blocks does.
  void (*twiddle_rows)(const T* x, T* y, std::int64_t rows, const T* coarse, const T* fine, bool conjugate, bool swapped, int used,
                       T* seals);
  void (*scale_rows)(T* tile, std::int64_t rows, T factor);
  // Rows k·same … (k + 1)·same − 1 of y are those of x from order[k]·same on.
  void (*permute_rows)(const T* x, T* y, std::int64_t groups, std::int64_t same, const std::int64_t* order);
  // (u, v) becomes (factor·u + v, u + v).
  void (*mix_rows)(T* u, T* v, std::int64_t rows, T factor);
  // Between the complex transform of length m and the half spectrum (m + 1 rows) of a real one of length 2m. w_k = e^{−2πi k/2m}.
  void (*split_real)(const T* z, T* x, std::int64_t m, const T* w);
  void (*join_real)(const T* x, T* z, std::int64_t m, const T* w);
};

template <class T>
const kernel_table<T>& kernels();
template <>
const kernel_table<float>& kernels();
template <>
const kernel_table<double>& kernels();

}  // namespace ballast::fft::cpu
