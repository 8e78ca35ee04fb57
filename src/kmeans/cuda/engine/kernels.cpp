// Names, threads and shared memory of the kernels. See kernels.hpp.
#include "kmeans/cuda/engine/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include <ballast/kmeans.hpp>

#include "cuda/jit/expression.hpp"
#include "kmeans/cuda/batch/batch.hpp"
#include "kmeans/cuda/engine/serving_pass.hpp"
#include "kmeans/cuda/layout/serve_args.hpp"
#include "kmeans/cuda/layout/setup_args.hpp"
#include "kmeans/cuda/layout/unit_rows.hpp"
#include "kmeans/cuda/policy/tuning.hpp"
#include "kmeans/cuda/sparse/arguments.hpp"

namespace ballast::kmeans::cuda {

namespace {

// Limits of stack and spill bytes of kernels that process a row or column: they call division and square root in f64.
constexpr int k_line_stack = 512;
constexpr int k_line_spills = 256;

template <class T>
constexpr const char* k_type = std::is_same_v<T, float> ? "float" : "double";

const char* const k_prefix = "ballast::kmeans::cuda::";

std::string kernel(const char* name) { return std::string(k_prefix) + name; }

void allow_lines(std::vector<ballast::cuda::kernel_request>& kernels) {
  for (ballast::cuda::kernel_request& each : kernels) {
    if (each.stack == 0) each.stack = k_line_stack, each.spills = k_line_spills;
  }
}

const char* literal(bool value) { return value ? "true" : "false"; }

}  // namespace

template <class T>
auto kernel_names<T>::unit_rows(bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/normalize/unit_rows.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("unit_rows_kernel"), {k_type<T>, literal(half)}, instrumented),
          .threads = k_unit_threads};
}

template <class T>
auto kernel_names<T>::ranges(bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/normalize/columns.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("ranges_kernel"), {k_type<T>, literal(half)}, instrumented),
          .threads = k_column_threads,
          .shared = static_cast<std::int64_t>(sizeof(column_ranges<T>)) * k_column_threads};
}

template <class T>
auto kernel_names<T>::fold_ranges() -> request {
  return {.header = "kmeans/cuda/normalize/columns.cuh",
          .expression = kernel("fold_kernel<") + k_prefix + "ranges_work<" + k_type<T> + ">>",
          .threads = k_column_threads,
          .shared = static_cast<std::int64_t>(sizeof(column_ranges<T>)) * k_column_threads};
}

template <class T>
auto kernel_names<T>::fold_sums() -> request {
  return {.header = "kmeans/cuda/normalize/columns.cuh",
          .expression = kernel("fold_kernel<") + k_prefix + "sums_work>",
          .threads = k_column_threads,
          .shared = static_cast<std::int64_t>(sizeof(column_sums)) * k_column_threads};
}

template <class T>
auto kernel_names<T>::find(bool half) -> request {
  return {.header = "kmeans/cuda/normalize/columns.cuh",
          .expression = kernel("find_kernel<") + k_type<T> + "," + literal(half) + ">",
          .threads = k_column_threads};
}

template <class T>
auto kernel_names<T>::normalize(bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/normalize/rows.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("normalize_kernel"), {k_type<T>, literal(half)}, instrumented),
          .threads = k_row_threads,
          .shared = static_cast<std::int64_t>(sizeof(T)) * (k_row_threads * k_normalize_elements + 64)};
}

template <class T>
auto kernel_names<T>::row_stats(int words, bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/normalize/rows.cuh",
          .expression =
              ballast::cuda::kernel_expression(kernel("row_stats_kernel"), {k_type<T>, std::to_string(words), literal(half)}, instrumented),
          .threads = k_row_threads,
          .shared = k_row_threads * (static_cast<std::int64_t>(sizeof(row_statistics<T>)) + 8) +
                    2 * static_cast<std::int64_t>(sizeof(block_squares)) + 2 * 8 * (128 / static_cast<std::int64_t>(sizeof(T))) +
                    static_cast<std::int64_t>(sizeof(T)) * k_row_threads * (128 / static_cast<std::int64_t>(sizeof(T)) + 2)};
}

template <class T>
auto kernel_names<T>::gather(bool half) -> request {
  return {.header = "kmeans/cuda/normalize/rows.cuh",
          .expression = kernel("gather_kernel<") + k_type<T> + "," + literal(half) + ">",
          .threads = k_row_threads};
}

