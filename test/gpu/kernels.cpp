// Lists the kernels of the other stages, compiles them, and checks each against its resource budget. Needs no GPU.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "algorithm.hpp"
#include "cuda/device/driver.hpp"
#include "cuda/jit/jit.hpp"
#include "output.hpp"
#include "simt/arch_checks.hpp"

namespace ballast::gpu_check {

namespace {

const char* origin_name(cuda::kernel_cache::origin from) {
  switch (from) {
    case cuda::kernel_cache::origin::bundle: return "bundle";
    case cuda::kernel_cache::origin::compiler: return "compiled";
    default: return "cached";
  }
}

}  // namespace

int kernels(const algorithm& of, const settings& wanted, const time_limit& limit) {
  // The local device, or the architecture named by --arch, or otherwise an H200.
  cuda::capabilities about;
  std::string architecture = wanted.architecture;
  const bool here = architecture.empty() && cuda::why_unavailable().empty();
  if (here) {
    about = cuda::current_device()->about();
  } else {
    if (architecture.empty()) architecture = "sm_90a";
    about = cuda::typical_capabilities(architecture);
  }
  const auto device = std::make_shared<test::recording_device>(about);
  int failed = 0;
  {
    const test::current_device_guard guard(device);
    failed = of.record(*device, wanted);
  }
  if (wanted.tokens.empty()) {
    device->user = "instructions";
    for (const arch_checks::check& each : arch_checks::all(about.major)) (void)device->load(each.request);
  }

  struct outcome {
    std::shared_ptr<const cuda::image> made;
    std::string from, wrong;
    double seconds = 0;
  };
  const std::vector<cuda::kernel_request>& requests = device->requests;
  std::vector<outcome> outcomes(requests.size());
  std::atomic<std::size_t> next{0};
  std::atomic<int> skipped{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < requests.size(); i = next++) {
          if (limit.over()) {
            ++skipped;
            continue;
          }
          const time_limit clock(0);
          try {
            cuda::kernel_cache& cache = cuda::kernels();
            const auto found = here ? cache.get(requests[i], about.major, about.minor, cuda::driver::available().version / 1000)
                                    : cache.get(requests[i], architecture);
            outcomes[i].made = found.made;
            outcomes[i].from = origin_name(found.from);
          } catch (const std::exception& e) {
            outcomes[i].wrong = e.what();
          }
          outcomes[i].seconds = -clock.left();
        }
      });
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    outcome& one = outcomes[i];
    if (!one.made && one.wrong.empty()) continue;
    row line("kernel");
    line.add("expression", requests[i].expression).add("token", device->users[i]);
    if (one.made) {
      const cuda::nvrtc::resources& uses = one.made->uses;
      line.add("registers", uses.registers).add("spills", uses.spills).add("stack", uses.stack).add("from", one.from);
      one.wrong = cuda::over_budget(*one.made, requests[i], about);
    }
    line.add("threads", requests[i].threads).add("shared", requests[i].shared).add("seconds", one.seconds).add("pass", one.wrong.empty());
    if (!one.wrong.empty()) {
      line.add("wrong", one.wrong);
      ++failed;
    }
    line.print();
  }
  if (!wanted.bundle.empty()) {
    std::map<std::string, cuda::image> images;  // problems share kernels; each is stored once
    for (const outcome& one : outcomes) {
      if (one.made) images.try_emplace(one.made->text, *one.made);
    }
    std::vector<cuda::image> list;
    for (auto& [text, made] : images) list.push_back(std::move(made));
    cuda::write_bundle(wanted.bundle, list);
    row("bundle").add("kernels", list.size()).print();
  }
  if (skipped > 0) row("skipped").add("stage", "kernels").add("cases", skipped.load()).print();
  return failed;
}

}  // namespace ballast::gpu_check
