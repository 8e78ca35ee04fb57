// The steps of a transform of many axes, and their places between input and output.
#include "fft/cuda/run/axes_in_turn.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/memory.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/problem.hpp"

namespace ballast::fft::cuda {
namespace {

constexpr std::size_t k_axes_of_step = 3;

// The layout of the elements of all signals before or after a step.
struct arrangement {
  std::vector<std::int64_t> lengths, strides;  // one for each axis
  std::vector<std::int64_t> distances;         // one for each loop
  array_side place;
};

class axes_in_turn final : public device_transform {
 public:
  axes_in_turn(std::shared_ptr<ballast::cuda::device> on, const array_problem& shape, precision type, const step_maker& make)
      : device_transform(std::move(on), shape.input, shape.output, elements_of(shape, false), type), shape_(shape) {
    const arrangement in = caller(true), out = caller(false);
    const bool through_scratch = shape.kind == kind::c2r;
    const arrangement between = through_scratch ? scratch() : out;
    if (through_scratch) scratch_bytes_ = ballast::cuda::aligned_bytes(bytes_of(between.place));
    const std::size_t rank = shape.axes.size(), lead = rank - k_axes_of_step;
    // The last axes of real data first, where they become half spectra; for c2r last, where half spectra become real.
    const auto add = [&](std::size_t begin, std::size_t end, kind what, const arrangement& from, const arrangement& to) {
      steps_.push_back({make(geometry_of(begin, end, what, from, to)), &from == &in, &to == &out});
    };
    if (!through_scratch) add(lead, rank, shape.kind, in, out);
    for (std::size_t end = lead; end > 0;) {
      const std::size_t begin = end - std::min(end, k_axes_of_step);
      add(begin, end, kind::c2c, through_scratch && end == lead ? in : between, between);
      end = begin;
    }
    if (through_scratch) add(lead, rank, shape.kind, between, out);
    std::int64_t bytes = scratch_bytes_;
    for (const step& each : steps_) bytes += ballast::cuda::aligned_bytes(each.work->workspace_bytes());
    workspaces_.emplace(device_, bytes);
  }

  std::int64_t workspace_bytes() const override { return workspaces_->bytes(); }

 private:
  struct step {
    std::unique_ptr<transform> work;
    bool from_input, to_output;  // otherwise from the data between the steps, and to them
  };

  class flight final : public run::pending {
   public:
    explicit flight(ballast::cuda::workspace memory) : memory_(std::move(memory)) {}
    void collect(run::recorder& seen) override {
      for (const auto& each : steps) each->collect(seen);
    }
    unsigned char* memory() const { return memory_.data(); }
    core::vector<std::unique_ptr<run::pending>> steps;

   private:
    ballast::cuda::workspace memory_;
  };

  static std::int64_t elements_of(const array_problem& shape, bool input) {
    std::int64_t made = shape.signals();
    for (const axis& each : shape.axes) made *= input ? each.in_length : each.out_length;
    return made;
  }

  arrangement caller(bool input) const {
    arrangement made;
    for (const axis& each : shape_.axes) {
      made.lengths.push_back(input ? each.in_length : each.out_length);
      made.strides.push_back(input ? each.in_stride : each.out_stride);
    }
    for (const loop& each : shape_.loops) made.distances.push_back(input ? each.input : each.output);
    made.place = input ? shape_.input : shape_.output;
    return made;
  }

  // Half spectra side by side.
  arrangement scratch() const {
    arrangement made = caller(true);
    std::int64_t elements = 1;
    for (std::size_t i = made.strides.size(); i-- > 0; elements *= made.lengths[i]) made.strides[i] = elements;
    for (std::size_t i = made.distances.size(); i-- > 0; elements *= shape_.loops[i].count) made.distances[i] = elements;
    made.place = {false, 0, elements};
    return made;
  }

  nested_geometry geometry_of(std::size_t begin, std::size_t end, kind what, const arrangement& from, const arrangement& to) const {
    array_problem one;
    one.kind = what;
    for (std::size_t i = 0; i < shape_.loops.size(); ++i) one.loops.push_back({shape_.loops[i].count, from.distances[i], to.distances[i]});
    std::int64_t parts = 1;
    for (std::size_t i = 0; i < shape_.axes.size(); ++i) {
      if (i >= begin && i < end) {
        one.axes.push_back({shape_.axes[i].n, from.lengths[i], to.lengths[i], from.strides[i], to.strides[i]});
      } else {
        one.loops.push_back({from.lengths[i], from.strides[i], to.strides[i]});
        parts *= from.lengths[i];
      }
    }
    one.input = from.place;
    one.output = to.place;
    auto made = nest_of(one, strides_taken::any);
    if (!made) throw std::logic_error("fft: no transform takes a step of at most three axes");
    made->parts = parts;
    return std::move(*made);
  }

  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override {
    auto made = std::make_unique<flight>(workspaces_->take(how.workspace, how.stream));
    unsigned char* const between = scratch_bytes_ != 0 ? made->memory() : out;
    unsigned char* memory = made->memory() + scratch_bytes_;
    transform_args args = how;
    for (const step& each : steps_) {
      const std::int64_t bytes = each.work->workspace_bytes();
      args.workspace = {reinterpret_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
      memory += ballast::cuda::aligned_bytes(bytes);
      const bool last = &each == &steps_.back();
      args.scale = last ? how.scale : 1;
      args.check_scale = last ? how.check_scale : 1;
      made->steps.push_back(each.work->enqueue(each.from_input ? in : between, each.to_output ? out : between, args));
    }
    return made;
  }

  array_problem shape_;
  std::vector<step> steps_;
  std::int64_t scratch_bytes_ = 0;
  std::optional<ballast::cuda::workspace_pool> workspaces_;
};

}  // namespace

std::unique_ptr<transform> make_axes_in_turn(const array_problem& shape, precision type, const step_maker& make) {
  return std::make_unique<axes_in_turn>(ballast::cuda::current_device(), shape, type, make);
}

}  // namespace ballast::fft::cuda
