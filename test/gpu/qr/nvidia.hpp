// NVIDIA's libraries as rivals: cuSOLVER's and cuBLAS's QR, loaded at run time.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "../../../bench/gpu.hpp"
#include "cuda/system/library.hpp"

namespace ballast::gpu_check::factors {

namespace gpu = bench::gpu;
using index = std::int64_t;

// cuSOLVER's geqrf, ormqr, orgqr and gels, of real and complex numbers. Source: cuSOLVER API reference, CUDA 12 and 13.
class cusolver {
 public:
  // Returns the reason why it cannot be used; empty if it can.
  static std::string why_not() { return library().why; }

  cusolver() {
    check(library().create(&handle_), "cusolverDnCreate");
    check(library().set_stream(handle_, gpu::stream()), "cusolverDnSetStream");
    check(library().create_params(&params_), "cusolverDnCreateParams");
    info_ = gpu::buffer(4);
  }
  cusolver(const cusolver&) = delete;
  cusolver& operator=(const cusolver&) = delete;
  ~cusolver() {
    library().destroy_params(params_);
    library().destroy(handle_);
  }

  // Run one factorization with the interface of 32-bit sizes, and the operations on its factors; a prepare function first allocates the
  // workspace of each.
  template <class T>
  void prepare_run(index m, index n, T* A) {
    int elements = 0;
    check(routines<T>().buffer(handle_, static_cast<int>(m), static_cast<int>(n), A, static_cast<int>(m), &elements), "geqrf_bufferSize");
    make_room<T>(elements);
  }
  template <class T>
  void prepare_apply(index m, index n, T* A, T* tau) {
    int elements = 0;
    check(routines<T>().q_buffer(handle_, 0, transposed<T>, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
                                 static_cast<int>(m), tau, A, static_cast<int>(m), &elements),
          "ormqr_bufferSize");
    make_room<T>(elements);
  }
  template <class T>
  void prepare_form(index m, index n, T* A, T* tau) {
    int elements = 0;
    check(routines<T>().g_buffer(handle_, static_cast<int>(m), static_cast<int>(n), static_cast<int>(n), A, static_cast<int>(m), tau,
                                 &elements),
          "orgqr_bufferSize");
    make_room<T>(elements);
  }
  // The right-hand sides, m numbers, lie in B; the solution goes to memory of this object.
  template <class T>
  void prepare_solve(index m, index n, T* A, T* B) {
    large_ = gpu::buffer(n * static_cast<index>(sizeof(T)));
    check(routines<T>().s_buffer(handle_, static_cast<int>(m), static_cast<int>(n), 1, A, static_cast<int>(m), B, static_cast<int>(m),
                                 large_.data(), static_cast<int>(n), nullptr, &on_device_),
          "gels_bufferSize");
    small_ = gpu::buffer(std::max<index>(1, static_cast<index>(on_device_)));
  }
  template <class T>
  void prepare_run_64(index m, index n, T* A, T* tau) {
    std::size_t on_device = 0, on_host = 0;
    check(library().x_buffer(handle_, params_, m, n, type<T>, A, m, type<T>, tau, type<T>, &on_device, &on_host), "Xgeqrf_bufferSize");
    large_ = gpu::buffer(std::max<index>(1, static_cast<index>(on_device)));
    host_.resize(std::max<std::size_t>(1, on_host));
    on_host_ = on_host;
    on_device_ = on_device;
  }
  template <class T>
  void run(index m, index n, T* A, T* tau) {
    check(routines<T>().geqrf(handle_, static_cast<int>(m), static_cast<int>(n), A, static_cast<int>(m), tau,
                              static_cast<T*>(small_.data()), elements_, static_cast<int*>(info_.data())),
          "geqrf");
  }
  // C ← QᵀC (of complex numbers QᴴC), where C is m × n like the factors.
  template <class T>
  void apply(index m, index n, const T* A, const T* tau, T* C) {
    check(routines<T>().ormqr(handle_, 0, transposed<T>, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
                              static_cast<int>(m), tau, C, static_cast<int>(m), static_cast<T*>(small_.data()), elements_,
                              static_cast<int*>(info_.data())),
          "ormqr");
  }
  template <class T>
  void form(index m, index n, T* A, const T* tau) {
    check(routines<T>().orgqr(handle_, static_cast<int>(m), static_cast<int>(n), static_cast<int>(n), A, static_cast<int>(m), tau,
                              static_cast<T*>(small_.data()), elements_, static_cast<int*>(info_.data())),
          "orgqr");
  }
  // min ‖B − A X‖₂ for one right-hand side.
  template <class T>
  void solve(index m, index n, T* A, T* B) {
    int iterations = 0;
    check(routines<T>().gels(handle_, static_cast<int>(m), static_cast<int>(n), 1, A, static_cast<int>(m), B, static_cast<int>(m),
                             large_.data(), static_cast<int>(n), small_.data(), on_device_, &iterations, static_cast<int*>(info_.data())),
          "gels");
  }
  template <class T>
  void run_64(index m, index n, T* A, T* tau) {
    check(library().x_geqrf(handle_, params_, m, n, type<T>, A, m, type<T>, tau, type<T>, large_.data(), on_device_, host_.data(), on_host_,
                            static_cast<int*>(info_.data())),
          "Xgeqrf");
  }

