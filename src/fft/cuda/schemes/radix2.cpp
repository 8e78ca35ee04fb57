// Version 0 of the step-wise variants: log₂n launches, each reading and writing all signals.
#include <bit>
#include <utility>

#include <ballast/error.hpp>

#include "cuda/memory/shared_state.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/plan/tables.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/cuda/schemes/radix2.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::workspace;

template <class T>
class radix2_transform final : public device_transform {
 public:
  radix2_transform(std::shared_ptr<ballast::cuda::device> on, const nested_geometry& nest)
      : device_transform(std::move(on), nest.input, nest.output, nest.output_elements(), precision_of<T>),
        shape_(nest.inner),
        n_(shape_.n[2]),
        workspaces_(device_, 2 * part_bytes()) {
    const geometry& shape = shape_;
    if (nest.runs() != 1 || nest.input.first != 0 || nest.output.first != 0)
      throw unsupported_error("scheme v0: expected one loop over arrays that run forward");
    if (shape.kind != kind::c2c || shape.n[0] * shape.n[1] != 1 || !std::has_single_bit(static_cast<std::uint64_t>(n_)) || n_ < 2)
      throw unsupported_error("scheme v0: expected a 1-D c2c transform whose length is a power of two, at least 2");
    stages_ = std::countr_zero(static_cast<std::uint64_t>(n_));
    ballast::cuda::kernel_request wanted;
    wanted.header = "fft/cuda/schemes/radix2.cuh";
    wanted.expression = std::string("ballast::fft::cuda::radix2_kernel<") + (sizeof(T) == 8 ? "true>" : "false>");
    wanted.threads = k_radix2_threads;
    kernel_ = &device_->load(wanted);
    // All powers of w, after the coarse ones.
    roots_ = ballast::cuda::share_table(device_, (sizeof(T) == 4 ? "fft f32 roots " : "fft f64 roots ") + std::to_string(n_), 0,
                                        [&] { return table_source<T>::split_twiddles(n_, stages_); });
  }

  std::int64_t workspace_bytes() const override { return workspaces_.bytes(); }

 private:
  class flight final : public run::pending {
   public:
    flight(std::shared_ptr<ballast::cuda::device> device, workspace memory, ballast::cuda::stream on)
        : device_(std::move(device)), memory_(std::move(memory)), stream_(on) {}
    void collect(run::recorder& seen) override {
      seen.runs_on(device_->about().name);
      device_->synchronize(stream_);
    }

   private:
    std::shared_ptr<ballast::cuda::device> device_;
    workspace memory_;
    ballast::cuda::stream stream_;
  };

  std::int64_t part_bytes() const { return (2 * static_cast<std::int64_t>(sizeof(T)) * n_ * shape_.batch + 255) / 256 * 256; }

  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override {
    if (inject::armed_sites(how.injector) != 0) throw unsupported_error("scheme v0: it has no sites where faults could be injected");
    workspace memory = workspaces_.take(how.workspace, how.stream);
    unsigned char* const work = memory.data();
    radix2_arguments a{};
    a.roots = static_cast<const T*>(roots_->data()) + 2 * coarse_size_of(n_);
    a.half = n_ / 2;
    a.butterflies = a.half * shape_.batch;
    for (int stage = 0; stage < stages_; ++stage) {
      const bool first = stage == 0;
      const bool last = stage + 1 == stages_;
      const bool turned = how.direction == direction::inverse;
      a.in = first ? in : work + (stage + 1) % 2 * part_bytes();
      a.out = last ? out : work + stage % 2 * part_bytes();
      a.in_stride = first ? shape_.input.stride[2] : 1;
      a.in_distance = first ? shape_.input.distance : n_;
      a.out_stride = last ? shape_.output.stride[2] : 1;
      a.out_distance = last ? shape_.output.distance : n_;
      a.before = std::int64_t{1} << stage;
      a.scale = last ? how.scale : 1;
      a.turn_in = first && turned;
      a.turn_out = last && turned;
      device_->launch(*kernel_, (a.butterflies + k_radix2_threads - 1) / k_radix2_threads, &a, sizeof a, how.stream);
    }
    return std::make_unique<flight>(device_, std::move(memory), how.stream);
  }

  geometry shape_;
  std::int64_t n_;
  int stages_ = 0;
  const ballast::cuda::kernel* kernel_ = nullptr;
  std::shared_ptr<const ballast::cuda::device_table> roots_;
  ballast::cuda::workspace_pool workspaces_;
};

}  // namespace

std::unique_ptr<transform> make_radix2_transform(const nested_geometry& shape, precision type) {
  const auto on = ballast::cuda::current_device();
  if (type == precision::f32) return std::make_unique<radix2_transform<float>>(on, shape);
  return std::make_unique<radix2_transform<double>>(on, shape);
}

}  // namespace ballast::fft::cuda
