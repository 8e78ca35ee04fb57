// Layer: backend "cuda" of K-Means (sparse_engine.hpp).
#include "kmeans/cuda/engine/sparse_engine.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "core/parallel.hpp"
#include "inject/injector.hpp"
#include "kmeans/cuda/engine/kernels.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

template <class T>
const kernels<T>& host_kernels() {
#if defined(BALLAST_HAS_CPU)
  return cpu_sparse_kernels<T>();
#else
  return reference_sparse_kernels<T>();
#endif
}

constexpr int k_most_words = 8;
// Whole numbers up to 2^50 are rounded by an addition, and have no rounding error as doubles.
constexpr int k_most_word_bits = 50;
constexpr int k_warps = k_sparse_threads / 32;

}  // namespace

template <class T>
sparse_engine<T>::sparse_engine(const engine_args<T>& what, std::shared_ptr<ballast::cuda::device> on)
    : base(what, host_kernels<T>(), core::thread_count(what.how.threads)),
      own_state_(what.kept == nullptr ? std::make_unique<device_state>(std::move(on)) : nullptr),
      state_(what.kept == nullptr ? *own_state_ : static_cast<device_state&>(*what.kept)),
      device_(state_.on()),
      lane_(state_, what.how.stream),
      call_(device_, state_.rings().take(what.how.workspace, what.how.stream), what.injector, what.how.stream) {
  this->what_.seen.runs_on(device_->about().name);
  state_.prepare(call_.instrumented(), [&] { (void)device_->load_all(kernel_names<T>::sparse(call_.instrumented())); });
  upload_points();
}

template <class T>
template <class Value>
void sparse_engine<T>::upload(buffer& to, const Value* values, std::int64_t count) const {
  const std::int64_t bytes = std::max<std::int64_t>(count * static_cast<std::int64_t>(sizeof(Value)), 1);
  if (to.bytes() < bytes) to = buffer(*lane_, bytes);
  if (count > 0) device_->copy(to.data(), values, count * static_cast<std::int64_t>(sizeof(Value)), call_.order());
}

template <class T>
template <class Value>
void sparse_engine<T>::download(core::vector<Value>& to, const buffer& from, std::int64_t count) const {
  to.resize(core::at(count));
  device_->copy(to.data(), from.data(), count * static_cast<std::int64_t>(sizeof(Value)), call_.order());
}

template <class T>
template <class Make, class Arguments>
void sparse_engine<T>::launch(int number, Make&& make, std::int64_t blocks, const Arguments& given) const {
  call_.launch(state_.load(number, call_.instrumented(), make), blocks, given);
}

// Copies the points and weights to the device.
template <class T>
void sparse_engine<T>::upload_points() {
  staged_ = std::make_unique<ballast::cuda::device_staging>(device_, call_.order());
  const sparse_rows<T>& rows = this->source_.sparse;
  const std::int64_t index = rows.wide() ? 8 : 4;
  const std::int64_t first = rows.first(0), stored = rows.first(this->m_) - first;
  const auto read = [&](const void* from, std::int64_t begin, std::int64_t size, std::int64_t count) -> const void* {
    return count == 0 ? nullptr : staged_->read(static_cast<const char*>(from) + begin * size, count * size);
  };
  points_.offsets = read(rows.offsets_for_device(), 0, index, this->m_ + 1);
  points_.columns = read(rows.indices_for_device(), first, index, stored);
  points_.values = static_cast<const T*>(read(rows.values_for_device(), first, static_cast<std::int64_t>(sizeof(T)), stored));
  points_.wide = rows.wide();
  points_.origin = first;
  points_.m = this->m_;
  points_.n = this->n_;
  points_.scale = points_.scale_twin = this->source_.scale;
  const auto& weights = this->source_.weights;
  weights_ =
      static_cast<const T*>(read(weights.data(), 0, static_cast<std::int64_t>(sizeof(T)), static_cast<std::int64_t>(weights.size())));
}

