// Prints the kernels of QR of complex matrices on cuda; what it prints is compiled into backend_qr_cuda_complex. For the efforts sample and
// smoke: without the largest clusters.
// Layer: backend tests.
#include <complex>
#include <cstdio>

#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/choice_kernels.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/kernels/recovery_kernels.hpp"
#include "simt/emulated_device.hpp"
#include "support/effort.hpp"

namespace {

using namespace ballast::qr::cuda;

template <class S>
void print_all() {
  const int most = ballast::test::chosen_effort() > ballast::test::effort::sample ? 8 : 2;
  for (const bool instrumented : {false, true}) {
    for (const ballast::cuda::kernel_request& each : batch_kernels<S>(simt::emulated_capabilities(), instrumented)) {
      if (each.cluster <= most) std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
    }
  }
}

// The kernels of the engine for large matrices. Recovery as in qr_cuda_kernels.cpp.
template <class S>
void print_engine() {
  const auto print = [](const auto& list) {
    for (const ballast::cuda::kernel_request& each : list) std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
  };
  ballast::cuda::capabilities about = simt::emulated_capabilities();
  print(kernel_names<S>::all(about, true));
  for (const bool instrumented : {false, true}) print(choice_names<S>::all(about, instrumented));
  for (const std::int64_t shared : {about.shared_per_block, std::int64_t{50} << 10}) {
    about.shared_per_block = shared;
    print(recovery_names<S>::all(about));
  }
}

}  // namespace

int main() {
  print_all<complex_number<float>>();
  print_all<complex_number<double>>();
  print_engine<std::complex<float>>();
  print_engine<std::complex<double>>();
}
