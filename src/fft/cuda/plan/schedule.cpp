// Divides problems into passes. An axis is one pass if its length fits into a block, otherwise two or three by Bailey's four-step split.
// Lengths with large prime factors are a convolution, which takes two such transforms.
// Source: D. Bailey, FFTs in external or hierarchical memory, 1990; L. Bluestein, A linear filtering approach to the DFT, 1970.
#include "fft/cuda/plan/schedule.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>

#include <ballast/error.hpp>

#include "fft/cuda/plan/dimensions.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/plan/fused_passes.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/cuda/policy/choose_policy.hpp"
#include "fft/cuda/policy/radices.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

std::int64_t schedule::work_elements() const {
  std::int64_t all = 0;
  for (const std::int64_t each : elements) all += each;
  return all;
}

std::uint32_t schedule::counters() const {
  std::uint32_t most = 0;
  for (const pass& each : passes) most = std::max(most, each.pair ? fusion_counters(each.pair->slots) : 0);
  return most;
}

end_to_end_offsets offsets_of(const end_to_end_part& part, bool wide) {
  const std::int64_t width = wide ? 8 : 4;
  const auto whole = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
  end_to_end_offsets made{};
  made.encoded = whole(part.lines * static_cast<std::int64_t>(sizeof(whole_line_record)));
  made.summed = made.encoded + whole(part.lines * part.first_tiles * 4 * width);
  made.squares = made.summed + whole(part.lines * part.last_tiles * 4 * width);
  made.all = made.squares + whole(part.lines * part.first_tiles * width);
  return made;
}

std::int64_t pass::lines() const {
  std::int64_t all = columns * middles * batches;
  for (const repeat& each : repeats) all *= each.count;
  return all;
}

std::int64_t pass::groups() const {
  const std::int64_t tiles = (columns + policy.lines - 1) / policy.lines * middles * batches;
  return (tiles + policy.transactions - 1) / policy.transactions;
}

std::int64_t pass::checks() const {
  if (whole_line) return policy.ends() ? whole_line->lines : 0;
  if (policy.check == check_form::thread) {
    std::int64_t butterflies = 0;
    for (int s = 0; s < policy.stages; ++s) butterflies += policy.length / policy.radix[s];
    return lines() * butterflies;
  }
  if (policy.check != check_form::composite) return lines();
  std::int64_t all = groups() * policy.lines;
  for (const repeat& each : repeats) all *= each.count;
  return all;
}

namespace {

// Returns whether the factors after a pass are separated. That pays in two cases: the last radix is small, so that the factors of its
// results are close together and several butterflies share them; or there are few lines, so that the latency of dependent lookups
// dominates. Measured on an H200, with strides known: 2^17 to 2^21 points become 3 to 10 % faster; real 2^16 and 2^24, with radix 16 or
// tables of 16 MiB, become up to 30 % slower. Doubles of 256 to 511 points need more registers than available.
bool separates(const line_policy& p, std::int64_t order, std::int64_t lines, const ballast::cuda::capabilities& device) {
  if ((p.check != check_form::none && !p.verifies()) || p.by_definition()) return false;
  if (p.wide && p.length >= 256 && p.length < 512) return false;
  const std::int64_t radix = p.radix[p.stages - 1];
  const std::int64_t bytes = (order / radix + order / p.length * radix) * 2 * p.scalar_bytes();
  return bytes <= std::int64_t{5} << 20 && (radix <= 8 || lines < 16 * device.multiprocessors);
}

// Returns the stride for which the kernel of a split line is compiled; 0 for any stride. Strides that are powers of two become constants in
// the instructions, which reach 8 MiB in both directions.
int step_of(const line_policy& p, std::int64_t stride) {
  const bool within = stride > 1 && std::has_single_bit(static_cast<std::uint64_t>(stride)) &&
                      stride * p.length * 2 * p.scalar_bytes() <= std::int64_t{1} << 24;
  return within ? static_cast<int>(stride) : 0;
}

// One whole axis: the location of its lines and the special properties of their elements.
struct axis_request {
  std::int64_t length;
  std::int64_t source_stride, target_stride;
  std::vector<dimension> others;
  pass_buffer from, to;
  load_form load = load_form::complex;
  store_form store = store_form::complex;
  bool inverse = false, scaled = false;
  std::int64_t loaded = 0, stored = 0;  // 0: all
  table_kind load_table = table_kind::none, store_table = table_kind::none;
  std::int64_t convolution = 0, padded_to = 0;
  std::optional<real_line_shape> reals;  // a real-to-real transform in one pass
};

// An axis whose lines lie side by side is one pass up to this length. A tile of a longer one would have less than 32 bytes of neighbouring
// lines, which is what memory is read by. With a check, which reads twice, two passes are faster from 2048 points on (H200: 4096² f32 0.88
// ms instead of 1.38, 2048² 3 %; without it 0.80 instead of 0.72).
constexpr std::int64_t k_most_in_columns = 4096;
constexpr std::int64_t k_most_checked_in_columns = 2047;
constexpr std::int64_t k_least_beside = 8;  // lines side by side for which two passes in columns pay

class builder {
 public:
  builder(const schedule_request& wanted, const ballast::cuda::capabilities& device)
      : wanted_(wanted), device_(device), wide_(wanted.precision == precision::f64) {}

