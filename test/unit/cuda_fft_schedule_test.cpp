// Schedules: lengths become passes that fit the device, passes access every element once, and fused passes have no other dependencies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/counter_rng.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/exchange.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/cuda/tune/bundle_catalogue.hpp"
#include "fft/problem.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

schedule scheduled(const problem& p, direction way, const capabilities& device, check_form check = check_form::verify_before_store,
                   bool fallback = false) {
  schedule_request wanted;
  wanted.shape = resolve(p);
  wanted.precision = p.precision;
  wanted.direction = way;
  wanted.check = check;
  wanted.fallback = fallback;
  return make_schedule(wanted, device);
}

TEST(cuda_fft_schedule, lengths_are_split_into_passes_that_fit) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t n = 1; n <= 2500; n += n < 200 ? 1 : 13) lengths.push_back(n);
  for (int bit = 12; bit <= 29; ++bit) lengths.push_back(std::int64_t{1} << bit);
  for (const std::int64_t n : {1331 * 1331, 200 * 200 * 200, 531441, 4099, 65537, 1000003, 16777213}) lengths.push_back(n);
  for (const capabilities* device : {&ampere(), &hopper()}) {
    for (const precision type : {precision::f32, precision::f64}) {
      for (const std::int64_t n : lengths) {
        SCOPED_TRACE(fmt::format("{} {} {}", n, to_string(type), device->name));
        const schedule made = scheduled({.precision = type, .shape = {n}, .batch = 3}, direction::forward, *device);
        const bool convolves = made.passes.front().padded_to != 0;
        const std::int64_t whole = convolves ? made.passes.front().padded_to : n;
        if (convolves) {
          EXPECT_GE(whole, 2 * n - 1);
          EXPECT_LT(whole, 4 * n);
          // The additional rounding of a factor of 7 is not worth its savings here.
          EXPECT_TRUE(whole > 1024 || whole % 7 != 0);
          EXPECT_GT(prime_factors(n).back(), 13);
        }
        std::int64_t product = 1;
        for (const pass& each : made.passes) {
          product *= each.policy.length;
          EXPECT_TRUE(fits_one_pass(each.policy.share(), type == precision::f64, *device));
          if (each.policy.cluster > 1) {
            EXPECT_GE(device->major, 9);
          }
          EXPECT_EQ(each.lines() * each.policy.length, 3 * whole);
        }
        EXPECT_EQ(product, convolves ? whole * whole : n);
        EXPECT_LE(made.passes.size(), convolves ? 6u : 3u);
        EXPECT_EQ(made.passes.size() == 1, made.work_elements() == 0);
        EXPECT_EQ(made.passes.front().from, pass_buffer::input);
        EXPECT_EQ(made.passes.back().to, pass_buffer::output);
      }
    }
  }
}

