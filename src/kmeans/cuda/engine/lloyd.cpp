// Lloyd's iterations on the device. See lloyd.hpp.
#include "kmeans/cuda/engine/lloyd.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "abft/threshold.hpp"
#include "kmeans/cuda/engine/serving_pass.hpp"
#include "kmeans/cuda/layout/fixed.hpp"
#include "kmeans/cuda/layout/join.hpp"
#include "kmeans/stop.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

template <class T>
lloyd<T>::lloyd(std::shared_ptr<ballast::cuda::device> on, const ballast::cuda::device_call& call, const lloyd_problem<T>& what)
    : device_(std::move(on)), call_(call), what_(what) {
  if (what_.all == 0) what_.all = what_.points.m;
  const normalized_points<T>& points = what_.points;
  problem_ = {sizeof(T) == 8, points.n, what_.k, points.words, points.weight != nullptr, what_.check, true};
  load_kernels();
  shape_ = shape_of(problem_, passes_.with_sums.policy);
  const std::int64_t k = what_.k, stride = points.stride, columns = std::int64_t{points.columns} * points.words;
  const std::int64_t sums = std::int64_t{points.words} * sum_pitch(points.stride);  // numbers per cluster
  const auto size = static_cast<std::int64_t>(sizeof(T));
  std::int64_t end = 0;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = end;
    end += (bytes + 255) / 256 * 256;
    return begin;
  };
  offsets_.packed = take(shape_.template packed_bytes<T>());
  offsets_.columns = take(std::int64_t{shape_.tiles()} * k_tile_columns * 2 * size);
  for (int i = 0; i < 2; ++i) {
    offsets_.rows[i] = take((k + 1) * stride * size);
    offsets_.twins[i] = take(k * stride * size);
    offsets_.sums[i] = i == 0 || tiles_ != nullptr ? take(k * sums * 8) : 0;
    offsets_.members[i] = i == 0 || tiles_ != nullptr ? take(k * 8) : 0;
    offsets_.totals[i] = take(sizeof(pass_totals));
  }
  offsets_.limits = take(std::int64_t{shape_.sections} * 2 * static_cast<std::int64_t>(sizeof(section_limits<T>)));
  offsets_.bound = take(2 * static_cast<std::int64_t>(sizeof(score_bound<T>)));
  offsets_.column_sums = take((columns + 4) * 8);
  offsets_.results = take(update_blocks() * static_cast<std::int64_t>(sizeof(part_result)));
  offsets_.sections = take(shape_.sections * static_cast<std::int64_t>(sizeof(section_result)));
  offsets_.checksums = take(std::int64_t{shape_.sections} * shape_.data_tiles * stride * 8);
  offsets_.squares = take(k * 8);
  offsets_.tickets = take((std::int64_t{shape_.sections} * (update_parts<T>(points.stride) + 1) + 1) * 4);
  offsets_.state = take(2 * sizeof(loop_state));
  offsets_.given = take(k * points.n * size);
  offsets_.given_twin = take(k * points.n * size);
  // For a group: the sums, the members and the totals of all devices.
  if (what_.join) offsets_.joined = take((k * sums + k) * 8 + static_cast<std::int64_t>(sizeof(pass_totals)));
  offsets_.bytes = end;
  const auto memory = [&](std::int64_t bytes) {
    return what_.lane != nullptr ? lane_buffer(*what_.lane, bytes) : lane_buffer({device_, bytes, call_.order()});
  };
  memory_ = memory(end);
  device_->zero(memory_.data(), end, call_.order());
  for (lane_buffer& each : labels_) each = memory(points.m * 4);
  if (what_.join) prepare_join();
}

// Work of this device may read what others offer.
template <class T>
lloyd<T>::~lloyd() {
  if (!what_.join) return;
  try {
    call_.wait();
  } catch (...) {  // a device that fails here does no more work
  }
}

