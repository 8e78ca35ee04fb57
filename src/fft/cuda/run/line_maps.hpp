// Sparse maps of lines on a device: their kernels, their tables, and the places of lines in the caller's arrays and in memories.
// Layer: backend "cuda". fft/cuda/kernel/map.cuh is the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/policy/map.hpp"
#include "fft/tables/real_to_real.hpp"

namespace ballast::fft::cuda {

ballast::cuda::kernel_request map_kernel_request(const map_policy& p, bool instrumented);
// Those that are not instrumented.
std::vector<ballast::cuda::kernel_request> map_kernels();

// Lines one after the other, each of `size` scalars.
map_side memory_side(std::int64_t size);
// Lines in nested loops, the last one the fastest. Loops of one step do nothing, and neighbours that continue each other are one loop.
map_side array_side_of(std::int64_t scalar, const std::vector<std::pair<std::int64_t, std::int64_t>>& counts_and_distances);

// The tables of consecutive maps.
class map_tables {
 public:
  map_tables() = default;
  // The maps before and after the transforms of real_line_program(kind, n). The tables are computed twice with the same bits where results
  // are checked.
  map_tables(const std::shared_ptr<ballast::cuda::device>& on, precision type, real_kind kind, std::int64_t n, bool check);

  // Sets the tables and the rows of map `number`.
  void set(map_arguments& to, std::size_t number) const;
  std::int64_t first_result(std::size_t number) const { return maps_[number].to; }
  std::size_t size() const { return maps_.size(); }

 private:
  struct one {
    std::int64_t rows, to;
    std::size_t begin, index, factor;  // bytes from the begin of the tables
  };
  template <class T>
  static std::vector<unsigned char> bytes_of(real_kind kind, std::int64_t n, std::vector<one>& maps);

  std::vector<one> maps_;
  std::shared_ptr<const ballast::cuda::device_table> tables_[2];
};

// Launches of maps. Thread-safe.
class map_launcher {
 public:
  map_launcher(std::shared_ptr<ballast::cuda::device> on, precision type, bool check)
      : device_(std::move(on)), wide_(type == precision::f64), check_(check) {}

  // Computes result rows of the lines [first_line, first_line + lines). The caller sets everything but the events and the blocks.
  // lines_in_all: for injection, with the number of the first line among them.
  void launch(const ballast::cuda::device_call& call, map_arguments a, std::int64_t lines_in_all) const;

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  bool wide_, check_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, const ballast::cuda::kernel*> kernels_;
};

}  // namespace ballast::fft::cuda
