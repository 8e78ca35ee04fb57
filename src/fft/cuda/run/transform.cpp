// Runs a program on a device: launches in each execution, and collects events when the report is requested.
// Layer: backend "cuda".
#include "fft/cuda/run/transform.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/cuda/run/device_transform.hpp"
#include "fft/cuda/run/program.hpp"
#include "fft/tables/checks.hpp"
#include "fft/thresholds.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::device_call;
using ballast::cuda::event_log;
using ballast::cuda::with_faults;

// The argument of two passes in one launch. Line: line_arguments, or the same with faults.
template <class Line>
struct fused_argument {
  Line first, second;
  fused_arguments pair;
};

const char* name_of_check(std::uint32_t what) {
  switch (static_cast<event_check>(ballast::cuda::check_of(what))) {
    case event_check::line: return "fft.line";
    case event_check::product: return "fft.product";
    case event_check::composite: return "fft.composite";
    case event_check::butterfly: return "fft.butterfly";
    case event_check::whole_line: return "fft.whole_line";
  }
  return "fft";
}

// A program with the memory of its executions.
template <class T>
struct serving {
  serving(const std::shared_ptr<ballast::cuda::device>& on, const geometry& shape, const transform_options& options)
      : program(program_for<T>(on, shape, options)),
        workspaces(on, ballast::cuda::k_ring_bytes + program->counter_bytes() + program->work_bytes() + program->copy_bytes()) {}

  std::shared_ptr<line_program<T>> program;
  ballast::cuda::workspace_pool workspaces;
};

// Returns whether fallback kernels may serve while those of the problem are compiled: not if a scheme or the tuner asks for specific
// kernels.
bool may_be_fallback(const transform_options& options) {
  return options.origin == policy_origin::installed && !options.plain && !options.fallback &&
         (options.check == check_form::none || options.check == check_form::verify_before_store);
}

template <class T>
class cuda_transform final : public device_transform, public run_by_run {
 public:
  cuda_transform(std::shared_ptr<ballast::cuda::device> on, const nested_geometry& shape, const transform_options& options)
      : device_transform(std::move(on), shape.input, shape.output, shape.output_elements(), precision_of<T>),
        nest_(shape),
        options_(options),
        best_(std::make_shared<const serving<T>>(device_, shape.inner, options)) {}

  std::int64_t workspace_bytes() const override { return best_->workspaces.bytes(); }
  std::int64_t bytes() const override { return workspace_bytes(); }
  std::int64_t runs() const override { return nest_.runs(); }
  std::unique_ptr<open_runs> open(const unsigned char* in, unsigned char* out, const transform_args& how) const override;
  std::string why_not_ready(const unsigned char* in, unsigned char* out, const transform_args& how, bool compile) const override;

 private:
  class flight;
  using form = typename line_program<T>::form;
  form form_of(const unsigned char* in, unsigned char* out, const transform_args& how) const;
  using server = std::shared_ptr<const serving<T>>;

  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const override;
  std::unique_ptr<open_runs> open(const server& by, std::string why_fallback, const form& whole, const unsigned char* in,
                                  unsigned char* out, const transform_args& how) const;
  // The kernels that compute a call, and the reason if they are the fallback ones.
  struct choice {
    server by;
    std::string why_fallback;
  };
  choice choose(const form& whole, const transform_args& how) const;
  server fallback(const form& whole) const;
  void gives_up_fallback(const form& whole, ballast::cuda::stream on) const;
  // Divides the signals into chunks. A last chunk that is not full comes last.
  static core::vector<form> chunks_of(const line_program<T>& program, form whole);
  static std::vector<ballast::cuda::kernel_request> missing(line_program<T>& program, const form& whole);

  // Returns whether the signals of one side begin at multiples of `boundary` bytes. step: the side's distance in a loop.
  bool aligned(const void* lowest, const array_side& s, std::int64_t distance, std::int64_t nest_loop::*step, std::int64_t boundary) const;