// Both kinds of passes share the packed centroids: the groups of tiles and the checks are the same.
template <class T>
void lloyd<T>::load_kernels() {
  const normalized_points<T>& points = what_.points;
  const bool instrumented = call_.instrumented();
  if (what_.scheme) {
    passes_.with_sums.policy = what_.policy ? *what_.policy : choose_pass(problem_, device_->about());
    update_ = &device_->load(update_request(problem_, instrumented));
    tiles_ =
        std::make_unique<tile_pass<T>>(device_, call_, points, what_.k, *what_.scheme, what_.tile ? &*what_.tile : nullptr, what_.flips);
    return;
  }
  const auto load = [&] {
    pass_kernels made;
    const serving_pass serving =
        what_.policy ? serving_pass{*what_.policy, false} : serve_pass(*device_, problem_, what_.all, instrumented);
    made.policy = serving.policy;
    made.general = serving.general;
    made.first_policy = what_.policy ? what_.first_policy : first_pass(problem_, made.policy, device_->about());
    const auto loaded = device_->load_all(pass_kernel_requests(problem_, made.policy, made.first_policy, instrumented));
    made.with_sums = loaded[0];
    made.labels_only = loaded[1];
    made.update = loaded[2];
    if (made.first_policy) made.first = loaded[3];
    for (int i = 0; i < 2; ++i) made.resident[i] = device_->resident_blocks(*loaded[static_cast<std::size_t>(i)]);
    if (made.first_policy) made.resident[2] = device_->resident_blocks(*made.first);
    return made;
  };
  const pass_kernels found = what_.kept != nullptr && !what_.policy
                                 ? what_.kept->passes(points.words, points.weight != nullptr, what_.check, instrumented, load)
                                 : load();
  update_ = found.update;
  passes_.with_sums = {found.with_sums, found.policy, found.resident[0]};
  passes_.labels_only = {found.labels_only, found.policy, found.resident[1]};
  passes_.labels_only.policy.sums = sum_memory::none;
  // Each block adds its sums to those of all: that must be little beside the rows.
  constexpr std::int64_t k_least_rows = 4;  // least rows of a block for each cluster
  if (found.first != nullptr && (what_.first_policy || points.m >= k_least_rows * found.resident[2] * what_.k))
    passes_.first = {found.first, *found.first_policy, found.resident[2]};
  for (kernels* each : {&passes_.with_sums, &passes_.labels_only, &passes_.first}) {
    const std::int64_t rows = pass_rows_of_block(each->policy);
    each->blocks = std::clamp<std::int64_t>(each->blocks, 1, (points.m + rows - 1) / rows);
  }
}

template <class T>
void lloyd<T>::begin_run(bool anew) {
  first_pass_ = true;
  added_ = false;
  if (!anew) return;
  device_->zero(memory_.data(), offsets_.bytes, call_.order());
  untouched_ = true;
}

template <class T>
packed_centroids<T> lloyd<T>::packed_of(int which) const {
  return {at<operand_of<T>>(offsets_.packed), at<T>(offsets_.columns),
          at<T>(offsets_.rows[which]),        at<section_limits<T>>(offsets_.limits),
          at<score_bound<T>>(offsets_.bound), shape_};
}

// Packs given centroids, or those of the sums of the last pass. The new rows are the current ones afterwards.
template <class T>
void lloyd<T>::launch_update(bool given, bool on_device, const abft::guarded_threshold& tolerance) {
  const int old = rows_, next = 1 - rows_;
  update_arguments<T> a{};
  a.points = what_.points;
  a.centroids = packed_of(next);
  a.twin = at<T>(offsets_.twins[next]);
  a.old_rows = given ? nullptr : at<T>(offsets_.rows[old]);
  a.old_twin = at<T>(offsets_.twins[old]);
  a.given = given ? at<T>(offsets_.given) : nullptr;
  a.given_twin = at<T>(offsets_.given_twin);
  a.sums = at<unsigned long long>(offsets_.sums[buffer_of(last_sums_)]);
  a.members = at<unsigned long long>(offsets_.members[buffer_of(last_sums_)]);
  a.totals = at<pass_totals>(offsets_.totals[last_sums_]);
  if (what_.join) {
    a.points.m = what_.all;
    a.sums = at<unsigned long long>(offsets_.joined);
    a.members = a.sums + sum_words();
    a.totals = reinterpret_cast<const pass_totals*>(a.members + what_.k);
  }
  if (tiles_ != nullptr) {
    a.next_sums = at<unsigned long long>(offsets_.sums[sums_]);
    a.next_members = at<unsigned long long>(offsets_.members[sums_]);
  }
  a.next_totals = at<pass_totals>(offsets_.totals[sums_]);
  a.expected = what_.expected;
  a.expected_members = what_.members;
  a.column_sums = at<unsigned long long>(offsets_.column_sums);
  a.results = at<part_result>(offsets_.results);
  a.sections = at<section_result>(offsets_.sections);
  a.checksums = at<double>(offsets_.checksums);
  a.squares = at<double>(offsets_.squares);
  a.tickets = at<std::uint32_t>(offsets_.tickets);
  a.state = on_device ? at<loop_state>(offsets_.state) : nullptr;
  a.tolerance = tolerance.value;
  a.tolerance_twin = tolerance.twin;
  a.spread = what_.spread;
  a.walk = score_walk(abft::unit_roundoff<T>, what_.points.n);
  a.distance_limit = thresholds::distance(abft::unit_roundoff<T>, what_.points.n);
  a.events = call_.events();
  a.repeats = what_.repeats;
  call_.launch(*update_, update_blocks(), a);
  rows_ = next;
}

