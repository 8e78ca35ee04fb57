// The pass kernel's policy and arguments.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"
#include "kmeans/cuda/layout/points.hpp"

namespace ballast::kmeans::cuda {

// Where a block adds points up before they reach the sums of all blocks: nowhere, as there are none; in shared memory; in the sums
// themselves.
enum class sum_memory : int { none, shared, global };

// Where a block has the panel: in global memory; whole in shared memory; or in chunks that pass through it, in the order of `packed`.
enum class panel_memory : int { global, shared, ring };

struct pass_policy {
  product_unit unit = product_unit::warp;  // warpgroup: f32, the panel in shared memory, warps in fours
  panel_memory panel = panel_memory::global;
  int slabs = 1;         // of x that a lane keeps in registers: those of a whole row; 0: rows are read again for each group of tiles
  int tiles = 2;         // whose scores a warp computes at a time: a group. Divides panel_shape::section_tiles
  int depth = 1;         // slabs of a group that are multiplied between two waits; a chunk of a ring. Divides panel_shape::slabs
  int slots = 0;         // chunks of a ring
  bool rows = false;     // of points pass through the ring, too: slabs of them with those of the centroids
  bool single = false;   // one group has all centroids
  bool columns = false;  // of the panel are in shared memory
  int warps = 8;         // of a block
  int blocks = 2;        // per multiprocessor, for the register budget
  int words = 1;         // of a sum
  sum_memory sums = sum_memory::shared;
  bool weighted = false;
  bool check = true;
  bool operator==(const pass_policy&) const = default;
};

template <class T>
struct pass_arguments {
  placed_points<T> points;
  panel<T> centroids;
  std::int32_t* labels;          // m
  const std::int32_t* previous;  // m: of the pass before. Not `labels`. Null: no point had a label
  // k × words × sum_pitch, and k: the sums and members of the clusters by `previous`, which become those by `labels`. `fresh`: they are 0,
  // and every point is added.
  unsigned long long* sums;
  unsigned long long* members;
  bool fresh;
  pass_totals* totals;
  // A block with a loader draws the tiles of rows that it works on, and without a ring each of its teams the last of its turns of
  // queue_tiles, so that none waits for one with more second looks. Else they are as far apart as there are blocks or teams. Only where
  // totals start at 0, and tell by labels and signatures which rows were counted.
  bool draws;
  T* distances;  // m: ‖x − c‖² of the label, of passes with checks and without sums. Null: not stored
  ballast::cuda::event_ring* events;
  const loop_state* state;  // null: no iterations on the device
  int repeats;              // abft::attempts
};

// Whether a warpgroup of its own fills the ring. Threads that multiply and ask for chunks as well keep each other waiting: while one does
// something else, nobody asks.
inline constexpr int k_loader_warps = 4;
inline constexpr int k_loader_registers = 24;  // of a thread; the others share what that leaves
// Not where the pass adds up in shared memory: there all threads of the block meet between tiles.
BALLAST_HD constexpr bool has_loader(const pass_policy& p) {
  return p.panel == panel_memory::ring && p.unit == product_unit::warpgroup && p.sums != sum_memory::shared;
}
// Whether rows can pass through the ring (pass_policy::rows). Loads into registers would be waited for in every step, as a lane has room
// for those of the next one alone. A block works on those that lie together (operand_place).
BALLAST_HD constexpr bool can_pass_rows(const pass_policy& p) {
  return has_loader(p) && p.slabs == 0 && p.warps * k_operand_rows == k_operand_block;
}
BALLAST_HD constexpr int pass_threads(const pass_policy& p) { return 32 * (p.warps + (has_loader(p) ? k_loader_warps : 0)); }
// Registers of a thread that multiplies: its share of what the loader leaves. All of a block together may have those that it was launched
// with, as many in every thread. A request for more never returns.
BALLAST_HD constexpr int pass_registers(const pass_policy& p) {
  const int launched = 65536 / p.blocks / pass_threads(p) / 8 * 8 * pass_threads(p);
  const int left = (launched - 32 * k_loader_warps * k_loader_registers) / (32 * p.warps) / 8 * 8;
  return left < 240 ? left : 240;
}

inline constexpr int k_drawn_bytes = 128;  // what has been drawn: more tiles than there are chunks in a ring, and two turns of each team
inline constexpr int k_counters = 4;       // of rows that are added to a queue: at least 3, a power of two
inline constexpr int k_most_slots = 16;
// Columns that a lane names of a row. Where there are more, all of the lane's are looked at: of one group few, of several groups many.
inline constexpr int k_most_named = 3;
BALLAST_HD constexpr int named_columns(const pass_policy& p) { return p.single ? 2 : k_most_named; }
// Of a row in a queue. Centroids of a panel that fits into shared memory are numbered in 16 bits.
BALLAST_HD constexpr int postponed_bytes(const pass_policy& p) {
  return (20 + 4 * named_columns(p) * (p.panel == panel_memory::shared ? 2 : 4) + 7) / 8 * 8;
}

// Rows that a warp works on at a time, those of a matrix fragment; and a block.
inline constexpr int k_pass_rows = 16;
BALLAST_HD constexpr int pass_rows_of_block(const pass_policy& p) { return p.warps * k_pass_rows; }

// A team: warps that share a queue of rows. Four where a product of a warpgroup brings them together anyway, else each warp by itself.
inline constexpr int k_warpgroup_warps = 4;
inline constexpr int k_most_warps = 16;  // of a block
// Barriers of a ring, the counters of each queue, when queues are emptied together; what has been drawn.
inline constexpr int k_counter_bytes = 4 * k_most_warps * k_counters;
inline constexpr int k_barrier_bytes = 16 * k_most_slots + k_counter_bytes + 16 + k_drawn_bytes;
static_assert(k_drawn_bytes >= 2 * 4 * k_most_warps / k_warpgroup_warps);
BALLAST_HD constexpr int team_warps(const pass_policy& p) { return p.unit == product_unit::warpgroup ? k_warpgroup_warps : 1; }
BALLAST_HD constexpr int pass_teams(const pass_policy& p) { return p.warps / team_warps(p); }
inline constexpr int k_block_words = k_most_warps * k_quantities;  // of 8 bytes: what the warps of a block add up
// Rows that are worked on together: those of a block where it shares a ring, else those of a team.
BALLAST_HD constexpr int pass_rows_of_tile(const pass_policy& p) {
  return (p.panel == panel_memory::ring ? p.warps : team_warps(p)) * k_pass_rows;
}
// Teams of a warpgroup that share a ring wait for each other: with so many rows in its queue a team asks all of them to empty theirs behind
// the same tile.
inline constexpr int k_queue_asks = 16;
BALLAST_HD constexpr bool empties_together(const pass_policy& p) {
  return p.panel == panel_memory::ring && team_warps(p) > 1 && pass_teams(p) > 1;
}
// Rows of which many centroids are looked at: so many of a queue by all warps of its team, each a part of the centroids.
inline constexpr int k_shared_scans = 8;
struct scanned_part {
  double distance;
  std::int32_t index;
  std::uint32_t of;  // the row's number in the queue, and which of its columns
};
BALLAST_HD constexpr bool shares_scans(const pass_policy& p) { return team_warps(p) > 1; }
BALLAST_HD constexpr int scan_bytes(const pass_policy& p) {
  return shares_scans(p) ? p.warps * 2 * k_shared_scans * static_cast<int>(sizeof(scanned_part)) : 0;  // twice
}
// Tiles after which a team meets to see how many rows wait in its queue. Where a tile is short, meeting after each would be much of it.
BALLAST_HD constexpr int queue_tiles(const pass_policy& p) { return p.single ? 2 : 1; }
// queued_rows: that tiles may add to a queue between two meetings. pass_queue_rows: that a queue has room for. It is emptied when it has
// more than kept_rows: where a team stops for that those of one tile, else one less than a warp decides at a time.
BALLAST_HD constexpr int queued_rows(const pass_policy& p) { return queue_tiles(p) * team_warps(p) * k_pass_rows; }
BALLAST_HD constexpr int pass_queue_rows(const pass_policy& p) { return queued_rows(p) + team_warps(p) * k_pass_rows; }
BALLAST_HD constexpr int decided_rows(const pass_policy& p) { return p.check ? 4 : 8; }
BALLAST_HD constexpr int kept_rows(const pass_policy& p) { return team_warps(p) > 1 ? team_warps(p) * k_pass_rows : decided_rows(p) - 1; }

// A row whose label is not that of the pass before waits for others, until a warp of its team has eight: four lanes add each, and more rows
// at a time would leave lanes idle. At the team's next meeting all its warps move theirs, as the others would wait for one that does.
struct changed_row {
  std::int32_t row;
  std::int32_t from;  // k: it has not been added before
  std::int32_t to;
};
inline constexpr int k_changes_together = 8;
inline constexpr int k_least_moved = k_changes_together / 2;  // of one warp, then
// Rows that a warp has at a time: those of the tiles between two meetings, and of one more.
BALLAST_HD constexpr int most_changes(const pass_policy& p) { return k_changes_together - 1 + (queue_tiles(p) + 1) * k_pass_rows; }
BALLAST_HD constexpr int change_bytes(const pass_policy& p) {
  return p.sums == sum_memory::none ? 0 : p.warps * (most_changes(p) * static_cast<int>(sizeof(changed_row)) + 4);
}

// Bytes of a chunk: of the panel, then of rows where these are in the ring.
template <class T>
BALLAST_HD constexpr int chunk_bytes(const pass_policy& p) {
  return p.tiles * p.depth * k_slab_bytes<T>;
}
template <class T>
BALLAST_HD constexpr int row_chunk_bytes(const pass_policy& p) {
  return p.rows ? p.depth * k_operand_block * k_slab<T> * static_cast<int>(sizeof(operand_of<T>)) : 0;
}
template <class T>
BALLAST_HD constexpr int slot_bytes(const pass_policy& p) {
  return chunk_bytes<T>(p) + row_chunk_bytes<T>(p);
}

// Bytes of shared memory for the panel: what is multiplied, then its columns.
template <class T>
BALLAST_HD constexpr std::int64_t panel_bytes(const pass_policy& p, const panel_shape& shape) {
  return p.panel == panel_memory::global   ? 0
         : p.panel == panel_memory::shared ? shape.template packed_bytes<T>()
                                           : std::int64_t{p.slots} * slot_bytes<T>(p);
}
template <class T>
BALLAST_HD constexpr std::int64_t column_bytes(const pass_policy& p, const panel_shape& shape) {
  return p.columns ? std::int64_t{shape.tiles()} * 2 * k_tile_columns * static_cast<std::int64_t>(sizeof(T)) : 0;
}

// Bytes of dynamic shared memory, in this order: the panel, what the block adds up, barriers, queues, scans, changed rows and how many of
// each warp, limbs of the sums of k clusters, members.
template <class T>
constexpr std::int64_t pass_shared_bytes(const pass_policy& p, const panel_shape& shape, std::int64_t n) {
  const std::int64_t always = panel_bytes<T>(p, shape) + column_bytes<T>(p, shape) + k_block_words * 8 + k_barrier_bytes +
                              std::int64_t{pass_teams(p)} * pass_queue_rows(p) * postponed_bytes(p) + scan_bytes(p) + change_bytes(p);
  const std::int64_t pitch = sum_pitch(static_cast<int>(padded_features<T>(n)));
  return always + (p.sums == sum_memory::shared ? std::int64_t{shape.k} * (pitch * 8 * p.words + 4) : 0);
}

}  // namespace ballast::kmeans::cuda
