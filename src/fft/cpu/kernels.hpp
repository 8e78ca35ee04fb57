// The SIMD kernels of the FFT as a table of functions: one table for each precision and instruction set.
// Layer: backend "cpu". The *-inl.hpp files implement them; the best instruction set of the running CPU is chosen once.
//
// A tile is a matrix of `rows` × 2W scalars, where W is the number of lanes: row j holds the real parts of element j of W signals, then the
// imaginary parts. Every arithmetic loop runs over whole vectors. Seen as a matrix of 2·rows × W scalars, a tile is the transpose of the W
// signals in memory. `swapped` exchanges the roles of the two halves: a forward transform then computes the inverse.
#pragma once

#include <bit>
#include <cstdint>

#include "fft/cpu/parity.hpp"

namespace ballast::fft::cpu {

inline constexpr int k_longest_short = 256;    // points of a short line: one that has a kernel of its own
inline constexpr int k_longest_repeated = 32;  // points of a line whose second computation costs less than its sums (docs/notebook/fft.md)
// Points of a line of groups (kernel_table::load_groups), and of one whose second computation costs less than the sums of a tile. Half a
// vector has no more scalars than the shortest signal.
inline constexpr int k_shortest_of_groups = 4, k_longest_of_groups = 64, k_longest_repeated_groups = 20;
// Radices whose butterflies are known at compile time. A stage of one has no table of roots, unless it is a prime and alone in its line.
// Other radices are odd primes.
inline constexpr int k_fixed_radices[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
inline constexpr int k_block = 16;  // rows summed in working precision before the sum is promoted

// Weighted sums of the lanes of a tile: re and im for both weight vectors.
struct alignas(64) lane_sums {
  double high[4][k_max_lanes];
  double low[4][k_max_lanes];   // the rounding error of high; used for double data only
  double squares[k_max_lanes];  // Σ|x|², computed on the encode side only
  std::uint64_t parity[8];      // the parity of all summed numbers (parity.hpp), in parts: see parity_of
};

// Sums of lanes for both weight vectors of two axes: number 2i + j belongs to vector i of one axis and j of the other one. low: the
// rounding error of high; used for double data only.
struct alignas(64) folded_sums {
  double high[8][k_max_lanes];  // re and im of each
  double low[8][k_max_lanes];
};

// Weights of neighbouring lanes for both vectors of an axis, or their conjugates. same: the first one belongs to all lanes.
struct lane_weights {
  const double* re[2] = {};
  const double* im[2] = {};
  bool conjugate = false;
  bool same = false;
};

// One comparison for each lane and weight vector, the vector form of abft::guarded_threshold and abft::verify.
struct alignas(64) lane_verdicts {
  double value[k_max_lanes];           // thresholds
  double twin[k_max_lanes];            // copies of the thresholds
  double size[2][k_max_lanes];         // |residual|, as |re| + |im|
  std::uint64_t word[2][k_max_lanes];  // k_lane_pass, k_lane_repeat, or any other value for a failure
};
inline constexpr std::uint64_t k_lane_pass = 0x5aa5c33c3cc3a55a;
inline constexpr std::uint64_t k_lane_repeat = 0xa5c33c5aa53c5ac3;  // passes only if a second computation gives the same bits

// threshold = factor · √squares + least. Two copies, for lane_verdicts::value and ::twin.
struct lane_limits {
  double factor[2] = {};
  double least[2] = {};
};

// The input side. Weights are rows of 4 scalars (b₀.re, b₀.im, b₁.re, b₁.im) for complex-linear checks, or of 8 for real-linear ones (for
// each vector: the contribution of re to (re, im) of the sum, then the contribution of im).
template <class T>
struct encoder {
  const T* weights = nullptr;  // null: do not encode
  bool general = false;
  lane_sums* sums = nullptr;
  bool parity = true;  // the load also computes the parity of its source
};

// Twiddle factors between two passes: row j of a tile has far[j >> shift] · near[j mod 2^shift], which are rows of a tile themselves.
template <class T>
struct row_factors {
  const T* far = nullptr;
  const T* near = nullptr;
  int shift = 0;
};

// The output side of a line: the weights serve both vectors at once (fft/tables/weights.hpp). The sums are (sum over the first half of the
// rows) plus and minus (sum over the second half). A row has 2 weights (re, im) if the check is complex-linear, otherwise 4 (the
// contribution of the real part to re and im of the sum, then that of the imaginary part). If `factors` are set, the sum removes them from
// the rows, and unless `seals` is null seals the rows as seal_blocks does, but the first `first_sealed` of them by themselves if that is
// not 0.
template <class T>
struct output_sum {
  const T* weights = nullptr;
  bool general = false;
  lane_sums* sums = nullptr;
  row_factors<T> factors = {};
  bool swapped = false;
  T* seals = nullptr;
  int used = 0;  // lanes that are sealed
  std::int64_t first_sealed = 0;
};

// Prefetches memory into the second-level cache while a tile is transformed: runs of contiguous bytes, `period` bytes from one to the
// next. Two sets of them, one after the other: the source of the next tile, without which loads and arithmetic would alternate instead of
// overlapping, and the destination of this one.
struct read_ahead {
  struct runs {
    const char* next = nullptr;
    const char* run_end = nullptr;
    std::int64_t skip = 0;  // from the end of a run to the start of the next
    std::int64_t period = 0;
    std::int64_t lines = 0;  // cache lines left
  };
  runs now, then;
  std::int64_t per_step = 0;  // cache lines for each butterfly

  static constexpr std::int64_t k_line = 64;

  read_ahead() = default;
  read_ahead(const void* base, std::int64_t count, std::int64_t run, std::int64_t step) : now(of(base, count, run, step)) {}

  // `count` runs of `run` bytes each from `base` on, `step` bytes apart.
  static runs of(const void* base, std::int64_t count, std::int64_t run, std::int64_t step) {
    if (run == step) {
      run *= count;
      step = run;
      count = 1;
    }
    const std::int64_t rounded = (run + k_line - 1) / k_line * k_line;
    const char* const first = static_cast<const char*>(base);
    return {first, first + rounded, step - rounded, step, count * (rounded / k_line)};
  }
  std::int64_t lines() const { return now.lines + then.lines; }
  // Brings all lines in so many steps, if that is not decided yet.
  void spread(std::int64_t steps) {
    if (per_step == 0) per_step = (lines() + steps - 1) / steps;
  }
  void step() {
    for (std::int64_t i = per_step; i > 0; --i) {
      if (!begin_run()) return;
      __builtin_prefetch(now.next, 0, 2);
      advance(1);
    }
  }
  // The same for several butterflies at once.
  void steps(std::int64_t count) {
    for (std::int64_t left = count * per_step; left > 0 && begin_run();) {
      const std::int64_t of_run = (now.run_end - now.next) / k_line, lines = left < of_run ? left : of_run;
      const char* const end = now.next + lines * k_line;
      for (const char* line = now.next; line != end; line += k_line) __builtin_prefetch(line, 0, 2);
      advance(lines);
      left -= lines;
    }
  }

 private:
  // Returns whether there are lines left.
  bool begin_run() {
    if (now.lines > 0) return true;
    now = then;
    then = {};
    return now.lines > 0;
  }
  void advance(std::int64_t lines) {
    now.lines -= lines;
    now.next += lines * k_line;
    if (now.next != now.run_end) return;
    now.next += now.skip;
    now.run_end += now.period;
  }
};

// The parities of two computations that are compared: two copies of one word, computed from different registers.
struct parity_pair {
  lane_sums& own;
  lane_sums& others;
};

// Returns the parity of the numbers that were summed.
inline std::uint64_t parity_of(const lane_sums& sums) {
  std::uint64_t joined = 0;
  for (const std::uint64_t piece : sums.parity) joined ^= piece;
  return joined;
}

// Signals of `points` contiguous complex numbers, `stride` scalars apart. as_run: all of them are one run for their parity (parity.hpp),
// as if nothing lay between them in memory.
template <class T>
struct signals_of {
  const T* base = nullptr;
  std::int64_t stride = 0;
  int used = 0;
  std::int64_t points = 0;
  bool as_run = false;
};

// Weights along a signal (along.hpp). Complex-linear ones have, for each vector of the signal and each sum, a vector that holds (re, −im)
// of the weight of each number: its products with the numbers are parts of Re, its products with the exchanged numbers (im, re) are parts
// of Im, after the sign of the odd ones is changed. Others have two vectors, with what each scalar contributes to Re and to Im.
// half_spectrum: the imaginary parts of the first and of the last number are ignored.
template <class T>
struct along_weights {
  const T* vectors = nullptr;
  bool linear = true;
  bool half_spectrum = false;
};

// n = first · second points; a vector holds `columns` columns of each of W / columns signals, or if second is 1, a number or `columns` = 1
// part of it. only_repeated: its numbers are others than those for which weights are chosen, so its only check is a second computation.
// ragged: signals are no whole vectors and halves, so that the second computation is compared in memory (same_bits).
struct short_shape {
  int first = 0, second = 0, columns = 0;
  bool only_repeated = false, ragged = false;
};

// The place to which signals of `points` complex numbers will be copied when verified, `stride` scalars apart; null: none. Kernels before
// the store bring the lines of memory, half of each signal at a time: all of them in one place would wait for memory.
template <class T>
struct write_ahead {
  const T* to = nullptr;
  std::int64_t stride = 0;
  std::int64_t points = 0;

  static constexpr std::int64_t k_line = read_ahead::k_line / static_cast<std::int64_t>(sizeof(T));

  // Brings a half of signals first … last − 1, or, if they are one run, half of the run.
  void bring_all(int first, int last, int half) const {
    if (to == nullptr) return;
    if (stride == 2 * points) {
      const std::int64_t count = (last - first) * points;
      const T* const from = to + first * stride + half * count;
      for (std::int64_t i = 0; i < count; i += k_line) __builtin_prefetch(from + i, 1);
      return;
    }
    for (int l = first; l < last; ++l) bring(l, half);
  }
  void bring(int signal, int half) const {
    if (to == nullptr) return;
    const T* const first = to + signal * stride + half * points;
    for (std::int64_t i = 0; i < points; i += k_line) __builtin_prefetch(first + i, 1);
  }
};

// Short lines are computed as a whole. The instrumented library can compute their two steps apart, with what is between them in memory.
enum class short_part : std::uint8_t { whole, first, second };

// twiddles: for each vector of a row of the input, and k₁ = 1 … first − 1, a vector of real and one of imaginary parts of the factors
// e^{−2πi k₁j₂/n} of its columns. to: W signals. between: as many scalars as W signals have; not used by short_part::whole. along_line also
// needs `work`, twice as many scalars as a signal has, and for real lines `pairs`, which takes the complex numbers of W signals. For lines
// of groups `work` has twice as many scalars as `groups` · W signals, and `pairs` takes the results of a second computation.
template <class T>
struct short_call {
  signals_of<T> from;
  T* to = nullptr;
  std::int64_t to_stride = 0;
  const T* twiddles = nullptr;
  T* between = nullptr;
  T* work = nullptr;
  std::int64_t groups = 1;
  T* pairs = nullptr;
  bool swapped = false;
  bool stream = false;
  bool turned = false;  // a second computation of short lines: the signals of a vector lie in its lanes in reverse order
  // Memory brings these meanwhile: the next input, and the second half of `later`, if `turned` the first one.
  read_ahead* ahead = nullptr;
  write_ahead<T> later;
};

// A run of pairs (k, m − k), k = first … first + count − 1 ≤ m/2, for the step between a complex transform z of m points and the half
// spectrum x of 2m reals: with S and D the sum and difference of z_k and conj(z_{m−k}), x_k = (S − i w_k D)/2, x_{m−k} = conj(S + i w_k
// D)/2. `join` is the inverse, times 2. low: the numbers k from `first` on; high: the numbers m − k, ascending, so from that of the last k
// on. w_k = coarse · fine[k − first] = e^{−2πi k/2m}.
template <class T>
struct pair_call {
  const T* low = nullptr;
  const T* high = nullptr;
  std::int64_t m = 0;
  std::int64_t first = 0, count = 0;
  const T* coarse = nullptr;
  const T* fine = nullptr;
  bool join = false;
};

// The results, in the same order. The pair of k = 0 has no high number if it joins, the pair of k = m/2 none in either direction.
template <class T>
struct pair_results {
  T* low = nullptr;
  T* high = nullptr;
};
enum class sides : std::uint8_t { low, both };

// Two real signals of odd length and the complex line z of `points` numbers that has them as its parts. pack and join make z = to[0] of two
// signals in from[0] and from[1]: reals (pack), or the (points + 1)/2 numbers of half spectra (join). unpack and split make these of z =
// from[0]. The second signal is null if there is one alone; then split copies numbers. scale: powers of two, by which each of the signals
// is multiplied. Those of pack and join make nothing smaller.
enum class line_step : std::uint8_t { pack, unpack, split, join };
template <class T>
struct line_call {
  line_step step = line_step::pack;
  const T* from[2] = {};
  T* to[2] = {};
  std::int64_t points = 0;
  T scale[2] = {1, 1};
};

// largest: of the absolute values, undefined unless `finite`. squares: their sum, in working precision.
template <class T>
struct signal_size {
  T largest = 0, squares = 0;
  bool finite = true;
};

// Products z_j w_j · scale, j = 0 … count − 1, of contiguous complex numbers.
template <class T>
struct product_call {
  const T* numbers = nullptr;
  const T* factors = nullptr;
  std::int64_t count = 0;
  T scale = 1;
};

// The kernels of one vector width. It has many members because each kernel is one, for a choice at run time.
template <class T>
struct kernel_table {
  int lanes;

  // Loads: `used` lanes (the other lanes become zero), `rows` rows, and their sums. Strides are in scalars. load_rows: lane l is `scalars`
  // contiguous scalars at base + l·lane_stride; if their number is odd, the last imaginary part is zero. load_columns: row j is `used`
  // contiguous complex numbers. Both return the parity of the source as a tile. It equals the parity of the encoded numbers (parity_of),
  // unless one of the two was struck.
  std::uint64_t (*load_rows)(const T* base, std::int64_t lane_stride, int used, std::int64_t scalars, T* tile, const encoder<T>& encode);
  std::uint64_t (*load_columns)(const T* base, std::int64_t row_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode);
  // load_blocks: loads by rows from blocks of the workspace (access::blocks): block t holds elements tW … tW + W − 1 of each lane, lane l
  // in its row l. Returns the number of blocks whose seal (at seals + t·seal_stride) does not match the numbers that are now in the tile.
  std::int64_t (*load_blocks)(const T* base, std::int64_t block_stride, int used, std::int64_t rows, T* tile, const T* seals,
                              std::int64_t seal_stride, const encoder<T>& encode);
  void (*sum_tile)(const T* tile, std::int64_t rows, const encoder<T>& encode);    // starts from zero
  void (*sum_outputs)(const T* tile, std::int64_t rows, const output_sum<T>& of);  // starts from zero

  // Adds the sums of both vectors of an axis, times the weights of their lanes on another axis, to `to`.
  void (*fold_sums)(const lane_sums& sums, const lane_weights& by, folded_sums& to);

  // Both copies of the threshold of each lane. Returns false if some of the `used` squares are outside [low, high] or NaN.
  bool (*set_thresholds)(const lane_sums& input, int used, const lane_limits& by, double low, double high, lane_verdicts& to);
  void (*compare)(const lane_sums& input, const lane_sums& output, double scale, lane_verdicts& to);

  // Store the first `used` lanes of verified tiles. They return the parity of all lanes, computed from the registers after their store.
  std::uint64_t (*store_rows)(const T* tile, std::int64_t scalars, int used, T* base, std::int64_t lane_stride, bool stream);
  std::uint64_t (*store_columns)(const T* tile, std::int64_t rows, int used, T* base, std::int64_t row_stride, bool stream);
  std::uint64_t (*join_rows)(const T* tile, std::int64_t first, std::int64_t last);  // that of rows first … last − 1 alone

  // Seals: words that change with every bit of the sealed data. seal_blocks: one word for each W rows, over their first `used` lanes; the
  // transposed block, as load_blocks sees it, has the same seal. seal_rows: one word for each lane, over all rows. extend_seals: row j
  // extends `from` to `to`, each with one word per lane.
  void (*seal_blocks)(const T* tile, std::int64_t rows, int used, T* seals);
  void (*seal_rows)(const T* tile, std::int64_t rows, T* seal);
  void (*extend_seals)(const T* tile, std::int64_t rows, const T* from, T* to);

  // One stage of the transform of length n = radix · s · m, where s is the product of the completed radices, of `tiles` tiles of n rows,
  // one after the other. twiddles: m rows of radix − 1 complex numbers, null for m = 1. roots: for odd radices cos and sin of 2πjk/radix,
  // j, k = 1 … (radix − 1)/2; null if the radix is one of k_fixed_radices, whose butterflies have them as constants.
  void (*stage)(int radix, const T* x, T* y, std::int64_t n, std::int64_t s, std::int64_t tiles, const T* twiddles, const T* roots,
                bool swapped, read_ahead& ahead);

  // Row j of y becomes row j of x times w[j / same] (or its conjugate), where w is a table of complex numbers; `rows` is a multiple of
  // `same`. Rows `rows` … `padded` − 1 become zero.
  void (*multiply_rows)(const T* x, T* y, std::int64_t rows, std::int64_t padded, const T* w, std::int64_t same, bool swapped);
  // Multiplies rows by the twiddle factors between the two passes of a large transform, or by their conjugates.
  void (*twiddle_rows)(const T* x, T* y, std::int64_t rows, const row_factors<T>& factors, bool conjugate, bool swapped);
  // The last stage of n points, of one of k_fixed_radices, and these products. n / radix is a multiple of 2^factors.shift.
  void (*twiddled_stage)(int radix, const T* x, T* y, std::int64_t n, const row_factors<T>& factors, bool swapped, read_ahead& ahead);
  void (*scale_rows)(T* tile, std::int64_t rows, T factor);
  // Rows k·same … (k + 1)·same − 1 of y become the `same` rows of x from row order[k]·same on.
  void (*permute_rows)(const T* x, T* y, std::int64_t groups, std::int64_t same, const std::int64_t* order);
  // Replaces (u, v) by (factor·u + v, u + v).
  void (*mix_rows)(T* u, T* v, std::int64_t rows, T factor);
  // Convert between the complex transform of length m and the half spectrum (m + 1 rows) of a real one of length 2m. w_k = e^{−2πi k/2m}.
  void (*split_real)(const T* z, T* x, std::int64_t m, const T* w);
  void (*join_real)(const T* x, T* z, std::int64_t m, const T* w);
  // The stage between n = radix · m real numbers and h + 1 = (radix + 1)/2 complex transforms of m points; radix odd, at most
  // k_largest_direct_prime. Forward: y_k of butterfly i, k = 0 … h, of the reals i + m j, times w_{ik} = e^{−2πi ik/n}. Inverse: the reals,
  // times m · radix. twiddles: m rows of h numbers, from k = 1 on. roots: cos and sin as for `stage`, of every radix. The reals are rows of
  // one scalar for each lane, whose last pair has one row alone: the inverse makes the other one zero.
  void (*real_stage)(int radix, const T* x, T* y, std::int64_t m, const T* twiddles, const T* roots, bool inverse, read_ahead& ahead);
  // Row k of y becomes row order[k] of x, or if that is negative the conjugate of row −1 − order[k]. The first row becomes real.
  void (*mirror_rows)(const T* x, T* y, std::int64_t rows, const std::int64_t* order);

  // Lines with vectors along the signal (along-inl.hpp). shape_of_short: zeros if there is no kernel for n points.
  short_shape (*shape_of_short)(std::int64_t n);
  void (*short_lines)(const short_call<T>& call, short_part part);
  // Groups of W signals of any length, side by side in tiles, one tile after the other. Both ends are transposed in registers. load_groups
  // brings call.ahead and a half of call.later meanwhile. store_groups stores signals up to a whole group; past the cache if call.stream.
  void (*load_groups)(const short_call<T>& call, T* tiles);
  void (*store_groups)(const short_call<T>& call, const T* tiles);
  // The middle of a longer line of n1 · n2 points, both multiples of W. x: tiles of n1 rows, whose lanes are the columns of the n1 × n2
  // matrix. y: tiles of n2 rows, whose lanes are its rows, after the products with `twiddles`, which has a row of real and imaginary parts
  // for each row of x, in the order of the blocks of y.
  void (*turn_rows)(const T* x, T* y, std::int64_t n1, std::int64_t n2, const T* twiddles, bool swapped);
  // The sums of signals in the order of memory, one lane for each, as sum_tile and sum_outputs compute those of a tile; start from zero.
  // encode_signals brings the first half of `later` meanwhile.
  void (*encode_signals)(const signals_of<T>& of, const along_weights<T>& weights, lane_sums& sums, const write_ahead<T>& later);
  void (*sum_signals)(const signals_of<T>& of, const along_weights<T>& weights, lane_sums& sums);
  // Stores signals. Returns their parity as runs, or as one run, computed from the registers after their store. stream: past the cache, if
  // the signals are one run on both sides or `to` and the stride are whole vectors.
  std::uint64_t (*store_signals)(const signals_of<T>& of, T* to, std::int64_t stride, bool stream);

  // Stores a run past the cache, without a parity.
  void (*stream_run)(const T* from, std::int64_t scalars, T* to);

  // Transforms lines of at most k_longest_repeated points again and returns whether call.to has the same bits.
  bool (*repeat_lines)(const short_call<T>& call, const parity_pair& to);
  // Returns whether the scalars of two computations, `own` and `others`, have the same bits.
  bool (*same_bits)(const T* own, const T* others, std::int64_t scalars, const parity_pair& to);

  // Pairs of a long real line (pairs-inl.hpp). same_pairs computes them again and returns whether the results have the same bits, or are
  // both NaN.
  void (*make_pairs)(const pair_call<T>& call, const pair_results<T>& to);
  bool (*same_pairs)(const pair_call<T>& call, const pair_results<T>& made);
  // The parity of a run: of scalars in memory; of scalars that are stored, computed from the registers after their store.
  std::uint64_t (*join_run)(const T* from, std::int64_t scalars);
  std::uint64_t (*store_run)(const T* from, std::int64_t scalars, T* to);
  // Seals of complex numbers of a line, with their places in it: of a run that begins with number `first`, and of a tile whose row j has
  // the numbers from first + j · step on in its first `used` lanes. The seal of a whole is the sum of those of its parts, as a word of T's
  // size.
  std::uint64_t (*seal_numbers)(const T* from, std::int64_t count, std::int64_t first);
  std::uint64_t (*seal_tile)(const T* tile, std::int64_t rows, int used, std::int64_t first, std::int64_t step);

  // Products (products-inl.hpp). same_products computes them again and returns whether `made` has the same bits, or both are NaN.
  void (*make_products)(const product_call<T>& call, T* to);
  bool (*same_products)(const product_call<T>& call, const T* made);

  // Steps between real signals and a complex line (lines-inl.hpp). same_lines computes a step again, from a second read, and returns
  // whether the results in memory have the same bits, or are both NaN.
  void (*make_lines)(const line_call<T>& call);
  bool (*same_lines)(const line_call<T>& call);
  signal_size<T> (*measure)(const T* x, std::int64_t scalars);
};

template <class T>
const kernel_table<T>& kernels();
template <>
const kernel_table<float>& kernels();
template <>
const kernel_table<double>& kernels();

}  // namespace ballast::fft::cpu
