// The passes over one signal of a volume: their tiles, and the attempts at a signal whose workspace was damaged.
// Layer: backend "cpu".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {

template <class T>
class volume_run {
  using signal_memory = typename volume<T>::signal_memory;

 public:
  volume_run(const volume<T>& plan, const T* in, T* out, const crew<T>& workers, signal_memory& mine, const numbering& where,
             std::int64_t signal, std::int64_t first = 0);
  bool run();
  void seal_result(bool wanted) { seal_result_ = wanted; }
  std::uint64_t seal() const { return seal_; }

 private:
  void passes();
  void plane_passes();

  // The tiles of a pass. They return whether the pass continues.
  bool outer_column(std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common);
  bool turning_tile(std::int64_t plane, std::int64_t column, tile_worker<T>& worker, const tile_job<T>& common);
  bool turned_tile(std::int64_t plane, std::int64_t group, tile_worker<T>& worker, const tile_job<T>& common);
  std::int64_t place_of(std::int64_t plane, const tile_worker<T>& worker) const;

  // The parts of a job that the tiles of a pass share.
  tile_job<T> job_for(std::size_t axis) const;
  tile_job<T> outer_job() const;
  tile_job<T> turning_job() const;
  tile_job<T> turned_job() const;
  void to_result(tile_job<T>& job, std::size_t lanes, std::size_t elements) const;

  void number(tile_job<T>& job, std::int64_t tile) const;
  tile_view<const T> source(std::size_t axis, std::int64_t i1, std::int64_t column) const;
  tile_view<const T> source_of_lines(std::int64_t i0, std::int64_t column) const;
  read_ahead next_columns(const tile_view<const T>& from, std::int64_t column) const;
  read_ahead next_lines(const tile_view<const T>& from, std::int64_t column) const;
  bool settle(tile_result seen);
  void copy_staged() const;

  std::int64_t groups() const { return at_.groups_after(first_); }  // turned tiles of a plane
  int lanes_at(std::int64_t count, std::int64_t tile) const {
    return static_cast<int>(std::min<std::int64_t>(v_.lanes_, count - tile * v_.lanes_));
  }
  // Return what a turning tile leaves in a place of the workspace, and its seals, from group `group` on.
  T* rows_at(std::int64_t place, std::int64_t column) const {
    return mine_.data.data() + place * at_.plane_scalars + column * at_.plane_rows * 2 * v_.lanes_;
  }
  T* seals_at(std::int64_t plane, std::int64_t column, std::int64_t group) const {
    return protect_ ? mine_.seals.data() + (plane * at_.columns + column) * groups() + group : nullptr;
  }
  // Return what a turned tile leaves for an outer pass that comes last, and the seals beside any outer pass.
  T* held_at(std::int64_t plane, std::int64_t column) const {
    return mine_.held.data() + plane * at_.held_scalars + column * at_.n[1] * 2 * v_.lanes_;
  }
  T* outer_seals_at(std::int64_t column, std::int64_t plane) const {
    return protect_ ? mine_.outer_seals.data() + (column * at_.n[0] + plane) * v_.lanes_ : nullptr;
  }

  const volume<T>& v_;
  const volume_layout& at_;
  const side& from_;
  const side& to_;
  const T* in_;
  T* out_;
  const crew<T>& workers_;
  signal_memory& mine_;
  const numbering& where_;
  std::int64_t signal_;
  std::int64_t first_;  // lanes of the first turned tile, or 0: as many as the others
  bool protect_;
  std::int64_t in_unit_, out_unit_;  // scalars of an element
  T* result_;                        // destination of the last pass
  std::int64_t stride_[3];           // strides of the result
  std::atomic<bool> damaged_{false}, fatal_{false};
  bool seal_result_ = false;
  std::atomic<std::uint64_t> seal_{0};
};

extern template class volume_run<float>;
extern template class volume_run<double>;

}  // namespace ballast::fft::cpu
