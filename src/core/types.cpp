// Names of the shared enumerations.
#include <ballast/types.hpp>

#include <array>

namespace ballast {
inline namespace abi_1 {

std::string_view to_string(precision value) noexcept { return value == precision::f32 ? "f32" : "f64"; }

std::string_view to_string(backend value) noexcept {
  switch (value) {
    case backend::automatic: return "auto";
    case backend::reference: return "reference";
    case backend::cpu: return "cpu";
    case backend::cuda: return "cuda";
  }
  return "?";
}

std::string_view to_string(protection value) noexcept {
  switch (value) {
    case protection::off: return "off";
    case protection::detect: return "detect";
    case protection::correct: return "correct";
    case protection::final_only: return "final_only";
  }
  return "?";
}

namespace {

template <class Enum, std::size_t Count>
std::optional<Enum> parse(std::string_view name, const std::array<Enum, Count>& all) noexcept {
  for (const Enum each : all) {
    if (to_string(each) == name) return each;
  }
  return std::nullopt;
}

}  // namespace

std::optional<precision> parse_precision(std::string_view name) noexcept { return parse(name, std::array{precision::f32, precision::f64}); }

std::optional<backend> parse_backend(std::string_view name) noexcept {
  return parse(name, std::array{backend::automatic, backend::reference, backend::cpu, backend::cuda});
}

std::optional<protection> parse_protection(std::string_view name) noexcept {
  return parse(name, std::array{protection::off, protection::detect, protection::correct, protection::final_only});
}

}  // namespace abi_1
}  // namespace ballast
