// Coordinate search: varies one pass of a problem at a time and keeps the others fixed.
#include "fft/cuda/tune/tune.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "core/counter_rng.hpp"
#include "cuda/device/device.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/cuda/tune/candidates.hpp"
#include "fft/problem.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::device_buffer;

// Without fusing, so that each pass is a launch.
transform_options options_for(check_form check) { return {.check = check, .origin = policy_origin::rules, .pairs = fusion::never}; }
transform_options options_for(check_form check, const tuning_table& tuned) {
  return {.check = check, .origin = policy_origin::trial, .pairs = fusion::never, .trial = &tuned};
}

// A problem with data on the device.
class trial {
 public:
  trial(const token& what, std::shared_ptr<ballast::cuda::device> device)
      : what_(what), shape_(resolve(what.problem)), device_(std::move(device)) {
    const std::int64_t scalar = what.problem.precision == precision::f32 ? 4 : 8;
    in_ = device_buffer(device_, shape_.input.extent * scalar * (shape_.input.real ? 1 : 2));
    out_ = device_buffer(device_, shape_.output.extent * scalar * (shape_.output.real ? 1 : 2));
    // Random numbers, since zeros run faster than real data.
    std::vector<float> some(1 << 20);
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<float>(core::random_uniform(1, 0, i)) - 0.5f;
    std::vector<double> wide(some.begin(), some.end());
    const void* const data = scalar == 4 ? static_cast<const void*>(some.data()) : wide.data();
    const auto piece = static_cast<std::int64_t>(some.size()) * scalar;
    for (std::int64_t at = 0; at < in_.bytes(); at += piece)
      device_->copy(static_cast<unsigned char*>(in_.data()) + at, data, std::min(piece, in_.bytes() - at), nullptr);
    device_->synchronize(nullptr);
  }

  // Returns infinity if the transform cannot be constructed.
  double seconds(const transform_options& options) const {
    try {
      const auto work = make_transform(nest_of(describe(what_.problem)).value(), what_.problem.precision, options);
      run::settings how;
      how.protection = options.check == check_form::none ? protection::off : protection::correct;
      inject::active_injector none(nullptr, site::table());
      run::recorder seen("", backend::cuda, "", how, none);
      const transform_args one{what_.direction, 1, 1, false, how.protection, 1, nullptr, {}, seen, none, true};
      return ballast::cuda::seconds_of(
          *device_, [&] { (void)work->enqueue(in_.data(), out_.data(), one); }, nullptr);
    } catch (const std::exception&) {  // a kernel, memory or a policy is not available
      return std::numeric_limits<double>::infinity();
    }
  }

  std::vector<pass> passes(const transform_options& options) const {
    schedule_request wanted{.shape = shape_, .precision = what_.problem.precision, .direction = what_.direction};
    wanted.check = options.check;
    wanted.transactions = options.transactions;
    wanted.tuned = &options.tuned();
    wanted.plain = options.plain;
    wanted.pairs = options.pairs;
    return make_schedule(wanted, device_->about()).passes;
  }

  // The entry of the table for the passes of these lines.
  split_form::key split_key(check_form check) const {
    const std::int64_t n = what_.problem.shape.back();
    return {device_->about().major, what_.problem.precision == precision::f64, n, check != check_form::none,
            is_few(n, shape_.batch, device_->about())};
  }

