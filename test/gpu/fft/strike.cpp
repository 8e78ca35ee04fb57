// Strikes the FFT on the GPU: flips one random bit after one instruction of one thread in one launch of a call, in thousands of calls.
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "algorithm.hpp"
#include "cuda/system/installation.hpp"
#include "device_problem.hpp"
#include "fft_stages.hpp"
#include "output.hpp"
#include "problems.hpp"
#include "strike/kernels.hpp"
#include "support/bound.hpp"

namespace ballast::gpu_check {
namespace {

constexpr int k_counted_threads = 8;

enum outcome : int { masked, repaired, wrong, uncorrectable, rounding, below_floor, material, k_outcomes };
constexpr std::array<const char*, k_outcomes> k_names = {"masked",   "repaired",    "wrong",   "uncorrectable",
                                                         "rounding", "below_floor", "material"};

struct location_count {
  std::int64_t material = 0, wrong = 0;
  double most = 0;
};

std::uint64_t below(std::mt19937_64& random, std::uint64_t count) {
  return std::uniform_int_distribution<std::uint64_t>(0, count - 1)(random);
}
std::uint64_t thread_of(std::mt19937_64& random, const launch_seen& seen) {
  return below(random, static_cast<std::uint64_t>(seen.blocks) * seen.threads);
}

// The call without a strike.
template <class T>
struct clean_call {
  std::vector<launch_seen> launches;
  std::vector<T> output;
  double error = 0;           // the largest relative error of a signal
  std::vector<double> sizes;  // the norms of the signals
  std::string damage;         // the reason why it cannot be struck; empty: it can
};

template <class T>
clean_call<T> call_clean(struck_device& on, const fft::token& token, const device_problem<T>& at, const fft::plan& plan) {
  const fft::geometry& shape = at.shape();
  const std::vector<T> input = noise<T>(at.in_words(), 1);
  clean_call<T> made;
  at.prepare(input);
  on.disarm();
  const report clean = at.run(plan);
  gpu::synchronize();
  made.launches = on.launches();
  made.output = at.read(made.damage);
  if (clean.detected > 0) made.damage = "a false alarm";
  if (made.launches.empty()) made.damage = "no launch was seen";
  const std::int64_t words = words_of_signal(shape.output), batch = token.problem.batch;
  for (std::int64_t b = 0; b < std::min<std::int64_t>(batch, 4); ++b) {
    const auto wanted = reference<T>(token.problem, token.direction, shape, input.data(), b);
    const distance off = distance_of(made.output.data() + b * words, wanted.data(), words);
    made.error = std::max(made.error, off.relative());
  }
  if (!(made.error <= 10 * error_bound(token.problem))) made.damage = "the struck kernels compute something else";
  if (!made.damage.empty()) return made;
  for (std::int64_t b = 0; b < batch; ++b) {
    double sum = 0;
    for (std::int64_t i = b * words; i < (b + 1) * words; ++i)
      sum += static_cast<double>(made.output[i]) * static_cast<double>(made.output[i]);
    made.sizes.push_back(std::sqrt(sum));
  }
  return made;
}

// Returns the number of instructions that the threads of each launch execute: the maximum over a sample of them.
template <class T>
std::vector<std::uint32_t> count_instructions(struck_device& on, const device_problem<T>& at, const fft::plan& plan,
                                              const std::vector<launch_seen>& launches, std::mt19937_64& random) {
  std::vector<std::uint32_t> longest;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    std::uint32_t most = 0;
    for (int k = 0; k < k_counted_threads; ++k) {
      strike_control order;
      order.thread = thread_of(random, launches[i]);
      on.arm(i, order);
      (void)at.run(plan);
      gpu::synchronize();
      if (const auto got = on.answer()) most = std::max(most, got->executed);
    }
    longest.push_back(most);
  }
  return longest;
}

// Draws the thread, the instruction and the bit to flip. Three of four strikes hit the exponent, the sign or the six upper bits of the
// mantissa; the others hit any bit.
template <class T>
strike_control draw_strike(std::mt19937_64& random, const launch_seen& launch, std::uint32_t longest) {
  strike_control order;
  order.thread = thread_of(random, launch);
  order.target = 1 + static_cast<std::uint32_t>(below(random, longest));
  const bool large = below(random, 4) != 0;
  const int bit = large ? 17 + static_cast<int>(below(random, 15)) : static_cast<int>(below(random, 32));
  order.mask_32 = std::uint32_t{1} << bit;
  const int wide = large ? 46 + static_cast<int>(below(random, 18)) : static_cast<int>(below(random, 64));
  // A 64-bit register holds a double, or in single precision two adjacent numbers.
  order.mask_64 = sizeof(T) == 8 ? std::uint64_t{1} << wide : static_cast<std::uint64_t>(order.mask_32) << (below(random, 2) * 32);
  return order;
}

// The change of the output by a strike: the largest one of a signal, in units of the clean error and of the detection floor.
struct change {
  bool same = true;  // bit for bit
  double roundings = 0, floors = 0;
};

template <class T>
change change_of(const std::vector<T>& got, const clean_call<T>& clean, double floor, std::int64_t words) {
  change made;
  made.same = std::memcmp(got.data(), clean.output.data(), got.size() * sizeof(T)) == 0;
  if (made.same) return made;
  for (std::size_t b = 0; b < clean.sizes.size(); ++b) {
    double sum = 0;
    const auto first = static_cast<std::int64_t>(b) * words;
    for (std::int64_t i = first; i < first + words; ++i) {
      const double off = static_cast<double>(got[i]) - static_cast<double>(clean.output[i]);
      sum += off * off;
    }
    const double relative = std::isnan(sum) ? std::numeric_limits<double>::infinity() : std::sqrt(sum) / clean.sizes[b];
    made.roundings = std::max(made.roundings, relative / clean.error);
    made.floors = std::max(made.floors, relative / floor);
  }
  return made;
}

outcome outcome_of(const report& seen, const change& by) {
  if (seen.verdict == verdict::uncorrectable) return uncorrectable;
  if (seen.detected > 0) return by.floors <= 1 ? repaired : wrong;
  if (by.same) return masked;
  return by.floors > 1 ? material : by.roundings > 1 ? below_floor : rounding;
}

struct tallies {
  std::array<std::int64_t, k_outcomes> counts{};
  std::map<std::string, location_count> places;
  std::int64_t done = 0, missed = 0;
  double most_silent = 0;

