// See emulated_device.hpp.
// Layer: test emulator.
#include "simt/emulated_device.hpp"

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "ballast/error.hpp"
#include "core/blas.hpp"
#include "core/memory.hpp"
#include "cuda/device/blas.hpp"

namespace simt {
namespace {

std::unordered_map<std::string, registered_kernel>& registry() {
  static std::unordered_map<std::string, registered_kernel> kernels;
  return kernels;
}

constexpr std::align_val_t k_alignment{256};

// The streams of this device are numbers from here on, which cannot be addresses of a caller's streams.
constexpr std::uintptr_t k_first_stream = 0xba11a57000000000;

bool part_of_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

}  // namespace

std::string normalized(std::string_view expression) {
  std::string result;
  bool gap = false;
  for (const char c : expression) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      gap = true;
      continue;
    }
    if (gap && !result.empty() && part_of_word(result.back()) && part_of_word(c)) result += ' ';
    gap = false;
    result += c;
  }
  return result;
}

bool register_kernel(std::string_view expression, const registered_kernel& kernel) {
  registry().insert_or_assign(normalized(expression), kernel);
  return true;
}

bool is_registered(std::string_view expression) { return registry().contains(normalized(expression)); }

ballast::cuda::capabilities emulated_capabilities(int multiprocessors, int major) {
  const bool hopper = major >= 9;
  ballast::cuda::capabilities about;
  about.name = fmt::format("emulated sm_{}0", major);
  about.major = major;
  about.multiprocessors = multiprocessors;
  about.threads_per_multiprocessor = 2048;
  about.registers_per_multiprocessor = 65536;
  about.shared_per_multiprocessor = (hopper ? 228 : 164) << 10;
  about.shared_per_block = (hopper ? 227 : 163) << 10;
  about.l2_cache = (hopper ? 50 : 40) << 20;
  about.memory = std::int64_t{1} << 30;
  return about;
}

struct emulated_device::loaded : ballast::cuda::kernel {
  ballast::cuda::kernel_request request;
  registered_kernel code;
};

emulated_device::emulated_device(ballast::cuda::capabilities about, std::uint64_t seed) : about_(std::move(about)), seed_(seed) {}

emulated_device::~emulated_device() = default;

void* emulated_device::allocate(std::int64_t bytes, ballast::cuda::stream) {
  if (bytes < 0) throw error(fmt::format("allocate: expected a size, got {}", bytes));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > about_.memory - allocated_) throw std::bad_alloc();
  auto* memory = static_cast<unsigned char*>(::operator new(static_cast<std::size_t>(bytes), k_alignment));
  std::fill_n(reinterpret_cast<std::uint32_t*>(memory), bytes / 4, k_poison);
  std::memset(memory + bytes / 4 * 4, 0xff, static_cast<std::size_t>(bytes % 4));
  memory_.emplace(memory, bytes);
  allocated_ += bytes;
  return memory;
}

void emulated_device::release(void* memory, ballast::cuda::stream on) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (released(on)) {
    // The driver crashes in cuMemFreeAsync.
    std::fprintf(stderr, "emulated_device::release: the stream was released before the memory that is ordered on it\n");
    std::abort();
  }
  const auto found = memory_.find(static_cast<const unsigned char*>(memory));
  if (found == memory_.end()) {
    std::fprintf(stderr, "emulated_device::release: %p was not allocated here\n", memory);
    std::abort();
  }
  allocated_ -= found->second;
  memory_.erase(found);
  ::operator delete(memory, k_alignment);
}

bool emulated_device::accessible(const void* memory) const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto* byte = static_cast<const unsigned char*>(memory);
  auto after = memory_.upper_bound(byte);
  if (after == memory_.begin()) return false;
  --after;
  return byte < after->first + std::max<std::int64_t>(after->second, 1);
}

bool emulated_device::opens_to(const ballast::cuda::device& other) { return &other == this || peers_; }

