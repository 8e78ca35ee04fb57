// A pass over the points by a scheme of FT K-Means: labels by tiles, then the sums of the points by label.
// Layer: backend "cuda" of K-Means, host; lloyd.hpp launches it in place of its own pass.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "kmeans/cuda/assign/pass.hpp"
#include "kmeans/cuda/policy/tile_policies.hpp"

namespace ballast::kmeans::cuda {

template <class T>
class tile_pass : public core::pooled {
 public:
  // `points` and `call` must outlive this object. `flips`: see tile_arguments.
  tile_pass(std::shared_ptr<ballast::cuda::device> on, const ballast::cuda::device_call& call, const normalized_points<T>& points,
            std::int64_t k, const tile_scheme& scheme, const tile_policy* policy, std::uint64_t flips);

  // Enqueues the labels for the centroids `rows` of what.centroids and, with `sums`, their sums, like pass_kernel.
  void enqueue(const pass_arguments<T>& what, bool sums) const;
  // Enqueues the labels only, which is what the paper measures.
  void enqueue_labels(const pass_arguments<T>& what) const;

 private:
  bool checks() const { return scheme_.check != tile_check::none; }
  template <class Arguments>
  void launch(const ballast::cuda::kernel& which, std::int64_t blocks, const Arguments& given) const;

  std::shared_ptr<ballast::cuda::device> device_;
  const ballast::cuda::device_call& call_;
  normalized_points<T> points_;
  std::int64_t k_;
  tile_scheme scheme_;
  tile_policy policy_;
  T slack_;
  std::uint64_t flips_;
  std::vector<const ballast::cuda::kernel*> kernels_;  // in the order of tile_kernels()
  ballast::cuda::device_buffer norms_, stored_, locks_, twins_, ticket_;
};

}  // namespace ballast::kmeans::cuda
