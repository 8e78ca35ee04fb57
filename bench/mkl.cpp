// The descriptors of one- to many-dimensional transforms, with batches. The names and numbers are those of Intel's reference,
// "Fourier Transform Functions" (mkl_dfti.h).
#include "mkl.hpp"

#include <cstdlib>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include <ballast/error.hpp>

namespace ballast::bench {
namespace {

enum : int {
  k_backward_scale = 5,
  k_number_of_transforms = 7,
  k_conjugate_even_storage = 10,
  k_placement = 11,
  k_input_strides = 12,
  k_output_strides = 13,
  k_input_distance = 14,
  k_output_distance = 15,
  k_complex = 32,
  k_real = 33,
  k_single = 35,
  k_double = 36,
  k_complex_complex = 39,
  k_not_in_place = 44,
};

}  // namespace

// The interface has long for MKL_LONG: that of 64-bit Linux.
struct mkl_plan::functions {
  long (*create)(void**, int, int, long, ...) = nullptr;
  long (*set)(void*, int, ...) = nullptr;
  long (*commit)(void*) = nullptr;
  long (*forward)(void*, ...) = nullptr;
  long (*backward)(void*, ...) = nullptr;
  long (*release)(void**) = nullptr;
  char* (*message)(long) = nullptr;
  void (*threads)(int) = nullptr;
};

const mkl_plan::functions& mkl_plan::opened(const std::string& library) {
  static const functions made = [&] {
    if (library.empty()) throw unsupported_error("no folder of rivals has libmkl_rt.so");
    // Its own threads: it would take those of another library of the process otherwise.
    setenv("MKL_THREADING_LAYER", "INTEL", 0);
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw unsupported_error(fmt::format("{}", dlerror()));
    functions all;
    const auto find = [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) throw unsupported_error(fmt::format("{} has no {}", library, name));
    };
    find("DftiCreateDescriptor", all.create);
    find("DftiSetValue", all.set);
    find("DftiCommitDescriptor", all.commit);
    find("DftiComputeForward", all.forward);
    find("DftiComputeBackward", all.backward);
    find("DftiFreeDescriptor", all.release);
    find("DftiErrorMessage", all.message);
    find("MKL_Set_Num_Threads", all.threads);
    return all;
  }();
  return made;
}

mkl_plan::mkl_plan(const std::string& library, const fft::problem& problem, fft::direction way, int threads)
    : call_(opened(library)),
      forward_(problem.kind == fft::kind::r2c || (problem.kind == fft::kind::c2c && way == fft::direction::forward)) {
  if (problem.kind == fft::kind::r2r) throw unsupported_error("DFTI has no real-to-real transforms");
  call_.threads(threads);
  const bool is_complex = problem.kind == fft::kind::c2c;
  const std::vector<long> n(problem.shape.begin(), problem.shape.end());
  const auto rank = static_cast<long>(n.size());
  const int type = problem.precision == precision::f32 ? k_single : k_double;
  const auto check = [&](long status) {
    if (status != 0) throw unsupported_error(call_.message(status));
  };
  // One length is passed by value.
  check(rank == 1 ? call_.create(&descriptor_, type, is_complex ? k_complex : k_real, 1L, n[0])
                  : call_.create(&descriptor_, type, is_complex ? k_complex : k_real, rank, n.data()));
  // Strides of the last axis first, from the end; element 0 is an offset.
  std::vector<long> whole(n.size() + 1, 0), half(n.size() + 1, 0);
  long points = 1, stored = 1;
  for (std::size_t axis = n.size(); axis-- > 0;) {
    whole[axis + 1] = points;
    half[axis + 1] = stored;
    points *= n[axis];
    stored *= axis + 1 == n.size() ? n[axis] / 2 + 1 : n[axis];
  }
  const bool to_half = problem.kind == fft::kind::r2c, from_half = problem.kind == fft::kind::c2r;
  check(call_.set(descriptor_, k_placement, k_not_in_place));
  if (!is_complex) check(call_.set(descriptor_, k_conjugate_even_storage, k_complex_complex));
  check(call_.set(descriptor_, k_input_strides, (from_half ? half : whole).data()));
  check(call_.set(descriptor_, k_output_strides, (to_half ? half : whole).data()));
  check(call_.set(descriptor_, k_number_of_transforms, static_cast<long>(problem.batch)));
  check(call_.set(descriptor_, k_input_distance, from_half ? stored : points));
  check(call_.set(descriptor_, k_output_distance, to_half ? stored : points));
  if (!forward_) check(call_.set(descriptor_, k_backward_scale, 1.0 / static_cast<double>(points)));
  check(call_.commit(descriptor_));
}

mkl_plan::~mkl_plan() {
  if (descriptor_ != nullptr) call_.release(&descriptor_);
}

void mkl_plan::execute(const void* in, void* out) const {
  const long status = (forward_ ? call_.forward : call_.backward)(descriptor_, const_cast<void*>(in), out);
  if (status != 0) throw error(call_.message(status));
}

}  // namespace ballast::bench