template <class T>
auto kernel_names<T>::distances(bool half, bool given, bool instrumented) -> request {
  return {
      .header = "kmeans/cuda/assign/distances.cuh",
      .expression = ballast::cuda::kernel_expression(kernel("distances_kernel"), {k_type<T>, literal(half), literal(given)}, instrumented),
      .threads = k_row_threads,
      .shared = sizeof(distance_tile<T>)};
}

template <class T>
auto kernel_names<T>::far(bool half) -> request {
  return {.header = "kmeans/cuda/assign/distances.cuh",
          .expression = kernel("far_kernel<") + k_type<T> + "," + literal(half) + ">",
          .threads = k_row_threads};
}

template <class T>
auto kernel_names<T>::keep(bool instrumented) -> request {
  return {.header = "kmeans/cuda/assign/distances.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("keep_kernel"), {k_type<T>}, instrumented),
          .threads = k_row_threads};
}

template <class T>
auto kernel_names<T>::exact(bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/assign/exact.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("exact_kernel"), {k_type<T>, literal(half)}, instrumented),
          .threads = k_row_threads,
          .shared = (4 * k_row_threads + 2) * 8 + (k_row_threads + k_row_threads / 32 + 2) * 4};
}

template <class T>
auto kernel_names<T>::settle(bool half, bool instrumented) -> request {
  return {.header = "kmeans/cuda/assign/exact.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("settle_kernel"), {k_type<T>, literal(half)}, instrumented),
          .threads = k_row_threads,
          .shared = 24 * (k_row_threads / 32)};
}

template <class T>
auto kernel_names<T>::labelled(int words) -> request {
  return {.header = "kmeans/cuda/assign/distances.cuh",
          .expression = kernel("labelled_kernel<") + k_type<T> + "," + std::to_string(words) + ">",
          .threads = k_row_threads,
          .shared = 3 * k_row_threads * 8};
}

template <class T>
auto kernel_names<T>::serve_pack(bool instrumented) -> request {
  return {.header = "kmeans/cuda/assign/serve.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("serve_pack_kernel"), {k_type<T>}, instrumented),
          .threads = k_serve_pack_threads,
          .shared = k_tile_columns * static_cast<std::int64_t>(sizeof(serve_norms<T>))};
}

template <class T>
auto kernel_names<T>::serve(std::int64_t n, std::int64_t k, bool half, bool instrumented) -> request {
  const serve_policy chosen = serve_policy_of(n, k);
  return {.header = "kmeans/cuda/assign/serve.cuh",
          .expression = ballast::cuda::kernel_expression(
              kernel("serve_kernel"), {k_type<T>, literal(half), std::to_string(chosen.warps), std::to_string(chosen.tiles)}, instrumented),
          .threads = 32 * chosen.warps,
          .shared = serve_shared_bytes<T>(chosen, padded_features<T>(n)),
          .spills = 32,  // two registers
          .stack = 16};
}

template <class T>
auto kernel_names<T>::serving(bool instrumented, bool half) -> std::vector<request> {
  std::vector<request> made;
  if (sizeof(T) == 8) return made;
  made.push_back(serve_pack(instrumented));
  for (const std::int64_t n : {k_serve_features, k_serve_most_features})
    for (const int k : {k_tile_columns, k_tile_columns + 1}) made.push_back(serve(n, k, half, instrumented));
  return made;
}

template <class T>
auto kernel_names<T>::seeding(int trials, bool instrumented) -> request {
  return {.header = "kmeans/cuda/seeding/seeding.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("seeding_kernel"), {k_type<T>}, instrumented),
          .threads = k_seed_threads,
          .shared = seeding_shared_bytes<T>(trials)};
}

template <class T>
auto kernel_names<T>::cover(bool instrumented) -> request {
  return {.header = "kmeans/cuda/seeding/candidates.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("cover_kernel"), {k_type<T>}, instrumented),
          .threads = k_seed_threads,
          .shared = 4 * 8 + k_seed_threads * static_cast<std::int64_t>(8 + sizeof(T) + 4)};
}

template <class T>
auto kernel_names<T>::draw(bool instrumented) -> request {
  return {.header = "kmeans/cuda/seeding/candidates.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("draw_kernel"), {k_type<T>}, instrumented),
          .threads = k_seed_threads};
}

