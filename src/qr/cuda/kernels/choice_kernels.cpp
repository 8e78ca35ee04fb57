// Builds the requests for the kernels of QR with column pivoting.
// Layer: backend "cuda" of QR.
#include "qr/cuda/kernels/choice_kernels.hpp"

#include <string>
#include <type_traits>

#include "cuda/jit/expression.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"

namespace ballast::qr::cuda {

namespace {

constexpr const char* k_header = "qr/cuda/pivots/choice.cuh";

std::string typed(const char* name, const std::string& type) { return std::string("ballast::qr::cuda::") + name + "<" + type + ">"; }

}  // namespace

template <class S>
auto choice_names<S>::choose(int which, bool instrumented) -> request {
  const auto [blocks, threads] = k_choice_clusters[which];
  return {.header = k_header,
          .expression = ballast::cuda::kernel_expression("ballast::qr::cuda::choose_kernel",
                                                         {name_of_number<wide_of<S>>(), std::to_string(blocks), std::to_string(threads)},
                                                         instrumented),
          .threads = threads,
          .cluster = blocks,
          .spills = instrumented ? 1024 : 0,
          .stack = instrumented ? 1024 : 0};
}

template <class S>
auto choice_names<S>::gather() -> request {
  return {.header = k_header, .expression = typed("gather_kernel", name_of_number<S>()), .threads = k_threads};
}

template <class S>
auto choice_names<S>::measure() -> request {
  return {.header = k_header, .expression = typed("measure_pivots_kernel", name_of_number<S>()), .threads = k_threads};
}

template <class S>
auto choice_names<S>::all(const ballast::cuda::capabilities& on, bool instrumented) -> std::vector<request> {
  std::vector<request> made;
  for (int which = 0; which < k_choice_cluster_count; ++which) {
    if (k_choice_clusters[which].blocks == 1 || on.major >= 9) made.push_back(choose(which, instrumented));
  }
  made.push_back(gather());
  if constexpr (!std::is_same_v<S, wide_of<S>>) made.push_back(choice_names<wide_of<S>>::gather());
  made.push_back(measure());
  return made;
}

template struct choice_names<float>;
template struct choice_names<double>;
template struct choice_names<std::complex<float>>;
template struct choice_names<std::complex<double>>;

}  // namespace ballast::qr::cuda
