// The results of a call: final labels with their inertia, and distances; and the points farthest from their centroids.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <cmath>

#include "abft/threshold.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "kmeans/scale.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"
#include "run/staging.hpp"

namespace ballast::kmeans::cuda {

// Launches the kernel of exact distances on a piece; with `settles`, also the kernel that decides listed rows, and the first one again for
// the blocks that listed rows. Both end at once if no row is open.
template <class T>
void cuda_engine<T>::launch_exact(exact_arguments<T> given) {
  const std::int64_t blocks = (given.given.m + k_row_threads - 1) / k_row_threads;
  launch_given(k_exact_kernel, names::exact, blocks, given);
  if (!given.settles) return;
  launch_given(k_settle_kernel, names::settle, std::int64_t{4} * device_->about().multiprocessors, given);
  given.second = true;
  launch_given(k_exact_kernel, names::exact, blocks, given);
}

// Launches the kernel of exact distances until its two computations agree. Calls before(number) before attempt `number`. `parts`: gets
// exact_arguments::sums, if there are any. Returns whether kernels have logged events: collect() has them.
template <class T>
template <class Before>
bool cuda_engine<T>::compute_exact(exact_arguments<T> given, const char* site, core::vector<double>& parts, Before&& before) {
  given.k = static_cast<int>(k_);
  given.flags = flags();
  given.check = protect_;
  double *const distances = given.distances, *const sums = given.sums;
  T* const passed = given.passed;
  const auto once = [&](int number) {
    before(number);
    each(given.plain != nullptr ? part::both : part::normalized, [&](const point_piece<T>& piece) {
      given.given = piece.given;
      given.normalized = piece.normalized;
      given.labels = iterations().labels() + piece.first;
      given.passed = passed == nullptr ? nullptr : passed + piece.first;
      given.distances = distances == nullptr ? nullptr : distances + piece.first;
      given.sums = sums == nullptr ? nullptr : sums + 2 * (piece.first / k_row_threads);
      if (given.settles && piece.first > 0) device_->zero(given.open.count, sizeof(*given.open.count), call_.order());
      launch_exact(given);
    });
  };
  row_flags seen{};
  ballast::cuda::event_counters logged{};
  const reading results[] = {{parts.data(), sums, static_cast<std::int64_t>(parts.size() * sizeof(double))},
                             {&logged, flags() + k_flags + 1, sizeof logged},
                             {&seen, flags(), sizeof seen}};
  const auto any = [&] { return logged.written != 0 || logged.false_alarms != 0; };
  const auto read_all = [&] {
    device_->copy(flags() + k_flags + 1, call_.events(), sizeof logged, call_.order());
    read(std::span(results, protect_ ? 3 : 2));
  };
  if (!protect_) {
    clear_flags();
    once(0);
    read_all();
    return any();
  }
  run::attempt(what_.seen, what_.how.protection, site, 0, [&](int number) {
    clear_flags();
    once(number);
    read_all();
    what_.seen.checked(at(m_));
    return finding_of(seen);
  });
  return any();
}

template <class T>
summed_twice cuda_engine<T>::inertia_of(const core::vector<double>& parts) const {
  const std::int64_t blocks = std::ssize(parts) / 2;
  summed_twice made;
  for (std::int64_t block = 0; block < blocks; ++block) made.value += parts[at(2 * block)];
  for (std::int64_t block = blocks; block-- > 0;) made.twin += parts[at(2 * block + (protect_ ? 1 : 0))];
  made.depth = static_cast<double>(k_row_threads + blocks + 1);
  made.exponent = -2 * k_lift_exponent<T>;
  return made;
}

template <class T>
summed_twice cuda_engine<T>::label(const sealed_centroids<T>& centroids, const core::vector<T>& plain) {
  if (serves_) return serve(centroids, plain);
  const buffer normalized_centroids = upload(centroids.values()), unshifted = upload(plain);
  const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads;
  // The paper's schemes find labels without storing distances.
  const bool compares = protect_ && !scheme_named(what_.scheme);
  const buffer passed = compares ? allocate(m_ * static_cast<std::int64_t>(sizeof(T))) : buffer();
  exact_arguments<T> given{};
  given.passed = static_cast<T*>(passed.data());
  given.plain = static_cast<const T*>(unshifted.data());
  given.normalized_centroids = static_cast<const T*>(normalized_centroids.data());
  given.sums = reinterpret_cast<double*>(room());
  given.settles = !scheme_named(what_.scheme);  // labels of the paper's schemes are those of their arithmetic
  const buffer open = allocate(k_open_rows * static_cast<std::int64_t>(sizeof(open_row) + 2 * sizeof(chosen_label)) +
                               blocks * static_cast<std::int64_t>(sizeof(open_block)));
  given.open.count = open_count();
  given.open.rows = static_cast<open_row*>(open.data());
  given.open.chosen = reinterpret_cast<chosen_label*>(given.open.rows + k_open_rows);
  given.open.blocks = reinterpret_cast<open_block*>(given.open.chosen + 2 * k_open_rows);
  given.limit = 2 * thresholds::distance(abft::unit_roundoff<T>, n_);  // factor 2: x and c were rounded as well
  // Distances from differences detect smaller faults than the checks of a pass. So after a failure the labels are computed again as well.
  core::vector<double> parts(at(2 * blocks));
  const auto assign = [&](int) { launch_pass(centroids, false, static_cast<T*>(passed.data())); };
  if (compute_exact(given, "kmeans.inertia", parts, assign)) collect();
  if (ranks_) parts = ranks_.all(joined::inertia, parts, centroids.seal());
  return inertia_of(parts);
}

template <class T>
void cuda_engine<T>::launch_keep(bool compare) {
  launch(k_keep_kernel, names::keep, (m_ + k_row_threads - 1) / k_row_threads,
         keep_arguments{iterations().labels(), static_cast<std::int32_t*>(best_labels_[0].data()),
                        static_cast<std::int32_t*>(best_labels_[1].data()), m_, compare, flags()});
}

template <class T>
void cuda_engine<T>::keep_labels() {
  if (best_labels_[0].bytes() == 0)
    for (buffer& each : best_labels_) each = allocate(4 * m_);
  launch_keep(false);
}

template <class T>
bool cuda_engine<T>::kept_labels_fit() {
  if (best_labels_[0].bytes() == 0) return true;
  clear_flags();
  launch_keep(true);
  const bool fit = read_flags().word == abft::k_pass;
  return ranks_ ? ranks_.everywhere(joined::agree, fit) : fit;
}

template <class T>
void cuda_engine<T>::store_labels(std::span<std::int32_t> to, bool kept) {
  if (to.empty() || (kept && best_labels_[0].bytes() == 0)) return;
  download(to.data(), kept ? best_labels_[0].data() : serves_ ? served_labels_.data() : iterations().labels(), 4 * m_);
}

template <class T>
core::vector<far_point> cuda_engine<T>::farthest(const sealed_centroids<T>& centroids, std::int64_t count) {
  const buffer normalized_centroids = upload(centroids.values()), distances = allocate(8 * m_);
  exact_arguments<T> given{};
  given.normalized_centroids = static_cast<const T*>(normalized_centroids.data());
  given.distances = static_cast<double*>(distances.data());
  core::vector<double> parts;
  compute_exact(given, "kmeans.relocation", parts, [](int) {});
  core::vector<double> distance = download<double>(distances, m_);
  core::vector<std::int32_t> own(at(m_));
  store_labels(own, false);
  const core::vector<T>& weights = host_weights();
  core::vector<std::int64_t> order;
  order.reserve(at(m_));
  for (std::int64_t i = 0; i < m_; ++i) {
    if (!(distance[at(i)] >= 0)) distance[at(i)] = -1;  // a NaN, which only an unprotected fault can produce, has no order
    if (!weighted() || weights[at(i)] > 0) order.push_back(i);
  }
  const auto wanted = std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + wanted, order.end(), [&](std::int64_t a, std::int64_t b) {
    return distance[at(a)] != distance[at(b)] ? distance[at(a)] > distance[at(b)] : a < b;
  });
  core::vector<far_point> made;
  for (std::int64_t e = 0; e < wanted; ++e)
    made.push_back({first_ + order[at(e)], own[at(order[at(e)])], weight_of(order[at(e)]), distance[at(order[at(e)])]});
  if (!ranks_) return made;
  made = ranks_.all(joined::farthest, made, centroids.seal());
  std::ranges::sort(
      made, [](const far_point& a, const far_point& b) { return a.distance != b.distance ? a.distance > b.distance : a.row < b.row; });
  made.resize(std::min(made.size(), at(count)));
  return made;
}

