// Small fits on a device: a block for each, or two that must agree. Verified by the host, with a launch for all that are open; or enqueued,
// and verified on the device.
// Layer: backend "cuda" of K-Means. See kmeans/batch.hpp; the kernel is in batch/batch.cuh.
#include "kmeans/batch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "abft/attempt.hpp"
#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "core/format.hpp"
#include "core/parallel.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/batch/batch.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/engine/plan_state.hpp"
#include "kmeans/sites.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

using core::at;

constexpr std::int64_t k_most_work = std::int64_t{1} << 24;  // m·n·k: beyond, an iteration is long enough for kernels of its own

template <class Value>
constexpr std::int64_t bytes_of(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(Value));
}

bool protects(const run::settings& how) { return how.protection != protection::off; }

// The arguments of a launch, except the memory of its results.
template <class T>
batch_arguments<T> arguments_of(const batch_args<T>& what, ballast::cuda::device_staging& staging,
                                const ballast::cuda::capabilities& about) {
  batch_arguments<T> made{};
  made.points = staging.read(what.points).data;
  made.stride = what.points.stride;
  made.row_stride = what.points.row_stride;
  made.column_stride = what.points.column_stride;
  if (!what.weights.empty())
    made.weights = static_cast<const T*>(staging.read(what.weights.data(), static_cast<std::int64_t>(what.weights.size_bytes())));
  made.m = static_cast<int>(what.points.rows);
  made.n = static_cast<int>(what.points.columns);
  made.k = static_cast<int>(what.clusters);
  made.trials = trials_of(what.clusters);
  made.chunks = kernel_names<T>::batch_chunks(made.n, made.k, about);
  made.replicas = protects(what.how) ? 2 : 1;
  made.items = what.points.count * made.replicas;
  const bool given = what.wanted.init == init::given;
  made.init = given ? batch_init::given : what.wanted.init == init::random ? batch_init::random : batch_init::plus_plus;
  made.runs = given ? 1 : what.wanted.n_init;
  made.max_iter = what.wanted.max_iter;
  made.tol = what.wanted.tol;
  made.seed = what.wanted.seed;
  if (given) {
    const matrix_view<const T>& c = what.centroids;
    made.centroids = staging.read(c).data;
    made.centroid_stride = c.row_stride;
    made.centroid_column_stride = c.column_stride;
  }
  return made;
}

template <class T>
const ballast::cuda::kernel& kernel_of(device_state& kept, const batch_arguments<T>& given, bool armed, bool enqueued) {
  return kept.load(k_batch_kernel + (enqueued ? 1 : 0), armed,
                   [&](bool instrumented) { return kernel_names<T>::batch(given.n, given.k, kept.on()->about(), instrumented, enqueued); });
}

// The device memory of `count` fits beside the event ring, in bytes from its start. The tickets come first.
struct fits_layout {
  std::int64_t list, results, made, labels, scratch, bytes;  // list: of fits; of enqueued fits batch_arguments::open
};

template <class T>
fits_layout layout_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, std::int64_t replicas) {
  const auto aligned = [](std::int64_t a, std::int64_t b) { return core::checked_product((core::checked_product(a, b) + 255) / 256, 256); };
  const batch_scratch each = batch_scratch_of<T>(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k));
  fits_layout made{};
  made.list = aligned(count, 4);
  made.results = made.list + aligned(count, 4);
  made.made = made.results + aligned(count * replicas, bytes_of<batch_result>(1));
  made.labels = made.made + aligned(count, bytes_of<T>(k * n));
  made.scratch = made.labels + aligned(count, 4 * m);
  made.bytes = made.scratch + aligned(count * replicas, each.bytes);
  return made;
}

// Sets the memory of a launch; fresh memory gets tickets of 0.
template <class T>
fits_layout lay_out(batch_arguments<T>& given, const ballast::cuda::device_call& work, ballast::cuda::device& on, std::int64_t count) {
  const fits_layout at = layout_of<T>(given.m, given.n, given.k, count, given.replicas);
  unsigned char* const memory = work.memory();
  given.tickets = reinterpret_cast<std::uint32_t*>(memory);
  given.results = reinterpret_cast<batch_result*>(memory + at.results);
  given.made = reinterpret_cast<T*>(memory + at.made);
  given.labels = reinterpret_cast<std::uint32_t*>(memory + at.labels);
  given.scratch = memory + at.scratch;
  if (work.fresh()) on.zero(given.tickets, at.list, work.order());
  return at;
}

