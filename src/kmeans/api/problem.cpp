// Problems of K-Means, their tokens, and names.
// Layer: algorithm. See include/ballast/kmeans.hpp.
#include <string>
#include <string_view>

#include <ballast/kmeans.hpp>

#include "core/format.hpp"
#include "core/token.hpp"

namespace ballast::kmeans {
inline namespace abi_1 {

std::string_view to_string(init value) noexcept {
  switch (value) {
    case init::kmeans_plus_plus: return "k-means++";
    case init::random: return "random";
    case init::given: return "given";
    case init::kmeans_parallel: return "k-means||";
  }
  return "?";
}

std::string_view to_string(stop_reason value) noexcept {
  switch (value) {
    case stop_reason::labels_unchanged: return "labels unchanged";
    case stop_reason::tolerance: return "tolerance";
    case stop_reason::max_iter: return "max_iter";
    case stop_reason::no_improvement: return "no improvement";
  }
  return "?";
}

std::string to_token(const problem& value) {
  const std::string_view numbers = value.storage == storage::f16    ? "f16"
                                   : value.storage == storage::bf16 ? "bf16"
                                                                    : to_string(value.precision);
  const std::string one = fmt::format("kmeans_{}_m{}_n{}_k{}", numbers, value.points, value.features, value.clusters);
  return fmt::format("{}{}{}", one, value.batch == 1 ? "" : fmt::format("_b{}", value.batch), value.storage == storage::csr ? "_csr" : "") +
         (value.spherical ? "_spherical" : "") + (value.mini_batch == 0 ? "" : fmt::format("_mini{}", value.mini_batch));
}

problem parse_token(std::string_view text) {
  core::token_reader reader(text, "kmeans_f32_m131072_n128_k128");
  problem made;
  reader.skip("kmeans_");
  if (reader.at("f16")) {
    reader.skip("f16");
    made.storage = storage::f16;
  } else if (reader.at("bf16")) {
    reader.skip("bf16");
    made.storage = storage::bf16;
  } else {
    made.precision = reader.precision();
  }
  made.points = reader.number("_m");
  made.features = reader.number("_n");
  made.clusters = reader.number("_k");
  if (reader.at("_b")) made.batch = reader.number("_b");
  if (made.storage == storage::dense && reader.at("_csr")) {
    reader.skip("_csr");
    made.storage = storage::csr;
  }
  if (reader.at("_spherical")) {
    reader.skip("_spherical");
    made.spherical = true;
  }
  if (made.batch == 1 && made.storage == storage::dense && !made.spherical && reader.at("_mini")) made.mini_batch = reader.number("_mini");
  reader.end();
  if (made.clusters > made.points) throw reader.refusal("k ≤ m");
  return made;
}

}  // namespace abi_1
}  // namespace ballast::kmeans
