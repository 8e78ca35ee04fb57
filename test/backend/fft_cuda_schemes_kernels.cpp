// Prints the kernels that fft_cuda_schemes_test.cpp needs: its cases run on a device that only writes down what it is asked to load.
#include <cstdio>
#include <memory>
#include <vector>

#include "backend/fft_cuda_schemes.hpp"
#include "fft/sites.hpp"
#include "support/devices.hpp"

namespace {

using namespace ballast;

template <class T>
void list(const scheme_test::scheme_case& what) {
  const std::vector<T> in(static_cast<std::size_t>(scheme_test::input_words(what)));
  // Lines with a check from end to end have other kernels in place.
  const bool both = what.scheme == "end_to_end";
  (void)scheme_test::execute<T>(what, what.protection(), nullptr, in, false);
  if (both) (void)scheme_test::execute<T>(what, what.protection(), nullptr, in, true);
  if (!what.protect) return;
  inject::plan faults;
  faults.add({fft::site::output});
  (void)scheme_test::execute<T>(what, what.protection(), &faults, in, false);
  if (both) (void)scheme_test::execute<T>(what, what.protection(), &faults, in, true);
}

}  // namespace

int main() {
  try {
    scheme_test::replace_cufft();
    for (const auto& each : scheme_test::cases()) {
      const auto device = std::make_shared<test::recording_device>(scheme_test::device_for(each));
      const test::current_device_guard current(device);
      if (fft::parse_token(each.token).problem.precision == precision::f32) {
        list<float>(each);
      } else {
        list<double>(each);
      }
      device->print();
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