template <class T>
auto kernel_names<T>::nearest() -> request {
  return {.header = "kmeans/cuda/seeding/candidates.cuh",
          .expression = kernel("nearest_kernel<") + k_type<T> + ">",
          .threads = k_row_threads,
          .shared = 2 * k_row_threads * 8};
}

template <class T>
int kernel_names<T>::batch_chunks(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on) {
  for (int chunks = 32; chunks > 0; chunks /= 2) {
    if (batch_layout_of<T>(static_cast<int>(n), static_cast<int>(k), trials_of(k), chunks).bytes <= on.shared_per_block) return chunks;
  }
  return 0;
}

template <class T>
auto kernel_names<T>::batch(std::int64_t n, std::int64_t k, const ballast::cuda::capabilities& on, bool instrumented, bool enqueued)
    -> request {
  const int chunks = batch_chunks(n, k, on);
  return {.header = "kmeans/cuda/batch/batch.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("batch_kernel"), {k_type<T>, literal(enqueued)}, instrumented),
          .threads = k_batch_threads,
          .shared = batch_layout_of<T>(static_cast<int>(n), static_cast<int>(k), trials_of(k), chunks).bytes,
          .spills = enqueued ? 256 : 64,
          .stack = k_line_stack};
}

template <class T>
auto kernel_names<T>::sparse_search(bool instrumented) -> request {
  return {.header = "kmeans/cuda/sparse/search.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("sparse_search_kernel"), {k_type<T>}, instrumented),
          .threads = k_sparse_threads};
}

template <class T>
auto kernel_names<T>::sparse_sums(bool instrumented) -> request {
  return {.header = "kmeans/cuda/sparse/sums.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("sparse_sums_kernel"), {k_type<T>}, instrumented),
          .threads = k_sparse_threads};
}

template <class T>
auto kernel_names<T>::sparse_convert(bool instrumented) -> request {
  return {.header = "kmeans/cuda/sparse/sums.cuh",
          .expression = ballast::cuda::kernel_expression(kernel("sparse_convert_kernel"), {}, instrumented),
          .threads = k_sparse_threads};
}

template <class T>
auto kernel_names<T>::sparse(bool instrumented) -> std::vector<request> {
  std::vector<request> made = {sparse_search(instrumented), sparse_sums(instrumented), sparse_convert(instrumented)};
  allow_lines(made);
  if (instrumented) allow_strikes(made);
  return made;
}

template <class T>
auto kernel_names<T>::candidates(bool instrumented) -> std::vector<request> {
  return {cover(instrumented), draw(instrumented), nearest()};
}

template <class T>
auto kernel_names<T>::all(int words, bool instrumented, bool half) -> std::vector<request> {
  std::vector<request> made;
  made.push_back(ranges(half, instrumented));
  made.push_back(fold_ranges());
  made.push_back(fold_sums());
  made.push_back(find(half));
  made.push_back(normalize(half, instrumented));
  made.push_back(row_stats(words, half, instrumented));
  made.push_back(gather(half));
  for (const bool given : {false, true}) made.push_back(distances(half, given, instrumented));
  made.push_back(far(half));
  made.push_back(keep(instrumented));
  made.push_back(exact(half, instrumented));
  made.push_back(settle(half, instrumented));
  made.push_back(labelled(words));
  made.push_back(seeding(8, instrumented));
  return made;
}

int trials_of(std::int64_t k) { return 2 + static_cast<int>(std::log(static_cast<double>(k))); }

template struct kernel_names<float>;
template struct kernel_names<double>;

std::vector<ballast::cuda::kernel_request> kernels_of(const pass_problem& what, const ballast::cuda::capabilities& on, bool instrumented) {
  std::vector<ballast::cuda::kernel_request> made =
      what.f64 ? kernel_names<double>::all(what.words, instrumented) : kernel_names<float>::all(what.words, instrumented);
  // Injection into seeding happens only if a test requests it.
  if (instrumented) made.push_back(what.f64 ? kernel_names<double>::seeding(8, false) : kernel_names<float>::seeding(8, false));
  if (!what.f64) {
    made.push_back(kernel_names<float>::serve_pack(instrumented));
    if (serves_labels(what.n, what.k)) made.push_back(kernel_names<float>::serve(what.n, what.k, false, instrumented));
  }
  for (ballast::cuda::kernel_request& each : what.f64 ? kernel_names<double>::candidates(false) : kernel_names<float>::candidates(false))
    made.push_back(std::move(each));
  pass_problem with_sums = what;
  with_sums.sums = true;
  const pass_policy chosen = choose_pass(with_sums, on);
  for (ballast::cuda::kernel_request& each : pass_kernel_requests(with_sums, chosen, on, instrumented)) made.push_back(std::move(each));
  made.push_back(join_offer_request(instrumented));
  made.push_back(join_add_request(instrumented));
  allow_lines(made);
  if (instrumented) allow_strikes(made);
  return made;
}

