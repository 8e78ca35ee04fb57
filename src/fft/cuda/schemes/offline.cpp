// cuFFT between two passes of checksums. A signal that fails is transformed again when the report is read, since only the host can call
// cuFFT.
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include <ballast/error.hpp>

#include "abft/verify.hpp"
#include "abft/weights.hpp"
#include "core/memory.hpp"
#include "cuda/call/faults.hpp"
#include "cuda/device/cufft.hpp"
#include "cuda/jit/expression.hpp"
#include "cuda/memory/shared_state.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/cuda/schemes/offline.hpp"
#include "fft/problem.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/thresholds.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::cufft_plan;
using ballast::cuda::fault_list;
using ballast::cuda::why_no_cufft;

class by_cufft final : public dense_transform {
 public:
  by_cufft(const problem& shape, direction way) : plan_(shape, way, false) {}
  void execute(const void* in, void* out, ballast::cuda::stream on) override { plan_.execute(in, out, on); }

 private:
  cufft_plan plan_;
};

dense_transform_maker& maker() {
  static dense_transform_maker made;
  return made;
}

std::unique_ptr<dense_transform> make_dense(const problem& shape, direction way) {
  if (maker()) return maker()(shape, way);
  return std::make_unique<by_cufft>(shape, way);
}

template <class T>
class offline_transform final : public device_transform {
 public:
  offline_transform(std::shared_ptr<ballast::cuda::device> on, const nested_geometry& nest, bool protect)
      : device_transform(std::move(on), nest.input, nest.output, nest.output_elements(), precision_of<T>),
        shape_(nest.inner),
        protect_(protect),
        workspaces_(device_, sums_bytes() + bytes_of(input_)) {
    const geometry& shape = shape_;
    const std::string why = maker() ? "" : why_no_cufft();
    if (!why.empty()) throw unsupported_error("scheme offline: " + why);
    problem_.kind = shape.kind;
    problem_.precision = precision_of<T>;
    for (const std::int64_t n : shape.n) {
      if (n != 1 || !problem_.shape.empty()) problem_.shape.push_back(n);
    }
    if (problem_.shape.empty()) problem_.shape.push_back(1);
    problem_.batch = shape.batch;
    const geometry dense = resolve(problem_);
    if (shape.kind != kind::c2c || dense.input != shape.input || dense.output != shape.output || nest.runs() != 1)
      throw unsupported_error("scheme offline: expected a c2c transform of contiguous signals");
  }

  std::int64_t workspace_bytes() const override { return workspaces_.bytes(); }

 private:
  class flight;
  friend class flight;

  std::int64_t sums_bytes() const { return (shape_.batch * static_cast<std::int64_t>(sizeof(offline_sums)) + 255) / 256 * 256; }
  std::int64_t parts() const { return (shape_.points() + k_offline_part - 1) / k_offline_part; }
  std::int64_t signal_bytes() const { return shape_.points() * 2 * static_cast<std::int64_t>(sizeof(T)); }

  // Returns the weights of an axis for the output; `transformed`: those for the input.
  std::vector<double> weights(std::size_t axis, bool transformed, direction way) const {
    std::vector<std::complex<double>> a[2];
    for (std::int64_t i = 0; i < shape_.n[axis]; ++i) {
      const abft::phase drawn = abft::random_phase(k_weight_seed, 2 * axis, static_cast<std::uint64_t>(i));
      const std::complex<double> w(drawn.re, drawn.im);
      a[0].push_back(w);
      a[1].push_back(std::popcount(static_cast<std::uint64_t>(i)) % 2 != 0 ? -w : w);
    }
    for (auto& each : a) {
      if (!transformed) continue;
      const bool back = way == direction::inverse;
      if (back) std::ranges::transform(each, each.begin(), [](const auto& z) { return std::conj(z); });
      each = dft(std::move(each));
      if (back) std::ranges::transform(each, each.begin(), [](const auto& z) { return std::conj(z); });
    }
    std::vector<double> table;
    for (std::size_t i = 0; i < a[0].size(); ++i)
      table.insert(table.end(), {a[0][i].real(), a[0][i].imag(), a[1][i].real(), a[1][i].imag()});
    return table;
  }

