#include "cuda/jit/digest.hpp"

#include "core/format.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ballast::cuda {

std::string digest(std::string_view data) {
  const XXH128_hash_t hash = XXH3_128bits(data.data(), data.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace ballast::cuda
