// Tokens of problems.
// Layer: algorithm, backend-free.
#include <string>

#include <ballast/qr.hpp>

#include "core/format.hpp"
#include "core/token.hpp"

namespace ballast::qr {
inline namespace abi_1 {

std::string to_token(const problem& value) {
  const std::string one = fmt::format("qr_{}_m{}_n{}", to_string(value.precision), value.rows, value.columns);
  return value.batch == 1 ? one : fmt::format("{}_b{}", one, value.batch);
}

problem parse_token(std::string_view text) {
  core::token_reader reader(text, "qr_f64_m4096_n4096 or qr_f64_m64_n64_b1000");
  problem made;
  reader.skip("qr_");
  made.precision = reader.precision();
  made.rows = reader.number("_m");
  made.columns = reader.number("_n");
  if (reader.at("_b")) made.batch = reader.number("_b");
  reader.end();
  return made;
}

}  // namespace abi_1
}  // namespace ballast::qr
