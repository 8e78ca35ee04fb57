// The compile-time parameters of one line kernel, and its argument.
// Layer: fft/cuda. Plain structs that compile with NVRTC, nvcc and the host compiler; choose_policy.cpp chooses them.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"

namespace ballast::fft::cuda {

inline constexpr int k_max_stages = 8;
inline constexpr int k_max_radix = 32;
inline constexpr int k_definition_pairs = 4;      // pairs of outputs that a thread computes by the definition (kernel/line_definition.cuh)
inline constexpr int k_most_cluster = 16;         // blocks that share a line
inline constexpr int k_record_bytes = 80;         // shared memory for the state of a line (line_report.cuh)
inline constexpr int k_group_record_bytes = 112;  // shared memory for the check of a line of a group (composite.cuh)

// The source data of a line.
//   complex:  complex numbers
//   real:     reals; imaginary parts are 0
//   half:     the first half of a Hermitian line; the second half is its mirror image
//   spectrum: elements 0 … N of the spectrum of 2N reals; the line has N elements, which become the reals in pairs
enum class load_form : int { complex, real, half, spectrum };
// The stored data of a line.
//   complex:  complex numbers, all of a line or the first `stored`
//   real:     real parts
//   spectrum: elements 0 … N of the spectrum of 2N reals; the line's N elements are these reals in pairs
enum class store_form : int { complex, real, spectrum };
// The factors that multiply the elements at their store; `table` also at their load. Between two passes the factor is w_M^{ck}, where c is
// the column, with `factors_by_middle` the middle, and k the element.
//   table:     table[position]
//   twiddle:   w_M^{ck} as the product of two entries, one of a coarse and one of a fine table with about √M entries each
//   separated: w_M^{ck} for element k = j + i · length/r, where r is the last radix, as w_M^{cj} · w_M^{ci · length/r}; each factor has a
//   full table
enum class factor_form : int { none, table, twiddle, separated };
// The protection of a line.
//   verify_before_store: each line has two checksums and is verified before it is stored
//   thread:              each thread verifies each of its butterflies separately
//   composite:           the lines of `transactions` tiles share one check and are corrected after their store (two-sided, composite.cuh)
//   one_sided:           each line is verified after its store
//   begins, ends:        the first and the last pass of a line with one check from end to end (kernel/line_ends.cuh)
enum class check_form : int { none, verify_before_store, thread, composite, one_sided, begins, ends };
// The passes that compute lines again whose check from end to end has failed (kernel/repair.cuh). `last` compares its results with those in
// memory.
enum class repair_form : int { none, pass, last };
// A line of reals whose real-to-real transform is one pass (kernel/real_line.cuh). Its complex line has `length` elements.
//   pairs:    r2hc, dht: N reals are N/2 complex numbers, the spectrum becomes reals (plan/real_lines.hpp has the tables)
//   halves:   hc2r: the inverse of that
//   first:    dct1, dst1: the line is extended to a symmetric one of 2N − 2 or 2N + 2 reals, which are `pairs`
//   second:   dct2, dst2: `pairs` in the order of the even elements, then the odd ones backwards
//   third:    dct3, dst3: `halves` into that order
//   fourth:   dct4, dst4 of an even number: complex numbers of an element and its mirror image
// Odd numbers of reals are as many complex numbers, with imaginary parts 0, in `pairs`, `halves`, `second` and `third`.
enum class reals_form : int { none, pairs, halves, first, second, third, fourth };

// The layout of a tile in shared memory between two stages. In the linear layout element i of a line is word i·lines + line (`columns`), or
// word line·length + i otherwise. There are two ways to avoid bank conflicts:
//   masks: word p goes to p ^ (p >> shift & mask), for both pairs. mask < 2^shift, so groups of at most 16 words are permuted.
//   gaps:  element i goes to i + i / run · pad. `run` divides the distances between the elements that a thread reads, and the elements that
//          a thread writes are within one run. So the positions of a thread differ by constants, for any length.
struct exchange_layout {
  bool columns = false;
  int shift[2] = {4, 4};
  int mask[2] = {0, 0};
  int run = 1;
  int pad = 0;

  bool operator==(const exchange_layout&) const = default;