  schedule build() {
    const geometry& g = wanted_.shape;
    if (g.kind == kind::r2r) return build_reals();
    // Axes longer than 1, in the order of their passes. The last axis comes first, so that real data become half spectra immediately; for
    // c2r it comes last, where half spectra become real.
    std::vector<std::size_t> axes;
    for (std::size_t axis : {2, 1, 0}) {
      if (g.n[axis] > 1) axes.push_back(axis);
    }
    if (axes.empty()) axes.push_back(2);
    if (g.kind == kind::c2r) {
      std::erase(axes, 2u);
      axes.push_back(2);
    }
    if (g.kind == kind::r2c && axes.front() != 2) axes.insert(axes.begin(), 2);
    // Between axes the data stay in the output. The output of c2r is too small for half spectra, so they are stored in the workspace.
    const bool through_work = g.kind == kind::c2r && axes.size() > 1;
    const std::array<std::int64_t, 3> lengths = g.kind == kind::c2r ? g.input.length : g.output.length;
    side between;  // in the workspace, dense
    between.length = lengths;
    between.stride = {lengths[1] * lengths[2], lengths[2], 1};
    between.distance = lengths[0] * lengths[1] * lengths[2];
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::size_t axis = axes[i];
      const bool first = i == 0;
      const bool last = i + 1 == axes.size();
      const side& from = first ? g.input : through_work ? between : g.output;
      const side& to = last ? g.output : through_work ? between : g.output;
      axis_request one;
      one.length = g.n[axis];
      one.source_stride = from.stride[axis];
      one.target_stride = to.stride[axis];
      one.from = first ? pass_buffer::input : through_work ? pass_buffer::spectrum : pass_buffer::output;
      one.to = last ? pass_buffer::output : through_work ? pass_buffer::spectrum : pass_buffer::output;
      for (std::size_t other = 0; other < 3; ++other) {
        if (other != axis) one.others.push_back({std::min(from.length[other], to.length[other]), from.stride[other], to.stride[other]});
      }
      one.others.push_back({g.batch, from.distance, to.distance, {1, g.batch}});
      one.inverse = wanted_.direction == direction::inverse;
      one.scaled = last && wanted_.scaled;
      if (axis == 2 && g.kind != kind::c2c) {
        if (pairs_up(from, to, one)) {
          one.length /= 2;
          for (dimension& d : one.others) (g.kind == kind::r2c ? d.source : d.target) /= 2;
          if (g.kind == kind::r2c) one.store = store_form::spectrum;
          if (g.kind == kind::c2r) one.load = load_form::spectrum;
        } else if (g.kind == kind::r2c) {
          one.load = load_form::real;
          one.stored = g.n[2] / 2 + 1;
        } else {
          one.load = load_form::half;
          one.store = store_form::real;
        }
      }
      if (through_work) elements(pass_buffer::spectrum) = between.distance * g.batch;
      add_axis(one);
    }
    return std::move(made_);
  }

 private:
  // One pass over real lines along the last axis, whose other axes count lines.
  schedule build_reals() {
    const geometry& g = wanted_.shape;
    axis_request one;
    one.reals = one_pass_of(g.real, g.n[2], wide_, device_);
    if (!one.reals) throw std::logic_error("fft: no single pass for this real-to-real transform");
    one.length = one.reals->length;
    one.source_stride = g.input.stride[2];
    one.target_stride = g.output.stride[2];
    one.from = pass_buffer::input;
    one.to = pass_buffer::output;
    one.load = load_form::real;
    one.store = store_form::real;
    one.scaled = wanted_.scaled;
    for (const std::size_t other : {0, 1}) one.others.push_back({g.input.length[other], g.input.stride[other], g.output.stride[other]});
    one.others.push_back({g.batch, g.input.distance, g.output.distance, {1, g.batch}});
    add_line(one, {one.length});
    return std::move(made_);
  }