// ---------------------------------------------------------------- Verified by the host.

template <class T>
class device_fits {
 public:
  explicit device_fits(const batch_args<T>& what)
      : what_(what),
        kept_(static_cast<device_state&>(what.kept)),
        device_(kept_.on()),
        staging_(device_, what.how.stream),
        repeats_(run::repeats_of(what.how.protection)),
        given_(arguments_of(what, staging_, device_->about())),
        portion_(portion_of(what.points.count)),
        work_(device_, take(what.how.workspace), what.injector, what.how.stream) {
    what.seen.runs_on(device_->about().name);
    at_ = lay_out(given_, work_, *device_, portion_);
  }

  // Computes fits first … first + count − 1 of the call.
  void run(std::int64_t first, std::int64_t count, batch_fits<T>& made, core::vector<std::int64_t>& refused) {
    core::vector<std::int32_t> open(at(count)), failed;
    for (std::int64_t i = 0; i < count; ++i) open[at(i)] = static_cast<std::int32_t>(first + i);
    core::vector<abft::attempts> state(at(count), abft::attempts(repeats_));
    core::vector<abft::finding> found;
    while (!open.empty()) {
      compute(open);
      found.assign(open.size(), {});
      core::parallel_for(core::thread_count(what_.how.threads), static_cast<std::int64_t>(open.size()),
                         [&](std::int64_t i, int) { found[at(i)] = take(i, open[at(i)], made); });
      failed.clear();
      for (std::size_t i = 0; i < open.size(); ++i) {
        const std::int64_t fit = open[i];
        if (protects(what_.how)) {
          what_.injector.strike(site::comparison, {fit, what_.points.count, 0, 1}, &found[i].word, 1);
          what_.seen.checked(1);
          const abft::outcome how = state[at(fit - first)].judge(found[i]);
          if (how == abft::outcome::open) {
            failed.push_back(static_cast<std::int32_t>(fit));
            continue;
          }
          what_.seen.settled("kmeans.fit", how, state[at(fit - first)], 0);
        }
        if (results_[i * at(given_.replicas)].status != 0) refused.push_back(fit);
      }
      open.swap(failed);
    }
  }

  // Returns the number of fits that one launch computes.
  std::int64_t portion() const { return portion_; }

 private:
  // All fits if the workspace of the plan serves them; else as many as half of the free memory holds.
  std::int64_t portion_of(std::int64_t count) const {
    const std::int64_t all = layout_of<T>(given_.m, given_.n, given_.k, count, given_.replicas).bytes;
    const std::int64_t available = device_->available_memory() / 2;
    if (ballast::cuda::k_ring_bytes + all <= kept_.fits().bytes() && (!what_.how.workspace.empty() || all <= available)) return count;
    const std::int64_t one = layout_of<T>(given_.m, given_.n, given_.k, 1, given_.replicas).bytes;
    return std::clamp<std::int64_t>(available / one, 1, std::min<std::int64_t>(count, std::int64_t{1} << 20));
  }
  ballast::cuda::workspace take(std::span<std::byte> given) const {
    const std::int64_t bytes = ballast::cuda::k_ring_bytes + layout_of<T>(given_.m, given_.n, given_.k, portion_, given_.replicas).bytes;
    if (portion_ == what_.points.count && bytes <= kept_.fits().bytes()) return kept_.fits().take(given, what_.how.stream);
    return ballast::cuda::workspace_pool(device_, bytes).take({}, what_.how.stream);
  }

  // Computes these fits on the device, and copies their results to the host.
  void compute(const core::vector<std::int32_t>& fits) {
    const auto count = static_cast<std::int64_t>(fits.size());
    const ballast::cuda::stream order = what_.how.stream;
    const std::int64_t blocks = count * given_.replicas, elements = count * given_.k * given_.n;
    auto* const list = reinterpret_cast<std::int32_t*>(work_.memory() + at_.list);
    device_->copy(list, fits.data(), bytes_of<std::int32_t>(count), order);
    batch_arguments<T> given = given_;
    given.fits = list;
    work_.launch(kernel_of(kept_, given, work_.instrumented(), false), blocks, given);
    centroids_made_.resize(at(elements));
    labels_made_.resize(at(count * given_.m));
    results_.resize(at(blocks));
    device_->copy(centroids_made_.data(), given.made, bytes_of<T>(elements), order);
    device_->copy(labels_made_.data(), given.labels, bytes_of<std::int32_t>(count * given_.m), order);
    device_->copy(results_.data(), given.results, bytes_of<batch_result>(blocks), order);
    device_->synchronize(order);
  }

