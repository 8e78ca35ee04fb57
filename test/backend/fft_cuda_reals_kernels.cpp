// Prints the kernels that the cases of fft_cuda_reals_cases.hpp need.
// Layer: backend tests.
#include "backend/fft_cuda_any_kernels.hpp"
#include "backend/fft_cuda_reals_cases.hpp"
#include "backend/fft_emulator.hpp"

int main() {
  ballast::fft::use_own_tuning();
  ballast::fft::choose_pairing(ballast::fft::machine::whole);
  for (const ballast::fft::any_case& each : ballast::fft::reals_cases()) ballast::fft::print_kernels(each);
}