// Also finds the range of the elements of each feature, in units of the weights.
template <class T>
ranges<T> sparse_engine<T>::column_stats() {
  ranges<T> made = base::column_stats();
  const std::int64_t groups = this->division_.groups;
  core::vector<magnitudes> of_groups(core::at(groups));
  constexpr int none = std::numeric_limits<int>::max();
  const auto clear = [&](magnitudes& each) {
    each.largest.assign(core::at(this->n_), -none);
    each.smallest.assign(core::at(this->n_), none);
  };
  core::parallel_for(this->threads_, groups, [&](std::int64_t group, int) {
    magnitudes seen;
    clear(seen);
    const std::int64_t end = std::min(this->first_block(group + 1) * this->division_.capacity, this->m_);
    for (std::int64_t i = this->first_block(group) * this->division_.capacity; i < end; ++i) {
      const T weight = this->weighted() ? this->source_.weights[core::at(i)] : T(1);
      if (!(weight > 0) || !std::isfinite(weight)) continue;
      const int exponent = std::ilogb(weight);
      this->source_.sparse.each(i, [&](std::int64_t f, T value) {
        if (value == 0 || !std::isfinite(value)) return;
        const int own = exponent + std::ilogb(value);
        seen.largest[core::at(f)] = std::max(seen.largest[core::at(f)], own);
        seen.smallest[core::at(f)] = std::min(seen.smallest[core::at(f)], own);
      });
    }
    of_groups[core::at(group)] = std::move(seen);
  });
  clear(magnitudes_);
  for (const magnitudes& each : of_groups) {
    for (std::size_t f = 0; f < each.largest.size(); ++f) {
      magnitudes_.largest[f] = std::max(magnitudes_.largest[f], each.largest[f]);
      magnitudes_.smallest[f] = std::min(magnitudes_.smallest[f], each.smallest[f]);
    }
  }
  return made;
}

template <class T>
void sparse_engine<T>::normalize(const normalization<T>& chosen) {
  base::normalize(chosen);
  points_.scale = points_.scale_twin = chosen.scale;
  rows_read_ = false;
}

// Chooses how many words a sum has: enough for the last bit of the smallest product of each feature. A word holds the sum of m numbers.
template <class T>
void sparse_engine<T>::choose_words() {
  word_bits_ = std::min(k_most_word_bits, 62 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(this->m_))));
  // In 64 bits: a wrong scale may be 0 or NaN, whose ilogb is the least or the largest int.
  const std::int64_t shift = std::int64_t{std::ilogb(this->source_.scale)} + std::ilogb(this->source_.weight_scale);
  const int last = this->weighted() || sizeof(T) == 8 ? 53 : 24;  // bits of a product
  core::vector<double> unit(core::at(this->n_), 1.0);
  words_ = 1;
  for (std::size_t f = 0; f < unit.size(); ++f) {
    const std::int64_t largest = magnitudes_.largest[f], smallest = magnitudes_.smallest[f];
    if (largest < smallest) continue;  // no element, or no weight
    // A product of two numbers below 2^(e + 1) and 2^(g + 1) is below 2^(e + g + 2).
    unit[f] = std::ldexp(1.0, static_cast<int>(std::clamp<std::int64_t>(word_bits_ - (largest + shift + 2), -2000, 1000)));
    const std::int64_t wanted = (largest - smallest + 2 + last + word_bits_ - 1) / word_bits_;
    words_ = static_cast<int>(std::clamp<std::int64_t>(wanted, words_, k_most_words));
  }
  upload(memory_.unit, unit.data(), this->n_);
}

template <class T>
void sparse_engine<T>::begin_run() {
  base::begin_run();
  choose_words();
  rows_read_ = false;
}