  // Copies fit number i of the launch to its position among all, and returns whether the second block has the same result. The hash is that
  // of the copy.
  abft::finding take(std::int64_t i, std::int64_t fit, batch_fits<T>& to) const {
    const std::int64_t m = given_.m, size = std::int64_t{given_.k} * given_.n;
    const batch_result& own = results_[at(i * given_.replicas)];
    T* const centroids = to.centroids.data() + fit * size;
    std::int32_t* const labels = to.labels.data() + fit * m;
    std::copy_n(centroids_made_.data() + i * size, size, centroids);
    std::copy_n(labels_made_.data() + i * m, m, labels);
    to.inertia[at(fit)] = own.inertia;
    to.iterations[at(fit)] = own.iterations;
    to.stopped[at(fit)] = static_cast<stop_reason>(own.stopped);
    if (!protects(what_.how)) return {};
    using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    std::uint64_t hash = 0;
    if (own.status == 0) {
      for (std::int64_t e = 0; e < size; ++e) hash += batch_term(std::bit_cast<word>(centroids[e]), e);
      for (std::int64_t e = 0; e < m; ++e) hash += batch_term(static_cast<std::uint32_t>(labels[e]), size + e);
    }
    hash += batch_scalars(std::bit_cast<std::uint64_t>(to.inertia[at(fit)]), to.iterations[at(fit)],
                          static_cast<std::int32_t>(to.stopped[at(fit)]), own.status, size + m);
    abft::finding found;
    found.word = hash == results_[at(i * given_.replicas + 1)].hash ? abft::k_pass : abft::k_fail;
    found.residual = found.word == abft::k_pass ? 0 : std::numeric_limits<double>::quiet_NaN();
    found.bits = hash | 1;
    found.index = fit;
    return found;
  }

  const batch_args<T>& what_;
  device_state& kept_;
  const std::shared_ptr<ballast::cuda::device> device_;
  ballast::cuda::device_staging staging_;
  const int repeats_;
  batch_arguments<T> given_;
  const std::int64_t portion_;
  const ballast::cuda::device_call work_;
  fits_layout at_{};
  core::vector<T> centroids_made_;
  core::vector<std::int32_t> labels_made_;
  core::vector<batch_result> results_;
};

// ---------------------------------------------------------------- Enqueued.

template <class T>
class enqueued_fits final : public run::pending {
 public:
  enqueued_fits(const batch_args<T>& what, const batch_results<T>& to)
      : kept_(static_cast<device_state&>(what.kept)),
        device_(kept_.on()),
        count_(what.points.count),
        protects_(protects(what.how)),
        token_(what.token),
        to_(to),
        work_(device_, kept_.fits().take(what.how.workspace, what.how.stream), what.injector, what.how.stream) {
    ballast::cuda::device_staging none(device_, what.how.stream);  // copies nothing: all operands are in device memory
    batch_arguments<T> given = arguments_of(what, none, device_->about());
    const fits_layout at = lay_out(given, work_, *device_, count_);
    given.open = reinterpret_cast<std::uint32_t*>(work_.memory() + at.list);
    results_ = given.results;
    read_.resize(core::at(count_ * given.replicas));
    given.to = {to.centroids.data, to.centroids.row_stride, to.centroids.column_stride, to.labels.empty() ? nullptr : to.labels.data()};
    given.events = work_.events();
    given.repeats = run::repeats_of(what.how.protection);
    const ballast::cuda::kernel& kernel = kernel_of(kept_, given, work_.instrumented(), true);
    for (given.number = 0; given.number <= given.repeats; ++given.number) work_.launch(kernel, count_ * given.replicas, given);
  }

