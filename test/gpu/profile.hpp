// A device that measures what a call does on it: the time of each kernel, product, copy and fill, and the time for which the host waits.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "../../bench/stopwatch.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

// Forwards every call to another device. Each operation lies between two events on its stream, so operations of several streams that run
// at the same time are counted in full.
class profiling_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;

  // The operations of one name, or the host's calls of one kind.
  struct part {
    std::int64_t count = 0, bytes = 0;
    double milliseconds = 0;
  };
  struct profile {
    std::map<std::string, part> device;  // kernels by the name of their template, products, copies by direction, fills
    std::map<std::string, part> host;    // allocations, copies until they return, waits
    double device_milliseconds() const { return sum(device); }
    double host_milliseconds() const { return sum(host); }

   private:
    static double sum(const std::map<std::string, part>& parts) {
      double all = 0;
      for (const auto& [name, each] : parts) all += each.milliseconds;
      return all;
    }
  };

  // Returns what was done since the last call. All streams must be idle.
  profile take() {
    const std::lock_guard lock(mutex_);
    for (const operation& each : operations_) seen_.device[each.name].milliseconds += inner_->milliseconds(*each.begin, *each.end);
    operations_.clear();
    return std::exchange(seen_, {});
  }

  void* allocate(std::int64_t bytes, cuda::stream on) override {
    void* made = nullptr;
    by_host("allocate", bytes, [&] { made = inner_->allocate(bytes, on); });
    return made;
  }
  void copy(void* to, const void* from, std::int64_t bytes, cuda::stream on) override {
    const std::string name = direction(to, from);
    by_host(name, bytes, [&] { by_device(name, bytes, on, [&] { inner_->copy(to, from, bytes, on); }); });
  }
  void copy_columns(void* to, std::int64_t to_pitch, const void* from, std::int64_t from_pitch, std::int64_t bytes, std::int64_t columns,
                    cuda::stream on) override {
    const std::string name = direction(to, from);
    by_host(name, bytes * columns, [&] {
      by_device(name, bytes * columns, on, [&] { inner_->copy_columns(to, to_pitch, from, from_pitch, bytes, columns, on); });
    });
  }
  void zero(void* memory, std::int64_t bytes, cuda::stream on) override {
    by_device("fill", bytes, on, [&] { inner_->zero(memory, bytes, on); });
  }
  const cuda::kernel& load(const cuda::kernel_request& wanted) override {
    const cuda::kernel* made = nullptr;
    by_host("load", 0, [&] { made = &inner_->load(wanted); });
    const std::string name = wanted.expression.substr(0, wanted.expression.find('<'));
    const std::lock_guard lock(mutex_);
    names_[made] = name.substr(name.rfind(':') + 1);
    return *made;
  }
  void launch(const cuda::kernel& which, std::int64_t blocks, std::span<const cuda::kernel_argument> arguments, cuda::stream on) override {
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      const auto found = names_.find(&which);
      name = found == names_.end() ? "kernel" : found->second;  // loaded by another device
    }
    by_device(name, 0, on, [&] { inner_->launch(which, blocks, arguments, on); });
  }
  using device::launch;
  void synchronize(cuda::stream on) override {
    by_host("wait", 0, [&] { inner_->synchronize(on); });
  }
  std::unique_ptr<cuda::blas> make_blas(cuda::blas_math math, cuda::stream on) override {
    return std::make_unique<test::forwarding_blas>(
        inner_->make_blas(math, on), [this, on](const char* name, core::function_ref<void()> work) { by_device(name, 0, on, work); });
  }

 private:
  struct operation {
    std::string name;
    std::unique_ptr<cuda::stream_event> begin, end;
  };

  std::string direction(const void* to, const void* from) const {
    return std::string(accessible(from) ? "device" : "host") + " to " + (accessible(to) ? "device" : "host");
  }
  template <class Work>
  void by_host(const std::string& name, std::int64_t bytes, const Work& work) {
    const bench::stopwatch clock;
    work();
    const double milliseconds = 1e3 * clock.seconds();
    const std::lock_guard lock(mutex_);
    part& to = seen_.host[name];
    ++to.count;
    to.bytes += bytes;
    to.milliseconds += milliseconds;
  }
  template <class Work>
  void by_device(const std::string& name, std::int64_t bytes, cuda::stream on, const Work& work) {
    operation made{name, inner_->make_event(true), inner_->make_event(true)};
    inner_->record(*made.begin, on);
    work();
    inner_->record(*made.end, on);
    const std::lock_guard lock(mutex_);
    part& to = seen_.device[name];
    ++to.count;
    to.bytes += bytes;
    operations_.push_back(std::move(made));
  }

  std::mutex mutex_;
  std::map<const cuda::kernel*, std::string> names_;
  std::deque<operation> operations_;
  profile seen_;
};

}  // namespace ballast::gpu_check
