// The double-precision kernels, compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/cpu/kernels_f64.cpp"
#include <hwy/foreach_target.h>
// Highway's header must come after foreach_target.h.
#include <hwy/highway.h>

#define BALLAST_FFT_SCALAR double
#define BALLAST_FFT_BITS 64
#include "fft/cpu/chunks-inl.hpp"
#include "fft/cpu/kernels-inl.hpp"

#if HWY_ONCE
namespace ballast::fft::cpu {
HWY_EXPORT(table_for_target);
HWY_EXPORT(chunk_table_for_target);
template <>
const kernel_table<double>& kernels() {
  static const kernel_table<double>& best = *HWY_DYNAMIC_DISPATCH(table_for_target)();
  return best;
}
template <>
const chunk_kernels<double>& chunks() {
  static const chunk_kernels<double>& best = *HWY_DYNAMIC_DISPATCH(chunk_table_for_target)();
  return best;
}
}  // namespace ballast::fft::cpu
#endif