  // Returns the same weights on the device.
  const double* weight_table(std::size_t axis, bool transformed, direction way) const {
    auto& slot = weights_[{axis, transformed, way}];
    if (!slot) {
      const std::string name = "fft offline " + std::to_string(shape_.n[axis]) + " axis " + std::to_string(axis) +
                               (transformed ? way == direction::inverse ? " inverse" : " forward" : "");
      slot = ballast::cuda::share_table(device_, name, 0, [&] { return weights(axis, transformed, way); });
    }
    return static_cast<const double*>(slot->data());
  }

  // Sums signals first … first + count − 1 of `data`, the input or the output.
  void sum(const unsigned char* data, bool output, offline_sums* sums, std::int64_t first, std::int64_t count, direction way, double scale,
           const fault_list& faults, ballast::cuda::stream on) const {
    offline_arguments a{};
    a.data = const_cast<unsigned char*>(data) + first * signal_bytes();
    a.sums = sums + first;
    const ballast::cuda::kernel* kernel = nullptr;
    {
      const std::lock_guard lock(mutex_);
      for (std::size_t axis = 0; axis < 3; ++axis) {
        a.n[axis] = shape_.n[axis];
        a.weights[axis] = a.n[axis] == 1 ? nullptr : weight_table(axis, !output, way);
      }
      ballast::cuda::kernel_request wanted;
      wanted.header = "fft/cuda/schemes/offline.cuh";
      wanted.expression =
          ballast::cuda::kernel_expression("ballast::fft::cuda::offline_kernel", {sizeof(T) == 8 ? "true" : "false"}, faults.armed());
      wanted.threads = k_offline_threads;
      wanted.shared = k_offline_threads / 32 * 6 * static_cast<std::int64_t>(sizeof(double));
      kernel = &device_->load(wanted);
    }
    a.points = shape_.points();
    a.parts = parts();
    a.first_block = first * a.parts;
    a.all_blocks = shape_.batch * a.parts;
    a.scale = scale;
    a.output = output;
    ballast::cuda::launch(*device_, *kernel, count * a.parts, a, faults, on);
  }

  void transform_dense(const unsigned char* in, unsigned char* out, bool one, direction way, ballast::cuda::stream on) const {
    const std::lock_guard lock(mutex_);  // a cuFFT plan serves one stream at a time
    auto& plan = plans_[{way, one}];
    if (!plan) {
      problem shape = problem_;
      if (one) shape.batch = 1;
      plan = make_dense(shape, way);
    }
    plan->execute(in, out, on);
  }

  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override;

  geometry shape_;
  bool protect_;
  ballast::cuda::workspace_pool workspaces_;
  problem problem_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<std::size_t, bool, direction>, std::shared_ptr<const ballast::cuda::device_table>> weights_;
  mutable std::map<std::pair<direction, bool>, std::unique_ptr<dense_transform>> plans_;
};

template <class T>
class offline_transform<T>::flight final : public run::pending {
 public:
  flight(const offline_transform& plan, const unsigned char* in, unsigned char* out, const transform_args& how);
  void collect(run::recorder& seen) override;

 private:
  const offline_transform& plan_;
  direction way_;
  double scale_;
  protection protection_;
  ballast::cuda::stream stream_;
  ballast::cuda::workspace memory_;
  fault_list faults_;
  const unsigned char* kept_;  // the input
  unsigned char* out_;
  offline_sums* sums_;