  BALLAST_HD constexpr int position(int i) const { return pad == 0 ? i : i + i / run * pad; }
};

// A line has `length` elements and `threads` threads, each with ⌈length / radix / threads⌉ butterflies. A tile is `lines` lines; one block
// transforms it. Thread t of a line has butterflies t, t + threads, …; butterfly j of a stage with radix r reads elements j + k·length/r.
//
// In a cluster several blocks share one line; each block has share() = length / cluster elements and `threads` threads. N = n₁n₂, where n₁
// is the product of the radices up to stage cluster_after. Up to that stage, block b has the elements k₁n₂ + c with c / (n₂ / cluster) = b.
// After it, block b has the elements cn₁ + k₁, in the order that these stages give, with rank_of_residue(k₁) = b. A block treats its
// elements like a line of share() elements.
//
// A line of r · p elements, p a large prime, has the stages r and 1, and between them r transforms of p points by the definition
// (kernel/line_definition.cuh).
//
// It has many members because each choice for which a kernel is compiled separately is one.
struct line_policy {
  bool wide = false;         // double precision
  bool inverse = false;      // exchanges real and imaginary parts at load and store
  bool scaled = false;       // multiplies by `scale` at the store
  bool in_columns = false;   // neighbouring threads load neighbouring lines, otherwise neighbouring elements of a line
  bool out_columns = false;  // the same for the store
  bool staged = false;       // blocks process several tiles and copy the next one into shared memory while they transform the current one
  bool split = false;        // exchanges first the real and then the imaginary parts: half the shared memory
  load_form load = load_form::complex;
  store_form store = store_form::complex;
  factor_form load_factor = factor_form::none;
  factor_form store_factor = factor_form::none;
  check_form check = check_form::none;
  bool source_unit = false;  // neighbouring elements of a line are adjacent in memory
  bool target_unit = false;
  bool flat = false;  // one middle, one batch
  bool factors_by_middle = false;
  bool padded = false;         // elements at positions ≥ `loaded` are 0 and are not read
  bool truncated = false;      // elements at positions ≥ `stored` are not written
  bool shared_source = false;  // reads data that other blocks of the same launch write: coherently, line_tile::shared_shift away
  bool shared_target = false;  // writes data that other blocks of the same launch read
  repair_form repair = repair_form::none;
  bool fallback = false;  // the argument selects direction, forms, factors and scale (line_arguments::forms): plan/fallback.hpp
  reals_form reals = reals_form::none;  // the line is a real-to-real transform
  bool sines = false;                   // reals: a sine transform
  int points = 1;                       // reals: the reals of a line
  int transactions = 1;                 // composite: tiles that share one check
  int length = 1;
  int lines = 1;
  int threads = 1;     // threads of one line
  int min_blocks = 1;  // minimum resident blocks per multiprocessor: limits the registers
  int stages = 1;
  int cluster = 1;        // blocks that share one line; if more than 1: lines = 1, no columns
  int cluster_after = 0;  // the stage whose results go to other blocks
  int source_step = 0;    // distance of neighbouring elements in memory, if the kernel is compiled for one distance; otherwise 0
  int target_step = 0;
  int radix[k_max_stages] = {1, 1, 1, 1, 1, 1, 1, 1};
  exchange_layout exchange[k_max_stages] = {};  // [s]: between stages s and s + 1. With one stage and remaps(), [0] is before the store

  bool operator==(const line_policy&) const = default;

  BALLAST_HD constexpr bool by_definition() const { return stages == 2 && radix[1] == 1 && radix[0] < length; }
  BALLAST_HD constexpr int definition_points() const { return length / radix[0]; }  // p
  BALLAST_HD constexpr int definition_groups() const { return definition_points() / 2 / k_definition_pairs + 1; }
  // Distance between neighbouring elements of a line in shared memory, in complex numbers: odd, so that they are in different banks.
  BALLAST_HD constexpr int definition_pitch() const { return lines | 1; }
  BALLAST_HD constexpr bool of_reals() const { return reals != reals_form::none; }
  // Returns whether pairs of reals are the complex numbers of the line.
  BALLAST_HD constexpr bool real_pairs() const { return reals == reals_form::first || points == 2 * length; }
  // Returns the number of reals that a thread holds.
  BALLAST_HD constexpr int reals_held() const { return (points + threads - 1) / threads; }
  // Distance between the lines of a tile in shared memory, in complex numbers. Lines in rows lie such that the threads of the lines of a
  // warp access different banks.
  BALLAST_HD constexpr int real_pitch() const {
    int pitch = 2 * length > points ? length : (points + 1) / 2;
    while (threads < 16 && pitch % 16 != threads) ++pitch;
    return pitch;
  }
  BALLAST_HD constexpr std::int64_t real_bytes() const { return of_reals() ? std::int64_t{2} * scalar_bytes() * real_pitch() * lines : 0; }

