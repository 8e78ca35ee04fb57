// The rows of a call on a group, and what its ranks keep so that they can go on when one is lost.
// Layer: algorithm, backend-free.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ballast/kmeans.hpp>
#include <ballast/view.hpp>

#include "core/memory.hpp"
#include "kmeans/sealed.hpp"

namespace ballast::wire {
class exchange;
class device_meeting;
class nccl_link;
}

namespace ballast::kmeans {

// Neighbouring rows of the points that a rank holds, the first of them row `first` of all.
template <class T>
struct row_part {
  std::int64_t first = 0;
  matrix_view<const T> points;
  std::span<const T> weights;  // empty: all 1
};

// The rows of one rank: its own, at first, and later what it loaded for lost ranks.
template <class T>
struct rank_rows {
  wire::exchange* over = nullptr;  // null: the call has no group
  std::int64_t all = 0;            // m: the points of all ranks
  bool weighted = false;           // they have weights
  std::vector<row_part<T>> parts;  // none of them empty; the rows of the caller are parts[own]
  int own = -1;                    // −1: the caller has no rows
  // For a device: keeps memory that other ranks may read until all have left the call; and how the devices add words, those of one process
  // or those of ranks over NCCL.
  std::vector<std::shared_ptr<void>>* kept = nullptr;
  wire::device_meeting* meeting = nullptr;
  wire::nccl_link* link = nullptr;
};

// The state of a fit: alike on all ranks, or one iteration less on some.
template <class T>
struct fit_state {
  std::int64_t run = 0;
  std::int64_t iterations = 0;  // the iterations of this run; 0: it has no centroids yet
  bool stopped = false;         // its iterations are over
  stop_reason reason = stop_reason::max_iter;
  sealed_centroids<T> before = {}, current = {};  // the centroids of the last two iterations, normalized
  bool has_best = false;                          // a run before this one is over
  sealed_centroids<T> best = {};                  // the centroids of the best of these, in the user's coordinates
  double best_inertia = 0;
  std::int64_t best_iterations = 0;
  stop_reason best_reason = stop_reason::max_iter;

  bool behind(const fit_state& other) const {
    if (run != other.run) return run < other.run;
    if (iterations != other.iterations) return iterations < other.iterations;
    return !stopped && other.stopped;
  }
};

}  // namespace ballast::kmeans