  // Returns whether reals of the last axis can be processed in pairs, as complex lines of half the length in one pass.
  bool pairs_up(const side& from, const side& to, const axis_request& one) const {
    const side& real = from.real ? from : to;
    if (one.length % 2 != 0 || one.length < 4 || !wanted_.aligned.paired || wanted_.plain || wanted_.fallback) return false;
    if (wanted_.check == check_form::composite || wanted_.check == check_form::thread) return false;
    // So few reals are one butterfly as complex numbers, without the exchange of mirror images: on an H200 8 reals take 0.7 of the time,
    // and errors of 6, 10 and 14 reals are at most cuFFT's instead of 1.1 times as large.
    constexpr std::int64_t k_few = 16;
    if (wanted_.shape.kind == kind::r2c && one.length <= k_few) return false;
    if (one.source_stride != 1 || one.target_stride != 1) return false;
    for (const std::size_t other : {0, 1}) {
      if (real.length[other] > 1 && real.stride[other] % 2 != 0) return false;
    }
    if (wanted_.shape.batch > 1 && real.distance % 2 != 0) return false;
    // In a cluster the length must be a power of two (add_pass).
    const std::int64_t half = one.length / 2;
    const auto primes = prime_factors(half);
    if (!primes.empty() && primes.back() > largest_prime(wide_)) return false;
    if (!fits_one_pass(half, wide_, device_) && !std::has_single_bit(static_cast<std::uint64_t>(half))) return false;
    return split_length(half, one).size() == 1;
  }

  std::int64_t& elements(pass_buffer part) { return made_.elements[static_cast<std::size_t>(part)]; }

  std::int64_t lines_of(const axis_request& one) const {
    std::int64_t all = 1;
    for (const dimension& d : one.others) all *= d.count;
    return all;
  }

  void add_axis(const axis_request& one) {
    bool smooth = true;
    // The other checks see no number of a transform by the definition, or follow the radices of a line.
    const bool defines =
        !wanted_.plain && !wanted_.end_to_end && (wanted_.check == check_form::none || wanted_.check == check_form::verify_before_store);
    if (!wanted_.fallback) {
      for (const std::int64_t prime : prime_factors(one.length))
        smooth = smooth && (prime <= largest_prime(wide_) || (defines && is_defined(prime, wide_)));
    }
    if (smooth) {
      const auto split = split_length(one.length, one);
      if (!split.empty()) return add_line(one, split);
    }
    add_convolution(one);
  }

  // Returns whether a cluster can load the axis: a block of a cluster has too few registers for sums and the addresses of real numbers.
  bool loads_in_clusters(const axis_request& one) const {
    return wanted_.check == check_form::none || (one.load != load_form::real && one.load != load_form::half);
  }

  // Returns the passes that the tuning table has for lines of length n, if this device can run them.
  std::optional<std::vector<std::int64_t>> tuned_split(std::int64_t n, std::int64_t lines) const {
    if (wanted_.plain) return {};
    const auto found = wanted_.tuned->find_split({device_.major, wide_, n, wanted_.check != check_form::none, is_few(n, lines, device_)});
    if (!found || !std::ranges::all_of(found->lengths, [&](std::int64_t each) { return fits_one_pass(each, wide_, device_); })) return {};
    return found->lengths;
  }

