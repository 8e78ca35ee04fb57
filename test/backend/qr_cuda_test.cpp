// The cuda backend of QR on the emulator: clusters of every size, slabs in global memory, operands in device memory, several calls at once,
// and work that a device does as late, or as early, as the order of its streams allows. What is shared with other backends is in
// qr_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "abft/threshold.hpp"
#include "cuda/blas.hpp"
#include "cuda/shared_state.hpp"
#include "inject/plan.hpp"
#include "inject/sites.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"
#include "support/effort.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr {
namespace {

using namespace subjects;

// The device of every test that sets no other.
class emulated final : public testing::Environment {
 public:
  void SetUp() override { cuda::override_device(std::make_shared<simt::emulated_device>()); }
  void TearDown() override { cuda::override_device(nullptr); }
};
[[maybe_unused]] const auto* const k_emulated = testing::AddGlobalTestEnvironment(new emulated);

// A device for one test; the one of all tests comes back behind it.
class device_for_a_test {
 public:
  explicit device_for_a_test(std::shared_ptr<cuda::device> device) : before_(cuda::overriding_device()) {
    cuda::override_device(std::move(device));
  }
  ~device_for_a_test() {
    cuda::forget_idle_states();
    cuda::override_device(before_);
  }
  device_for_a_test(const device_for_a_test&) = delete;
  device_for_a_test& operator=(const device_for_a_test&) = delete;

 private:
  std::shared_ptr<cuda::device> before_;
};

template <class T>
factored<T> factor_on(backend which, const matrix<T>& A, const inject::plan* faults = nullptr) {
  return factor_in_place<T>(A.view(), {.backend = which, .threads = 1, .faults = faults});
}

template <class T>
void expect_the_same(const factored<T>& a, const factored<T>& b) {
  EXPECT_EQ(a.tau, b.tau);
  EXPECT_EQ(std::memcmp(a.F.data(), b.F.data(), a.F.size() * sizeof(T)), 0);
  EXPECT_EQ(a.report.verdict, b.report.verdict);
  EXPECT_EQ(a.report.checks, b.report.checks);
  EXPECT_EQ(a.report.detected, b.report.detected);
}

template <class T>
class qr_cuda : public testing::Test {
 protected:
  static void expect_as_on_the_cpu(index m, index n) {
    const matrix<T> A = random_matrix<T>(m, n, static_cast<std::uint64_t>(m + n));
    const factored<T> made = factor_on(backend::cuda, A), expected = factor_on(backend::cpu, A);
    EXPECT_EQ(made.report.verdict, verdict::clean) << to_json(made.report);
    EXPECT_EQ(made.report.backend, backend::cuda);
    const double tolerance = 500 * static_cast<double>(m) * abft::unit_roundoff<T>;
    for (std::size_t j = 0; j < made.tau.size(); ++j) ASSERT_NEAR(made.tau[j], expected.tau[j], tolerance) << m << " × " << n;
    for (std::size_t e = 0; e < A.size(); ++e)
      ASSERT_NEAR(made.F.data()[e], expected.F.data()[e], tolerance * std::sqrt(m)) << m << " × " << n;
  }
};
using reals = testing::Types<float, double>;
struct names {
  template <class T>
  static std::string GetName(int) {
    return sizeof(T) == 4 ? "f32" : "f64";
  }
};
TYPED_TEST_SUITE(qr_cuda, reals, names);

TYPED_TEST(qr_cuda, panels_of_clusters_of_every_size) {
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{190, 40}, {260, 70}, {1600, 12}, {4200, 6}})
    this->expect_as_on_the_cpu(m, n);
}

TYPED_TEST(qr_cuda, panels_without_clusters) {
  const device_for_a_test here(std::make_shared<simt::emulated_device>(simt::emulated_capabilities(4, 8)));
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{260, 40}, {90, 120}}) this->expect_as_on_the_cpu(m, n);
}

TYPED_TEST(qr_cuda, slabs_that_lie_in_global_memory) {
  cuda::capabilities small = simt::emulated_capabilities();
  small.shared_per_block = 50 << 10;
  const device_for_a_test here(std::make_shared<simt::emulated_device>(small));
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{190, 70}, {1500, 34}}) this->expect_as_on_the_cpu(m, n);
}

