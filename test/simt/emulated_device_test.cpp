// Tests the emulated device as the host code of a backend uses it, from a request to results.
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "ballast/error.hpp"
#include "cuda/device/blas.hpp"
#include "simt/emulated_device.hpp"
#include "simt/scale.cuh"

namespace {

using namespace ballast;

TEST(emulated_device, runs_registered_kernels) {
  constexpr std::int64_t k_count = 1000;
  const auto on = std::make_shared<simt::emulated_device>();
  for (const bool wide : {false, true}) {
    cuda::kernel_request request;
    request.header = "simt/scale.cuh";
    // Unusual spaces, which must not matter.
    request.expression = wide ? "simt_test::scale_kernel< simt_test::scale_policy{ .threads=128,.per_thread=4 } >"
                              : "simt_test::scale_kernel<simt_test::scale_policy{.threads = 64}>";
    request.threads = wide ? 128 : 64;
    const cuda::kernel& kernel = on->load(request);
    EXPECT_EQ(&kernel, &on->load(request));
    std::vector<float> numbers(k_count);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const cuda::device_buffer in(on, k_count * 4);
    const cuda::device_buffer out(on, k_count * 4);
    const cuda::device_buffer blocks(on, 4);
    EXPECT_EQ(on->allocated(), 2 * k_count * 4 + 4);
    on->copy(in.data(), numbers.data(), in.bytes(), nullptr);
    on->zero(blocks.data(), blocks.bytes(), nullptr);
    const std::int64_t count = (k_count + 511) / 512 * (wide ? 1 : 8);
    const simt_test::scale_argument argument{static_cast<const float*>(in.data()), static_cast<float*>(out.data()),
                                             static_cast<std::uint32_t*>(blocks.data()), k_count, 3};
    on->launch(kernel, count, &argument, sizeof(argument), nullptr);
    on->synchronize(nullptr);
    std::vector<float> scaled(k_count);
    std::uint32_t finished = 0;
    on->copy(scaled.data(), out.data(), out.bytes(), nullptr);
    on->copy(&finished, blocks.data(), 4, nullptr);
    for (std::size_t i = 0; i < scaled.size(); ++i) ASSERT_EQ(scaled[i], 3 * numbers[i]) << i;
    EXPECT_EQ(finished, count);
    EXPECT_THROW(on->launch(kernel, count, &argument, sizeof(argument) - 1, nullptr), simt::error);
    EXPECT_THROW(on->launch(kernel, 0, &argument, sizeof(argument), nullptr), simt::error);
  }
  EXPECT_EQ(on->allocated(), 0);
  EXPECT_EQ(on->launches(), 2);
}

TEST(emulated_device, refuses_what_the_capabilities_do_not_allow) {
  simt::emulated_device ampere(simt::emulated_capabilities(2, 8));
  cuda::kernel_request request;
  request.expression = "simt_test::scale_kernel<simt_test::scale_policy{.threads = 64}>";
  request.threads = 64;
  EXPECT_NO_THROW(ampere.load(request));
  request.cluster = 2;
  EXPECT_THROW(ampere.load(request), unsupported_error);
  EXPECT_NO_THROW(simt::emulated_device().load(request));
  request.cluster = 1;
  request.shared = 200 << 10;
  EXPECT_THROW(ampere.load(request), unsupported_error);
  request.shared = 0;
  request.threads = 2048;
  EXPECT_THROW(ampere.load(request), unsupported_error);
  request.threads = 64;
  request.expression = "simt_test::scale_kernel<simt_test::scale_policy{.threads = 65}>";
  EXPECT_THROW(ampere.load(request), unsupported_error);
}

TEST(emulated_device, memory_is_counted_and_runs_out) {
  simt::emulated_device on;
  int local = 0;
  EXPECT_FALSE(on.accessible(&local));
  auto* memory = static_cast<unsigned char*>(on.allocate(1000, nullptr));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  EXPECT_TRUE(on.accessible(memory + 999));
  EXPECT_FALSE(on.accessible(memory + 1000));
  std::uint32_t word = 0;
  std::memcpy(&word, memory, 4);
  EXPECT_EQ(word, simt::k_poison);
  EXPECT_THROW(on.allocate(on.about().memory - 999, nullptr), std::bad_alloc);
  on.release(memory, nullptr);
  EXPECT_EQ(on.allocated(), 0);
}

TEST(emulated_device, takes_as_many_arguments_as_the_kernel) {
  static int sum = 0;
  simt::register_kernel(
      "two_arguments", +[](std::int64_t a, std::int32_t b) { sum += static_cast<int>(a) + b; });
  simt::emulated_device on;
  const cuda::kernel& kernel = on.load({.expression = "two_arguments", .threads = 32});
  const std::int64_t a = 3;
  const std::int32_t b = 4;
  const cuda::kernel_argument both[] = {{&a, sizeof a}, {&b, sizeof b}};
  sum = 0;
  on.launch(kernel, 2, both, nullptr);
  EXPECT_EQ(sum, 2 * 32 * 7);
  EXPECT_THROW(on.launch(kernel, 2, &a, sizeof a, nullptr), simt::error);
  const cuda::kernel_argument turned[] = {both[1], both[0]};
  EXPECT_THROW(on.launch(kernel, 2, turned, nullptr), simt::error);
}

TEST(emulated_device, has_streams_events_and_pinned_memory) {
  const auto on = std::make_shared<simt::emulated_device>();
  const auto never = on->make_event(true);
  {
    const cuda::device_stream side(on);
    const cuda::pinned_buffer there(on, 64);
    EXPECT_FALSE(on->accessible(there.data()));
    EXPECT_EQ(on->pinned(), 64);
    EXPECT_EQ(on->streams(), 1);
    const auto first = on->make_event(true);
    const auto last = on->make_event(true);
    on->record(*first, side.get());
    on->wait(*first, nullptr);
    on->record(*last, side.get());
    EXPECT_TRUE(on->passed(*last));
    EXPECT_GE(on->milliseconds(*first, *last), 0);
    EXPECT_THROW(on->wait(*never, side.get()), simt::error);
    EXPECT_THROW((void)on->milliseconds(*first, *never), simt::error);
    on->record(*never, side.get());
    const auto untimed = on->make_event(false);
    on->record(*untimed, side.get());
    EXPECT_THROW((void)on->milliseconds(*first, *untimed), simt::error);
  }
  EXPECT_EQ(on->pinned(), 0);
  EXPECT_EQ(on->streams(), 0);
  const cuda::stream gone = on->make_stream(false);
  on->release_stream(gone);
  EXPECT_THROW(on->record(*never, gone), simt::error);
}

TEST(emulated_device, multiplies_by_the_processors_blas) {
  simt::emulated_device on;
  const auto made = on.make_blas(cuda::blas_math::full, nullptr);
  // A = [1 3; 2 4], column-major.
  const std::vector<double> A{1, 2, 3, 4};
  std::vector<double> C(4, -1);
  made->gemm('N', 'T', 2, 2, 2, 1.0, A.data(), 2, A.data(), 2, 0.0, C.data(), 2);
  EXPECT_EQ(C, (std::vector<double>{10, 14, 14, 20}));
  std::vector<double> upper{1, -1, 1, 1}, lower{1, 1, -1, 1};
  made->syrk('U', 'N', 2, 2, 1.0, A.data(), 2, 2.0, upper.data(), 2);
  EXPECT_EQ(upper, (std::vector<double>{12, -1, 16, 22}));
  made->syrk('L', 'T', 2, 2, 1.0, A.data(), 2, 0.0, lower.data(), 2);
  EXPECT_EQ(lower, (std::vector<double>{5, 11, -1, 25}));
  std::vector<float> B{1, 2, 3, 4};
  const std::vector<float> R{2, 0, 1, 4};
  made->trmm('L', 'U', 'N', 'N', 2, 2, 1.0F, R.data(), 2, B.data(), 2);
  EXPECT_EQ(B, (std::vector<float>{4, 8, 10, 16}));
  made->trsm('L', 'U', 'N', 'N', 2, 2, 1.0F, R.data(), 2, B.data(), 2);
  EXPECT_EQ(B, (std::vector<float>{1, 2, 3, 4}));
}

TEST(emulated_device, resident_blocks_follow_threads_shared_memory_and_clusters) {
  simt::emulated_device on(simt::emulated_capabilities(132));
  cuda::kernel_request request;
  request.expression = "simt_test::scale_kernel<simt_test::scale_policy{.threads = 64}>";
  request.threads = 1024;
  EXPECT_EQ(on.resident_blocks(on.load(request)), 2 * 132);
  request.threads = 64;
  EXPECT_EQ(on.resident_blocks(on.load(request)), 32 * 132);
  request.shared = 100 << 10;
  EXPECT_EQ(on.resident_blocks(on.load(request)), 2 * 132);
  request.shared = 227 << 10;
  request.cluster = 16;
  EXPECT_EQ(on.resident_blocks(on.load(request)), 128);
}

TEST(emulated_device, white_space_between_words_stays) {
  EXPECT_EQ(simt::normalized(" a < unsigned  int ,\tb { . c = 3 } > "), "a<unsigned int,b{.c=3}>");
}

}  // namespace
