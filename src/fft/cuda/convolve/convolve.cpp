// Groups of blocks: all steps of a group are enqueued, then the host reads what their checks found, and computes the group again if one
// failed.
#include "fft/cuda/convolve/convolve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/format.hpp"
#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/jit/expression.hpp"
#include "cuda/memory/device_staging.hpp"
#include "cuda/memory/shared_state.hpp"
#include "cuda/memory/workspace.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/convolve/arguments.hpp"
#include "fft/problem.hpp"
#include "fft/tables/block_division.hpp"
#include "fft/tables/checks.hpp"
#include "fft/tables/circle.hpp"
#include "fft/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cuda {

namespace {

using ballast::cuda::aligned_bytes;
using ballast::cuda::device_call;
using ballast::cuda::kernel;

std::int64_t& overriding_group() {
  static std::int64_t most = 0;
  return most;
}

std::int64_t divided(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

// The places of kernels in convolve_kernels.
enum which_kernel : std::size_t { k_pad, k_pad_check, k_product, k_product_check, k_add, k_add_check, k_judge, k_judge_wide };

// An axis and its division into blocks.
struct divided_axis : convolution_on_device::axis, block_division {};

// The axes of more than one point; one if there are none.
std::vector<divided_axis> divided_axes(const convolution_on_device& what) {
  std::vector<convolution_on_device::axis> all;
  std::ranges::copy_if(what.axes, std::back_inserter(all), [](const auto& each) { return each.signal > 1 || each.kernel > 1; });
  if (all.empty()) all.emplace_back();
  std::vector<std::int64_t> n, m;
  for (const convolution_on_device::axis& each : all) {
    n.push_back(each.signal);
    m.push_back(each.kernel);
  }
  const std::vector<block_division> by = divide_for_device(n, m, what.precision, what.complex, what.protect);
  std::vector<divided_axis> made;
  for (std::size_t i = 0; i < all.size(); ++i) made.push_back({all[i], by[i]});
  return made;
}

// `Axes`: as many as the arguments of its kernels have room for.
template <class T, int Axes>
class blocks_on_device final : public device_convolution {
 public:
  blocks_on_device(const convolution_on_device& what, std::vector<divided_axis> axes)
      : what_(what), axes_(std::move(axes)), device_(ballast::cuda::current_device()), width_(width_of(what)) {
    fft::problem lines{.kind = what.complex ? kind::c2c : kind::r2c, .precision = what.precision};
    std::int64_t blocks = 1;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      const divided_axis& each = axes_[i];
      if (each.length > 1) lines.shape.push_back(each.length);
      block_.points *= each.length;
      blocks *= each.blocks;
      elements_.signal *= each.signal;
      elements_.kernel *= each.kernel;
      elements_.out *= each.out_count;
      if (each.blocks > axes_[along_].blocks) along_ = i;
    }
    if (lines.shape.empty()) lines.shape = {1};
    block_.spectrum = what.complex ? block_.points : block_.points / lines.shape.back() * (lines.shape.back() / 2 + 1);
    block_.parts = divided(block_.points, k_convolve_tile);
    constexpr std::int64_t k_group_bytes = std::int64_t{1} << 28;  // the padded blocks of a group take at most these
    const std::int64_t most = overriding_group() != 0 ? overriding_group() : k_group_bytes / width_;
    const std::int64_t rows = axes_[along_].blocks, row = blocks / rows;
    rows_ = std::min(std::max<std::int64_t>(most / (row * block_.points), 2), rows);
    group_ = rows_ * row;
    groups_ = rows_ == rows ? 1 : divided(rows - 1, rows_ - 1);
    of_kernel_ = make_transform(describe(lines), what.precision, what.protect, what.scheme);
    lines.batch = group_;
    forward_ = make_transform(describe(lines), what.precision, what.protect, what.scheme);
    if (!what.complex) lines.kind = kind::c2r;
    const array_problem back = describe(lines);
    backward_ = make_transform(back, what.precision, what.protect, what.scheme);
    scale_ = norm_factor(back, norm::backward, direction::inverse);
    kernels_ = device_->load_all(convolve_kernels(what.precision, what.complex, axes_.size(), false));
    if (what.protect) make_powers();
    divide_memory();
  }

  void run(const void* signal, const void* kernel, void* out, const run::settings& how, run::recorder& seen,
           inject::active_injector& injector) const override;

 private:
  class execution_of;

  static std::int64_t width_of(const convolution_on_device& what) { return (what.complex ? 2 : 1) * static_cast<std::int64_t>(sizeof(T)); }

  void make_powers() {
    powers_ = ballast::cuda::share_table(device_, fmt::format("fft convolve powers {}", block_.parts), 0, [&] {
      std::vector<std::complex<double>> made;
      const auto add = [&](std::size_t point, std::int64_t exponent) { made.emplace_back(circle_power<long double>(0, point, exponent)); };
      for (std::size_t point = 0; point < 2; ++point) {
        for (std::int64_t i = 0; i < k_convolve_threads; ++i) add(point, i);
        for (std::int64_t i = 0; i < block_.parts; ++i) add(point, i * k_convolve_tile);
      }
      return made;
    });
    for (std::size_t point = 0; point < 2; ++point) {
      const std::complex<double> z(circle_power<long double>(0, point, k_convolve_threads));
      stride_[2 * point] = z.real();
      stride_[2 * point + 1] = z.imag();
    }
  }

  void divide_memory() {
    std::int64_t all = 0;
    const auto take = [&](std::int64_t bytes) { return std::exchange(all, all + aligned_bytes(bytes)); };
    const std::int64_t number = 2 * static_cast<std::int64_t>(sizeof(T)),
                       sums = k_convolve_sums * static_cast<std::int64_t>(sizeof(double));
    at_.verdict = take(sizeof(convolve_verdict));
    at_.blocks = take(group_ * block_.points * width_);
    at_.spectra = take(group_ * block_.spectrum * number);
    // The check of the products needs both factors.
    at_.products = what_.protect ? take(group_ * block_.spectrum * number) : at_.spectra;
    at_.kernel = take(block_.points * width_);
    at_.spectrum_of_kernel = take(block_.spectrum * number);
    if (what_.protect) {
      at_.in = take(group_ * block_.parts * sums);
      at_.out = take(group_ * block_.parts * sums);
      at_.sums_of_kernel = take(block_.parts * sums);
      at_.judged = take(group_ * static_cast<std::int64_t>(sizeof(convolve_judgement)));
    }
    workspaces_.emplace(device_, ballast::cuda::k_ring_bytes + all);
  }

  convolution_on_device what_;
  std::vector<divided_axis> axes_;
  std::shared_ptr<ballast::cuda::device> device_;
  std::int64_t width_;  // bytes of an element
  struct {
    std::int64_t signal = 1, kernel = 1, out = 1;
  } elements_;
  struct {
    std::int64_t points = 1, spectrum = 1, parts = 1;  // elements, numbers of the spectrum, tiles
  } block_;
  // A group has `rows_` blocks along axis `along_`, which has the most, and all blocks along the others: `group_` blocks.
  std::int64_t rows_ = 1, group_ = 1, groups_ = 1;
  std::size_t along_ = 0;
  std::unique_ptr<transform> of_kernel_, forward_, backward_;
  double scale_ = 1;
  std::vector<const kernel*> kernels_;
  std::shared_ptr<const ballast::cuda::device_table> powers_;
  std::array<double, 4> stride_{};
  struct {
    std::int64_t verdict = 0, blocks = 0, spectra = 0, products = 0, kernel = 0, spectrum_of_kernel = 0;
    std::int64_t in = 0, out = 0, sums_of_kernel = 0, judged = 0;
  } at_;  // bytes from the begin of the workspace
  std::optional<ballast::cuda::workspace_pool> workspaces_;
};

// One call.
template <class T, int Axes>
class blocks_on_device<T, Axes>::execution_of {
 public:
  execution_of(const blocks_on_device& plan, const void* signal, const void* kernel, void* out, const run::settings& how,
               run::recorder& seen, inject::active_injector& injector)
      : plan_(plan),
        what_(plan.what_),
        signal_(signal),
        kernel_(kernel),
        out_(out),
        how_(how),
        seen_(seen),
        injector_(injector),
        work_(plan.device_, plan.workspaces_->take({}, how.stream), injector, how.stream),
        kernels_(work_.instrumented() ? plan.device_->load_all(convolve_kernels(what_.precision, what_.complex, plan.axes_.size(), true))
                                      : plan.kernels_) {}

