// NVIDIA's libraries as rivals: cuSOLVER's and cuBLAS's QR, loaded at run time.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "../../../bench/gpu.hpp"
#include "cuda/system/library.hpp"

namespace ballast::gpu_check::factors {

namespace gpu = bench::gpu;
using index = std::int64_t;

// cuSOLVER's geqrf, ormqr and orgqr. Source: cuSOLVER API reference, CUDA 12 and 13.
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
    check(routines<T>().q_buffer(handle_, 0, 1, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
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
  // C ← QᵀC, where C is m × n like the factors.
  template <class T>
  void apply(index m, index n, const T* A, const T* tau, T* C) {
    check(routines<T>().ormqr(handle_, 0, 1, static_cast<int>(m), static_cast<int>(n), static_cast<int>(std::min(m, n)), A,
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
  static constexpr int type = sizeof(T) == 4 ? 0 : 1;  // CUDA_R_32F, CUDA_R_64F
  template <class T>
  struct functions {
    status (*buffer)(handle, int, int, T*, int, int*);
    status (*geqrf)(handle, int, int, T*, int, T*, T*, int, int*);
    // CUBLAS_SIDE_LEFT is 0, CUBLAS_OP_T 1.
    status (*q_buffer)(handle, int, int, int, int, int, const T*, int, const T*, const T*, int, int*);
    status (*ormqr)(handle, int, int, int, int, int, const T*, int, const T*, T*, int, T*, int, int*);
    status (*g_buffer)(handle, int, int, int, const T*, int, const T*, int*);
    status (*orgqr)(handle, int, int, int, T*, int, const T*, T*, int, int*);
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
    status (*x_buffer)(handle, parameters, index, index, int, const void*, index, int, const void*, int, std::size_t*, std::size_t*);
    status (*x_geqrf)(handle, parameters, index, index, int, void*, index, int, void*, int, void*, std::size_t, void*, std::size_t, int*);
  };
  template <class T>
  static const functions<T>& routines() {
    if constexpr (sizeof(T) == 4) {
      return library().f32;
    } else {
      return library().f64;
    }
  }
  static const bound& library() {
    static const bound made = [] {
      bound all{};
      const ballast::cuda::opened_library opened = ballast::cuda::open_library(ballast::cuda::k_cusolver_library);
      all.why = opened.why;
      if (opened.handle == nullptr) return all;
      const auto find = [&](auto& target, const char* name) {
        if (!ballast::cuda::find_function(opened.handle, name, target) && all.why.empty()) all.why = std::string("cuSOLVER lacks ") + name;
      };
      find(all.create, "cusolverDnCreate");
      find(all.destroy, "cusolverDnDestroy");
      find(all.set_stream, "cusolverDnSetStream");
      find(all.create_params, "cusolverDnCreateParams");
      find(all.destroy_params, "cusolverDnDestroyParams");
      find(all.f32.buffer, "cusolverDnSgeqrf_bufferSize");
      find(all.f32.geqrf, "cusolverDnSgeqrf");
      find(all.f64.buffer, "cusolverDnDgeqrf_bufferSize");
      find(all.f64.geqrf, "cusolverDnDgeqrf");
      find(all.f32.q_buffer, "cusolverDnSormqr_bufferSize");
      find(all.f32.ormqr, "cusolverDnSormqr");
      find(all.f32.g_buffer, "cusolverDnSorgqr_bufferSize");
      find(all.f32.orgqr, "cusolverDnSorgqr");
      find(all.f64.q_buffer, "cusolverDnDormqr_bufferSize");
      find(all.f64.ormqr, "cusolverDnDormqr");
      find(all.f64.g_buffer, "cusolverDnDorgqr_bufferSize");
      find(all.f64.orgqr, "cusolverDnDorgqr");
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

// cublas<t>geqrfBatched. Source: cuBLAS API reference, CUDA 12 and 13.
class cublas_batched {
 public:
  static std::string why_not() { return library().why; }

  template <class T>
  cublas_batched(const qr::problem& what, T* A, T* tau)
      : m_(static_cast<int>(what.rows)), n_(static_cast<int>(what.columns)), count_(static_cast<int>(what.batch)) {
    check(library().create(&handle_), "cublasCreate");
    check(library().set_stream(handle_, gpu::stream()), "cublasSetStream");
    std::vector<T*> pointers;
    for (index b = 0; b < what.batch; ++b) pointers.push_back(A + b * what.rows * what.columns);
    for (index b = 0; b < what.batch; ++b) pointers.push_back(tau + b * std::min(what.rows, what.columns));
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
    if constexpr (sizeof(T) == 4) {
      check(library().f32(handle_, m_, n_, matrices, m_, matrices + count_, &info, count_), "cublasSgeqrfBatched");
    } else {
      check(library().f64(handle_, m_, n_, matrices, m_, matrices + count_, &info, count_), "cublasDgeqrfBatched");
    }
  }

 private:
  using status = int;
  using handle = void*;
  struct bound {
    std::string why;
    status (*create)(handle*);
    status (*destroy)(handle);
    status (*set_stream)(handle, void*);
    status (*f32)(handle, int, int, float* const*, int, float* const*, int*, int);
    status (*f64)(handle, int, int, double* const*, int, double* const*, int*, int);
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
      find(all.f32, "cublasSgeqrfBatched");
      find(all.f64, "cublasDgeqrfBatched");
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
