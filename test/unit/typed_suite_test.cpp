// The choice of types by a program's filter (support/typed_suite.hpp): no type is left out of which GoogleTest would run a test.
// Layer: unit tests.
#include <complex>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#include <ballast/types.hpp>

#include "support/typed_suite.hpp"

namespace ballast::test {
namespace {

static_assert(may_run("", "qr/cpu_f64."));
static_assert(may_run("qr/cpu_f64.*", "qr/cpu_f64.") && !may_run("qr/cpu_f64.*", "qr/cpu_f32."));
static_assert(!may_run("qr/cpu_f64.*", "qr_pivot/cpu_f64.") && may_run("qr_pivot*/cpu_f64.*", "qr_pivot_faults/cpu_f64."));
static_assert(may_run("token.*:qr_plan*:other.*", "qr_plan/cpu_f64."));
static_assert(may_run("half_numbers/f16.one", "half_numbers/f16."));
// A * does not stand for the / or the dot that follows in the pattern.
static_assert(!may_run("qr*/f64.*", "qr_cuda/f32.") && may_run("*.one", "qr_cuda/f32."));
// Left out: only what takes every test of the type.
static_assert(!may_run("-qr/cpu_f64.*", "qr/cpu_f64.") && !may_run("qr/*-qr*/cpu_f64.*", "qr/cpu_f64."));
static_assert(may_run("-half_numbers/f16.one", "half_numbers/f16.") && may_run("-qr/cpu_f64.*", "qr/cpu_f32."));
static_assert(!may_run("-a.*:qr*:b.*", "qr/cpu_f64.") && !may_run("-*", "qr/cpu_f64."));
static_assert(may_run("-*one", "qr/cpu_f64.") && may_run("-qr/cpu_f64.a*", "qr/cpu_f64."));

static_assert(name_of_numbers<std::complex<float>>(backend::cpu) == std::string_view("cpu_c64"));
static_assert(name_of_numbers<double>(backend::reference) == std::string_view("reference_f64"));
static_assert(name_of_numbers<float>(backend::cuda) == std::string_view("cuda_f32"));

// Without a filter every type stays.
using numbers = testing::Types<float, double, std::complex<double>>;
static_assert(std::is_same_v<chosen_types<"any", number_names, numbers>::type, numbers>);

template <class T>
class typed_suite : public testing::Test {};
TYPED_SUITE(typed_suite, numbers, number_names);

TYPED_TEST(typed_suite, has_the_name_of_its_type) {
  const std::string_view suite = testing::UnitTest::GetInstance()->current_test_info()->test_suite_name();
  EXPECT_EQ(suite.substr(suite.find('/') + 1), name_of_numbers<TypeParam>());
}

}  // namespace
}  // namespace ballast::test
