// Cosine distances from distances between unit vectors, for spherical K-Means.
// Layer: algorithm, backend-free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <ballast/view.hpp>

#include "abft/seal.hpp"
#include "core/parallel.hpp"
#include "inject/active.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"
#include "run/settings.hpp"

namespace ballast::kmeans {

// Stores 1 − cos = d²/2 for each distance d between unit vectors. Without cancellation: a relative error of twice that of d, and 2u. Each
// part of the rows is computed again from another reading of the distances and compared with what was stored.
template <class T>
void store_cosine_distances(run::recorder& seen, inject::active_injector& injector, const run::settings& how,
                            const matrix_view<const T>& distances, const matrix_view<T>& to) {
  constexpr std::int64_t k_part = 256;
  const std::int64_t rows = distances.rows, k = distances.columns, parts = (rows + k_part - 1) / k_part;
  const auto value = [&](std::int64_t i, std::int64_t j) {
    const volatile T& from = distances(i, j);
    const double d = static_cast<double>(from);
    return static_cast<T>(d * d / 2);
  };
  core::parallel_for(core::thread_count(how.threads), parts, [&](std::int64_t part, int slot) {
    const std::int64_t begin = part * k_part, end = std::min(rows, begin + k_part);
    const auto make = [&] {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < k; ++j) to(i, j) = value(i, j);
      injector.strike(site::product, {part, parts, 0, 1}, &to(begin, 0), 1);
    };
    if (how.protection == protection::off) return make();
    run::attempt(seen, how.protection, "kmeans.distance", slot, [&](int) {
      make();
      seen.checked(1);
      abft::finding found;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = begin;
      for (std::int64_t i = end; i-- > begin;)
        for (std::int64_t j = 0; j < k; ++j) {
          const volatile T& stored = to(i, j);
          const T made = stored;
          if (abft::word_of(made) != abft::word_of(value(i, j))) found.word = abft::k_fail;
        }
      return found;
    });
  });
}

}  // namespace ballast::kmeans
