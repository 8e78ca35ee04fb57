// The problems of the published tables.
// Layer: tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast::bench {

// cpu: K-Means and QR of docs/benchmarks/cpu.md. fft: the transforms of docs/benchmarks/cpu-fft.md. fft-short: one of each kind of these.
std::vector<std::string> problems_of(std::string_view suite);

}  // namespace ballast::bench