void emulated_device::copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream) {
  for (const std::weak_ptr<emulated_device>& each : others_) {
    const std::shared_ptr<emulated_device> other = each.lock();
    if (other == nullptr || other->peers_) continue;  // the driver copies between the allocations of an application, too
    for (const void* side : {static_cast<const void*>(to), from}) {
      if (bytes == 0 || !other->accessible(side)) continue;
      throw error("copy: expected memory of this device or of the host, got that of a device without a road to this one");
    }
  }
  if (bytes != 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

void emulated_device::zero(void* memory, std::int64_t bytes, ballast::cuda::stream) {
  if (bytes != 0) std::memset(memory, 0, static_cast<std::size_t>(bytes));
}

const ballast::cuda::kernel& emulated_device::load(const ballast::cuda::kernel_request& wanted) {
  const std::string expression = normalized(wanted.expression);
  const auto code = registry().find(expression);
  if (code == registry().end()) {
    throw ballast::unsupported_error(fmt::format("expected a kernel that was registered with the emulator, got {}", wanted.expression));
  }
  const auto refuse = [&](const std::string& what) {
    throw ballast::unsupported_error(fmt::format("{}: {}, for {}", about_.name, what, wanted.expression));
  };
  if (wanted.threads < 1 || wanted.threads > 1024) refuse(fmt::format("expected 1 to 1024 threads in a block, got {}", wanted.threads));
  if (wanted.shared < 0 || wanted.shared > about_.shared_per_block) {
    refuse(fmt::format("expected at most {} bytes of shared memory, got {}", about_.shared_per_block, wanted.shared));
  }
  if (wanted.cluster != 1 && (wanted.cluster < 1 || wanted.cluster > 16 || about_.major < 9)) {
    refuse(fmt::format("expected a cluster of {} blocks, got {}", about_.major < 9 ? "1" : "1 to 16", wanted.cluster));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& kernel = kernels_[{expression, wanted.threads, wanted.shared, wanted.cluster}];
  if (!kernel) {
    kernel = std::make_unique<loaded>();
    kernel->request = wanted;
    kernel->code = code->second;
  }
  return *kernel;
}

void emulated_device::launch(const ballast::cuda::kernel& which, std::int64_t blocks,
                             std::span<const ballast::cuda::kernel_argument> arguments, ballast::cuda::stream) {
  const auto& kernel = dynamic_cast<const loaded&>(which);
  const std::vector<std::size_t>& laid_out = kernel.code.argument_bytes;
  if (laid_out.size() != arguments.size()) {
    throw error(fmt::format("launch: expected {} arguments, got {}, for {}", laid_out.size(), arguments.size(), kernel.request.expression));
  }
  for (std::size_t i = 0; i < laid_out.size(); ++i) {
    if (laid_out[i] == arguments[i].bytes) continue;
    throw error(fmt::format("launch: expected an argument of {} bytes, got {}, for {}", laid_out[i], arguments[i].bytes,
                            kernel.request.expression));
  }
  if (blocks < 1 || blocks > 0x7fffffff) throw error(fmt::format("launch: expected 1 to 2^31 - 1 blocks, got {}", blocks));
  options how;
  how.resident_blocks = resident_blocks(which);
  how.multiprocessors = about_.multiprocessors;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    how.seed = seed_ + static_cast<std::uint64_t>(launches_++);
    // In some launches blocks interleave; in most they do not, which is faster.
    const std::int64_t clusters = together_ > 0       ? (together_ + kernel.request.cluster - 1) / kernel.request.cluster
                                  : how.seed % 4 == 0 ? 3
                                                      : 1;
    how.alive_from_start = std::min<std::int64_t>(how.resident_blocks, kernel.request.cluster * clusters);
  }
  simt::launch(static_cast<unsigned>(blocks), static_cast<unsigned>(kernel.request.threads), kernel.request.cluster, kernel.request.shared,
               how, [&] { kernel.code.call(kernel.code.erased, arguments.data()); });
}

std::int64_t emulated_device::resident_blocks(const ballast::cuda::kernel& which) {
  const auto& kernel = dynamic_cast<const loaded&>(which).request;
  constexpr std::int64_t k_reserved = 1024;  // bytes of shared memory that the device reserves for each block
  const std::int64_t by_threads = about_.threads_per_multiprocessor / ((kernel.threads + 31) / 32 * 32);
  const std::int64_t by_shared = about_.shared_per_multiprocessor / (kernel.shared + k_reserved);
  const std::int64_t each = std::min<std::int64_t>({by_threads, by_shared, 32});
  return each * about_.multiprocessors / kernel.cluster * kernel.cluster;
}

// Throws if `on` is a released stream of this device. Other numbers are streams of the caller and are accepted.
bool emulated_device::released(ballast::cuda::stream on) const {
  const auto number = reinterpret_cast<std::uintptr_t>(on);
  return number >= k_first_stream && number < k_first_stream + next_stream_ && !streams_.contains(on);
}

void emulated_device::check_stream(ballast::cuda::stream on) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (released(on)) throw error("stream: expected one that is alive, got one that was released");
}

void emulated_device::synchronize(ballast::cuda::stream on) { check_stream(on); }

void* emulated_device::allocate_pinned(std::int64_t bytes) {
  void* memory = ::operator new(static_cast<std::size_t>(bytes), k_alignment);
  const std::lock_guard<std::mutex> lock(mutex_);
  pinned_[memory] = bytes;
  return memory;
}

void emulated_device::release_pinned(void* memory) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pinned_.erase(memory) == 0) {
    std::fprintf(stderr, "emulated_device: pinned memory is released that was not allocated\n");
    std::abort();
  }
  ::operator delete(memory, k_alignment);
}

