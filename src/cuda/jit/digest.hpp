// The digest that names the entries of cache and bundle and finds damage: XXH3 with 128 bits. It is no defence against an intruder; the
// folder is (private_folder.hpp), and an entry is used only if its whole text is that of the request.
// Layer: foundation.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast::cuda {

inline constexpr std::size_t k_digest_digits = 32;

// k_digest_digits hexadecimal digits.
std::string digest(std::string_view data);

}  // namespace ballast::cuda
