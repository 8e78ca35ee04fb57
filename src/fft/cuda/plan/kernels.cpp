// Policies as text, and the resources that their kernels need per block.
#include "fft/cuda/plan/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/device/compilation.hpp"
#include "cuda/jit/expression.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/problem.hpp"
#include "fft/start.hpp"

namespace ballast::fft::cuda {

namespace {

using ballast::cuda::policy_text;

std::string text_of(const exchange_layout& e) {
  return policy_text(e, "")
      .add("columns", &exchange_layout::columns)
      .add("shift", &exchange_layout::shift)
      .add("mask", &exchange_layout::mask)
      .add("run", &exchange_layout::run)
      .add("pad", &exchange_layout::pad)
      .text();
}

std::string text_of(const line_policy& p) {
  using l = line_policy;
  return policy_text(p, "ballast::fft::cuda::line_policy")
      .add("wide", &l::wide)
      .add("inverse", &l::inverse)
      .add("scaled", &l::scaled)
      .add("in_columns", &l::in_columns)
      .add("out_columns", &l::out_columns)
      .add("staged", &l::staged)
      .add("split", &l::split)
      .add("load", &l::load, "ballast::fft::cuda::load_form")
      .add("store", &l::store, "ballast::fft::cuda::store_form")
      .add("load_factor", &l::load_factor, "ballast::fft::cuda::factor_form")
      .add("store_factor", &l::store_factor, "ballast::fft::cuda::factor_form")
      .add("check", &l::check, "ballast::fft::cuda::check_form")
      .add("source_unit", &l::source_unit)
      .add("target_unit", &l::target_unit)
      .add("flat", &l::flat)
      .add("factors_by_middle", &l::factors_by_middle)
      .add("padded", &l::padded)
      .add("truncated", &l::truncated)
      .add("shared_source", &l::shared_source)
      .add("shared_target", &l::shared_target)
      .add("repair", &l::repair, "ballast::fft::cuda::repair_form")
      .add("fallback", &l::fallback)
      .add("reals", &l::reals, "ballast::fft::cuda::reals_form")
      .add("sines", &l::sines)
      .add("points", &l::points)
      .add("transactions", &l::transactions)
      .add("length", &l::length)
      .add("lines", &l::lines)
      .add("threads", &l::threads)
      .add("min_blocks", &l::min_blocks)
      .add("stages", &l::stages)
      .add("cluster", &l::cluster)
      .add("cluster_after", &l::cluster_after)
      .add("source_step", &l::source_step)
      .add("target_step", &l::target_step)
      .add("radix", &l::radix)
      .add("exchange", &l::exchange, [](const exchange_layout& e) { return text_of(e); })
      .text();
}

}  // namespace

std::string kernel_expression(const line_policy& p, bool instrumented) {
  const char* const kernel = p.check == check_form::composite ? "ballast::fft::cuda::composite_kernel"
                             : p.repair != repair_form::none  ? "ballast::fft::cuda::repair_kernel"
                                                              : "ballast::fft::cuda::line_kernel";
  return ballast::cuda::kernel_expression(kernel, {text_of(p)}, instrumented);
}

ballast::cuda::kernel_request kernel_for(const line_policy& policy, bool instrumented) {
  ballast::cuda::kernel_request made;
  if (policy.fallback && policy != kernel_policy(policy)) return kernel_for(kernel_policy(policy), instrumented);
  made.header = policy.check == check_form::composite ? "fft/cuda/schemes/composite.cuh"
                : policy.repair != repair_form::none  ? "fft/cuda/kernel/repair.cuh"
                                                      : "fft/cuda/kernel/line.cuh";
  made.expression = kernel_expression(policy, instrumented);
  made.threads = policy.block();
  made.shared = policy.shared_bytes();
  made.blocks = policy.fallback ? 0 : policy.min_blocks;
  made.cluster = policy.cluster;
  made.overlaps = true;
  made.loads.streamed = policy.streamed_loads();
  // Strikes are calls, and a thread keeps its numbers in memory across a call. Other kernels have no room for that.
  // Real lines spill a few addresses, however many registers they have: most those of f64 with an odd number of threads.
  made.spills = instrumented ? 4096 : policy.of_reals() ? 144 : 0;
  return made;
}

ballast::cuda::kernel_request kernel_for_fused(const line_policy& first, const line_policy& second, bool instrumented) {
  ballast::cuda::kernel_request made = kernel_for(first, instrumented);
  made.header = "fft/cuda/kernel/fused_passes.cuh";
  made.expression = ballast::cuda::kernel_expression("ballast::fft::cuda::fused_kernel", {text_of(first), text_of(second)}, instrumented);
  made.shared = ticket_offset(first, second) + k_ticket_bytes;
  return made;
}

ballast::cuda::kernel_request kernel_for(const schedule& made, std::size_t i, bool instrumented) {
  const pass& one = made.passes[i];
  return one.pair ? kernel_for_fused(one.policy, made.passes[i + 1].policy, instrumented) : kernel_for(one.policy, instrumented);
}

double seconds_to_start(const array_problem& shape, precision type, bool protect, bool begin) {
  ballast::cuda::device& on = *ballast::cuda::current_device();
  std::vector<ballast::cuda::kernel_request> kernels;
  const auto add = [&](const geometry& of, bool inverse) {
    schedule_request wanted{.shape = of, .precision = type};
    wanted.direction = inverse ? direction::inverse : direction::forward;
    wanted.scaled = inverse;  // as by norm backward, the default
    wanted.check = protect ? check_form::verify_before_store : check_form::none;
    const schedule made = make_schedule(wanted, on.about());
    for (std::size_t i = 0; i < made.passes.size(); i += made.passes[i].pair ? 2 : 1) {
      ballast::cuda::kernel_request one = kernel_for(made, i, false);
      if (std::ranges::find(kernels, one) == kernels.end()) kernels.push_back(std::move(one));
    }
  };
  if (shape.kind == kind::r2r) {
    for (std::size_t i = 0; i < shape.axes.size(); ++i) {
      const axis& each = shape.axes[i];
      if (!one_pass_of(each.what, each.n, type == precision::f64, on.about())) return 0;
      add(lines_along(shape, i, each.what, i == 0).inner, false);
    }
  } else {
    const auto nest = shape.split ? std::nullopt : nest_of(shape);
    if (!nest) return 0;
    add(nest->inner, shape.kind == kind::c2r);
  }
  const double seconds = ballast::cuda::seconds_to_compile(on, kernels);
  if (begin && seconds > 0) (void)on.why_not_ready(kernels, true);
  return seconds;
}

}  // namespace ballast::fft::cuda
