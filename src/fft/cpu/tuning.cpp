// Reads and writes the table, and names this processor.
#include "fft/cpu/tuning.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <istream>
#include <ostream>
#include <sstream>

#include <hwy/targets.h>

#include "fft/problem.hpp"

namespace ballast::fft::cpu {
namespace {

using ballast::cuda::unknown_tuning;

constexpr int k_most_threads = 4096;

// Returns the numbers of "512x128": exactly `count`, each at least `least`.
std::vector<std::int64_t> read_lengths(const std::string& text, std::size_t count, std::int64_t least, const char* expected) {
  std::vector<std::int64_t> made;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    std::int64_t one = 0;
    const auto seen = std::from_chars(at, end, one);
    if (seen.ec != std::errc{} || one < least) throw unknown_tuning(expected);
    made.push_back(one);
    at = seen.ptr;
    if (at == end) break;
    if (*at++ != 'x') throw unknown_tuning(expected);
  }
  if (made.size() != count) throw unknown_tuning(expected);
  return made;
}

template <class Enum>
Enum read_name(const std::string& text, int count, const char* expected) {
  for (int i = 0; i < count; ++i) {
    if (text == to_string(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw unknown_tuning(expected);
}

// The maker, family and model of the processor, or the name of the architecture.
std::string processor_here() {
#if defined(__x86_64__)
  std::array<unsigned, 4> r{};
  if (__get_cpuid(0, &r[0], &r[1], &r[2], &r[3]) != 0) {
    std::string made;
    for (const unsigned word : {r[1], r[3], r[2]}) {
      for (int byte = 0; byte < 4; ++byte) made += static_cast<char>(word >> (8 * byte) & 255);
    }
    std::ranges::replace_if(
        made, [](char c) { return c <= ' ' || c > '~'; }, '_');
    if (__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) != 0) {
      const unsigned base = r[0] >> 8 & 15;
      const unsigned family = base + (base == 15 ? r[0] >> 20 & 255 : 0);
      const unsigned model = (r[0] >> 4 & 15) + (base == 6 || base == 15 ? (r[0] >> 16 & 15) << 4 : 0);
      return made + "-" + std::to_string(family) + "-" + std::to_string(model);
    }
  }
#endif
  utsname about{};
  return uname(&about) == 0 ? about.machine : "unknown";
}

std::string target_here() {
  const auto usable = static_cast<std::int64_t>(hwy::SupportedTargets() & HWY_TARGETS);
  return hwy::TargetName(static_cast<std::uint32_t>(usable & -usable));
}

}  // namespace

void choice_form::read(std::istream& words, key& at, value& entry) {
  std::string kinds, type, lengths, checked, how, factors, share;
  choice& chosen = entry.chosen;
  if (!(words >> at.target >> at.processor >> at.threads >> kinds >> type >> lengths >> at.batch >> checked >> how >> factors >> share >>
        chosen.threads >> entry.gain))
    throw unknown_tuning("13 fields");
  if (std::string rest; words >> rest) throw unknown_tuning("13 fields");
  if (at.threads < 1 || at.threads > k_most_threads) throw unknown_tuning("1 to 4096 threads of the plan");
  at.kind = read_name<fft::kind>(kinds, 3, "c2c, r2c or c2r");
  if (type != "f32" && type != "f64") throw unknown_tuning("f32 or f64");
  at.wide = type == "f64";
  std::ranges::copy(read_lengths(lengths, 3, 1, "three lengths like 1x320x320"), at.n.begin());
  if (at.batch < 1) throw unknown_tuning("at least one signal");
  if (checked != "checked" && checked != "unchecked") throw unknown_tuning("checked or unchecked");
  at.checked = checked == "checked";
  chosen.how = read_name<method>(how, 6, "tile, matrix, half_matrix, volume, convolution or signal_pairs");
  const auto of = read_lengths(factors, 2, 0, "two factors like 512x128");
  chosen.n1 = of[0];
  chosen.n2 = of[1];
  const bool matrix = chosen.how == method::matrix || chosen.how == method::half_matrix ||
                      (chosen.how == method::signal_pairs && (chosen.n1 != 0 || chosen.n2 != 0));
  const std::int64_t points = !matrix ? 0 : chosen.how == method::half_matrix ? at.n[2] / 2 : at.n[2];
  if (matrix ? chosen.n1 < 1 || chosen.n2 < 1 || chosen.n1 > points / chosen.n2 || chosen.n1 * chosen.n2 != points
             : chosen.n1 != 0 || chosen.n2 != 0)
    throw unknown_tuning("factors whose product is the length, of pairs for half_matrix, and 0x0 for other methods");
  chosen.share = read_name<sharing>(share, 3, "by_size, signals or tiles");
  if (chosen.threads < 0 || chosen.threads > at.threads) throw unknown_tuning("at most the plan's threads");
  if (!(entry.gain > 0)) throw unknown_tuning("a gain above 0");
}

void choice_form::write(std::ostream& to, const key& at, const value& entry) {
  const choice& chosen = entry.chosen;
  to << at.target << ' ' << at.processor << ' ' << at.threads << ' ' << to_string(at.kind) << (at.wide ? " f64 " : " f32 ") << at.n[0]
     << 'x' << at.n[1] << 'x' << at.n[2] << ' ' << at.batch << (at.checked ? " checked " : " unchecked ") << to_string(chosen.how) << ' '
     << chosen.n1 << 'x' << chosen.n2 << ' ' << to_string(chosen.share) << ' ' << chosen.threads << ' ' << entry.gain;
}

const choice_table& installed_choices() {
  static const choice_table made = choice_table::installed();
  return made;
}

std::optional<choice_form::key> key_of(const geometry& shape, precision type, bool protect, int threads) {
  fft::problem dense{.kind = shape.kind, .precision = type, .shape = {shape.n.begin(), shape.n.end()}, .batch = shape.batch};
  const geometry expected = resolve(dense);
  if (expected.input != shape.input || expected.output != shape.output) return std::nullopt;
  static const std::string target = target_here(), processor = processor_here();
  return choice_form::key{target, processor, threads, shape.kind, type == precision::f64, shape.n, shape.batch, protect};
}

choice choose(const geometry& shape, precision type, bool protect, int threads, const choice_table& table) {
  const choice rule = choose_by_rule(shape, type);
  if (table.entries().empty()) return rule;
  const auto at = key_of(shape, type, protect, threads);
  const auto found = at ? table.find(*at) : std::nullopt;
  if (!found) return rule;
  choice wanted = found->chosen;
  wanted.threads = 0;
  const auto known = candidates(shape, type, threads);
  return std::ranges::find(known, wanted) == known.end() ? rule : found->chosen;
}

}  // namespace ballast::fft::cpu