// A pass that reads the input reads each element once, a pass that writes the output writes each element once, and every line maps to its
// signal.
TEST(cuda_fft_schedule, passes_touch_every_element_once_and_know_its_signal) {
  capabilities little = hopper();
  little.shared_per_block = little.shared_per_multiprocessor = 8192 + 4 * 64;
  struct layouts {
    std::vector<std::int64_t> shape;
    std::int64_t batch;
    layout in, out;
  };
  const layouts cases[] = {
      {{60}, 7, {}, {}},
      {{60}, 7, {{7}, 1}, {{7}, 1}},
      {{60}, 7, {{2}, 130}, {{40}, 1}},
      {{1024}, 3, {}, {}},
      {{1024}, 3, {{3}, 1}, {{1}, 1030}},
      {{6000}, 2, {{2}, 1}, {}},
      {{12, 20}, 3, {}, {}},
      {{2100, 9}, 2, {}, {}},
      {{3, 1152, 10}, 2, {{11600, 10, 1}, 35000}, {{1, 3 * 12, 3}, 41472}},
      {{12, 20}, 3, {{25, 1}, 320}, {{2, 30}, 700}},
      {{3, 4, 128}, 3, {{530, 130, 1}, 1600}, {{1, 3, 13}, 1700}},
      {{5, 6, 7}, 4, {{4, 20, 120}, 1}, {}},
      {{1, 30, 1}, 5, {}, {}},
      {{67}, 4, {{4}, 1}, {}},
      {{5, 1}, 4, {}, {}},
  };
  for (const capabilities* device : {&hopper(), &static_cast<const capabilities&>(little), &ampere()}) {
    const bool fallback = device == &ampere();
    for (const layouts& c : cases) {
      for (const kind what : {kind::c2c, kind::r2c, kind::c2r}) {
        problem p{.kind = what, .shape = c.shape, .batch = c.batch, .input = c.in, .output = c.out};
        SCOPED_TRACE(fmt::format("{} on {} bytes", to_token(p, natural_direction(what)), device->shared_per_block));
        const geometry g = resolve(p);
        schedule made;
        ASSERT_NO_THROW(made = scheduled(p, natural_direction(what), *device, check_form::verify_before_store, fallback));
        // The signal of the element at each place.
        const auto elements_of = [&](const side& s) {
          std::map<std::int64_t, std::int64_t> signal;
          for (std::int64_t b = 0; b < g.batch; ++b) {
            for (std::int64_t i = 0; i < s.length[0]; ++i) {
              for (std::int64_t j = 0; j < s.length[1]; ++j) {
                for (std::int64_t k = 0; k < s.length[2]; ++k)
                  EXPECT_TRUE(signal.emplace(b * s.distance + i * s.stride[0] + j * s.stride[1] + k * s.stride[2], b).second);
              }
            }
          }
          return signal;
        };
        const auto inputs = elements_of(g.input);
        const auto outputs = elements_of(g.output);
        for (const pass& each : made.passes) {
          std::set<std::int64_t> read, written;
          std::vector<pass::repeat> loops = {{each.columns, each.source.column, each.target.column, each.signals[0]},
                                             {each.middles, each.source.middle, each.target.middle, each.signals[1]},
                                             {each.batches, each.source.batch, each.target.batch, each.signals[2]}};
          loops.insert(loops.end(), each.repeats.begin(), each.repeats.end());
          // Positions tell which elements padding and truncation leave out.
          const std::int64_t in_step[3] = {each.source.position_column, each.source.position_middle, 0};
          const std::int64_t out_step[3] = {each.target.position_column, each.target.position_middle, 0};
          // If reals are processed in pairs, an element is two reals. A spectrum has one element more.
          const std::int64_t reals_read = each.from == pass_buffer::input && g.input.real && each.policy.load == load_form::complex ? 2 : 1;
          const std::int64_t reals_written =
              each.to == pass_buffer::output && g.output.real && each.policy.store == store_form::complex ? 2 : 1;
          const std::int64_t loaded = each.policy.length + (each.policy.load == load_form::spectrum ? 1 : 0);
          const std::int64_t stored = each.policy.length + (each.policy.mirrors() ? 1 : 0);
          for (std::int64_t index = 0; index < each.lines(); ++index) {
            std::int64_t rest = index, source = 0, target = 0, signal = 0, in_position = 0, out_position = 0;
            for (std::size_t d = 0; d < loops.size(); ++d) {
              const std::int64_t at = rest % loops[d].count;
              rest /= loops[d].count;
              source += at * loops[d].source;
              target += at * loops[d].target;
              signal += at / loops[d].signals.divisor % loops[d].signals.modulus;
              in_position += d < 3 ? at * in_step[d] : 0;
              out_position += d < 3 ? at * out_step[d] : 0;
            }
            ASSERT_LT(signal, g.batch);
            for (std::int64_t k = 0; k < std::max(loaded, stored); ++k) {
              const std::int64_t from = in_position + k * each.source.position_element;
              const std::int64_t to = out_position + k * each.target.position_element;
              if (each.from == pass_buffer::input && k < loaded && !(each.policy.padded && from >= each.loaded)) {
                std::int64_t at = source + k * each.source.element;
                const bool mirrored = each.policy.load == load_form::half && 2 * from > each.whole;
                if (mirrored) at += (each.whole - 2 * from) * each.unit;
                for (std::int64_t real = reals_read * at; real < reals_read * (at + 1); ++real) {
                  ASSERT_TRUE(inputs.contains(real)) << "element " << k << " of line " << index;
                  ASSERT_EQ(inputs.at(real), signal);
                  ASSERT_TRUE(mirrored || read.insert(real).second);
                }
              }
              if (each.to == pass_buffer::output && k < stored && !(each.policy.truncated && to >= each.stored)) {
                const std::int64_t at = target + k * each.target.element;
                for (std::int64_t real = reals_written * at; real < reals_written * (at + 1); ++real) {
                  ASSERT_TRUE(outputs.contains(real)) << "element " << k << " of line " << index;
                  ASSERT_EQ(outputs.at(real), signal);
                  ASSERT_TRUE(written.insert(real).second);
                }
              }
            }
          }
          EXPECT_TRUE(each.from != pass_buffer::input || read.size() == inputs.size()) << read.size();
          EXPECT_TRUE(each.to != pass_buffer::output || written.size() == outputs.size()) << written.size();
        }
      }
    }
  }
}

