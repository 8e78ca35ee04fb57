// Problems and their tokens. The parser is strict: it rejects any text that to_token would not write.
#include "fft/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "core/token.hpp"

namespace ballast::fft {
inline namespace abi_1 {

std::string_view to_string(kind value) noexcept {
  switch (value) {
    case kind::c2c: return "c2c";
    case kind::r2c: return "r2c";
    case kind::c2r: return "c2r";
    case kind::r2r: return "r2r";
  }
  return "?";
}

namespace {

constexpr std::array<std::string_view, 11> k_real_kinds = {"r2hc", "hc2r", "dht",  "dct1", "dct2", "dct3",
                                                           "dct4", "dst1", "dst2", "dst3", "dst4"};

}  // namespace

std::string_view to_string(real_kind value) noexcept {
  const auto number = static_cast<std::size_t>(value);
  return number < k_real_kinds.size() ? k_real_kinds[number] : "?";
}

real_kind inverse_of(real_kind value) noexcept {
  switch (value) {
    case real_kind::r2hc: return real_kind::hc2r;
    case real_kind::hc2r: return real_kind::r2hc;
    case real_kind::dct2: return real_kind::dct3;
    case real_kind::dct3: return real_kind::dct2;
    case real_kind::dst2: return real_kind::dst3;
    case real_kind::dst3: return real_kind::dst2;
    default: return value;
  }
}

std::int64_t logical_length(real_kind value, std::int64_t n) noexcept {
  switch (value) {
    case real_kind::r2hc:
    case real_kind::hc2r:
    case real_kind::dht: return n;
    case real_kind::dct1: return 2 * (n - 1);
    case real_kind::dst1: return 2 * (n + 1);
    default: return 2 * n;
  }
}

std::string_view to_string(direction value) noexcept { return value == direction::forward ? "forward" : "inverse"; }

std::string_view to_string(norm value) noexcept {
  switch (value) {
    case norm::backward: return "backward";
    case norm::ortho: return "ortho";
    case norm::forward: return "forward";
  }
  return "?";
}

namespace {

// The number of signals of all loops; nullopt if it does not fit into 63 bits.
std::optional<std::int64_t> signals_of(const problem& value) {
  std::int64_t total = value.batch;
  for (const loop& each : value.loops) {
    if (__builtin_mul_overflow(total, each.count, &total)) return std::nullopt;
  }
  return total;
}

std::string kind_text(const problem& value) {
  if (value.kind != kind::r2r || value.real_kinds.empty()) return std::string(to_string(value.kind));
  std::string made(to_string(value.real_kinds.front()));
  if (std::ranges::count(value.real_kinds, value.real_kinds.front()) == std::ssize(value.real_kinds)) return made;
  for (std::size_t i = 1; i < value.real_kinds.size(); ++i) made.append("x").append(to_string(value.real_kinds[i]));
  return made;
}

}  // namespace

std::string to_token(const problem& value, direction way) {
  return fmt::format("fft_{}_{}_n{}_b{}_{}", kind_text(value), to_string(value.precision), core::join(value.shape, "x"),
                     signals_of(value).value_or(value.batch), way == direction::forward ? "fwd" : "inv");
}

namespace {

// Returns the bytes of all signals, real or complex, whichever is larger. Returns nullopt if they do not fit into 63 bits.
std::optional<std::int64_t> total_bytes(const problem& value) {
  std::int64_t total = value.precision == precision::f32 ? 8 : 16;
  for (const std::int64_t n : value.shape) {
    // A half spectrum has up to one element more than half of the real length: n + 2 bounds both sides.
    if (n > std::numeric_limits<std::int64_t>::max() - 2 || __builtin_mul_overflow(total, value.kind == kind::c2c ? n : n + 2, &total))
      return std::nullopt;
  }
  const auto signals = signals_of(value);
  if (!signals || __builtin_mul_overflow(total, *signals, &total)) return std::nullopt;
  return total;
}

void check_sizes(const problem& value, std::string_view token) {
  if (value.shape.empty()) throw invalid_argument_error(fmt::format("{}: shape: expected at least one length, got none", token));
  for (const std::int64_t n : value.shape) {
    if (n < 1) throw invalid_argument_error(fmt::format("{}: shape: expected lengths of at least 1, got {}", token, n));
  }
  if (value.batch < 1) throw invalid_argument_error(fmt::format("{}: batch: expected at least 1, got {}", token, value.batch));
  for (const loop& each : value.loops) {
    if (each.count < 1) throw invalid_argument_error(fmt::format("{}: loops: expected counts of at least 1, got {}", token, each.count));
  }
  const std::size_t kinds = value.kind == kind::r2r ? value.shape.size() : 0;
  if (value.real_kinds.size() != kinds)
    throw invalid_argument_error(
        fmt::format("{}: real_kinds: expected {}, got {}", token, kinds == 0 ? "none" : "one for each axis", value.real_kinds.size()));
  for (std::size_t i = 0; i < kinds; ++i) {
    if (value.real_kinds[i] == real_kind::dct1 && value.shape[i] < 2)
      throw invalid_argument_error(fmt::format("{}: shape: expected at least 2 points for dct1, got {}", token, value.shape[i]));
    if (value.shape[i] > std::int64_t{1} << 30)
      throw invalid_argument_error(fmt::format("{}: shape: expected at most 2^30 points for r2r, got {}", token, value.shape[i]));
  }
  if (value.split && value.kind == kind::r2r)
    throw invalid_argument_error(fmt::format("{}: split: expected a transform with complex data, got r2r", token));
  if (!total_bytes(value))
    throw invalid_argument_error(fmt::format("{}: shape and batch: expected less than 2^63 bytes in all, got more", token));
}

}  // namespace

token parse_token(std::string_view text) {
  core::token_reader reader(text, "fft_c2c_f32_n1024_b16384_fwd");
  token made;
  reader.skip("fft_");
  const auto named = [&](auto name) { return reader.at(name); };
  constexpr std::array kinds = {kind::c2c, kind::r2c, kind::c2r};
  const auto* const found = std::ranges::find_if(kinds, [&](kind each) { return named(to_string(each)); });
  if (found != kinds.end()) {
    made.problem.kind = *found;
    reader.skip(to_string(*found));
  } else {
    made.problem.kind = kind::r2r;
    do {
      if (!made.problem.real_kinds.empty()) reader.skip("x");
      const auto* const real = std::ranges::find_if(k_real_kinds, named);
      if (real == k_real_kinds.end()) throw reader.refusal("a kind: c2c, r2c, c2r, r2hc, hc2r, dht, dct1 to dct4 or dst1 to dst4");
      made.problem.real_kinds.push_back(static_cast<real_kind>(real - k_real_kinds.begin()));
      reader.skip(*real);
    } while (reader.at("x"));
  }
  reader.skip("_");
  made.problem.precision = reader.precision();
  made.problem.shape.push_back(reader.number("_n"));
  while (reader.at("x")) made.problem.shape.push_back(reader.number("x"));
  if (std::vector<real_kind>& kinds_given = made.problem.real_kinds; made.problem.kind == kind::r2r) {
    if (kinds_given.size() == 1)
      kinds_given.assign(made.problem.shape.size(), kinds_given.front());
    else if (kinds_given.size() != made.problem.shape.size() || kind_text(made.problem).find('x') == std::string::npos)
      throw reader.refusal("one kind for each length, or one if they are all the same");
  }
  made.problem.batch = reader.number("_b");
  made.direction = reader.at("_inv") ? direction::inverse : direction::forward;
  reader.skip(made.direction == direction::inverse ? "_inv" : "_fwd");
  reader.end();
  if ((made.problem.kind == kind::r2c || made.problem.kind == kind::c2r) && made.direction != natural_direction(made.problem.kind))
    throw reader.refusal(made.problem.kind == kind::r2c ? "the direction fwd for r2c" : "the direction inv for c2r");
  if (!total_bytes(made.problem)) throw reader.refusal("less than 2^63 bytes in all");
  return made;
}

}  // namespace abi_1

direction natural_direction(kind value) { return value == kind::c2r ? direction::inverse : direction::forward; }

std::int64_t array_problem::points() const {
  std::int64_t total = 1;
  for (const axis& each : axes) total *= each.n;
  return total;
}

std::int64_t array_problem::signals() const {
  std::int64_t total = 1;
  for (const loop& each : loops) total *= each.count;
  return total;
}

namespace {

struct dimension {
  std::int64_t count, stride;
};

// Returns where the elements of one side lie. Sorted by the size of their strides, the dimensions of an output step over the elements of
// those before.
array_side place(std::vector<dimension> all, bool real, bool distinct, std::string_view name, std::string_view token) {
  array_side made;
  made.real = real;
  std::erase_if(all, [](const dimension& each) { return each.count == 1; });
  constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max() / 16;
  for (const dimension& each : all) {
    if (each.stride > k_most || each.stride < -k_most)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected an extent of less than 2^63 bytes, got more (stride {})", token, name, each.stride));
  }
  std::ranges::stable_sort(all, {}, [](const dimension& each) { return std::abs(each.stride); });
  for (const dimension& each : all) {
    const std::int64_t size = std::abs(each.stride);
    if (distinct && size < 1)
      throw invalid_argument_error(fmt::format("{}: {}: expected strides and distances other than 0, got {}", token, name, each.stride));
    if (distinct && size < made.extent)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected each stride (or distance) to step over the {} elements of the dimensions with smaller ones, "
                      "got {}",
                      token, name, made.extent, each.stride));
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(each.count - 1, size, &reach) || __builtin_add_overflow(made.extent, reach, &made.extent) ||
        made.extent > k_most)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected an extent of less than 2^63 bytes, got more (stride {})", token, name, each.stride));
    if (each.stride < 0) made.first += reach;
  }
  return made;
}