ballast::cuda::kernel_request batch_request(const problem& what, const ballast::cuda::capabilities& on, bool instrumented, bool enqueued) {
  ballast::cuda::kernel_request made = what.precision == precision::f64
                                           ? kernel_names<double>::batch(what.features, what.clusters, on, instrumented, enqueued)
                                           : kernel_names<float>::batch(what.features, what.clusters, on, instrumented, enqueued);
  if (instrumented) made.stack = made.spills = 4096;
  return made;
}

std::vector<std::string> benchmark_problems() {
  return {"kmeans_f32_m131072_n8_k8",       "kmeans_f32_m131072_n64_k8",     "kmeans_f32_m131072_n128_k128",
          "kmeans_f32_m1048576_n16_k64",    "kmeans_f32_m10485760_n32_k64",  "kmeans_f32_m1048576_n128_k128",
          "kmeans_f32_m1048576_n64_k1024",  "kmeans_f32_m262144_n256_k1024", "kmeans_f32_m65536_n1024_k256",
          "kmeans_f32_m4194304_n128_k1000", "kmeans_f64_m1048576_n16_k64",   "kmeans_f64_m1048576_n128_k128",
          "kmeans_f64_m4194304_n128_k1000", "kmeans_f32_m1797_n64_k10_b264", "kmeans_f32_m1000_n16_k16_b2000",
          "kmeans_f64_m1797_n64_k10_b264"};
}

std::vector<std::string> verified_problems() {
  return {"kmeans_f32_m1000_n1_k1",       "kmeans_f32_m5000_n3_k7",      "kmeans_f32_m1797_n64_k10",     "kmeans_f32_m20000_n8_k8",
          "kmeans_f32_m20001_n17_k33",    "kmeans_f32_m10000_n40_k300",  "kmeans_f64_m5000_n3_k7",       "kmeans_f64_m1797_n64_k10",
          "kmeans_f64_m10001_n17_k33",    "kmeans_f32_m131072_n8_k8",    "kmeans_f32_m131072_n128_k128", "kmeans_f32_m16384_n256_k1024",
          "kmeans_f32_m16384_n1024_k256", "kmeans_f64_m65536_n128_k128", "kmeans_f64_m16384_n300_k100",  "kmeans_f32_m1797_n64_k10_b12",
          "kmeans_f64_m500_n8_k20_b9"};
}

std::vector<std::string> sanitized_problems() {
  return {"kmeans_f32_m1500_n5_k7", "kmeans_f32_m1200_n40_k90", "kmeans_f64_m1500_n5_k7", "kmeans_f32_m300_n5_k7_b6"};
}

std::vector<std::string> swept_problems() {
  return {"kmeans_f32_m131072_n8_k128", "kmeans_f32_m131072_n128_k128", "kmeans_f64_m131072_n128_k8"};
}

namespace {

// Collects the kernels of several problems, each once.
class kernel_set {
 public:
  explicit kernel_set(const ballast::cuda::capabilities& on) : on_(on) {}

