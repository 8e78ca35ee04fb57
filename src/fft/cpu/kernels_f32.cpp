// The single-precision kernels, compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fft/cpu/kernels_f32.cpp"
#include <hwy/foreach_target.h>
// Highway's header must come after foreach_target.h.
#include <hwy/highway.h>

#define BALLAST_FFT_SCALAR float
#define BALLAST_FFT_BITS 32
#include "fft/cpu/chunks-inl.hpp"
#include "fft/cpu/kernels-inl.hpp"

#if HWY_ONCE
namespace ballast::fft::cpu {
HWY_EXPORT(table_for_target);
HWY_EXPORT(chunk_table_for_target);
template <>
const kernel_table<float>& kernels() {
  static const kernel_table<float>& best = *HWY_DYNAMIC_DISPATCH(table_for_target)();
  return best;
}
template <>
const chunk_kernels<float>& chunks() {
  static const chunk_kernels<float>& best = *HWY_DYNAMIC_DISPATCH(chunk_table_for_target)();
  return best;
}
}  // namespace ballast::fft::cpu
#endif
