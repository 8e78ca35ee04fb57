// The processes of the stage `nccl` of gpu-check without a GPU: over the NCCL of fake_library.cpp, devices of the emulator, calls on the
// host. Processes that fail, hang or are killed must fail a scene.
// Layer: unit tests.
#include "nccl/processes.hpp"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/error.hpp>
#include <ballast/qr_rows.hpp>

#include "../../bench/gpu.hpp"
#include "core/counter_rng.hpp"
#include "cuda/device/device.hpp"
#include "group/state.hpp"
#include "run/dispatch.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::gpu_check {
namespace {

using loaded_nccl::fault;

class nccl_processes : public testing::Test {
 protected:
  nccl_processes() {
    bench::gpu::pretend();
    cuda::override_device(std::make_shared<simt::emulated_device>());
  }
  ~nccl_processes() override { cuda::override_device(nullptr); }
  static scene of(int processes, double seconds = 60, double patience = 20) {
    return {"test", BALLAST_FAKE_NCCL, processes, seconds, patience, -1};
  }
};

// R of 40 random rows on each rank.
std::vector<double> factor(int rank, const group& all) {
  constexpr std::int64_t m = 40, n = 5;
  std::vector<double> A(m * n), made;
  for (std::size_t i = 0; i < A.size(); ++i) A[i] = core::random_uniform(3, static_cast<std::uint64_t>(rank), i) - 0.5;
  const auto factors = qr::factor_rows(row_major<const double>(A.data(), m, n), {.backend = run::host_backend(), .group = all});
  if (factors.report.uncorrectable > 0) return {};
  const auto R = factors.r();
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) made.push_back(R(i, j));
  return made;
}

TEST_F(nccl_processes, compute_together) {
  for (const int processes : {1, 2, 3})
    EXPECT_EQ(run_scene(of(processes),
                        [&](const process& own, const group& all) {
                          if (all.rank() != own.rank || all.size() != processes) return 1;
                          return factor(own.rank, all).size() == 25 ? 0 : 1;
                        }),
              0);
}

TEST_F(nccl_processes, repair_struck_messages) {
  for (const fault what : {fault::bit, fault::swapped, fault::stale})
    EXPECT_EQ(run_scene(of(2),
                        [&](const process& own, const group& all) {
                          const std::vector<double> clean = factor(own.rank, all);
                          int wrong = 0;
                          for (std::uint64_t number = 0; number < 6; ++number) {
                            if (own.rank == static_cast<int>(number % 2)) loaded_nccl::arm({what, number, 1, 2 * number + 1, 0});
                            wrong += factor(own.rank, all) == clean ? 0 : 1;
                            all.barrier();
                            own.shared->struck += loaded_nccl::struck();
                            loaded_nccl::disarm();
                          }
                          all.barrier();
                          return wrong == 0 && own.shared->struck >= 4 ? 0 : 1;
                        }),
              0);
}

TEST_F(nccl_processes, strike_sums) {
  EXPECT_EQ(run_scene(of(2),
                      [&](const process& own, const group& all) {
                        const auto device = cuda::current_device();
                        const std::vector<std::uint64_t> words(100, static_cast<std::uint64_t>(own.rank) + 1);
                        std::vector<std::uint64_t> sums(100);
                        const cuda::device_buffer from(device, 800), to(device, 800);
                        device->copy(from.data(), words.data(), 800, nullptr);
                        int wrong = 0;
                        const auto add = [&] {
                          all.internal()->link->add(from.data(), to.data(), 100, nullptr);
                          all.internal()->link->finish(nullptr);
                          device->copy(sums.data(), to.data(), 800, nullptr);
                        };
                        add();
                        wrong += sums == std::vector<std::uint64_t>(100, 3) ? 0 : 1;
                        if (own.rank == 1) loaded_nccl::arm({fault::left_out, 0, 1, 0, 0});
                        add();
                        wrong += sums == std::vector<std::uint64_t>(100, 1) ? 0 : 1;
                        if (own.rank == 1) loaded_nccl::arm({fault::bit_of_sum, 0, 1, 0, 0});
                        add();
                        const bool right = sums == std::vector<std::uint64_t>(100, 3);
                        wrong += right == (own.rank == 0) ? 0 : 1;
                        all.barrier();
                        return wrong;
                      }),
            0);
}

TEST_F(nccl_processes, find_a_killed_one_and_go_on) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{9}}) {
    scene what = of(3, 60, 2);
    what.dies = 1;
    EXPECT_EQ(run_scene(what,
                        [&](const process& own, const group& all) {
                          all.barrier();
                          if (own.rank == 1) loaded_nccl::end_at(number, &own.shared->ended);
                          try {
                            for (int i = 0; i < 1000; ++i) all.barrier();
                            return 1;
                          } catch (const rank_lost_error& lost) {
                            const double seconds = loaded_nccl::now() - own.shared->ended;
                            if (std::ranges::count(lost.ranks(), 1) != 1 || seconds <= 0 || seconds > 10) return 1;
                          }
                          const int place = own.rank == 0 ? 0 : 1;
                          const group left = own.join(1, place, 2);
                          return factor(place, left).size() == 25 ? 0 : 1;
                        }),
              0);
  }
}

// The scene itself can fail.
TEST_F(nccl_processes, a_scene_fails_with_its_processes) {
  EXPECT_EQ(run_scene(of(2), [](const process& own, const group&) { return own.rank; }), 1);
  EXPECT_EQ(run_scene(of(2),
                      [](const process& own, const group&) {
                        if (own.rank == 1) throw error("a failure");
                        return 0;
                      }),
            1);
  scene hangs = of(2, 3);
  EXPECT_EQ(run_scene(hangs,
                      [](const process& own, const group&) {
                        while (own.rank == 0) usleep(1000);
                        return 0;
                      }),
            1);
  scene survives = of(2);
  survives.dies = 1;  // it does not
  EXPECT_EQ(run_scene(survives, [](const process&, const group&) { return 0; }), 1);
  scene missing = of(2);
  missing.library = "/nowhere/libnccl.so.2";
  EXPECT_EQ(run_scene(missing, [](const process&, const group&) { return 0; }), 2);
}

}  // namespace
}  // namespace ballast::gpu_check
