// Compiles the kernels that are struck, on all cores, where NVRTC is available, for a machine with a GPU.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include <ballast/error.hpp>

#include "algorithm.hpp"
#include "output.hpp"
#include "strike/kernels.hpp"

namespace ballast::gpu_check {

std::vector<cuda::kernel_request> strike_requests(const algorithm& of, const std::vector<std::string>& names,
                                                  const cuda::capabilities& about) {
  const auto device = std::make_shared<test::recording_device>(about);
  const test::current_device_guard guard(device);
  for (const std::string& each : names) {
    device->user = each;
    of.record_subject(*device, each);
  }
  return device->requests;
}

int struck_kernels(const algorithm& of, const settings& wanted, const time_limit& limit) {
  const std::string architecture = wanted.architecture.empty() ? "sm_90a" : wanted.architecture;
  const auto requests =
      strike_requests(of, wanted.tokens.empty() ? of.strike_set(wanted.quick) : wanted.tokens, cuda::typical_capabilities(architecture));
  struct outcome {
    struck_kernel made;
    std::string wrong;
    double seconds = 0;
  };
  std::vector<outcome> outcomes(requests.size());
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < requests.size(); i = next++) {
          const time_limit clock(0);
          try {
            if (limit.over()) throw error("no time was left");
            outcomes[i].made = make_struck_kernel(requests[i], architecture, !assembler().empty());
          } catch (const std::exception& e) {
            outcomes[i].wrong = e.what();
          }
          outcomes[i].seconds = -clock.left();
        }
      });
    }
  }
  int failed = 0;
  std::vector<cuda::image> entries;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    row line("struck kernel");
    line.add("expression", requests[i].expression)
        .add("sites", outcomes[i].made.sites.size())
        .add("bytes", outcomes[i].made.code.code.size());
    line.add("seconds", outcomes[i].seconds);
    line.add("pass", outcomes[i].wrong.empty());
    if (!outcomes[i].wrong.empty()) {
      line.add("wrong", outcomes[i].wrong);
      ++failed;
    } else {
      for (cuda::image& each : entries_of(outcomes[i].made)) entries.push_back(std::move(each));
    }
    line.print();
  }
  if (!wanted.bundle.empty()) {
    cuda::write_bundle(wanted.bundle, entries);
    row("bundle").add("kernels", entries.size() / 2).print();
  }
  return failed;
}

}  // namespace ballast::gpu_check
