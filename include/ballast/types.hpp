// Enumerations that every algorithm shares, and their names in tokens, JSON and on the command line.
// Layer: interface. No dependency but the standard library.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// Marks what the shared library exports; everything else is hidden.
#if defined(BALLAST_STATIC)
#define BALLAST_API
#elif defined(_WIN32)
#error "Ballast is built for ELF and Mach-O platforms"
#else
#define BALLAST_API __attribute__((visibility("default")))
#endif

namespace ballast {

// IEEE 754 binary32 and binary64: the type of the data and of the arithmetic on it.
enum class precision : std::uint8_t { f32, f64 };

// What runs the computation. `automatic` takes the fastest backend that this machine can run.
enum class backend : std::uint8_t { automatic, reference, cpu, cuda };

// off: compute only. detect: verify; a tile that fails is reported as uncorrectable and not repaired.
// correct: verify, and repair what fails (in place, or by computing the tile again, at most twice).
enum class protection : std::uint8_t { off, detect, correct };

// Names are those of the enumerators, with `automatic` written "auto".
BALLAST_API std::string_view to_string(precision value) noexcept;
BALLAST_API std::string_view to_string(backend value) noexcept;
BALLAST_API std::string_view to_string(protection value) noexcept;

// The inverse of to_string; nothing if `name` is not such a name.
BALLAST_API std::optional<precision> parse_precision(std::string_view name) noexcept;
BALLAST_API std::optional<backend> parse_backend(std::string_view name) noexcept;
BALLAST_API std::optional<protection> parse_protection(std::string_view name) noexcept;

// The precision of a real scalar type.
template <class T>
inline constexpr precision precision_of = sizeof(T) == 4 ? precision::f32 : precision::f64;

}  // namespace ballast
