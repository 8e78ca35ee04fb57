// Matrix products of one warp on tensor cores: D = A·B + D, with each matrix distributed over the lanes.
// Layer: foundation, device. sm_80 and later. Source: the fragment layouts of the PTX ISA.
// With g = lane / 4 and t = lane % 4, a lane holds
//   m16n8k8   A: (g, t) (g+8, t) (g, t+4) (g+8, t+4)    B: (t, g) (t+4, g)    D: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1)
//   m8n8k4    A: (g, t)                                 B: (t, g)             D: (g, 2t) (g, 2t+1)
// as (row, column), in this order. m16n8k16 is m16n8k8 with two halves instead of each float: (…, 2t) and (…, 2t+1) instead of t, and 8
// more instead of t+4. FP64 on sm_90: m8n8k4 has half the rate of m16n8k8 (32.8 and 65.5 TFLOP/s measured on an H100).
#pragma once

#include "cuda/arch/target.cuh"

namespace ballast::arch {

// Rounds to TF32 (10 mantissa bits; ties away from zero), and returns the bits as those of a float.
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

// Returns the bits of two halves, `first` in the lower 16. Rounds to nearest, ties to even; magnitudes below 2⁻¹⁴ to multiples of 2⁻²⁴;
// from 65520 on the result is infinite.
__device__ __forceinline__ std::uint32_t to_halves(float first, float second) {
#if BALLAST_DEVICE_CODE
  std::uint32_t made;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(made) : "f"(second), "f"(first));
  return made;
#else
  const auto rounded = [](float value) -> std::uint32_t {
    const std::uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7fffu;   // NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // infinite
    if (magnitude >= 0x38800000u) return sign | ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) - 0x38000000u) >> 13;
    return sign | static_cast<std::uint32_t>(::rint(::fabs(static_cast<double>(value)) * 0x1p24));
  };
  return rounded(first) | rounded(second) << 16;
#endif
}

// Converts the half in the lower 16 bits to a float.
__device__ __forceinline__ float from_half(std::uint32_t half) {
#if BALLAST_DEVICE_CODE
  float made;
  asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.f32.f16 %0, h;\n}\n" : "=f"(made) : "r"(half));
  return made;
#else
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t bits = magnitude >= 0x7c00u  ? 0x7f800000u | (magnitude & 0x3ffu) << 13
                             : magnitude >= 0x400u ? (magnitude << 13) + 0x38000000u
                                                   : __float_as_uint(static_cast<float>(magnitude) * 0x1p-24f);
  return __uint_as_float(bits | (half & 0x8000u) << 16);
#endif
}

#if !BALLAST_DEVICE_CODE
namespace detail {

// The operands of one lane in a product of M × N × K. The twin multiplies exactly and adds in double, in ascending order of k, and rounds
// once at the end for float. Hardware adds in another order, with at least the precision of float.
template <class T>
struct mma_operand {
  T* d;
  T a[8];
  T b[4];
};

// The scalar twin of the products. Pair: the number of consecutive k that a lane holds in one register. It only reads and writes the lanes'
// own registers, so it is excluded from the sanitizers. It has no lambda, because the attribute does not cover the body of a lambda.
template <class T, int M, int N, int K, int Pair = 1>
__attribute__((no_sanitize("address", "undefined"))) void mma_twin(void* const* operands, unsigned lanes) {
  if (lanes != 0xffffffffu) simt::refuse("a matrix product needs a whole warp");
  double a[M * K], b[K * N], d[M * N];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& from = *static_cast<const mma_operand<T>*>(operands[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < K / (4 * Pair); ++half) {
      for (int one = 0; one < Pair; ++one) {
        const int k = (half * 4 + t) * Pair + one;
        for (int upper = 0; upper < M / 8; ++upper) a[(8 * upper + g) * K + k] = from.a[(half * (M / 8) + upper) * Pair + one];
        b[k * N + g] = from.b[half * Pair + one];
      }
    }
    for (int i = 0; i < M / 4; ++i) d[(i / 2 * 8 + g) * N + 2 * t + i % 2] = from.d[i];
  }
  simt::multiply_add(M, N, K, a, b, d);
  for (int lane = 0; lane < 32; ++lane) {
    T* const to = static_cast<const mma_operand<T>*>(operands[lane])->d;
    for (int i = 0; i < M / 4; ++i) to[i] = static_cast<T>(d[(i / 2 * 8 + lane / 4) * N + lane % 4 * 2 + i % 2]);
  }
}

}  // namespace detail
#endif

// The operands are TF32 numbers from to_tf32. The lower 13 bits of others are ignored.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                 code_location where = code_location::here()) {
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

// The operands are pairs of halves from to_halves; the sums are in f32.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                                 code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  detail::mma_operand<float> own{d, {}, {}};
  for (int i = 0; i < 8; ++i) own.a[i] = from_half(a[i / 2] >> 16 * (i % 2));
  for (int i = 0; i < 4; ++i) own.b[i] = from_half(b[i / 2] >> 16 * (i % 2));
  simt::warp_collective(0xffffffffu, &own, detail::mma_twin<float, 16, 8, 16, 2>, where);
#endif
}

__device__ __forceinline__ void mma_m8n8k4_f64(double (&d)[2], double a, double b, code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
#else
  detail::mma_operand<double> own{d, {a}, {b}};
  simt::warp_collective(0xffffffffu, &own, detail::mma_twin<double, 8, 8, 4>, where);
#endif
}

// One instruction on sm_90 and later; four m8n8k4 before.
__device__ __forceinline__ void mma_m16n8k8_f64(double (&d)[4], const double (&a)[4], const double (&b)[2],
                                                code_location where = code_location::here()) {
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
#if __CUDA_ARCH__ >= 900
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
               : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
  double(&upper)[2] = reinterpret_cast<double(&)[2]>(d[0]);
  double(&lower)[2] = reinterpret_cast<double(&)[2]>(d[2]);
  for (int k = 0; k < 2; ++k) {
    mma_m8n8k4_f64(upper, a[2 * k], b[k]);
    mma_m8n8k4_f64(lower, a[2 * k + 1], b[k]);
  }
#endif
#else
  detail::mma_operand<double> own{d, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  simt::warp_collective(0xffffffffu, &own, detail::mma_twin<double, 16, 8, 8>, where);
#endif
}

}  // namespace ballast::arch
