// Calls that wait for a device cannot go into a CUDA graph.
// Layer: foundation.
#pragma once

#include <string_view>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Throws unsupported_error if `order` is being captured into a graph. Call it before anything is enqueued: work that waits would end the
// caller's capture with an error.
inline void refuse_capture(stream order, std::string_view token) {
  if (order != nullptr && current_device()->captured(order))
    throw unsupported_error(
        fmt::format("{}: call::stream: expected a stream that is not being captured into a graph, got one that is; this call waits for its "
                    "results (enqueue_… can be captured)",
                    token));
}

}  // namespace ballast::cuda
