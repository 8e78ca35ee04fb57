// Points of unit length for spherical K-Means, made on the device from the points as they are given.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include "kmeans/cuda/layout/unit_rows.hpp"

#include <limits>
#include <utility>

#include "core/extent.hpp"
#include "cuda/device/residence.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

// Everything after it reads the copies in place of the given points.
template <class T>
void cuda_engine<T>::make_unit_rows() {
  if (!what_.unit_rows) return;
  const bool of_16_bits = half();
  buffer made = allocate(core::checked_product(core::checked_product(m_, n_), static_cast<std::int64_t>(sizeof(T))));
  unit_rows_arguments<T> given{points_.given, static_cast<T*>(made.data()), flags(), false};
  const std::int64_t blocks = (m_ + k_unit_rows - 1) / k_unit_rows;
  row_flags seen[k_unit_flags];
  const auto once = [&] {
    clear_flags();
    for (const bool check : {false, true}) {
      given.check = check;
      if (check && !protect_) continue;
      launch(
          k_unit_rows_kernel + (of_16_bits ? 1 : 0), [&](bool instrumented) { return names::unit_rows(of_16_bits, instrumented); }, blocks,
          given);
    }
    download(seen, flags(), sizeof seen);
  };
  const auto same = [](const row_flags& a, const row_flags& b) { return a.failures == b.failures && a.first_inverse == b.first_inverse; };
  auto outcome = abft::outcome::clean;
  if (!protect_) {
    once();
  } else {
    outcome = run::attempt(what_.seen, what_.how.protection, "kmeans.points", 0, [&](int) {
      once();
      what_.seen.checked(at(m_));
      abft::finding found = finding_of(seen[k_unlike_row]);
      if (!same(seen[k_zero_row], seen[k_zero_row_again])) {
        found.word = abft::k_fail;
        found.residual = std::numeric_limits<double>::quiet_NaN();
      }
      return found;
    });
  }
  if (seen[k_zero_row].failures > 0 && outcome != abft::outcome::uncorrectable) statistics_.zero_row = finding_of(seen[k_zero_row]).index;
  points_.unit_rows = std::move(made);
  points_.given.points = points_.unit_rows.data();
  points_.given.row_stride = n_;
  points_.given.column_stride = 1;
}

template <class T>
bool makes_unit_rows(matrix_view<const T> points, const half_points& half, bool weighted, std::int64_t clusters) {
  ballast::cuda::device& on = *ballast::cuda::current_device();
  kept_points_problem needs = needs_of(points, points.rows, weighted, clusters, on, half);
  const void* const data = half.present() ? static_cast<const void*>(half.bits(points.rows, points.columns).data) : points.data;
  if (needs.given_bytes != 0 && (points.rows > k_most_rows || ballast::cuda::residence_of(data) == ballast::cuda::residence::device))
    return false;
  needs.working += points.rows * points.columns * static_cast<std::int64_t>(sizeof(T));
  return fits_whole(needs, on.available_memory());
}

template void cuda_engine<float>::make_unit_rows();
template void cuda_engine<double>::make_unit_rows();
template bool makes_unit_rows(matrix_view<const float>, const half_points&, bool, std::int64_t);
template bool makes_unit_rows(matrix_view<const double>, const half_points&, bool, std::int64_t);

}  // namespace ballast::kmeans::cuda