  nested_geometry nest_;
  transform_options options_;
  server best_;
  mutable std::mutex mutex_;
  mutable server fallback_;                     // constructed when first needed
  mutable std::set<form> fallback_forms_ = {};  // forms that fallback_ has computed and best_ has not
};

// One execution from its first launch until its report has been read.
template <class T>
class cuda_transform<T>::flight final : public open_runs {
 public:
  // forms: the full chunks, and a last one if the batch has a rest. in, out: the lowest elements of the operands.
  flight(const cuda_transform& plan, server by, std::string why_fallback, core::vector<const prepared*> forms, const unsigned char* in,
         unsigned char* out, const transform_args& how)
      : plan_(plan),
        by_(std::move(by)),
        program_(*by_->program),
        why_fallback_(std::move(why_fallback)),
        forms_(std::move(forms)),
        in_(in),
        out_(out),
        work_(plan.device_, by_->workspaces.take(suits(how.workspace) ? how.workspace : std::span<std::byte>{}, how.stream), how.injector,
              how.stream) {
    if (work_.fresh() && program_.counter_bytes() != 0) plan_.device_->zero(work_.memory(), program_.counter_bytes(), how.stream);
  }

  bool instrumented() const { return work_.instrumented(); }
  void launch_run(std::int64_t number, const transform_args& how) override;
  void collect(run::recorder& seen) override;

 private:
  // Returns whether the caller's workspace is large enough. It has the size of workspace_bytes(); fallback kernels may need more.
  bool suits(std::span<std::byte> given) const {
    return by_ == plan_.best_ || static_cast<std::int64_t>(given.size()) >= by_->workspaces.bytes();
  }

  // The addresses of the parts of the workspace for the chunk that is being launched.
  using buffers = std::array<unsigned char*, k_pass_buffers>;

  // Transforms the next chunk, whose signals begin at `in` and `out` and belong to this run of the loops.
  void launch(const prepared& chunk, std::int64_t run, unsigned char* in, unsigned char* out, const transform_args& how);
  void set_call(const prepared_pass& each, line_arguments& a, const buffers& base, const transform_args& how) const;
  void launch_lines(const prepared_pass& each, const prepared& chunk, const buffers& base, const transform_args& how) const;
  void launch_fused(const prepared_pass& first, const prepared_pass& second, const buffers& base, const transform_args& how) const;
  void locate(const device_event& e, event_log::entry& out) const;

  const cuda_transform& plan_;
  server by_;
  line_program<T>& program_;
  std::string why_fallback_;
  core::vector<const prepared*> forms_;
  const unsigned char* in_;
  unsigned char* out_;
  device_call work_;
  core::vector<const prepared*> chunks_;
  std::int64_t run_ = 0;  // the one that is being launched
};

template <class T>
void cuda_transform<T>::flight::launch(const prepared& chunk, std::int64_t run, unsigned char* in, unsigned char* out,
                                       const transform_args& how) {
  run_ = run;
  buffers base{in, out};
  unsigned char* memory = work_.memory() + program_.counter_bytes();
  for (std::size_t part = 2; part < k_pass_buffers; ++part) {
    base[part] = memory;
    memory += chunk.elements[part] * 2 * static_cast<std::int64_t>(sizeof(T));
  }
  for (std::size_t i = 0; i < chunk.passes.size(); ++i) {
    const prepared_pass& each = chunk.passes[i];
    if (each.kernel == nullptr) continue;
    if (each.pass.pair) {
      launch_fused(each, chunk.passes[i + 1], base, how);
    } else {
      launch_lines(each, chunk, base, how);
    }
  }
  chunks_.push_back(&chunk);
}