// Thousands of random problems of every kind, precision, number of axes, layout and direction become passes of fallback kernels. All these
// kernels are in the bundle, and each pass uses only forms that they read from their argument.
TEST(cuda_fft_schedule, fallback_kernels_serve_every_problem) {
  std::set<std::string> served, bundled;
  for (const ballast::cuda::kernel_request& each : fallback_kernels()) bundled.insert(each.expression);
  EXPECT_EQ(bundled.size(), 44u);
  for (const capabilities* device : {&ampere(), &hopper()}) {
    std::set<std::string> common;
    for (const ballast::cuda::kernel_request& each : common_kernels(*device)) common.insert(each.expression);
    for (const std::string& each : bundled) EXPECT_TRUE(common.contains(each)) << each;
  }
  int split = 0, padded = 0, strided = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const auto draw = [&](std::uint64_t stream) { return core::random_uniform(0x67656e, stream, i); };
    const auto length = [&](std::uint64_t stream, double bits) { return static_cast<std::int64_t>(std::exp2(bits * draw(stream))); };
    schedule_request wanted;
    problem p;
    p.kind = draw(0) < 0.4 ? kind::c2c : draw(0) < 0.7 ? kind::r2c : kind::c2r;
    p.precision = wanted.precision = draw(1) < 0.5 ? precision::f32 : precision::f64;
    const int axes = 1 + static_cast<int>(3 * draw(2));
    for (int a = 0; a < axes; ++a) p.shape.push_back(length(3 + static_cast<std::uint64_t>(a), axes == 1 ? 28 : axes == 2 ? 13 : 8));
    if (draw(6) < 0.2) p.shape.back() = std::int64_t{1} << static_cast<int>(28 * draw(7) / axes);
    p.batch = length(8, 8);
    if (draw(9) < 0.3) {  // signals side by side, or with gaps
      ++strided;
      for (layout* const side : {&p.input, &p.output}) {
        std::int64_t stride = draw(10) < 0.5 ? 1 : p.batch;
        side->strides.assign(p.shape.size(), 0);
        for (std::size_t a = p.shape.size(); a-- > 0; stride *= p.shape[a] + 3) side->strides[a] = stride;
        side->distance = draw(10) < 0.5 ? stride : 1;
      }
    }
    wanted.shape = resolve(p);
    wanted.direction = p.kind == kind::c2c && draw(11) < 0.5 ? direction::inverse : natural_direction(p.kind);
    wanted.scaled = draw(12) < 0.5;
    wanted.check = draw(13) < 0.5 ? check_form::none : check_form::verify_before_store;
    wanted.fallback = true;
    const capabilities& device = draw(14) < 0.5 ? ampere() : hopper();
    SCOPED_TRACE(to_token(p, wanted.direction));
    const schedule made = make_schedule(wanted, device);
    bool scaled = false;
    for (std::size_t at = 0; at < made.passes.size(); ++at) {
      const pass& each = made.passes[at];
      const line_policy& own = each.policy;
      ASSERT_TRUE(own.fallback);
      ASSERT_FALSE(each.pair);
      const std::string expression = kernel_for(made, at, false).expression;
      ASSERT_TRUE(bundled.contains(expression)) << expression;
      served.insert(expression);
      // The kernel's own policy combined with the forms in its argument gives the policy again.
      line_policy again = kernel_policy(own);
      ASSERT_EQ(kernel_expression(again, false), expression);
      const unsigned forms = forms_of(own);
      again.inverse = (forms & k_form_inverse) != 0;
      again.load = (forms & k_form_load_real) != 0   ? load_form::real
                   : (forms & k_form_load_half) != 0 ? load_form::half
                                                     : load_form::complex;
      again.store = (forms & k_form_store_real) != 0 ? store_form::real : store_form::complex;
      again.load_factor = own.load_factor == factor_form::none ? factor_form::none : factor_form::table;
      again.store_factor = (forms & k_form_twiddles) != 0          ? factor_form::twiddle
                           : own.store_factor == factor_form::none ? factor_form::none
                                                                   : factor_form::table;
      again.scaled = own.scaled, again.padded = own.padded, again.truncated = own.truncated;
      again.source_unit = own.source_unit, again.target_unit = own.target_unit, again.flat = own.flat;
      ASSERT_EQ(again, own);
      ASSERT_LE(own.shared_bytes(), 48 << 10) << "what every device has";
      scaled = scaled || own.scaled;
      split += own.store_factor == factor_form::twiddle ? 1 : 0;
      padded += own.padded ? 1 : 0;
    }
    ASSERT_EQ(scaled, wanted.scaled);
  }
  EXPECT_EQ(served, bundled) << "each kernel serves";
  EXPECT_GT(std::min({split, padded, strided}), 500);
}