  BALLAST_HD constexpr int block() const { return threads * lines; }
  BALLAST_HD constexpr int share() const { return length / cluster; }   // elements of a line in one block
  BALLAST_HD constexpr int lanes() const { return block() * cluster; }  // threads of a tile
  // Returns the butterflies of stage s that a thread has. The last of them may be beyond the line.
  BALLAST_HD constexpr int butterflies(int s) const { return (share() / radix[s] + threads - 1) / threads; }
  BALLAST_HD constexpr bool ragged(int s) const { return share() / radix[s] % threads != 0; }
  // Returns the complex registers of a thread.
  BALLAST_HD constexpr int held() const {
    int most = 1;
    for (int s = 0; s < stages; ++s) most = butterflies(s) * radix[s] > most ? butterflies(s) * radix[s] : most;
    return most;
  }
  BALLAST_HD constexpr int before(int s) const {  // the product of the radices of earlier stages
    int product = 1;
    for (int i = 0; i < s; ++i) product *= radix[i];
    return product;
  }
  // Returns the same product for the share of a block.
  BALLAST_HD constexpr int before_share(int s) const { return s > cluster_after ? before(s) / cluster : before(s); }
  // The share of a block consists of runs of neighbouring elements. Distance and length of these runs, at load and at store.
  BALLAST_HD constexpr int source_distance() const { return length / before(cluster_after + 1); }
  BALLAST_HD constexpr int source_run() const { return source_distance() / cluster; }
  BALLAST_HD constexpr int target_distance() const { return before(cluster_after + 1); }
  BALLAST_HD constexpr int target_run() const { return target_distance() / cluster; }
  // Return the element of the line at position i of the share of block `rank`, at load and at store.
  BALLAST_HD constexpr int source_element(int i, int rank) const {
    return cluster == 1 ? i : i / source_run() * source_distance() + rank * source_run() + i % source_run();
  }
  BALLAST_HD constexpr int target_element(int i, int rank) const {
    return cluster == 1 ? i : i / target_run() * target_distance() + residue_at(i % target_run(), rank);
  }
  // Returns the residue modulo target_distance() at position i of the runs of a block. If outputs are exchanged with their mirror images,
  // the second half of a block's residues are the negatives of the first half, in the same order, so the exchange stays within the block.
  // Two residues are their own negatives, 0 and half of the distance. Block 0 has both; half of the distance takes the position of the
  // negative of 0.
  BALLAST_HD constexpr int residue_at(int i, int rank) const {
    if (!mirrors()) return rank * target_run() + i;
    const int half = target_run() / 2;
    const int own = i < half ? rank * half + i : target_distance() + half - rank * half - i;
    return own == target_distance() ? own / 2 : own;
  }
  BALLAST_HD constexpr int rank_of_residue(int c) const {
    if (!mirrors()) return c / target_run();
    if (2 * c == target_distance()) return 0;
    return (2 * c > target_distance() ? target_distance() - c : c) / (target_run() / 2);
  }
  BALLAST_HD constexpr int position_of_residue(int c) const {
    if (!mirrors()) return c % target_run();
    const int half = target_run() / 2;
    if (2 * c == target_distance()) return half;
    return 2 * c > target_distance() ? half + (target_distance() - c) % half : c % half;
  }
  // Returns the position of the mirror image of the output at position i of the share. The image of element o is element length − o, that
  // of 0 is 0.
  BALLAST_HD constexpr int image_position(int i, int rank) const {
    if (cluster == 1) return i == 0 ? 0 : length - i;
    const int run = target_run();
    const int rows = share() / run;
    if (rank == 0 && i % run == 0) return i == 0 ? 0 : (rows - i / run) * run;
    const int own = rank == 0 && 2 * (i % run) == run ? i % run : (i + run / 2) % run;
    return (rows - 1 - i / run) * run + own;
  }
  // Returns whether only the powers 1, 2, 4 and 8 of a butterfly's twiddle factor are read. The other powers are products of these, with up
  // to three more roundings. This pays if each block reads so many factors that they come from the L2 cache.
  BALLAST_HD constexpr bool squares(int s) const { return cluster > 1 && s > cluster_after && before(s) >= 1024; }
  // Returns the offset of the twiddle factors of stage s ≥ 1 in their table. There w_{pr}^{jk} is at (k − 1) p + j, with p = before(s).
  BALLAST_HD constexpr int twiddle_offset(int s) const {
    int offset = 0;
    for (int i = 1; i < s; ++i) offset += (radix[i] - 1) * before(i);
    return offset;
  }
  // Returns whether a line is verified as a whole and computed again until it passes.
  BALLAST_HD constexpr bool verifies() const { return check == check_form::verify_before_store || check == check_form::one_sided; }
  BALLAST_HD constexpr bool sums() const { return check != check_form::none && check != check_form::thread; }  // lines have checksums
  BALLAST_HD constexpr bool begins() const { return check == check_form::begins; }
  BALLAST_HD constexpr bool ends() const { return check == check_form::ends; }
  BALLAST_HD constexpr bool encodes() const { return sums() && !ends(); }  // sums its inputs
  BALLAST_HD constexpr bool sums_outputs() const { return sums() && !begins(); }
  BALLAST_HD constexpr bool reads_twice() const { return verifies() || begins(); }  // as data and for the checksums
  // Returns the instructions that stream elements, those of both readings by themselves; a third reading measures the norm of a line
  // that failed. 0 if it reads once, or through other instructions.
  BALLAST_HD constexpr int streamed_loads() const {
    const int each = of_reals() ? reals_held() : butterflies(0) * radix[0] * (load == load_form::spectrum ? 2 : 1);
    return !reads_twice() || shared_source ? 0 : each * (verifies() ? 3 : 2);
  }
  // Returns whether outputs are exchanged with their mirror images and multiplied before the store.
  BALLAST_HD constexpr bool mirrors() const { return store == store_form::spectrum; }
  BALLAST_HD constexpr bool multiplies_outputs() const { return store_factor != factor_form::none || mirrors(); }
  BALLAST_HD constexpr bool twiddles() const { return store_factor == factor_form::twiddle || store_factor == factor_form::separated; }
  // Returns whether the factors of the store are applied before the check. The check then applies their inverses, and so covers them.
  BALLAST_HD constexpr bool folds() const { return store_factor != factor_form::none && reads_twice(); }
  BALLAST_HD constexpr bool remaps() const { return in_columns != out_columns; }
  BALLAST_HD constexpr bool exchanges() const { return stages > 1 || remaps(); }
  // Shared memory of the exchange: words of one part or of both, rounded up to the groups that a layout permutes.
  BALLAST_HD constexpr int scalar_bytes() const { return wide ? 8 : 4; }
  BALLAST_HD constexpr std::int64_t exchange_bytes() const {
    if (!exchanges() && !mirrors()) return real_bytes();
    if (by_definition()) return std::int64_t{2} * scalar_bytes() * definition_pitch() * length;
    int most = share();
    for (const exchange_layout& e : exchange) most = e.position(share()) > most ? e.position(share()) : most;
    const std::int64_t words = (static_cast<std::int64_t>(most) * lines + 15) / 16 * 16;
    const std::int64_t bytes = words * scalar_bytes() * (split ? 1 : 2);
    return bytes < real_bytes() ? real_bytes() : bytes;
  }
  // Sums over the threads of a line. In rows the threads of a line are a run of lanes, in columns every lines-th lane. lanes_of_line: the
  // number of lanes of a warp that belong to one line, if that is a power of two and the same everywhere; otherwise 0.
  static BALLAST_HD constexpr bool power_of_two(int n) { return (n & (n - 1)) == 0; }
  BALLAST_HD constexpr bool whole_warps() const { return block() % 32 == 0; }
  BALLAST_HD constexpr int lanes_of_line(bool columns) const {
    if (columns) return power_of_two(lines) && lines < 32 ? 32 / lines : 1;
    return threads % 32 == 0 ? 32 : power_of_two(threads) && threads < 32 ? threads : 0;
  }
  // Returns the number of partial sums of a line in a block: one for each warp that has threads of the line, or one for each thread.
  BALLAST_HD constexpr int partials(bool columns) const {
    const int lanes = lanes_of_line(columns);
    if (columns) return lanes > 1 ? (block() + 31) / 32 : threads;
    if (lanes > 0) return threads > 32 ? threads / 32 : 1;
    return lines == 1 ? (threads + 31) / 32 : (threads - 2) / 32 + 2;
  }
  // Returns whether all threads of a line are in one warp. Its sums then need no shared memory.
  BALLAST_HD constexpr bool within_warp(bool columns) const { return cluster == 1 && lanes_of_line(columns) > 0 && partials(columns) == 1; }
  // Slots for partial sums: those of the outputs and, in clusters, the sums of each block; and those of the encoded input if other threads
  // hold the outputs.
  BALLAST_HD constexpr int out_slots() const { return within_warp(out_columns) ? 0 : partials(out_columns) + (cluster > 1 ? cluster : 0); }
  BALLAST_HD constexpr int in_slots() const { return remaps() ? partials(in_columns) : 0; }
  BALLAST_HD constexpr std::int64_t partial_bytes() const {
    if (!sums()) return 0;
    if (begins() || ends()) return static_cast<std::int64_t>((block() + 31) / 32) * 5 * 8 / 16 * 16 + 16;
    const int values = 4 * (out_slots() + in_slots()) + (remaps() ? in_slots() : out_slots());
    return (static_cast<std::int64_t>(values) * lines * (check == check_form::composite ? 8 : scalar_bytes()) + 15) / 16 * 16;
  }
  // Returns the number of successive additions between the sum of a thread and that of its line.
  BALLAST_HD constexpr int sum_levels() const {
    int levels = 0;
    for (int n = 1; n < threads * cluster; n *= 2) ++levels;
    return levels;
  }
  BALLAST_HD constexpr std::int64_t record_bytes() const {
    if (!sums() || begins() || ends()) return 0;
    return (k_record_bytes + (check == check_form::composite ? k_group_record_bytes : 0)) * static_cast<std::int64_t>(lines);
  }
  // The barrier that counts the data sent by other blocks.
  BALLAST_HD constexpr std::int64_t arrival_offset() const { return partial_offset() + partial_bytes() + record_bytes(); }
  BALLAST_HD constexpr std::int64_t arrival_bytes() const { return cluster > 1 ? 8 : 0; }
  // After all this come the copy of the next tile (`staged`) and the barrier that signals its arrival.
  BALLAST_HD constexpr std::int64_t ahead_offset() const { return (arrival_offset() + arrival_bytes() + 127) / 128 * 128; }
  BALLAST_HD constexpr std::int64_t tile_bytes() const { return static_cast<std::int64_t>(share()) * lines * 2 * scalar_bytes(); }
  BALLAST_HD constexpr std::int64_t shared_bytes() const {
    return staged ? ahead_offset() + tile_bytes() + 16 : arrival_offset() + arrival_bytes();
  }
  BALLAST_HD constexpr std::int64_t partial_offset() const { return (exchange_bytes() + 15) / 16 * 16; }
};

// One side of a pass, in units of its elements. Element k of line (c, m, b) is at c·column + m·middle + b·batch + k·element. Its position
// in the line of the whole transform is c·position_column + m·position_middle + k·position_element.
struct line_side {
  std::int64_t element, column, middle, batch;
  std::int64_t position_element, position_column, position_middle;
};

// The checks of the FFT, stored in device_event::what. The part of an event is its pass, and its index is the line of that pass: ((launch ·
// batches + batch) · middles + middle) · columns + column.
enum class event_check : std::uint32_t { line, product, composite, butterfly, whole_line };

using ballast::cuda::device_event;
using ballast::cuda::event_action;
using ballast::cuda::event_ring;
using ballast::cuda::event_seal;
using ballast::cuda::k_ring_events;

// Choices that a fallback kernel reads from its argument; other kernels have them in their policy.
enum argument_form : unsigned {
  k_form_inverse = 1,
  k_form_load_real = 2,
  k_form_load_half = 4,
  k_form_store_real = 8,
  k_form_twiddles = 16,  // the table of the store has the layout of factor_form::twiddle
};

// The state of a whole line with one check from end to end. Its first pass resets it. Two threads write `state` and `twin`, each by its own
// verdict: abft::k_pass, abft::k_fail, or k_unjudged if its numbers are too large or too small for the check. Any other value: no verdict.
struct whole_line_record {
  std::uint32_t state, twin;
  std::uint32_t arrived;  // tiles of the last pass that are done
  std::uint32_t changed;  // not 0: a repair has changed results
};
inline constexpr std::uint32_t k_unjudged = 0x5a3c96e1u;

// The check from end to end, of passes whose policy begins, ends or repairs. Sums of tile t of whole line l are at l · tiles + t.
struct end_to_end_arguments {
  whole_line_record* records;
  void* encoded;             // two complex numbers for each tile of the first pass
  void* summed;              // two complex numbers for each tile of the last pass
  void* squares;             // ‖x‖² of each tile of the first pass
  const void* line_weights;  // ends: weights of both vectors for line middle · columns + column, four scalars
  std::uint32_t lines;       // whole lines of the launch
  std::uint32_t tiles;       // tiles of this pass in a whole line
  std::uint32_t first_tiles, last_tiles;
};

// The argument of a line kernel. It has many members because one argument serves all policies: each form, factor and check reads tables and
// numbers of its own.
struct line_arguments {
  const void* in;
  void* out;
  const void* twiddles;    // twiddle factors of the stages, complex
  const void* load_table;  // complex: by position, or for a spectrum by first butterfly (tables.hpp)
  const void* load_twin;   // a second copy of load_table
  // complex: by position; for a spectrum by last butterfly; for `twiddle` the coarse table of w_M, then the fine one; for `separated`
  // w_M^{ci · length/r} at cr + i, then, from r · columns on, w_M^{cj} at j · columns + c
  const void* store_table;
  const void* store_twin;  // a second copy; for `separated` the tables of `twiddle`; for `table`, if lines are verified, the inverses
  const void* encode;      // weights of the first butterflies (plan/tables.hpp: weights)
  const void* verify;      // weights of the last butterflies
  event_ring* events;
  line_side source, target;
  std::int64_t columns, middles, batches;  // numbers of c, m, b
  std::int64_t column_tiles;               // ⌈columns / lines⌉
  std::int64_t tiles;                      // column_tiles · middles · batches
  std::int64_t whole;                      // half: the length of the whole line
  std::int64_t unit;                       // half: elements of the source between neighbouring positions
  std::int64_t loaded, stored;             // padded, truncated
  std::int64_t first_tile, all_tiles;      // this launch among the launches of a pass; for events and injection
  int fine_bits;                           // twiddle: w_M^p = coarse[p >> fine_bits] · fine[p & (2^fine_bits − 1)]
  int coarse_size;
  int chunk;                         // for events
  int repairs;                       // maximum number of further computations of a tile; 0: detect only
  int input_kept;                    // not 0: no store of a tile changes the input of another tile
  int part;                          // number of this pass among the launches, for events
  int pass, passes;                  // number of this pass among those that a call without faults computes, and their number; for injection
  int first_stage, stages;           // injection: the first stage of this pass, the stages of all passes
  int first_twiddle, twiddle_steps;  // the same for the twiddle products
  unsigned forms;                    // line_policy::fallback: sum of argument_form. The table of a factor is null if there is no factor
  double scale;
  double check_scale;          // a copy of the scale, computed separately for the checks
  double slope[2], offset[2];  // threshold: √(slope²‖x‖² + offset²), with two copies of each
  double kappa;                // check_form::thread: the factor of its thresholds
  double overflow;             // a line whose norm exceeds this may overflow, and is judged by repetition
  end_to_end_arguments whole_line;
};

// Two passes in one launch (fused_passes.cuh). A unit is a set of tiles of both passes; the tiles of its second pass depend only on the
// tiles of its first pass. Unit u has the tiles u · first_tiles, … of the first pass, and of the second pass the tiles
// (u / groups · second_tiles + i) · groups + u % groups. Tickets come in this order: the first pass of `ahead` units; then, alternating,
// the first pass of one more unit and the second pass of the oldest one; at last the second pass of the remaining units.
struct fused_arguments {
  // The next ticket; the number of ended blocks; and for each slot the number of completed tiles of the first and of the second pass,
  // counted over all units that used the slot. Zero between launches.
  std::uint32_t* counters;
  std::uint32_t units, ahead, slots;        // unit u uses slot u % slots; ahead < slots, unless every unit has its own slot
  std::uint32_t first_tiles, second_tiles;  // tiles of a unit
  std::uint32_t groups;
  std::int64_t slot_elements;  // between slots, if the intermediate data are in a ring; 0: they are where their pass stores them
  std::int64_t unit_elements;  // between units, in the addresses of the passes
};

BALLAST_HD constexpr std::uint32_t fusion_counters(std::uint32_t slots) { return 2 + 2 * slots; }

// Shared memory of fused passes: the memory of the tiles, then two ticket records.
inline constexpr int k_ticket_bytes = 96;
BALLAST_HD constexpr std::int64_t ticket_offset(const line_policy& first, const line_policy& second) {
  const std::int64_t most = first.shared_bytes() > second.shared_bytes() ? first.shared_bytes() : second.shared_bytes();
  return (most + 15) / 16 * 16;
}

}  // namespace ballast::fft::cuda
