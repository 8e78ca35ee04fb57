// Builds the requests for the batch kernels: policies as text, threads, shared memory.
// Layer: backend "cuda" of QR.
#include "qr/cuda/kernels/batch_kernels.hpp"

#include <algorithm>
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

// Bytes of shared memory of a block.
std::int64_t tall_shared(tall_size size, const ballast::cuda::capabilities& on) {
  constexpr std::int64_t reserved = 1024;  // bytes that the driver takes of each block
  const std::int64_t large = on.shared_per_block;
  if (size == tall_size::large) return large;
  return std::min(large, std::max<std::int64_t>(0, on.shared_per_multiprocessor / k_small_tall.resident - reserved) / 256 * 256);
}
constexpr std::int64_t k_most_tall_numbers = std::int64_t{1} << 28;  // places in a tile are numbers of 32 bits

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
  const std::string type = name_of_number<S>();
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
  // tall_size::outside is the code of tall_size::large with less shared memory.
  if constexpr (!is_complex<S>) {
    for (const batch_work step : {batch_work::factor, batch_work::apply}) {
      for (const tall_size size : {tall_size::small, tall_size::large}) made.push_back(tall_kernel<S>(step, size, on, instrumented));
    }
  }
  return made;
}

tall_choice choose_tall(batch_work step, std::int64_t m, std::int64_t n, std::int64_t bytes, const ballast::cuda::capabilities& on) {
  const auto tile = [&](std::int64_t columns) {
    return bytes == 4 ? tall_tile_bytes<float>(m, columns) : tall_tile_bytes<double>(m, columns);
  };
  const std::int64_t front = bytes == 4 ? k_tall_front<float> : k_tall_front<double>;
  // Q is applied to parts of the columns, of about as many as give each warp some.
  std::int64_t width = step == batch_work::factor ? n : std::min<std::int64_t>(n, k_tall_slab_columns);
  const std::int64_t least = step == batch_work::factor ? n : std::min<std::int64_t>(n, 8);
  if (front + tile(width) <= tall_shared(tall_size::small, on)) return {tall_size::small, static_cast<int>(width), 0};
  const std::int64_t room = tall_shared(tall_size::large, on) - front;
  for (; width >= least; --width) {
    if (tile(width) <= room) return {tall_size::large, static_cast<int>(width), 0};
  }
  width = step == batch_work::factor ? n : std::min<std::int64_t>(n, k_tall_slab_columns);
  constexpr std::int64_t unit = 256, share = 16;
  const auto pitch = [&](std::int64_t columns) { return (tile(columns) + unit - 1) / unit * unit; };
  // The memory for Q's products is measured before the number of columns is known, so that they do not change the number of slabs.
  const std::int64_t widest = step == batch_work::factor ? n : k_tall_slab_columns;
  const std::int64_t slabs = std::clamp<std::int64_t>(on.memory / share / pitch(widest), 1, on.multiprocessors);
  return {tall_size::outside, static_cast<int>(width), pitch(width), static_cast<int>(slabs)};
}

bool takes_tall(std::int64_t m, std::int64_t n, std::int64_t count, std::int64_t bytes, const ballast::cuda::capabilities& on) {
  if (n > k_tall_columns || m > k_most_tall_numbers / std::max<std::int64_t>(n, 1)) return false;
  const tall_choice made = choose_tall(batch_work::factor, m, n, bytes, on);
  // Microseconds. A step passes over its columns five times, at the speed of shared memory or of a multiprocessor's part of L2; a call for
  // one matrix takes some 400, and its flops.
  const double numbers = static_cast<double>(m) * static_cast<double>(n), steps = static_cast<double>(std::min(m, n));
  const double speed = made.size == tall_size::outside ? 3e4 : 1.2e5;
  const double of_block = 20 + steps * (2 + 2.5 * numbers * static_cast<double>(bytes) / speed);
  const double side_by_side =
      made.size == tall_size::outside ? made.slabs : on.multiprocessors * (made.size == tall_size::small ? k_small_tall.resident : 1.0);
  const double rounds = std::max(1.0, static_cast<double>(count) / side_by_side);
  return rounds * of_block <= static_cast<double>(count) * (400 + 2 * numbers * steps / 5e6);
}

template <class S>
ballast::cuda::kernel_request tall_kernel(batch_work step, tall_size size, const ballast::cuda::capabilities& on, bool instrumented) {
  const tall_policy& p = size == tall_size::small ? k_small_tall : k_large_tall;
  const std::string policy = ballast::cuda::policy_text(p, "ballast::qr::cuda::tall_policy")
                                 .add("threads", &tall_policy::threads)
                                 .add("resident", &tall_policy::resident)
                                 .text();
  const std::string name = step == batch_work::factor ? "ballast::qr::cuda::tall_factor_kernel" : "ballast::qr::cuda::tall_apply_kernel";
  return {.header = "qr/cuda/batch/batch_tall.cuh",
          .expression = ballast::cuda::kernel_expression(name, {sizeof(S) == 4 ? "float" : "double", policy}, instrumented),
          .threads = p.threads,
          .shared = size == tall_size::outside ? k_tall_front<S> : tall_shared(size, on),
          .spills = instrumented ? 4096 : 0};
}

template ballast::cuda::kernel_request tall_kernel<float>(batch_work, tall_size, const ballast::cuda::capabilities&, bool);
template ballast::cuda::kernel_request tall_kernel<double>(batch_work, tall_size, const ballast::cuda::capabilities&, bool);
#define BALLAST_INSTANTIATE(S)                                                   \
  template ballast::cuda::kernel_request batch_kernel<S>(batch_work, int, bool); \
  template std::vector<ballast::cuda::kernel_request> batch_kernels<S>(const ballast::cuda::capabilities&, bool);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(complex_number<float>)
BALLAST_INSTANTIATE(complex_number<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::cuda