template <class T>
void cuda_transform<T>::flight::launch_run(std::int64_t number, const transform_args& how) {
  const geometry& shape = plan_.nest_.inner;
  const nested_geometry::place begin = plan_.nest_.begin_of(number);
  const std::int64_t chunk = program_.chunk();
  for (std::int64_t first = 0; first < shape.batch; first += chunk) {
    launch(first + chunk <= shape.batch ? *forms_.front() : *forms_.back(), number,
           const_cast<unsigned char*>(in_) + (begin.input + first * shape.input.distance) * plan_.width_of(plan_.input_),
           out_ + (begin.output + first * shape.output.distance) * plan_.width_of(plan_.output_), how);
  }
}

// Fills in the arguments of a pass that change with each execution.
template <class T>
void cuda_transform<T>::flight::set_call(const prepared_pass& each, line_arguments& a, const buffers& base,
                                         const transform_args& how) const {
  const pass& p = each.pass;
  a.events = work_.events();
  a.chunk = static_cast<int>(chunks_.size());
  a.first_tile = run_ * a.all_tiles;
  a.all_tiles *= plan_.nest_.runs();
  a.repairs = run::repeats_of(how.protection);
  a.scale = p.policy.scaled ? how.scale : 1;
  a.check_scale = p.policy.scaled ? how.check_scale : 1;
  const double factor = p.policy.scaled ? std::abs(how.scale) : 1;
  const bool ends = p.policy.ends();
  const bool reals = p.policy.of_reals();
  const double points = ends ? static_cast<double>(p.whole_line->points) : reals ? growth_of(p.real, p.policy.points) : p.policy.length;
  const double factors = ends                 ? thresholds::end_to_end_stages(static_cast<int>(p.whole_line->passes))
                         : p.policy.folds()   ? thresholds::k_factor_stages
                         : p.policy.mirrors() ? thresholds::reals_stages(p.policy.radix[p.policy.stages - 1])
                                              : 0;
  const double offset = thresholds::residual<T>(points, 0, k_kappa) * factor + thresholds::output_underflow<T>(points) +
                        (p.policy.folds() ? thresholds::factor_underflow<T>(points) * each.largest_inverse : 0) +
                        (ends ? static_cast<double>(p.whole_line->passes) * thresholds::factor_underflow<T>(points) * factor : 0);
  const double slope =
      (thresholds::residual<T>(points, 1, k_kappa) - thresholds::residual<T>(points, 0, k_kappa)) * factor *
      thresholds::group_growth(points, p.policy.transactions) *
      (reals  ? thresholds::real_line_growth(points, p.policy.reals_held(), p.policy.sum_levels())
       : ends ? thresholds::line_growth(points, p.whole_line->first_radix, p.whole_line->levels, factors)
              : thresholds::line_growth(points,
                                        p.policy.by_definition() ? std::max(p.policy.radix[0], p.policy.butterflies(1)) : p.policy.radix[0],
                                        p.policy.sum_levels(), factors));
  for (int copy = 0; copy < 2; ++copy) {
    a.slope[copy] = slope;
    a.offset[copy] = offset;
  }
  a.kappa = k_kappa;
  a.overflow = static_cast<double>(std::numeric_limits<T>::max()) / (8 * std::sqrt(points)) / std::max(1.0, factor);

  a.in = base[static_cast<std::size_t>(p.from)];
  a.out = base[static_cast<std::size_t>(p.to)];
  a.input_kept = a.in != a.out;
  if (p.whole_line) {
    const end_to_end_offsets at = offsets_of(*p.whole_line, sizeof(T) == 8);
    unsigned char* const checks = base[static_cast<std::size_t>(pass_buffer::checks)];
    a.whole_line.records = reinterpret_cast<whole_line_record*>(checks);
    a.whole_line.encoded = checks + at.encoded;
    a.whole_line.summed = checks + at.summed;
    a.whole_line.squares = checks + at.squares;
  }
}