  void add(outcome became, double floors, const std::string& site) {
    ++counts[became];
    if (became != material && became != wrong) return;
    location_count& to = places[site];
    ++(became == material ? to.material : to.wrong);
    to.most = std::max(to.most, floors);
    if (became == material) most_silent = std::max(most_silent, floors);
  }
};

template <class T>
tallies strike_often(struck_device& on, const fft::token& token, const device_problem<T>& at, const fft::plan& plan,
                     const clean_call<T>& clean, const std::vector<std::uint32_t>& longest, std::int64_t strikes, const time_limit& limit,
                     std::mt19937_64& random) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < longest.size(); ++i) {
    const launch_seen& launch = clean.launches[i];
    weights.push_back(static_cast<double>(longest[i]) * static_cast<double>(launch.blocks) * launch.threads);
  }
  std::discrete_distribution<std::size_t> launch_of(weights.begin(), weights.end());
  const std::int64_t words = words_of_signal(at.shape().output);
  tallies seen;
  std::vector<T> got(clean.output.size());
  while (seen.done < strikes && !limit.over() && seen.missed < 20 * strikes + 1000) {
    const std::size_t launch = launch_of(random);
    on.arm(launch, draw_strike<T>(random, clean.launches[launch], longest[launch]));
    const report told = at.run(plan);
    gpu::copy(got.data(), at.out(), static_cast<std::int64_t>(got.size() * sizeof(T)));
    gpu::synchronize();
    const auto answer = on.answer();
    if (!answer || answer->site == 0) {
      ++seen.missed;
      continue;
    }
    ++seen.done;
    const change by = change_of(got, clean, detection_floor(token.problem), words);
    seen.add(outcome_of(told, by), by.floors, on.kernels()[clean.launches[launch].kernel].sites[answer->site - 1]);
  }
  on.disarm();
  return seen;
}