 private:
  using status = int;
  using handle = void*;
  using parameters = void*;
  template <class T>
  static constexpr bool complex = !std::is_floating_point_v<T>;
  template <class T>
  static constexpr bool single = sizeof(T) == (complex<T> ? 8 : 4);
  template <class T>
  static constexpr int type = (complex<T> ? 4 : 0) + (single<T> ? 0 : 1);  // CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F
  template <class T>
  static constexpr int transposed = complex<T> ? 2 : 1;  // CUBLAS_OP_C, CUBLAS_OP_T
  template <class T>
  struct functions {
    status (*buffer)(handle, int, int, T*, int, int*);
    status (*geqrf)(handle, int, int, T*, int, T*, T*, int, int*);
    // CUBLAS_SIDE_LEFT is 0.
    status (*q_buffer)(handle, int, int, int, int, int, const T*, int, const T*, const T*, int, int*);
    status (*ormqr)(handle, int, int, int, int, int, const T*, int, const T*, T*, int, T*, int, int*);
    status (*g_buffer)(handle, int, int, int, const T*, int, const T*, int*);
    status (*orgqr)(handle, int, int, int, T*, int, const T*, T*, int, int*);
    status (*s_buffer)(handle, int, int, int, T*, int, T*, int, void*, int, void*, std::size_t*);
    status (*gels)(handle, int, int, int, T*, int, T*, int, void*, int, void*, std::size_t, int*, int*);
  };
  struct bound {
    std::string why;
    status (*create)(handle*);
    status (*destroy)(handle);
    status (*set_stream)(handle, void*);
    status (*create_params)(parameters*);
    status (*destroy_params)(parameters);
    functions<float> f32;
    functions<double> f64;
    functions<std::complex<float>> c64;
    functions<std::complex<double>> c128;
    status (*x_buffer)(handle, parameters, index, index, int, const void*, index, int, const void*, int, std::size_t*, std::size_t*);
    status (*x_geqrf)(handle, parameters, index, index, int, void*, index, int, void*, int, void*, std::size_t, void*, std::size_t, int*);
  };
  template <class T>
  static const functions<T>& routines() {
    if constexpr (complex<T>) {
      if constexpr (single<T>) return library().c64;
      if constexpr (!single<T>) return library().c128;
    } else {
      if constexpr (single<T>) return library().f32;
      if constexpr (!single<T>) return library().f64;
    }
  }
  // `letter`: S, D, C or Z.
  template <class T, class Find>
  static void find_all(functions<T>& to, const std::string& letter, const Find& find) {
    const std::string begin = "cusolverDn" + letter, q = complex<T> ? "unmqr" : "ormqr", form = complex<T> ? "ungqr" : "orgqr";
    find(to.buffer, begin + "geqrf_bufferSize");
    find(to.geqrf, begin + "geqrf");
    find(to.q_buffer, begin + q + "_bufferSize");
    find(to.ormqr, begin + q);
    find(to.g_buffer, begin + form + "_bufferSize");
    find(to.orgqr, begin + form);
    find(to.s_buffer, begin + letter + "gels_bufferSize");
    find(to.gels, begin + letter + "gels");
  }
  static const bound& library() {
    static const bound made = [] {
      bound all{};
      const ballast::cuda::opened_library opened = ballast::cuda::open_library(ballast::cuda::k_cusolver_library);
      all.why = opened.why;
      if (opened.handle == nullptr) return all;
      const auto find = [&](auto& target, const std::string& name) {
        if (!ballast::cuda::find_function(opened.handle, name.c_str(), target) && all.why.empty()) all.why = "cuSOLVER lacks " + name;
      };
      find(all.create, "cusolverDnCreate");
      find(all.destroy, "cusolverDnDestroy");
      find(all.set_stream, "cusolverDnSetStream");
      find(all.create_params, "cusolverDnCreateParams");
      find(all.destroy_params, "cusolverDnDestroyParams");
      find_all(all.f32, "S", find);
      find_all(all.f64, "D", find);
      find_all(all.c64, "C", find);
      find_all(all.c128, "Z", find);
      find(all.x_buffer, "cusolverDnXgeqrf_bufferSize");
      find(all.x_geqrf, "cusolverDnXgeqrf");
      return all;
    }();
    return made;
  }
  template <class T>
  void make_room(int elements) {
    if (small_.data() == nullptr || elements > elements_)
      small_ = gpu::buffer(std::max<index>(1, index{elements} * static_cast<index>(sizeof(T))));
    elements_ = std::max(elements_, elements);
  }
  static void check(status got, const char* call) {
    if (got != 0) throw error(std::string("cuSOLVER: ") + call + ": status " + std::to_string(got));
  }