  void run() {
    seen_.runs_on(plan_.device_->about().name);
    for (std::int64_t group = 0; group < plan_.groups_ && !seen_.uncorrectable(); ++group) {
      if (!what_.protect) {
        compute(group);
        continue;
      }
      const auto once = [&](int) -> std::optional<abft::finding> {
        compute(group);
        if (seen_.uncorrectable()) return std::nullopt;
        return judge(group);
      };
      if (run::attempt(seen_, how_.protection, "fft.convolution", 0, once) == abft::outcome::uncorrectable) return;
    }
  }

 private:
  // Enqueues the steps of a group, and waits for them.
  void compute(std::int64_t group) {
    auto* const verdict = memory<convolve_verdict>(plan_.at_.verdict);
    if (what_.protect) plan_.device_->zero(verdict, sizeof *verdict, how_.stream);
    std::array<std::unique_ptr<run::pending>, 3> transforms;
    // The scheme offline repairs when it is collected, so before its results are used.
    const auto made = [this](std::unique_ptr<run::pending>& each) {
      if (what_.scheme == "offline") std::exchange(each, nullptr)->collect(seen_);
    };
    pad(-1, k_pad);
    if (what_.protect) pad(-1, k_pad_check);
    transforms[0] = transform_by(*plan_.of_kernel_, plan_.at_.kernel, plan_.at_.spectrum_of_kernel, direction::forward, 1);
    made(transforms[0]);
    pad(group, k_pad);
    if (what_.protect) pad(group, k_pad_check);
    transforms[1] = transform_by(*plan_.forward_, plan_.at_.blocks, plan_.at_.spectra, direction::forward, 1);
    made(transforms[1]);
    multiply(group, k_product);
    transforms[2] = transform_by(*plan_.backward_, plan_.at_.products, plan_.at_.blocks, direction::inverse, plan_.scale_);
    made(transforms[2]);
    if (what_.protect) multiply(group, k_product_check);  // the products waited for the transform
    add(group, k_add);
    if (what_.protect) {
      add(group, k_add_check);
      compare(group);
    }
    for (const auto& each : transforms) {
      if (each) each->collect(seen_);
    }
  }

