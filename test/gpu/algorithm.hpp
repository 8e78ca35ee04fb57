// What gpu-check knows of an algorithm: its stages and the kernels that they need. One folder for each beside this file.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

struct algorithm {
  std::string_view name;  // of --only
  // By name. Each prints rows (output.hpp) until it is done or its time is over, and returns how many checks failed.
  std::map<std::string_view, int (*)(const settings&, const time_limit&)> stages;
  // Makes `on`, the current device, load every kernel that the stages need: runs their plans, which compute nothing there. Returns how many
  // plans were refused, each with a row.
  int (*record)(test::recording_device& on, const settings& wanted);
  // Prints a row of type "problem" for each problem of each stage.
  void (*list)(const settings& wanted);
  // Throws invalid_argument_error unless `text` is a problem token.
  void (*check_token)(std::string_view text);
  // The problems of the stage `strike`: run with the default scheme, protected and not.
  std::vector<std::string> (*strike_set)(bool quick);
};

const algorithm& fft_algorithm();
const algorithm& kmeans_algorithm();
const algorithm& qr_algorithm();

std::span<const algorithm* const> algorithms();

// The stage `kernels`, the same for all. Rows of type "kernel": what each needs of the machine. Compiles what `of` records, on all cores,
// into the cache that the other stages find it in, and writes it to the bundle that `wanted` names. Needs no GPU.
int kernels(const algorithm& of, const settings& wanted, const time_limit& limit);

// The stage `struck_kernels`, the same for all: the kernels of the stage `strike`, rewritten so that they can be struck (strike/ptx.hpp).
// Compiles and assembles them on all cores into the bundle that `wanted` names. Rows of type "struck kernel". Needs no GPU; needs NVRTC and
// ptxas.
int struck_kernels(const algorithm& of, const settings& wanted, const time_limit& limit);

// The requests of those kernels, each once, on such a device.
std::vector<cuda::kernel_request> strike_requests(const algorithm& of, const settings& wanted, const cuda::capabilities& about);

}  // namespace ballast::gpu_check
