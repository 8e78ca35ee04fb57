// SHA-256 by a library of the system, opened at run time as the driver is: libmd, which dpkg has on every Debian and Ubuntu, or OpenSSL's
// libcrypto.
// Layer: foundation.
#pragma once

#include <string>
#include <string_view>

namespace ballast::cuda {

// 64 hexadecimal digits, or "" where none of the libraries is there.
std::string sha256(std::string_view data);
// "", or why sha256 gives nothing.
std::string why_no_sha256();

// What names and checks the entries of cache and bundle: sha256 but in tests.
using digest_function = std::string (*)(std::string_view);
inline constexpr std::size_t k_digest_digits = 64;

}  // namespace ballast::cuda