// A transform of reals of even length runs as a complex line of half the length, if alignment and check allow it and one pass suffices.
TEST(cuda_fft_schedule, reals_go_in_pairs) {
  const auto paired = [](problem p, alignment aligned = {}, check_form check = check_form::verify_before_store) {
    schedule_request wanted;
    wanted.shape = resolve(p);
    wanted.direction = natural_direction(p.kind);
    wanted.check = check;
    wanted.aligned = aligned;
    for (const pass& each : make_schedule(wanted, hopper()).passes) {
      if (each.policy.load == load_form::spectrum || each.policy.mirrors()) return each.policy.length;
    }
    return 0;
  };
  for (const kind what : {kind::r2c, kind::c2r}) {
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}), 200);
    EXPECT_EQ(paired({.kind = what, .shape = {12, 400}, .batch = 3}), 200);
    EXPECT_EQ(paired({.kind = what, .shape = {65536}, .batch = 500}), 32768);
    EXPECT_EQ(paired({.kind = what, .shape = {65536}, .batch = 1}), 0) << "two passes occupy more of the device";
    EXPECT_EQ(paired({.kind = what, .shape = {2}, .batch = 3}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {401}, .batch = 3}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {134}, .batch = 3}), 0) << "a convolution";
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {true, false}), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {}, check_form::composite), 0);
    EXPECT_EQ(paired({.kind = what, .shape = {400}, .batch = 3}, {}, check_form::thread), 0);
  }
  // The tuning table has a cluster for a length that is no power of two; it is not used for reals in pairs.
  schedule_request wanted;
  wanted.shape = resolve({.kind = kind::r2c, .shape = {18432}, .batch = 1000});
  const schedule made = make_schedule(wanted, hopper());
  ASSERT_EQ(made.passes.size(), 1u);
  EXPECT_TRUE(made.passes[0].policy.mirrors());
  EXPECT_EQ(made.passes[0].policy.length, 9216);
  EXPECT_EQ(made.passes[0].policy.cluster, 1);
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {3, 8}, .batch = 2, .input = {{9, 1}, 27}, .output = {{5, 1}, 15}}), 0) << "odd strides";
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {3, 8}, .batch = 2, .input = {{10, 1}, 31}, .output = {{5, 1}, 15}}), 0) << "odd distance";
  EXPECT_EQ(paired({.kind = kind::r2c, .shape = {8}, .batch = 2, .input = {{2}, 20}, .output = {{1}, 5}}), 0) << "not side by side";
}

// Returns the places of the elements of a tile's lines on the side that two passes share, computed as in the kernel.
std::set<std::int64_t> places_of(const pass& p, const line_side& s, std::int64_t tile, std::int64_t elements) {
  std::set<std::int64_t> made;
  const std::int64_t column_tiles = (p.columns + p.policy.lines - 1) / p.policy.lines;
  const std::int64_t row = tile / column_tiles;
  for (std::int64_t line = 0; line < p.policy.lines; ++line) {
    const std::int64_t column = tile % column_tiles * p.policy.lines + line;
    if (column >= p.columns) break;
    for (std::int64_t k = 0; k < elements; ++k)
      made.insert(column * s.column + row % p.middles * s.middle + row / p.middles * s.batch + k * s.element);
  }
  return made;
}