// Returns the strides of a side's axes, and the distance of its signals in the last place.
std::vector<std::int64_t> strides_of(const layout& given, const std::vector<std::int64_t>& lengths, std::string_view name,
                                     std::string_view token) {
  if (!given.strides.empty() && given.strides.size() != lengths.size())
    throw invalid_argument_error(
        fmt::format("{}: {}: expected one stride for each of {} axes or none, got {}", token, name, lengths.size(), given.strides.size()));
  std::vector<std::int64_t> made = given.strides;
  std::int64_t elements = 1;
  if (made.empty()) {
    made.resize(lengths.size());
    for (std::size_t i = lengths.size(); i-- > 0; elements *= lengths[i]) made[i] = elements;
  }
  made.push_back(given.strides.empty() && given.distance == 0 ? elements : given.distance);
  return made;
}

}  // namespace

array_problem describe(const problem& value) {
  const std::string token = to_token(value, natural_direction(value.kind));
  check_sizes(value, token);
  array_problem made;
  made.kind = value.kind;
  std::vector<std::int64_t> in_lengths = value.shape, out_lengths = value.shape;
  if (value.kind == kind::r2c) out_lengths.back() = out_lengths.back() / 2 + 1;
  if (value.kind == kind::c2r) in_lengths.back() = in_lengths.back() / 2 + 1;
  const auto in = strides_of(value.input, in_lengths, "input", token), out = strides_of(value.output, out_lengths, "output", token);
  std::vector<dimension> from, to;
  for (std::size_t i = 0; i < value.shape.size(); ++i) {
    made.axes.push_back(
        {value.shape[i], in_lengths[i], out_lengths[i], in[i], out[i], value.kind == kind::r2r ? value.real_kinds[i] : real_kind::r2hc});
    from.push_back({in_lengths[i], in[i]});
    to.push_back({out_lengths[i], out[i]});
  }
  made.split = value.split;
  made.loops = value.loops;
  made.loops.push_back({value.batch, in.back(), out.back()});
  for (const loop& each : made.loops) {
    from.push_back({each.count, each.input});
    to.push_back({each.count, each.output});
  }
  made.input = place(std::move(from), value.kind == kind::r2c || value.kind == kind::r2r, false, "input", token);
  made.output = place(std::move(to), value.kind == kind::c2r || value.kind == kind::r2r, true, "output", token);
  return made;
}

