// CUDA devices for tests: one that records the kernels that it loads, one that forwards every call to another device, and the guard that
// makes a device the current one.
// Layer: test harness. Needs no package, so that test/gpu can use it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "core/function_ref.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/device/device.hpp"

namespace ballast::test {

// Makes current_device() return `device` during the lifetime of this object.
class current_device_guard {
 public:
  explicit current_device_guard(std::shared_ptr<cuda::device> device) { cuda::override_device(std::move(device)); }
  ~current_device_guard() { cuda::override_device(nullptr); }
  current_device_guard(const current_device_guard&) = delete;
  current_device_guard& operator=(const current_device_guard&) = delete;
};

// Loads every kernel, launches none, and records the requests. So a plan that runs on it shows which kernels it needs.
// Every address counts as device memory. Copies of more than 1 MB are skipped, so that large arrays may be addresses without memory.
class recording_device final : public cuda::device {
 public:
  explicit recording_device(cuda::capabilities about) : about_(std::move(about)) {}

  // true: behaves as if only the fallback kernels of the FFT and the maps of real-to-real transforms were ready, which every bundle has,
  // and compilation never ended.
  bool only_fallback = false;
  static std::string why_not_fallback(std::span<const cuda::kernel_request> wanted) {
    const auto fallback = [](const cuda::kernel_request& each) {
      return each.expression.find(".fallback=true") != std::string::npos || each.expression.find("::map_kernel") != std::string::npos;
    };
    return std::ranges::all_of(wanted, fallback) ? "" : "they are being compiled";
  }
  std::string why_not_ready(std::span<const cuda::kernel_request> wanted, bool) override {
    return only_fallback ? why_not_fallback(wanted) : "";
  }

  // Each request once, in the order of arrival; and the value of `user` at that time.
  std::vector<cuda::kernel_request> requests;
  std::vector<std::string> users;
  std::string user;

  const cuda::capabilities& about() const noexcept override { return about_; }
  void* allocate(std::int64_t bytes, cuda::stream) override {
    void* const made = std::aligned_alloc(256, static_cast<std::size_t>((bytes + 255) / 256 * 256));
    if (made == nullptr) throw std::bad_alloc();
    return made;
  }
  void release(void* memory, cuda::stream) noexcept override { std::free(memory); }
  bool accessible(const void*) const noexcept override { return true; }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream) override {
    if (bytes <= k_small) std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream) override {
    if (bytes <= k_small) std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(requests, wanted) == requests.end()) {
      requests.push_back(wanted);
      users.push_back(user);
    }
    return one_;
  }
  void launch(const cuda::kernel&, std::int64_t, std::span<const cuda::kernel_argument>, cuda::stream) override {}
  std::int64_t resident_blocks(const cuda::kernel&) override { return about_.multiprocessors; }
  void synchronize(cuda::stream) override {}
  void* allocate_pinned(std::int64_t bytes) override { return allocate(bytes, nullptr); }
  void release_pinned(void* memory) noexcept override { std::free(memory); }
  cuda::stream make_stream(bool) override { return nullptr; }
  void release_stream(cuda::stream) noexcept override {}
  std::unique_ptr<cuda::stream_event> make_event(bool) override { return std::make_unique<cuda::stream_event>(); }
  void record(cuda::stream_event&, cuda::stream) override {}
  void wait(const cuda::stream_event&, cuda::stream) override {}
  bool passed(const cuda::stream_event&) override { return true; }
  double milliseconds(const cuda::stream_event&, const cuda::stream_event&) override { return 0; }
  std::unique_ptr<cuda::blas> make_blas(cuda::blas_math, cuda::stream) override {
    throw unsupported_error("recording_device: expected no call of BLAS: it computes nothing");
  }

  // Prints one line for each request, in the format of the generators of simt_kernels (test/simt/CMakeLists.txt).
  void print() const {
    for (const cuda::kernel_request& each : requests) std::printf("%s\t%s\n", each.header.c_str(), each.expression.c_str());
  }

 private:
  static constexpr std::int64_t k_small = std::int64_t{1} << 20;
  class nothing final : public cuda::kernel {};
  cuda::capabilities about_;
  nothing one_;
  std::mutex mutex_;
};

