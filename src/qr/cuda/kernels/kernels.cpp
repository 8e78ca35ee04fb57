// Builds the requests for QR's kernels: templates, threads and shared memory.
// Layer: backend "cuda" of QR.
#include "qr/cuda/kernels/kernels.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/choice_kernels.hpp"
#include "qr/cuda/kernels/recovery_kernels.hpp"

namespace ballast::qr::cuda {

namespace {

constexpr const char* k_prefix = "ballast::qr::cuda::";

struct row {
  const char* header;
  const char* name;
  bool typed;
};

row row_of(work what) {
  switch (what) {
    case work::copy: return {"qr/cuda/layout/matrix.cuh", "copy_kernel", true};
    case work::compare: return {"qr/cuda/layout/matrix.cuh", "compare_kernel", true};
    case work::scan:
    case work::scan_double: return {"qr/cuda/layout/matrix.cuh", "scan_kernel", true};
    case work::exponents: return {"qr/cuda/layout/matrix.cuh", "exponents_kernel", true};
    case work::diagonal: return {"qr/cuda/layout/matrix.cuh", "diagonal_kernel", true};
    case work::form_v: return {"qr/cuda/layout/matrix.cuh", "form_v_kernel", true};
    case work::hold: return {"qr/cuda/layout/matrix.cuh", "hold_kernel", true};
    case work::random: return {"qr/cuda/layout/matrix.cuh", "random_kernel", false};
    case work::products_128:
    case work::products_64:
    case work::products_32: return {"qr/cuda/checks/checks.cuh", "products_kernel", true};
    case work::fold: return {"qr/cuda/checks/checks.cuh", "fold_kernel", false};
    case work::small: return {"qr/cuda/checks/checks.cuh", "small_kernel", true};
    case work::open: return {"qr/cuda/checks/checks.cuh", "open_kernel", true};
    case work::judge: return {"qr/cuda/checks/checks.cuh", "judge_kernel", true};
    case work::transformed: return {"qr/cuda/checks/checks.cuh", "transformed_kernel", true};
    case work::encode: return {"qr/cuda/checks/encode.cuh", "encode_kernel", true};
    case work::weigh: return {"qr/cuda/checks/checks.cuh", "weigh_kernel", true};
    case work::combine: return {"qr/cuda/checks/checks.cuh", "combine_kernel", false};
    case work::norm: return {"qr/cuda/checks/checks.cuh", "norm_kernel", false};
    case work::hash: return {"qr/cuda/checks/checks.cuh", "hash_kernel", true};
    case work::fold_checkpoints: return {"qr/cuda/checks/checks.cuh", "fold_checkpoints_kernel", false};
    case work::seals: return {"qr/cuda/checks/checks.cuh", "seals_kernel", true};
    case work::changes: return {"qr/cuda/checks/checks.cuh", "changes_kernel", false};
    case work::accept: return {"qr/cuda/checks/checks.cuh", "accept_kernel", true};
    case work::taus: return {"qr/cuda/checks/checks.cuh", "taus_kernel", true};
    case work::dots: return {"qr/cuda/update/apply.cuh", "dots_kernel", true};
    case work::tall_chain: return {"qr/cuda/update/apply.cuh", "tall_chain_kernel", true};
    case work::wide_gram: return {"qr/cuda/update/apply.cuh", "wide_gram_kernel", true};
    case work::wide_parts: return {"qr/cuda/update/apply.cuh", "wide_parts_kernel", true};
    case work::wide_join: return {"qr/cuda/update/apply.cuh", "wide_join_kernel", true};
    case work::solve: return {"qr/cuda/solve/solve.cuh", "solve_kernel", true};
    case work::gram_128: return {"qr/cuda/panel/cholesky_qr.cuh", "staged_gram_kernel", true};
    case work::gram_64:
    case work::gram_32: return {"qr/cuda/panel/cholesky_qr.cuh", "gram_kernel", true};
    case work::substitute_128:
    case work::substitute_64:
    case work::substitute_32: return {"qr/cuda/panel/cholesky_qr.cuh", "substitute_kernel", true};
    case work::small_factor: return {"qr/cuda/panel/small_factor.cuh", "small_factor_kernel", false};
    case work::small_reflectors: return {"qr/cuda/panel/small_factor.cuh", "small_reflectors_kernel", true};
    case work::small_t: return {"qr/cuda/panel/small_factor.cuh", "small_t_kernel", true};
    case work::narrow_product: return {"qr/cuda/update/narrow.cuh", "narrow_product_kernel", true};
    case work::apply_t_few:
    case work::apply_t_many: return {"qr/cuda/update/narrow.cuh", "apply_t_kernel", true};
    case work::narrow_subtract: return {"qr/cuda/update/narrow.cuh", "narrow_subtract_kernel", true};
    case work::split: return {"qr/cuda/update/product.cuh", "split_kernel", false};
    case work::project: return {"qr/cuda/update/product.cuh", "project_kernel", false};
    case work::add_parts: return {"qr/cuda/update/product.cuh", "add_parts_kernel", false};
    case work::subtract: return {"qr/cuda/update/product.cuh", "subtract_kernel", false};
    case work::subtract_deep: return {"qr/cuda/update/product.cuh", "subtract_deep_kernel", false};
    default: return {"qr/cuda/solve/solve.cuh", "solve_check_kernel", true};
  }
}

std::string expression(const char* name, const std::string& parameters) {
  return std::string(k_prefix) + name + (parameters.empty() ? "" : "<" + parameters + ">");
}

}  // namespace

std::int64_t panel_shared_bytes(int which, const ballast::cuda::capabilities& on) {
  constexpr std::int64_t small = 96 << 10;
  const std::int64_t all = on.shared_per_block - 1024;
  return k_clusters[which].blocks == 1 ? std::min(small, all) : all;
}

namespace {

// The kernel for complex numbers has one block for each vector, and no cluster.
template <class S>
cluster_shape chain_shape(int which) {
  return is_complex<S> ? cluster_shape{1, k_complex_chain_threads} : k_chain_clusters[which];
}

// Static shared memory of the Cholesky QR kernels, at most.
constexpr std::int64_t k_static_shared = 4 << 10;

std::int64_t cholesky_qr_bytes(int width) {
  return std::max(substitute_bytes(width), width > 64 ? std::max(gram_stages<float>::bytes, gram_stages<double>::bytes) : 0);
}

}  // namespace

int widest_panel(const ballast::cuda::capabilities& on) {
  int made = k_most_wide;
  while (made > k_inner && std::max(cholesky_qr_bytes(made), small_factor_bytes(made)) + k_static_shared > on.shared_per_block) made /= 2;
  return made;
}

template <class S>
auto kernel_names<S>::of(work what, const ballast::cuda::capabilities& on) -> request {
  const bool of_one_block = what == work::small_factor || what == work::small_reflectors || what == work::small_t;
  // For kernels in variants by panel width: a device without room for the widest variant gets the next one, which is loaded once.
  const auto among = [&](work of_128, work of_64, work of_32, int widest) {
    const int most = what == of_128 ? 128 : what == of_64 ? 64 : what == of_32 ? 32 : 0;
    return std::min(most, widest);
  };
  constexpr int reals = static_cast<int>(k_reals<S>);
  const int widest = widest_panel(on), gram = among(work::gram_128, work::gram_64, work::gram_32, widest / reals);
  const bool staged = is_staged_gram<S>(gram);
  if (gram > 0 && !staged && gram_of(gram) != what) return of(gram_of(gram), on);
  const row here = row_of(staged ? work::gram_128 : what);
  const int substituted = among(work::substitute_128, work::substitute_64, work::substitute_32, widest);
  const int multiplied = what == work::products_128 ? 128 : what == work::products_64 ? 64 : what == work::products_32 ? 32 : 0;
  const int applied = what == work::apply_t_few ? k_apply_t_few : what == work::apply_t_many ? k_apply_t_many : 0;
  const int threads = of_one_block               ? k_small_factor_threads
                      : what == work::tall_chain ? k_tall_chain_threads
                      : staged                   ? k_staged_gram_threads
                      : gram > 0                 ? k_gram_threads
                      : substituted > 0          ? substitute_threads(substituted)
                                                 : k_threads;
  std::string parameters = !here.typed                 ? std::to_string(threads)
                           : what == work::scan_double ? name_of_number<wide_of<S>>()
                                                       : name_of_number<S>();
  if (what == work::small_factor && is_complex<S>) parameters.append(",2");
  for (const int each : {staged ? 0 : gram, substituted, multiplied, applied}) {
    if (each > 0) parameters.append(1, ',').append(std::to_string(each));
  }
  request made{.header = here.header, .expression = expression(here.name, parameters), .threads = threads};
  if (multiplied > 0) made.blocks = product_resident(multiplied);
  if (gram > 0) {
    made.blocks = staged ? 1 : gram_resident(gram);
    if (staged) made.shared = gram_stages<S>::bytes;
    made.spills = 64;  // the sums of 64 columns and the next rows take all registers
    made.stack = 16;
  }
  if (substituted > 0) {
    made.blocks = substitute_resident(substituted);
    made.shared = substitute_bytes(substituted);
  }
  if (of_one_block) made.shared = small_factor_bytes(widest_panel(on));
  if (what == work::copy) made.shared = 32 * 33 * static_cast<std::int64_t>(sizeof(S));
  if (what == work::encode || what == work::transformed) made.blocks = k_rows_resident;
  if (what == work::weigh || what == work::encode) made.spills = made.stack = 16;  // the call of ldexp
  if (what == work::project || what == work::subtract_deep) made.shared = k_ring_bytes;
  if (what == work::subtract) made.shared = k_subtract_bytes;
  if (what == work::tall_chain) {
    made.shared = tall_chain_bytes();
    made.blocks = 2;
  }
  return made;
}

template <class S>
auto kernel_names<S>::panel(int which, const ballast::cuda::capabilities& on) -> request {
  const auto [blocks, threads] = k_clusters[which];
  return {.header = "qr/cuda/panel/panel.cuh",
          .expression = expression("panel_kernel", name_of_number<S>() + "," + std::to_string(blocks) + "," + std::to_string(threads)),
          .threads = threads,
          .shared = panel_shared_bytes(which, on),
          .cluster = blocks,
          .spills = 96,
          .stack = 48};  // calls of divisions and square roots, where a tail is scaled
}

template <class S>
auto kernel_names<S>::chain(int which) -> request {
  const auto [blocks, threads] = chain_shape<S>(which);
  return {.header = "qr/cuda/update/apply.cuh",
          .expression = expression("chain_kernel", name_of_number<S>() + "," + std::to_string(blocks) + "," + std::to_string(threads)),
          .threads = threads,
          .shared = is_complex<S> ? 0 : chain_bytes(threads),
          .cluster = blocks};
}

template <class S>
auto kernel_names<S>::strike() -> request {
  return {
      .header = "qr/cuda/layout/matrix.cuh", .expression = expression("strike_kernel", name_of_number<S>()), .threads = 32, .stack = 64};
}

// Products by warpgroups (wgmma) exist on compute capability 9.0 only.
template <class S>
bool kernel_names<S>::multiplies(const ballast::cuda::capabilities& on) {
  return std::is_same_v<S, float> && on.major == 9 && on.minor == 0 && k_ring_bytes <= on.shared_per_block;
}

template <class S>
bool kernel_names<S>::runs(int which, const ballast::cuda::capabilities& on) {
  return k_clusters[which].blocks == 1 || on.major >= 9;
}

template <class S>
bool kernel_names<S>::runs_chain(int which, const ballast::cuda::capabilities& on) {
  if (is_complex<S>) return which == 0;
  const auto [blocks, threads] = k_chain_clusters[which];
  return blocks == 1 || (on.major >= 9 && chain_bytes(threads) <= on.shared_per_block);
}

template <class S>
auto kernel_names<S>::all(const ballast::cuda::capabilities& on, bool instrumented) -> std::vector<request> {
  std::vector<request> made;
  const work end = multiplies(on) ? work::count : is_complex<S> ? work::gram_128 : work::split;
  for (int w = 0; w < static_cast<int>(end); ++w) made.push_back(of(static_cast<work>(w), on));
  for (int t = 0; t < k_cluster_count; ++t) {
    if (runs(t, on)) made.push_back(panel(t, on));
  }
  for (int t = 0; t < k_chain_cluster_count; ++t) {
    if (runs_chain(t, on)) made.push_back(chain(t));
  }
  if (instrumented) {
    made.push_back(kernel_names<real_of<S>>::strike());
    if (sizeof(real_of<S>) == 4) made.push_back(kernel_names<double>::strike());  // sums in double are struck, too
  }
  return made;
}

template struct kernel_names<float>;
template struct kernel_names<double>;
template struct kernel_names<std::complex<float>>;
template struct kernel_names<std::complex<double>>;

std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on) {
  std::vector<ballast::cuda::kernel_request> made;
  const auto add = [&](std::vector<ballast::cuda::kernel_request> list) {
    for (ballast::cuda::kernel_request& each : list) {
      if (std::ranges::find(made, each) == made.end()) made.push_back(std::move(each));
    }
  };
  add(kernel_names<float>::all(on, false));
  add(kernel_names<double>::all(on, false));
  add(kernel_names<std::complex<float>>::all(on, false));
  add(kernel_names<std::complex<double>>::all(on, false));
  add(choice_names<float>::all(on, false));
  add(choice_names<double>::all(on, false));
  add(choice_names<std::complex<float>>::all(on, false));
  add(choice_names<std::complex<double>>::all(on, false));
  add(recovery_names<float>::all(on));
  add(recovery_names<double>::all(on));
  add(recovery_names<std::complex<float>>::all(on));
  add(recovery_names<std::complex<double>>::all(on));
  add(batch_kernels<float>(on, false));
  add(batch_kernels<double>(on, false));
  add(batch_kernels<complex_number<float>>(on, false));
  add(batch_kernels<complex_number<double>>(on, false));
  return made;
}

}  // namespace ballast::qr::cuda
