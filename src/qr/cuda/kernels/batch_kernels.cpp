// Builds the requests for the batch kernels: policies as text, threads, shared memory.
// Layer: backend "cuda" of QR.
#include "qr/cuda/kernels/batch_kernels.hpp"

#include <string>
#include <utility>

#include "cuda/jit/expression.hpp"

namespace ballast::qr::cuda {

namespace {

std::string text_of(const batch_policy& p) {
  return ballast::cuda::policy_text(p, "ballast::qr::cuda::batch_policy")
      .add("lanes", &batch_policy::lanes)
      .add("rows", &batch_policy::rows)
      .add("groups", &batch_policy::groups)
      .add("columns", &batch_policy::columns)
      .add("matrices", &batch_policy::matrices)
      .add("blocks", &batch_policy::blocks)
      .add("resident", &batch_policy::resident)
      .add("resident_single", &batch_policy::resident_single)
      .text();
}

template <class S, std::size_t... Which>
std::int64_t shared_of(int which, std::index_sequence<Which...>) {
  std::int64_t bytes = 0;
  (
      [&] {
        constexpr batch_policy p = k_batch_policies[Which];
        if (static_cast<int>(Which) == which)
          bytes = p.matrices * k_batch_pitch<S, p> + static_cast<std::int64_t>(sizeof(batch_weights<p>));
      }(),
      ...);
  return bytes;
}

}  // namespace

int batch_policy_for(batch_work what, std::int64_t m, std::int64_t n, const ballast::cuda::capabilities& on) {
  for (std::size_t i = 0; i < k_batch_policies.size(); ++i) {
    const batch_policy& p = k_batch_policies[i];
    if (p.blocks > 1 && (what != batch_work::factor || on.major < 9)) continue;
    if (shared_of<double>(static_cast<int>(i), std::make_index_sequence<k_batch_policies.size()>()) > on.shared_per_block) continue;
    if (m <= p.lanes * p.rows && (what != batch_work::factor || n <= batch_width(static_cast<int>(i)))) return static_cast<int>(i);
  }
  return -1;
}

template <class S>
ballast::cuda::kernel_request batch_kernel(batch_work what, int which, bool instrumented) {
  const batch_policy& p = k_batch_policies[static_cast<std::size_t>(which)];
  const std::string type = sizeof(S) == 4 ? "float" : "double";
  const std::string name = what == batch_work::factor ? "ballast::qr::cuda::batch_factor_kernel" : "ballast::qr::cuda::batch_apply_kernel";
  std::string expression;
  if (what == batch_work::factor) {
    expression = ballast::cuda::kernel_expression(name, {type, text_of(p)}, instrumented);
  } else {
    expression = ballast::cuda::kernel_expression(name, {type, text_of(p), what == batch_work::solve ? "true" : "false"}, instrumented);
  }
  return {.header = "qr/cuda/batch/batch.cuh",
          .expression = std::move(expression),
          .threads = p.lanes * p.groups * p.matrices,
          .shared = shared_of<S>(which, std::make_index_sequence<k_batch_policies.size()>()),
          .cluster = p.blocks,
          .spills = instrumented ? 4096 : 1024,  // most of them around the checks, after the steps
          .stack = instrumented ? 4096 : 512};
}

template <class S>
std::vector<ballast::cuda::kernel_request> batch_kernels(const ballast::cuda::capabilities& on, bool instrumented) {
  std::vector<ballast::cuda::kernel_request> made;
  for (int which = 0; which < static_cast<int>(k_batch_policies.size()); ++which) {
    const int blocks = k_batch_policies[static_cast<std::size_t>(which)].blocks;
    if (blocks > 1 && on.major < 9) continue;
    made.push_back(batch_kernel<S>(batch_work::factor, which, instrumented));
    if (blocks > 1) continue;
    made.push_back(batch_kernel<S>(batch_work::apply, which, instrumented));
    made.push_back(batch_kernel<S>(batch_work::solve, which, instrumented));
  }
  return made;
}

template ballast::cuda::kernel_request batch_kernel<float>(batch_work, int, bool);
template ballast::cuda::kernel_request batch_kernel<double>(batch_work, int, bool);
template std::vector<ballast::cuda::kernel_request> batch_kernels<float>(const ballast::cuda::capabilities&, bool);
template std::vector<ballast::cuda::kernel_request> batch_kernels<double>(const ballast::cuda::capabilities&, bool);

}  // namespace ballast::qr::cuda
