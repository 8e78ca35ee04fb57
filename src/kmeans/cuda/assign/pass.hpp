// The pass kernel's policy and arguments.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/points.hpp"

namespace ballast::kmeans::cuda {

// The memory in which a block sums points before it adds to the sums of all blocks. none: the pass has no sums; shared: shared memory;
// global: it adds to the sums of all blocks directly.
enum class sum_memory : int { none, shared, global };

// The memory from which a block reads the packed centroids: global memory; shared memory, all of them; or a ring in shared memory, through
// which chunks pass in the order of `packed`.
enum class centroid_memory : int { global, shared, ring };

struct pass_policy {
  product_unit unit = product_unit::warp;  // warpgroup: f32, packed centroids in shared memory, warps in multiples of four
  centroid_memory centroids = centroid_memory::global;
  int slices = 1;        // k-slices of x in a lane's registers: those of a whole row; 0: rows are read again for each group of tiles
  int tiles = 2;         // tiles per group, whose scores a warp computes at a time. Divides packed_shape::section_tiles
  int depth = 1;         // k-slices of a group that are multiplied between two waits; a chunk of a ring. Divides packed_shape::slices
  int slots = 0;         // chunks in a ring
  bool rows = false;     // points pass through the ring, too: k-slices of rows with the same k-slices of the centroids
  bool single = false;   // one group contains all centroids
  bool columns = false;  // packed_centroids::columns is copied to shared memory
  int warps = 8;         // warps per block that multiply
  int blocks = 2;        // blocks per multiprocessor, for the register budget
  int words = 1;         // words per sum
  sum_memory sums = sum_memory::shared;
  bool weighted = false;
  bool check = true;
  bool operator==(const pass_policy&) const = default;
};

template <class T>
struct pass_arguments {
  normalized_points<T> points;
  packed_centroids<T> centroids;
  std::int32_t* labels;          // m
  const std::int32_t* previous;  // m: labels of the previous pass; must not alias `labels`. Null: no point had a label
  // sums: k × words × sum_pitch; members: k. On entry the sums and members of the clusters by `previous`, on return those by `labels`.
  // `fresh`: on entry they are 0, and every point is added.
  unsigned long long* sums;
  unsigned long long* members;
  bool fresh;
  pass_totals* totals;
  // true: a block with a loader draws its tiles of rows from a counter; without a ring, each team draws the last of its turns of
  // queue_tiles. So none waits for one with more exact rechecks. false: tiles or turns are strided by the number of blocks or teams.
  // Allowed only if the totals start at 0 and verify by labels and signatures which rows were counted.
  bool draws;
  T* distances;  // m: ‖x − c‖² to the centroid of the label, in passes with checks and without sums. Null: not stored
  ballast::cuda::event_ring* events;
  const loop_state* state;  // null: no iterations on the device
  int repeats;              // abft::attempts
};

// Returns whether a separate warpgroup, the loader, fills the ring. If threads that multiply also requested chunks, they would delay each
// other: while such a thread does other work, it requests none.
inline constexpr int k_loader_warps = 4;
inline constexpr int k_loader_registers = 24;  // per thread; the other warps share the remaining registers
// No loader if the pass sums in shared memory: there all threads of the block meet between tiles.
BALLAST_HD constexpr bool has_loader(const pass_policy& p) {
  return p.centroids == centroid_memory::ring && p.unit == product_unit::warpgroup && p.sums != sum_memory::shared;
}
// Returns whether rows can pass through the ring (pass_policy::rows). Without the ring, every step would wait for its loads into registers,
// because a lane has room for those of the next step only. A block processes rows that are contiguous (operand_index).
BALLAST_HD constexpr bool can_pass_rows(const pass_policy& p) {
  return has_loader(p) && p.slices == 0 && p.warps * k_operand_rows == k_operand_block;
}
BALLAST_HD constexpr int pass_threads(const pass_policy& p) { return 32 * (p.warps + (has_loader(p) ? k_loader_warps : 0)); }
// Returns the registers of a thread that multiplies: its share of those that the loader leaves. The threads of a block together have as
// many registers as at launch, when each thread has the same number. A request for more never returns.
BALLAST_HD constexpr int pass_registers(const pass_policy& p) {
  const int launched = 65536 / p.blocks / pass_threads(p) / 8 * 8 * pass_threads(p);
  const int left = (launched - 32 * k_loader_warps * k_loader_registers) / (32 * p.warps) / 8 * 8;
  return left < 240 ? left : 240;
}

inline constexpr int k_drawn_bytes = 128;  // drawn numbers: those of more tiles than a ring has chunks, and two turns of each team
inline constexpr int k_counters = 4;       // counters of rows added to a queue: at least 3, a power of two
inline constexpr int k_most_slots = 16;
// The number of columns that a lane lists per row. If a lane has more near columns, all of its columns are compared: few if there is one
// group, many if there are several.
inline constexpr int k_most_named = 3;
BALLAST_HD constexpr int named_columns(const pass_policy& p) { return p.single ? 2 : k_most_named; }
// Returns the bytes of a row in a queue. Indexes of centroids that fit into shared memory have 16 bits.
BALLAST_HD constexpr int postponed_bytes(const pass_policy& p) {
  return (20 + 4 * named_columns(p) * (p.centroids == centroid_memory::shared ? 2 : 4) + 7) / 8 * 8;
}

// Rows that a warp processes at a time, those of a matrix fragment; and rows of a block.
inline constexpr int k_pass_rows = 16;
BALLAST_HD constexpr int pass_rows_of_block(const pass_policy& p) { return p.warps * k_pass_rows; }

// A team is the warps that share a queue of rows: four warps if the products of a warpgroup synchronize them anyway, else a single warp.
inline constexpr int k_warpgroup_warps = 4;
inline constexpr int k_most_warps = 16;  // per block
// Barriers of a ring; the counters of each queue; the meeting at which all queues are emptied; drawn numbers.
inline constexpr int k_counter_bytes = 4 * k_most_warps * k_counters;
inline constexpr int k_barrier_bytes = 16 * k_most_slots + k_counter_bytes + 16 + k_drawn_bytes;
static_assert(k_drawn_bytes >= 2 * 4 * k_most_warps / k_warpgroup_warps);
BALLAST_HD constexpr int team_warps(const pass_policy& p) { return p.unit == product_unit::warpgroup ? k_warpgroup_warps : 1; }
BALLAST_HD constexpr int pass_teams(const pass_policy& p) { return p.warps / team_warps(p); }
inline constexpr int k_block_words = k_most_warps * k_quantities;  // 8-byte words: the quantities of the warps of a block
// Returns the rows that are processed together: those of a block if it shares a ring, else those of a team.
BALLAST_HD constexpr int pass_rows_of_tile(const pass_policy& p) {
  return (p.centroids == centroid_memory::ring ? p.warps : team_warps(p)) * k_pass_rows;
}
// Teams of a warpgroup that share a ring wait for each other. A team with this many rows in its queue asks all teams to empty their queues
// after the same tile.
inline constexpr int k_queue_asks = 16;
BALLAST_HD constexpr bool empties_together(const pass_policy& p) {
  return p.centroids == centroid_memory::ring && team_warps(p) > 1 && pass_teams(p) > 1;
}
// Rows of a queue for which many centroids are scanned by all warps of its team, each scanning a part of the centroids; further rows are
// scanned by single warps.
inline constexpr int k_shared_scans = 8;
struct scanned_part {
  double distance;
  std::int32_t index;
  std::uint32_t of;  // the row's number in the queue, and the lanes whose columns are scanned
};
BALLAST_HD constexpr bool shares_scans(const pass_policy& p) { return team_warps(p) > 1; }
BALLAST_HD constexpr int scan_bytes(const pass_policy& p) {
  return shares_scans(p) ? p.warps * 2 * k_shared_scans * static_cast<int>(sizeof(scanned_part)) : 0;  // two results of each scan
}
// Returns the number of tiles after which a team meets to count the rows in its queue. With short tiles, a meeting after each would take a
// large part of the time.
BALLAST_HD constexpr int queue_tiles(const pass_policy& p) { return p.single ? 2 : 1; }
// queued_rows: the rows that tiles may add to a queue between two meetings. pass_queue_rows: the capacity of a queue. It is emptied when it
// has more than kept_rows: the rows of one tile if the team must stop for that, else one less than a warp decides at a time.
BALLAST_HD constexpr int queued_rows(const pass_policy& p) { return queue_tiles(p) * team_warps(p) * k_pass_rows; }
BALLAST_HD constexpr int pass_queue_rows(const pass_policy& p) { return queued_rows(p) + team_warps(p) * k_pass_rows; }
BALLAST_HD constexpr int decided_rows(const pass_policy& p) { return p.check ? 4 : 8; }
BALLAST_HD constexpr int kept_rows(const pass_policy& p) { return team_warps(p) > 1 ? team_warps(p) * k_pass_rows : decided_rows(p) - 1; }

// A row whose label differs from that of the previous pass waits until a warp of its team has eight: four lanes add each row, so fewer rows
// would leave lanes idle. At the team's next meeting all its warps move theirs, because they would otherwise wait for the one that does.
struct changed_row {
  std::int32_t row;
  std::int32_t from;  // k: the row has not been added before
  std::int32_t to;
};
inline constexpr int k_changes_together = 8;
inline constexpr int k_least_moved = k_changes_together / 2;  // at such a meeting a warp moves rows until fewer than this wait
// Returns the most changed rows that a warp holds: those of the tiles between two meetings, and of one more.
BALLAST_HD constexpr int most_changes(const pass_policy& p) { return k_changes_together - 1 + (queue_tiles(p) + 1) * k_pass_rows; }
BALLAST_HD constexpr int change_bytes(const pass_policy& p) {
  return p.sums == sum_memory::none ? 0 : p.warps * (most_changes(p) * static_cast<int>(sizeof(changed_row)) + 4);
}

// Bytes of a chunk: of packed centroids; then of rows, if these pass through the ring.
template <class T>
BALLAST_HD constexpr int chunk_bytes(const pass_policy& p) {
  return p.tiles * p.depth * k_slice_bytes<T>;
}
template <class T>
BALLAST_HD constexpr int row_chunk_bytes(const pass_policy& p) {
  return p.rows ? p.depth * k_operand_block * k_slice<T> * static_cast<int>(sizeof(operand_of<T>)) : 0;
}
template <class T>
BALLAST_HD constexpr int slot_bytes(const pass_policy& p) {
  return chunk_bytes<T>(p) + row_chunk_bytes<T>(p);
}

// Bytes of shared memory for the packed centroids: the operands, then packed_centroids::columns.
template <class T>
BALLAST_HD constexpr std::int64_t centroid_bytes(const pass_policy& p, const packed_shape& shape) {
  return p.centroids == centroid_memory::global   ? 0
         : p.centroids == centroid_memory::shared ? shape.template packed_bytes<T>()
                                                  : std::int64_t{p.slots} * slot_bytes<T>(p);
}
template <class T>
BALLAST_HD constexpr std::int64_t column_bytes(const pass_policy& p, const packed_shape& shape) {
  return p.columns ? std::int64_t{shape.tiles()} * 2 * k_tile_columns * static_cast<std::int64_t>(sizeof(T)) : 0;
}

// Returns the bytes of dynamic shared memory, in this order: packed centroids, quantities of the block's warps, barriers, queues, scans,
// changed rows and their number per warp, limbs of the sums of k clusters, members.
template <class T>
constexpr std::int64_t pass_shared_bytes(const pass_policy& p, const packed_shape& shape, std::int64_t n) {
  const std::int64_t always = centroid_bytes<T>(p, shape) + column_bytes<T>(p, shape) + k_block_words * 8 + k_barrier_bytes +
                              std::int64_t{pass_teams(p)} * pass_queue_rows(p) * postponed_bytes(p) + scan_bytes(p) + change_bytes(p);
  const std::int64_t pitch = sum_pitch(static_cast<int>(padded_features<T>(n)));
  return always + (p.sums == sum_memory::shared ? std::int64_t{shape.k} * (pitch * 8 * p.words + 4) : 0);
}

}  // namespace ballast::kmeans::cuda
