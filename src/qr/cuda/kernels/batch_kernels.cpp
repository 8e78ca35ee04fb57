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

// The policies of real or of complex numbers.
struct policy_range {
  int first = 0, end = 0;
};
constexpr policy_range policies_of(bool complex) {
  return complex ? policy_range{k_real_policies, static_cast<int>(k_batch_policies.size())} : policy_range{0, k_real_policies};
}

template <class S, std::size_t... Which>
std::int64_t shared_of(int which, std::index_sequence<Which...>) {
  constexpr int first = policies_of(is_complex<S>).first;
  std::int64_t bytes = 0;
  (
      [&] {
        constexpr batch_policy p = k_batch_policies[Which + first];
        if (static_cast<int>(Which) + first == which)
          bytes = p.matrices * k_batch_pitch<S, p> + static_cast<std::int64_t>(sizeof(batch_weights<p>));
      }(),
      ...);
  return bytes;
}
template <class S>
std::int64_t shared_of(int which) {
  constexpr policy_range all = policies_of(is_complex<S>);
  return shared_of<S>(which, std::make_index_sequence<all.end - all.first>());
}

template <class S>
std::string type_of() {
  const std::string component = sizeof(real_of<S>) == 4 ? "float" : "double";
  return is_complex<S> ? "ballast::qr::cuda::complex_number<" + component + ">" : component;
}

}  // namespace

int batch_policy_for(batch_work what, std::int64_t m, std::int64_t n, const ballast::cuda::capabilities& on, bool complex) {
  const policy_range all = policies_of(complex);
  for (int i = all.first; i < all.end; ++i) {
    const batch_policy& p = k_batch_policies[static_cast<std::size_t>(i)];
    if (p.blocks > 1 && (what != batch_work::factor || on.major < 9)) continue;
    if ((complex ? shared_of<complex_number<double>>(i) : shared_of<double>(i)) > on.shared_per_block) continue;
    if (m <= p.lanes * p.rows && (what != batch_work::factor || n <= batch_width(i))) return i;
  }
  return -1;
}

template <class S>
ballast::cuda::kernel_request batch_kernel(batch_work what, int which, bool instrumented) {
  const batch_policy& p = k_batch_policies[static_cast<std::size_t>(which)];
  const std::string type = type_of<S>();
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
          .shared = shared_of<S>(which),
          .cluster = p.blocks,
          // Most of them around the checks, after the steps. Complex kernels with eight rows for each thread spill in the steps, too.
          .spills = is_complex<S>  ? 8192
                    : instrumented ? 4096
                                   : 1024,
          .stack = instrumented    ? 4096
                   : is_complex<S> ? 1024
                                   : 512};
}

template <class S>
std::vector<ballast::cuda::kernel_request> batch_kernels(const ballast::cuda::capabilities& on, bool instrumented) {
  std::vector<ballast::cuda::kernel_request> made;
  for (int which = policies_of(is_complex<S>).first; which < policies_of(is_complex<S>).end; ++which) {
    const int blocks = k_batch_policies[static_cast<std::size_t>(which)].blocks;
    if (blocks > 1 && on.major < 9) continue;
    made.push_back(batch_kernel<S>(batch_work::factor, which, instrumented));
    if (blocks > 1) continue;
    made.push_back(batch_kernel<S>(batch_work::apply, which, instrumented));
    made.push_back(batch_kernel<S>(batch_work::solve, which, instrumented));
  }
  return made;
}

#define BALLAST_INSTANTIATE(S)                                                   \
  template ballast::cuda::kernel_request batch_kernel<S>(batch_work, int, bool); \
  template std::vector<ballast::cuda::kernel_request> batch_kernels<S>(const ballast::cuda::capabilities&, bool);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(complex_number<float>)
BALLAST_INSTANTIATE(complex_number<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::cuda