// Copies `count` rows of k distances to rows `first` and later of `values`.
template <class T>
void cuda_engine<T>::store_rows(const buffer& from, std::int64_t first, std::int64_t count, const matrix_view<T>& values) const {
  const auto size = static_cast<std::int64_t>(sizeof(T));
  const matrix_view<T> to = values.block(first, 0, count, k_);
  if (to.column_stride == 1 && to.row_stride >= k_) {
    device_->copy_columns(to.data, to.row_stride * size, from.data(), k_ * size, k_ * size, count, call_.order());
    call_.wait();
    return;
  }
  core::vector<T> dense(at(count * k_));
  download(dense.data(), from.data(), count * k_ * size);
  run::host_staging staging(call_.order());
  const matrix_view<T> here = staging.write(to);
  for (std::int64_t e = 0; e < count * k_; ++e) here(e / k_, e % k_) = dense[at(e)];
  staging.commit();
}

// Overwrites rows on the device, whose distances could not be computed right, with NaN.
template <class T>
void cuda_engine<T>::spoil_rows(const matrix_view<T>& values) const {
  constexpr std::int64_t bytes = std::int64_t{1} << 20;
  const auto size = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t most = std::max<std::int64_t>(1, bytes / (k_ * size));
  const buffer none = upload(core::vector<T>(at(std::min(values.rows, most) * k_), std::numeric_limits<T>::quiet_NaN()));
  for (std::int64_t first = 0; first < values.rows; first += most)
    device_->copy_columns(&values(first, 0), values.row_stride * size, none.data(), k_ * size, k_ * size,
                          std::min(most, values.rows - first), call_.order());
  call_.wait();
}

