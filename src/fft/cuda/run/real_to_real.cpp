// The steps of real-to-real transforms, and the memories between them.
#include "fft/cuda/run/real_to_real.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/cuda/run/line_maps.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "fft/tables/real_to_real.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

// The Fourier transforms of one part of all lines of a chunk, once for each chunk: the loop over chunks goes nowhere.
nested_geometry lines_of(const line_part& what, std::int64_t chunk, std::int64_t chunks, std::int64_t lines_of_signal, std::int64_t u_size,
                         std::int64_t v_size) {
  nested_geometry made;
  geometry& inner = made.inner;
  inner.kind = what.kind;
  inner.n = {1, 1, what.points};
  inner.batch = chunk;
  const auto place = [&](side& of, bool real, bool half, std::int64_t size) {
    const std::int64_t length = half ? what.points / 2 + 1 : what.points;
    of.real = real;
    of.length = {1, 1, length};
    of.stride = {length, length, 1};
    of.distance = real ? size : size / 2;
    of.extent = length + (chunk - 1) * of.distance;
  };
  place(inner.input, what.kind == kind::r2c, what.kind == kind::c2r, u_size);
  place(inner.output, what.kind == kind::c2r, what.kind == kind::r2c, v_size);
  if (chunks > 1) made.outer.push_back({chunks, 0, 0, chunk});
  made.parts = lines_of_signal;
  made.input = {inner.input.real, 0, inner.input.extent};
  made.output = {inner.output.real, 0, inner.output.extent};
  return made;
}

// Lines of one axis: in one pass, or in steps, all at once or in chunks. A last chunk that is not full is transformed with lines of the
// chunk before.
struct axis_steps {
  struct part {
    line_part what;
    std::unique_ptr<run_by_run> work;
  };
  real_kind kind;
  std::unique_ptr<run_by_run> whole;  // one pass over all lines; everything below but `n` and `lines` is for steps
  std::int64_t n, lines, chunk, chunks;
  std::int64_t u_size, v_size;  // scalars of a line in the memories u and v
  std::vector<part> parts;
  std::optional<map_tables> maps;  // computed for the first execution
  map_side from, to;
  std::int64_t from_first, to_first;  // scalars before line 0
};

template <class T>
class real_to_real final : public device_transform {
 public:
  // steps_only: for calls that do not wait until the kernels of single passes are compiled.
  real_to_real(std::shared_ptr<ballast::cuda::device> on, const array_problem& shape, const transform_options& options, bool steps_only)
      : device_transform(std::move(on), shape.input, shape.output, shape.points() * shape.signals(), precision_of<T>),
        shape_(shape),
        options_(options),
        check_(options.check != check_form::none),
        steps_only_(steps_only),
        maps_(device_, precision_of<T>, check_) {
    std::int64_t bytes = 0;
    for (const direction way : {direction::forward, direction::inverse}) {
      std::vector<axis_steps>& made = steps_[index(way)];
      std::int64_t own = 0, u = 0, v = 0;
      for (std::size_t i = 0; i < shape.axes.size(); ++i) {
        made.push_back(steps_of(i, way, options));
        const axis_steps& each = made.back();
        if (each.whole) {
          own += ballast::cuda::aligned_bytes(each.whole->bytes());
          continue;
        }
        any_steps_ = true;
        u = std::max(u, each.u_size * each.chunk);
        v = std::max(v, each.v_size * each.chunk);
        for (const auto& part : each.parts) own += ballast::cuda::aligned_bytes(part.work->bytes());
      }
      u_bytes_ = std::max(u_bytes_, ballast::cuda::aligned_bytes(u * width()));
      v_bytes_ = std::max(v_bytes_, ballast::cuda::aligned_bytes(v * width()));
      bytes = std::max(bytes, own);
    }
    workspaces_.emplace(device_, (any_steps_ ? ballast::cuda::k_ring_bytes : 0) + u_bytes_ + v_bytes_ + bytes);
  }

  std::int64_t workspace_bytes() const override { return workspaces_->bytes(); }

 private:
  class flight;