template <class T>
void lloyd<T>::launch_pass(bool with_sums, bool on_device, T* distances) {
  const int before = current_;
  current_ = 1 - current_;
  pass_arguments<T> a{};
  a.centroids = packed_of(rows_);
  a.sums = at<unsigned long long>(offsets_.sums[buffer_of(sums_)]);
  a.members = at<unsigned long long>(offsets_.members[buffer_of(sums_)]);
  a.fresh = !added_;
  a.draws = with_sums && !what_.pieces;
  a.totals = at<pass_totals>(offsets_.totals[sums_]);
  a.distances = distances;
  a.events = call_.events();
  a.state = on_device ? at<loop_state>(offsets_.state) : nullptr;
  a.repeats = what_.repeats;
  const kernels& with = !with_sums ? passes_.labels_only : a.fresh && passes_.first.pass != nullptr ? passes_.first : passes_.with_sums;
  const auto launch = [&](std::int64_t first, const normalized_points<T>& points) -> void {
    a.points = points;
    a.labels = labels() + first;
    a.previous = first_pass_ ? nullptr : static_cast<const std::int32_t*>(labels_[before].data()) + first;
    a.distances = distances == nullptr ? nullptr : distances + first;
    if (tiles_ != nullptr) return tiles_->enqueue(a, with_sums);
    const std::int64_t rows = pass_rows_of_block(with.policy);
    call_.launch(*with.pass, std::min(with.blocks, (points.m + rows - 1) / rows), a);
  };
  if (what_.pieces) {
    what_.pieces(launch);
  } else {
    launch(0, what_.points);
  }
  last_sums_ = sums_;
  sums_ = 1 - sums_;
  first_pass_ = false;
  added_ = with_sums && tiles_ == nullptr;
}

template <class T>
void lloyd<T>::set_centroids(std::span<const T> values, std::span<const T> twin) {
  const auto bytes = static_cast<std::int64_t>(values.size_bytes());
  device_->copy(at<void>(offsets_.given), values.data(), bytes, call_.order());
  device_->copy(at<void>(offsets_.given_twin), twin.data(), bytes, call_.order());
  launch_update(true, false, abft::guarded_threshold(0));
}

// Clears the sums with which a pass begins, as an update does: the host may have run other passes since.
template <class T>
void lloyd<T>::prepare_sums(bool with_sums) {
  if (std::exchange(untouched_, false)) return;
  if (with_sums && !added_) {
    device_->zero(at<void>(offsets_.sums[buffer_of(sums_)]), what_.k * sum_pitch(what_.points.stride) * what_.points.words * 8,
                  call_.order());
    device_->zero(at<void>(offsets_.members[buffer_of(sums_)]), what_.k * 8, call_.order());
  }
  device_->zero(at<void>(offsets_.totals[sums_]), sizeof(pass_totals), call_.order());
}

template <class T>
void lloyd<T>::pass(bool sums, T* distances) {
  prepare_sums(sums);
  launch_pass(sums, false, distances);
}

namespace {
constexpr std::int64_t k_total_words = k_quantities + 2;  // the sums among those of pass_totals
}

template <class T>
std::int64_t lloyd<T>::all_words() const {
  return sum_words() + what_.k + k_total_words;
}

template <class T>
core::vector<unsigned long long> lloyd<T>::read_words() const {
  core::vector<unsigned long long> made(static_cast<std::size_t>(all_words()));
  const std::int64_t sums = sum_words(), k = what_.k;
  device_->copy(made.data(), at<void>(offsets_.sums[buffer_of(last_sums_)]), sums * 8, call_.order());
  device_->copy(made.data() + sums, at<void>(offsets_.members[buffer_of(last_sums_)]), k * 8, call_.order());
  device_->copy(made.data() + sums + k, at<void>(offsets_.totals[last_sums_]), k_total_words * 8, call_.order());
  call_.wait();
  return made;
}

