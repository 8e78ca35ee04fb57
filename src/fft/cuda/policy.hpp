// The compile-time parameters of one line kernel, and the argument that it takes.
// Layer: fft/cuda. Plain structs that NVRTC, nvcc and the host compiler read alike; choose_policy.cpp chooses them.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"

namespace ballast::fft::cuda {

inline constexpr int k_max_stages = 8;
inline constexpr int k_max_radix = 32;
inline constexpr int k_most_cluster = 16;         // blocks that hold a line together
inline constexpr int k_record_bytes = 80;         // room in shared memory for what is known of a line (line.cuh)
inline constexpr int k_group_record_bytes = 112;  // and of the same line of all tiles of a group (composite.cuh)

// What is read: complex numbers; reals, imaginary part 0; the first half of a Hermitian line, the rest being its mirror image; or
// (`spectrum`) elements 0 … N of the spectrum of 2N reals, of which the line of N that has the reals in pairs is made.
enum class load_form : int { complex, real, half, spectrum };
// What is written: complex numbers (all, or the first `stored` of a line); real parts; or elements 0 … N of the spectrum of the 2N reals
// that the line's N elements are in pairs.
enum class store_form : int { complex, real, spectrum };
// What an element is multiplied with at its store (and, for `table`, at its load): nothing; table[position]; or w_M^{ck}, c the column
// and k the element, what stands between two passes: from two tables of about √M entries (`twiddle`), or for element j + k · length/r,
// r the last radix, as w_M^{cj} · w_M^{ck · length/r}, each from a table of all of them (`separated`).
enum class factor_form : int { none, table, twiddle, separated };
// none: no check. verify_before_store: two checksums of each line, verified before it is stored. thread: every butterfly by itself.
// composite: lines of `transactions` tiles share one check and are corrected after their store (two-sided, composite.cuh). one_sided: each
// line is verified after its store.
enum class check_form : int { none, verify_before_store, thread, composite, one_sided };

// One trip of a tile through shared memory. Word p of the linear layout is at p ^ (p >> shift & mask), for both pairs; mask < 2^shift,
// so that it permutes groups of 2^shift ≤ 16 words. columns: word i·lines + line, else line·length + i. Or, without masks, element i takes
// the place i + i / run · pad: `run` divides the distances of what a thread reads, and what it writes lies within one run, so that both
// are apart by constants whatever the length.
struct exchange_layout {
  bool columns = false;
  int shift[2] = {4, 4};
  int mask[2] = {0, 0};
  int run = 1;
  int pad = 0;

  bool operator==(const exchange_layout&) const = default;

  BALLAST_HD constexpr int place(int i) const { return pad == 0 ? i : i + i / run * pad; }
};

// A line: `length` elements, transformed by `threads` threads that hold ⌈length / radix / threads⌉ butterflies each. A tile: `lines` lines,
// one block. Thread t of a line has butterflies t, t + threads, …; butterfly j of a stage with radix r reads elements j + k·length/r.
// A cluster: so many blocks hold one line, share() = length / cluster elements each, `threads` threads in each. N = n₁n₂, n₁ the product
// of the radices up to stage cluster_after. Up to there block b has the elements k₁n₂ + c with b = c / (n₂ / cluster), then, in the order
// that these stages have made, the elements cn₁ + k₁ with b = rank_of_residue(k₁). Both lie in a block as in a line of share() elements.
struct line_policy {
  bool wide = false;         // double
  bool inverse = false;      // real and imaginary parts change places at load and store
  bool scaled = false;       // times `scale` at the store
  bool in_columns = false;   // neighbouring threads load neighbouring lines, else neighbouring elements of a line
  bool out_columns = false;  // the same at the store
  bool staged = false;       // tiles that lie together in memory are copied into shared memory while the one before is being transformed
  bool split = false;        // exchanges real and imaginary parts one after the other: half the shared memory
  load_form load = load_form::complex;
  store_form store = store_form::complex;
  factor_form load_factor = factor_form::none;
  factor_form store_factor = factor_form::none;
  check_form check = check_form::none;
  bool source_unit = false;  // neighbouring elements of a line are neighbours in memory
  bool target_unit = false;
  bool flat = false;           // one middle, one batch
  bool padded = false;         // elements at positions ≥ `loaded` are 0 and not read
  bool truncated = false;      // elements at positions ≥ `stored` are not written
  bool shared_source = false;  // read what other blocks of the same launch write: coherent, and line_tile::shared_shift away
  bool shared_target = false;  // write what other blocks of the same launch read
  int transactions = 1;        // composite: tiles that share one check
  int length = 1;
  int lines = 1;
  int threads = 1;     // of one line
  int min_blocks = 1;  // blocks that a multiprocessor is to hold: the compiler's register limit
  int stages = 1;
  int cluster = 1;        // blocks that hold one line; more than 1: lines = 1, no columns
  int cluster_after = 0;  // the stage whose results go to other blocks
  int source_step = 0;    // how far apart neighbouring elements are in memory, where kernels are made for that; 0: where they are not
  int target_step = 0;
  int radix[k_max_stages] = {1, 1, 1, 1, 1, 1, 1, 1};
  exchange_layout exchange[k_max_stages] = {};  // [s]: between stage s and s + 1; one stage and different mappings: [0], before the store