  void collect(run::recorder& seen) override {
    seen.runs_on(device_->about().name);
    seen.add(work_.collect([](const ballast::cuda::device_event& from, ballast::cuda::event_log::entry& made) {
      made.site = "kmeans.fit";
      made.index = from.index;
    }));
    const std::int64_t replicas = protects_ ? 2 : 1;
    device_->copy(read_.data(), results_, bytes_of<batch_result>(count_ * replicas), work_.order());
    work_.wait();
    std::int64_t refused = -1;
    for (std::int64_t fit = 0; fit < count_; ++fit) {
      const batch_result& own = read_[at(fit * replicas)];
      if (protects_) {
        seen.checked(2);
        const auto bytes = [](const batch_result& each) { return std::as_bytes(std::span(&each, 1)); };
        if (!std::ranges::equal(bytes(own), bytes(read_[at(fit * replicas + 1)]))) {
          seen.detected("kmeans.fit", fit, std::numeric_limits<double>::quiet_NaN(), 0, action::uncorrectable, 0);
          continue;
        }
      }
      if (own.status == 1 && refused < 0) refused = fit;
      if (own.status != 0) continue;
      if (!to_.inertia.empty()) to_.inertia[at(fit)] = own.inertia;
      if (!to_.iterations.empty()) to_.iterations[at(fit)] = own.iterations;
      if (!to_.stopped.empty()) to_.stopped[at(fit)] = static_cast<stop_reason>(own.stopped);
    }
    if (refused >= 0 && !seen.uncorrectable())
      throw invalid_argument_error(
          fmt::format("{}: fit {}: expected finite points and centroids, and finite weights ≥ 0, at least one of them above 0, got others",
                      token_.view(), refused));
  }

 private:
  device_state& kept_;
  const std::shared_ptr<ballast::cuda::device> device_;
  const std::int64_t count_;
  const bool protects_;
  const shared_text token_;
  const batch_results<T> to_;
  const ballast::cuda::device_call work_;
  batch_result* results_ = nullptr;
  core::vector<batch_result> read_;  // their copy on the host
};

}  // namespace

std::shared_ptr<plan_state> make_plan_state(std::int64_t enqueued) {
  return std::make_shared<device_state>(ballast::cuda::current_device(), enqueued);
}

template <class T>
bool takes_batch(std::int64_t m, std::int64_t n, std::int64_t k, init first) {
  if (first == init::kmeans_parallel || m > k_most_work || n > k_most_work || k > k_most_work || m * n > k_most_work ||
      m * n * k > k_most_work || trials_of(k) > k_batch_trials)
    return false;
  return kernel_names<T>::batch_chunks(n, k, ballast::cuda::current_device()->about()) > 0;
}

template <class T>
void fit_batch(const batch_args<T>& what, batch_fits<T>& made, core::vector<std::int64_t>& refused) {
  const std::int64_t count = what.points.count, m = what.points.rows, n = what.points.columns;
  made.centroids.resize(at(core::checked_product(core::checked_product(count, what.clusters), n)));
  made.labels.resize(at(core::checked_product(count, m)));
  made.inertia.resize(at(count));
  made.iterations.resize(at(count));
  made.stopped.resize(at(count));
  device_fits<T> fits(what);
  for (std::int64_t first = 0; first < count; first += fits.portion())
    fits.run(first, std::min(fits.portion(), count - first), made, refused);
}

template <class T>
std::unique_ptr<run::pending> enqueue_batch(const batch_args<T>& what, const batch_results<T>& to) {
  return std::make_unique<enqueued_fits<T>>(what, to);
}

template <class T>
std::int64_t enqueued_bytes(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, bool protect) {
  return layout_of<T>(m, n, k, count, protect ? 2 : 1).bytes;
}

template bool takes_batch<float>(std::int64_t, std::int64_t, std::int64_t, init);
template bool takes_batch<double>(std::int64_t, std::int64_t, std::int64_t, init);
template void fit_batch(const batch_args<float>&, batch_fits<float>&, core::vector<std::int64_t>&);
template void fit_batch(const batch_args<double>&, batch_fits<double>&, core::vector<std::int64_t>&);
template std::unique_ptr<run::pending> enqueue_batch(const batch_args<float>&, const batch_results<float>&);
template std::unique_ptr<run::pending> enqueue_batch(const batch_args<double>&, const batch_results<double>&);
template std::int64_t enqueued_bytes<float>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool);
template std::int64_t enqueued_bytes<double>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool);

}  // namespace ballast::kmeans::cuda