  static std::size_t index(direction way) { return way == direction::forward ? 0 : 1; }
  static constexpr std::int64_t width() { return sizeof(T); }

  axis_steps steps_of(std::size_t number, direction way, const transform_options& options) const;
  // Sets the tables if they are missing.
  const std::vector<axis_steps>& prepared(direction way) const;
  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override;
  // Returns the plan without single passes if this call would have to wait for their kernels, and sets the reason.
  std::shared_ptr<const real_to_real> instead(const unsigned char* in, unsigned char* out, const transform_args& how,
                                              std::string& why) const;

  array_problem shape_;
  transform_options options_;
  bool check_, steps_only_, any_steps_ = false;
  map_launcher maps_;
  mutable std::mutex mutex_;  // protects the tables of steps_, and instead_
  mutable std::shared_ptr<const real_to_real> instead_;
  mutable std::array<std::vector<axis_steps>, 2> steps_;
  std::int64_t u_bytes_ = 0, v_bytes_ = 0;
  std::optional<ballast::cuda::workspace_pool> workspaces_;
};

template <class T>
axis_steps real_to_real<T>::steps_of(std::size_t number, direction way, const transform_options& options) const {
  const axis& of = shape_.axes[number];
  axis_steps made{};
  made.kind = way == direction::forward ? of.what : inverse_of(of.what);
  made.n = of.n;
  made.lines = shape_.points() / of.n * shape_.signals();
  // The first axis reads the input, all others the output, where the data lie between two axes.
  made.from_first = number == 0 ? shape_.input.first : shape_.output.first;
  made.to_first = shape_.output.first;
  if (!steps_only_ && one_pass_of(made.kind, of.n, sizeof(T) == 8, device_->about())) {
    made.whole = make_run_by_run(lines_along(shape_, number, made.kind, number == 0), precision_of<T>, options);
    return made;
  }
  const fft::line_program program = real_line_program(made.kind, of.n);
  made.u_size = program.u_size + program.u_size % 2;
  made.v_size = program.v_size + program.v_size % 2;
  // As much memory as the data between the passes of a transform may take.
  const std::int64_t fitting = device_->about().memory / 256 / ((made.u_size + made.v_size) * width());
  made.chunks = (made.lines + std::max<std::int64_t>(fitting, 1) - 1) / std::max<std::int64_t>(fitting, 1);
  made.chunk = (made.lines + made.chunks - 1) / made.chunks;
  for (const line_part& each : program.parts)
    made.parts.push_back({each, make_run_by_run(lines_of(each, made.chunk, made.chunks, shape_.points() / of.n, made.u_size, made.v_size),
                                                precision_of<T>, options)});
  const auto place = [&](bool input) {
    std::vector<std::pair<std::int64_t, std::int64_t>> loops;
    for (const loop& each : shape_.loops) loops.emplace_back(each.count, input ? each.input : each.output);
    for (std::size_t i = 0; i < shape_.axes.size(); ++i) {
      if (i != number) loops.emplace_back(shape_.axes[i].n, input ? shape_.axes[i].in_stride : shape_.axes[i].out_stride);
    }
    return array_side_of(input ? of.in_stride : of.out_stride, loops);
  };
  made.from = place(number == 0);
  made.to = place(false);
  return made;
}

template <class T>
const std::vector<axis_steps>& real_to_real<T>::prepared(direction way) const {
  const std::lock_guard lock(mutex_);
  for (axis_steps& each : steps_[index(way)]) {
    if (!each.whole && !each.maps) each.maps.emplace(device_, precision_of<T>, each.kind, each.n, check_);
  }
  return steps_[index(way)];
}