template <class T>
void lloyd<T>::convert(std::span<const unsigned long long> from, cluster_sums& total) const {
  const normalized_points<T>& points = what_.points;
  const std::int64_t k = what_.k, words = points.words, pitch = sum_pitch(points.stride);
  core::vector<T> unit(static_cast<std::size_t>(points.columns));
  device_->copy(unit.data(), points.unit, static_cast<std::int64_t>(unit.size() * sizeof(T)), call_.order());
  call_.wait();
  for (std::int64_t j = 0; j < k; ++j) {
    const auto value = [&](std::int64_t c) {
      const std::int64_t index = j * words * pitch + sum_index<T>(static_cast<int>(c), points.n, points.stride);
      double sum = 0;
      for (std::int64_t w = words; w-- > 0;)
        sum += static_cast<double>(static_cast<long long>(from[static_cast<std::size_t>(index + w * pitch)])) *
               word_value(static_cast<int>(w));
      return sum / static_cast<double>(unit[static_cast<std::size_t>(c)]);
    };
    for (std::int64_t f = 0; f < points.n; ++f) total.sums[j * points.n + f] = value(f);
    if (total.weights.size() != 0) total.weights[j] = value(points.n);
    total.members[j] = static_cast<std::int64_t>(from[static_cast<std::size_t>(sum_words() + j)]);
  }
  const unsigned long long* const totals = from.data() + sum_words() + k;
  total.changed = static_cast<std::int64_t>(totals[4]);
  total.changed_twin = what_.all - static_cast<std::int64_t>(totals[3]);
}

template <class T>
bool lloyd<T>::words_fit(std::span<const unsigned long long> from, std::span<const unsigned long long> expected, std::uint64_t members,
                         std::int64_t m) const {
  const normalized_points<T>& points = what_.points;
  const std::int64_t k = what_.k, columns = points.columns, words = points.words, pitch = sum_pitch(points.stride);
  core::vector<unsigned long long> found(expected.size());
  unsigned long long labelled = 0, all = 0, labelled_members = 0;
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t w = 0; w < words; ++w) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t index = (j * words + w) * pitch + sum_index<T>(static_cast<int>(c), points.n, points.stride);
        const unsigned long long word = from[static_cast<std::size_t>(index)];
        found[static_cast<std::size_t>(w * columns + c)] += word;
        labelled += static_cast<unsigned long long>(j) * (word * signature_weight(c, static_cast<int>(w)));
      }
    }
    const unsigned long long count = from[static_cast<std::size_t>(sum_words() + j)];
    all += count;
    labelled_members += static_cast<unsigned long long>(j) * count;
  }
  const unsigned long long* const totals = from.data() + sum_words() + k;
  return std::ranges::equal(found, expected) && labelled == totals[1] && all == members && all + (labelled_members << 32) == totals[2] &&
         totals[3] + totals[4] == static_cast<unsigned long long>(m);
}

template <class T>
bool lloyd<T>::read_sums(cluster_sums& total) const {
  core::vector<unsigned long long> expected(static_cast<std::size_t>(what_.points.columns) * static_cast<std::size_t>(what_.points.words));
  device_->copy(expected.data(), what_.expected, static_cast<std::int64_t>(expected.size() * 8), call_.order());
  const core::vector<unsigned long long> words = read_words();
  convert(words, total);
  return !what_.check || words_fit(words, expected, what_.members, what_.points.m);
}

template <class T>
std::pair<std::uint64_t, std::uint64_t> lloyd<T>::looks() const {
  pass_totals totals{};
  device_->copy(&totals, at<void>(offsets_.totals[last_sums_]), sizeof totals, call_.order());
  call_.wait();
  return {totals.looks, totals.scans};
}