template <class T>
void cuda_transform<T>::flight::launch_fused(const prepared_pass& first, const prepared_pass& second, const buffers& base,
                                             const transform_args& how) const {
  fused_argument<line_arguments> given{first.arguments, second.arguments, *first.pass.pair};
  set_call(first, given.first, base, how);
  set_call(second, given.second, base, how);
  given.pair.counters = reinterpret_cast<std::uint32_t*>(work_.memory());
  const std::int64_t blocks = std::min(first.pass.groups() + second.pass.groups(), first.most_blocks);
  if (instrumented()) {
    const inject::device_faults& faults = work_.faults().faults();
    const fused_argument<with_faults<line_arguments>> struck{{given.first, faults}, {given.second, faults}, given.pair};
    plan_.device_->launch(*first.kernel, blocks, &struck, sizeof(struck), how.stream);
  } else {
    plan_.device_->launch(*first.kernel, blocks, &given, sizeof(given), how.stream);
  }
}

template <class T>
void cuda_transform<T>::flight::launch_lines(const prepared_pass& each, const prepared& chunk, const buffers& base,
                                             const transform_args& how) const {
  const pass& p = each.pass;
  line_arguments a = each.arguments;
  set_call(each, a, base, how);
  const std::int64_t source_width = (p.policy.load == load_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t target_width = (p.policy.store == store_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
  const auto* from = static_cast<const unsigned char*>(a.in);
  auto* const to = static_cast<unsigned char*>(a.out);
  if (p.policy.check == check_form::one_sided && a.input_kept == 0) {
    unsigned char* const copy = work_.memory() + program_.counter_bytes() + program_.work_bytes();
    plan_.device_->copy(copy, from, program_.bytes_at(p.from, chunk.elements, chunk.batch), how.stream);
    from = copy;
  }
  const std::int64_t blocks = std::min(p.groups() * p.policy.cluster, each.most_blocks);
  const std::int64_t first_tile = a.first_tile;
  core::vector<std::int64_t> at(p.repeats.size(), 0);
  for (std::int64_t round = 0;; ++round) {
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      source += at[i] * p.repeats[i].source;
      target += at[i] * p.repeats[i].target;
    }
    a.in = from + source * source_width;
    a.out = to + target * target_width;
    a.first_tile = first_tile + round * a.tiles;
    work_.launch(*each.kernel, blocks, a);
    std::size_t i = 0;
    while (i < at.size() && ++at[i] == p.repeats[i].count) at[i++] = 0;
    if (i == at.size()) break;
  }
}

template <class T>
void cuda_transform<T>::flight::collect(run::recorder& seen) {
  seen.runs_on(plan_.device_->about().name);
  if (!why_fallback_.empty()) seen.runs_fallback_kernels(why_fallback_);
  if (program_.check() == check_form::none) return work_.wait();
  // One comparison for each line of each pass. Comparisons of recomputed lines are unknown and not counted.
  for (const prepared* each : chunks_) {
    for (const prepared_pass& one : each->passes) seen.checked(static_cast<std::uint64_t>(one.pass.checks()));
  }
  seen.add(work_.collect([&](const device_event& e, event_log::entry& out) { locate(e, out); }));
}

// Sets the check and the signal of an event. The numbers of a damaged event can have any value.
template <class T>
void cuda_transform<T>::flight::locate(const device_event& e, event_log::entry& out) const {
  out.site = name_of_check(e.what);
  const std::size_t number = ballast::cuda::part_of(e.what);
  if (e.chunk >= chunks_.size() || number >= chunks_[e.chunk]->passes.size() || e.index < 0) return;
  const pass& p = chunks_[e.chunk]->passes[number].pass;
  const geometry& shape = plan_.nest_.inner;
  const std::int64_t chunks = (shape.batch + program_.chunk() - 1) / program_.chunk();  // chunks of one run
  out.index = e.chunk % chunks * program_.chunk();
  std::int64_t rest = e.index;
  const auto add = [&](std::int64_t count, const signal_of_index& signals) {
    out.index += rest % count / signals.divisor % signals.modulus;
    rest /= count;
  };
  add(p.columns, p.signals[0]);
  add(p.middles, p.signals[1]);
  add(p.batches, p.signals[2]);
  for (const pass::repeat& each : p.repeats) add(each.count, each.signals);
  out.index = (out.index * plan_.nest_.batch_number + plan_.nest_.begin_of(e.chunk / chunks).number) / plan_.nest_.parts;
}

template <class T>
auto cuda_transform<T>::chunks_of(const line_program<T>& program, form whole) -> core::vector<form> {
  const std::int64_t rest = whole.batch % program.chunk();
  whole.batch = program.chunk();
  core::vector<form> made{whole};
  whole.batch = rest;
  if (rest != 0) made.push_back(whole);
  return made;
}

template <class T>
std::vector<ballast::cuda::kernel_request> cuda_transform<T>::missing(line_program<T>& program, const form& whole) {
  std::vector<ballast::cuda::kernel_request> made;
  for (const form& each : chunks_of(program, whole)) {
    for (ballast::cuda::kernel_request& one : program.missing(each)) made.push_back(std::move(one));
  }
  return made;
}

// Selects the fallback kernels if the call would have to wait for those of the problem and may use the fallback ones.
template <class T>
auto cuda_transform<T>::choose(const form& whole, const transform_args& how) const -> choice {
  choice best{best_, ""};
  // Fallback kernels have no real-to-real transforms.
  if (how.own_kernels || !may_be_fallback(options_) || nest_.inner.kind == kind::r2r) return best;
  const std::vector<ballast::cuda::kernel_request> wanted = missing(*best_->program, whole);
  if (wanted.empty()) return best;
  if (device_->captured(how.stream)) {
    // Nothing can be loaded during capture. General kernels that are already loaded are better than an error.
    server loaded;
    {
      const std::lock_guard lock(mutex_);
      loaded = fallback_;
    }
    if (loaded == nullptr || !missing(*loaded->program, whole).empty()) return best;
    return {std::move(loaded), "they had not been loaded when a graph was captured"};
  }
  // This query starts no compilation, since the call may have to wait for the same kernels anyway.
  if (device_->why_not_ready(wanted, false).empty()) return best;
  server instead = fallback(whole);
  if (instead == nullptr) return best;
  std::string why = device_->why_not_ready(wanted, true);
  if (why.empty()) return best;
  return {std::move(instead), std::move(why)};
}

// Returns the fallback kernels for this call; null if they are not loaded either, or need a large part of the device's memory.
template <class T>
auto cuda_transform<T>::fallback(const form& whole) const -> server {
  server made;
  {
    const std::lock_guard lock(mutex_);
    made = fallback_;
  }
  if (made == nullptr) {
    transform_options options = options_;
    options.fallback = true;
    try {
      made = std::make_shared<const serving<T>>(device_, nest_.inner, options);
    } catch (const unsupported_error&) {  // the length is too long for a convolution with fallback kernels
      return nullptr;
    }
  }
  constexpr std::int64_t k_part = 16;
  if (made->program->work_bytes() > std::max(best_->program->work_bytes(), device_->about().memory / k_part)) return nullptr;
  if (!device_->why_not_ready(missing(*made->program, whole), false).empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (fallback_ == nullptr) fallback_ = std::move(made);
  fallback_forms_.insert(whole);
  return fallback_;
}

// Records that best_ computes calls of this form from now on, and frees the fallback kernels' memory if no form needs it, after calls in
// flight have ended. Nothing changes during a graph capture, which must get the kernels that the form has used before.
template <class T>
void cuda_transform<T>::gives_up_fallback(const form& whole, ballast::cuda::stream on) const {
  server gone;
  const std::lock_guard lock(mutex_);
  if (fallback_ == nullptr || device_->captured(on)) return;
  fallback_forms_.erase(whole);
  if (fallback_forms_.empty()) gone.swap(fallback_);
}

// Signals of a whole number of boundary units stay aligned in all chunks and runs.
template <class T>
bool cuda_transform<T>::aligned(const void* lowest, const array_side& s, std::int64_t distance, std::int64_t nest_loop::*step,
                                std::int64_t boundary) const {
  const std::int64_t width = width_of(s);
  const auto whole = [&](std::int64_t bytes) { return bytes % boundary == 0; };
  return whole(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(lowest) % static_cast<std::uintptr_t>(boundary)) +
               s.first * width) &&
         (nest_.inner.batch == 1 || whole(distance * width)) &&
         std::ranges::all_of(nest_.outer, [&](const nest_loop& each) { return whole(each.*step * width); });
}

template <class T>
std::unique_ptr<run::pending> cuda_transform<T>::start(const unsigned char* in, unsigned char* out, const transform_args& how) const {
  auto made = open(in, out, how);
  for (std::int64_t number = 0; number < nest_.runs(); ++number) made->launch_run(number, how);
  return made;
}

template <class T>
auto cuda_transform<T>::form_of(const unsigned char* in, unsigned char* out, const transform_args& how) const -> form {
  const geometry& shape = nest_.inner;
  const auto reads_on = [&](std::int64_t boundary) { return aligned(in, input_, shape.input.distance, &nest_loop::input, boundary); };
  constexpr std::int64_t pair = 2 * sizeof(T);
  const bool paired = reads_on(pair) && aligned(out, output_, shape.output.distance, &nest_loop::output, pair);
  return {how.direction,
          how.scale != 1,
          shape.batch,
          alignment{reads_on(16), paired},
          inject::armed_sites(how.injector) != 0,
          options_.end_to_end && in != out};
}

template <class T>
std::string cuda_transform<T>::why_not_ready(const unsigned char* in, unsigned char* out, const transform_args& how, bool compile) const {
  const std::vector<ballast::cuda::kernel_request> wanted = missing(*best_->program, form_of(in, out, how));
  return wanted.empty() ? std::string() : device_->why_not_ready(wanted, compile);
}

template <class T>
std::unique_ptr<open_runs> cuda_transform<T>::open(const unsigned char* in, unsigned char* out, const transform_args& how) const {
  const form whole = form_of(in, out, how);
  try {
    if (choice by = choose(whole, how); by.by != best_) return open(by.by, std::move(by.why_fallback), whole, in, out, how);
  } catch (const std::bad_alloc&) {  // the kernels of the problem may need less memory
  }
  gives_up_fallback(whole, how.stream);
  return open(best_, "", whole, in, out, how);
}

template <class T>
std::unique_ptr<open_runs> cuda_transform<T>::open(const server& by, std::string why_fallback, const form& whole, const unsigned char* in,
                                                   unsigned char* out, const transform_args& how) const {
  core::vector<const prepared*> forms;
  for (const form& each : chunks_of(*by->program, whole)) forms.push_back(&by->program->prepare(each, how.threads));
  return std::make_unique<flight>(*this, by, std::move(why_fallback), std::move(forms), in, out, how);
}

template <class Made>
std::unique_ptr<Made> make_by(const nested_geometry& shape, precision type, const transform_options& options) {
  const auto on = ballast::cuda::current_device();
  if (type == precision::f32) return std::make_unique<cuda_transform<float>>(on, shape, options);
  return std::make_unique<cuda_transform<double>>(on, shape, options);
}

}  // namespace

std::unique_ptr<transform> make_transform(const nested_geometry& shape, precision type, const transform_options& options) {
  return make_by<transform>(shape, type, options);
}

std::unique_ptr<run_by_run> make_run_by_run(const nested_geometry& shape, precision type, const transform_options& options) {
  return make_by<run_by_run>(shape, type, options);
}

}  // namespace ballast::fft::cuda