template <class T>
class real_to_real<T>::flight final : public run::pending {
 public:
  // in, out: the lowest elements of the operands. kept: the plan, if nothing else keeps it, and the reason why it serves.
  flight(const real_to_real& plan, const unsigned char* in, unsigned char* out, const transform_args& how,
         std::shared_ptr<const real_to_real> kept, std::string why)
      : plan_(plan), kept_(std::move(kept)), why_(std::move(why)), steps_(plan.prepared(how.direction)) {
    ballast::cuda::workspace all = plan.workspaces_->take(how.workspace, how.stream);
    unsigned char* memory = all.data();
    if (plan.any_steps_) {
      work_.emplace(plan.device_, std::move(all), how.injector, how.stream);
      memory = v() + plan.v_bytes_;
    } else {
      memory_.emplace(std::move(all));
    }
    transform_args args = how;
    args.in_place = false;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const axis_steps& each = steps_[i];
      if (each.whole) {
        const std::int64_t bytes = each.whole->bytes();
        args.workspace = {reinterpret_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
        set_scale(args, i, how);
        parts_.push_back(each.whole->open((i == 0 ? in : out) + each.from_first * width(), out + each.to_first * width(), args));
        memory += ballast::cuda::aligned_bytes(bytes);
        continue;
      }
      args.scale = args.check_scale = 1;
      for (const auto& part : each.parts) {
        const std::int64_t bytes = part.work->bytes();
        args.workspace = {reinterpret_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
        args.direction = way_of(part.what);
        parts_.push_back(part.work->open(u() + part.what.from * width(), v() + part.what.to * width(), args));
        memory += ballast::cuda::aligned_bytes(bytes);
      }
    }
  }

  void launch(const unsigned char* in, unsigned char* out, const transform_args& how);
  void collect(run::recorder& seen) override;

 private:
  static direction way_of(const line_part& what) { return what.kind == kind::c2r ? direction::inverse : direction::forward; }
  unsigned char* u() const { return work_->memory(); }
  unsigned char* v() const { return work_->memory() + plan_.u_bytes_; }
  // The last axis multiplies by the factor of the norm.
  void set_scale(transform_args& args, std::size_t number, const transform_args& how) const {
    const bool last = number + 1 == steps_.size();
    args.scale = last ? how.scale : 1;
    args.check_scale = last ? how.check_scale : 1;
  }

  const real_to_real& plan_;
  std::shared_ptr<const real_to_real> kept_;
  std::string why_;
  const std::vector<axis_steps>& steps_;
  std::optional<ballast::cuda::device_call> work_;  // there if axes have steps
  std::optional<ballast::cuda::workspace> memory_;  // if there are none
  core::vector<std::unique_ptr<open_runs>> parts_;  // those of all axes
};

template <class T>
void real_to_real<T>::flight::launch(const unsigned char* in, unsigned char* out, const transform_args& how) {
  std::size_t first_part = 0;
  int steps = 0;
  for (const axis_steps& each : steps_) steps += each.whole ? 0 : static_cast<int>(each.maps->size());
  int step = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const axis_steps& each = steps_[i];
    if (each.whole) {
      transform_args args = how;
      set_scale(args, i, how);
      open_runs& by = *parts_[first_part++];
      for (std::int64_t number = 0; number < each.whole->runs(); ++number) by.launch_run(number, args);
      continue;
    }
    const std::size_t maps = each.maps->size();
    for (std::int64_t number = 0; number < each.chunks; ++number) {
      map_arguments a{};
      a.first_line = number * each.chunk;
      a.lines = std::min(each.chunk, each.lines - a.first_line);
      a.steps = steps;
      a.repairs = run::repeats_of(how.protection);
      const auto apply = [&](std::size_t map, const void* from, void* to, const map_side& from_side, const map_side& to_side,
                             inject::site where, double scale, double check_scale) {
        each.maps->set(a, map);
        a.in = from;
        a.out = to;
        a.from = from_side;
        a.to = to_side;
        a.site = where;
        a.scale = scale;
        a.check_scale = check_scale;
        a.step = step + static_cast<int>(map);
        plan_.maps_.launch(*work_, a, each.lines);
      };
      // Line 0 of a memory would be before its begin.
      const auto memory = [&](unsigned char* begin, std::int64_t size) { return begin - a.first_line * size * width(); };
      unsigned char* const u_lines = memory(u(), each.u_size);
      unsigned char* const v_lines = memory(v(), each.v_size);
      const map_side u_side = memory_side(each.u_size), v_side = memory_side(each.v_size);
      apply(0, (i == 0 ? in : out) + each.from_first * width(), u_lines, each.from, u_side, site::intermediate, 1, 1);
      for (std::size_t part = 0; part < each.parts.size(); ++part) {
        transform_args args = how;
        args.scale = args.check_scale = 1;
        args.direction = way_of(each.parts[part].what);
        parts_[first_part + part]->launch_run(number, args);
      }
      for (std::size_t map = 1; map + 1 < maps; ++map)
        apply(map, v_lines, v_lines + each.maps->first_result(map) * width(), v_side, v_side, site::stage, 1, 1);
      const bool last = i + 1 == steps_.size();
      apply(maps - 1, v_lines, out + each.to_first * width(), v_side, each.to, site::output, last ? how.scale : 1,
            last ? how.check_scale : 1);
    }
    first_part += each.parts.size();
    step += static_cast<int>(maps);
  }
}