// Loads each block once: for ‖x‖², from which the limits of the row checks follow, and in a fit for the projections.
template <class T>
void sparse_engine<T>::read_rows() {
  if (rows_read_ || !this->checks()) return;
  const bool projects = !this->projection_.values.empty();
  core::parallel_for(this->threads_, this->division_.blocks, [&](std::int64_t block, int slot) {
    worker& here = this->workers_[core::at(slot)];
    this->load_verified(here, slot, block);
    if (!projects || this->projection_.done[core::at(block)] != 0) return;
    const point_block<T>& b = here.block;
    this->kernels_.project(b, this->projection_.direction.data(), this->projection_.values.data() + b.first);
    this->projection_.done[core::at(block)] = 1;
  });
  upload(memory_.squares, this->loaded_.squares.data(), this->m_);
  rows_read_ = true;
}

// Searches the packed centroids for all rows.
template <class T>
void sparse_engine<T>::prepare_search() {
  read_rows();
  const kmeans::packed_centroids<T>& from = this->packed_;
  const bool check = this->checks();
  const std::int64_t columns = from.tiles * k_tile, sections = from.sections;
  upload(memory_.packed, from.packed.data(), from.packed.size());
  // Numbers per column, per section, and the checksum centroids, in one copy.
  core::vector<T> numbers;
  const auto add = [&](const T* values, std::int64_t count) {
    const std::size_t begin = (numbers.size() + 1) / 2 * 2;  // pairs are read
    numbers.resize(begin + core::at(count));
    std::copy_n(values, count, numbers.begin() + static_cast<std::ptrdiff_t>(begin));
    return begin;
  };
  const std::size_t norms = add(from.norms.data(), columns);
  std::size_t weights = 0, start = 0, checksum = 0, rest = 0, limits = 0;
  if (check) {
    weights = add(from.weights.data(), columns);
    start = add(from.sparse.start.data(), columns);
    checksum = add(from.checksum.data(), sections * this->n_);
    rest = add(from.sparse.rest.data(), sections);
    core::vector<T> squared;
    for (std::size_t g = 0; g < core::at(sections); ++g) {
      const T slope = static_cast<T>(from.bounds.slope[g].value), offset = static_cast<T>(from.bounds.offset[g].value),
              doubt = static_cast<T>(from.bounds.doubt[g]);
      squared.insert(squared.end(), {slope * slope, offset * offset, doubt * doubt});
    }
    limits = add(squared.data(), 3 * sections);
  }
  core::vector<std::int32_t> names;
  for (const auto& each : from.names) names.insert(names.end(), each.data(), each.data() + columns);
  core::vector<std::int64_t> first_column;
  for (const std::int64_t tile : from.first_tile) first_column.push_back(tile * k_tile);
  upload(memory_.columns, numbers.data(), static_cast<std::int64_t>(numbers.size()));
  upload(memory_.names, names.data(), 2 * columns);
  upload(memory_.first_column, first_column.data(), sections + 1);
  const auto room = [&](buffer& to, std::int64_t bytes) {
    if (to.bytes() < bytes) to = buffer(*lane_, bytes);
  };
  room(memory_.label, 4 * this->m_);
  room(memory_.twin, 4 * this->m_);
  room(memory_.minimum, static_cast<std::int64_t>(sizeof(T)) * this->m_);
  room(memory_.state, this->m_);

  sparse_search_arguments<T> given;
  given.points = points_;
  const T* const base_of = static_cast<const T*>(memory_.columns.data());
  const auto* const first_name = static_cast<const std::int32_t*>(memory_.names.data());
  given.centroids = {static_cast<const T*>(memory_.packed.data()),
                     base_of + norms,
                     base_of + weights,
                     base_of + start,
                     {first_name, first_name + columns},
                     static_cast<const std::int64_t*>(memory_.first_column.data()),
                     base_of + checksum,
                     base_of + rest,
                     base_of + limits,
                     static_cast<int>(sections)};
  given.squares = check ? static_cast<const T*>(memory_.squares.data()) : nullptr;
  const thresholds::score_margin<T> margin = thresholds::margin_of<T>(from.terms());
  given.square = margin.square, given.least = margin.least_score, given.offset = margin.offset;
  given.label = static_cast<std::int32_t*>(memory_.label.data());
  given.twin = static_cast<std::int32_t*>(memory_.twin.data());
  given.minimum = static_cast<T*>(memory_.minimum.data());
  given.state = static_cast<unsigned char*>(memory_.state.data());
  given.rows = this->m_ < 65536 ? 16 : 32;  // divides the rows of a block
  given.check = check;
  const std::int64_t groups = (this->m_ + given.rows - 1) / given.rows;
  launch(k_sparse_search_kernel, kernel_names<T>::sparse_search, (groups + k_warps - 1) / k_warps, given);
  download(found_.label, memory_.label, this->m_);
  if (check) download(found_.twin, memory_.twin, this->m_);
  download(found_.minimum, memory_.minimum, this->m_);
  download(found_.state, memory_.state, this->m_);
  call_.wait();
  found_.present = true;
}