// Panels wider than one launch takes, and sections of several blocks.
TYPED_TEST(qr_cuda, wide_panels) { this->expect_as_on_the_cpu(230, 220); }

// --------------------------------------------------------------------------------------------------------- operands on the device

// Counts what goes from the device to the host.
class watched_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t to_host = 0;
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    if (accessible(from) && !accessible(to)) to_host += bytes;
    forwarding_device::copy(to, from, bytes, on);
  }
};

template <class T>
class on_device {
 public:
  on_device(const std::shared_ptr<cuda::device>& device, const T* values, std::size_t count)
      : device_(device), count_(count), memory_(device, static_cast<std::int64_t>(count * sizeof(T))) {
    device_->copy(memory_.data(), values, memory_.bytes(), nullptr);
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> values() const {
    std::vector<T> seen(count_);
    device_->copy(seen.data(), memory_.data(), memory_.bytes(), nullptr);
    return seen;
  }

 private:
  std::shared_ptr<cuda::device> device_;
  std::size_t count_;
  cuda::device_buffer memory_;
};

TYPED_TEST(qr_cuda, matrices_on_the_device_stay_there) {
  using T = TypeParam;
  const auto device = std::make_shared<watched_device>(std::make_shared<simt::emulated_device>());
  const device_for_a_test here(device);
  const index m = 150, n = 70;
  const matrix<T> A = random_matrix<T>(m, n, 1);
  const factored<T> expected = factor_on(backend::cuda, A);
  for (const bool rows : {false, true}) {
    const matrix<T> given = rows ? matrix<T>(n, m, order::column_major) : A;
    std::vector<T> start(A.size());
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) start[static_cast<std::size_t>(rows ? j + i * n : i + j * m)] = A(i, j);
    }
    const on_device<T> F(device, start.data(), start.size()),
        tau(device, std::vector<T>(static_cast<std::size_t>(n)).data(), static_cast<std::size_t>(n));
    const matrix_view<T> view{F.data(), m, n, rows ? n : 1, rows ? 1 : m};
    device->to_host = 0;
    const report seen = geqrf(view, std::span<T>(tau.data(), static_cast<std::size_t>(n)), {.backend = backend::cuda});
    EXPECT_EQ(seen.verdict, verdict::clean);
    EXPECT_LT(device->to_host, 8000) << "scalars and sizes of columns: the matrix has " << m * n * static_cast<index>(sizeof(T))
                                     << " bytes";
    EXPECT_EQ(tau.values(), expected.tau);
    const std::vector<T> made = F.values();
    for (index j = 0; j < n; ++j) {
      for (index i = 0; i < m; ++i) ASSERT_EQ(made[static_cast<std::size_t>(rows ? j + i * n : i + j * m)], expected.F(i, j));
    }
    const on_device<T> Q(device, expected.F.data(), expected.F.size());
    const report formed =
        orgqr(column_major(Q.data(), m, n), std::span<const T>(tau.data(), static_cast<std::size_t>(n)), {.backend = backend::cuda});
    EXPECT_EQ(formed.verdict, verdict::clean);
    matrix<T> host = expected.F;
    (void)orgqr(host.view(), expected.tau, {.backend = backend::cuda});
    EXPECT_EQ(Q.values(), std::vector<T>(host.data(), host.data() + host.size()));
  }
}

TYPED_TEST(qr_cuda, an_uncorrectable_fault_gives_the_input_back) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  const std::vector<T> start(A.data(), A.data() + A.size()), scalars(40, T(5));
  const on_device<T> F(device, start.data(), start.size()), tau(device, scalars.data(), scalars.size());
  const inject::plan faults({{.site = inject::site::qr_tau, .model = inject::model::stuck_at, .seed = 1}});
  const execution how{.backend = backend::cuda, .faults = &faults};
  EXPECT_THROW((void)geqrf(column_major(F.data(), index{60}, index{40}), std::span<T>(tau.data(), 40), how), uncorrectable_error);
  EXPECT_EQ(F.values(), start);
  EXPECT_EQ(tau.values(), scalars);
}

