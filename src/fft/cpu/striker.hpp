// The callback by which a line shows the injector what it computes (fft/sites.hpp has the sites).
// Layer: backend "cpu". The owner of a tile makes it (tile.cpp); lines call it.
#pragma once

#include <cstdint>

#include "core/function_ref.hpp"
#include "inject/site.hpp"

namespace ballast::fft::cpu {

// Callback at the points inside of a line's run where faults can strike: (site, step, data). Called only in the instrumented library.
template <class T>
using striker = core::function_ref<void(inject::site where, std::int64_t step, T* data, std::int64_t scalars)>;

}  // namespace ballast::fft::cpu
