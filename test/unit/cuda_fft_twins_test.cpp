// Factors and their second copies for the checks: a fault during the computation of one must not be in both. The test replaces the roots of
// unity, chirps and filters that tables are computed from (override_factors) by the functions below, which compute wrong numbers on demand.
#include <atomic>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ballast/fft.hpp>

#include "cuda/jit/jit.hpp"
#include "cuda/memory/shared_state.hpp"
#include "fft/cuda/plan/tables.hpp"
#include "support/devices.hpp"
#include "support/fft_data.hpp"

namespace ballast::fft {

namespace {

// Selects the number that is computed wrong. An order or length of 0: none.
struct meddling {
  enum class at : std::uint8_t { root, chirp, filter };
  at where = at::root;
  std::int64_t n = 0;  // order of the root, length of the chirp
  int call = 1;        // the first call that goes wrong
  int count = 1;       // number of calls that go wrong
};
meddling wanted;
std::atomic<int> calls{0}, struck{0};

bool goes_wrong(meddling::at where, std::int64_t n) {
  if (where != wanted.where || n != wanted.n) return false;
  const int number = ++calls;
  if (number < wanted.call || number >= wanted.call + wanted.count) return false;
  ++struck;
  return true;
}

using number = std::complex<double>;

// Returns a number with another error each time.
number wrong(const number& right) { return right * (1 + 0.01 * struck); }

number root(std::int64_t k, std::int64_t n) {
  const number right = root_of_unity<double>(k, n);
  return goes_wrong(meddling::at::root, n) ? wrong(right) : right;
}
number chirp_of(std::int64_t j, std::int64_t n) {
  const number right = chirp<double>(j, n);
  return goes_wrong(meddling::at::chirp, n) ? wrong(right) : right;
}
std::vector<number> filter_of(std::int64_t n, std::int64_t m, bool inverse, int threads) {
  std::vector<number> made = chirp_filter<double>(n, m, inverse, threads);
  if (goes_wrong(meddling::at::filter, n)) made[made.size() / 3] = wrong(made[made.size() / 3]);
  return made;
}

// Records the data that are copied to it. Computes nothing.
class uploading_device final : public test::forwarding_device {
 public:
  explicit uploading_device(std::shared_ptr<test::recording_device> inner) : forwarding_device(std::move(inner)) {}
  std::vector<std::size_t> uploads;  // hashes

  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    uploads.push_back(std::hash<std::string_view>{}({static_cast<const char*>(from), static_cast<std::size_t>(bytes)}));
    inner_->copy(to, from, bytes, on);
  }
};

// General kernels compute a problem with this many signals.
constexpr std::int64_t k_fallback = 3;

class cuda_fft_twins : public testing::Test {
 protected:
  cuda_fft_twins() { cuda::override_factors<double>({root, chirp_of, filter_of}); }
  ~cuda_fft_twins() override {
    wanted = {};
    cuda::override_factors<double>({});
    ballast::cuda::forget_idle_states();
  }

  // Returns the tables of a plan that is constructed anew while `by` is active.
  std::vector<std::size_t> tables(const fft::problem& problem, const meddling& by, protection guard = protection::correct) {
    ballast::cuda::forget_idle_states();
    there_->only_fallback = problem.batch == k_fallback;
    device_->uploads.clear();
    wanted = by;
    calls = struck = 0;
    std::vector<std::complex<float>> data(static_cast<std::size_t>((problem.shape[0] + 2) * problem.batch));
    const plan made(problem, {.backend = backend::cuda, .protection = guard},
                    {problem.batch == k_fallback ? kernels::fallback_at_first : kernels::own});
    const direction way = problem.kind == kind::c2r ? direction::inverse : direction::forward;
    auto pending = test::enqueue<float>(made, resolve(problem), way, data.data(), data.data());
    wanted = {};
    return device_->uploads;
  }

  std::shared_ptr<test::recording_device> there_ = std::make_shared<test::recording_device>(ballast::cuda::typical_capabilities("sm_90a"));
  std::shared_ptr<uploading_device> device_ = std::make_shared<uploading_device>(there_);
  test::current_device_guard current_{device_};
};

struct struck_table {
  const char* name;
  fft::problem problem;
  meddling by;
};

const struck_table k_struck[] = {
    {"chirp", {.shape = {4099}}, {meddling::at::chirp, 4099, 100}},
    {"filter", {.shape = {4099}}, {meddling::at::filter, 4099, 1}},
    {"factors between passes", {.shape = {1 << 17}, .batch = k_fallback}, {meddling::at::root, 1 << 17, 17}},
    {"factors between passes, of two parts", {.shape = {1 << 22}}, {meddling::at::root, 1 << 22, 17}},
    {"spectrum of reals", {.kind = kind::r2c, .shape = {1024}}, {meddling::at::root, 1024, 31}},
    {"reals of a spectrum", {.kind = kind::c2r, .shape = {1024}}, {meddling::at::root, 1024, 31}},
};

TEST_F(cuda_fft_twins, a_fault_in_one_computation_reaches_no_table) {
  for (const struck_table& each : k_struck) {
    SCOPED_TRACE(each.name);
    const auto clean = tables(each.problem, {});
    EXPECT_GT(clean.size(), 2u);
    EXPECT_EQ(tables(each.problem, each.by), clean);
    EXPECT_EQ(struck, 1);
  }
}

TEST_F(cuda_fft_twins, a_machine_that_never_agrees_with_itself_makes_no_plan) {
  for (const struck_table& each : k_struck) {
    SCOPED_TRACE(each.name);
    meddling always = each.by;
    always.call = 1;
    always.count = 1 << 30;
    try {
      (void)tables(each.problem, always);
      ADD_FAILURE() << "no exception";
    } catch (const error& seen) {
      EXPECT_THAT(seen.what(), testing::HasSubstr("the same bits"));
    }
  }
}

// Without checks no twin is ever read.
TEST_F(cuda_fft_twins, what_is_not_checked_is_computed_once) {
  (void)tables({.shape = {4099}}, {meddling::at::filter, 4099, 100}, protection::off);
  EXPECT_EQ(calls, 1);
  (void)tables({.shape = {4099}}, {meddling::at::filter, 4099, 100});
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace ballast::fft