  handle handle_ = nullptr;
  parameters params_ = nullptr;
  gpu::buffer small_, large_, info_;
  std::vector<std::byte> host_;
  int elements_ = 0;
  std::size_t on_device_ = 0, on_host_ = 0;
};

// cublas<t>geqrfBatched and cublas<t>gelsBatched, of real and complex numbers. Source: cuBLAS API reference, CUDA 12 and 13.
class cublas_batched {
 public:
  static std::string why_not() { return library().why; }

  // `other`: tau, or of gels the right-hand sides.
  template <class T>
  cublas_batched(const qr::problem& what, T* A, T* other, bool solves = false)
      : m_(static_cast<int>(what.rows)), n_(static_cast<int>(what.columns)), count_(static_cast<int>(what.batch)) {
    check(library().create(&handle_), "cublasCreate");
    check(library().set_stream(handle_, gpu::stream()), "cublasSetStream");
    std::vector<T*> pointers;
    for (index b = 0; b < what.batch; ++b) pointers.push_back(A + b * what.rows * what.columns);
    for (index b = 0; b < what.batch; ++b) pointers.push_back(other + b * (solves ? what.rows : std::min(what.rows, what.columns)));
    pointers_ = gpu::buffer(static_cast<index>(pointers.size() * sizeof(T*)));
    gpu::copy(pointers_.data(), pointers.data(), pointers_.bytes());
    gpu::synchronize();
  }
  cublas_batched(const cublas_batched&) = delete;
  cublas_batched& operator=(const cublas_batched&) = delete;
  ~cublas_batched() { library().destroy(handle_); }

  template <class T>
  void run(T*) {
    T** const matrices = static_cast<T**>(pointers_.data());
    int info = 0;
    check(std::get<functions<T>>(library().all).geqrf(handle_, m_, n_, matrices, m_, matrices + count_, &info, count_), "geqrfBatched");
  }
  template <class T>
  void solve(T*) {
    T** const matrices = static_cast<T**>(pointers_.data());
    int info = 0;
    check(std::get<functions<T>>(library().all).gels(handle_, 0, m_, n_, 1, matrices, m_, matrices + count_, m_, &info, nullptr, count_),
          "gelsBatched");
  }

 private:
  using status = int;
  using handle = void*;
  template <class T>
  struct functions {
    status (*geqrf)(handle, int, int, T* const*, int, T* const*, int*, int);
    status (*gels)(handle, int, int, int, int, T* const*, int, T* const*, int, int*, int*, int);  // CUBLAS_OP_N is 0
  };
  struct bound {
    std::string why;
    status (*create)(handle*);
    status (*destroy)(handle);
    status (*set_stream)(handle, void*);
    std::tuple<functions<float>, functions<double>, functions<std::complex<float>>, functions<std::complex<double>>> all;
  };
  static const bound& library() {
    static const bound made = [] {
      bound all{};
      const ballast::cuda::opened_library opened = ballast::cuda::open_library(ballast::cuda::k_cublas_library);
      all.why = opened.why;
      if (opened.handle == nullptr) return all;
      const auto find = [&](auto& target, const char* name) {
        if (!ballast::cuda::find_function(opened.handle, name, target) && all.why.empty()) all.why = std::string("cuBLAS lacks ") + name;
      };
      find(all.create, "cublasCreate_v2");
      find(all.destroy, "cublasDestroy_v2");
      find(all.set_stream, "cublasSetStream_v2");
      const auto find_all = [&](auto& to, const std::string& letter) {
        find(to.geqrf, ("cublas" + letter + "geqrfBatched").c_str());
        find(to.gels, ("cublas" + letter + "gelsBatched").c_str());
      };
      find_all(std::get<0>(all.all), "S");
      find_all(std::get<1>(all.all), "D");
      find_all(std::get<2>(all.all), "C");
      find_all(std::get<3>(all.all), "Z");
      return all;
    }();
    return made;
  }
  static void check(status got, const char* call) {
    if (got != 0) throw error(std::string("cuBLAS: ") + call + ": status " + std::to_string(got));
  }

  handle handle_ = nullptr;
  const int m_, n_, count_;
  gpu::buffer pointers_;
};

// Runs the rival's work. A refusal appears in its row and does not end the problem. Returns "" if the work was done.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace ballast::gpu_check::factors
