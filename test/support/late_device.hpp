// A device that executes the work of its streams as late, or as early, as their order and their events allow.
// Layer: test harness.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>

#include "cuda/device/blas.hpp"
#include "support/devices.hpp"

namespace ballast::test {

// Executes the work of a stream only when it must, in an order that streams and events allow: first the stream that is waited for, first
// the others, in random order, or one stream (number `seed`, counted from 0) only if no other can continue. Like CUDA it reads pageable
// host memory before a call returns, and waits for the stream if it writes to pageable host memory.
class late_device final : public forwarding_device {
 public:
  enum class manner { awaited_first, others_first, any, one_last };
  late_device(std::shared_ptr<cuda::device> inner, manner how, std::uint64_t seed)
      : forwarding_device(std::move(inner)), how_(how), seed_(seed), bits_(seed) {}
  // The number of waits for events so far, and the number of the wait to skip (−1: none), which tests the effect of a missing wait.
  std::int64_t waits() const { return waits_; }
  std::int64_t left_out = -1;

  ~late_device() override {
    for (const auto& [on, queue] : queues_) EXPECT_TRUE(queue.empty()) << "work that nobody waited for";
  }

  void release(void* memory, cuda::stream on) noexcept override {
    later(on, [this, memory, on] { inner_->release(memory, on); });
  }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    const bool reads_host = !accessible(from) && !is_pinned(from), writes_host = !accessible(to) && !is_pinned(to);
    if (reads_host) {
      const auto* const bytes_of = static_cast<const unsigned char*>(from);
      auto kept = std::make_shared<std::vector<unsigned char>>(bytes_of, bytes_of + bytes);
      later(on, [this, to, kept, bytes, on] { inner_->copy(to, kept->data(), bytes, on); });
    } else {
      later(on, [this, to, from, bytes, on] { inner_->copy(to, from, bytes, on); });
    }
    if (writes_host) synchronize(on);
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream on) override {
    later(on, [this, memory, bytes, on] { inner_->zero(memory, bytes, on); });
  }
  using forwarding_device::launch;
  void launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments, cuda::stream on) override {
    auto kept = std::make_shared<std::vector<std::vector<std::byte>>>();
    for (const cuda::kernel_argument& each : arguments) {
      const auto* const bytes = static_cast<const std::byte*>(each.data);
      kept->emplace_back(bytes, bytes + each.bytes);
    }
    later(on, [this, &which, blocks, kept, on] {
      std::vector<cuda::kernel_argument> given;
      for (const auto& each : *kept) given.push_back({each.data(), each.size()});
      inner_->launch(which, blocks, given, on);
    });
  }
  void* allocate_pinned(std::int64_t bytes) override {
    void* const made = inner_->allocate_pinned(bytes);
    pinned_[static_cast<unsigned char*>(made)] = bytes;
    return made;
  }
  void release_pinned(void* memory) noexcept override {
    pinned_.erase(static_cast<unsigned char*>(memory));
    inner_->release_pinned(memory);
  }
  cuda::stream make_stream(bool urgent) override {
    cuda::stream const made = forwarding_device::make_stream(urgent);
    if (made_++ == seed_) last_ = made;
    return made;
  }
  void release_stream(cuda::stream made) noexcept override {
    synchronize(made);
    queues_.erase(made);
    inner_->release_stream(made);
  }

  std::unique_ptr<cuda::stream_event> make_event(bool) override { return std::make_unique<moment>(); }
  void record(cuda::stream_event& event, cuda::stream on) override {
    auto state = dynamic_cast<moment&>(event).state;
    const int number = ++state->recorded;
    later(on, [state, number] { state->passed = number; });
  }
  void wait(const cuda::stream_event& event, cuda::stream on) override {
    const auto state = dynamic_cast<const moment&>(event).state;
    if (state->recorded == 0) throw error("wait: expected an event that was recorded");
    if (waits_++ == left_out) return;
    queues_[on].push_back({[] {}, state, state->recorded});
  }
  void synchronize(cuda::stream on) override {
    while (!queues_[on].empty()) {
      std::vector<cuda::stream> ready;
      for (const auto& [each, queue] : queues_) {
        if (!queue.empty() && queue.front().is_ready()) ready.push_back(each);
      }
      if (ready.empty()) throw error("late_device: the streams wait for each other");
      if (how_ == manner::one_last) {
        const bool only = ready.size() == 1 || ready.front() != last_;
        run(ready[only ? 0 : 1]);
        continue;
      }
      const bool own = std::ranges::find(ready, on) != ready.end();
      if (how_ == manner::awaited_first && own) {
        run(on);
      } else if (how_ == manner::others_first && ready.size() > (own ? 1u : 0u)) {
        run(ready.front() == on ? ready.back() : ready.front());
      } else {
        run(ready[bits_() % ready.size()]);
      }
    }
  }
  std::unique_ptr<cuda::blas> make_blas(cuda::blas_math math, cuda::stream on) override {
    return std::make_unique<late_blas>(*this, inner_->make_blas(math, on), on);
  }

 private:
  struct event_state {
    int recorded = 0, passed = 0;
  };
  struct moment final : cuda::stream_event {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
  };
  struct operation {
    std::function<void()> body;
    std::shared_ptr<event_state> waits_for;
    int number = 0;
    bool is_ready() const { return waits_for == nullptr || waits_for->passed >= number; }
  };
  class late_blas final : public cuda::blas {
   public:
    late_blas(late_device& on, std::unique_ptr<cuda::blas> inner, cuda::stream order) : on_(on), inner_(std::move(inner)), order_(order) {}
#define BALLAST_LATE_COMPLEX_BLAS(T)                                                                                                       \
  void gemm(char ta, char tb, std::int64_t m, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, const T* B,           \
            std::int64_t ldb, T beta, T* C, std::int64_t ldc) override {                                                                   \
    on_.later(order_, [=, this] { inner_->gemm(ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc); });                                  \
  }                                                                                                                                        \
  void trsm(char s, char u, char t, char d, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B, std::int64_t ldb) \
      override {                                                                                                                           \
    on_.later(order_, [=, this] { inner_->trsm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                               \
  }
#define BALLAST_LATE_BLAS(T)                                                                                                               \
  BALLAST_LATE_COMPLEX_BLAS(T)                                                                                                             \
  void trmm(char s, char u, char t, char d, std::int64_t m, std::int64_t n, T alpha, const T* A, std::int64_t lda, T* B, std::int64_t ldb) \
      override {                                                                                                                           \
    on_.later(order_, [=, this] { inner_->trmm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                               \
  }                                                                                                                                        \
  void syrk(char u, char t, std::int64_t n, std::int64_t k, T alpha, const T* A, std::int64_t lda, T beta, T* C, std::int64_t ldc)         \
      override {                                                                                                                           \
    on_.later(order_, [=, this] { inner_->syrk(u, t, n, k, alpha, A, lda, beta, C, ldc); });                                               \
  }
    BALLAST_LATE_BLAS(float)
    BALLAST_LATE_BLAS(double)
    BALLAST_LATE_COMPLEX_BLAS(std::complex<float>)
    BALLAST_LATE_COMPLEX_BLAS(std::complex<double>)
#undef BALLAST_LATE_COMPLEX_BLAS
#undef BALLAST_LATE_BLAS

   private:
    late_device& on_;
    std::unique_ptr<cuda::blas> inner_;
    cuda::stream order_;
  };

  bool is_pinned(const void* memory) const {
    const auto* const byte = static_cast<const unsigned char*>(memory);
    return std::ranges::any_of(pinned_, [&](const auto& each) { return byte >= each.first && byte < each.first + each.second; });
  }
  void later(cuda::stream on, std::function<void()> body) { queues_[on].push_back({std::move(body), nullptr, 0}); }
  void run(cuda::stream on) {
    const operation now = std::move(queues_[on].front());
    queues_[on].pop_front();
    now.body();
  }

  std::int64_t waits_ = 0;
  manner how_;
  std::uint64_t seed_, made_ = 0;
  cuda::stream last_ = nullptr;
  std::mt19937_64 bits_;
  std::map<cuda::stream, std::deque<operation>> queues_;
  std::map<unsigned char*, std::int64_t> pinned_;
};

}  // namespace ballast::test