  // Returns the lengths of the one, two or three passes for lines of length n in the layout of `one`; empty if none fit.
  std::vector<std::int64_t> split_length(std::int64_t n, const axis_request& one) const {
    if (wanted_.fallback) return fallback_split(n);
    const bool fits_one = fits_one_pass(n, wide_, device_);
    const bool checked = wanted_.check != check_form::none;
    if (fits_one && !(n > (checked ? k_most_checked_in_columns : k_most_in_columns) && !lines_beside(one).empty())) return {n};
    // Two-sided checksums and the plain variant do not support clusters. As clusters, few lines occupy few multiprocessors; as two passes
    // they occupy all: one line of 2^17 f32 points takes 6.4 instead of 10.2 us on an H200.
    const bool clusterable = wanted_.check != check_form::composite && !wanted_.plain && loads_in_clusters(one);
    if (one.source_stride == 1 && one.target_stride == 1 && clusterable &&
        lines_of(one) * blocks_of_line(n, wide_, device_) >= device_.multiprocessors)
      return {n};
    if (const auto tuned = tuned_split(n, lines_of(one))) return *tuned;
    const auto fits = [&](std::int64_t length) { return length <= (wide_ ? 1024 : 2048) && fits_one_pass(length, wide_, device_); };
    std::vector<std::int64_t> best;
    double least = std::numeric_limits<double>::infinity();
    const auto consider = [&](std::vector<std::int64_t> tried) {
      const auto [low, high] = std::ranges::minmax(tried);
      const double cost = static_cast<double>(high) / static_cast<double>(low) + 1000.0 * static_cast<double>(tried.size());
      if (cost < least) {
        least = cost;
        best = std::move(tried);
      }
    };
    for (std::int64_t a = 2; a <= 2048 && a <= n / 2; ++a) {
      if (n % a != 0 || !fits(a)) continue;
      if (fits(n / a)) {
        consider({a, n / a});
        continue;
      }
      for (std::int64_t b = 2; b <= 2048 && b <= n / a / 2; ++b) {
        if (n / a % b == 0 && fits(b) && fits(n / a / b)) consider({a, b, n / a / b});
      }
    }
    if (best.empty() && fits_one) return {n};
    return best;
  }

  // Returns the dimensions that count the lines of an axis if its lines lie side by side on both sides, with these first; else none.
  std::vector<dimension> lines_beside(const axis_request& one) const {
    std::vector<dimension> all = merged(one.others, false);
    const bool in_columns = std::abs(one.source_stride) > 1 && std::abs(one.target_stride) > 1 && !all.empty() && all[0].source == 1 &&
                            all[0].target == 1 && all[0].count >= k_least_beside;
    if (!in_columns || wanted_.plain || wanted_.fallback || one.load_table != table_kind::none || one.store_table != table_kind::none)
      all.clear();
    return all;
  }

  // The two passes of an axis whose lines lie side by side: they stay so in the workspace, which holds […][n₁][n₂][line]. So both passes
  // read and write neighbouring lines together.
  void add_columns(const axis_request& one, const std::vector<std::int64_t>& split, const std::vector<dimension>& lines) {
    const std::int64_t n1 = split[0], n2 = split[1];
    const std::int64_t beside = lines[0].count;
    elements(pass_buffer::split) = std::max(elements(pass_buffer::split), lines_of(one) * one.length);
    std::vector<dimension> into = lines, out = lines;
    std::int64_t dense = one.length * beside;
    for (std::size_t i = 1; i < lines.size(); ++i) {
      into[i].target = out[i].source = dense;
      dense *= lines[i].count;
    }
    into.insert(into.begin() + 1, {n2, one.source_stride, beside, {}, 1, 1});
    add_pass(one, n1, n2 * one.source_stride, n2 * beside, n2, n2, into, one.from, pass_buffer::split, true, false, one.length);
    out.insert(out.begin() + 1, {n1, n2 * beside, one.target_stride, {}, n2, 1});
    add_pass(one, n2, beside, n1 * one.target_stride, 1, n1, out, pass_buffer::split, one.to, false, true, 0);
  }