// A block that was searched by the device; else by the host.
template <class T>
row_failure sparse_engine<T>::search(worker& here, const kmeans::packed_centroids<T>& centroids, search_kind what) {
  point_block<T>& b = here.block;
  if (!found_.present || &centroids != &this->packed_)
    return this->kernels_.assign(centroids, what, {&this->quiet_, this->at_block(b.first / this->division_.capacity)}, b);
  row_failure failure;
  b.undecided.count = 0;
  b.doubtful = false;
  for (std::int64_t p = 0; p < b.count; ++p) {
    const std::size_t i = core::at(b.first + p);
    const unsigned char state = found_.state[i];
    b.nearest.index[p] = found_.label[i];
    b.nearest.minimum[p] = found_.minimum[i];
    b.twin.index[p] = this->checks() ? found_.twin[i] : found_.label[i];
    if ((state & k_undecided) != 0) b.undecided.points[b.undecided.count++] = static_cast<std::int32_t>(p);
    if ((state & k_doubtful) != 0) b.doubtful = true;
    if ((state & k_failed) != 0 && failure.row < 0) failure = {std::numeric_limits<double>::quiet_NaN(), b.first + p};
  }
  return failure;
}

template <class T>
void sparse_engine<T>::load_for_search(worker& here, int slot, std::int64_t block, bool again) {
  if (!light_ || again) return base::load_for_search(here, slot, block, again);
  point_block<T>& b = here.block;
  b.first = block * this->division_.capacity;
  b.count = std::min(this->division_.capacity, this->m_ - b.first);
  for (std::int64_t p = 0; p < b.count; ++p) b.weight[p] = this->weight_of(b.first + p);
  std::fill(b.weight.data() + b.count, b.weight.data() + b.capacity, T(0));
  if (this->checks()) b.squares = this->loaded_.squares.data() + b.first;
}

// Adds the weights alone: the device adds the points.
template <class T>
void sparse_engine<T>::add_points(worker& here, cluster_sums& sums) {
  const point_block<T>& b = here.block;
  for (std::int64_t p = 0; p < b.count; ++p) {
    const std::int64_t j = b.label[p];
    if (sums.weights.size() != 0) sums.weights[j] += static_cast<double>(b.weight[p]);
    sums.members[j] += b.weight[p] > 0 ? 1 : 0;
  }
}

