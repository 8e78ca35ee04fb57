// Lists the kernels of a plan's first call, and asks the device which of them are ready.
// Layer: backend "cuda" of QR. See start.hpp.
#include "qr/start.hpp"

#include <complex>
#include <type_traits>
#include <vector>

#include "cuda/device/compilation.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/table_kernels.hpp"

namespace ballast::qr::cuda {

namespace {

template <class S>
std::vector<ballast::cuda::kernel_request> first_kernels(const problem& size, bool batch, const ballast::cuda::capabilities& on) {
  if (!batch) return table_kernels_of<S>(on, false).wanted;
  using number = std::conditional_t<is_complex<S>, complex_number<real_of<S>>, S>;
  const int which = batch_policy_for(batch_work::factor, size.rows, size.columns, on, is_complex<S>);
  if (which >= 0) return {batch_kernel<number>(batch_work::factor, which, false)};
  if constexpr (!is_complex<S>) {
    const tall_choice chosen = choose_tall(batch_work::factor, size.rows, size.columns, sizeof(S), on);
    return {tall_kernel<S>(batch_work::factor, chosen.size, on, false)};
  }
  return {};
}

}  // namespace

double seconds_to_start(const problem& size, bool batch, bool begin) {
  ballast::cuda::device& on = *ballast::cuda::current_device();
  const bool single = size.precision == precision::f32;
  const std::vector<ballast::cuda::kernel_request> wanted = size.complex
                                                                ? single ? first_kernels<std::complex<float>>(size, batch, on.about())
                                                                         : first_kernels<std::complex<double>>(size, batch, on.about())
                                                            : single ? first_kernels<float>(size, batch, on.about())
                                                                     : first_kernels<double>(size, batch, on.about());
  const double seconds = ballast::cuda::seconds_to_compile(on, wanted);
  if (begin && seconds > 0) (void)on.why_not_ready(wanted, true);
  return seconds;
}

}  // namespace ballast::qr::cuda
