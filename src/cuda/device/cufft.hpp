// NVIDIA's cuFFT: loaded at run time, never linked; its own declarations of the few functions that are needed.
// Layer: cuda. For the FFT's scheme `offline`; benchmarks and tests have it as the rival, and compile it beside library.cpp.
// Source: cuFFT API reference, CUDA 13.0 (values of the enumerations, order of the calls).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ballast/fft.hpp>

namespace ballast::cuda {

// Why cuFFT cannot be used, in one sentence; empty if it can be. library.hpp says where it is looked for.
std::string why_no_cufft();

// For example "12.0.0"; empty without cuFFT.
std::string cufft_version();

// One transform of contiguous data, as cuFFT plans it. Unnormalised in both directions.
class cufft_plan {
 public:
  // `patient`: with the plan property PATIENT_JIT, for which cuFFT compiles more kernels while it plans. `in_place`: for execution with
  // in == out; real rows are then padded to n/2 + 1 complex elements.
  // Throws unsupported_error (no cuFFT, a property that this version does not know, a problem it refuses).
  cufft_plan(const fft::problem& problem, fft::direction way, bool patient, bool in_place = false);
  ~cufft_plan();
  cufft_plan(const cufft_plan&) = delete;
  cufft_plan& operator=(const cufft_plan&) = delete;

  // Device pointers. Asynchronous. Multi-dimensional c2r destroys its input.
  void execute(const void* in, void* out, void* stream) const;

  std::size_t workspace_bytes() const noexcept { return workspace_; }

 private:
  fft::kind kind_;
  precision type_;
  fft::direction way_;
  int handle_ = -1;
  std::size_t workspace_ = 0;
};

}  // namespace ballast::cuda
