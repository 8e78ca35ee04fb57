// The interface of an algorithm to gpu-check: its stages and the kernels that they need. Each algorithm has a folder beside this file.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stages.hpp"
#include "support/devices.hpp"

namespace ballast::gpu_check {

struct algorithm {
  std::string_view name;  // the value of --only
  // By name. Each stage prints rows (output.hpp) until it is done or its time is over, and returns the number of failed checks.
  std::map<std::string_view, int (*)(const settings&, const time_limit&)> stages;
  // Makes `on`, the current device, load every kernel that the stages need, by running their plans, which compute nothing there. Returns
  // the number of refused plans, each with a row.
  int (*record)(test::recording_device& on, const settings& wanted);
  // Prints a row of type "problem" for each problem of each stage.
  void (*list)(const settings& wanted);
  // Throws invalid_argument_error unless `text` is the token of a problem that the stage takes. `strike`: of its subject's problem.
  void (*check_token)(std::string_view text, std::string_view stage);
  // Returns the subjects of the stage `strike` (strike/subjects/subject.hpp): they run with the default scheme, with and without
  // protection.
  std::vector<std::string> (*strike_set)(bool quick);
  // Makes `on` load every kernel that a subject may need.
  void (*record_subject)(test::recording_device& on, const std::string& name);
};

const algorithm& fft_algorithm();
const algorithm& kmeans_algorithm();
const algorithm& qr_algorithm();

std::span<const algorithm* const> algorithms();

// The stage `kernels`, the same for all algorithms. Compiles the kernels that `of` records, on all cores, into the cache of the other
// stages, and writes them to the bundle that `wanted` names. Prints rows of type "kernel" with the resources of each. Needs no GPU.
int kernels(const algorithm& of, const settings& wanted, const time_limit& limit);

// The stage `struck_kernels`, the same for all algorithms. Rewrites the kernels of the stage `strike` so that they can be struck
// (strike/ptx.hpp), then compiles and assembles them on all cores into the bundle that `wanted` names. Prints rows of type "struck kernel".
// Needs no GPU; needs NVRTC and ptxas.
int struck_kernels(const algorithm& of, const settings& wanted, const time_limit& limit);

// Returns the requests of the kernels of these subjects on such a device, without duplicates.
std::vector<cuda::kernel_request> strike_requests(const algorithm& of, const std::vector<std::string>& names,
                                                  const cuda::capabilities& about);

// Returns these subjects, which have a % in the place of the precision, in f32 and then in f64; `quick`: the first.
std::vector<std::string> in_both_precisions(std::initializer_list<std::string_view> subjects, bool quick);

// The stage `strike`, the same for all algorithms: strikes every instruction of the kernels of each subject (docs/design/strike.md). Prints
// rows of type "strike", "strike place" and "strike hit". Opens no device in this process, which starts others.
int strike(const algorithm& of, const settings& wanted, const time_limit& limit);

// The stage `threads`: 32 threads (`quick`: 8) call the subjects of the stage `strike` of all algorithms at the same time, each on its own
// stream, on all devices, and make their plans anew every few calls. Prints rows of type "threads". A subject fails if a call changed a bit
// of the thread's first result, raised an alarm or threw.
int threads(const settings& wanted, const time_limit& limit);

// The stage `distributed`: calls on a list of all devices, or twice on the only one. Prints rows of type "distributed", fits whose bits
// are compared with those of a fit on one device, and "distributed time"; of QR and transforms "distributed call", with an error. With
// tokens (qr_… and fft_…) only these calls. Returns the number of fits that differ and of calls whose error is too large.
int distributed(const settings& wanted, const time_limit& limit);

// The stage `nccl`: a process for each device, over the NCCL of the file wanted.nccl. Groups: fits, faults, losses, qr, times, transforms.
// Prints rows whose type begins with "nccl". Opens no device in this process, which starts others. Returns the number of failed checks and
// processes.
int nccl(const settings& wanted, const time_limit& limit);

}  // namespace ballast::gpu_check