  template <class Part>
  Part* memory(std::int64_t at) const {
    return reinterpret_cast<Part*>(work_.memory() + at);
  }
  // Groups have one row of blocks in common, the last two perhaps more: results of neighbouring blocks overlap.
  std::int64_t first_of(std::int64_t group) const {
    return std::min(group * (plan_.rows_ - 1), plan_.axes_[plan_.along_].blocks - plan_.rows_);
  }
  // The rows of a group that were stored with the group before.
  std::int64_t lead_of(std::int64_t group) const { return group == 0 ? 0 : first_of(group - 1) + plan_.rows_ - first_of(group); }

  std::unique_ptr<run::pending> transform_by(const transform& by, std::int64_t from, std::int64_t to, direction way, double scale) const {
    const double check_scale = way == direction::forward ? 1 : 1 / static_cast<double>(plan_.block_.points);
    return by.enqueue(memory<void>(from), memory<void>(to),
                      {way, scale, check_scale, false, how_.protection, 1, how_.stream, {}, seen_, injector_});
  }

  // The blocks of a group, or the padded kernel (−1), which is one block.
  convolve_blocks<Axes> blocks_of(std::int64_t group) const {
    convolve_blocks<Axes> made{};
    const bool kernel = group < 0;
    std::int64_t rest = k_convolve_threads;
    for (std::size_t i = plan_.axes_.size(); i-- > 0;) {
      const divided_axis& axis = plan_.axes_[i];
      const bool along = i == plan_.along_;
      made.length[i] = axis.length;
      made.step[i] = kernel ? axis.length : axis.step;
      made.extent[i] = kernel ? 1 : along ? plan_.rows_ : axis.blocks;
      made.first[i] = kernel || !along ? 0 : first_of(group);
      made.turn[i] = i > 0 ? rest % axis.length : rest;
      rest /= axis.length;
    }
    made.points = plan_.block_.points;
    made.parts = plan_.block_.parts;
    made.tiles = kernel ? plan_.block_.parts : plan_.groups_ * plan_.group_ * plan_.block_.parts;
    made.first_tile = kernel ? 0 : group * plan_.group_ * plan_.block_.parts;
    made.axes = static_cast<std::int32_t>(plan_.axes_.size());
    return made;
  }

