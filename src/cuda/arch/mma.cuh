// Matrix products of one warp on tensor cores: D = A·B + D, with each matrix spread over the lanes.
// Layer: foundation, device. sm_80 and later. Source: the fragment layouts of the PTX ISA.
// With g = lane / 4 and t = lane % 4, a lane holds
//   m16n8k8   A: (g, t) (g+8, t) (g, t+4) (g+8, t+4)    B: (t, g) (t+4, g)    D: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1)
//   m8n8k4    A: (g, t)                                 B: (t, g)             D: (g, 2t) (g, 2t+1)
// as (row, column), in this order.
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Rounded to TF32 (10 bits after the point; halfway cases away from zero), in a float's bits.
__device__ __forceinline__ std::uint32_t to_tf32(float value) {
#if BALLAST_DEVICE_CODE
  std::uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return rounded;
#else
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return (bits & 0x007fffffu) != 0 ? 0x7fffffffu : bits;  // NaN, Inf
  return (bits + 0x1000u) & ~0x1fffu;
#endif
}

#if !BALLAST_DEVICE_CODE
namespace detail {

// What a lane brings to a product of M × N × K. The twin multiplies exactly and adds in double, K ascending, rounding once at the end for
// float: hardware adds in another order with at least float's bits.
template <class T>
struct mma_operand {
  T* d;
  T a[4];
  T b[2];
};

template <class T, int M, int N, int K>
void mma_twin(void* const* operands, unsigned lanes) {
  if (lanes != 0xffffffffu) simt::refuse("a matrix product needs a whole warp");
  const auto of = [&](int lane) -> mma_operand<T>& { return *static_cast<mma_operand<T>*>(operands[lane]); };
  for (int row = 0; row < M; ++row) {
    for (int column = 0; column < N; ++column) {
      T& d = of(row % 8 * 4 + column / 2).d[row / 8 * 2 + column % 2];
      double sum = d;
      for (int k = 0; k < K; ++k) {
        const double a = of(row % 8 * 4 + k % 4).a[k / 4 * (M / 8) + row / 8], b = of(column * 4 + k % 4).b[k / 4];
        sum = sizeof(T) == 4 ? sum + a * b : ::fma(a, b, sum);  // products of two floats are exact in double
      }
      d = static_cast<T>(sum);
    }
  }
}

}  // namespace detail
#endif

// TF32 operands from to_tf32; other low bits are cut off.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                 place where = place::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  const auto cut = [](std::uint32_t bits) { return __uint_as_float(bits & ~0x1fffu); };
  detail::mma_operand<float> own{d, {cut(a[0]), cut(a[1]), cut(a[2]), cut(a[3])}, {cut(b[0]), cut(b[1])}};
  simt::warp_collective(0xffffffffu, &own, detail::mma_twin<float, 16, 8, 8>, where);
#endif
}

__device__ __forceinline__ void mma_m8n8k4_f64(double (&d)[2], double a, double b, place where = place::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
#else
  detail::mma_operand<double> own{d, {a}, {b}};
  simt::warp_collective(0xffffffffu, &own, detail::mma_twin<double, 8, 8, 4>, where);
#endif
}

}  // namespace ballast::arch
