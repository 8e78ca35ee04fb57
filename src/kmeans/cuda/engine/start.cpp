// Lists the kernels of a plan's first call, and asks the device which of them are ready.
// Layer: backend "cuda" of K-Means. See start.hpp.
#include "kmeans/start.hpp"

#include <utility>
#include <vector>

#include "cuda/device/compilation.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/cuda/engine/serving_pass.hpp"
#include "kmeans/cuda/layout/serve_args.hpp"

namespace ballast::kmeans::cuda {

namespace {

using requests = std::vector<ballast::cuda::kernel_request>;

template <class T>
requests first_kernels(const problem& size, const options& wanted, bool protect, ballast::cuda::device& on) {
  const bool f64 = sizeof(T) == 8, given_half = size.storage == storage::f16 || size.storage == storage::bf16;
  const bool half = given_half && !size.spherical;  // unit vectors are floats
  const int words = f64 ? 2 : 1;
  requests made = kernel_names<T>::all(words, false, half);
  if (size.spherical) made.push_back(kernel_names<T>::unit_rows(given_half, false));
  if (wanted.init == init::kmeans_parallel) {
    for (ballast::cuda::kernel_request& each : kernel_names<T>::candidates(false)) made.push_back(std::move(each));
  }
  if (!f64 && serves_labels(size.features, size.clusters)) {
    made.push_back(kernel_names<T>::serve_pack(false));
    made.push_back(kernel_names<T>::serve(size.features, size.clusters, half, false));
  }
  const pass_problem pass{f64, size.features, size.clusters, words, false, protect, true};
  const pass_policy policy = serve_pass(on, pass, size.points, false).policy;
  for (ballast::cuda::kernel_request& each : pass_kernel_requests(pass, policy, on.about(), false)) made.push_back(std::move(each));
  return made;
}

}  // namespace

double seconds_to_start(const problem& size, const options& wanted, bool protect, bool batch, bool begin) {
  ballast::cuda::device& on = *ballast::cuda::current_device();
  const requests all = batch                              ? requests{batch_request(size, on.about(), false)}
                       : size.precision == precision::f32 ? first_kernels<float>(size, wanted, protect, on)
                                                          : first_kernels<double>(size, wanted, protect, on);
  const double seconds = ballast::cuda::seconds_to_compile(on, all);
  if (begin && seconds > 0) (void)on.why_not_ready(all, true);
  return seconds;
}

}  // namespace ballast::kmeans::cuda
