// Chooses position, element and bits, all from (seed, fault number), and applies the fault models to bit patterns.
#include "inject/injector.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <ballast/error.hpp>

#include "core/counter_rng.hpp"
#include "core/format.hpp"

namespace ballast::inject {

fault_injector::fault_injector(const plan* faults, const site_table& sites) {
  if (faults == nullptr) return;
  const auto add = [&](const request& what, std::uint64_t number) {
    auto made = std::make_unique<fault>();
    made->what = what;
    made->number = number;
    armed_ |= std::uint64_t{1} << bit_of(what.site);
    faults_.push_back(std::move(made));
  };
  for (const request& wanted : faults->requests()) {
    const site_row& row = row_of(wanted.site);
    if (!row.operation().empty() && row.operation() != sites.operation)
      throw invalid_argument_error(fmt::format("inject: site: expected one of the operation {}, got {}", sites.operation, row.name));
    for (int i = 0; i < wanted.count; ++i) {
      add(wanted, static_cast<std::uint64_t>(i));
      if (row.role == site_role::repair) {
        request carrier = wanted;
        carrier.site = sites.carrier;
        carrier.model = model::bit_flip;
        carrier.bit = 62;  // the top exponent bit, or for 32-bit words bit 30 (see bit_of)
        add(carrier, static_cast<std::uint64_t>(i));
      }
    }
  }
}

bool fault_injector::waits_at(site where) const noexcept {
  return std::ranges::any_of(faults_, [&](const auto& each) { return each->what.site == where; });
}

std::int64_t fault_injector::fired() const noexcept {
  return std::ranges::count_if(faults_, [](const auto& each) { return each->fired.load(); });
}

namespace {

// Independent draws for one fault.
enum draw : std::uint64_t { k_draw_interval, k_draw_step, k_draw_element, k_draw_bit, k_draw_bits, k_draw_value };

// Returns the bit to strike: the requested or a drawn one. A 64-bit position in a 32-bit word means the same distance from the top.
int bit_of(const request& what, std::uint64_t drawn, int width) {
  if (what.bit < 0) return static_cast<int>(drawn % static_cast<unsigned>(width));
  return what.bit < width ? what.bit : what.bit - (64 - width);
}

std::uint64_t special_pattern(model which, int width) {
  using f32 = std::numeric_limits<float>;
  using f64 = std::numeric_limits<double>;
  if (width == 32) {
    const float value = which == model::nan ? f32::quiet_NaN() : which == model::infinity ? f32::infinity() : -f32::infinity();
    return std::bit_cast<std::uint32_t>(value);
  }
  const double value = which == model::nan ? f64::quiet_NaN() : which == model::infinity ? f64::infinity() : -f64::infinity();
  return std::bit_cast<std::uint64_t>(value);
}

// Returns a mask of 3 to 8 different bits of a word.
std::uint64_t several_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t drawn, int width) {
  std::uint64_t mask = 0;
  const int wanted = 3 + static_cast<int>(drawn % 6);
  for (std::uint64_t i = 1; std::popcount(mask) < wanted; ++i)
    mask |= std::uint64_t{1} << (core::random_bits(seed, stream, i) % static_cast<unsigned>(width));
  return mask;
}

}  // namespace