  void add_line(const axis_request& one, const std::vector<std::int64_t>& split) {
    if (split.size() == 1) {
      add_pass(one, one.length, one.source_stride, one.target_stride, 1, 1, one.others, one.from, one.to, true, true, 0);
      return;
    }
    if (split.size() == 2) {
      if (const std::vector<dimension> lines = lines_beside(one); !lines.empty()) return add_columns(one, split, lines);
    }
    // The workspace holds [line][n₁][n₂](…)[n_last], contiguously.
    const std::int64_t n = one.length;
    const std::int64_t count = lines_of(one);
    const pass_buffer work = pass_buffer::split;
    elements(work) = std::max(elements(work), count * n);
    std::vector<dimension> into = one.others;
    std::vector<dimension> inside = one.others;
    std::vector<dimension> out = one.others;
    std::int64_t dense = n;
    for (std::size_t i = 0; i < one.others.size(); ++i) {
      into[i].target = dense;
      inside[i].source = inside[i].target = dense;
      out[i].source = dense;
      dense *= one.others[i].count;
    }
    const std::int64_t n1 = split[0];
    const std::int64_t rest = n / n1;
    auto first = into;
    first.insert(first.begin(), {rest, one.source_stride, 1, {}, 1, 1});
    add_pass(one, n1, rest * one.source_stride, rest, rest, rest, first, one.from, work, true, false, n);
    if (split.size() == 2) {
      auto last = out;
      last.insert(last.begin(), {n1, rest, one.target_stride, {}, rest, 1});
      add_pass(one, rest, 1, n1 * one.target_stride, 1, n1, last, work, one.to, false, true, 0);
      return check_from_end_to_end(one, split);
    }
    const std::int64_t n2 = split[1];
    const std::int64_t n3 = split[2];
    auto second = inside;
    second.insert(second.begin(), {{n3, 1, 1, {}, 1, 1}, {n1, rest, rest, {}, rest, rest}});
    add_pass(one, n2, n3, n3, n3, n3, second, work, work, false, false, rest);
    auto third = out;
    third.insert(third.begin(), {{n1, rest, one.target_stride, {}, rest, 1}, {n2, n3, n1 * one.target_stride, {}, n3, n1}});
    add_pass(one, n3, 1, n1 * n2 * one.target_stride, 1, n1 * n2, third, work, one.to, false, true, 0);
    check_from_end_to_end(one, split);
  }

  // Returns whether the lines whose passes end the schedule can be checked from end to end: complex lines as they are, whose passes number
  // the whole lines alike, and whose weights are not too large a table.
  bool takes_end_to_end(const axis_request& one, const std::vector<std::int64_t>& split) const {
    if (!wanted_.end_to_end || wanted_.fallback || wanted_.check != check_form::verify_before_store || one.from == one.to) return false;
    if (one.load != load_form::complex || one.store != store_form::complex || one.load_table != table_kind::none) return false;
    if (one.store_table != table_kind::none || one.loaded != 0 || one.stored != 0) return false;
    const auto passes = made_.passes.end() - static_cast<std::ptrdiff_t>(split.size());
    const std::int64_t lines = lines_of(one);
    for (auto each = passes; each != made_.passes.end(); ++each) {
      if (each->policy.cluster != 1 || !each->repeats.empty() || each->groups() >= std::int64_t{1} << 31) return false;
    }
    const line_policy& p = passes->policy;
    const pass& last = made_.passes.back();
    if (p.stages == 1 || passes->middles != lines || passes->batches != 1) return false;
    if (split.size() == 2 ? last.middles != lines || last.batches != 1 : last.middles != split[1] || last.batches != lines) return false;
    return 6 * (one.length / p.radix[0]) * p.scalar_bytes() <= device_.memory / 256;
  }

  // Gives the passes of a line one check from end to end, and adds the passes that repair it.
  void check_from_end_to_end(const axis_request& one, const std::vector<std::int64_t>& split) {
    if (!takes_end_to_end(one, split)) return;
    end_to_end_part part;
    part.passes = split.size();
    part.first = made_.passes.size() - part.passes;
    part.points = one.length;
    part.lines = lines_of(one);
    const auto tiles = [&](const pass& each) { return each.groups() / part.lines; };
    const pass& begins = made_.passes[part.first];
    part.first_tiles = tiles(begins);
    part.last_tiles = tiles(made_.passes.back());
    part.first_radix = begins.policy.radix[0];
    for (int n = 1; n < std::max(begins.policy.block(), made_.passes.back().policy.block()); n *= 2) ++part.levels;
    for (std::size_t i = 0; i < part.passes; ++i) {
      pass& each = made_.passes[part.first + i];
      part.tiles = tiles(each);
      each.whole_line = part;
      pass again = each;
      again.policy.repair = i + 1 == part.passes ? repair_form::last : repair_form::pass;
      again.policy.staged = false;
      again.policy.min_blocks = 1;  // it usually has nothing to do, and more registers avoid spills
      each.policy.check = i == 0 ? check_form::begins : i + 1 == part.passes ? check_form::ends : check_form::none;
      made_.passes.push_back(std::move(again));
    }
    elements(pass_buffer::checks) = std::max(elements(pass_buffer::checks), offsets_of(part, wide_).all / (wide_ ? 16 : 8));
  }

