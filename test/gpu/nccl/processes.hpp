// Processes with a GPU each for the stage `nccl`: started together, in one communicator, with a limit of time, and killed when it is over.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include <ballast/group.hpp>

#include "nccl/library.hpp"

namespace ballast::gpu_check {

// The memory that the processes of a scene share.
struct shared_by_processes {
  struct entry {  // an id that one process makes for a communicator
    loaded_nccl::unique_id id;
    std::atomic<bool> made{false};
  };
  entry ids[2];                  // for all processes, and for those that a loss leaves
  std::atomic<double> ended{0};  // when a process ended itself
  std::atomic<std::uint64_t> struck{0};
  std::atomic<std::uint64_t> wrong{0};
};

// One process of a scene.
struct process {
  int rank = 0, size = 1;  // it computes on device `rank`
  shared_by_processes* shared = nullptr;
  double patience = 0;

  // Makes a group of `size` processes of which this is `place`, by ids[which].
  group join(int which, int place, int of) const;
};

struct scene {
  std::string name;
  std::string library;  // the file of NCCL
  int processes = 1;
  double seconds = 60;   // all have ended by then
  double patience = 60;  // group_options::patience
  int dies = -1;         // a process that must end by SIGKILL
};

// Returns the number of devices, which another process counts: processes that are started by fork can use a device only if this one has
// not.
int count_devices();

// Starts the processes. Each runs work(process, group of all), which prints rows and returns the number of failed checks. Prints a row
// "nccl scene", which fails if a process failed, ended by a signal or was still there at the end of the time. Returns the number of
// processes that did.
int run_scene(const scene& what, const std::function<int(const process&, const group&)>& work);

}  // namespace ballast::gpu_check