// Returns whether iterations can have ended so: `before` were complete, and `wanted` more were enqueued.
bool is_possible(const loop_state (&state)[2], int before, int wanted, double tolerance) {
  const loop_state &one = state[0], &twin = state[1];
  if (one.reason != twin.reason || one.iterations != twin.iterations || one.changed != twin.changed) return false;
  if (std::bit_cast<std::uint64_t>(one.shift) != std::bit_cast<std::uint64_t>(twin.shift)) return false;
  const std::int64_t complete = std::int64_t{one.iterations} - before;
  if (complete < 0 || complete > wanted) return false;
  const auto reason = static_cast<device_stop>(one.reason);
  if (reason == device_stop::empty_cluster || reason == device_stop::failure) return complete < wanted;
  const stop_rule rule = complete == 0 ? stop_rule::none : stop_after(one.changed == 0, one.shift, tolerance);
  if (reason == device_stop::none) return complete == wanted && rule == stop_rule::none;
  return complete > 0 && ((reason == device_stop::labels_unchanged && rule == stop_rule::labels_unchanged) ||
                          (reason == device_stop::tolerance && rule == stop_rule::tolerance));
}

// Loads the kernels that add the sums of all devices, and makes the memory for what this one offers.
template <class T>
void lloyd<T>::prepare_join() {
  const ballast::cuda::kernel_request wanted[] = {join_offer_request(call_.instrumented()), join_add_request(call_.instrumented())};
  const auto loaded = device_->load_all(wanted);
  joining_.offer = loaded[0];
  joining_.add = loaded[1];
  joining_.offers = std::make_shared<join_memory>();
  what_.join->kept->push_back(joining_.offers);
  const std::int64_t bytes = offer_words(all_words()) * 8;
  const bool on_device = what_.join->link != nullptr || what_.join->meeting->peers();
  for (std::size_t i = 0; i < 2; ++i) {
    if (on_device)
      joining_.offers->there[i] = {device_, bytes};
    else
      joining_.offers->here[i] = {device_, bytes};
    joining_.offers->written[i] = device_->make_event(false);
  }
  device_->synchronize(nullptr);  // the memory is there, for other streams
}

// Offers the sums of the last pass, and adds those of all devices. Kernels do nothing once the iterations have ended.
template <class T>
void lloyd<T>::launch_join() {
  const device_join& with = *what_.join;
  const std::size_t me = with.over->place(), ranks = with.over->size();
  const std::uint64_t turn = with.link != nullptr ? joining_.turns++ : with.meeting->turn(me);
  const std::size_t parity = turn % 2;
  const std::int64_t count = all_words(), chunks = join_chunks(count);
  join_offer_arguments offer{};
  offer.parts[0] = at<unsigned long long>(offsets_.sums[buffer_of(last_sums_)]);
  offer.parts[1] = at<unsigned long long>(offsets_.members[buffer_of(last_sums_)]);
  offer.parts[2] = at<unsigned long long>(offsets_.totals[last_sums_]);
  offer.ends[0] = sum_words();
  offer.ends[1] = offer.ends[0] + what_.k;
  offer.ends[2] = count;
  offer.to = joining_.offers->offer(parity);
  offer.stamp = turn;
  offer.state = at<loop_state>(offsets_.state);
  call_.launch(*joining_.offer, chunks, offer);
  auto* const joined = at<unsigned long long>(offsets_.joined);
  if (with.link != nullptr) return with.link->add(offer.to, joined, count, call_.order());
  device_->record(*joining_.offers->written[parity], call_.order());
  with.meeting->tell(me, {offer.to, joining_.offers->written[parity].get()});
  join_add_arguments add{};
  for (std::size_t p = 0; p < ranks; ++p) {
    const wire::device_meeting::offer its = with.meeting->of(p, turn, *with.over);
    add.offers[p] = static_cast<const unsigned long long*>(its.memory);
    if (p != me) device_->wait(*its.written, call_.order());
  }
  add.devices = static_cast<int>(ranks);
  add.repeats = what_.repeats;
  add.check = what_.check;
  add.words = count;
  add.to = joined;
  add.stamp = turn;
  add.state = offer.state;
  add.events = call_.events();
  call_.launch(*joining_.add, chunks, add);
}

// Compares the states of all devices after a stretch, which must be the same. Without checks the first device decides.
template <class T>
bool lloyd<T>::alike_everywhere(bool possible, loop_state& state) const {
  constexpr std::uint64_t impossible = ~std::uint64_t{0};
  const std::uint64_t own =
      possible ? std::uint64_t{state.reason} << 40 | std::uint64_t{state.failed & 0xff} << 32 | state.iterations : impossible;
  const std::vector<std::uint64_t> all = what_.join->states(own);
  if (what_.check) return possible && std::ranges::all_of(all, [&](std::uint64_t each) { return each == own; });
  state.reason = static_cast<std::uint32_t>(all[0] >> 40);
  state.failed = static_cast<std::uint32_t>(all[0] >> 32 & 0xff);
  state.iterations = static_cast<std::uint32_t>(all[0]);
  return true;
}