template <class T>
void sparse_engine<T>::launch_sums() {
  upload(memory_.label, this->labels_.last.data(), this->m_);
  const int times = this->checks() ? 2 : 1;
  const std::int64_t bytes = core::checked_product(core::checked_product(this->k_, this->n_), 8 * words_ * times);
  if (memory_.sums.bytes() < bytes) memory_.sums = buffer(*lane_, bytes);
  device_->zero(memory_.sums.data(), bytes, call_.order());
  sparse_sums_arguments<T> given;
  given.points = points_;
  given.point_weights = weights_;
  given.weight_scale = this->source_.weight_scale;
  given.label = static_cast<const std::int32_t*>(memory_.label.data());
  given.unit = static_cast<const double*>(memory_.unit.data());
  given.sums = static_cast<unsigned long long*>(memory_.sums.data());
  given.clusters = static_cast<std::int32_t>(this->k_);
  given.words = words_;
  given.word_bits = word_bits_;
  given.check = this->checks();
  launch(k_sparse_sums_kernel, kernel_names<T>::sparse_sums, (this->m_ + k_warps - 1) / k_warps * times, given);
}

// Labels all rows, and sums them by their labels.
template <class T>
void sparse_engine<T>::search_and_sum(const sealed_centroids<T>& centroids) {
  this->pack_verified_centroids(centroids, this->packed_);
  prepare_search();
  light_ = true;
  core::parallel_for(this->threads_, this->division_.groups, [&](std::int64_t group, int slot) {
    if (this->stop()) return;
    if (!this->checks()) {
      (void)this->sum_blocks(group, slot, this->packed_, centroids, false);
      return;
    }
    run::attempt(this->what_.seen, this->what_.how.protection, "kmeans.sums", slot, [&](int) {
      this->what_.seen.checked(1);
      return host::bits_differ(!this->sum_blocks(group, slot, this->packed_, centroids, false), group);
    });
  });
  light_ = false;
  found_.present = false;
  if (!this->stop()) launch_sums();
}

template <class T>
void sparse_engine<T>::pass(const sealed_centroids<T>& centroids) {
  if (!this->labels_.first_pass) this->labels_.last.swap(this->labels_.previous);
  this->labels_.first_pass = false;
  search_and_sum(centroids);
}

template <class T>
void sparse_engine<T>::add_sums(cluster_sums& total) {
  total.clear();
  total.label_chain = this->division_.capacity;
  const std::int64_t count = this->k_ * this->n_;
  if (memory_.made.bytes() < 8 * count) memory_.made = buffer(*lane_, 8 * count);
  sparse_convert_arguments given;
  given.sums = static_cast<const unsigned long long*>(memory_.sums.data());
  if (this->checks()) given.again = given.sums + count * words_;
  given.unit = static_cast<const double*>(memory_.unit.data());
  given.made = static_cast<double*>(memory_.made.data());
  given.count = count;
  given.n = this->n_;
  given.words = words_;
  given.word_bits = word_bits_;
  launch(k_sparse_convert_kernel, kernel_names<T>::sparse_convert, (count + k_sparse_threads - 1) / k_sparse_threads, given);
  device_->copy(total.sums.data(), memory_.made.data(), 8 * count, call_.order());
  call_.wait();
  this->add_counts(total);
}

// The fault may be in anything that was kept since the first pass: the points on the device, projections, the sums of measure().
template <class T>
point_sums sparse_engine<T>::repair_sums(const sealed_centroids<T>& centroids) {
  upload_points();
  choose_words();
  core::parallel_for(this->threads_, this->division_.groups, [&](std::int64_t group, int slot) { this->measure_group(group, slot); });
  std::ranges::fill(this->projection_.done, 0);
  rows_read_ = false;
  search_and_sum(centroids);
  return this->add_measures();
}

template <class T>
std::unique_ptr<engine<T>> make_sparse_engine(const engine_args<T>& what) {
  return std::make_unique<sparse_engine<T>>(what, what.kept == nullptr ? ballast::cuda::current_device() : nullptr);
}

template class sparse_engine<float>;
template class sparse_engine<double>;
template std::unique_ptr<engine<float>> make_sparse_engine(const engine_args<float>&);
template std::unique_ptr<engine<double>> make_sparse_engine(const engine_args<double>&);

}  // namespace ballast::kmeans::cuda
