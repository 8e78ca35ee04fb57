// Loads cuFFT, and creates and executes its plans.
#include "cuda/device/cufft.hpp"

#include <vector>

#include <ballast/error.hpp>

#include "cuda/system/library.hpp"

namespace ballast::cuda {
namespace {

// The values of cuFFT's enumerations.
enum transform : int { k_r2c = 0x2a, k_c2r = 0x2c, k_c2c = 0x29, k_d2z = 0x6a, k_z2d = 0x6c, k_z2z = 0x69 };
constexpr int k_forward = -1, k_inverse = 1;
constexpr int k_property_patient_jit = 1;
constexpr int k_no_plan = -1;

const char* words(int status) {
  switch (status) {
    case 0: return "success";
    case 1: return "invalid plan";
    case 2: return "allocation failed";
    case 4: return "invalid value";
    case 5: return "internal error";
    case 6: return "execution failed";
    case 7: return "setup failed";
    case 8: return "invalid size";
    case 16: return "not supported";
    case 17: return "a library that it needs is missing";
    case 18: return "NVRTC failed";
    case 19: return "nvJitLink failed";
  }
  return "another error";
}

}  // namespace

class cufft_library {
 public:
  static const cufft_library& get() {
    static const cufft_library& made = *new cufft_library;  // never unloaded: plans may outlive static objects
    return made;
  }

  std::string missing;  // why it cannot be used
  int (*create)(int*) = nullptr;
  int (*destroy)(int) = nullptr;
  int (*make_plan_many)(int, int, long long*, long long*, long long, long long, long long*, long long, long long, int, long long,
                        std::size_t*) = nullptr;
  int (*set_stream)(int, void*) = nullptr;
  int (*set_property)(int, int, long long) = nullptr;  // null before CUDA 12.1
  int (*get_version)(int*) = nullptr;
  int (*exec_c2c)(int, void*, void*, int) = nullptr;
  int (*exec_z2z)(int, void*, void*, int) = nullptr;
  int (*exec_r2c)(int, void*, void*) = nullptr;
  int (*exec_c2r)(int, void*, void*) = nullptr;
  int (*exec_d2z)(int, void*, void*) = nullptr;
  int (*exec_z2d)(int, void*, void*) = nullptr;

 private:
  cufft_library() {
    const opened_library opened = open_library(k_cufft_library);
    missing = opened.why;
    if (opened.handle == nullptr) return;
    const auto find = [&](auto& into, const char* name) {
      if (!find_function(opened.handle, name, into) && missing.empty()) missing = std::string("cuFFT has no function ") + name;
    };
    find(create, "cufftCreate");
    find(destroy, "cufftDestroy");
    find(make_plan_many, "cufftMakePlanMany64");
    find(set_stream, "cufftSetStream");
    find(get_version, "cufftGetVersion");
    find(exec_c2c, "cufftExecC2C");
    find(exec_z2z, "cufftExecZ2Z");
    find(exec_r2c, "cufftExecR2C");
    find(exec_c2r, "cufftExecC2R");
    find(exec_d2z, "cufftExecD2Z");
    find(exec_z2d, "cufftExecZ2D");
    find_function(opened.handle, "cufftSetPlanPropertyInt64", set_property);
  }
};

std::string why_no_cufft() { return cufft_library::get().missing; }

std::string cufft_version() {
  if (!why_no_cufft().empty()) return "";
  int version = 0;
  if (cufft_library::get().get_version(&version) != 0) return "unknown";
  return std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10) + "." + std::to_string(version % 100);
}

cufft_plan::cufft_plan(const fft::problem& problem, fft::direction way, bool patient, bool in_place)
    : kind_(problem.kind), type_(problem.precision), way_(way) {
  const cufft_library& library = cufft_library::get();
  if (!library.missing.empty()) throw unsupported_error(library.missing);
  const std::string token = to_token(problem, way);
  if (patient && library.set_property == nullptr)
    throw unsupported_error(token + ": cuFFT " + cufft_version() + " has no plan property PATIENT_JIT");
  const auto check = [&](int status, const char* what) {
    if (status == 0) return;
    if (handle_ != k_no_plan) library.destroy(handle_);
    throw unsupported_error(token + ": cuFFT: " + what + ": " + words(status) + " (" + std::to_string(status) + ")");
  };
  check(library.create(&handle_), "cufftCreate");
  // A property must be set after cufftCreate and before cufftMakePlanMany64.
  if (patient) check(library.set_property(handle_, k_property_patient_jit, 1), "PATIENT_JIT");

  const bool single = type_ == precision::f32;
  const int kind = kind_ == fft::kind::c2c   ? (single ? k_c2c : k_z2z)
                   : kind_ == fft::kind::r2c ? (single ? k_r2c : k_d2z)
                                             : (single ? k_c2r : k_z2d);
  std::vector<long long> n(problem.shape.begin(), problem.shape.end());
  std::vector<long long> real = n, half = n;
  half.back() = n.back() / 2 + 1;
  if (in_place) real.back() = 2 * half.back();
  const auto points = [](const std::vector<long long>& lengths) {
    long long all = 1;
    for (const long long each : lengths) all *= each;
    return all;
  };
  // cuFFT's description of a side: the lengths of the arrays that its lines lie in, the distances of elements and of signals.
  struct embedding {
    std::vector<long long> lengths;
    long long stride, distance;
  };
  const auto embed = [&](const fft::layout& given, const std::vector<long long>& dense) {
    embedding made{dense, 1, points(dense)};
    if (given.strides.empty()) return made;
    made.stride = given.strides.back();
    made.distance = given.distance;
    for (std::size_t axis = 1; axis < dense.size(); ++axis) {
      if (given.strides[axis] <= 0 || given.strides[axis - 1] % given.strides[axis] != 0)
        check(4, "expected strides of which each is a multiple of the next");
      made.lengths[axis] = given.strides[axis - 1] / given.strides[axis];
    }
    return made;
  };
  embedding in = embed(problem.input, kind_ == fft::kind::c2c ? n : kind_ == fft::kind::r2c ? real : half);
  embedding out = embed(problem.output, kind_ == fft::kind::c2c ? n : kind_ == fft::kind::r2c ? half : real);
  check(library.make_plan_many(handle_, static_cast<int>(n.size()), n.data(), in.lengths.data(), in.stride, in.distance, out.lengths.data(),
                               out.stride, out.distance, kind, problem.batch, &workspace_),
        "cufftMakePlanMany64");
}

cufft_plan::~cufft_plan() {
  if (handle_ != k_no_plan) (void)cufft_library::get().destroy(handle_);
}

void cufft_plan::execute(const void* in, void* out, void* stream) const {
  const cufft_library& library = cufft_library::get();
  void* const from = const_cast<void*>(in);
  const auto check = [](int status, const char* what) {
    if (status != 0) throw device_error(std::string("cuFFT: ") + what + ": " + words(status) + " (" + std::to_string(status) + ")");
  };
  check(library.set_stream(handle_, stream), "cufftSetStream");
  const bool single = type_ == precision::f32;
  if (kind_ == fft::kind::c2c) {
    const int sign = way_ == fft::direction::forward ? k_forward : k_inverse;
    check((single ? library.exec_c2c : library.exec_z2z)(handle_, from, out, sign), "execute");
  } else if (kind_ == fft::kind::r2c) {
    check((single ? library.exec_r2c : library.exec_d2z)(handle_, from, out), "execute");
  } else {
    check((single ? library.exec_c2r : library.exec_z2d)(handle_, from, out), "execute");
  }
}

}  // namespace ballast::cuda
