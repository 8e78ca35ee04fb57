// Coordinate search: the passes of a problem in turn, the others as they are. Kernels are compiled on all cores before anything is timed.
#include "fft/cuda/tune.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include <ballast/error.hpp>

#include "core/counter_rng.hpp"
#include "cuda/device.hpp"
#include "cuda/jit.hpp"
#include "fft/cuda/transform.hpp"
#include "fft/problem.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::device_buffer;

void load_all(ballast::cuda::device& device, const std::vector<ballast::cuda::kernel_request>& wanted) {
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (unsigned w = 0; w < std::max(1u, std::thread::hardware_concurrency()); ++w) {
    workers.emplace_back([&] {
      for (std::size_t i = next++; i < wanted.size(); i = next++) {
        try {
          (void)device.load(wanted[i]);
        } catch (const error&) {  // a candidate that cannot be had is not timed: the load that times it fails again, and says so
        }
      }
    });
  }
  for (std::thread& each : workers) each.join();
}

class timer {
 public:
  timer(const token& what, std::shared_ptr<ballast::cuda::device> device)
      : what_(what), shape_(resolve(what.problem)), device_(std::move(device)) {
    const std::int64_t scalar = what.problem.precision == precision::f32 ? 4 : 8;
    in_ = device_buffer(device_, shape_.input.extent * scalar * (shape_.input.real ? 1 : 2));
    out_ = device_buffer(device_, shape_.output.extent * scalar * (shape_.output.real ? 1 : 2));
    // Random numbers, as zeros would run faster than data do.
    std::vector<float> some(1 << 20);
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<float>(core::random_uniform(1, 0, i)) - 0.5f;
    std::vector<double> wide(some.begin(), some.end());
    const void* const data = scalar == 4 ? static_cast<const void*>(some.data()) : wide.data();
    const auto piece = static_cast<std::int64_t>(some.size()) * scalar;
    for (std::int64_t at = 0; at < in_.bytes(); at += piece)
      device_->copy(static_cast<unsigned char*>(in_.data()) + at, data, std::min(piece, in_.bytes() - at), nullptr);
    device_->synchronize(nullptr);
  }

  // The least of some means; infinity if the transform cannot be made.
  double seconds(const transform_options& options, std::string& why) const {
    try {
      const auto work = make_transform(shape_, what_.problem.precision, options);
      execution how;
      how.protection = options.check == check_form::none ? protection::off : protection::correct;
      inject::active_injector none(nullptr, "fft");
      run::recorder seen("", backend::cuda, "", how, none);
      const call one{what_.direction, 1, false, how.protection, 1, nullptr, {}, seen, none};
      const auto time = [&](int runs) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < runs; ++i) (void)work->enqueue(in_.data(), out_.data(), one);
        device_->synchronize(nullptr);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
      };
      (void)time(1);
      const int runs = std::clamp(static_cast<int>(2e-3 / time(2)), 2, 500);
      double least = time(runs);
      for (int round = 0; round < 2; ++round) least = std::min(least, time(runs));
      return least;
    } catch (const std::exception& e) {
      why = e.what();
      return std::numeric_limits<double>::infinity();
    }
  }

  schedule passes(const transform_options& options) const {
    schedule_request wanted{.shape = shape_, .precision = what_.problem.precision, .direction = what_.direction};
    wanted.check = options.check;
    wanted.transactions = options.transactions;
    wanted.tuned = options.tuned;
    wanted.plain = options.plain;
    wanted.pairs = options.pairs;
    return make_schedule(wanted, device_->about());
  }

 private:
  const token& what_;
  geometry shape_;
  std::shared_ptr<ballast::cuda::device> device_;
  device_buffer in_, out_;
};

}  // namespace

std::vector<tuning_result> tune(const std::vector<std::string>& tokens, tuning_table& table,
                                const std::function<void(const std::string&)>& progress) {
  const auto device = ballast::cuda::current_device();
  const int major = device->about().major;
  std::vector<tuning_result> results;
  for (const std::string& text : tokens) {
    const token what = parse_token(text);
    const timer clock(what, device);
    for (const check_form check : {check_form::none, check_form::verify_before_store}) {
      const tuning_table rules;
      // A line at a time, so each pass is a launch.
      const auto options = [&](const tuning_table& tuned) { return transform_options{check, 1, &tuned, false, pairing::never}; };
      std::string why;
      const double by_rule = clock.seconds(options(rules), why);
      const std::size_t count = clock.passes(options(rules)).passes.size();
      double best = clock.seconds(options(table), why);
      for (std::size_t number = 0; number < count; ++number) {
        const line_request request = clock.passes(options(table)).passes[number].request;
        const auto tried = candidates(request, device->about());
        std::vector<ballast::cuda::kernel_request> kernels;
        std::vector<tuning_table> tables;
        std::vector<std::size_t> kernel_of;
        for (const tuned_line& one : tried) {
          tables.push_back(table);
          tables.back().set(request, major, one);
          kernel_of.push_back(kernels.size() + number);
          for (const pass& each : clock.passes(options(tables.back())).passes) kernels.push_back(kernel_for(each.policy, false));
        }
        load_all(*device, kernels);
        const auto architecture = ballast::cuda::runnable_architectures(major, device->about().minor).front();
        std::optional<tuned_line> winner;
        for (std::size_t i = 0; i < tried.size(); ++i) {
          try {
            // Registers in memory are not what a table should ask for, however fast one of them may be on this device.
            if (ballast::cuda::kernels().get(kernels[kernel_of[i]], architecture).made->uses.spills > 0) continue;
          } catch (const error&) {
            continue;
          }
          const double seconds = clock.seconds(options(tables[i]), why);
          if (seconds < best * 0.995) {
            best = seconds;
            winner = tried[i];
          }
        }
        if (winner) {
          winner->gain = std::round(1000 * by_rule / best) / 1000;
          table.set(request, major, *winner);
        }
        char line[256];
        std::snprintf(line, sizeof line, "%s%s pass %zu of %zu: %zu candidates, %.1f us, by rule %.1f us", text.c_str(),
                      check == check_form::none ? "" : ", checked", number + 1, count, tried.size(), best * 1e6, by_rule * 1e6);
        if (progress) progress(line);
        if (winner) {
          tuning_table only;
          only.set(request, major, *winner);
          results.push_back({text + (check == check_form::none ? "" : ", checked"), only.to_text(), best, by_rule});
        }
      }
    }
  }
  return results;
}

}  // namespace ballast::fft::cuda