template <class T>
void real_to_real<T>::flight::collect(run::recorder& seen) {
  for (const auto& each : parts_) each->collect(seen);
  if (!why_.empty()) seen.runs_fallback_kernels(why_);
  if (!work_) return;
  if (!plan_.check_) return work_->wait();
  for (const axis_steps& each : steps_) {
    if (!each.whole) seen.checked(static_cast<std::uint64_t>(each.lines) * each.maps->size());
  }
  seen.add(work_->collect([&](const device_event& e, ballast::cuda::event_log::entry& out) {
    out.site = "fft.product";
    std::size_t step = ballast::cuda::part_of(e.what);
    for (const axis_steps& each : steps_) {
      if (each.whole) continue;
      if (step < each.maps->size()) {
        if (e.index >= 0 && e.index < each.lines) out.index = e.index / (plan_.shape_.points() / each.n);
        return;
      }
      step -= each.maps->size();
    }
  }));
}

template <class T>
std::unique_ptr<run::pending> real_to_real<T>::start(const unsigned char* in, unsigned char* out, const transform_args& how) const {
  std::string why;
  auto other = instead(in, out, how, why);
  const real_to_real& by = other ? *other : *this;
  transform_args args = how;
  if (other && static_cast<std::int64_t>(how.workspace.size()) < other->workspace_bytes()) args.workspace = {};
  auto made = std::make_unique<flight>(by, in, out, args, std::move(other), std::move(why));
  made->launch(in, out, args);
  return made;
}

template <class T>
std::shared_ptr<const real_to_real<T>> real_to_real<T>::instead(const unsigned char* in, unsigned char* out, const transform_args& how,
                                                                std::string& why) const {
  if (steps_only_ || how.own_kernels || options_.plain || options_.origin != policy_origin::installed) return nullptr;
  const bool captured = device_->captured(how.stream);
  const std::vector<axis_steps>& steps = steps_[index(how.direction)];
  transform_args args = how;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const axis_steps& each = steps[i];
    if (!each.whole) continue;
    args.scale = i + 1 == steps.size() ? how.scale : 1;
    why = each.whole->why_not_ready((i == 0 ? in : out) + each.from_first * width(), out + each.to_first * width(), args, !captured);
    if (!why.empty()) break;
  }
  const std::lock_guard lock(mutex_);
  if (why.empty()) {
    if (!captured) instead_.reset();
    return nullptr;
  }
  // Nothing can be loaded during capture, and the steps take kernels of their own.
  if (!instead_ && !captured && device_->why_not_ready(map_kernels(), false).empty())
    instead_ = std::make_shared<const real_to_real>(device_, shape_, options_, true);
  if (!instead_) why.clear();
  return instead_;
}

}  // namespace

std::unique_ptr<transform> make_real_to_real(const array_problem& shape, precision type, const transform_options& options) {
  const auto on = ballast::cuda::current_device();
  if (type == precision::f32) return std::make_unique<real_to_real<float>>(on, shape, options, false);
  return std::make_unique<real_to_real<double>>(on, shape, options, false);
}

}  // namespace ballast::fft::cuda