template <class T>
void cuda_engine<T>::distances(const sealed_centroids<T>& centroids, const core::vector<T>& plain, matrix_view<const T> outer,
                               const matrix_view<T>& values) {
  const auto size = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t height = distance_tile<T>::k_rows;
  // Rows that this device's kernels can reach are stored where they belong; others by chunks, which are copied.
  const bool there = values.column_stride == 1 && values.row_stride >= k_ && device_->accessible(values.data);
  std::int64_t chunk_bytes = std::int64_t{1} << 28;
  // The driver takes long to find the free memory.
  if (!there && m_ > (std::int64_t{1} << 24) / (k_ * size)) chunk_bytes = std::min(chunk_bytes, device_->available_memory() / 4);
  group all;
  make_group(centroids.values().data(), k_, all);
  core::vector<std::int32_t> far;  // centroids that were moved nearer
  for (std::int64_t j = 0; j < k_; ++j) {
    const auto moved = [](T c) { return std::abs(c) >= k_far<T>; };
    if (std::any_of(centroids.values().begin() + j * n_, centroids.values().begin() + (j + 1) * n_, moved))
      far.push_back(static_cast<std::int32_t>(j));
  }
  core::vector<T> units(far.empty() ? 0 : at(k_ * n_));
  for (std::size_t e = 0; e < units.size(); ++e) units[e] = outer(static_cast<std::int64_t>(e) / n_, static_cast<std::int64_t>(e) % n_);
  const buffer unshifted = upload(plain), as_given = upload(units), far_columns = upload(far);
  const std::int64_t in_chunk = there ? m_ : std::max<std::int64_t>(1, chunk_bytes / (k_ * size * height)) * height;
  const std::int64_t rows = std::min((m_ + height - 1) / height * height, in_chunk);
  const buffer made = there ? buffer() : allocate(core::checked_product(rows, k_) * size);
  const std::int64_t sections = (k_ + k_section - 1) / k_section;
  each(part::both, [&](const point_piece<T>& piece) {
    for (std::int64_t first = 0; first < piece.normalized.m && !stop(); first += rows) {
      const std::int64_t count = std::min(rows, piece.normalized.m - first);
      T* const to = there ? values.data + (piece.first + first) * values.row_stride : static_cast<T*>(made.data());
      const std::int64_t stride = there ? values.row_stride : k_;
      const distances_arguments<T> given{piece.normalized,
                                         all.view,
                                         first,
                                         count,
                                         to,
                                         stride,
                                         1 / static_cast<double>(normalization_.values().scale),
                                         flags(),
                                         protect_,
                                         piece.given,
                                         static_cast<const T*>(unshifted.data()),
                                         {points_.given.shift, static_cast<const T*>(points_.shift_again.data())}};
      far_arguments<T> beyond{piece.given,
                              static_cast<const T*>(as_given.data()),
                              static_cast<const std::int32_t*>(far_columns.data()),
                              static_cast<int>(far.size()),
                              to,
                              stride,
                              first,
                              count,
                              false,
                              flags()};
      const auto once = [&] {
        launch_given(
            serves_ ? k_given_distances_kernel : k_distances_kernel,
            [&](bool half, bool instrumented) { return names::distances(half, serves_, instrumented); },
            (count + height - 1) / height * sections, given);
        for (const bool compare : {false, true}) {
          beyond.compare = compare;
          if (beyond.count > 0 && (protect_ || !compare))
            launch_given(k_far_kernel, names::far, (count * beyond.count + k_row_threads - 1) / k_row_threads, beyond);
        }
      };
      if (!protect_) {
        once();
      } else {
        const abft::outcome how = run::attempt(what_.seen, what_.how.protection, "kmeans.distance", 0, [&](int number) {
          if (serves_ && number > 0) send_shift();
          clear_flags();
          once();
          what_.seen.checked(at(count * sections + count * k_));
          return read_flags();
        });
        if (there && how == abft::outcome::uncorrectable && what_.how.throw_on_uncorrectable)
          spoil_rows(values.block(piece.first + first, 0, count, k_));
      }
      if (there) {
        if (!protect_) call_.wait();  // with protection the flags have been read
      } else if (!stop()) {
        store_rows(made, piece.first + first, count, values);
      }
    }
  });
}

