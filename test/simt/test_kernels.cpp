// Prints the kernels of the emulator's own tests, as simt_kernels wants them.
#include <cstdio>

int main() {
  std::puts("simt/scale.cuh\tsimt_test::scale_kernel<simt_test::scale_policy{.threads = 64}>");
  std::puts("simt/scale.cuh\tsimt_test::scale_kernel<simt_test::scale_policy{.threads = 128, .per_thread = 4}>\t128");
  return 0;
}
