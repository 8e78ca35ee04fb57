// Measures the most bytes that the processor copies, and the most multiply-adds that it computes, in a second. The benchmark compares
// transforms with these floors. Layer: tools.
#pragma once

#include <cstdint>
#include <vector>

#include <ballast/types.hpp>

namespace ballast::bench {

struct floors {
  // Bytes read and written in a second when so many bytes in all are copied again and again, each thread its part: McCalpin's STREAM copy,
  // for several sizes. With stores past the cache where these are faster.
  struct copy {
    std::int64_t bytes;  // the source's and the target's
    double per_second;
  };
  std::vector<copy> copies;
  double f32_flops = 0, f64_flops = 0;  // fused multiply-adds of all threads in a second, two flops each

  // The least seconds of a problem: the larger of its nominal operations at the full rate of multiply-adds, which no transform reaches, and
  // one read of its input and one write of its output at the copy's speed for that size.
  double seconds(double flops, std::int64_t bytes, precision type) const;
};

// Measures for about two seconds.
floors measure_floors(int threads);

}  // namespace ballast::bench
