// Matrix products of a warpgroup (four warps, 128 threads): D += A·B. D is 64 × N, A is 64 × K, B is K × N, K = 16 halves or 8 TF32
// numbers, with sums in f32. A is in registers. B is in shared memory with k fastest: a column of B is a row of 16, 32, 64 or 128 bytes in
// a group of eight rows.
// Order of calls: fence_wgmma(d), products, commit_wgmma(), wait_wgmma(d). Only then may d be read or written, or an operand be
// overwritten, including operands in registers. Products on the same d may follow each other without a wait.
// Layer: foundation, device. sm_90a only.
// Source: the matrix descriptors and fragment layouts of the PTX ISA.
#pragma once

#include "cuda/arch/mma.cuh"
#include "cuda/arch/shared.cuh"
#include "cuda/arch/target.cuh"

namespace ballast::arch {

// The permutation of 16-byte units within the rows of a group, which avoids bank conflicts. The value is the field of the descriptor.
// none: an 8 × 16-byte block of a group is contiguous, and the two blocks of a product are `leading` bytes apart.
enum class swizzle : std::uint32_t { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

// Returns the bytes of a row of a swizzled group.
__device__ __forceinline__ constexpr int row_bytes(swizzle mode) {
  return mode == swizzle::bytes_128 ? 128 : mode == swizzle::bytes_64 ? 64 : mode == swizzle::bytes_32 ? 32 : 16;
}

// Returns the offset at which the byte with this logical offset is stored. The operand starts at a multiple of 1024 bytes.
__device__ __forceinline__ std::uint32_t swizzled(swizzle mode, std::uint32_t offset) {
  return offset ^ ((offset >> 7 & static_cast<std::uint32_t>(row_bytes(mode) / 16 - 1)) << 4);
}

// An operand in shared memory.
struct matrix_descriptor {
#if BALLAST_DEVICE_CODE
  std::uint64_t bits;
#else
  const unsigned char* start;
  int leading;
  int stride;
  swizzle mode;
#endif
};

// Returns the descriptor of the operand at `tile`, which is aligned to 16 bytes, or to 1024 bytes if swizzled (`advanced` below moves the
// start). `stride`: bytes from one 8-row group to the next. `leading`: see swizzle::none; not used otherwise. Both: multiples of 16, below
// 2^18.
__device__ __forceinline__ matrix_descriptor describe(const void* tile, int stride, swizzle mode, int leading = 16) {
#if BALLAST_DEVICE_CODE
  return {static_cast<std::uint64_t>((shared_address(tile) & 0x3ffffu) >> 4) | static_cast<std::uint64_t>(leading >> 4) << 16 |
          static_cast<std::uint64_t>(stride >> 4) << 32 | static_cast<std::uint64_t>(mode) << 62};
#else
  simt::require_aligned(tile, mode == swizzle::none ? 16 : 1024);
  if (stride % 16 != 0 || leading % 16 != 0) simt::refuse("strides of a matrix descriptor are multiples of 16 bytes");
  return {static_cast<const unsigned char*>(tile), leading, stride, mode};
#endif
}

// Returns the operand that starts `bytes` later, a multiple of 16. The next K values of k start 32 bytes later in a swizzled row.
__device__ __forceinline__ matrix_descriptor advanced(matrix_descriptor operand, int bytes) {
#if BALLAST_DEVICE_CODE
  // The address is in the lower word, without a carry. The addition is written with words, because the compiler would otherwise add 64-bit
  // numbers.
  const auto low = static_cast<std::uint32_t>(operand.bits) + static_cast<std::uint32_t>(bytes >> 4);
  asm("mov.b64 %0, {%1, %2};" : "=l"(operand.bits) : "r"(low), "r"(static_cast<std::uint32_t>(operand.bits >> 32)));
#else
  operand.start += bytes;
#endif
  return operand;
}

#if BALLAST_DEVICE_CODE
namespace detail {
// Keeps the compiler from moving accesses to d across this point.
template <int Size>
__device__ __forceinline__ void pin(float (&d)[Size]) {
#pragma unroll
  for (int i = 0; i < Size; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
}  // namespace detail
#endif

// Call it before the first product, and again after ordinary code has accessed d. D: float[N / 2], one for each product that follows.
template <class... D>
__device__ __forceinline__ void fence_wgmma([[maybe_unused]] D&... d) {
#if BALLAST_DEVICE_CODE
  (detail::pin(d), ...);
  BALLAST_ASM_SM90A("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void commit_wgmma() {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  simt::product_commit();
#endif
}

// Waits until at most GroupsLeft committed groups of products are pending. D: the results that are complete then.
template <int GroupsLeft, class... D>
__device__ __forceinline__ void wait_wgmma([[maybe_unused]] D&... d) {
#if BALLAST_DEVICE_CODE
  BALLAST_ASM_SM90A("wgmma.wait_group.sync.aligned %0;" ::"n"(GroupsLeft) : "memory");
  (detail::pin(d), ...);
#else
  simt::product_wait(GroupsLeft);
#endif
}

#if !BALLAST_DEVICE_CODE
namespace detail {

// The operands of one thread. The twin adds in double, in ascending order of k, and rounds once; products of two numbers are exact.
struct wgmma_operand {
  float* d;
  std::uint32_t a[4];
  matrix_descriptor b;
  bool accumulate;
};

// Types of operands. k_deep: K of one product; k_pair: the number of consecutive k in one register of A.
struct wgmma_halves {
  static constexpr int k_deep = 16, k_pair = 2;
  using stored = std::uint16_t;
  static double value(std::uint32_t bits) { return from_half(bits); }
};
struct wgmma_tf32 {
  static constexpr int k_deep = 8, k_pair = 1;
  using stored = std::uint32_t;
  static double value(std::uint32_t bits) { return __uint_as_float(bits & ~0x1fffu); }  // TF32 has the upper bits only
};

// Returns element k of column r.
template <class Type>
double wgmma_element(const matrix_descriptor& of, int r, int k) {
  using stored = typename Type::stored;
  constexpr int unit = 16 / sizeof(stored), size = sizeof(stored);
  const unsigned char* at = of.start + r / 8 * of.stride + r % 8 * row_bytes(of.mode);
  at += of.mode == swizzle::none ? k / unit * of.leading + k % unit * size : size * k;
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  at += static_cast<std::ptrdiff_t>(swizzled(of.mode, address & 0x3ff)) - static_cast<std::ptrdiff_t>(address & 0x3ff);
  stored bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return Type::value(bits);
}

// The scalar twin of the products. It accesses the threads' registers, so it is excluded from the sanitizers (and has no lambda, which the
// attribute would not cover). wgmma_element, which reads shared memory, is checked by them.
template <class Type, int N>
__attribute__((no_sanitize("address", "undefined"))) void wgmma_twin(const unsigned char* operands, int size) {
  constexpr int deep = Type::k_deep, pair = Type::k_pair;
  const matrix_descriptor& of_all = reinterpret_cast<const wgmma_operand*>(operands)->b;
  double b[deep * N], a[2 * deep], d[2 * N];  // two rows of D at a time, because the stacks of emulated threads are small
  for (int column = 0; column < N; ++column) {
    for (int k = 0; k < deep; ++k) b[k * N + column] = wgmma_element<Type>(of_all, column, k);
  }
  // Four threads hold two rows, 8 apart.
  for (int first = 0; first < 128; first += 4) {
    for (int t = 0; t < 4; ++t) {
      const auto& from = *reinterpret_cast<const wgmma_operand*>(operands + (first + t) * size);
      for (int i = 0; i < 4; ++i) {
        for (int one = 0; one < pair; ++one) a[i % 2 * deep + i / 2 * (deep / 2) + t * pair + one] = Type::value(from.a[i] >> 16 * one);
      }
      for (int i = 0; i < N / 2; ++i) d[i % 4 / 2 * N + i / 4 * 8 + 2 * t + i % 2] = from.accumulate ? from.d[i] : 0;
    }
    simt::multiply_add(2, N, deep, a, b, d);
    for (int t = 0; t < 4; ++t) {
      float* const to = reinterpret_cast<const wgmma_operand*>(operands + (first + t) * size)->d;
      for (int i = 0; i < N / 2; ++i) to[i] = static_cast<float>(d[i % 4 / 2 * N + i / 4 * 8 + 2 * t + i % 2]);
    }
  }
}

}  // namespace detail
#endif

#if BALLAST_DEVICE_CODE
// clang-format off
// The products of all widths. TEXTi, LISTi: the first 4 i elements of d, as text of the instruction and as operands of the asm statement.
#define BALLAST_QUAD(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BALLAST_TEXT1 "%0, %1, %2, %3"
#define BALLAST_LIST1 BALLAST_QUAD(0)
#define BALLAST_TEXT2 BALLAST_TEXT1 ", %4, %5, %6, %7"
#define BALLAST_LIST2 BALLAST_LIST1, BALLAST_QUAD(4)
#define BALLAST_TEXT3 BALLAST_TEXT2 ", %8, %9, %10, %11"
#define BALLAST_LIST3 BALLAST_LIST2, BALLAST_QUAD(8)
#define BALLAST_TEXT4 BALLAST_TEXT3 ", %12, %13, %14, %15"
#define BALLAST_LIST4 BALLAST_LIST3, BALLAST_QUAD(12)
#define BALLAST_TEXT5 BALLAST_TEXT4 ", %16, %17, %18, %19"
#define BALLAST_LIST5 BALLAST_LIST4, BALLAST_QUAD(16)
#define BALLAST_TEXT6 BALLAST_TEXT5 ", %20, %21, %22, %23"
#define BALLAST_LIST6 BALLAST_LIST5, BALLAST_QUAD(20)
#define BALLAST_TEXT7 BALLAST_TEXT6 ", %24, %25, %26, %27"
#define BALLAST_LIST7 BALLAST_LIST6, BALLAST_QUAD(24)
#define BALLAST_TEXT8 BALLAST_TEXT7 ", %28, %29, %30, %31"
#define BALLAST_LIST8 BALLAST_LIST7, BALLAST_QUAD(28)
#define BALLAST_TEXT9 BALLAST_TEXT8 ", %32, %33, %34, %35"
#define BALLAST_LIST9 BALLAST_LIST8, BALLAST_QUAD(32)
#define BALLAST_TEXT10 BALLAST_TEXT9 ", %36, %37, %38, %39"
#define BALLAST_LIST10 BALLAST_LIST9, BALLAST_QUAD(36)
#define BALLAST_TEXT11 BALLAST_TEXT10 ", %40, %41, %42, %43"
#define BALLAST_LIST11 BALLAST_LIST10, BALLAST_QUAD(40)
#define BALLAST_TEXT12 BALLAST_TEXT11 ", %44, %45, %46, %47"
#define BALLAST_LIST12 BALLAST_LIST11, BALLAST_QUAD(44)
#define BALLAST_TEXT13 BALLAST_TEXT12 ", %48, %49, %50, %51"
#define BALLAST_LIST13 BALLAST_LIST12, BALLAST_QUAD(48)
#define BALLAST_TEXT14 BALLAST_TEXT13 ", %52, %53, %54, %55"
#define BALLAST_LIST14 BALLAST_LIST13, BALLAST_QUAD(52)
#define BALLAST_TEXT15 BALLAST_TEXT14 ", %56, %57, %58, %59"
#define BALLAST_LIST15 BALLAST_LIST14, BALLAST_QUAD(56)
#define BALLAST_TEXT16 BALLAST_TEXT15 ", %60, %61, %62, %63"
#define BALLAST_LIST16 BALLAST_LIST15, BALLAST_QUAD(60)
#define BALLAST_PRODUCT(n, text, list, a0, a1, a2, a3, b0, p, type, transposed)                                                  \
  if constexpr (N == n) {                                                                                                        \
    BALLAST_ASM_SM90A(                                                                                                           \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %" #p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n type " {" text                              \
        "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b0 ", p, 1, 1" transposed ";\n}\n"                                       \
        : list                                                                                                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(add)                                                      \
        : "memory");                                                                                                             \
  }
#define BALLAST_PRODUCTS(type, transposed) \
  BALLAST_PRODUCT(8, BALLAST_TEXT1, BALLAST_LIST1, 4, 5, 6, 7, 8, 9, type, transposed) \
  BALLAST_PRODUCT(16, BALLAST_TEXT2, BALLAST_LIST2, 8, 9, 10, 11, 12, 13, type, transposed) \
  BALLAST_PRODUCT(24, BALLAST_TEXT3, BALLAST_LIST3, 12, 13, 14, 15, 16, 17, type, transposed) \
  BALLAST_PRODUCT(32, BALLAST_TEXT4, BALLAST_LIST4, 16, 17, 18, 19, 20, 21, type, transposed) \
  BALLAST_PRODUCT(40, BALLAST_TEXT5, BALLAST_LIST5, 20, 21, 22, 23, 24, 25, type, transposed) \
  BALLAST_PRODUCT(48, BALLAST_TEXT6, BALLAST_LIST6, 24, 25, 26, 27, 28, 29, type, transposed) \
  BALLAST_PRODUCT(56, BALLAST_TEXT7, BALLAST_LIST7, 28, 29, 30, 31, 32, 33, type, transposed) \
  BALLAST_PRODUCT(64, BALLAST_TEXT8, BALLAST_LIST8, 32, 33, 34, 35, 36, 37, type, transposed) \
  BALLAST_PRODUCT(72, BALLAST_TEXT9, BALLAST_LIST9, 36, 37, 38, 39, 40, 41, type, transposed) \
  BALLAST_PRODUCT(80, BALLAST_TEXT10, BALLAST_LIST10, 40, 41, 42, 43, 44, 45, type, transposed) \
  BALLAST_PRODUCT(88, BALLAST_TEXT11, BALLAST_LIST11, 44, 45, 46, 47, 48, 49, type, transposed) \
  BALLAST_PRODUCT(96, BALLAST_TEXT12, BALLAST_LIST12, 48, 49, 50, 51, 52, 53, type, transposed) \
  BALLAST_PRODUCT(104, BALLAST_TEXT13, BALLAST_LIST13, 52, 53, 54, 55, 56, 57, type, transposed) \
  BALLAST_PRODUCT(112, BALLAST_TEXT14, BALLAST_LIST14, 56, 57, 58, 59, 60, 61, type, transposed) \
  BALLAST_PRODUCT(120, BALLAST_TEXT15, BALLAST_LIST15, 60, 61, 62, 63, 64, 65, type, transposed) \
  BALLAST_PRODUCT(128, BALLAST_TEXT16, BALLAST_LIST16, 64, 65, 66, 67, 68, 69, type, transposed)
// clang-format on
#endif

// With w the warp in its group, g = lane / 4 and t = lane % 4, a thread holds for each j
//   d[4j]      D at (16w + g, 8j + 2t)
//   d[4j + 1]  D at (16w + g, 8j + 2t + 1)
//   d[4j + 2]  D at (16w + g + 8, 8j + 2t)
//   d[4j + 3]  D at (16w + g + 8, 8j + 2t + 1)
// Computes d = A·B, or d += A·B if `accumulate`. N: a multiple of 8, at most 128. All 128 threads of a warpgroup call it with the same B.
// a[0 … 3] are pairs from to_halves: the elements of A at (16w + g, 2t), (16w + g + 8, 2t), (16w + g, 2t + 8) and (16w + g + 8, 2t + 8),
// each with its right neighbour.
template <int N>
__device__ __forceinline__ void wgmma_m64k16_f16(float (&d)[N / 2], const std::uint32_t (&a)[4], matrix_descriptor b,
                                                 bool accumulate = true, code_location where = code_location::here()) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 128);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  const int add = accumulate ? 1 : 0;
  BALLAST_PRODUCTS("k16.f32.f16.f16", ", 0")
#else
  const detail::wgmma_operand own{d, {a[0], a[1], a[2], a[3]}, b, accumulate};
  simt::product_begin(&own, sizeof(own), detail::wgmma_twin<detail::wgmma_halves, N>, where);
#endif
}

// The same for TF32. a[0 … 3] are the elements of A at (16w + g, t), (16w + g + 8, t), (16w + g, t + 4) and (16w + g + 8, t + 4). Their
// lower 13 bits are ignored.
template <int N>
__device__ __forceinline__ void wgmma_m64k8_tf32(float (&d)[N / 2], const std::uint32_t (&a)[4], matrix_descriptor b,
                                                 bool accumulate = true, code_location where = code_location::here()) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 128);
#if BALLAST_DEVICE_CODE
  static_cast<void>(where);
  const int add = accumulate ? 1 : 0;
  BALLAST_PRODUCTS("k8.f32.tf32.tf32", "")
#else
  const detail::wgmma_operand own{d, {a[0], a[1], a[2], a[3]}, b, accumulate};
  simt::product_begin(&own, sizeof(own), detail::wgmma_twin<detail::wgmma_tf32, N>, where);
#endif
}

}  // namespace ballast::arch