// In fused passes, a tile of the second pass reads only data written by tiles of the first pass of the same unit, and a unit writes only
// within its slot of the ring.
TEST(cuda_fft_schedule, units_of_pairs_depend_on_nothing_else) {
  capabilities little = hopper();
  little.shared_per_block = 8192 + 4 * 64;
  little.shared_per_multiprocessor = 4 * little.shared_per_block;
  int pairs = 0, rings = 0, groups = 0, tails = 0;
  for (const capabilities* device : {&hopper(), &static_cast<const capabilities&>(little)}) {
    for (const check_form check : {check_form::none, check_form::verify_before_store}) {
      for (const problem& p : std::vector<problem>{{.shape = {1024}, .batch = 5},
                                                   {.shape = {1024}, .batch = 1},
                                                   {.shape = {8192}, .batch = 1},
                                                   {.shape = {67}, .batch = 1},
                                                   {.kind = kind::c2r, .shape = {20, 18}, .batch = 1},
                                                   {.shape = {1024}, .batch = 5, .input = {{5}, 1}, .output = {{5}, 1}},
                                                   {.shape = {1024}, .batch = 5, .input = {{2}, 2050}, .output = {{1}, 1030}},
                                                   {.shape = {6000}, .batch = 3},
                                                   {.shape = {8192}, .batch = 2},
                                                   {.kind = kind::r2c, .shape = {1024}, .batch = 3},
                                                   {.kind = kind::c2r, .shape = {1024}, .batch = 3},
                                                   {.shape = {67}, .batch = 40},
                                                   {.shape = {4099}, .batch = 7},
                                                   {.shape = {40, 36}, .batch = 9},
                                                   {.shape = {40, 36}, .batch = 9, .input = {{40, 1}, 1700}, .output = {{1, 44}, 1800}},
                                                   {.kind = kind::r2c, .shape = {20, 18}, .batch = 9},
                                                   {.kind = kind::c2r, .shape = {20, 18}, .batch = 9},
                                                   {.shape = {6, 20, 18}, .batch = 4},
                                                   {.kind = kind::r2c, .shape = {6, 20, 18}, .batch = 4},
                                                   {.shape = {4, 128}, .batch = 3},
                                                   {.shape = {65536}, .batch = 3},
                                                   {.precision = precision::f64, .shape = {16384}, .batch = 3}}) {
        SCOPED_TRACE(fmt::format("{} on {} bytes", to_token(p, natural_direction(p.kind)), device->shared_per_block));
        schedule_request wanted;
        wanted.shape = resolve(p);
        wanted.precision = p.precision;
        wanted.direction = natural_direction(p.kind);
        wanted.check = check;
        wanted.pairs = fusion::wherever_possible;
        schedule made;
        try {
          made = make_schedule(wanted, *device);
        } catch (const std::logic_error&) {
          continue;  // a tile does not fit into so little shared memory
        }
        for (std::size_t i = 0; i + 1 < made.passes.size(); ++i) {
          const pass& first = made.passes[i];
          if (!first.pair) continue;
          const pass& second = made.passes[i + 1];
          const fused_arguments& pair = *first.pair;
          EXPECT_FALSE(second.pair.has_value());
          EXPECT_EQ(first.to, second.from);
          EXPECT_EQ(first.policy.block(), second.policy.block());
          EXPECT_TRUE(pair.ahead >= 1 && (pair.ahead < pair.slots || pair.slots == pair.units)) << pair.ahead << " " << pair.slots;
          EXPECT_EQ(first.groups(), std::int64_t{pair.units} * pair.first_tiles);
          EXPECT_EQ(second.groups(), std::int64_t{pair.units} * pair.second_tiles);
          ++pairs;
          rings += first.to == pass_buffer::ring ? 1 : 0;
          groups += pair.groups > 1 ? 1 : 0;
          tails += first.columns % first.policy.lines != 0 ? 1 : 0;
          std::set<std::int64_t> tiles;
          for (std::int64_t unit = 0; unit < pair.units; ++unit) {
            std::set<std::int64_t> written, read;
            const std::int64_t stored = first.policy.truncated ? first.stored : first.policy.length + (first.policy.mirrors() ? 1 : 0);
            const std::int64_t loaded = second.policy.load == load_form::half
                                            ? second.whole / 2 + 1
                                            : second.policy.length + (second.policy.load == load_form::spectrum ? 1 : 0);
            for (std::int64_t t = 0; t < pair.first_tiles; ++t)
              written.merge(places_of(first, first.target, unit * pair.first_tiles + t, stored));
            for (std::int64_t t = 0; t < pair.second_tiles; ++t) {
              const std::int64_t tile = (unit / pair.groups * pair.second_tiles + t) * pair.groups + unit % pair.groups;
              EXPECT_TRUE(tiles.insert(tile).second);
              read.merge(places_of(second, second.source, tile, loaded));
            }
            ASSERT_EQ(written, read) << "unit " << unit;
            if (pair.slot_elements == 0) continue;
            EXPECT_GE(*written.begin(), unit * pair.unit_elements);
            EXPECT_LT(*written.rbegin(), unit * pair.unit_elements + pair.slot_elements);
          }
          EXPECT_GE(made.elements[static_cast<std::size_t>(pass_buffer::ring)],
                    first.to == pass_buffer::ring ? pair.slots * pair.slot_elements : std::int64_t{0});
        }
      }
    }
  }
  EXPECT_GE(pairs, 30);
  EXPECT_GE(rings, 15);
  EXPECT_GE(groups, 1);
  EXPECT_GE(tails, 1);
}