template summed_twice cuda_engine<float>::inertia_of(const core::vector<double>&) const;
template summed_twice cuda_engine<float>::label(const sealed_centroids<float>&, const core::vector<float>&);
template void cuda_engine<float>::launch_keep(bool);
template void cuda_engine<float>::keep_labels();
template bool cuda_engine<float>::kept_labels_fit();
template void cuda_engine<float>::store_labels(std::span<std::int32_t>, bool);
template core::vector<far_point> cuda_engine<float>::farthest(const sealed_centroids<float>&, std::int64_t);
template void cuda_engine<float>::distances(const sealed_centroids<float>&, const core::vector<float>&, matrix_view<const float>,
                                            const matrix_view<float>&);
template summed_twice cuda_engine<double>::inertia_of(const core::vector<double>&) const;
template summed_twice cuda_engine<double>::label(const sealed_centroids<double>&, const core::vector<double>&);
template void cuda_engine<double>::launch_keep(bool);
template void cuda_engine<double>::keep_labels();
template bool cuda_engine<double>::kept_labels_fit();
template void cuda_engine<double>::store_labels(std::span<std::int32_t>, bool);
template core::vector<far_point> cuda_engine<double>::farthest(const sealed_centroids<double>&, std::int64_t);
template void cuda_engine<double>::distances(const sealed_centroids<double>&, const core::vector<double>&, matrix_view<const double>,
                                             const matrix_view<double>&);

}  // namespace ballast::kmeans::cuda