  void add_convolution(const axis_request& one) {
    const std::int64_t least = 2 * one.length - 1;
    // The shortest length of this form: 2^a, or 3, 5, 7, 9, 15 times a power of two. It needs few passes. The factor 7 rounds more, and
    // saves at most 7 % of the length: short convolutions use the factor 15 with half the power instead.
    constexpr std::int64_t k_short = 1024;
    std::int64_t m = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
    for (const std::int64_t odd : {3, 5, 7, 9, 15}) {
      std::int64_t tried = odd;
      while (tried < least) tried *= 2;
      if (tried < m && tried % 16 == 0 && !wanted_.fallback && (odd != 7 || tried > k_short)) m = tried;
    }
    const auto split = split_length(m, one);
    if (split.empty())
      throw unsupported_error("length " + std::to_string(one.length) + ": expected at most 2^29 after padding to a convolution, got " +
                              std::to_string(m));
    const std::int64_t count = lines_of(one);
    elements(pass_buffer::convolved) = std::max(elements(pass_buffer::convolved), count * m);
    std::vector<dimension> to_dense = one.others;
    std::vector<dimension> from_dense = one.others;
    std::int64_t dense = m;
    for (std::size_t i = 0; i < one.others.size(); ++i) {
      to_dense[i].target = dense;
      from_dense[i].source = dense;
      dense *= one.others[i].count;
    }
    axis_request forward = one;
    forward.length = m;
    forward.to = pass_buffer::convolved;
    forward.target_stride = 1;
    forward.others = to_dense;
    forward.store = store_form::complex;
    forward.scaled = false;
    forward.stored = 0;
    forward.loaded = one.length;
    forward.inverse = false;
    forward.load_table = table_kind::chirp;
    forward.store_table = table_kind::filter;
    forward.convolution = one.inverse ? -one.length : one.length;
    forward.padded_to = m;
    axis_request backward = one;
    backward.length = m;
    backward.from = pass_buffer::convolved;
    backward.source_stride = 1;
    backward.others = from_dense;
    backward.load = load_form::complex;
    backward.inverse = true;
    backward.stored = one.stored != 0 ? one.stored : one.length;
    backward.store_table = table_kind::chirp;
    backward.convolution = forward.convolution;
    backward.padded_to = m;
    add_line(forward, split);
    add_line(backward, split);
  }

