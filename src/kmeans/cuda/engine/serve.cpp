// Points that are used once, as they are given: the column statistics; for predict then one kernel that normalizes the points while it
// reads them (that of transform is in results.cpp). No prepared copy is made. Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <cmath>

#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "kmeans/cuda/layout/serve_args.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

// The points must stay on the device, without weights; for labels also in f32, and their rows must fit into shared memory.
template <class T>
void cuda_engine<T>::serve_only(bool labels) {
  serves_ = !weighted() && !ranks_ && point_stream_.kept() == kept_points::all;
  if (labels && serves_)
    serves_ = sizeof(T) == 4 && !scheme_named(what_.scheme) && serves_labels(n_, k_) &&
              serve_shared_bytes<T>(serve_policy_of(n_, k_), padded_features<T>(n_)) <= device_->about().shared_per_block;
}

// The driver compares these sums with the column statistics: here they come from another reading of the points.
template <class T>
point_sums cuda_engine<T>::measure_as_given() {
  buffer parts;
  const core::vector<column_ranges<T>> seen = sum_ranges(points_.given, n_, parts);
  const normalization<T>& chosen = normalization_.values();
  const auto scale = static_cast<double>(chosen.scale);
  point_sums made;
  made.clear(n_, false);
  made.count = made.weight = made.members = static_cast<double>(all_);
  double reach = 0;
  for (std::int64_t f = 0; f < n_; ++f) {
    const auto shift = static_cast<double>(chosen.shift[at(f)]);
    const auto size = [&](T point) { return std::abs(static_cast<double>(point) * scale - shift); };
    const column_ranges<T>& each = seen[at(f)];
    made.first[at(f)] = each.sum * scale * 0x1p64 - made.count * shift;  // a sum in the units of the points may overflow
    reach = std::max({reach, size(each.low), size(each.high)});
  }
  made.largest_square = reach * reach;
  return made;
}

template <class T>
summed_twice cuda_engine<T>::serve(const sealed_centroids<T>& centroids, const core::vector<T>& plain) {
  const serve_policy chosen = serve_policy_of(n_, k_);
  const std::int64_t blocks = (m_ + k_serve_rows - 1) / k_serve_rows, stride = points_.normalized.stride;
  const auto size = static_cast<std::int64_t>(sizeof(T));
  serve_arguments<T> given{};
  given.given = points_.given;
  given.k = static_cast<int>(k_);
  given.flags = flags();
  given.sums = reinterpret_cast<double*>(room());
  given.check = protect_;
  const std::int64_t group = std::int64_t{chosen.tiles} * k_tile_columns;
  const auto tiles = static_cast<int>((k_ + group - 1) / group) * chosen.tiles;
  given.shape = {static_cast<int>(k_), static_cast<int>(stride / k_slice<T>), 1, tiles, tiles, chosen.tiles, product_unit::warp};

  // Each copy: normalized centroids, plain ones and the shift, as they come from the host; then what the device makes of them.
  std::int64_t end = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = end;
    end += (bytes + 255) / 256 * 256;
    return begin;
  };
  const std::int64_t values = take(k_ * n_ * size), unshifted = take(k_ * n_ * size), shift = take(stride * size), sent = end;
  const std::int64_t rows = take(k_ * stride * size), packed = take(given.shape.template packed_bytes<T>());
  const std::int64_t starts = take(std::int64_t{tiles} * k_tile_columns * size);
  const std::int64_t bounds = take(tiles * static_cast<std::int64_t>(sizeof(serve_norms<T>)));
  // Each device copy comes from a host copy of its own, made anew for each attempt.
  core::vector<T> from[2];
  const auto gather = [&](core::vector<T>& to) {
    to.assign(at(sent / size), T(0));
    std::ranges::copy(centroids.values(), to.begin() + values / size);
    std::ranges::copy(plain, to.begin() + unshifted / size);
    std::ranges::copy(normalization_.values().shift, to.begin() + shift / size);
  };
  const int copies = protect_ ? 2 : 1;
  const buffer memory = allocate(copies * end);
  if (served_labels_.bytes() == 0) served_labels_ = allocate(4 * m_);
  given.labels = static_cast<std::int32_t*>(served_labels_.data());
  for (int copy = 0; copy < copies; ++copy) {
    auto* const at = static_cast<unsigned char*>(memory.data()) + copy * end;
    given.centroids[copy] = {reinterpret_cast<const T*>(at + values),       reinterpret_cast<const T*>(at + unshifted),
                             reinterpret_cast<const T*>(at + shift),        reinterpret_cast<T*>(at + rows),
                             reinterpret_cast<operand_of<T>*>(at + packed), reinterpret_cast<T*>(at + starts),
                             reinterpret_cast<serve_norms<T>*>(at + bounds)};
    given.exact[copy].given = given.given;
    given.exact[copy].plain = given.centroids[copy].plain;
    given.exact[copy].k = given.k;
  }

  core::vector<double> parts(at(2 * blocks));
  row_flags seen{};
  const reading results[] = {{parts.data(), given.sums, 2 * blocks * static_cast<std::int64_t>(sizeof(double))},
                             {&seen, flags(), sizeof seen}};
  const auto once = [&] {
    clear_flags();
    for (int copy = 0; copy < copies; ++copy) {
      gather(from[copy]);
      device_->copy(static_cast<unsigned char*>(memory.data()) + copy * end, from[copy].data(), sent, call_.order());
    }
    launch(
        k_serve_pack_kernel, [](bool instrumented) { return names::serve_pack(instrumented); }, std::int64_t{copies} * tiles, given);
    launch_given(
        k_serve_kernel, [&](bool half, bool instrumented) { return names::serve(n_, k_, half, instrumented); }, blocks, given);
    read(results);
  };
  if (!protect_) {
    once();
  } else {
    run::attempt(what_.seen, what_.how.protection, "kmeans.inertia", 0, [&](int) {
      once();
      what_.seen.checked(at(m_));
      return finding_of(seen);
    });
  }
  return inertia_of(parts);
}

template void cuda_engine<float>::serve_only(bool);
template point_sums cuda_engine<float>::measure_as_given();
template summed_twice cuda_engine<float>::serve(const sealed_centroids<float>&, const core::vector<float>&);
template void cuda_engine<double>::serve_only(bool);
template point_sums cuda_engine<double>::measure_as_given();
template summed_twice cuda_engine<double>::serve(const sealed_centroids<double>&, const core::vector<double>&);

}  // namespace ballast::kmeans::cuda