std::int64_t nested_geometry::runs() const {
  std::int64_t total = 1;
  for (const nest_loop& each : outer) total *= each.count;
  return total;
}

std::int64_t nested_geometry::output_elements() const {
  const auto& length = inner.output.length;
  return length[0] * length[1] * length[2] * inner.batch * runs();
}

nested_geometry::place nested_geometry::begin_of(std::int64_t run) const {
  place made{input.first, output.first, 0};
  for (std::size_t i = outer.size(); i-- > 0; run /= outer[i].count) {
    const std::int64_t step = run % outer[i].count;
    made.input += step * outer[i].input;
    made.output += step * outer[i].output;
    made.number += step * outer[i].number;
  }
  return made;
}

namespace {

// Loops of one signal do nothing, and a loop whose distances continue those of the next one is one loop with it.
std::vector<nest_loop> merged(const std::vector<loop>& given) {
  std::int64_t number = 1;
  for (const loop& each : given) number *= each.count;
  std::vector<nest_loop> made;
  for (const loop& each : given) {
    number /= each.count;
    if (each.count == 1) continue;
    if (!made.empty() && made.back().input == each.input * each.count && made.back().output == each.output * each.count)
      made.back() = {made.back().count * each.count, each.input, each.output, number};
    else
      made.push_back({each.count, each.input, each.output, number});
  }
  return made;
}

}  // namespace

