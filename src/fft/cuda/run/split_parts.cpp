// The copies of split transforms, and the memories between them.
#include "fft/cuda/run/split_parts.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/cuda/run/line_maps.hpp"
#include "fft/sites.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

array_side part_of_side(array_side side) {
  side.real = true;
  return side;
}

class split_parts final : public device_transform {
 public:
  split_parts(std::shared_ptr<ballast::cuda::device> on, const array_problem& shape, precision type, bool protect,
              const std::function<std::unique_ptr<transform>(const array_problem&)>& make)
      : device_transform(std::move(on), part_of_side(shape.input), part_of_side(shape.output), output_elements(shape), type),
        width_(type == precision::f32 ? 4 : 8),
        protect_(protect),
        maps_(device_, type, protect) {
    array_problem inner = shape;
    inner.split = false;
    in_ = copy_of(shape, true, inner);
    out_ = copy_of(shape, false, inner);
    work_ = make(inner);
    workspaces_.emplace(device_, ballast::cuda::k_ring_bytes + in_.bytes + out_.bytes + work_->workspace_bytes());
  }

  std::int64_t workspace_bytes() const override { return workspaces_->bytes(); }

 private:
  // A complex side, whose interleaved numbers lie densely. A line is the last axis.
  struct copy {
    std::int64_t bytes = 0;  // 0: the side is real
    std::int64_t rows = 0, lines = 1, lines_of_signal = 1;
    std::int64_t first = 0;
    map_side parts{}, interleaved{};
  };

  class flight final : public run::pending {
   public:
    flight(const split_parts& plan, const transform_args& how)
        : plan_(plan), work_(plan.device_, plan.workspaces_->take(how.workspace, how.stream), how.injector, how.stream) {}

    void launch(const unsigned char* in, unsigned char* out, const transform_args& how) {
      unsigned char* const from = work_.memory();
      unsigned char* const to = from + plan_.in_.bytes;
      unsigned char* const rest = to + plan_.out_.bytes;
      const bool copies_in = plan_.in_.bytes != 0, copies_out = plan_.out_.bytes != 0;
      for (int part = 0; copies_in && part < 2; ++part)
        apply(plan_.in_, part == 0 ? in : static_cast<const unsigned char*>(how.in_imaginary), from + part * plan_.width_, true, part, how);
      transform_args args = how;
      args.in_place = false;
      args.in_imaginary = nullptr;
      args.out_imaginary = nullptr;
      args.workspace = {reinterpret_cast<std::byte*>(rest), static_cast<std::size_t>(plan_.work_->workspace_bytes())};
      inner_ = plan_.work_->enqueue(copies_in ? from : in, copies_out ? to : out, args);
      for (int part = 0; copies_out && part < 2; ++part)
        apply(plan_.out_, to + part * plan_.width_, part == 0 ? out : static_cast<unsigned char*>(how.out_imaginary), false, part, how);
    }

    void collect(run::recorder& seen) override {
      inner_->collect(seen);
      if (!plan_.protect_) return work_.wait();
      for (const copy* each : {&plan_.in_, &plan_.out_}) {
        if (each->bytes != 0) seen.checked(2 * static_cast<std::uint64_t>(each->lines));
      }
      seen.add(work_.collect([&](const ballast::cuda::device_event& e, ballast::cuda::event_log::entry& out) {
        out.site = "fft.product";
        const copy& of = ballast::cuda::part_of(e.what) < 2 ? plan_.in_ : plan_.out_;
        if (e.index >= 0 && e.index < of.lines) out.index = e.index / of.lines_of_signal;
      }));
    }

   private:
    void apply(const copy& by, const unsigned char* from, unsigned char* to, bool input, int part, const transform_args& how) const {
      map_arguments a{};
      a.in = input ? from + by.first * plan_.width_ : from;
      a.out = input ? to : to + by.first * plan_.width_;
      a.from = input ? by.parts : by.interleaved;
      a.to = input ? by.interleaved : by.parts;
      a.rows = by.rows;
      a.lines = by.lines;
      a.scale = a.check_scale = 1;
      a.step = (input ? 0 : 2) + part;
      a.steps = 4;
      a.repairs = run::repeats_of(how.protection);
      a.site = input ? site::input : site::output;
      plan_.maps_.launch(work_, a, by.lines);
    }

    const split_parts& plan_;
    ballast::cuda::device_call work_;
    std::unique_ptr<run::pending> inner_;
  };

  static std::int64_t output_elements(const array_problem& shape) {
    std::int64_t made = shape.signals();
    for (const axis& each : shape.axes) made *= each.out_length;
    return made;
  }

  // Sets this side of `inner` to dense numbers if it is complex.
  copy copy_of(const array_problem& shape, bool input, array_problem& inner) const {
    const array_side& side = input ? shape.input : shape.output;
    copy made;
    if (side.real) return made;
    std::vector<std::pair<std::int64_t, std::int64_t>> loops;
    for (const loop& each : shape.loops) loops.emplace_back(each.count, input ? each.input : each.output);
    for (const axis& each : shape.axes)
      loops.emplace_back(input ? each.in_length : each.out_length, input ? each.in_stride : each.out_stride);
    const auto [rows, stride] = loops.back();
    loops.pop_back();
    for (const auto& each : loops) made.lines *= each.first;
    made.lines_of_signal = made.lines / shape.signals();
    made.rows = rows;
    made.first = side.first;
    made.parts = array_side_of(stride, loops);
    made.interleaved = memory_side(2 * rows);
    made.interleaved.scalar = 2;
    made.bytes = ballast::cuda::aligned_bytes(2 * width_ * rows * made.lines);
    std::int64_t elements = 1;
    for (std::size_t i = inner.axes.size(); i-- > 0;) {
      axis& each = inner.axes[i];
      (input ? each.in_stride : each.out_stride) = elements;
      elements *= input ? each.in_length : each.out_length;
    }
    for (std::size_t i = inner.loops.size(); i-- > 0; elements *= inner.loops[i].count)
      (input ? inner.loops[i].input : inner.loops[i].output) = elements;
    (input ? inner.input : inner.output) = {false, 0, elements};
    return made;
  }

  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override {
    auto made = std::make_unique<flight>(*this, how);
    made->launch(in, out, how);
    return made;
  }

  std::int64_t width_;
  bool protect_;
  map_launcher maps_;
  copy in_, out_;
  std::unique_ptr<transform> work_;
  std::optional<ballast::cuda::workspace_pool> workspaces_;
};

}  // namespace

std::unique_ptr<transform> make_split_parts(const array_problem& shape, precision type, bool protect,
                                            const std::function<std::unique_ptr<transform>(const array_problem&)>& make) {
  return std::make_unique<split_parts>(ballast::cuda::current_device(), shape, type, protect, make);
}

}  // namespace ballast::fft::cuda