template <class T>
stretch lloyd<T>::run(int most, const abft::guarded_threshold& tolerance) {
  loop_state states[2] = {};
  const loop_state& state = states[0];
  device_->zero(at<void>(offsets_.state), sizeof states, call_.order());
  stretch made;
  while (made.iterations < most && made.reason == device_stop::none) {
    // The iterations in flight: few at first, because many runs are short. Kernels after the last iteration return at once, but pieces
    // would be copied.
    const int wanted = what_.pieces ? 1 : std::min(most - made.iterations, made.iterations < 8 ? 4 : 16);
    const indexes before{rows_, sums_, last_sums_, current_};
    for (int i = 0; i < wanted; ++i) {
      if (made.iterations + i == 0) prepare_sums(true);
      launch_pass(true, true, nullptr);
      if (what_.join) launch_join();
      launch_update(false, true, tolerance);
    }
    // The host must not wait in the driver for a sum that a lost rank never joins.
    if (what_.join && what_.join->link != nullptr) what_.join->link->finish(call_.order());
    ballast::cuda::event_counters logged{};
    device_->copy(states, at<void>(offsets_.state), sizeof states, call_.order());
    device_->copy(&logged, call_.events(), sizeof logged, call_.order());
    call_.wait();
    made.logged = logged.written != 0 || logged.false_alarms != 0;
    bool possible = !what_.check || is_possible(states, made.iterations, wanted, tolerance.value);
    if (what_.join) possible = alike_everywhere(possible, states[0]);
    if (what_.check && !possible) return {device_stop::failure, check::shift, 0, true, made.logged};
    made.reason = static_cast<device_stop>(state.reason);
    made.failed = static_cast<check>(state.failed);
    // Without checks a wrong number ends the run, or counts wrongly, but does not make it endless.
    const int complete =
        made.reason == device_stop::none
            ? wanted
            : static_cast<int>(std::clamp(std::int64_t{state.iterations} - made.iterations, std::int64_t{0}, std::int64_t{wanted}));
    end_stretch(made, before, complete);
  }
  return made;
}

// Sets the indexes to those of the device after `complete` iterations since `before`: kernels that were enqueued after its last iteration
// did nothing.
template <class T>
void lloyd<T>::end_stretch(stretch& made, const indexes& before, int complete) {
  made.iterations += complete;
  checks_ += static_cast<std::uint64_t>(complete);
  if (made.reason == device_stop::failure) added_ = false;
  const bool unfinished = made.reason == device_stop::empty_cluster || made.reason == device_stop::failure;
  const int passes = complete + (unfinished ? 1 : 0);
  rows_ = complete % 2 == 0 ? before.rows : 1 - before.rows;
  current_ = passes % 2 == 0 ? before.labels : 1 - before.labels;
  if (passes > 0) {
    last_sums_ = passes % 2 == 1 ? before.sums : 1 - before.sums;
    sums_ = 1 - last_sums_;
  } else {
    last_sums_ = before.last_sums;
  }
}

template <class T>
bool lloyd<T>::read_centroids(core::vector<T>& values, bool before) const {
  const int which = before ? 1 - rows_ : rows_;
  const normalized_points<T>& points = what_.points;
  core::vector<T> rows(static_cast<std::size_t>(what_.k * points.stride)), twin(rows.size());
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(T));
  device_->copy(rows.data(), at<void>(offsets_.rows[which]), bytes, call_.order());
  device_->copy(twin.data(), at<void>(offsets_.twins[which]), bytes, call_.order());
  call_.wait();
  values.resize(static_cast<std::size_t>(what_.k * points.n));
  for (std::int64_t j = 0; j < what_.k; ++j) std::copy_n(rows.begin() + j * points.stride, points.n, values.begin() + j * points.n);
  return std::memcmp(rows.data(), twin.data(), static_cast<std::size_t>(bytes)) == 0;
}

template class lloyd<float>;
template class lloyd<double>;

}  // namespace ballast::kmeans::cuda
