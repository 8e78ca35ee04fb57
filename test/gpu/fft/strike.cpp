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

struct place_count {
  std::int64_t material = 0, wrong = 0;
  double most = 0;
};

template <class T>
int strike_one(struck_device& on, const fft::token& token, const std::string& name, protection guard, std::int64_t strikes,
               const time_limit& limit, std::mt19937_64& random) {
  const test::current_device_guard current(on.device());
  const device_problem<T> at(token.problem, token.direction);
  const fft::geometry& shape = at.shape();
  const std::vector<T> input = noise<T>(at.in_words(), 1);
  const fft::plan plan(token.problem, on_gpu(guard));
  row line("strike");
  line.add("token", name).add("protection", to_string(guard));

  // The clean call: records its launches and its result.
  at.prepare(input);
  on.disarm();
  const report clean = at.run(plan);
  gpu::synchronize();
  const std::vector<launch_seen> launches = on.launches();
  std::string damage;
  const std::vector<T> kept = at.read(damage);
  if (clean.detected > 0) damage = "a false alarm";
  if (launches.empty()) damage = "no launch was seen";
  const std::int64_t words = words_of_signal(shape.output), batch = token.problem.batch;
  double error = 0;
  for (std::int64_t b = 0; b < std::min<std::int64_t>(batch, 4); ++b) {
    const auto wanted = reference<T>(token.problem, token.direction, shape, input.data(), b);
    const distance off = distance_of(kept.data() + b * words, wanted.data(), words);
    error = std::max(error, off.relative());
  }
  if (!(error <= 10 * error_bound(token.problem))) damage = "the struck kernels compute something else";
  if (!damage.empty()) {
    line.add("pass", false).add("wrong", damage).print();
    return 1;
  }
  std::vector<double> sizes;
  for (std::int64_t b = 0; b < batch; ++b) {
    double sum = 0;
    for (std::int64_t i = b * words; i < (b + 1) * words; ++i) sum += static_cast<double>(kept[i]) * static_cast<double>(kept[i]);
    sizes.push_back(std::sqrt(sum));
  }

  const auto below = [&](std::uint64_t count) { return std::uniform_int_distribution<std::uint64_t>(0, count - 1)(random); };
  const auto thread_of = [&](const launch_seen& seen) { return below(static_cast<std::uint64_t>(seen.blocks) * seen.threads); };
  // The number of instructions that the threads of each launch execute: the maximum over a sample of them.
  std::vector<std::uint32_t> longest;
  std::vector<double> weights;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    std::uint32_t most = 0;
    for (int k = 0; k < k_counted_threads; ++k) {
      strike_control order;
      order.thread = thread_of(launches[i]);
      on.arm(i, order);
      (void)at.run(plan);
      gpu::synchronize();
      if (const auto got = on.answer()) most = std::max(most, got->executed);
    }
    longest.push_back(most);
    weights.push_back(static_cast<double>(most) * static_cast<double>(launches[i].blocks) * launches[i].threads);
  }
  if (std::ranges::count(longest, 0U) == static_cast<std::ptrdiff_t>(longest.size())) {
    line.add("pass", false).add("wrong", "no thread counted an instruction").print();
    return 1;
  }
  std::discrete_distribution<std::size_t> launch_of(weights.begin(), weights.end());

  std::array<std::int64_t, k_outcomes> counts{};
  std::map<std::string, place_count> places;
  std::int64_t done = 0, missed = 0;
  double most_silent = 0;
  std::vector<T> got(kept.size());
  while (done < strikes && !limit.over() && missed < 20 * strikes + 1000) {
    const std::size_t launch = launch_of(random);
    strike_control order;
    order.thread = thread_of(launches[launch]);
    order.target = 1 + static_cast<std::uint32_t>(below(longest[launch]));
    // Three of four strikes hit the exponent, the sign or the six upper bits of the mantissa; the others hit any bit.
    const bool large = below(4) != 0;
    const int bit = large ? 17 + static_cast<int>(below(15)) : static_cast<int>(below(32));
    order.mask_32 = std::uint32_t{1} << bit;
    const int wide = large ? 46 + static_cast<int>(below(18)) : static_cast<int>(below(64));
    // A 64-bit register holds a double, or in single precision two adjacent numbers.
    order.mask_64 = sizeof(T) == 8 ? std::uint64_t{1} << wide : static_cast<std::uint64_t>(order.mask_32) << (below(2) * 32);
    on.arm(launch, order);
    const report seen = at.run(plan);
    gpu::copy(got.data(), at.out(), static_cast<std::int64_t>(got.size() * sizeof(T)));
    gpu::synchronize();
    const auto answer = on.answer();
    if (!answer || answer->site == 0) {
      ++missed;
      continue;
    }
    ++done;
    double roundings = 0, floors = 0;
    const bool same = std::memcmp(got.data(), kept.data(), got.size() * sizeof(T)) == 0;
    if (!same) {
      for (std::int64_t b = 0; b < batch; ++b) {
        double sum = 0;
        for (std::int64_t i = b * words; i < (b + 1) * words; ++i) {
          const double change = static_cast<double>(got[i]) - static_cast<double>(kept[i]);
          sum += change * change;
        }
        const double change = std::isnan(sum) ? std::numeric_limits<double>::infinity() : std::sqrt(sum) / sizes[b];
        roundings = std::max(roundings, change / error);
        floors = std::max(floors, change / detection_floor(token.problem));
      }
    }
    outcome became = masked;
    if (seen.verdict == verdict::uncorrectable) {
      became = uncorrectable;
    } else if (seen.detected > 0) {
      became = floors <= 1 ? repaired : wrong;
    } else if (!same) {
      became = floors > 1 ? material : roundings > 1 ? below_floor : rounding;
    }
    ++counts[became];
    if (became == material || became == wrong) {
      place_count& to = places[on.kernels()[launches[launch].kernel].sites[answer->site - 1]];
      ++(became == material ? to.material : to.wrong);
      to.most = std::max(to.most, floors);
      if (became == material) most_silent = std::max(most_silent, floors);
    }
  }
  on.disarm();

  line.add("strikes", done).add("missed", missed);
  for (int i = 0; i < k_outcomes; ++i) line.add(k_names[i], counts[i]);
  line.add("bound_99", test::bound_99(counts[material], done)).add("clean_error", error).add("most_floors", most_silent);
  line.add("launches", launches.size());
  const bool off = guard == protection::off;
  // Without protection strikes must reach the output, otherwise nothing was struck.
  const bool pass = done > 0 && (off ? counts[material] > 0 : counts[material] + counts[wrong] + counts[uncorrectable] == 0);
  line.add("pass", pass).print();
  if (!off) {
    std::vector<std::pair<std::string, place_count>> order(places.begin(), places.end());
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
  if (done < strikes) row("skipped").add("stage", "strike").add("token", name).add("cases", strikes - done).print();
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
