// The sources of all kernels, embedded in the library: every .cuh under src/, the headers that they include, and the few standard headers
// that NVRTC lacks (nvrtc_std/). The file that cmake/EmbedSources.cmake generates defines the lists.
// Layer: cuda.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cuda/jit/nvrtc.hpp"

namespace ballast::cuda {

// Returns all sources: those of src/, sorted by name, and those of nvrtc_std/, sorted by name.
std::span<const nvrtc::source> embedded_sources();

// A .cuh with all headers that it includes, directly and indirectly, and all of nvrtc_std/.
struct embedded_closure {
  std::string_view header;
  std::string_view hash;   // SHA-256 over names and texts
  std::string_view names;  // sorted, each followed by a space
};
std::span<const embedded_closure> embedded_closures();

// Returns the hash of the closure of `header`; "" if the header is not embedded.
std::string_view embedded_hash(std::string_view header);

// Returns the sources from which kernels in `header` are compiled: exactly those that the hash covers, so that it cannot miss a dependency.
// Empty if the header is not embedded.
std::vector<nvrtc::source> embedded_sources(std::string_view header);

}  // namespace ballast::cuda
