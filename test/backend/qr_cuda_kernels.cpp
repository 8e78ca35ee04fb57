// Prints the kernels of QR on cuda; what it prints is compiled into backend_qr_cuda. For the effort smoke: those for f64.
// Layer: backend tests.
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
  const auto print = [](const auto& list) {
    for (const ballast::cuda::kernel_request& each : list) std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
  };
  print(kernel_names<S>::all(simt::emulated_capabilities(), true));
  // Recovery in blocks of rotations as wide as a device's, and in several of them where its shared memory is small.
  ballast::cuda::capabilities small = simt::emulated_capabilities();
  for (const std::int64_t shared : {small.shared_per_block, std::int64_t{50} << 10}) {
    small.shared_per_block = shared;
    print(recovery_names<S>::all(small));
  }
  for (const bool instrumented : {false, true}) {
    print(batch_kernels<S>(simt::emulated_capabilities(), instrumented));
    print(choice_names<S>::all(simt::emulated_capabilities(), instrumented));
  }
}

}  // namespace

int main() {
  if (ballast::test::chosen_effort() > ballast::test::effort::smoke) print_all<float>();
  print_all<double>();
}
