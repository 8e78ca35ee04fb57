// Small fits on a device: one launch for all, a block for each, or two that must agree.
// Layer: backend "cuda" of K-Means. See kmeans/batch.hpp; the kernel is in batch.cuh.
#include "kmeans/batch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "abft/attempt.hpp"
#include "core/at.hpp"
#include "core/extent.hpp"
#include "core/parallel.hpp"
#include "cuda/call/faults.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/batch/batch.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

using core::at;

constexpr std::int64_t k_most_work = std::int64_t{1} << 24;  // m·n·k: beyond, an iteration is long enough for kernels of its own

template <class T>
class device_fits {
 public:
  device_fits(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how, run::recorder& seen,
              inject::active_injector& injector)
      : device_(ballast::cuda::current_device()),
        how_(how),
        seen_(seen),
        injector_(injector),
        staging_(device_, how.stream),
        faults_(device_, injector, how.stream),
        repeats_(run::repeats_of(how.protection)) {
    seen.runs_on(device_->about().name);
    const auto [first, elements] = core::extent_of(points);
    given_.points = static_cast<const T*>(staging_.read(first, bytes_of<T>(elements))) + (points.data - first);
    given_.stride = points.stride;
    given_.row_stride = points.row_stride;
    given_.column_stride = points.column_stride;
    if (!wanted.weights.empty())
      given_.weights = static_cast<const T*>(staging_.read(wanted.weights.data(), static_cast<std::int64_t>(wanted.weights.size_bytes())));
    given_.m = static_cast<int>(points.rows);
    given_.n = static_cast<int>(points.columns);
    given_.k = static_cast<int>(wanted.clusters);
    given_.trials = trials_of(wanted.clusters);
    given_.chunks = kernel_names<T>::batch_chunks(given_.n, given_.k, device_->about());
    given_.replicas = protects() ? 2 : 1;
    given_.items = points.count * given_.replicas;
    given_.init = wanted.init == init::given ? batch_init::given : wanted.init == init::random ? batch_init::random : batch_init::plus_plus;
    given_.runs = wanted.init == init::given ? 1 : wanted.n_init;
    given_.max_iter = wanted.max_iter;
    given_.tol = wanted.tol;
    given_.seed = wanted.seed;
    if (wanted.init == init::given) {
      std::vector<T> dense(at(points.count * wanted.clusters * points.columns));
      for (std::size_t e = 0; e < dense.size(); ++e)
        dense[e] = wanted.centroids(static_cast<std::int64_t>(e) / points.columns, static_cast<std::int64_t>(e) % points.columns);
      centroids_ = upload(dense);
      given_.centroids = static_cast<const T*>(centroids_.data());
    }
  }

  // Fits first … first + count − 1 of the call, in their places.
  void run(std::int64_t first, std::int64_t count, batch_model<T>& made, std::vector<std::int64_t>& refused) {
    std::vector<std::int32_t> open(at(count));
    for (std::int64_t i = 0; i < count; ++i) open[at(i)] = static_cast<std::int32_t>(first + i);
    std::vector<abft::attempts> state(at(count), abft::attempts(repeats_));
    while (!open.empty()) {
      compute(open);
      std::vector<abft::finding> found(open.size());
      core::parallel_for(core::thread_count(how_.threads), static_cast<std::int64_t>(open.size()),
                         [&](std::int64_t i, int) { found[at(i)] = take(i, open[at(i)], made); });
      std::vector<std::int32_t> failed;
      for (std::size_t i = 0; i < open.size(); ++i) {
        const std::int64_t fit = open[i];
        if (protects()) {
          injector_.strike(inject::site::kmeans_comparison, {fit, made.count, 0, 1}, &found[i].word, 1);
          seen_.checked(1);
          const abft::outcome how = state[at(fit - first)].judge(found[i]);
          if (how == abft::outcome::open) {
            failed.push_back(static_cast<std::int32_t>(fit));
            continue;
          }
          seen_.settled("kmeans.fit", how, state[at(fit - first)], 0);
        }
        if (results_[i * at(given_.replicas)].status != 0) refused.push_back(fit);
      }
      open = std::move(failed);
    }
  }

  // Fits for which there is memory at a time.
  std::int64_t portion(std::int64_t count) const {
    const std::int64_t each = given_.replicas * (scratch().bytes + static_cast<std::int64_t>(sizeof(batch_result))) +
                              bytes_of<T>(std::int64_t{given_.k} * given_.n) + 4 * std::int64_t{given_.m};
    return std::clamp<std::int64_t>(device_->available_memory() / 2 / each, 1, std::min<std::int64_t>(count, std::int64_t{1} << 20));
  }

 private:
  using buffer = ballast::cuda::device_buffer;

  template <class Value>
  static std::int64_t bytes_of(std::int64_t elements) {
    return elements * static_cast<std::int64_t>(sizeof(Value));
  }
  bool protects() const { return how_.protection != protection::off; }
  batch_scratch scratch() const { return batch_scratch_of<T>(given_.m, given_.n, given_.k); }

  template <class Value>
  buffer upload(const std::vector<Value>& values) const {
    buffer made(device_, bytes_of<Value>(static_cast<std::int64_t>(values.size())), how_.stream);
    device_->copy(made.data(), values.data(), made.bytes(), how_.stream);
    return made;
  }

