// The device state of a transform besides its data: passes with their kernels, tables, addresses and thresholds, and the division of its
// workspace. Plans of the same problem share it.
// Layer: backend "cuda". transform.cpp launches it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/cuda/run/transform.hpp"

namespace ballast::fft::cuda {

// A pass with everything that stays the same from call to call.
struct prepared_pass {
  cuda::pass pass;
  const ballast::cuda::kernel* kernel;  // null: computed by the launch of the previous pass
  line_arguments arguments;
  std::int64_t most_blocks;    // limit per launch, for blocks that process several tiles
  double largest_inverse = 1;  // over the factors of the store
};

// The passes over `batch` signals.
struct prepared {
  std::vector<prepared_pass> passes;
  std::array<std::int64_t, k_pass_buffers> elements;
  std::int64_t batch;
};

template <class T>
class line_program final : public ballast::cuda::shared_state {
 public:
  line_program(std::shared_ptr<ballast::cuda::device> on, const geometry& shape, const transform_options& options);

  // The properties of a call that determine its passes.
  struct form {
    direction way;
    bool scaled;
    std::int64_t batch;
    alignment aligned;
    bool instrumented;
    bool kept;  // the output does not overwrite the input

    auto operator<=>(const form&) const = default;  // NOLINT(modernize-use-nullptr): as in tuning.hpp
  };

  // Loads kernels and computes tables (on at most `threads` threads) at the first request for a form, which can take as long as a
  // compilation. Thread-safe; the result lives as long as the program. Throws ballast::error if two computations of a table never agree.
  const prepared& prepare(const form& wanted, int threads);
  // Returns the kernels that prepare() would load; empty if it has loaded them. Does not wait for a thread inside prepare().
  std::vector<ballast::cuda::kernel_request> missing(const form& wanted);

  check_form check() const noexcept { return options_.check; }
  // Returns the number of signals that are transformed at a time.
  std::int64_t chunk() const noexcept { return chunk_; }
  // The workspace: counters of fused passes, intermediate data, and for one_sided a copy of the data that a pass overwrites. Sizes are in
  // bytes, each a multiple of 256.
  std::int64_t counter_bytes() const noexcept { return counter_bytes_; }
  std::int64_t work_bytes() const noexcept { return work_bytes_; }
  std::int64_t copy_bytes() const noexcept { return copy_bytes_; }
  // Returns the bytes that a pass over `batch` signals may access in a buffer.
  std::int64_t bytes_at(pass_buffer from, const std::array<std::int64_t, k_pass_buffers>& elements, std::int64_t batch) const;

  std::int64_t device_bytes() const override { return table_bytes_; }

 private:
  schedule scheduled(direction way, bool scaled, std::int64_t batch, alignment aligned, bool kept) const;
  const prepared* already(const form& wanted);  // null if it is not prepared
  template <class Make>
  const void* table(const std::string& name, int copy, Make&& make);
  void fill(prepared_pass& result, const schedule& made, int threads);
  void fill_weights(const pass& p, const schedule& made, line_arguments& a);

  std::shared_ptr<ballast::cuda::device> device_;
  geometry shape_;
  transform_options options_;
  std::int64_t chunk_ = 1;
  std::int64_t counter_bytes_ = 0;
  std::int64_t work_bytes_ = 0;
  std::int64_t copy_bytes_ = 0;
  std::mutex making_;  // protects tables_; held while they are computed
  std::map<std::pair<std::string, int>, std::shared_ptr<const ballast::cuda::device_table>> tables_;
  std::atomic<std::int64_t> table_bytes_ = 0;
  std::mutex mutex_;  // protects the members below
  std::map<form, std::unique_ptr<prepared>> prepared_;
  std::map<form, std::vector<ballast::cuda::kernel_request>> missing_;
};
extern template class line_program<float>;
extern template class line_program<double>;

// Returns the program of this problem. Plans share it, unless its tuning table may be destroyed before they are.
template <class T>
std::shared_ptr<line_program<T>> program_for(const std::shared_ptr<ballast::cuda::device>& on, const geometry& shape,
                                             const transform_options& options);

}  // namespace ballast::fft::cuda