std::vector<device_fault> fault_injector::for_device() const {
  std::vector<device_fault> made;
  for (const auto& each : faults_) {
    const fault& f = *each;
    const auto drawn = [&](draw which) { return core::random_bits(f.what.seed, (f.number << 8) + which, 0); };
    device_fault out;
    out.site = f.what.site;
    out.interval = f.what.interval >= 0 ? static_cast<std::uint64_t>(f.what.interval) : drawn(k_draw_interval) >> 1;
    out.step = drawn(k_draw_step) >> 1;
    out.element = drawn(k_draw_element) >> 1;
    out.visit = f.what.visit;
    const auto mask = [&](int width) -> std::uint64_t {
      const int bit = bit_of(f.what, drawn(k_draw_bit), width);
      switch (f.what.model) {
        case model::two_bits: return std::uint64_t{3} << std::min(bit, width - 2);
        case model::random_bits: return several_bits(f.what.seed, (f.number << 8) + k_draw_bits, drawn(k_draw_bits), width);
        case model::stuck_at: return std::uint64_t{1} << (f.what.bit >= 0 ? bit_of(f.what, 0, width) : width - 2);
        default: return std::uint64_t{1} << bit;
      }
    };
    out.mask32 = mask(32);
    out.mask64 = mask(64);
    switch (f.what.model) {
      case model::bit_flip:
      case model::two_bits:
      case model::random_bits: out.action = device_fault::flip; break;
      case model::vector_mask: out.action = device_fault::flip_neighbours; break;
      case model::stuck_at: out.action = device_fault::stick; break;
      case model::zero: out.action = device_fault::replace; break;
      case model::random_value:
        out.action = device_fault::replace;
        out.value = drawn(k_draw_value);
        out.value32 = static_cast<std::uint32_t>(out.value);
        break;
      case model::infinity:
      case model::negative_infinity:
      case model::nan:
        out.action = device_fault::replace;
        out.value = special_pattern(f.what.model, 64);
        out.value32 = static_cast<std::uint32_t>(special_pattern(f.what.model, 32));
        break;
    }
    made.push_back(out);
  }
  return made;
}

bool fault_injector::strike_words(site where, const position& here, void* data, std::int64_t count, int bytes, bool floating) noexcept {
  const int width = 8 * bytes;
  auto* const base = static_cast<unsigned char*>(data);
  const auto load = [&](std::int64_t i) {
    std::uint64_t word = 0;
    std::memcpy(&word, base + i * bytes, static_cast<std::size_t>(bytes));
    return word;
  };
  const auto store = [&](std::int64_t i, std::uint64_t word) { std::memcpy(base + i * bytes, &word, static_cast<std::size_t>(bytes)); };

  bool struck = false;
  for (const auto& each : faults_) {
    fault& f = *each;
    if (f.what.site != where) continue;
    const auto drawn = [&](draw which) { return core::random_bits(f.what.seed, (f.number << 8) + which, 0); };
    const std::int64_t interval =
        (f.what.interval >= 0 ? f.what.interval : static_cast<std::int64_t>(drawn(k_draw_interval) >> 1)) % here.intervals;
    const std::int64_t step = static_cast<std::int64_t>(drawn(k_draw_step) >> 1) % here.steps;
    if (interval != here.interval || step != here.step) continue;
    if (f.visits.fetch_add(1) < f.what.visit) continue;
    const bool persistent = f.what.model == model::stuck_at;
    if (f.fired.exchange(true) && !persistent) continue;
    struck = true;

    const std::int64_t element = static_cast<std::int64_t>(drawn(k_draw_element) >> 1) % count;
    const int bit = bit_of(f.what, drawn(k_draw_bit), width);
    const std::uint64_t word = load(element);
    switch (f.what.model) {
      case model::bit_flip: store(element, word ^ (std::uint64_t{1} << bit)); break;
      case model::two_bits: {
        const int low = std::min(bit, width - 2);
        store(element, word ^ (std::uint64_t{3} << low));
        break;
      }
      case model::random_bits: {
        store(element, word ^ several_bits(f.what.seed, (f.number << 8) + k_draw_bits, drawn(k_draw_bits), width));
        break;
      }
      case model::random_value: store(element, drawn(k_draw_value)); break;
      case model::zero: store(element, 0); break;
      case model::stuck_at: {
        const int at = f.what.bit >= 0 || !floating ? bit_of(f.what, f.what.bit >= 0 ? 0 : 30, width) : width - 2;
        const std::uint64_t mask = std::uint64_t{1} << at;
        std::uint64_t expected = 0;
        f.stuck.compare_exchange_strong(expected, 2 + ((word & mask) == 0 ? 1 : 0));
        store(element, f.stuck.load() == 3 ? word | mask : word & ~mask);
        break;
      }
      case model::infinity:
      case model::negative_infinity:
      case model::nan: store(element, special_pattern(f.what.model, width)); break;
      case model::vector_mask: {
        const std::int64_t first = element / 16 * 16;
        for (std::int64_t i = first; i < std::min(first + 16, count); ++i) store(i, load(i) ^ (std::uint64_t{1} << bit));
        break;
      }
    }
  }
  return struck;
}

}  // namespace ballast::inject
