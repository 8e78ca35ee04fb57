// Selects the pairs of consecutive passes that become one launch. It derives the dependencies of the second pass on the first from the
// addresses of both, and limits the intermediate data in flight so that they stay in the L2 cache.
#include "fft/cuda/plan/fused_passes.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "cuda/device/occupancy.hpp"
#include "fft/cuda/policy/choose_policy.hpp"

namespace ballast::fft::cuda {

namespace {

// Returns the part of the L2 cache that the intermediate data of fused passes may fill.
std::int64_t cache_for_fused(const ballast::cuda::capabilities& device) { return device.l2_cache * 13 / 20; }

// The minimum number of threads on a multiprocessor.
constexpr int k_least_threads = 512;

// Returns the number of elements of a line that are in memory. The others are zero, or mirror images of these.
std::int64_t loaded_of(const pass& p) {
  if (p.policy.load == load_form::half) return p.whole / 2 + 1;
  if (p.policy.load == load_form::spectrum) return p.policy.length + 1;
  return p.policy.padded ? p.loaded : p.policy.length;
}
std::int64_t stored_of(const pass& p) { return p.policy.truncated ? p.stored : p.policy.length + (p.policy.mirrors() ? 1 : 0); }

// Returns whether the same elements of all lines are in memory: positions do not depend on the line.
bool whole_lines(const line_side& s) { return s.position_column == 0 && s.position_middle == 0; }

// Divides lines that were merged into one dimension into `rows` rows again, so that no tile spans two rows. Returns false if they cannot be
// divided like this.
bool divide(pass& p, std::int64_t rows) {
  if (p.middles != 1 || p.batches != 1 || rows == 1 || p.columns % rows != 0) return false;
  if (!whole_lines(p.source) || !whole_lines(p.target)) return false;
  const std::int64_t columns = p.columns / rows;
  const signal_of_index signals = p.signals[0];
  if (signals.modulus > 1 && signals.divisor % columns != 0) return false;
  p.signals[0] = {};
  p.signals[1] = signals.modulus > 1 ? signal_of_index{signals.divisor / columns, signals.modulus} : signal_of_index{};
  p.columns = columns;
  p.middles = rows;
  p.source.middle = columns * p.source.column;
  p.target.middle = columns * p.target.column;
  p.policy.flat = false;
  p.request.columns = columns;
  return true;
}

// Gives `to` the threads, registers and exchanges of `line`.
void take_line(line_policy& to, const line_policy& line) {
  to.staged = false;
  to.split = line.split;
  to.lines = line.lines;
  to.threads = line.threads;
  to.min_blocks = line.min_blocks;
  to.stages = line.stages;
  std::ranges::copy(line.radix, to.radix);
  std::ranges::copy(line.exchange, to.exchange);
}

// Returns the policy with another number of lines per tile, such that a block has `threads`. Returns nullopt if there is none.
std::optional<line_policy> with_block(const line_policy& p, const line_request& wanted, int threads) {
  if (p.block() == threads) return p;
  if (threads % p.threads != 0 || threads > 1024 || threads < 32) return {};
  tuned_line value;
  value.radices.assign(p.radix, p.radix + p.stages);
  value.threads = p.threads;
  value.lines = threads / p.threads;
  value.split = p.split;
  value.min_blocks = std::max(1, p.min_blocks * p.block() / threads);
  if (value.lines < p.lines) return {};
  return make_policy(wanted, value);
}

// Returns the policy by rule, except for long lines. Their threads hold twice as many numbers as in a separate launch, so that a tile has
// enough lines.
line_policy line_for_fused(const line_request& wanted, const ballast::cuda::capabilities& device) {
  const line_policy p = choose_policy(wanted, device, tuning_table::rules());
  if (wanted.check != check_form::none || (wanted.length != 512 && wanted.length != 1024)) return p;
  tuned_line value;
  value.radices.assign(p.radix, p.radix + p.stages);
  value.threads = wanted.length / (wanted.wide ? 16 : 32);
  value.lines = wanted.wide ? 8 : 16;
  constexpr int k_registers = 128;
  value.min_blocks = static_cast<int>(device.registers_per_multiprocessor) / (k_registers * value.threads * value.lines);
  const line_policy made = make_policy(wanted, value);
  return wanted.columns < value.lines || made.shared_bytes() + k_ticket_bytes > device.shared_per_block ? p : made;
}

// Gives both passes policies by rule with the same number of threads per block. Ignores the tuning table: its entries are for passes
// limited by memory bandwidth, where half a cache line of neighbouring lines is enough, while fused passes are limited by the cache.
// Returns false if there are no such policies.
bool agree(pass& first, pass& second, const ballast::cuda::capabilities& device) {
  line_request requests[] = {first.request, second.request};
  line_policy chosen[2];
  for (int i = 0; i < 2; ++i) {
    requests[i].stageable = false;
    chosen[i] = line_for_fused(requests[i], device);
    if (chosen[i].cluster > 1) return false;
  }
  std::optional<std::array<line_policy, 2>> best;
  int least = 0;
  for (const int threads : {chosen[0].block(), chosen[1].block()}) {
    const auto one = with_block(chosen[0], requests[0], threads);
    const auto two = with_block(chosen[1], requests[1], threads);
    if (!one || !two) continue;
    const std::int64_t shared = ticket_offset(*one, *two) + k_ticket_bytes;
    if (shared > device.shared_per_block) continue;
    const int blocks = std::min({one->min_blocks, two->min_blocks, ballast::cuda::blocks_by_shared(shared, device)});
    if (blocks < 1 || (best && blocks * threads <= least)) continue;
    least = blocks * threads;
    best = {*one, *two};
    for (line_policy& each : *best) each.min_blocks = blocks;
  }
  if (!best) return false;
  take_line(first.policy, (*best)[0]);
  take_line(second.policy, (*best)[1]);
  return true;
}

std::int64_t tiles_of_row(const pass& p) { return (p.columns + p.policy.lines - 1) / p.policy.lines; }

// The units of two passes (fused_arguments). units_of returns nullopt if the tiles of the second pass do not divide into such sets.
struct units {
  std::int64_t count, first_tiles, second_tiles, groups;
  std::int64_t elements;  // between units, in the intermediate data
  bool evenly;            // unit u begins at u · elements
};
std::optional<units> units_of(const pass& first, const pass& second) {
  const line_side& to = first.target;
  const line_side& from = second.source;
  const auto equal = [](std::int64_t count, std::int64_t x, std::int64_t y) { return count == 1 || x == y; };
  if (first.batches != second.batches || !equal(first.batches, to.batch, from.batch)) return {};
  const bool lines_cross = to.column == from.element && first.columns == loaded_of(second);
  const bool rows = first.middles == second.middles && equal(first.middles, to.middle, from.middle);
  // A single unit needs room from its first to its last element.
  const std::int64_t extent = (first.columns - 1) * to.column + (stored_of(first) - 1) * to.element + 1;
  if (rows && lines_cross && to.element == from.column && stored_of(first) == second.columns) {
    const bool even = first.batches == 1 || first.middles == 1 || to.batch == first.middles * to.middle;
    return units{first.middles * first.batches,
                 tiles_of_row(first),
                 tiles_of_row(second),
                 1,
                 first.middles > 1   ? to.middle
                 : first.batches > 1 ? to.batch
                                     : extent,
                 even};
  }
  // Both passes have the same lines: a unit is one tile.
  if (rows && to.element == from.element && equal(first.columns, to.column, from.column) && first.columns == second.columns &&
      stored_of(first) == loaded_of(second) && first.policy.lines == second.policy.lines) {
    const std::int64_t count = tiles_of_row(first) * first.middles * first.batches;
    return units{count,
                 1,
                 1,
                 1,
                 count > 1 ? first.policy.lines * to.column : extent,
                 first.middles == 1 && first.batches == 1 && (count == 1 || to.element < to.column)};
  }
  // Rows of the first pass are columns of the second: a unit is a few rows.
  if (lines_cross && to.element == from.middle && stored_of(first) == second.middles && first.middles == second.columns &&
      equal(first.middles, to.middle, from.column) && (first.middles % second.policy.lines == 0 || first.middles < second.policy.lines)) {
    const std::int64_t lines = std::min<std::int64_t>(second.policy.lines, first.middles);
    const std::int64_t groups = first.middles / lines;
    return units{groups * first.batches, lines * tiles_of_row(first),
                 second.middles,         groups,
                 lines * to.middle,      first.batches == 1 || to.batch == first.middles * to.middle};
  }
  return {};
}

// Chooses the lead of the first pass and the slots of the ring. The first pass leads by twice as many tickets as there are blocks, so that
// the tiles that a tile waits for are usually done; a slot is reused after the same number. Returns false if that many units do not fit
// into the cache with enough blocks to keep the multiprocessors busy, unless `always`.
bool assign_units(pass& first, pass& second, const units& found, bool ring, std::int64_t width, bool always,
                  const ballast::cuda::capabilities& device) {
  const std::int64_t tiles = found.first_tiles + found.second_tiles;
  const std::int64_t bytes = first.lines() / found.count * stored_of(first) * width;
  if (found.count * tiles >= std::int64_t{1} << 31 || second.lines() >= std::int64_t{1} << 31) return false;
  std::int64_t far = 0;
  std::int64_t slots = 0;
  int blocks = first.policy.min_blocks;
  for (;; --blocks) {
    if (blocks == 0 || (!always && blocks * first.policy.block() < k_least_threads)) return false;
    far = std::max<std::int64_t>(1, (2 * blocks * device.multiprocessors + tiles / 2) / tiles);
    slots = 2 * far + 1;
    if (always) break;
    slots = std::min(slots, cache_for_fused(device) / bytes);
    if (slots >= 2 * far) break;
  }
  slots = std::min(slots, found.count);
  first.policy.min_blocks = second.policy.min_blocks = blocks;
  fused_arguments made{};
  made.units = static_cast<std::uint32_t>(found.count);
  made.ahead = static_cast<std::uint32_t>(std::min(far, found.count));
  made.slots = static_cast<std::uint32_t>(slots);
  made.first_tiles = static_cast<std::uint32_t>(found.first_tiles);
  made.second_tiles = static_cast<std::uint32_t>(found.second_tiles);
  made.groups = static_cast<std::uint32_t>(found.groups);
  made.unit_elements = found.elements;
  made.slot_elements = ring ? found.elements : 0;
  first.pair = made;
  return true;
}

// Returns whether fusing was measured to be clearly faster than two launches (docs/design/fft-cuda.md): large batches of whole lines of
// these lengths, unprotected.
bool pays(const pass& first, const pass& second, const fused_arguments& pair, const ballast::cuda::capabilities& device) {
  const line_policy& p = first.policy;
  if (device.major != 9 || p.check != check_form::none || pair.slot_elements == 0 || pair.units < 4 * pair.slots) return false;
  if (p.load != load_form::complex || second.policy.store != store_form::complex || p.load_factor != factor_form::none) return false;
  if (second.policy.store_factor != factor_form::none || first.source.column != 1 || second.target.column != 1) return false;
  if (first.twiddle_order != std::int64_t{p.length} * second.policy.length) return false;
  return first.twiddle_order == 1 << 18 || (first.twiddle_order == 1 << 20 && !p.wide);
}

bool try_fusing(pass& first, pass& second, const schedule_request& wanted, const ballast::cuda::capabilities& device) {
  if (first.whole_line || second.whole_line) return false;
  if (first.to != second.from || !first.repeats.empty() || !second.repeats.empty()) return false;
  // The second pass of one unit must not overwrite data that the first pass of another unit has still to read. Calls in place are safe.
  if (first.from == second.to && first.from != pass_buffer::input && first.from != pass_buffer::output) return false;
  // In half spectra and padded lines of a split axis, different elements of each line are in memory.
  if (first.policy.truncated && !whole_lines(first.target)) return false;
  if ((second.policy.padded || second.policy.load == load_form::half) && !whole_lines(second.source)) return false;
  pass one = first;
  pass two = second;
  if (two.batches == 1) (void)divide(one, two.middles);
  if (one.batches == 1) (void)divide(two, one.middles);
  if (!agree(one, two, device)) return false;
  const auto found = units_of(one, two);
  if (!found) return false;
  const bool ring = one.to != pass_buffer::input && one.to != pass_buffer::output && found->evenly;
  const bool always = wanted.pairs == fusion::wherever_possible;
  const std::int64_t width = wanted.precision == precision::f32 ? 8 : 16;
  if (!assign_units(one, two, *found, ring, width, always, device)) return false;
  if (!always && !pays(one, two, *one.pair, device)) return false;
  one.policy.shared_target = two.policy.shared_source = true;
  if (ring) one.to = two.from = pass_buffer::ring;
  first = std::move(one);
  second = std::move(two);
  return true;
}

std::atomic<fusion> chosen{fusion::where_it_pays};

}  // namespace

void override_fusion(fusion which) { chosen = which; }
fusion chosen_fusion() { return chosen; }

void fuse_passes(schedule& made, const schedule_request& wanted, const ballast::cuda::capabilities& device) {
  if (wanted.pairs == fusion::never || wanted.plain || wanted.fallback) return;
  if (wanted.check == check_form::composite || wanted.check == check_form::one_sided) return;
  auto& passes = made.passes;
  for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
    if (!try_fusing(passes[i], passes[i + 1], wanted, device)) continue;
    const fused_arguments& p = *passes[i].pair;
    std::int64_t& elements = made.elements[static_cast<std::size_t>(pass_buffer::ring)];
    if (passes[i].to == pass_buffer::ring) elements = std::max(elements, p.slots * p.slot_elements);
    ++i;
  }
  for (const pass_buffer part : {pass_buffer::split, pass_buffer::convolved, pass_buffer::spectrum}) {
    const auto used = [&](const pass& each) { return each.from == part || each.to == part; };
    if (std::ranges::none_of(passes, used)) made.elements[static_cast<std::size_t>(part)] = 0;
  }
}

}  // namespace ballast::fft::cuda