// Prints the places of the strikes that stayed silent or were repaired wrongly, the most frequent ones first.
void print_locations(const std::map<std::string, location_count>& places, const std::string& name) {
  std::vector<std::pair<std::string, location_count>> order(places.begin(), places.end());
  std::ranges::sort(order,
                    [](const auto& a, const auto& b) { return a.second.material + a.second.wrong > b.second.material + b.second.wrong; });
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 25); ++i) {
    const auto& [site, of] = order[i];
    row("strike place")
        .add("token", name)
        .add("material", of.material)
        .add("wrong", of.wrong)
        .add("floors", of.most)
        .add("site", site)
        .print();
  }
}

template <class T>
int strike_one(struck_device& on, const fft::token& token, const std::string& name, protection guard, std::int64_t strikes,
               const time_limit& limit, std::mt19937_64& random) {
  const test::current_device_guard current(on.device());
  const device_problem<T> at(token.problem, token.direction);
  const fft::plan plan(token.problem, on_gpu(guard));
  row line("strike");
  line.add("token", name).add("protection", to_string(guard));
  const clean_call<T> clean = call_clean(on, token, at, plan);
  if (!clean.damage.empty()) {
    line.add("pass", false).add("wrong", clean.damage).print();
    return 1;
  }
  const std::vector<std::uint32_t> longest = count_instructions(on, at, plan, clean.launches, random);
  if (std::ranges::count(longest, 0U) == static_cast<std::ptrdiff_t>(longest.size())) {
    line.add("pass", false).add("wrong", "no thread counted an instruction").print();
    return 1;
  }
  const tallies seen = strike_often(on, token, at, plan, clean, longest, strikes, limit, random);

  const auto& counts = seen.counts;
  line.add("strikes", seen.done).add("missed", seen.missed);
  for (int i = 0; i < k_outcomes; ++i) line.add(k_names[i], counts[i]);
  line.add("bound_99", test::bound_99(counts[material], seen.done)).add("clean_error", clean.error).add("most_floors", seen.most_silent);
  line.add("launches", clean.launches.size());
  const bool off = guard == protection::off;
  // Without protection strikes must reach the output, otherwise nothing was struck.
  const bool pass = seen.done > 0 && (off ? counts[material] > 0 : counts[material] + counts[wrong] + counts[uncorrectable] == 0);
  line.add("pass", pass).print();
  if (!off) print_locations(seen.places, name);
  if (seen.done < strikes) row("skipped").add("stage", "strike").add("token", name).add("cases", strikes - seen.done).print();
  return pass ? 0 : 1;
}

}  // namespace

int strike(const settings& wanted, const time_limit& limit) {
  if (tested != backend::cuda) throw invalid_argument_error("strike: expected the cuda backend, whose kernels are struck");
  const cuda::capabilities about = cuda::current_device()->about();
  const std::string architecture = cuda::runnable_architectures(about.major, about.minor).front();
  const cuda::bundle bundled(cuda::bundle_file().file);
  std::vector<struck_kernel> kernels;
  int made_here = 0;
  for (const cuda::kernel_request& each : strike_requests(fft_algorithm(), wanted, about)) {
    auto found = find_struck_kernel(bundled, each, architecture);
    if (!found) {
      found = make_struck_kernel(each, architecture, !assembler().empty());
      ++made_here;
    }
    kernels.push_back(std::move(*found));
  }
  row("struck kernels").add("kernels", kernels.size()).add("compiled", made_here).print();
  struck_device on(std::move(kernels));
  std::mt19937_64 random(1);
  const std::vector<std::string> tokens = wanted.tokens.empty() ? strike_set(wanted.quick) : wanted.tokens;
  int failed = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const fft::token parsed = fft::parse_token(tokens[i]);
    const double seconds = limit.left() / static_cast<double>(tokens.size() - i);
    for (const protection guard : {protection::correct, protection::off}) {
      const bool off = guard == protection::off;
      const std::int64_t strikes = off ? std::max<std::int64_t>(wanted.strikes / 20, 1) : wanted.strikes;
      const time_limit part(std::max(seconds * (off ? 0.05 : 0.95), 0.1));
      failed += parsed.problem.precision == precision::f32 ? strike_one<float>(on, parsed, tokens[i], guard, strikes, part, random)
                                                           : strike_one<double>(on, parsed, tokens[i], guard, strikes, part, random);
    }
  }
  return failed;
}

}  // namespace ballast::gpu_check
