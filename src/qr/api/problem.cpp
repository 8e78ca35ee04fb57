// Tokens of problems.
// Layer: algorithm, backend-free.
#include <string>

#include <ballast/qr.hpp>

#include "core/format.hpp"
#include "core/token.hpp"

namespace ballast::qr {

namespace {

// The type of the numbers: f32, f64, c64 or c128.
std::string_view type_of(const problem& value) {
  if (!value.complex) return to_string(value.precision);
  return value.precision == precision::f32 ? "c64" : "c128";
}

}  // namespace

inline namespace abi_1 {

std::string to_token(const problem& value) {
  const std::string one = fmt::format("qr_{}_m{}_n{}", type_of(value), value.rows, value.columns);
  return value.batch == 1 ? one : fmt::format("{}_b{}", one, value.batch);
}

problem parse_token(std::string_view text) {
  core::token_reader reader(text, "qr_f64_m4096_n4096, qr_c128_m4096_n4096, qr_f64_m64_n64_b1000");
  problem made;
  reader.skip("qr_");
  for (const precision each : {precision::f32, precision::f64}) {
    if (const std::string_view name = type_of({.precision = each, .complex = true}); reader.at(name)) {
      reader.skip(name);
      made.precision = each;
      made.complex = true;
    }
  }
  if (!made.complex) made.precision = reader.precision();
  made.rows = reader.number("_m");
  made.columns = reader.number("_n");
  if (reader.at("_b")) made.batch = reader.number("_b");
  reader.end();
  return made;
}

}  // namespace abi_1
}  // namespace ballast::qr