// Passes are fused only if a measurement showed a gain.
TEST(cuda_fft_schedule, pairs_are_made_where_they_pay) {
  const auto paired = [](const problem& p, const capabilities& device, check_form check = check_form::none) {
    const schedule made = scheduled(p, direction::forward, device, check);
    return std::ranges::any_of(made.passes, [](const pass& each) { return each.pair.has_value(); });
  };
  const problem long_lines{.shape = {1 << 18}, .batch = 1024};
  EXPECT_TRUE(paired(long_lines, hopper()));
  EXPECT_TRUE(paired({.shape = {1 << 20}, .batch = 256}, hopper()));
  EXPECT_TRUE(paired({.precision = precision::f64, .shape = {1 << 18}, .batch = 512}, hopper()));
  EXPECT_FALSE(paired(long_lines, ampere()));
  EXPECT_FALSE(paired(long_lines, hopper(), check_form::verify_before_store));
  EXPECT_FALSE(paired({.precision = precision::f64, .shape = {1 << 20}, .batch = 128}, hopper()));
  EXPECT_FALSE(paired({.shape = {1 << 18}, .batch = 20}, hopper()));
  EXPECT_FALSE(paired({.kind = kind::r2c, .shape = {1 << 18}, .batch = 1024}, hopper()));
  EXPECT_FALSE(paired({.shape = {1 << 18}, .batch = 1024, .input = {{1024}, 1}, .output = {{1024}, 1}}, hopper()));
  EXPECT_FALSE(paired({.shape = {320, 320}, .batch = 256}, hopper()));
  // The workspace of fused passes is smaller than a chunk of signals.
  const schedule made = scheduled(long_lines, direction::forward, hopper(), check_form::none);
  EXPECT_LE(made.work_elements() * 8, hopper().l2_cache);
}

TEST(cuda_fft_schedule, expressions_differ_where_policies_do) {
  line_policy p;
  std::set<std::string> texts;
  const auto add = [&] {
    EXPECT_TRUE(texts.insert(kernel_expression(p, false)).second);
    EXPECT_TRUE(texts.insert(kernel_expression(p, true)).second);
  };
  add();
  for (bool line_policy::*flag :
       {&line_policy::wide, &line_policy::inverse, &line_policy::scaled, &line_policy::in_columns, &line_policy::out_columns,
        &line_policy::split, &line_policy::padded, &line_policy::truncated, &line_policy::shared_source, &line_policy::shared_target}) {
    p.*flag = true;
    add();
  }
  for (int line_policy::*number :
       {&line_policy::length, &line_policy::lines, &line_policy::threads, &line_policy::min_blocks, &line_policy::stages,
        &line_policy::transactions, &line_policy::source_step, &line_policy::target_step}) {
    p.*number += 1;
    add();
  }
  p.radix[7] = 5;
  add();
  p.exchange[7].mask[1] = 3;
  add();
  p.exchange[7].run = 10;
  add();
  p.exchange[7].pad = 1;
  add();
  const auto request = kernel_for(p, false);
  EXPECT_EQ(request.header, "fft/cuda/kernel/line.cuh");
  EXPECT_EQ(request.threads, p.block());
  EXPECT_EQ(request.shared, p.shared_bytes());
}

}  // namespace
}  // namespace ballast::fft::cuda