ballast::cuda::stream emulated_device::make_stream(bool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto made = reinterpret_cast<ballast::cuda::stream>(k_first_stream + next_stream_++);
  streams_.insert(made);
  return made;
}

void emulated_device::release_stream(ballast::cuda::stream made) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (made != nullptr && streams_.erase(made) == 0) {
    std::fprintf(stderr, "emulated_device: a stream is released that was not made\n");
    std::abort();
  }
}

struct emulated_device::moment : ballast::cuda::stream_event {
  bool timed = false;
  std::optional<std::chrono::steady_clock::time_point> recorded;
};

std::unique_ptr<ballast::cuda::stream_event> emulated_device::make_event(bool timed) {
  auto made = std::make_unique<moment>();
  made->timed = timed;
  return made;
}

void emulated_device::record(ballast::cuda::stream_event& event, ballast::cuda::stream on) {
  check_stream(on);
  dynamic_cast<moment&>(event).recorded = std::chrono::steady_clock::now();
}

// Refuses an event that was never recorded. CUDA accepts it and does not wait at all, which is always a mistake of the caller.
void emulated_device::wait(const ballast::cuda::stream_event& event, ballast::cuda::stream on) {
  check_stream(on);
  if (!dynamic_cast<const moment&>(event).recorded) throw error("wait: expected an event that was recorded");
}

bool emulated_device::passed(const ballast::cuda::stream_event& event) {
  if (!dynamic_cast<const moment&>(event).recorded) throw error("passed: expected an event that was recorded");
  return true;
}

double emulated_device::milliseconds(const ballast::cuda::stream_event& first, const ballast::cuda::stream_event& last) {
  const auto& from = dynamic_cast<const moment&>(first);
  const auto& to = dynamic_cast<const moment&>(last);
  if (!from.timed || !to.timed || !from.recorded || !to.recorded) throw error("milliseconds: expected timed events that were recorded");
  return std::chrono::duration<double, std::milli>(*to.recorded - *from.recorded).count();
}

namespace {

class host_blas final : public ballast::cuda::blas {
 public:
#define BALLAST_EMULATED_COMPLEX_BLAS(T)                                                                                                   \
  void gemm(char trans_a, char trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, const T* B, \
            std::int64_t ldb, T beta, T* C, std::int64_t ldc) override {                                                                   \
    ballast::core::gemm(trans_a, trans_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);                                                   \
  }                                                                                                                                        \
  void trsm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,      \
            std::int64_t ldb) override {                                                                                                   \
    ballast::core::trsm(side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb);                                                             \
  }
#define BALLAST_EMULATED_BLAS(T)                                                                                                          \
  BALLAST_EMULATED_COMPLEX_BLAS(T)                                                                                                        \
  void trmm(char side, char uplo, char trans, char diag, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B,     \
            std::int64_t ldb) override {                                                                                                  \
    ballast::core::trmm(side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb);                                                            \
  }                                                                                                                                       \
  void syrk(char uplo, char trans, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, T beta, T* C, std::int64_t ldc) \
      override {                                                                                                                          \
    symmetric(uplo, trans, n, k, alpha, A, lda, beta, C, ldc);                                                                            \
  }
  BALLAST_EMULATED_BLAS(float)
  BALLAST_EMULATED_BLAS(double)
  BALLAST_EMULATED_COMPLEX_BLAS(std::complex<float>)
  BALLAST_EMULATED_COMPLEX_BLAS(std::complex<double>)
#undef BALLAST_EMULATED_COMPLEX_BLAS
#undef BALLAST_EMULATED_BLAS

 private:
  // Computes the whole product, and stores its triangle.
  template <class T>
  static void symmetric(char uplo, char trans, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, T beta, T* C,
                        std::int64_t ldc) {
    ballast::core::vector<T> product(static_cast<std::size_t>(n * n));
    ballast::core::gemm(trans, trans == 'N' ? 'T' : 'N', n, n, k, alpha, A, lda, A, lda, T(0), product.data(), n);
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = uplo == 'U' ? 0 : j; i < (uplo == 'U' ? j + 1 : n); ++i) {
        T& c = C[i + j * ldc];
        c = product[static_cast<std::size_t>(i + j * n)] + (beta == 0 ? T(0) : beta * c);
      }
    }
  }
};

}  // namespace

std::unique_ptr<ballast::cuda::blas> emulated_device::make_blas(ballast::cuda::blas_math, ballast::cuda::stream on) {
  check_stream(on);
  if (!why_no_blas_.empty()) throw ballast::unsupported_error(why_no_blas_);
  return std::make_unique<host_blas>();
}

std::int64_t emulated_device::pinned() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& each : pinned_) bytes += each.second;
  return bytes;
}

std::int64_t emulated_device::streams() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::int64_t>(streams_.size());
}

std::int64_t emulated_device::allocated() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return allocated_;
}

std::int64_t emulated_device::launches() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return launches_;
}

}  // namespace simt
