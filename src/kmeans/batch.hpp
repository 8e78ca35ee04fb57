// Fits that a block of threads can hold, many at a time: what the cuda backend implements, and how a single fit gets there.
// Layer: algorithm, backend-free. batch.cpp has the public calls.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ballast/execution.hpp>
#include <ballast/kmeans.hpp>

#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "inject/active.hpp"
#include "run/recorder.hpp"

namespace ballast::kmeans {

inline constexpr std::string_view k_scheme = "row_checksum";  // the default
inline constexpr double k_usual_iterations = 20;              // of a run: a guess, for the choice of a backend
inline constexpr std::string_view k_dmr = "dmr";              // the whole fit by two blocks

template <class T>
batch_model<T> empty_models(std::int64_t count, std::int64_t m, std::int64_t n, std::int64_t k) {
  batch_model<T> made;
  made.count = count;
  made.centroids.resize(core::at(core::checked_product(core::checked_product(count, k), n)));
  made.labels.resize(core::at(core::checked_product(count, m)));
  made.inertia.resize(core::at(count));
  made.iterations.resize(core::at(count));
  made.ended.resize(core::at(count));
  return made;
}

// fit() by k_dmr. Throws unsupported_error if a block cannot hold it.
template <class T>
model<T> fit_in_block(const matrix_view<const T>& points, const options<T>& wanted, const run::settings& how);

namespace cuda {

// Whether a block of the current device can hold a fit of m × n points with k clusters.
template <class T>
bool takes_batch(std::int64_t m, std::int64_t n, std::int64_t k, init first);

// All fits. Points and weights where they lie; `wanted.centroids` in host memory. Verifies and repairs, and records what it finds, but
// throws no uncorrectable_error. `refused`: fits of points, weights or centroids that have no meaning; their results are not set.
template <class T>
batch_model<T> fit_batch(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how, run::recorder& seen,
                         inject::active_injector& injector, std::vector<std::int64_t>& refused);

}  // namespace cuda

}  // namespace ballast::kmeans
