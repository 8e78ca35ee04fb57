// The words that the devices of a group add in each iteration: the sums of the clusters, their members, and totals of a pass.
// Layer: backend "cuda" of K-Means, shared by host and kernels.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "cuda/block/event_ring.hpp"
#include "kmeans/cuda/layout/packed_centroids.hpp"

namespace ballast::kmeans::cuda {

inline constexpr int k_join_threads = 256;
inline constexpr int k_join_chunk = 4 * k_join_threads;  // words of a block
inline constexpr int k_join_devices = 32;                // k_most_devices of the contract

BALLAST_HD constexpr std::int64_t join_chunks(std::int64_t words) { return (words + k_join_chunk - 1) / k_join_chunk; }
// The words of an offer: those of the device, and two sums over each chunk.
BALLAST_HD constexpr std::int64_t offer_words(std::int64_t words) { return words + 2 * join_chunks(words); }

struct join_offer_arguments {
  const unsigned long long* parts[3];
  std::int64_t ends[3];  // the ends of the parts, among all words
  unsigned long long* to;
  unsigned long long stamp;  // the number of the join in the call
  const loop_state* state;   // nothing is done once the iterations have ended
};

struct join_add_arguments {
  const unsigned long long* offers[k_join_devices];
  int devices;
  int repeats;
  bool check;
  std::int64_t words;
  unsigned long long* to;
  unsigned long long stamp;
  const loop_state* state;
  ballast::cuda::event_ring* events;
};

}  // namespace ballast::kmeans::cuda
