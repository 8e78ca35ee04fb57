// Two libraries with one function each that hashes what lies in memory.
#include "cuda/jit/digest.hpp"

#include <array>
#include <cstddef>

#include "cuda/system/library.hpp"

namespace ballast::cuda {

namespace {

constexpr library_name k_md_library{"libmd", {"libmd.so.0"}};
constexpr library_name k_crypto_library{"libcrypto", {"libcrypto.so.3", "libcrypto.so.1.1"}};

struct hasher {
  char* (*digits)(const unsigned char*, std::size_t, char*) = nullptr;                   // libmd's SHA256Data
  unsigned char* (*bytes)(const unsigned char*, std::size_t, unsigned char*) = nullptr;  // libcrypto's SHA256

  std::string operator()(std::string_view data) const {
    const auto* const from = reinterpret_cast<const unsigned char*>(data.data());
    std::array<char, k_digest_digits + 1> text{};
    if (digits != nullptr) return digits(from, data.size(), text.data()) == nullptr ? "" : std::string(text.data());
    std::array<unsigned char, k_digest_digits / 2> raw{};
    if (bytes == nullptr || bytes(from, data.size(), raw.data()) == nullptr) return "";
    std::string made;
    for (const unsigned char each : raw) {
      for (const int digit : {each >> 4, each & 15}) made += "0123456789abcdef"[digit];
    }
    return made;
  }

  // The example of FIPS 180-4: a library that calls something else so is not taken.
  bool works() const { return (*this)("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; }
};

const hasher& found() {
  static const hasher chosen = [] {
    hasher made;
    const opened_library md = open_library(k_md_library);
    if (md.handle != nullptr && find_function(md.handle, "SHA256Data", made.digits) && made.works()) return made;
    made = {};
    const opened_library crypto = open_library(k_crypto_library);
    if (crypto.handle != nullptr && find_function(crypto.handle, "SHA256", made.bytes) && made.works()) return made;
    return hasher{};
  }();
  return chosen;
}

}  // namespace

std::string sha256(std::string_view data) { return found()(data); }

std::string why_no_sha256() {
  if (found().digits != nullptr || found().bytes != nullptr) return "";
  return "SHA-256: " + not_found(k_md_library) + ", and " + not_found(k_crypto_library);
}

}  // namespace ballast::cuda
