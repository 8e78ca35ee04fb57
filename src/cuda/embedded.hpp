// The sources of all kernels, inside the library: every .cuh under src/, the headers that they include, and the few standard headers that
// NVRTC lacks (nvrtc_std/). Defined by a file that cmake/EmbedSources.cmake writes.
// Layer: foundation.
#pragma once

#include <span>
#include <string_view>

#include "cuda/nvrtc.hpp"

namespace ballast::cuda {

std::span<const nvrtc::source> embedded_sources();

// SHA-256 over all of them and their names.
std::string_view embedded_hash();

}  // namespace ballast::cuda