TYPED_TEST(qr_cuda, least_squares_on_the_device) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  for (const auto& [m, n] : std::vector<std::pair<index, index>>{{90, 50}, {50, 90}}) {
    const index most = std::max(m, n), k = 3;
    const matrix<T> A = random_matrix<T>(m, n, 3), B = random_matrix<T>(most, k, 4);
    const on_device<T> F(device, A.data(), A.size()), X(device, B.data(), B.size());
    EXPECT_EQ(gels(column_major(F.data(), m, n), column_major(X.data(), most, k), {.backend = backend::cuda}).verdict, verdict::clean);
    matrix<T> G = A, expected = B;
    (void)gels(G.view(), expected.view(), {.backend = backend::cpu, .threads = 1});
    const std::vector<T> made = X.values();
    for (index c = 0; c < k; ++c) {
      for (index i = 0; i < n; ++i)
        EXPECT_NEAR(made[static_cast<std::size_t>(i + c * most)], expected(i, c),
                    3000.0 * static_cast<double>(most) * abft::unit_roundoff<T>);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- calls and choices

TYPED_TEST(qr_cuda, several_calls_at_once) {
  using T = TypeParam;
  std::vector<matrix<T>> A;
  std::vector<factored<T>> expected, made(3);
  for (std::uint64_t t = 0; t < 3; ++t) {
    A.push_back(random_matrix<T>(60 + 7 * static_cast<index>(t), 50, t));
    expected.push_back(factor_on(backend::cuda, A.back()));
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t) threads.emplace_back([&, t] { made[t] = factor_on(backend::cuda, A[t]); });
  }
  for (std::size_t t = 0; t < 3; ++t) expect_the_same(made[t], expected[t]);
}

TYPED_TEST(qr_cuda, nothing_is_left_on_the_device) {
  using T = TypeParam;
  const auto device = std::make_shared<simt::emulated_device>();
  const device_for_a_test here(device);
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  (void)factor_on(backend::cuda, A);
  EXPECT_EQ(device->allocated(), 0);
  EXPECT_EQ(device->streams(), 2) << "kept for the next call";
  const std::int64_t launches = device->launches();
  (void)factor_on(backend::cuda, A);
  EXPECT_EQ(device->streams(), 2);
  EXPECT_EQ(device->launches(), 2 * launches);
  cuda::forget_idle_states();
  EXPECT_EQ(device->streams(), 0);
  EXPECT_EQ(device->pinned(), 0);
}

TYPED_TEST(qr_cuda, an_automatic_choice) {
  using T = TypeParam;
  const auto device = cuda::overriding_device();
  const matrix<T> A = random_matrix<T>(60, 40, 2);
  factored<T> host{A, std::vector<T>(40), {}};
  EXPECT_EQ(geqrf(host.F.view(), host.tau).backend, backend::cpu) << "done before it has been copied";
  const on_device<T> F(device, A.data(), A.size()), tau(device, host.tau.data(), host.tau.size());
  const auto view = column_major(F.data(), index{60}, index{40});
  const std::span<T> scalars(tau.data(), 40);
  EXPECT_EQ(geqrf(view, scalars).backend, backend::cuda);
  EXPECT_EQ(geqrf(view, scalars, {.scheme = "qr_update"}).backend, backend::cpu);
  EXPECT_EQ(geqrf(view, scalars, {.scheme = "block_checksum"}).backend, backend::cuda);
}

// --------------------------------------------------------------------------------------------------------- orders of completion

// Does what a stream holds only when it must, in an order that the streams and events allow: the stream that is waited for first, the
// others first, or any. As CUDA does, it reads pageable memory of the host before a call returns, and waits where it writes to it.
class late_device final : public test::forwarding_device {
 public:
  enum class manner { awaited_first, others_first, any };
  late_device(std::shared_ptr<cuda::device> inner, manner how, std::uint64_t seed)
      : forwarding_device(std::move(inner)), how_(how), bits_(seed) {}
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
    queues_[on].push_back({[] {}, state, state->recorded});
  }
  void synchronize(cuda::stream on) override {
    while (!queues_[on].empty()) {
      std::vector<cuda::stream> ready;
      for (const auto& [each, queue] : queues_) {
        if (!queue.empty() && queue.front().is_ready()) ready.push_back(each);
      }
      if (ready.empty()) throw error("late_device: the streams wait for each other");
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
#define BALLAST_LATE_BLAS(T)                                                                                                             \
  void gemm(char ta, char tb, index m, index n, index k, T alpha, const T* A, index lda, const T* B, index ldb, T beta, T* C, index ldc) \
      override {                                                                                                                         \
    on_.later(order_, [=, this] { inner_->gemm(ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc); });                                \
  }                                                                                                                                      \
  void trmm(char s, char u, char t, char d, index m, index n, T alpha, const T* A, index lda, T* B, index ldb) override {                \
    on_.later(order_, [=, this] { inner_->trmm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                             \
  }                                                                                                                                      \
  void trsm(char s, char u, char t, char d, index m, index n, T alpha, const T* A, index lda, T* B, index ldb) override {                \
    on_.later(order_, [=, this] { inner_->trsm(s, u, t, d, m, n, alpha, A, lda, B, ldb); });                                             \
  }                                                                                                                                      \
  void syrk(char u, char t, index n, index k, T alpha, const T* A, index lda, T beta, T* C, index ldc) override {                        \
    on_.later(order_, [=, this] { inner_->syrk(u, t, n, k, alpha, A, lda, beta, C, ldc); });                                             \
  }
    BALLAST_LATE_BLAS(float)
    BALLAST_LATE_BLAS(double)
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

  manner how_;
  std::mt19937_64 bits_;
  std::map<cuda::stream, std::deque<operation>> queues_;
  std::map<unsigned char*, std::int64_t> pinned_;
};

TYPED_TEST(qr_cuda, any_order_that_the_streams_allow_gives_the_same) {
  using T = TypeParam;
  using manner = late_device::manner;
  // One block in the other's lookahead, several blocks, blocks that never become panels; columns that are scaled; and faults, whose repair
  // runs while others are updated beside it.
  const matrix<T> square = random_matrix<T>(150, 140, 5), wide = random_matrix<T>(50, 120, 6);
  matrix<T> scaled = random_matrix<T>(90, 80, 7);
  for (index i = 0; i < 90; ++i) scaled(i, 3) *= static_cast<T>(sizeof(T) == 4 ? 0x1p-60 : 0x1p-400);
  std::vector<std::pair<const matrix<T>*, std::optional<inject::request>>> cases = {
      {&square, std::nullopt}, {&wide, std::nullopt}, {&scaled, std::nullopt}};
  std::vector<inject::site> sites = {inject::site::qr_trailing, inject::site::qr_reflector, inject::site::qr_r,
                                     inject::site::qr_product,  inject::site::qr_panel,     inject::site::qr_t,
                                     inject::site::qr_checksum};
  if (test::sampled()) sites.resize(3);
  for (const inject::site where : sites) {
    inject::request fault;
    fault.site = where;
    fault.model = inject::model::random_value;
    fault.seed = 3;
    cases.emplace_back(where == inject::site::qr_product ? &wide : &square, fault);
  }
  for (const auto& [A, fault] : cases) {
    const auto run = [&, A = A, fault = fault] {
      const inject::plan faults(fault ? std::vector<inject::request>{*fault} : std::vector<inject::request>{});
      return factor_on(backend::cuda, *A, fault ? &faults : nullptr);
    };
    const factored<T> expected = run();
    std::vector<std::pair<manner, std::uint64_t>> orders = {
        {manner::others_first, 1}, {manner::awaited_first, 1}, {manner::any, 1}, {manner::any, 2}};
    if (test::sampled()) orders.resize(2);
    for (const auto& [how, seed] : orders) {
      const device_for_a_test here(std::make_shared<late_device>(std::make_shared<simt::emulated_device>(), how, seed));
      const factored<T> made = run();
      SCOPED_TRACE(std::to_string(A->rows()) + " × " + std::to_string(A->columns()) +
                   (fault ? " " + std::string(inject::row_of(fault->site).name) : "") + ", manner " +
                   std::to_string(static_cast<int>(how)));
      expect_the_same(made, expected);
      if (!fault) {
        matrix<T> C = random_matrix<T>(A->rows(), 70, 8), D = C;
        const auto V = made.F.view().block(0, 0, A->rows(), static_cast<index>(made.tau.size()));
        (void)ormqr(side::left, transpose::yes, V, made.tau, C.view(), {.backend = backend::cuda});
        const device_for_a_test plain(std::make_shared<simt::emulated_device>());
        (void)ormqr(side::left, transpose::yes, V, made.tau, D.view(), {.backend = backend::cuda});
        EXPECT_EQ(std::memcmp(C.data(), D.data(), C.size() * sizeof(T)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr
