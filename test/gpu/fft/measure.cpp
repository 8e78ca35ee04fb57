// Measures speed. Prints medians of interleaved repetitions in one run: Ballast without and with protection, its other schemes, cuFFT
// planned both ways, and a copy of the same bytes. It times the replay of a captured graph of several executions, by events on its stream.
// Inputs are random; outputs are poisoned first and compared afterwards. If one set of buffers would stay in the L2 cache, executions
// rotate over many sets.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "cuda/device/cufft.hpp"
#include "device_problem.hpp"
#include "fft/cuda/run/transform.hpp"
#include "fft/sites.hpp"
#include "fft_stages.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "output.hpp"
#include "problems.hpp"
#include "samples.hpp"

namespace ballast::gpu_check {
namespace {

constexpr double k_least_seconds = 2e-3;  // minimum duration of one timed replay
constexpr std::int64_t k_most_calls = 4096, k_most_calls_of_cell = 256;
constexpr double k_assumed_bandwidth = 3e12;  // bytes per second; only sets the number of executions in a replay

// Fills the device memory with random words: a block generated on the host, repeated.
void randomize(const gpu::buffer& memory, precision type) {
  constexpr std::int64_t k_block = (std::int64_t{1} << 23) + 8;
  const std::int64_t width = type == precision::f32 ? 4 : 8;
  std::int64_t done = std::min(k_block, memory.bytes() / width) * width;
  auto* const start = static_cast<char*>(memory.data());
  if (type == precision::f32) {
    gpu::copy(start, noise<float>(done / width, 1).data(), done);
  } else {
    gpu::copy(start, noise<double>(done / width, 1).data(), done);
  }
  for (; done < memory.bytes(); done = std::min(2 * done, memory.bytes()))
    gpu::copy(start + done, start, std::min(done, memory.bytes() - done));
  gpu::synchronize();
}

std::int64_t bytes_of(const fft::side& side, precision type) { return words_of_side(side) * (type == precision::f32 ? 4 : 8); }

// Input and output memory that all variants of a problem share, divided into `sets` pairs.
struct arena {
  gpu::buffer in, out;
  std::int64_t stride = 0;  // between sets
  std::int64_t sets = 1;

  const void* input(std::int64_t call) const { return static_cast<const char*>(in.data()) + call % sets * stride; }
  void* output(std::int64_t call) const { return static_cast<char*>(out.data()) + call % sets * stride; }

  // Divides the allocated memory into sets with `bytes` per side.
  void divide(std::int64_t bytes, std::int64_t l2, std::int64_t most = k_most_calls) {
    stride = (bytes + 511) / 512 * 512;
    sets = std::clamp<std::int64_t>((2 * l2 + stride - 1) / stride, 1, std::max<std::int64_t>(std::min(in.bytes() / stride, most), 1));
  }
};

struct variant {
  std::string name;
  std::function<void(const void* in, void* out)> run;  // enqueues one execution on the stream
  std::string scheme = {};
  std::vector<double> seconds = {};
  gpu::graph replay = {};
  std::int64_t calls = 1;
  bool captured = true;
  std::string refused = {};
  // A copy of the input for a variant that overwrites it, as cuFFT's c2r does.
  std::shared_ptr<arena> own = {};

  // The memory of a call, after a fresh copy of the input where this variant overwrites it.
  const arena& renewed(const arena& memory) const {
    if (own == nullptr) return memory;
    gpu::copy(own->in.data(), memory.in.data(), memory.in.bytes());
    gpu::synchronize();
    return *own;
  }

  void prepare(const arena& shared, double expected, std::int64_t most = k_most_calls) {
    try {
      const arena& memory = renewed(shared);
      // Run once outside the graph: allocations of the first execution do not belong into it.
      run(memory.input(0), memory.output(0));
      gpu::synchronize();
      calls = std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(k_least_seconds / expected)), 1, most);
      calls = std::max(calls, memory.sets);
      const auto all = [&] {
        for (std::int64_t call = 0; call < calls; ++call) run(memory.input(call), memory.output(call));
      };
      try {
        replay = gpu::graph(all);
        replay.launch();
      } catch (const error& e) {
        captured = false;
        refused = std::string("not captured: ") + e.what();
        all();
      }
      gpu::synchronize();
    } catch (const std::exception& e) {
      refused = e.what();
      calls = 0;
    }
  }
  void measure(const arena& shared) {
    if (calls == 0) return;
    const arena& memory = renewed(shared);
    const double all = gpu::seconds_of([&] {
      if (captured) {
        replay.launch();
      } else {
        for (std::int64_t call = 0; call < calls; ++call) run(memory.input(call), memory.output(call));
      }
    });
    seconds.push_back(all / static_cast<double>(calls));
  }
};

variant ballast_variant(const std::string& name, const fft::token& token, const fft::geometry& shape, protection guard,
                        const std::string& scheme) {
  variant made{name, {}, scheme};
  try {
    auto plan = std::make_shared<fft::plan>(token.problem, on_gpu(guard, scheme));
    made.run = [plan, shape, way = token.direction, type = token.problem.precision](const void* in, void* out) {
      const auto start = [&]<class T>() {
        if (tested == backend::cuda) {
          (void)test::enqueue<T>(*plan, shape, way, in, out, on_stream());  // all on one stream; reports are not timed
        } else {
          (void)test::execute<T>(*plan, shape, way, in, out, on_stream());
        }
      };
      if (type == precision::f32) {
        start.template operator()<float>();
      } else {
        start.template operator()<double>();
      }
    };
  } catch (const std::exception& e) {
    made.refused = e.what();
    made.calls = 0;
  }
  return made;
}

variant cufft_variant(const std::string& name, const fft::token& token, bool patient) {
  variant made{name, {}};
  try {
    auto plan = std::make_shared<cuda::cufft_plan>(token.problem, token.direction, patient);
    made.run = [plan](const void* in, void* out) { plan->execute(in, out, gpu::stream()); };
  } catch (const std::exception& e) {
    made.refused = e.what();
    made.calls = 0;
  }
  return made;
}

// Returns the first and the last signal of set 0, as `which` computes them, packed.
template <class T>
std::vector<T> two_signals(const variant& which, const arena& shared, const fft::geometry& shape) {
  const arena& memory = which.renewed(shared);
  const std::int64_t words = words_of_signal(shape.output);
  const std::int64_t bytes = words * static_cast<std::int64_t>(sizeof(T));
  gpu::fill(memory.output(0), 0xff, bytes * shape.batch);
  which.run(memory.input(0), memory.output(0));
  std::vector<T> made(static_cast<std::size_t>(2 * words));
  gpu::copy(made.data(), memory.output(0), bytes);
  gpu::copy(made.data() + words, static_cast<char*>(memory.output(0)) + bytes * (shape.batch - 1), bytes);
  gpu::synchronize();
  return made;
}

template <class T>
bool right(const variant& which, const variant* rival, const arena& memory, const fft::token& token, const fft::geometry& shape) {
  const std::int64_t words = words_of_signal(shape.output);
  const auto got = two_signals<T>(which, memory, shape);
  const double bound = 2 * error_bound(token.problem);
  if (rival != nullptr) {
    const auto wanted = two_signals<T>(*rival, memory, shape);
    return distance_of(got.data(), wanted.data(), 2 * words, scale_of(token.problem, token.direction)).relative() <= bound;
  }
  std::vector<T> in(static_cast<std::size_t>(words_of_signal(shape.input)));
  gpu::copy(in.data(), memory.input(0), static_cast<std::int64_t>(in.size() * sizeof(T)));
  gpu::synchronize();
  const auto wanted = reference<T>(token.problem, token.direction, shape, in.data(), 0);
  return distance_of(got.data(), wanted.data(), words).relative() <= bound;
}

#if defined(BALLAST_INSTRUMENTED)
// Measures the cost of one repaired fault: a call with one strike against a call whose fault never comes, both with the injecting kernels.
int cost_of_fault(const fft::token& token, const fft::geometry& shape, const arena& memory, int repetitions) {
  inject::request request;
  request.site = fft::site::output;
  request.bit = 62;
  inject::plan faults;
  row line("fault");
  line.add("token", fft::to_token(token.problem, token.direction));
  try {
    const fft::plan plan(token.problem, on_gpu(protection::correct));
    const inject::scope injected(&faults);
    std::vector<double> struck, waiting;
    std::uint64_t repaired = 0;
    for (int repetition = -1; repetition < repetitions; ++repetition) {
      for (const bool strikes : {false, true}) {
        request.seed = static_cast<std::uint64_t>(repetition + 1);
        request.visit = strikes ? 0 : std::int64_t{1} << 40;
        faults = inject::plan({request});
        report seen;
        const double seconds = gpu::seconds_of([&] {
          if (token.problem.precision == precision::f32) {
            seen = test::execute<float>(plan, shape, token.direction, memory.input(0), memory.output(0), on_stream());
          } else {
            seen = test::execute<double>(plan, shape, token.direction, memory.input(0), memory.output(0), on_stream());
          }
        });
        if (repetition < 0) continue;
        (strikes ? struck : waiting).push_back(seconds);
        repaired += seen.corrected + seen.recomputed;
      }
    }
    line.add("struck", median(struck)).add("waiting", median(waiting)).add("repaired", repaired).add("calls", struck.size());
    line.print();
    return repaired > 0 ? 0 : 1;
  } catch (const std::exception& e) {
    line.add("refused", e.what()).print();
    return 1;
  }
}
#endif

