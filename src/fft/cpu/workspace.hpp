// The memory for tiles, which a plan keeps from one execution to the next, and the tiles of a pass as tasks for its threads.
// Layer: backend "cpu".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/idle_pool.hpp"
#include "core/parallel.hpp"
#include "fft/cpu/tile.hpp"

namespace ballast::fft::cpu {

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The scratch of each worker. All are allocated together, so that it does not matter which workers have run in an earlier call.
template <class T>
class scratch_slots {
 public:
  // Allocates for workers 0 … threads − 1, unless an earlier call has: buffers of `scalars` scalars.
  void prepare(int threads, std::int64_t scalars, bool seals_results) {
    while (slots_.size() < static_cast<std::size_t>(threads)) slots_.push_back(std::make_unique<scratch<T>>(scalars, seals_results));
  }
  scratch<T>& at(int slot) { return *slots_[static_cast<std::size_t>(slot)]; }

 private:
  std::vector<std::unique_ptr<scratch<T>>> slots_;
};

// A pool of workspaces. Each execution has its own workspace; concurrent executions have different ones.
template <class Workspace>
class workspace_pool {
 public:
  template <class Use>
  void lend(Use&& use) {
    std::unique_ptr<Workspace> one = idle_.take_or([] { return std::make_unique<Workspace>(); });
    use(*one);
    idle_.give_back(std::move(one));
  }

 private:
  core::idle_pool<std::unique_ptr<Workspace>> idle_;
};

// The threads that process the tiles of a pass.
template <class T>
struct crew {
  const transform_args& how;
  const strike_counts& all;
  scratch_slots<T>& slots;
  int threads = 1;
  int slot = -1;  // slot of the only worker; −1: each worker uses the slot that parallel_for gives it

  // Calls body(tile, worker) for tiles 0 … tiles − 1 of `rows` rows each, in tasks of about 2048 rows. If a body returns false, its task
  // ends.
  template <class Body>
  void for_tiles(std::int64_t tiles, std::int64_t rows, Body&& body) const {
    const std::int64_t group = std::max<std::int64_t>(1, std::min(ceil_div(2048, rows), ceil_div(tiles, 4 * threads)));
    core::parallel_for(threads, ceil_div(tiles, group), [&](std::int64_t task, int own_slot) {
      const int index = slot >= 0 ? slot : own_slot;
      tile_worker<T> worker(how, all, slots.at(index), index);
      for (std::int64_t tile = task * group; tile < std::min(tiles, (task + 1) * group); ++tile) {
        if (!body(tile, worker)) return;
      }
    });
  }
};

// Returns whether outputs are so large that stores may bypass the cache: above 16 MiB, not in place.
template <class T>
bool is_past_cache(const side& to, const transform_args& how) {
  constexpr std::int64_t least = std::int64_t{16} << 20;
  return !how.in_place && to.extent * static_cast<std::int64_t>(sizeof(T)) * (to.real ? 1 : 2) > least;
}

// Returns whether stores bypass the cache: such outputs, with runs that begin at whole vectors. `stride`: scalars between runs.
template <class T>
bool may_stream(const side& to, const T* out, const transform_args& how, std::int64_t stride) {
  const int lanes = kernels<T>().lanes;
  const auto vector = static_cast<std::uintptr_t>(lanes) * sizeof(T);
  return is_past_cache<T>(to, how) && reinterpret_cast<std::uintptr_t>(out) % vector == 0 && stride % lanes == 0;
}

}  // namespace ballast::fft::cpu