std::optional<nested_geometry> nest_of(const array_problem& value, strides_taken by) {
  if (value.kind == kind::r2r) return std::nullopt;
  std::vector<axis> axes = value.axes;
  if (axes.size() > 3) {
    const axis last = axes.back();  // may store a half spectrum
    axes.pop_back();
    std::erase_if(axes, [](const axis& each) { return each.n == 1; });
    axes.push_back(last);
  }
  if (axes.size() > 3) return std::nullopt;
  const bool any = by == strides_taken::any;
  for (axis& each : axes) {
    if (!any && ((each.in_length > 1 && each.in_stride < 1) || (each.out_length > 1 && each.out_stride < 1))) return std::nullopt;
  }
  nested_geometry made;
  made.outer = merged(value.loops);
  made.input = value.input;
  made.output = value.output;
  // The transform takes the longest loop whose strides it takes.
  nest_loop batch{1, value.loops.back().input, value.loops.back().output, 1};
  auto longest = made.outer.end();
  for (auto each = made.outer.begin(); each != made.outer.end(); ++each) {
    if ((any || (each->input >= 1 && each->output >= 1)) && (longest == made.outer.end() || each->count >= longest->count)) longest = each;
  }
  if (longest != made.outer.end()) {
    batch = *longest;
    made.batch_number = batch.number;
    made.outer.erase(longest);
  }
  geometry& inner = made.inner;
  inner.kind = value.kind;
  inner.batch = batch.count;
  inner.input.length = inner.output.length = {1, 1, 1};
  inner.input.stride = inner.output.stride = {1, 1, 1};
  std::vector<dimension> from = {{batch.count, batch.input}}, to = {{batch.count, batch.output}};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t place = 3 - axes.size() + i;
    inner.n[place] = axes[i].n;
    inner.input.length[place] = axes[i].in_length;
    inner.output.length[place] = axes[i].out_length;
    inner.input.stride[place] = axes[i].in_stride;
    inner.output.stride[place] = axes[i].out_stride;
    from.push_back({axes[i].in_length, axes[i].in_stride});
    to.push_back({axes[i].out_length, axes[i].out_stride});
  }
  // Axes that the problem does not have: their strides, which nothing steps by, are those of a contiguous array.
  for (side* const each : {&inner.input, &inner.output}) {
    bool contiguous = true;
    std::int64_t elements = 1;
    for (std::size_t i = 3; i-- > 3 - axes.size(); elements *= each->length[i]) contiguous = contiguous && each->stride[i] == elements;
    for (std::size_t i = 0; contiguous && i < 3 - axes.size(); ++i) each->stride[i] = elements;
  }
  inner.input.real = value.input.real;
  inner.output.real = value.output.real;
  inner.input.distance = batch.input;
  inner.output.distance = batch.output;
  inner.input.extent = place(std::move(from), inner.input.real, false, "input", "fft").extent;
  inner.output.extent = place(std::move(to), inner.output.real, false, "output", "fft").extent;
  return made;
}

double norm_factor(const array_problem& value, norm wanted, direction way) {
  double points = 1;
  for (const axis& each : value.axes) points *= static_cast<double>(value.kind == kind::r2r ? logical_length(each.what, each.n) : each.n);
  if (wanted == norm::ortho) return 1 / std::sqrt(points);
  return wanted == (way == direction::forward ? norm::forward : norm::backward) ? 1 / points : 1;
}

geometry resolve(const problem& value) {
  const auto made = nest_of(describe(value));
  if (!made || !made->outer.empty() || made->input.first != 0 || made->output.first != 0)
    throw invalid_argument_error(fmt::format("{}: expected one loop over forward arrays of at most three axes, got another problem",
                                             to_token(value, natural_direction(value.kind))));
  return made->inner;
}

double nominal_flops(const array_problem& value) {
  double flops = 0;
  for (const axis& each : value.axes) {
    const std::int64_t n = each.n;
    if (n == 1) continue;
    std::int64_t rest = n;
    for (std::int64_t factor = 2; factor <= 13; ++factor) {
      while (rest % factor == 0) rest /= factor;
    }
    flops += (value.kind == kind::c2c ? 5 : 2.5) * std::log2(static_cast<double>(n)) * (rest == 1 ? 1 : 3);
  }
  return flops * static_cast<double>(value.points()) * static_cast<double>(value.signals());
}

}  // namespace ballast::fft
