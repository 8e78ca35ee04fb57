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
  }
  return "?";
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

std::string to_token(const problem& value, direction way) {
  return fmt::format("fft_{}_{}_n{}_b{}_{}", to_string(value.kind), to_string(value.precision), core::join(value.shape, "x"), value.batch,
                     way == direction::forward ? "fwd" : "inv");
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
  if (__builtin_mul_overflow(total, value.batch, &total)) return std::nullopt;
  return total;
}

void check_sizes(const problem& value, std::string_view token) {
  if (value.shape.empty() || value.shape.size() > 3)
    throw invalid_argument_error(fmt::format("{}: shape: expected 1 to 3 lengths, got {}", token, value.shape.size()));
  for (const std::int64_t n : value.shape) {
    if (n < 1) throw invalid_argument_error(fmt::format("{}: shape: expected lengths of at least 1, got {}", token, n));
  }
  if (value.batch < 1) throw invalid_argument_error(fmt::format("{}: batch: expected at least 1, got {}", token, value.batch));
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
  if (found == kinds.end()) throw reader.refusal("the kind c2c, r2c or c2r");
  made.problem.kind = *found;
  reader.skip(to_string(*found));
  reader.skip("_");
  made.problem.precision = reader.precision();
  made.problem.shape.push_back(reader.number("_n"));
  while (reader.at("x")) made.problem.shape.push_back(reader.number("x"));
  if (made.problem.shape.size() > 3) throw reader.refusal("1 to 3 lengths");
  made.problem.batch = reader.number("_b");
  made.direction = reader.at("_inv") ? direction::inverse : direction::forward;
  reader.skip(made.direction == direction::inverse ? "_inv" : "_fwd");
  reader.end();
  if (made.problem.kind != kind::c2c && made.direction != natural_direction(made.problem.kind))
    throw reader.refusal(made.problem.kind == kind::r2c ? "the direction fwd for r2c" : "the direction inv for c2r");
  if (!total_bytes(made.problem)) throw reader.refusal("less than 2^63 bytes in all");
  return made;
}

}  // namespace abi_1

direction natural_direction(kind value) { return value == kind::c2r ? direction::inverse : direction::forward; }

namespace {

side resolve_side(const problem& value, const layout& given, bool is_input, std::string_view token) {
  const std::string_view name = is_input ? "input" : "output";
  const std::size_t rank = value.shape.size();
  const std::size_t pad = 3 - rank;
  const bool real = value.kind == (is_input ? kind::r2c : kind::c2r);
  const bool half = value.kind != kind::c2c && !real;

  side made;
  made.real = real;
  made.length = {1, 1, 1};
  std::ranges::copy(value.shape, made.length.begin() + static_cast<std::ptrdiff_t>(pad));
  if (half) made.length[2] = made.length[2] / 2 + 1;

  if (!given.strides.empty() && given.strides.size() != rank)
    throw invalid_argument_error(
        fmt::format("{}: {}: expected one stride for each of {} axes or none, got {}", token, name, rank, given.strides.size()));
  if (given.strides.empty()) {
    made.stride = {made.length[1] * made.length[2], made.length[2], 1};
  } else {
    made.stride = {1, 1, 1};
    std::ranges::copy(given.strides, made.stride.begin() + static_cast<std::ptrdiff_t>(pad));
  }
  made.distance = given.distance;
  if (given.distance == 0 && given.strides.empty()) made.distance = made.length[0] * made.length[1] * made.length[2];

  // The dimensions with more than one element (the batch included), sorted from the smallest stride to the largest.
  struct dimension {
    std::int64_t count, stride;
  };
  std::vector<dimension> all;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (made.length[axis] > 1) all.push_back({made.length[axis], made.stride[axis]});
  }
  if (value.batch > 1) all.push_back({value.batch, made.distance});
  std::ranges::sort(all, {}, &dimension::stride);
  made.extent = 1;
  for (const dimension& each : all) {
    if (each.stride < 1)
      throw invalid_argument_error(fmt::format("{}: {}: expected strides and distance of at least 1, got {}", token, name, each.stride));
    if (each.stride < made.extent)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected each stride (or distance) to step over the {} elements of the dimensions with smaller ones, "
                      "got {}",
                      token, name, made.extent, each.stride));
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(each.count - 1, each.stride, &reach) || __builtin_add_overflow(made.extent, reach, &made.extent) ||
        made.extent > std::numeric_limits<std::int64_t>::max() / 16)
      throw invalid_argument_error(
          fmt::format("{}: {}: expected an extent of less than 2^63 bytes, got more (stride {})", token, name, each.stride));
  }
  return made;
}

}  // namespace

double norm_factor(const geometry& shape, norm wanted, direction way) {
  const double points = static_cast<double>(shape.points());
  if (wanted == norm::ortho) return 1 / std::sqrt(points);
  return wanted == (way == direction::forward ? norm::forward : norm::backward) ? 1 / points : 1;
}

geometry resolve(const problem& value) {
  const std::string token = to_token(value, natural_direction(value.kind));
  check_sizes(value, token);
  geometry made;
  made.kind = value.kind;
  made.batch = value.batch;
  std::ranges::copy(value.shape, made.n.begin() + static_cast<std::ptrdiff_t>(3 - value.shape.size()));
  made.input = resolve_side(value, value.input, true, token);
  made.output = resolve_side(value, value.output, false, token);
  return made;
}

}  // namespace ballast::fft
