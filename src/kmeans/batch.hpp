// Many small fits at a time, each by a block of threads: the part that the cuda backend implements.
// Layer: algorithm, backend-free. api/batch.cpp has the public calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <ballast/execution.hpp>
#include <ballast/kmeans.hpp>

#include "core/memory.hpp"
#include "inject/active.hpp"
#include "kmeans/contract.hpp"
#include "run/pending.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans {

inline constexpr std::string_view k_scheme = "row_checksum";  // the default
inline constexpr std::string_view k_dmr = "dmr";              // the whole fit by two blocks

// A call for a batch. Operands may lie in host or device memory.
template <class T>
struct batch_args {
  matrix_batch_view<const T> points;
  std::span<const T> weights;      // count · m; empty: all 1
  matrix_view<const T> centroids;  // count · k × n: of init::given
  std::int64_t clusters = 0;       // k
  const options& wanted;
  const run::settings& how;
  run::recorder& seen;
  inject::active_injector& injector;
  plan_state& kept;
  shared_text token;
};

// The results of a batch before they are stored.
template <class T>
struct batch_fits {
  core::vector<T> centroids;          // count × k × n
  core::vector<std::int32_t> labels;  // count × m
  core::vector<double> inertia;       // count
  core::vector<int> iterations;
  core::vector<stop_reason> stopped;
};

namespace cuda {

// Returns whether a block of the current device can hold a fit of m × n points with k clusters.
template <class T>
bool takes_batch(std::int64_t m, std::int64_t n, std::int64_t k, init first);

// Computes all fits; verifies and repairs them, and records the findings, but throws no uncorrectable_error. `refused`: the fits of invalid
// points, weights or centroids; their results are not set.
template <class T>
void fit_batch(const batch_args<T>& args, batch_fits<T>& result, core::vector<std::int64_t>& refused);

// Enqueues all fits in one launch, which also verifies and stores them; with protection::correct further launches follow, which compute
// again the fits that failed. Operands, centroids and labels lie in device memory; what
// `to` has in host memory is stored by collect(), which throws invalid_argument_error for invalid points, weights or centroids. No fit that
// is uncorrectable is stored.
template <class T>
std::unique_ptr<run::pending> enqueue_batch(const batch_args<T>& args, const batch_results<T>& to);

// Returns the bytes of device memory, beside the event ring, of enqueue_batch for `count` fits.
template <class T>
std::int64_t enqueued_bytes(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, bool protect);

}  // namespace cuda

}  // namespace ballast::kmeans
