// The stage `nccl`: a process for each device, over the NCCL of a file. Faults of the wire and killed processes among its scenes.
#include <algorithm>
#include <string>

#include <ballast/error.hpp>

#include "algorithm.hpp"
#include "nccl/stage.hpp"
#include "output.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_most_processes = 8;
constexpr double k_patience = 60, k_short_patience = 4;
constexpr const char* k_lost_during[] = {"barriers", "fit", "transform"};

}  // namespace

int nccl(const settings& wanted, const time_limit& limit) {
  if (wanted.nccl.empty()) throw invalid_argument_error("nccl: expected --nccl FILE, the libnccl.so.2 to run on, got none");
  if (tested != backend::cuda) throw invalid_argument_error("nccl: expected --backend cuda, got another one");
  const int devices = count_devices(), processes = std::min(devices, k_most_processes);
  row("devices").add("count", devices).print();
  int failed = 0;
  const auto run = [&](const std::string& name, double seconds, double patience, int dies, const auto& work) {
    if (limit.left() < 10) {
      row("skipped").add("cases", 1).add("token", "nccl " + name).print();
      return;
    }
    const scene what{name, wanted.nccl, processes, std::min(seconds, limit.left()), patience, dies};
    failed += run_scene(what, [&](const process& own, const group& all) { return work(own, all); });
  };
  using namespace over_nccl;
  const bool quick = wanted.quick;
  if (wanted.includes("fits")) run("fits", 150, k_patience, -1, [](const process& own, const group& all) { return fits(own, all); });
  if (processes > 1) {
    if (wanted.includes("faults"))
      run("faults", 120, k_patience, -1, [&](const process& own, const group& all) { return faults(own, all, quick); });
    for (const lost_during what : {lost_during::barriers, lost_during::fit, lost_during::transform}) {
      if (!wanted.includes("losses")) break;
      for (const std::uint64_t number : {0, 9, 60}) {
        if (quick && number > 9) continue;
        run(std::string("loss in ") + k_lost_during[static_cast<std::size_t>(what)] + " at " + std::to_string(number), 60, k_short_patience,
            1, [&](const process& own, const group& all) { return loss(own, all, what, number); });
      }
    }
  } else {
    row("skipped").add("cases", 2).add("token", "nccl faults and losses, which need two devices").print();
  }
  if (wanted.includes("qr"))
    run("qr", 60, k_patience, -1, [&](const process& own, const group& all) { return factorizations(own, all, quick); });
  if (wanted.includes("times"))
    run("times", 150, k_patience, -1, [&](const process& own, const group& all) { return fit_times(own, all, quick); });
  if (wanted.includes("transforms"))
    run("transforms", 300, k_patience, -1, [&](const process& own, const group& all) { return transforms(own, all, quick); });
  return failed;
}

}  // namespace ballast::gpu_check