  bool operator==(const line_policy&) const = default;

  BALLAST_HD constexpr int block() const { return threads * lines; }
  BALLAST_HD constexpr int share() const { return length / cluster; }   // of a line, in one block
  BALLAST_HD constexpr int lanes() const { return block() * cluster; }  // of a tile
  // Butterflies of stage s that a thread has, the last of them perhaps beyond the line.
  BALLAST_HD constexpr int butterflies(int s) const { return (share() / radix[s] + threads - 1) / threads; }
  BALLAST_HD constexpr bool ragged(int s) const { return share() / radix[s] % threads != 0; }
  // Complex registers of a thread.
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
  // The same for a block's share of a line.
  BALLAST_HD constexpr int before_share(int s) const { return s > cluster_after ? before(s) / cluster : before(s); }
  // Runs of neighbours in a block's share: of the line's elements as they are loaded, and as they are stored. And how far apart they are.
  BALLAST_HD constexpr int source_distance() const { return length / before(cluster_after + 1); }
  BALLAST_HD constexpr int source_run() const { return source_distance() / cluster; }
  BALLAST_HD constexpr int target_distance() const { return before(cluster_after + 1); }
  BALLAST_HD constexpr int target_run() const { return target_distance() / cluster; }
  // The elements that place i of the share of block `rank` stands for, at load and store.
  BALLAST_HD constexpr int source_element(int i, int rank) const {
    return cluster == 1 ? i : i / source_run() * source_distance() + rank * source_run() + i % source_run();
  }
  BALLAST_HD constexpr int target_element(int i, int rank) const {
    return cluster == 1 ? i : i / target_run() * target_distance() + residue_at(i % target_run(), rank);
  }
  // The residues of a block modulo target_distance(), what is at place i of its runs. Where outputs are exchanged with their mirror images
  // half of them are the negatives of the other half, in the same order, so that this happens within the block: but 0 and half of the
  // distance, which are their own negatives, take each other's places.
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
  BALLAST_HD constexpr int place_of_residue(int c) const {
    if (!mirrors()) return c % target_run();
    const int half = target_run() / 2;
    if (2 * c == target_distance()) return half;
    return 2 * c > target_distance() ? half + (target_distance() - c) % half : c % half;
  }
  // Where the mirror image of the output at place i of the share is: that of element o is element length − o, of 0 itself.
  BALLAST_HD constexpr int image_place(int i, int rank) const {
    if (cluster == 1) return i == 0 ? 0 : length - i;
    const int run = target_run();
    const int rows = share() / run;
    if (rank == 0 && i % run == 0) return i == 0 ? 0 : (rows - i / run) * run;
    const int own = rank == 0 && 2 * (i % run) == run ? i % run : (i + run / 2) % run;
    return (rows - 1 - i / run) * run + own;
  }
  // Whether of the twiddle factors of a butterfly only the powers 1, 2, 4 and 8 are read, the others being products of these (up to three
  // roundings more): where each block reads so many that they come from L2.
  BALLAST_HD constexpr bool squares(int s) const { return cluster > 1 && s > cluster_after && before(s) >= 1024; }
  // Where the twiddle factors of stage s ≥ 1 begin in the table: w_{pr}^{jk} at [(k − 1) p + j], p = before(s).
  BALLAST_HD constexpr int twiddle_offset(int s) const {
    int offset = 0;
    for (int i = 1; i < s; ++i) offset += (radix[i] - 1) * before(i);
    return offset;
  }
  // A line is verified as a whole, and computed again until it passes.
  BALLAST_HD constexpr bool verifies() const { return check == check_form::verify_before_store || check == check_form::one_sided; }
  BALLAST_HD constexpr bool sums() const { return check != check_form::none && check != check_form::thread; }  // lines have checksums
  // Outputs are exchanged with their mirror images and multiplied before they are stored.
  BALLAST_HD constexpr bool mirrors() const { return store == store_form::spectrum; }
  BALLAST_HD constexpr bool multiplies_outputs() const { return store_factor != factor_form::none || mirrors(); }
  BALLAST_HD constexpr bool twiddles() const { return store_factor == factor_form::twiddle || store_factor == factor_form::separated; }
  // The factors between two passes are multiplied in front of the check, which then covers them.
  BALLAST_HD constexpr bool folds() const { return twiddles() && verifies(); }
  BALLAST_HD constexpr bool remaps() const { return in_columns != out_columns; }
  BALLAST_HD constexpr bool exchanges() const { return stages > 1 || remaps(); }
  // Shared memory. Exchange: words of one part or of both, rounded up to the groups that a layout permutes.
  BALLAST_HD constexpr int scalar_bytes() const { return wide ? 8 : 4; }
  BALLAST_HD constexpr std::int64_t exchange_bytes() const {
    if (!exchanges() && !mirrors()) return 0;
    int most = share();
    for (const exchange_layout& e : exchange) most = e.place(share()) > most ? e.place(share()) : most;
    const std::int64_t words = (static_cast<std::int64_t>(most) * lines + 15) / 16 * 16;
    return words * scalar_bytes() * (split ? 1 : 2);
  }
  // Sums over the threads of a line. In rows these are runs of lanes, in columns every lines-th lane. lanes_of_line: how many of a warp's,
  // where that is a power of two and the same everywhere; 0: runs of any length.
  static BALLAST_HD constexpr bool power_of_two(int n) { return (n & (n - 1)) == 0; }
  BALLAST_HD constexpr bool whole_warps() const { return block() % 32 == 0; }
  BALLAST_HD constexpr int lanes_of_line(bool columns) const {
    if (columns) return power_of_two(lines) && lines < 32 ? 32 / lines : 1;
    return threads % 32 == 0 ? 32 : power_of_two(threads) && threads < 32 ? threads : 0;
  }
  // Partial sums of a line, in a block: one of each warp that has threads of it; or of each thread.
  BALLAST_HD constexpr int partials(bool columns) const {
    const int lanes = lanes_of_line(columns);
    if (columns) return lanes > 1 ? (block() + 31) / 32 : threads;
    if (lanes > 0) return threads > 32 ? threads / 32 : 1;
    return lines == 1 ? (threads + 31) / 32 : (threads - 2) / 32 + 2;
  }
  // All threads of a line are in one warp, which needs no shared memory for its sums.
  BALLAST_HD constexpr bool within_warp(bool columns) const { return cluster == 1 && lanes_of_line(columns) > 0 && partials(columns) == 1; }
  // Room for partial sums: of the outputs, in clusters also the sums of each block; and of the encoded input where other threads hold the
  // outputs.
  BALLAST_HD constexpr int out_slots() const { return within_warp(out_columns) ? 0 : partials(out_columns) + (cluster > 1 ? cluster : 0); }
  BALLAST_HD constexpr int in_slots() const { return remaps() ? partials(in_columns) : 0; }
  BALLAST_HD constexpr std::int64_t partial_bytes() const {
    if (!sums()) return 0;
    const int values = 4 * (out_slots() + in_slots()) + (remaps() ? in_slots() : out_slots());
    return (static_cast<std::int64_t>(values) * lines * (check == check_form::composite ? 8 : scalar_bytes()) + 15) / 16 * 16;
  }
  // Additions between a thread's sum and that of its line.
  BALLAST_HD constexpr int sum_levels() const {
    int levels = 0;
    for (int n = 1; n < threads * cluster; n *= 2) ++levels;
    return levels;
  }
  BALLAST_HD constexpr std::int64_t record_bytes() const {
    if (!sums()) return 0;
    return (k_record_bytes + (check == check_form::composite ? k_group_record_bytes : 0)) * static_cast<std::int64_t>(lines);
  }
  // The barrier that tells when what other blocks send has arrived.
  BALLAST_HD constexpr std::int64_t arrival_offset() const { return partial_offset() + partial_bytes() + record_bytes(); }
  BALLAST_HD constexpr std::int64_t arrival_bytes() const { return cluster > 1 ? 8 : 0; }
  // The stage, behind all this, and the barrier that tells when it is full.
  BALLAST_HD constexpr std::int64_t stage_offset() const { return (arrival_offset() + arrival_bytes() + 127) / 128 * 128; }
  BALLAST_HD constexpr std::int64_t tile_bytes() const { return static_cast<std::int64_t>(share()) * lines * 2 * scalar_bytes(); }
  BALLAST_HD constexpr std::int64_t shared_bytes() const {
    return staged ? stage_offset() + tile_bytes() + 16 : arrival_offset() + arrival_bytes();
  }
  BALLAST_HD constexpr std::int64_t partial_offset() const { return (exchange_bytes() + 15) / 16 * 16; }
};

// One side of a pass: element k of line (c, m, b) is at c·column + m·middle + b·batch + k·element (units: its elements), and its
// position in the whole line that is being transformed is c·position_column + m·position_middle + k·position_element.
struct line_side {
  std::int64_t element, column, middle, batch;
  std::int64_t position_element, position_column, position_middle;
};

// The checks of the FFT as device_event::what has them. An event's part is its pass, and its index is the line of that pass:
// ((launch · batches + batch) · middles + middle) · columns + column.
enum class event_check : std::uint32_t { line, product, composite, butterfly };

using ballast::cuda::device_event;
using ballast::cuda::event_action;
using ballast::cuda::event_ring;
using ballast::cuda::event_seal;
using ballast::cuda::k_ring_events;

struct line_arguments {
  const void* in;
  void* out;
  const void* twiddles;    // of the stages, complex
  const void* load_table;  // complex, by position, or of a spectrum by first butterfly (tables.hpp); and a second copy of it
  const void* load_twin;
  const void* store_table;  // complex: by position, or of a spectrum by last butterfly; the coarse and then the fine table of w_M; or
  const void* store_twin;   // w_M^{ck · length/r} at cr + k, then, at r · columns, w_M^{cj} at j · columns + c, whose twin is as before
  const void* encode;       // weights of the first butterflies (tables.hpp: weights)
  const void* verify;       // and of the last ones
  event_ring* events;
  line_side source, target;
  std::int64_t columns, middles, batches;  // how many c, m, b
  std::int64_t column_tiles;               // ⌈columns / lines⌉
  std::int64_t tiles;                      // column_tiles · middles · batches
  std::int64_t whole;                      // half: the length of the whole line
  std::int64_t unit;                       // half: elements of the source between neighbouring positions
  std::int64_t loaded, stored;             // padded, truncated
  std::int64_t first_tile, all_tiles;      // this launch among the launches of a pass: for events and injection
  int fine_bits;                           // twiddle: w_M^p = coarse[p >> fine_bits] · fine[p & (2^fine_bits − 1)]
  int coarse_size;
  int chunk;                         // for events
  int repairs;                       // how often a tile may be computed again; 0: detect only
  int input_kept;                    // not 0: no tile's store changes the input of any
  int pass, passes;                  // this pass, for events; and of how many, for injection
  int first_stage, stages;           // injection: this pass's stages and
  int first_twiddle, twiddle_steps;  // twiddle products among those of all passes
  double scale;
  double one[2];               // 1, where something is computed twice: what is multiplied by it no compiler takes for the same
  double slope[2], offset[2];  // threshold: √(slope²‖x‖² + offset²), each kept twice
  double kappa;                // thread: the factor of its thresholds
  double overflow;             // a line whose norm exceeds this may overflow: judged by repetition
};

// Two passes in one launch (pair.cuh). A unit is what tiles of the second pass need of the first: its tiles in both passes are
// unit · first_tiles … of the first, and (unit / groups · second_tiles + i) · groups + unit % groups of the second. In order of tickets:
// the first pass of `ahead` units; then in turn of one more unit, and the second pass of the oldest; at last the second pass of what is
// left.
struct pair_arguments {
  // Zero between launches: the next ticket, blocks that have ended, and for each slot how many tiles of the first and of the second pass
  // are done in it, counted through all units that it had.
  std::uint32_t* counters;
  std::uint32_t units, ahead, slots;        // unit u is in slot u % slots; ahead < slots, but if all units have one
  std::uint32_t first_tiles, second_tiles;  // of a unit
  std::uint32_t groups;
  std::int64_t slot_elements;  // between slots, where what waits lies in a ring; 0: it lies where its pass says
  std::int64_t unit_elements;  // between units, where the passes say
};

BALLAST_HD constexpr std::uint32_t pair_counters(std::uint32_t slots) { return 2 + 2 * slots; }

// Shared memory: what the tiles need, then two records of tickets.
inline constexpr int k_ticket_bytes = 96;
BALLAST_HD constexpr std::int64_t ticket_offset(const line_policy& first, const line_policy& second) {
  const std::int64_t most = first.shared_bytes() > second.shared_bytes() ? first.shared_bytes() : second.shared_bytes();
  return (most + 15) / 16 * 16;
}

}  // namespace ballast::fft::cuda