  // `twiddles`: the M of w_M^{ck}, where c runs along the dimension of `others` that has positions, the first or the second one.
  void add_pass(const axis_request& one, std::int64_t n, std::int64_t source, std::int64_t target, std::int64_t position_source,
                std::int64_t position_target, const std::vector<dimension>& others, pass_buffer from, pass_buffer to, bool loads,
                bool stores, std::int64_t twiddles) {
    pass made;
    // Neighbouring threads take neighbouring elements if these are contiguous, otherwise neighbouring lines.
    std::vector<dimension> dims;
    const auto split_dimensions = std::ranges::find_if_not(others, &dimension::positioned);
    const bool by_middle = split_dimensions == others.begin() && others.size() > 1 && others[1].positioned();
    if (by_middle) {
      dims = merged({others.begin() + 2, others.end()}, false);
      dims.insert(dims.begin(), others.begin(), others.begin() + 2);
    } else if (split_dimensions != others.begin()) {
      // The dimensions of a split line come first regardless of their strides, as factors and positions depend on them.
      dims = merged({split_dimensions, others.end()}, false);
      dims.insert(dims.begin(), others.begin(), split_dimensions);
    } else {
      dims = merged(others, source == 1 && target != 1);
      if (dims.size() > 1) std::stable_sort(dims.begin() + 1, dims.end(), [](const auto& x, const auto& y) { return x.count > y.count; });
    }
    while (dims.size() < 3) dims.push_back({1, 0, 0});
    for (std::size_t i = 3; i < dims.size(); ++i) made.repeats.push_back({dims[i].count, dims[i].source, dims[i].target, dims[i].signals});
    made.columns = dims[0].count;
    made.middles = dims[1].count;
    made.batches = dims[2].count;
    for (std::size_t i = 0; i < 3; ++i) made.signals[i] = dims[i].signals;
    made.source = {source,          dims[0].source,          dims[1].source,         dims[2].source,
                   position_source, dims[0].position_source, dims[1].position_source};
    made.target = {target,          dims[0].target,          dims[1].target,         dims[2].target,
                   position_target, dims[0].position_target, dims[1].position_target};
    made.from = from;
    made.to = to;

    line_request wanted;
    wanted.length = static_cast<int>(n);
    wanted.wide = wide_;
    // Lines whose elements are contiguous are never columns, also if lines run backwards or are the same one.
    const auto columns = [&](std::int64_t element, std::int64_t line) {
      return std::abs(element) > std::max<std::int64_t>(std::abs(line), 1) && dims[0].count > 1;
    };
    wanted.in_columns = columns(source, dims[0].source);
    wanted.out_columns = columns(target, dims[0].target);
    wanted.reals = one.reals.has_value();
    if (wanted.reals) wanted.out_columns = wanted.in_columns;
    wanted.check = wanted_.check;
    wanted.plain = wanted_.plain;
    wanted.columns = made.columns;
    wanted.count = made.lines();
    wanted.few = is_few(n, wanted.count, device_);
    const bool read_as_it_is = !loads || (one.load == load_form::complex && one.load_table == table_kind::none && one.loaded == 0);
    const bool on_boundaries = wide_ || (n % 2 == 0 && dims[1].source % 2 == 0 && dims[2].source % 2 == 0 && made.repeats.empty());
    wanted.stageable = wanted_.aligned.copied && read_as_it_is && on_boundaries && source == 1 && dims[0].source == n && !wanted.in_columns;
    wanted.clusterable = source == 1 && target == 1 && (!loads || loads_in_clusters(one)) && !one.reals;
    // A cluster exchanges mirror images between the halves of its runs. If the length is no power of two, runs may be odd.
    if (one.store == store_form::spectrum && !std::has_single_bit(static_cast<std::uint64_t>(n))) wanted.clusterable = false;
    made.request = wanted;
    line_policy& p = made.policy;
    p = wanted_.fallback ? fallback_policy(n, wide_, wanted_.check) : choose_policy(wanted, device_, *wanted_.tuned);
    p.inverse = one.inverse;
    p.source_unit = source == 1;
    p.target_unit = target == 1;
    if (split_dimensions != others.begin() && !wanted_.fallback) {
      p.source_step = step_of(p, source);
      p.target_step = step_of(p, target);
    }
    p.flat = made.middles == 1 && made.batches == 1;
    p.factors_by_middle = by_middle && twiddles != 0;
    p.transactions = wanted_.transactions;
    if (loads) {
      p.load = one.load;
      made.whole = one.loaded != 0 ? one.loaded : one.length;  // not that of the convolution
      made.unit = one.source_stride;
      if (one.load_table != table_kind::none) p.load_factor = factor_form::table;
      made.load_table = one.load_table;
      p.padded = one.loaded != 0;
      made.loaded = one.loaded;
    }
    if (stores) {
      p.store = one.store;
      p.scaled = one.scaled;
      if (one.store_table != table_kind::none) p.store_factor = factor_form::table;
      made.store_table = one.store_table;
      p.truncated = one.stored != 0;
      made.stored = one.stored;
    }
    if (twiddles != 0) {
      const bool separated = !wanted_.fallback && separates(p, twiddles, made.lines(), device_);
      p.store_factor = separated ? factor_form::separated : factor_form::twiddle;
      made.twiddle_order = twiddles;
    }
    made.convolution = one.convolution;
    made.padded_to = one.padded_to;
    if (one.reals) {
      made.real = wanted_.shape.real;
      p.reals = one.reals->form;
      p.sines = one.reals->sines;
      p.points = static_cast<int>(wanted_.shape.n[2]);
      p = with_room_for_reals(wanted, p, device_);
    }
    if (!wanted_.fallback) limit_registers(p, device_);
    made_.passes.push_back(std::move(made));
  }

  const schedule_request& wanted_;
  const ballast::cuda::capabilities& device_;
  const bool wide_;
  schedule made_;
};

}  // namespace

schedule make_schedule(const schedule_request& wanted, const ballast::cuda::capabilities& device) {
  if (wanted.fallback && wanted.check != check_form::none && wanted.check != check_form::verify_before_store)
    throw unsupported_error("fallback kernels: expected no check, or one before the store");
  schedule made = builder(wanted, device).build();
  fuse_passes(made, wanted, device);
  return made;
}

}  // namespace ballast::fft::cuda
