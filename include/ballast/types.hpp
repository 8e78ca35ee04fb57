// Enumerations that every algorithm shares, and their names in tokens, JSON and on the command line.
// Layer: interface. No dependency but the standard library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ballast/version.hpp>

namespace ballast {
inline namespace abi_1 {

// IEEE 754 binary32 and binary64: the type of the data and of the arithmetic on it.
enum class precision : std::uint8_t { f32, f64 };

// The bits of a number of IEEE 754 binary16, or of bfloat16: types of data, on which no arithmetic is done. They have the layout of
// _Float16 and __half, of __bf16 and __nv_bfloat16.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

// The code that computes. `automatic` takes the fastest backend that this machine can run.
enum class backend : std::uint8_t { automatic, reference, cpu, cuda };

// off: compute only. detect: verify; a tile that fails is reported as uncorrectable and not repaired.
// correct: verify, and repair what fails (in place, or by computing the tile again, at most twice).
// final_only: K-Means only. The iterations of a fit are computed with checks that cost next to nothing; its last step and its results as by
// correct. So the result is one of Lloyd's algorithm, though a fault may have changed which (docs/protection.md). predict and transform are
// computed as by correct.
enum class protection : std::uint8_t { off, detect, correct, final_only };

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

// Immutable text. Copies share it, so that a report carries its problem token without an allocation.
class shared_text {
 public:
  shared_text() = default;
  shared_text(std::string value) : text_(std::make_shared<const std::string>(std::move(value))) {}
  shared_text(const char* value) : shared_text(std::string(value)) {}
  shared_text(std::string_view value) : shared_text(std::string(value)) {}

  std::string_view view() const noexcept { return text_ ? std::string_view(*text_) : std::string_view(); }
  std::string str() const { return std::string(view()); }
  operator std::string_view() const noexcept { return view(); }
  bool empty() const noexcept { return view().empty(); }

  friend bool operator==(const shared_text& a, std::string_view b) noexcept { return a.view() == b; }
  friend bool operator==(const shared_text& a, const shared_text& b) noexcept { return a.view() == b.view(); }
  friend bool operator==(const shared_text& a, const std::string& b) noexcept { return a.view() == b; }
  friend bool operator==(const shared_text& a, const char* b) noexcept { return a.view() == b; }

 private:
  std::shared_ptr<const std::string> text_;
};

}  // namespace abi_1
}  // namespace ballast
