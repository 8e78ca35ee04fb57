// The steps of real-to-real transforms, and the memories between them.
#include "fft/cuda/run/real_to_real.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/workspace.hpp"
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

// Lines of one axis, all at once or in chunks. A last chunk that is not full is transformed with lines of the chunk before.
struct axis_steps {
  struct part {
    line_part what;
    std::unique_ptr<run_by_run> work;
  };
  real_kind kind;
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
  real_to_real(std::shared_ptr<ballast::cuda::device> on, const array_problem& shape, const transform_options& options)
      : device_transform(std::move(on), shape.input, shape.output, shape.points() * shape.signals(), precision_of<T>),
        shape_(shape),
        check_(options.check != check_form::none),
        maps_(device_, precision_of<T>, check_) {
    std::int64_t bytes = 0;
    for (const direction way : {direction::forward, direction::inverse}) {
      std::vector<axis_steps>& made = steps_[index(way)];
      std::int64_t own = 0, u = 0, v = 0;
      for (std::size_t i = 0; i < shape.axes.size(); ++i) {
        made.push_back(steps_of(i, way, options));
        const axis_steps& each = made.back();
        u = std::max(u, each.u_size * each.chunk);
        v = std::max(v, each.v_size * each.chunk);
        for (const auto& part : each.parts) own += ballast::cuda::aligned_bytes(part.work->bytes());
      }
      u_bytes_ = std::max(u_bytes_, ballast::cuda::aligned_bytes(u * width()));
      v_bytes_ = std::max(v_bytes_, ballast::cuda::aligned_bytes(v * width()));
      bytes = std::max(bytes, own);
    }
    workspaces_.emplace(device_, ballast::cuda::k_ring_bytes + u_bytes_ + v_bytes_ + bytes);
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

  array_problem shape_;
  bool check_;
  map_launcher maps_;
  mutable std::mutex mutex_;  // protects the tables of steps_
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
  // The first axis reads the input, all others the output, where the data lie between two axes.
  const auto place = [&](bool input) {
    std::vector<std::pair<std::int64_t, std::int64_t>> loops;
    for (const loop& each : shape_.loops) loops.emplace_back(each.count, input ? each.input : each.output);
    for (std::size_t i = 0; i < shape_.axes.size(); ++i) {
      if (i != number) loops.emplace_back(shape_.axes[i].n, input ? shape_.axes[i].in_stride : shape_.axes[i].out_stride);
    }
    return array_side_of(input ? of.in_stride : of.out_stride, loops);
  };
  made.from = place(number == 0);
  made.from_first = number == 0 ? shape_.input.first : shape_.output.first;
  made.to = place(false);
  made.to_first = shape_.output.first;
  return made;
}

template <class T>
const std::vector<axis_steps>& real_to_real<T>::prepared(direction way) const {
  const std::lock_guard lock(mutex_);
  for (axis_steps& each : steps_[index(way)]) {
    if (!each.maps) each.maps.emplace(device_, precision_of<T>, each.kind, each.n, check_);
  }
  return steps_[index(way)];
}

template <class T>
class real_to_real<T>::flight final : public run::pending {
 public:
  flight(const real_to_real& plan, const transform_args& how)
      : plan_(plan),
        steps_(plan.prepared(how.direction)),
        work_(plan.device_, plan.workspaces_->take(how.workspace, how.stream), how.injector, how.stream) {
    unsigned char* memory = v() + plan.v_bytes_;
    transform_args args = how;
    args.scale = args.check_scale = 1;
    args.in_place = false;
    for (const axis_steps& each : steps_) {
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
  unsigned char* u() const { return work_.memory(); }
  unsigned char* v() const { return work_.memory() + plan_.u_bytes_; }

  const real_to_real& plan_;
  const std::vector<axis_steps>& steps_;
  ballast::cuda::device_call work_;
  core::vector<std::unique_ptr<open_runs>> parts_;  // those of all axes
};

template <class T>
void real_to_real<T>::flight::launch(const unsigned char* in, unsigned char* out, const transform_args& how) {
  std::size_t first_part = 0;
  int steps = 0;
  for (const axis_steps& each : steps_) steps += static_cast<int>(each.maps->size());
  int step = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const axis_steps& each = steps_[i];
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
        plan_.maps_.launch(work_, a, each.lines);
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
  if (!plan_.check_) return work_.wait();
  for (const axis_steps& each : steps_) seen.checked(static_cast<std::uint64_t>(each.lines) * each.maps->size());
  seen.add(work_.collect([&](const device_event& e, ballast::cuda::event_log::entry& out) {
    out.site = "fft.product";
    std::size_t step = ballast::cuda::part_of(e.what);
    for (const axis_steps& each : steps_) {
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
  auto made = std::make_unique<flight>(*this, how);
  made->launch(in, out, how);
  return made;
}

}  // namespace

std::unique_ptr<transform> make_real_to_real(const array_problem& shape, precision type, const transform_options& options) {
  const auto on = ballast::cuda::current_device();
  if (type == precision::f32) return std::make_unique<real_to_real<float>>(on, shape, options);
  return std::make_unique<real_to_real<double>>(on, shape, options);
}

}  // namespace ballast::fft::cuda
