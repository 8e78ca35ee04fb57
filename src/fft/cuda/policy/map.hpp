// A sparse map of lines of real numbers: the policy and the argument of the kernel in fft/cuda/kernel/map.cuh.
// Layer: fft/cuda, for host and device code.
#pragma once

#include <cstdint>

#include "cuda/block/event_ring.hpp"
#include "inject/site.hpp"

namespace ballast::fft::cuda {

inline constexpr int k_map_threads = 256;
// Neighbouring lines of a block whose threads lie across the lines.
inline constexpr int k_map_across = 32;
// Every loop has at least two steps, and the lines are distinct in memory: so many loops have more lines than a device has bytes.
inline constexpr int k_map_loops = 40;

struct map_policy {
  bool wide = false;    // double
  bool check = false;   // every result is computed from two readings and two copies of the tables
  bool copies = false;  // result i is scalar i; there are no tables
  bool across = false;  // neighbouring threads have neighbouring lines, otherwise neighbouring results of a line
};

// The places of the scalars of lines: scalar i of line l at i · scalar + Σ_d (index of l in loop d) · distance[d]. The last loop is the
// fastest. In scalars.
struct map_side {
  std::int64_t scalar;
  std::int64_t count[k_map_loops], distance[k_map_loops];
  int loops;
};

// Result i of each line is scale · Σ_t factor[t] · x[index[t]], begin[i] ≤ t < begin[i + 1].
struct map_arguments {
  const void* in;
  void* out;
  const std::uint32_t* begin[2];  // the tables, and a copy in other memory
  const std::uint32_t* index[2];
  const void* factor[2];
  ballast::cuda::event_ring* events;
  map_side from, to;
  std::int64_t rows;        // results of a line
  std::int64_t first_line;  // the lines [first_line, first_line + lines)
  std::int64_t lines;
  double scale, check_scale;             // the factor of all results, and a copy that was computed separately
  std::int64_t first_block, all_blocks;  // this launch among those of its step, for injection
  int step, steps;                       // for events and injection
  int repairs;                           // further computations of a result; 0: detect only
  inject::site site;                     // the site of strikes at the results
};

// The blocks of a launch.
inline std::int64_t map_blocks(const map_policy& p, std::int64_t rows, std::int64_t lines) {
  constexpr std::int64_t rows_across = k_map_threads / k_map_across;
  if (!p.across) return (rows * lines + k_map_threads - 1) / k_map_threads;
  return (rows + rows_across - 1) / rows_across * ((lines + k_map_across - 1) / k_map_across);
}

}  // namespace ballast::fft::cuda
