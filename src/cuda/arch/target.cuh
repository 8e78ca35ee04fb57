// What compiles this: a CUDA compiler (nvcc, NVRTC) or g++ against the test emulator; and for the former, for which architecture.
// Layer: foundation, device. Every function of cuda/arch is PTX in the one case and a scalar twin in the other.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BALLAST_DEVICE_CODE 1
#else
#define BALLAST_DEVICE_CODE 0
#include BALLAST_EMULATOR  // a header of the test emulator, named by the build
#endif

// Where in the source the caller stands, for the emulator's messages: a last parameter with a default, empty in device code.
namespace ballast::arch {

#if BALLAST_DEVICE_CODE
struct place {
  static __device__ __forceinline__ constexpr place here() { return {}; }
};
#else
struct place : simt::place {
  static constexpr place here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) { return {{file, line}}; }
};
#endif

#if BALLAST_DEVICE_CODE
// PTX that the target lacks must not reach the assembler, so calls for less than sm_90 end here.
__device__ __forceinline__ void trap() { asm volatile("trap;"); }
#endif

}  // namespace ballast::arch

// The asm statement where the target is sm_90 or later, a trap elsewhere.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BALLAST_ASM_SM90(...) asm volatile(__VA_ARGS__)
#else
#define BALLAST_ASM_SM90(...) ::ballast::arch::trap()
#endif

// The same for sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BALLAST_ASM_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define BALLAST_ASM_SM90A(...) ::ballast::arch::trap()
#endif
