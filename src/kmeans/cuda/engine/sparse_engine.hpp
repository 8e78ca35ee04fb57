// K-Means of points in compressed rows on a GPU. The device searches the centroids and sums the points by their labels: everything that
// costs k operations for a stored element of each iteration. The host backend, from which this engine derives, does the rest: the
// statistics before, the choice of first centroids, the rows that scores do not decide, each repetition of a block that fails a check,
// distances. Layer: backend "cuda", implements contract.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "core/memory.hpp"
#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/device_staging.hpp"
#include "kmeans/cuda/engine/plan_state.hpp"
#include "kmeans/cuda/sparse/arguments.hpp"
#include "kmeans/host/engine.hpp"

namespace ballast::kmeans::cuda {

template <class T>
class sparse_engine final : public host::host_engine<T> {
 public:
  sparse_engine(const engine_args<T>& args, std::shared_ptr<ballast::cuda::device> on);

  ranges<T> column_stats() override;
  void normalize(const normalization<T>& chosen) override;
  void begin_run() override;
  void pass(const sealed_centroids<T>& centroids) override;
  void add_sums(cluster_sums& total) override;
  point_sums repair_sums(const sealed_centroids<T>& centroids) override;

 private:
  using base = host::host_engine<T>;
  using typename base::worker;
  using buffer = lane_buffer;

  // The results of a search of all rows.
  struct search_results {
    core::vector<std::int32_t> label, twin;
    core::vector<T> minimum;
    core::vector<unsigned char> state;
    bool present = false;  // they are those of the packed centroids
  };
  // The range of |x| · weight of each feature, as exponents of 2.
  struct magnitudes {
    core::vector<int> largest, smallest;
  };

  void prepare_search() override;
  row_failure search(worker& here, const kmeans::packed_centroids<T>& centroids, search_kind what) override;
  void load_for_search(worker& here, int slot, std::int64_t block, bool again) override;
  void add_points(worker& here, cluster_sums& sums) override;
  std::int64_t summed_features() const override { return 0; }

  void upload_points();
  void read_rows();
  void choose_words();
  void search_and_sum(const sealed_centroids<T>& centroids);
  void launch_sums();
  template <class Value>
  void upload(buffer& to, const Value* values, std::int64_t count) const;
  template <class Value>
  void download(core::vector<Value>& to, const buffer& from, std::int64_t count) const;
  template <class Make, class Arguments>
  void launch(int number, Make&& make, std::int64_t blocks, const Arguments& given) const;

  const std::unique_ptr<device_state> own_state_;  // if there is no plan
  device_state& state_;
  const std::shared_ptr<ballast::cuda::device> device_;
  const call_lane lane_;  // before all memory of the call
  ballast::cuda::device_call call_;
  std::unique_ptr<ballast::cuda::device_staging> staged_;
  sparse_points<T> points_;
  const T* weights_ = nullptr;
  bool rows_read_ = false;  // the squares of all rows, and in a fit their projections, are known
  bool light_ = false;      // blocks need no coordinates: the device has searched them
  magnitudes magnitudes_;
  int words_ = 1, word_bits_ = 0;
  search_results found_;
  struct {
    buffer packed, columns, names, first_column, squares, label, twin, minimum, state, unit, sums, made;
  } memory_;
};

}  // namespace ballast::kmeans::cuda