  // Returns the lengths of passes that are faster than `to_beat`, with their time, each with the policies that the table has for them. Only
  // signals of one axis that take several passes have a choice.
  std::optional<std::pair<split_form::value, double>> fastest_split(check_form check, const tuning_table& table, double to_beat) const {
    if (what_.problem.shape.size() != 1 || what_.problem.kind != kind::c2c) return {};
    const auto now = passes(options_for(check, table));
    if (now.size() < 2 || now.front().convolution != 0) return {};
    std::vector<tuning_table> tables;
    std::vector<split_form::value> values;
    std::vector<ballast::cuda::tuning_candidate> tried;
    for (auto& lengths : candidate_splits(what_.problem.shape[0], what_.problem.precision == precision::f64, device_->about())) {
      values.push_back({std::move(lengths), 1});
      tables.push_back(table);
      tables.back().set_split(split_key(check), values.back());
    }
    for (const tuning_table& with : tables) {
      ballast::cuda::tuning_candidate one;
      auto kernels = passes(options_for(check, with));
      one.tuned = kernel_for(kernels.front().policy, false);
      for (std::size_t i = 1; i < kernels.size(); ++i) one.others.push_back(kernel_for(kernels[i].policy, false));
      one.seconds = [this, &with, check] { return seconds(options_for(check, with)); };
      tried.push_back(std::move(one));
    }
    const auto winner = ballast::cuda::fastest(*device_, tried, to_beat);
    if (!winner) return {};
    return std::pair(values[winner->index], winner->seconds);
  }

 private:
  const token& what_;
  geometry shape_;
  std::shared_ptr<ballast::cuda::device> device_;
  device_buffer in_, out_;
};

}  // namespace

std::vector<ballast::cuda::tuning_result> tune(const std::vector<std::string>& tokens, tuning_table& table,
                                               const std::function<void(const std::string&)>& progress) {
  const auto device = ballast::cuda::current_device();
  const int major = device->about().major;
  std::vector<ballast::cuda::tuning_result> results;
  for (const std::string& text : tokens) {
    const token what = parse_token(text);
    const trial timed(what, device);
    for (const check_form check : {check_form::none, check_form::verify_before_store}) {
      const std::string name = text + (check == check_form::none ? "" : ", checked");
      const transform_options by_rules = options_for(check);
      const double by_rule = timed.seconds(by_rules);
      double best = timed.seconds(options_for(check, table));
      if (const auto split = timed.fastest_split(check, table, best)) {
        best = split->second;
        split_form::value chosen = split->first;
        chosen.gain = ballast::cuda::noted_gain(by_rule, best);
        table.set_split(timed.split_key(check), chosen);
        tuning_table only;
        only.set_split(timed.split_key(check), chosen);
        results.push_back({name, only.to_text(), best, by_rule});
      }
      const std::size_t count = timed.passes(options_for(check, table)).size();
      for (std::size_t number = 0; number < count; ++number) {
        const line_request request = timed.passes(options_for(check, table))[number].request;
        const auto lines = candidates(request, device->about());
        std::vector<tuning_table> tables;
        for (const tuned_line& one : lines) {
          tables.push_back(table);
          tables.back().set(request, major, one);
        }
        std::vector<ballast::cuda::tuning_candidate> tried;
        for (const tuning_table& with : tables) {
          ballast::cuda::tuning_candidate one;
          const auto passes = timed.passes(options_for(check, with));
          for (std::size_t i = 0; i < passes.size(); ++i) {
            auto kernel = kernel_for(passes[i].policy, false);
            if (i == number) {
              one.tuned = std::move(kernel);
            } else {
              one.others.push_back(std::move(kernel));
            }
          }
          one.seconds = [&timed, &with, check] { return timed.seconds(options_for(check, with)); };
          tried.push_back(std::move(one));
        }
        const auto winner = ballast::cuda::fastest(*device, tried, best);
        if (winner) {
          best = winner->seconds;
          tuned_line chosen = lines[winner->index];
          chosen.gain = ballast::cuda::noted_gain(by_rule, best);
          table.set(request, major, chosen);
          tuning_table only;
          only.set(request, major, chosen);
          results.push_back({name, only.to_text(), best, by_rule});
        }
        char line[256];
        std::snprintf(line, sizeof line, "%s pass %zu of %zu: %zu candidates, %.1f us, by rule %.1f us", name.c_str(), number + 1, count,
                      lines.size(), best * 1e6, by_rule * 1e6);
        if (progress) progress(line);
      }
    }
  }
  return results;
}

}  // namespace ballast::fft::cuda