  // Pads the blocks of a group, or the kernel (−1), or compares them with the operand: with arguments of its own, since wrong ones would
  // pad and sum alike.
  void pad(std::int64_t group, which_kernel by) const {
    const bool kernel = group < 0, reversed = kernel ? what_.kernel_reversed : what_.signal_reversed;
    convolve_pad_arguments<Axes> a{};
    a.blocks = blocks_of(group);
    a.from = kernel ? kernel_ : signal_;
    a.to = memory<void>(kernel ? plan_.at_.kernel : plan_.at_.blocks);
    a.elements = 1;
    for (std::size_t i = 0; i < plan_.axes_.size(); ++i) {
      a.count[i] = kernel ? plan_.axes_[i].kernel : plan_.axes_[i].signal;
      a.elements *= a.count[i];
    }
    a.reversed = reversed ? 1 : 0;
    a.turn = kernel ? 0 : 1;
    a.turns = 2;
    if (by == k_pad_check) {
      a.powers = static_cast<const double*>(plan_.powers_->data());
      std::ranges::copy(plan_.stride_, a.stride);
      a.sums = memory<double>(kernel ? plan_.at_.sums_of_kernel : plan_.at_.in);
      a.verdict = memory<convolve_verdict>(plan_.at_.verdict);
    }
    work_.launch(*kernels_[by], (kernel ? 1 : plan_.group_) * plan_.block_.parts, a);
  }

  void multiply(std::int64_t group, which_kernel by) const {
    convolve_product_arguments a{};
    a.from = memory<void>(plan_.at_.spectra);
    a.kernel = memory<void>(plan_.at_.spectrum_of_kernel);
    a.to = memory<void>(plan_.at_.products);
    a.points = plan_.block_.spectrum;
    a.parts = divided(plan_.block_.spectrum, k_convolve_tile);
    a.first_tile = group * plan_.group_ * a.parts;
    a.tiles = plan_.groups_ * plan_.group_ * a.parts;
    a.verdict = memory<convolve_verdict>(plan_.at_.verdict);
    work_.launch(*kernels_[by], plan_.group_ * a.parts, a);
  }

  void add(std::int64_t group, which_kernel by) const {
    convolve_add_arguments<Axes> a{};
    a.blocks = blocks_of(group);
    a.y = memory<void>(plan_.at_.blocks);
    a.out = out_;
    for (std::size_t i = 0; i < plan_.axes_.size(); ++i) {
      const divided_axis& axis = plan_.axes_[i];
      a.all[i] = axis.blocks;
      a.overlap[i] = axis.kernel - 1;
      a.lead[i] = i == plan_.along_ ? lead_of(group) : 0;
      a.out_first[i] = axis.out_first;
      a.out_count[i] = axis.out_count;
    }
    a.verdict = memory<convolve_verdict>(plan_.at_.verdict);
    if (by == k_add_check) {
      a.powers = static_cast<const double*>(plan_.powers_->data());
      std::ranges::copy(plan_.stride_, a.stride);
      a.sums = memory<double>(plan_.at_.out);
    }
    work_.launch(*kernels_[by], plan_.group_ * plan_.block_.parts, a);
  }

  // Compares the sums of each block. The threshold is that of the host (api/convolution_blocks.cpp).
  void compare(std::int64_t group) const {
    const auto points = static_cast<double>(plan_.block_.points);
    convolve_judge_arguments a{};
    a.in = memory<double>(plan_.at_.in);
    a.kernel = memory<double>(plan_.at_.sums_of_kernel);
    a.out = memory<double>(plan_.at_.out);
    a.blocks = plan_.group_;
    a.parts = plan_.block_.parts;
    a.first_block = group * plan_.group_;
    a.all_blocks = plan_.groups_ * plan_.group_;
    a.relative = k_kappa * abft::unit_roundoff<T> * std::sqrt(std::log2(points) + 7);
    a.smallest = thresholds::output_underflow<T>(points) * 4;
    a.largest = abft::overflow_norm<T>(16 * points);
    a.root = std::sqrt(points);
    a.low = sizeof(T) == 4 ? 0 : abft::k_squares<double>.low;
    a.judged = memory<convolve_judgement>(plan_.at_.judged);
    a.verdict = memory<convolve_verdict>(plan_.at_.verdict);
    constexpr std::int64_t k_parts_of_warp = 16;  // a warp would read more of them one after the other
    if (plan_.block_.parts > k_parts_of_warp)
      work_.launch(*kernels_[k_judge_wide], plan_.group_, a);
    else
      work_.launch(*kernels_[k_judge], divided(plan_.group_, k_convolve_threads / 32), a);
  }