  abft::finding judge(const offline_sums& of, std::int64_t index) const {
    const double factor = std::abs(scale_);
    const auto points = static_cast<double>(plan_.shape_.points());
    const double norm = std::sqrt(of.square);
    abft::finding made;
    made.index = index;
    made.bits = of.hash == 0 ? 1 : of.hash;
    made.judged = of.square <= 1e290 && of.square >= 1e-290;
    for (int v = 0; v < 4; v += 2) {
      const double rest = std::abs(of.output[v] - scale_ * of.input[v]) + std::abs(of.output[v + 1] - scale_ * of.input[v + 1]);
      if (!(rest <= made.residual)) made.residual = rest;
      if (std::isnan(made.residual)) break;
    }
    const abft::guarded_threshold tau(thresholds::residual<T>(points, norm, k_kappa) * factor + thresholds::output_underflow<T>(points));
    made.threshold = tau.value;
    if (of.square == 0 && made.residual == 0) made.judged = true;
    // Near the largest numbers the transform can overflow even if the checksum does not.
    if (norm > static_cast<double>(std::numeric_limits<T>::max()) / (8 * std::sqrt(points)) / std::max(1.0, factor)) made.judged = false;
    made.word = abft::verify(made.residual, tau);
    return made;
  }

  // Computes signal `index` again.
  offline_sums again(std::int64_t index) const {
    ballast::cuda::device& device = *plan_.device_;
    device.zero(sums_ + index, sizeof(offline_sums), stream_);
    const std::int64_t at = index * plan_.signal_bytes();
    plan_.sum(kept_, false, sums_, index, 1, way_, 1, faults_, stream_);
    plan_.transform_dense(kept_ + at, out_ + at, true, way_, stream_);
    plan_.sum(out_, true, sums_, index, 1, way_, scale_, faults_, stream_);
    offline_sums made;
    device.copy(&made, sums_ + index, sizeof made, stream_);
    device.synchronize(stream_);
    return made;
  }
};

template <class T>
void offline_transform<T>::flight::collect(run::recorder& seen) {
  ballast::cuda::device& device = *plan_.device_;
  seen.runs_on(device.about().name);
  if (!plan_.protect_) {
    device.synchronize(stream_);
    return;
  }
  core::vector<offline_sums> all(static_cast<std::size_t>(plan_.shape_.batch));
  device.copy(all.data(), sums_, static_cast<std::int64_t>(all.size() * sizeof(offline_sums)), stream_);
  device.synchronize(stream_);
  seen.checked(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    (void)run::attempt(seen, protection_, "fft.offline", 0, [&](int number) { return judge(number == 0 ? all[i] : again(index), index); });
  }
}

template <class T>
offline_transform<T>::flight::flight(const offline_transform& plan, const unsigned char* in, unsigned char* out, const transform_args& how)
    : plan_(plan),
      way_(how.direction),
      scale_(how.scale),
      protection_(how.protection),
      stream_(how.stream),
      memory_(plan.workspaces_.take(how.workspace, how.stream)),
      faults_(plan.device_, how.injector, how.stream),
      kept_(in),
      out_(out),
      sums_(reinterpret_cast<offline_sums*>(memory_.data())) {
  ballast::cuda::device& device = *plan_.device_;
  device.zero(sums_, plan_.sums_bytes(), stream_);
  if (plan_.protect_) {
    // The report may compute a signal again. Before that the caller may have changed the input, or an in-place transform has overwritten
    // it.
    unsigned char* const copy = memory_.data() + plan_.sums_bytes();
    device.copy(copy, in, plan_.bytes_of(plan_.input_), stream_);
    kept_ = copy;
    plan_.sum(in, false, sums_, 0, plan_.shape_.batch, way_, 1, faults_, stream_);
  }
  plan_.transform_dense(in, out, false, way_, stream_);
  if (plan_.protect_ || scale_ != 1) plan_.sum(out, true, sums_, 0, plan_.shape_.batch, way_, scale_, faults_, stream_);
}

template <class T>
std::unique_ptr<run::pending> offline_transform<T>::start(const unsigned char* in, unsigned char* out, const transform_args& how) const {
  return std::make_unique<flight>(*this, in, out, how);
}

}  // namespace

void override_cufft(dense_transform_maker other) { maker() = std::move(other); }

std::unique_ptr<transform> make_offline_transform(const nested_geometry& shape, precision type, bool protect) {
  const auto on = ballast::cuda::current_device();
  if (type == precision::f32) return std::make_unique<offline_transform<float>>(on, shape, protect);
  return std::make_unique<offline_transform<double>>(on, shape, protect);
}

}  // namespace ballast::fft::cuda