  // These fits on the device; what they come to, to the host.
  void compute(const std::vector<std::int32_t>& fits) {
    const auto count = static_cast<std::int64_t>(fits.size());
    const std::int64_t blocks = count * given_.replicas, elements = count * given_.k * given_.n;
    const buffer list = upload(fits), memory(device_, blocks * scratch().bytes, how_.stream);
    const buffer made(device_, bytes_of<T>(elements), how_.stream), labels(device_, 4 * count * given_.m, how_.stream);
    const buffer results(device_, bytes_of<batch_result>(blocks), how_.stream);
    batch_arguments<T> given = given_;
    given.fits = static_cast<const std::int32_t*>(list.data());
    given.scratch = static_cast<unsigned char*>(memory.data());
    given.made = static_cast<T*>(made.data());
    given.labels = static_cast<std::uint32_t*>(labels.data());
    given.results = static_cast<batch_result*>(results.data());
    const ballast::cuda::kernel& kernel = device_->load(kernel_names<T>::batch(given_.n, given_.k, device_->about(), faults_.armed()));
    ballast::cuda::launch(*device_, kernel, blocks, given, faults_, how_.stream);
    centroids_made_.resize(at(elements));
    labels_made_.resize(at(count * given_.m));
    results_.resize(at(blocks));
    device_->copy(centroids_made_.data(), made.data(), made.bytes(), how_.stream);
    device_->copy(labels_made_.data(), labels.data(), labels.bytes(), how_.stream);
    device_->copy(results_.data(), results.data(), results.bytes(), how_.stream);
    device_->synchronize(how_.stream);
  }

  // Fit number i of the launch to its place among all; whether the second block has the same result. What is hashed is what was stored.
  abft::finding take(std::int64_t i, std::int64_t fit, batch_model<T>& to) const {
    const std::int64_t m = given_.m, size = std::int64_t{given_.k} * given_.n;
    const batch_result& own = results_[at(i * given_.replicas)];
    T* const centroids = to.centroids.data() + fit * size;
    std::int32_t* const labels = to.labels.data() + fit * m;
    std::copy_n(centroids_made_.data() + i * size, size, centroids);
    std::copy_n(labels_made_.data() + i * m, m, labels);
    to.inertia[at(fit)] = own.inertia;
    to.iterations[at(fit)] = own.iterations;
    to.ended[at(fit)] = static_cast<ending>(own.ended);
    if (!protects()) return {};
    using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    std::uint64_t hash = 0;
    if (own.status == 0) {
      for (std::int64_t e = 0; e < size; ++e) hash += batch_term(std::bit_cast<word>(centroids[e]), e);
      for (std::int64_t e = 0; e < m; ++e) hash += batch_term(static_cast<std::uint32_t>(labels[e]), size + e);
    }
    hash += batch_scalars(std::bit_cast<std::uint64_t>(to.inertia[at(fit)]), to.iterations[at(fit)],
                          static_cast<std::int32_t>(to.ended[at(fit)]), own.status, size + m);
    abft::finding found;
    found.word = hash == results_[at(i * given_.replicas + 1)].hash ? abft::k_pass : abft::k_fail;
    found.residual = found.word == abft::k_pass ? 0 : std::numeric_limits<double>::quiet_NaN();
    found.bits = hash | 1;
    found.index = fit;
    return found;
  }

  const std::shared_ptr<ballast::cuda::device> device_;
  const run::settings& how_;
  run::recorder& seen_;
  inject::active_injector& injector_;
  ballast::cuda::device_staging staging_;
  const ballast::cuda::fault_list faults_;
  const int repeats_;
  batch_arguments<T> given_{};
  buffer centroids_;
  std::vector<T> centroids_made_;
  std::vector<std::int32_t> labels_made_;
  std::vector<batch_result> results_;
};

}  // namespace

template <class T>
bool takes_batch(std::int64_t m, std::int64_t n, std::int64_t k, init first) {
  if (first == init::kmeans_parallel || m > k_most_work || n > k_most_work || k > k_most_work || m * n > k_most_work ||
      m * n * k > k_most_work || trials_of(k) > k_batch_trials)
    return false;
  return kernel_names<T>::batch_chunks(n, k, ballast::cuda::current_device()->about()) > 0;
}

template <class T>
batch_model<T> fit_batch(const matrix_batch_view<const T>& points, const options<T>& wanted, const run::settings& how, run::recorder& seen,
                         inject::active_injector& injector, std::vector<std::int64_t>& refused) {
  batch_model<T> made = empty_models<T>(points.count, points.rows, points.columns, wanted.clusters);
  device_fits<T> fits(points, wanted, how, seen, injector);
  const std::int64_t portion = fits.portion(points.count);
  for (std::int64_t first = 0; first < points.count; first += portion)
    fits.run(first, std::min(portion, points.count - first), made, refused);
  return made;
}

template bool takes_batch<float>(std::int64_t, std::int64_t, std::int64_t, init);
template bool takes_batch<double>(std::int64_t, std::int64_t, std::int64_t, init);
template batch_model<float> fit_batch(const matrix_batch_view<const float>&, const options<float>&, const run::settings&, run::recorder&,
                                      inject::active_injector&, std::vector<std::int64_t>&);
template batch_model<double> fit_batch(const matrix_batch_view<const double>&, const options<double>&, const run::settings&, run::recorder&,
                                       inject::active_injector&, std::vector<std::int64_t>&);

}  // namespace ballast::kmeans::cuda