  abft::finding judge(std::int64_t group) const {
    convolve_verdict read{};
    plan_.device_->copy(&read, memory<void>(plan_.at_.verdict), sizeof read, how_.stream);
    plan_.device_->synchronize(how_.stream);
    seen_.checked(2 * static_cast<std::uint64_t>(plan_.group_));
    abft::finding now;
    now.bits = read.bits == 0 ? 1 : read.bits;
    const std::int64_t first = group * plan_.group_;
    const auto all = static_cast<unsigned long long>(plan_.group_);
    if (read.differing != 0 || read.passed + read.failed + read.unjudged != all)
      return {.word = abft::k_fail, .bits = now.bits, .residual = 1, .index = first};
    if (read.passed == all) return now;
    core::vector<convolve_judgement> each(static_cast<std::size_t>(plan_.group_));
    plan_.device_->copy(each.data(), memory<void>(plan_.at_.judged), static_cast<std::int64_t>(each.size() * sizeof(convolve_judgement)),
                        how_.stream);
    plan_.device_->synchronize(how_.stream);
    const auto worst = std::ranges::find_if(
        each, [&](const convolve_judgement& one) { return read.failed != 0 ? one.word != abft::k_pass : one.open != 0; });
    now.judged = read.failed != 0;
    if (now.judged) now.word = abft::k_fail;
    if (worst == each.end()) return now;
    now.residual = worst->residual;
    now.threshold = worst->threshold;
    now.index = first + (worst - each.begin());
    return now;
  }

  const blocks_on_device& plan_;
  const convolution_on_device& what_;
  const void *signal_, *kernel_;
  void* out_;
  const run::settings& how_;
  run::recorder& seen_;
  inject::active_injector& injector_;
  device_call work_;
  std::vector<const kernel*> kernels_;
};

template <class T, int Axes>
void blocks_on_device<T, Axes>::run(const void* signal, const void* kernel, void* out, const run::settings& how, run::recorder& seen,
                                    inject::active_injector& injector) const {
  ballast::cuda::device_staging staging(device_, how.stream);
  signal = staging.read(signal, elements_.signal * width_);
  kernel = staging.read(kernel, elements_.kernel * width_);
  out = staging.write(out, elements_.out * width_);
  execution_of(*this, signal, kernel, out, how, seen, injector).run();
  if (!seen.uncorrectable()) staging.commit();
}

}  // namespace

std::vector<ballast::cuda::kernel_request> convolve_kernels(ballast::precision type, bool complex, std::size_t axes, bool instrumented) {
  const std::string number = type == precision::f32 ? "float" : "double", is_complex = complex ? "true" : "false";
  const std::string rank = axes > k_convolve_few_axes ? "0" : std::to_string(axes);
  constexpr std::int64_t k_warps = k_convolve_threads / 32, k_word = sizeof(double);
  std::vector<ballast::cuda::kernel_request> made;
  const auto add = [&](const char* name, std::initializer_list<std::string> parameters, std::int64_t shared) {
    ballast::cuda::kernel_request one;
    one.header = "fft/cuda/convolve/convolve.cuh";
    one.expression = ballast::cuda::kernel_expression(std::string("ballast::fft::cuda::") + name, parameters, instrumented);
    one.threads = k_convolve_threads;
    one.shared = shared;
    if (parameters.size() == 4 && rank == "0") one.stack = 5 * k_convolve_axes * k_word;  // indices and bounds of all axes
    made.push_back(std::move(one));
  };
  constexpr std::int64_t k_sums = k_warps * (k_convolve_sums + 1) * k_word;
  for (const bool check : {false, true})
    add("convolve_pad_kernel", {number, is_complex, rank, check ? "true" : "false"}, check ? k_sums : 0);
  for (const bool check : {false, true}) add("convolve_product_kernel", {number, check ? "true" : "false"}, 0);
  for (const bool check : {false, true})
    add("convolve_add_kernel", {number, is_complex, rank, check ? "true" : "false"}, check ? k_sums : 0);
  add("convolve_judge_kernel", {"false"}, 0);
  add("convolve_judge_kernel", {"true"}, (k_warps + 1) * 3 * k_convolve_sums * k_word);
  return made;
}

void override_convolution_group(std::int64_t most_elements) { overriding_group() = most_elements; }

std::unique_ptr<device_convolution> make_device_convolution(const convolution_on_device& what) {
  std::vector<divided_axis> axes = divided_axes(what);
  const bool few = axes.size() <= k_convolve_few_axes;
  const auto make = [&]<class T>(T) -> std::unique_ptr<device_convolution> {
    if (few) return std::make_unique<blocks_on_device<T, k_convolve_few_axes>>(what, std::move(axes));
    return std::make_unique<blocks_on_device<T, k_convolve_axes>>(what, std::move(axes));
  };
  return what.precision == precision::f32 ? make(float()) : make(double());
}

}  // namespace ballast::fft::cuda
