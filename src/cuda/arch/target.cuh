// Selects the code for the compiler: a CUDA compiler (nvcc, NVRTC) and its target architecture, or g++ against the test emulator.
// Layer: foundation, device. Every function of cuda/arch is PTX for a CUDA compiler and a scalar twin for g++.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BALLAST_DEVICE_CODE 1
#else
#define BALLAST_DEVICE_CODE 0
#include BALLAST_EMULATOR  // a header of the test emulator, named by the build
#endif

// The source location of the caller, for the emulator's messages. Functions take it as a last parameter with a default. Empty in device
// code.
namespace ballast::arch {

#if BALLAST_DEVICE_CODE
struct code_location {
  static __device__ __forceinline__ constexpr code_location here() { return {}; }
};
#else
struct code_location : simt::code_location {
  static constexpr code_location here(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) { return {{file, line}}; }
};
#endif

#if BALLAST_DEVICE_CODE
// PTX that the target does not support must not reach the assembler. This replaces it below sm_90.
__device__ __forceinline__ void trap() { asm volatile("trap;"); }
#endif

}  // namespace ballast::arch

// Expands to the asm statement if the target is sm_90 or later, otherwise to a trap.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BALLAST_ASM_SM90(...) asm volatile(__VA_ARGS__)
#else
#define BALLAST_ASM_SM90(...) ::ballast::arch::trap()
#endif

// The same for sm_90a only.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BALLAST_ASM_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define BALLAST_ASM_SM90A(...) ::ballast::arch::trap()
#endif