// Returns other memory for the input of `memory`, divided alike; its output is its own, too.
std::shared_ptr<arena> copy_of(const arena& memory) {
  return std::make_shared<arena>(gpu::buffer(memory.in.bytes()), gpu::buffer(memory.out.bytes()), memory.stride, memory.sets);
}

arena make_arena(const fft::geometry& shape, precision type, std::int64_t l2) {
  const std::int64_t side = std::max(bytes_of(shape.input, type), bytes_of(shape.output, type));
  const std::int64_t room = std::max(side, std::min(2 * l2, side * k_most_calls)) + side + 1024;
  arena made{gpu::buffer(room), gpu::buffer(room)};
  made.divide(side, l2);
  randomize(made.in, type);
  return made;
}

}  // namespace

int bench(const settings& wanted, const time_limit& limit) {
  const gpu::description device = gpu::open();
  int failed = 0;
  std::vector<timed_problem> problems = benchmark_set(wanted.quick);
  if (!wanted.tokens.empty()) {
    problems.clear();
    for (const std::string& token : wanted.tokens) problems.push_back({token, false, k_other_schemes});
  }
  const int repetitions = wanted.quick ? 7 : 15;
  std::minstd_rand shuffle(1);
  int skipped = 0;
  for (const timed_problem& each : problems) {
    if (limit.over()) {
      ++skipped;
      continue;
    }
    try {
      const fft::token token = fft::parse_token(each.token);
      const precision type = token.problem.precision;
      const fft::geometry shape = fft::resolve(token.problem);
      const std::int64_t in_bytes = bytes_of(shape.input, type), out_bytes = bytes_of(shape.output, type);
      const arena memory = make_arena(shape, type, device.l2_bytes);

      std::vector<variant> variants;
      variants.push_back(ballast_variant("off", token, shape, protection::off, ""));
      variants.push_back(ballast_variant("correct", token, shape, protection::correct, ""));
      if (wanted.compare_pairs) {
        for (const auto& [suffix, which] :
             {std::pair(" in pairs", fft::cuda::fusion::wherever_possible), std::pair(" one by one", fft::cuda::fusion::never)}) {
          fft::cuda::override_fusion(which);
          variants.push_back(ballast_variant(std::string("off") + suffix, token, shape, protection::off, ""));
          variants.push_back(ballast_variant(std::string("correct") + suffix, token, shape, protection::correct, ""));
        }
        fft::cuda::override_fusion(fft::cuda::fusion::where_it_pays);
      }
      for (const std::string& scheme : each.schemes) {
        if (!wanted.schemes.empty() && std::ranges::find(wanted.schemes, scheme) == wanted.schemes.end()) continue;
        variants.push_back(ballast_variant(scheme, token, shape, protection::correct, scheme));
      }
      for (const bool patient : {false, true}) {
        variants.push_back(cufft_variant(patient ? "cufft patient" : "cufft", token, patient));
        if (token.problem.kind == fft::kind::c2r) variants.back().own = copy_of(memory);
      }
      const std::int64_t half = (in_bytes + out_bytes) / 2;
      // Copied in pieces: on an H200 one copy of gigabytes ran at two thirds of the bandwidth of several copies.
      variants.push_back({"copy", [half](const void* in, void* out) {
                            constexpr std::int64_t piece = std::int64_t{128} << 20;
                            for (std::int64_t at = 0; at < half; at += piece)
                              gpu::copy(static_cast<char*>(out) + at, static_cast<const char*>(in) + at, std::min(piece, half - at));
                          }});

      const double expected = static_cast<double>(in_bytes + out_bytes) / k_assumed_bandwidth + 2e-6;
      for (variant& one : variants) {
        if (one.calls != 0) one.prepare(memory, expected);
      }
      std::vector<std::size_t> order(variants.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (int repetition = -1; repetition < repetitions; ++repetition) {
        std::ranges::shuffle(order, shuffle);
        for (const std::size_t i : order) variants[i].measure(memory);
        if (repetition >= 0) continue;
        for (variant& one : variants) one.seconds.clear();  // the first round is a warm-up
      }
      const auto rival = std::ranges::find(variants, "cufft", &variant::name);
      // Random half spectra are none of reals: cuFFT does not ignore all imaginary parts that must be zero.
      const variant* const judge = rival->calls != 0 && token.problem.kind != fft::kind::c2r ? &*rival : nullptr;
      for (const variant& one : variants) {
        row line("time");
        line.add("token", each.token).add("variant", one.name).add("latency", each.latency);
        if (!one.refused.empty()) line.add("refused", one.refused);
        if (one.calls != 0) {
          const double seconds = median(one.seconds);
          line.add("median", seconds).add("low", quantile(one.seconds, 0.25)).add("high", quantile(one.seconds, 0.75));
          line.add("bytes", in_bytes + out_bytes).add("gbs", static_cast<double>(in_bytes + out_bytes) / seconds * 1e-9);
          line.add("calls", one.calls).add("sets", memory.sets).add("graph", one.captured);
          const bool ours = one.name != "copy" && !one.name.starts_with("cufft");
          if (ours) {
            const bool good =
                type == precision::f32 ? right<float>(one, judge, memory, token, shape) : right<double>(one, judge, memory, token, shape);
            line.add("right", good);
            if (!good) ++failed;
          }
        }
        line.print();
      }
    } catch (const std::exception& e) {
      ++failed;
      row("time").add("token", each.token).add("variant", "all").add("refused", e.what()).print();
    }
  }
  if (skipped > 0) row("skipped").add("stage", "bench").add("cases", skipped).print();
  return failed;
}

int repairs(const settings& wanted, const time_limit& limit) {
#if defined(BALLAST_INSTRUMENTED)
  const gpu::description device = gpu::open();
  int failed = 0, skipped = 0;
  for (const timed_problem& each : benchmark_set(wanted.quick)) {
    if (each.schemes.empty()) continue;
    if (limit.over()) {
      ++skipped;
      continue;
    }
    const fft::token token = fft::parse_token(each.token);
    const fft::geometry shape = fft::resolve(token.problem);
    failed += cost_of_fault(token, shape, make_arena(shape, token.problem.precision, device.l2_bytes), wanted.quick ? 5 : 9);
  }
  if (skipped > 0) row("skipped").add("stage", "repairs").add("cases", skipped).print();
  return failed;
#else
  (void)wanted;
  (void)limit;
  throw unsupported_error("repairs: only the program over the instrumented library can inject faults");
#endif
}

int heatmap(const settings& wanted, const time_limit& limit) {
  const gpu::description device = gpu::open();
  constexpr int k_shortest = 3, k_longest = 25;
  const int most = wanted.quick ? 24 : 28;  // log₂ of the points: 2 GB
  arena memory;
  memory.in = gpu::buffer(std::int64_t{8} << most);
  memory.out = gpu::buffer(std::int64_t{8} << most);
  randomize(memory.in, precision::f32);
  int failed = 0, skipped = 0;
  // Every other batch first, so that a map cut short by the time limit has all of its corners.
  for (const int parity : {0, 1}) {
    for (int e = k_shortest; e <= std::min(k_longest, most); ++e) {
      for (int b = most - e - parity; b >= 0; b -= 2) {
        if (limit.over()) {
          ++skipped;
          continue;
        }
        row line("cell");
        line.add("log_n", e).add("log_batch", b);
        try {
          const fft::token token{{.shape = {std::int64_t{1} << e}, .batch = std::int64_t{1} << b}};
          const fft::geometry shape = fft::resolve(token.problem);
          const std::int64_t bytes = std::int64_t{8} << (e + b);
          memory.divide(bytes, device.l2_bytes, k_most_calls_of_cell);
          std::vector<variant> variants;
          variants.push_back(ballast_variant("off", token, shape, protection::off, ""));
          variants.push_back(ballast_variant("correct", token, shape, protection::correct, ""));
          variants.push_back(cufft_variant("cufft", token, false));
          const double expected = 2 * static_cast<double>(bytes) / k_assumed_bandwidth + 2e-6;
          for (variant& one : variants) {
            if (one.calls != 0) one.prepare(memory, expected, k_most_calls_of_cell);
          }
          for (int repetition = 0; repetition < 5; ++repetition) {
            for (variant& one : variants) one.measure(memory);
          }
          for (const variant& one : variants) {
            if (one.seconds.empty()) {
              line.add("refused " + one.name, one.refused);
              if (one.name != "cufft") ++failed;
            } else {
              line.add(one.name, median(one.seconds));
            }
          }
        } catch (const std::exception& e2) {
          ++failed;
          line.add("refused", e2.what());
        }
        line.print();
      }
    }
  }
  if (skipped > 0) row("skipped").add("stage", "heatmap").add("cases", skipped).print();
  return failed;
}

}  // namespace ballast::gpu_check
