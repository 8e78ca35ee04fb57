// NVIDIA's cuFFT, which is loaded at run time and never linked. cufft.cpp declares the few functions that it needs.
// Layer: cuda. The FFT's scheme `offline` uses it. Benchmarks and tests compare with it, and compile it together with system/library.cpp.
// Source: cuFFT API reference, CUDA 13.0 (values of the enumerations, order of the calls).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ballast/fft.hpp>

namespace ballast::cuda {

// Returns the reason why cuFFT cannot be used, in one sentence; empty if it can. system/library.hpp lists the places where it is searched.
std::string why_no_cufft();

// Returns the version, for example "12.0.0"; empty without cuFFT.
std::string cufft_version();

// A cuFFT plan for one transform of contiguous data, or of a layout that cuFFT's parameters inembed, stride and distance describe.
// Unnormalised in both directions.
class cufft_plan {
 public:
  // `patient`: set the plan property PATIENT_JIT, with which cuFFT compiles more kernels during planning. `in_place`: for execution with
  // in == out; real rows are then padded to n/2 + 1 complex elements.
  // Throws unsupported_error if cuFFT is missing, does not know the property, or refuses the problem, or if a stride is no multiple of the
  // next.
  cufft_plan(const fft::problem& problem, fft::direction way, bool patient, bool in_place = false);
  ~cufft_plan();
  cufft_plan(const cufft_plan&) = delete;
  cufft_plan& operator=(const cufft_plan&) = delete;

  // Enqueues the transform. `in`, `out`: device pointers. Asynchronous. Multi-dimensional c2r destroys its input.
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
