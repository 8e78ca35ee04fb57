// The sources of all kernels, inside the library: every .cuh under src/, the headers that they include, and the few standard headers that
// NVRTC lacks (nvrtc_std/). Lists are defined by a file that cmake/EmbedSources.cmake writes.
// Layer: cuda.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cuda/jit/nvrtc.hpp"

namespace ballast::cuda {

// All of them, sorted by name within src/ and within nvrtc_std/.
std::span<const nvrtc::source> embedded_sources();

// A .cuh with all that it includes, itself and by other headers, and all of nvrtc_std/.
struct embedded_closure {
  std::string_view header;
  std::string_view hash;   // SHA-256 over names and texts
  std::string_view names;  // sorted, each with a space behind it
};
std::span<const embedded_closure> embedded_closures();

// Of the closure of `header`; "" for one that is not embedded.
std::string_view embedded_hash(std::string_view header);

// What kernels in `header` are compiled from: exactly what the hash covers, so that no dependency can be forgotten. Empty for one that is
// not embedded.
std::vector<nvrtc::source> embedded_sources(std::string_view header);

}  // namespace ballast::cuda
