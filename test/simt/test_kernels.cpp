// Prints the kernels of the emulator's own tests, in the format of simt_kernels.
#include <cstdio>

#include "simt/arch_checks.hpp"

int main() {
  std::puts("simt/scale.cuh\tsimt_test::scale_kernel<simt_test::scale_policy{.threads = 64}>");
  std::puts("simt/scale.cuh\tsimt_test::scale_kernel<simt_test::scale_policy{.threads = 128, .per_thread = 4}>\t128");
  for (const auto& check : arch_checks::all(9)) std::printf("%s\t%s\n", check.request.header.c_str(), check.request.expression.c_str());
  return 0;
}
