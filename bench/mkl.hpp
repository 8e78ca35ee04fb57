// MKL's transforms, by its DFTI descriptors; the library is opened at run time.
// Layer: tools. MKL is no dependency: without it, the benchmark says why.
#pragma once

#include <memory>
#include <string>

#include <ballast/fft.hpp>

namespace ballast::bench {

class mkl_plan {
 public:
  // `library`: the path of libmkl_rt.so.N. Throws unsupported_error, with the reason, if it cannot be opened, or if it has no such
  // transform. Out of place; the factor of the inverse is 1/N, as Ballast's.
  mkl_plan(const std::string& library, const fft::problem& problem, fft::direction way, int threads);
  ~mkl_plan();
  mkl_plan(const mkl_plan&) = delete;
  mkl_plan& operator=(const mkl_plan&) = delete;
  void execute(const void* in, void* out) const;

 private:
  struct functions;
  static const functions& opened(const std::string& library);
  const functions& call_;
  void* descriptor_ = nullptr;
  bool forward_;
};

}  // namespace ballast::bench
