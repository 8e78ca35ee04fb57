// Draws strikes at registers. See processor.hpp.
#include "processor.hpp"

namespace ballast::strike {
namespace {

constexpr int k_steps = 31;  // the largest number of single steps after the timer

}  // namespace

std::string_view to_string(target value) {
  static constexpr std::string_view names[k_targets] = {"numbers", "bits", "masks", "general", "none"};
  return names[static_cast<std::size_t>(value)];
}

processor_striker::shot processor_striker::draw(std::mt19937_64& random, double seconds) const {
  const auto below = [&](std::int64_t count) { return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random); };
  const register_set& have = registers();
  shot one;
  const std::int64_t percent = below(100);
  one.what = percent < 60   ? target::numbers
             : percent < 80 ? target::bits
             : percent < 87 ? target::masks
             : percent < 97 ? target::general
                            : target::none;
  if (one.what == target::masks && have.masks == 0) one.what = target::bits;
  switch (one.what) {
    case target::numbers: {
      const int width = small ? 32 : 64, first = small ? 17 : 46;
      one.where = {register_kind::vector, static_cast<int>(below(have.vectors)),
                   static_cast<int>(below(have.vector_bits / width)) * width + first + static_cast<int>(below(width - first))};
      break;
    }
    case target::masks:
      one.where = {register_kind::mask, static_cast<int>(below(have.masks)), static_cast<int>(below(have.mask_bits))};
      break;
    case target::general: one.where = {register_kind::general, static_cast<int>(below(have.generals)), static_cast<int>(below(64))}; break;
    default: one.where = {register_kind::vector, static_cast<int>(below(have.vectors)), static_cast<int>(below(have.vector_bits))};
  }
  one.when = {below(static_cast<std::int64_t>(seconds * 1e9) + 1), static_cast<int>(below(k_steps + 1)),
              std::uniform_real_distribution<double>(0, 1)(random)};
  return one;
}

}  // namespace ballast::strike