// Forwards every call to another device. Tests derive from it to observe or change some calls.
class forwarding_device : public cuda::device {
 public:
  explicit forwarding_device(std::shared_ptr<cuda::device> inner) : inner_(std::move(inner)) {}
  const cuda::capabilities& about() const noexcept override { return inner_->about(); }
  void* allocate(std::int64_t bytes, cuda::stream on) override { return inner_->allocate(bytes, on); }
  void release(void* memory, cuda::stream on) noexcept override { inner_->release(memory, on); }
  std::int64_t available_memory() override { return inner_->available_memory(); }
  bool accessible(const void* memory) const noexcept override { return inner_->accessible(memory); }
  bool opens_to(const cuda::device& other) override {
    const auto* const forwards = dynamic_cast<const forwarding_device*>(&other);
    return inner_->opens_to(forwards == nullptr ? other : *forwards->inner_);
  }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override { inner_->copy(to, from, bytes, on); }
  void zero(void* memory, std::int64_t bytes, cuda::stream on) override { inner_->zero(memory, bytes, on); }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override { return inner_->load(wanted); }
  std::string why_not_ready(std::span<const cuda::kernel_request> wanted, bool compile) override {
    return inner_->why_not_ready(wanted, compile);
  }
  bool captured(cuda::stream on) override { return inner_->captured(on); }
  void launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments, cuda::stream on) override {
    inner_->launch(which, blocks, arguments, on);
  }
  std::int64_t resident_blocks(const cuda::kernel& which) override { return inner_->resident_blocks(which); }
  void synchronize(cuda::stream on) override { inner_->synchronize(on); }
  void* allocate_pinned(std::int64_t bytes) override { return inner_->allocate_pinned(bytes); }
  void release_pinned(void* memory) noexcept override { inner_->release_pinned(memory); }
  cuda::stream make_stream(bool urgent) override { return inner_->make_stream(urgent); }
  void release_stream(cuda::stream made) noexcept override { inner_->release_stream(made); }
  std::unique_ptr<cuda::stream_event> make_event(bool timed) override { return inner_->make_event(timed); }
  void record(cuda::stream_event& event, cuda::stream on) override { inner_->record(event, on); }
  void wait(const cuda::stream_event& event, cuda::stream on) override { inner_->wait(event, on); }
  bool passed(const cuda::stream_event& event) override { return inner_->passed(event); }
  double milliseconds(const cuda::stream_event& first, const cuda::stream_event& last) override {
    return inner_->milliseconds(first, last);
  }
  std::string why_no_blas() override { return inner_->why_no_blas(); }
  std::unique_ptr<cuda::blas> make_blas(cuda::blas_math math, cuda::stream on) override { return inner_->make_blas(math, on); }

 protected:
  std::shared_ptr<cuda::device> inner_;
};

// Counts the bytes that are copied out of its memory and into it.
class counting_device final : public forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t bytes_read = 0, bytes_written = 0;
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    if (accessible(from)) bytes_read += bytes;
    if (accessible(to)) bytes_written += bytes;
    forwarding_device::copy(to, from, bytes, on);
  }
};

// Forwards every call to another BLAS: around(name, work) runs each of them by work().
class forwarding_blas final : public cuda::blas {
 public:
  using around = std::function<void(const char* name, core::function_ref<void()> work)>;
  forwarding_blas(std::unique_ptr<cuda::blas> inner, around use) : inner_(std::move(inner)), around_(std::move(use)) {}
#define BALLAST_FORWARDED_COMPLEX_BLAS(T)                                                                                                  \
  void gemm(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, const T* B,           \
            std::int64_t ldb, T beta, T* C, std::int64_t ldc) override {                                                                   \
    around_("gemm", [&] { inner_->gemm(ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc); });                                          \
  }                                                                                                                                        \
  void trsm(char s, char u, char t, char d, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B, std::int64_t ldb) \
      override {                                                                                                                           \
    around_("trsm", [&] { inner_->trsm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                                       \
  }
#define BALLAST_FORWARDED_BLAS(T)                                                                                                          \
  BALLAST_FORWARDED_COMPLEX_BLAS(T)                                                                                                        \
  void trmm(char s, char u, char t, char d, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B, std::int64_t ldb) \
      override {                                                                                                                           \
    around_("trmm", [&] { inner_->trmm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                                       \
  }                                                                                                                                        \
  void syrk(char u, char t, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, T beta, T* C, std::int64_t ldc)         \
      override {                                                                                                                           \
    around_("syrk", [&] { inner_->syrk(u, t, n, k, alpha, A, lda, beta, C, ldc); });                                                       \
  }
  BALLAST_FORWARDED_BLAS(float)
  BALLAST_FORWARDED_BLAS(double)
  BALLAST_FORWARDED_COMPLEX_BLAS(std::complex<float>)
  BALLAST_FORWARDED_COMPLEX_BLAS(std::complex<double>)
#undef BALLAST_FORWARDED_COMPLEX_BLAS
#undef BALLAST_FORWARDED_BLAS

 private:
  std::unique_ptr<cuda::blas> inner_;
  around around_;
};

// Counts the launches of each kernel, by the name of its template, the calls of BLAS, fills and copies, and the waits of the host for a
// stream.
class launch_recorder final : public forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::map<std::string, std::int64_t> launches;
  std::int64_t products = 0, zeros = 0, copies = 0, waits = 0;
  std::int64_t of(const std::string& name) const { return launches.contains(name) ? launches.at(name) : 0; }
  std::int64_t all() const {
    std::int64_t sum = 0;
    for (const auto& [name, count] : launches) sum += count;
    return sum;
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream on) override {
    ++zeros;
    inner_->zero(memory, bytes, on);
  }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    ++copies;
    inner_->copy(to, from, bytes, on);
  }
  std::unique_ptr<cuda::blas> make_blas(cuda::blas_math math, cuda::stream on) override {
    return std::make_unique<forwarding_blas>(inner_->make_blas(math, on), [this](const char*, core::function_ref<void()> work) {
      ++products;
      work();
    });
  }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    const cuda::kernel& made = inner_->load(wanted);
    const std::string name = wanted.expression.substr(0, wanted.expression.find('<'));
    names_[&made] = name.substr(name.rfind(':') + 1);
    return made;
  }
  void launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments, cuda::stream on) override {
    ++launches[names_.at(&which)];
    inner_->launch(which, blocks, arguments, on);
  }
  using device::launch;
  void synchronize(cuda::stream on) override {
    ++waits;
    inner_->synchronize(on);
  }

 private:
  std::map<const cuda::kernel*, std::string> names_;
};

}  // namespace ballast::test