  void add(const std::string& token, bool weighted, bool wide, bool check) {
    const problem what = parse_token(token);
    const bool f64 = what.precision == precision::f64;
    if (what.batch > 1) {
      for (const bool enqueued : {false, true}) add_once({batch_request(what, on_, false, enqueued)});
      return;
    }
    add_once(kernels_of({f64, what.features, what.clusters, f64 || wide ? 2 : 1, weighted, check, true}, on_, false));
  }
  // The kernels that every call needs, and those of k-means‖.
  void add_setup(bool f64, int words) {
    for (auto list : {f64 ? kernel_names<double>::all(words, false) : kernel_names<float>::all(words, false),
                      f64 ? kernel_names<double>::candidates(false) : kernel_names<float>::candidates(false),
                      f64 ? kernel_names<double>::serving(false) : kernel_names<float>::serving(false)}) {
      allow_lines(list);
      add_once(std::move(list));
    }
  }
  void add_passes(const pass_problem& what, const pass_policy& with_sums) {
    for (ballast::cuda::kernel_request& each : pass_kernel_requests(what, with_sums, on_, false)) add_once({std::move(each)});
  }
  // The kernels of points in compressed rows.
  void add_sparse() {
    for (auto list : {kernel_names<float>::sparse(false), kernel_names<double>::sparse(false)}) add_once(std::move(list));
  }
  // The kernels that divide points by their norms.
  void add_unit_rows() {
    add_once({kernel_names<float>::unit_rows(false, false), kernel_names<float>::unit_rows(true, false),
              kernel_names<double>::unit_rows(false, false)});
  }
  // The kernels that read points of 16 bits.
  void add_half() {
    for (auto list :
         {kernel_names<float>::all(1, false, true), kernel_names<float>::all(2, false, true), kernel_names<float>::serving(false, true)}) {
      allow_lines(list);
      add_once(std::move(list));
    }
  }
  std::vector<ballast::cuda::kernel_request> made;

 private:
  void add_once(std::vector<ballast::cuda::kernel_request> list) {
    for (ballast::cuda::kernel_request& each : list) {
      if (std::ranges::find(made, each) == made.end()) made.push_back(std::move(each));
    }
  }

  const ballast::cuda::capabilities& on_;
};

}  // namespace

std::vector<ballast::cuda::kernel_request> common_kernels(const ballast::cuda::capabilities& on) {
  kernel_set list(on);
  list.add_half();
  list.add_unit_rows();
  list.add_sparse();
  for (const bool f64 : {false, true})
    for (int words = f64 ? 2 : 1; words <= 2; ++words) list.add_setup(f64, words);
  for (const pass_problem& each : general_problems()) list.add_passes(each, general_pass(each, on));
  for (const std::string& token : benchmark_problems()) list.add(token, false, false, true);
  list.add("kmeans_f32_m1048576_n16_k64", false, false, false);
  return list.made;
}

std::vector<ballast::cuda::kernel_request> checked_kernels(const ballast::cuda::capabilities& on) {
  kernel_set list(on);
  for (const bool check : {true, false}) {
    for (const std::string& token : benchmark_problems()) list.add(token, false, false, check);
    for (const std::string& token : verified_problems()) list.add(token, false, false, check);
    for (const std::string& token : swept_problems()) list.add(token, false, false, check);
    for (const std::string& token : sanitized_problems()) {
      list.add(token, false, false, check);
      list.add(token, true, false, check);
      list.add(token, false, true, check);
    }
  }
  list.add_half();
  list.add_unit_rows();
  list.add_sparse();
  return list.made;
}

std::vector<ballast::cuda::kernel_request> scheme_kernels(const ballast::cuda::capabilities& on) {
  std::vector<ballast::cuda::kernel_request> made;
  const auto add = [&](ballast::cuda::kernel_request&& each) {
    if (std::ranges::find(made, each) == made.end()) made.push_back(std::move(each));
  };
  for (const std::string_view name : schemes()) {
    for (const bool f64 : {false, true}) {
      for (const std::int64_t k : {8, 16, 32, 64, 128}) {
        const tile_problem what{f64, 128, k, *scheme_named(name)};
        for (auto& each : tile_kernels(what, choose_tile(what, on, &tile_tuning::rules()), f64 ? 2 : 1, false, false)) add(std::move(each));
      }
    }
  }
  for (const auto& [at, entry] : tile_tuning::active().entries()) {
    if (at.major != on.major) continue;
    const tile_problem what{at.wide, at.n, at.k, *scheme_named(at.scheme)};
    add(tile_request(what, choose_tile(what, on), false));
  }
  for (const auto& [at, entry] : pass_tuning::active().entries()) {
    if (at.major != on.major) continue;
    const pass_problem what{at.wide, at.n, at.k, at.wide ? 2 : 1, false, at.checked, true};
    add(pass_request(what, choose_pass(what, on), false));
  }
  return made;
}

}  // namespace ballast::kmeans::cuda
