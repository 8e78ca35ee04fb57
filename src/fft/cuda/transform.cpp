// Runs a schedule on a device: tables and kernels when a direction is first executed, launches at each execution, events when the report is
// asked for. Layer: backend "cuda".
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include <ballast/error.hpp>

#include "abft/threshold.hpp"
#include "cuda/device.hpp"
#include "fft/checks.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/device_transform.hpp"
#include "fft/cuda/schedule.hpp"
#include "fft/cuda/tables.hpp"
#include "fft/cuda/transform.hpp"
#include "inject/device_fault.hpp"
#include "run/attempt.hpp"
#include "run/recorder.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::device_buffer;

// What waits between passes at a time; one signal is the least that a chunk can be. Measured on an H200 (256 MiB of 2^16-point f32
// signals): chunks that fit into the L2 cache (8 to 40 MiB) are 13 to 34 % slower than one of all signals, because each launch drains the
// device; from 80 MiB on 6 % and less. So a chunk is large, and bounded only so that big batches do not need as much memory again.
std::int64_t chunk_bytes(const ballast::cuda::capabilities& about) { return about.memory / 256; }

// What addresses allow, as far as it changes what is needed of memory. A plan has room for all of them.
constexpr alignment k_alignments[] = {{true, true}, {true, false}};

// The argument as a kernel takes it: with the faults behind it if it is instrumented.
struct launch_argument {
  line_arguments arguments;
  inject::device_faults faults;
};
static_assert(offsetof(launch_argument, faults) == sizeof(line_arguments));

// And that of two passes in one launch.
struct instrumented_pair_argument {
  launch_argument first, second;
  pair_arguments pair;
};
struct pair_argument {
  line_arguments first, second;
  pair_arguments pair;
};

template <class T>
class cuda_transform final : public device_transform {
 public:
  cuda_transform(const geometry& shape, const transform_options& options)
      : device_transform(shape, precision_of<T>),
        check_(options.check),
        transactions_(options.transactions),
        plain_(options.plain),
        pairs_(options.pairs),
        tuned_(*options.tuned),
        tables_(device_) {
    // Work is needed for as many signals as run at a time.
    constexpr std::int64_t width = 2 * sizeof(T);
    std::int64_t work = 0;
    for (const alignment aligned : k_alignments) {
      const schedule whole = scheduled(direction::forward, false, shape_.batch, aligned);
      work = std::max(work, (whole.work_elements() - whole.room[static_cast<std::size_t>(place::ring)]) * width);
    }
    chunk_ = shape_.batch;
    if (work > 0) chunk_ = std::clamp<std::int64_t>(chunk_bytes(device_->about()) / (work / shape_.batch), 1, shape_.batch);
    std::uint32_t counters = 0;
    for (const std::int64_t batch : {chunk_, shape_.batch % chunk_}) {
      if (batch == 0) continue;
      for (const alignment aligned : k_alignments) {
        const schedule part = scheduled(direction::forward, false, batch, aligned);
        work_bytes_ = std::max(work_bytes_, (part.work_elements() * width + 255) / 256 * 256);
        counters = std::max(counters, part.counters());
      }
    }
    counter_bytes_ = (counters * static_cast<std::int64_t>(sizeof(std::uint32_t)) + 255) / 256 * 256;
    if (check_ == check_form::one_sided) {
      for (const alignment aligned : k_alignments) {
        const schedule part = scheduled(direction::forward, false, chunk_, aligned);
        for (int from = 0; from < k_places; ++from)
          copy_bytes_ = std::max(copy_bytes_, bytes_at(static_cast<place>(from), part.room, chunk_));
      }
    }
  }

  std::int64_t workspace_bytes() const override { return k_ring_room + counter_bytes_ + work_bytes_ + copy_bytes_; }

 private:
  // A schedule with everything that does not change from call to call.
  struct prepared_pass {
    cuda::pass pass;
    const ballast::cuda::kernel* kernel;  // null: in the launch of the pass before
    line_arguments arguments;
    std::int64_t most_blocks;  // of a launch, for blocks that take several tiles
  };
  struct prepared {
    std::vector<prepared_pass> passes;
    std::array<std::int64_t, k_places> room;
    std::int64_t batch;
  };
  // Device memory of one execution; kept for the next one. The counters of the ring and those of pairs are zero when it is idle.
  struct scratch {
    device_buffer owned;
    unsigned char* ring = nullptr;
    unsigned char* counters = nullptr;
    unsigned char* work = nullptr;
    unsigned char* copy = nullptr;  // one_sided: the input of a pass that overwrites it
  };
  using scratch_handle = std::unique_ptr<scratch>;
  class flight;

  static constexpr std::int64_t k_ring_room = (sizeof(event_ring) + 255) / 256 * 256;

  // What a pass over `batch` signals can find at a place.
  std::int64_t bytes_at(place from, const std::array<std::int64_t, k_places>& room, std::int64_t batch) const {
    const auto part = [&](const side& s) { return (s.extent - (shape_.batch - batch) * s.distance) * this->width_of(s); };
    if (from == place::input) return part(shape_.input);
    if (from == place::output) return part(shape_.output);
    return room[static_cast<std::size_t>(from)] * 2 * static_cast<std::int64_t>(sizeof(T));
  }

  schedule scheduled(direction way, bool scaled, std::int64_t batch, alignment aligned = {}) const {
    schedule_request wanted;
    wanted.shape = shape_;
    wanted.shape.batch = batch;
    wanted.precision = precision_of<T>;
    wanted.direction = way;
    wanted.scaled = scaled;
    wanted.check = check_;
    wanted.transactions = transactions_;
    wanted.plain = plain_;
    wanted.tuned = &tuned_;
    wanted.aligned = aligned;
    wanted.pairs = pairs_;
    return make_schedule(wanted, device_->about());
  }

  const prepared& prepare(direction way, bool scaled, std::int64_t batch, alignment aligned, bool instrumented) const;
  void fill(prepared_pass& made) const;
  void set_call(const prepared_pass& each, line_arguments& a, const std::array<unsigned char*, k_places>& base, std::int64_t chunk,
                const scratch& memory, const call& how) const;
  void launch_lines(const prepared_pass& each, launch_argument& given, const prepared& work,
                    const std::array<unsigned char*, k_places>& base, std::int64_t chunk, const scratch& memory, bool instrumented,
                    const call& how) const;
  void launch(const prepared& work, const std::array<unsigned char*, k_places>& base, std::int64_t chunk, const scratch& memory,
              const inject::device_faults& faults, bool instrumented, const call& how) const;
  std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const call& how) const override;
  scratch_handle take_scratch(const call& how) const;
  void give_back(scratch_handle memory) const;
  run::device_log::entry readable(const device_event& e, const std::vector<const prepared*>& chunks) const;

  check_form check_;
  int transactions_;
  bool plain_;
  pairing pairs_;
  const tuning_table& tuned_;
  std::int64_t chunk_ = 1;
  std::int64_t counter_bytes_ = 0;
  std::int64_t work_bytes_ = 0;
  std::int64_t copy_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<scratch_handle> idle_;
  mutable table_store tables_;
  mutable std::map<std::tuple<direction, bool, std::int64_t, alignment, bool>, std::unique_ptr<prepared>> prepared_;
};

template <class T>
const typename cuda_transform<T>::prepared& cuda_transform<T>::prepare(direction way, bool scaled, std::int64_t batch, alignment aligned,
                                                                       bool instrumented) const {
  const std::lock_guard lock(mutex_);
  auto& slot = prepared_[{way, scaled, batch, aligned, instrumented}];
  if (slot) return *slot;
  schedule made = scheduled(way, scaled, batch, aligned);
  auto work = std::make_unique<prepared>();
  work->room = made.room;
  work->batch = batch;
  int stages = 0;
  int twiddles = 0;
  for (const pass& each : made.passes) {
    stages += each.policy.stages;
    twiddles += each.policy.stages - 1 + (each.policy.multiplies_outputs() ? 1 : 0);
  }
  int stage = 0;
  int twiddle = 0;
  for (std::size_t i = 0; i < made.passes.size(); ++i) {
    const pass& each = made.passes[i];
    // A launch of more blocks than a device can start fails: those of most kernels take one tile each.
    prepared_pass one{each, nullptr, {}, std::numeric_limits<std::int64_t>::max()};
    if (i == 0 || !made.passes[i - 1].pair) {
      one.kernel = &device_->load(kernel_for(made, i, instrumented));
      // Blocks that copy ahead, and those that take tickets, take one tile after the other.
      if (each.policy.staged || each.pair) one.most_blocks = device_->resident_blocks(*one.kernel);
    }
    fill(one);
    line_arguments& a = one.arguments;
    a.pass = static_cast<int>(work->passes.size());
    a.passes = static_cast<int>(made.passes.size());
    a.first_stage = stage;
    a.stages = stages;
    a.first_twiddle = twiddle;
    a.twiddle_steps = std::max(twiddles, 1);
    stage += each.policy.stages;
    twiddle += each.policy.stages - 1 + (each.policy.multiplies_outputs() ? 1 : 0);
    work->passes.push_back(std::move(one));
  }
  tables_.finish();
  slot = std::move(work);
  return *slot;
}

// Tables, addresses and thresholds of a pass.
template <class T>
void cuda_transform<T>::fill(prepared_pass& made) const {
  const pass& p = made.pass;
  const line_policy& policy = p.policy;
  line_arguments& a = made.arguments;
  a = {};
  const auto key = [&] {
    std::string text = std::to_string(policy.length);
    for (int s = 0; s < policy.stages; ++s) text.append(1, '.').append(std::to_string(policy.radix[s]));
    return text;
  }();
  using source = table_source<T>;
  if (policy.stages > 1) a.twiddles = tables_.template get<T>("stages " + key, 0, [&] { return source::stage_twiddles(policy); });
  const auto table = [&](table_kind kind, int copy) -> const void* {
    const std::string which = std::to_string(p.convolution) + (policy.inverse ? " mirrored" : "");
    if (kind == table_kind::chirp)
      return tables_.template get<T>("chirp " + which, copy, [&] { return source::chirp(p.convolution, p.padded_to, policy.inverse); });
    return tables_.template get<T>("filter " + which, copy, [&] { return source::filter(p.convolution, p.padded_to); });
  };
  if (policy.load_factor == factor_form::table) {
    a.load_table = table(p.load_table, 0);
    a.load_twin = table(p.load_table, 1);
  }
  if (policy.store_factor == factor_form::table) {
    a.store_table = table(p.store_table, 0);
    a.store_twin = table(p.store_table, 1);
  }
  if (policy.load == load_form::spectrum) {
    const auto make = [&] { return source::spectrum_factors(policy, true); };
    const auto name = "spectrum in " + key;
    a.load_table = tables_.template get<T>(name, 0, make);
    a.load_twin = tables_.template get<T>(name, 1, make);
  }
  if (policy.mirrors()) {
    const auto make = [&] { return source::spectrum_factors(policy, false); };
    const auto name = "spectrum out " + key;
    a.store_table = tables_.template get<T>(name, 0, make);
    a.store_twin = tables_.template get<T>(name, 1, make);
  }
  if (policy.twiddles()) {
    a.fine_bits = fine_bits_of(p.twiddle_order);
    a.coarse_size = static_cast<int>(coarse_size_of(p.twiddle_order));
    const auto name = "twiddles " + std::to_string(p.twiddle_order);
    const auto make = [&] { return source::split_twiddles(p.twiddle_order, a.fine_bits); };
    if (policy.store_factor == factor_form::separated) {
      const auto separated = "separated " + key + " " + std::to_string(p.columns);
      a.store_table = tables_.template get<T>(separated, 0, [&] { return source::separated_twiddles(policy, p.columns); });
    } else {
      a.store_table = tables_.template get<T>(name, 0, make);
    }
    if (policy.check != check_form::none) a.store_twin = tables_.template get<T>(name, 1, make);
  }
  if (policy.sums()) {
    std::optional<typename source::weights> weights;
    const auto once = [&]() -> typename source::weights& {
      if (!weights) weights = source::checksum_weights(policy);
      return *weights;
    };
    a.verify = tables_.template get<T>("verify " + key, 0, [&] { return once().verify; });
    if (policy.stages > 1) a.encode = tables_.template get<T>("encode " + key, 0, [&] { return once().encode; });
  }
  a.source = p.source;
  a.target = p.target;
  a.columns = p.columns;
  a.middles = p.middles;
  a.batches = p.batches;
  a.column_tiles = (p.columns + policy.lines - 1) / policy.lines;
  a.tiles = a.column_tiles * p.middles * p.batches;
  a.all_tiles = a.tiles;
  for (const pass::repeat& each : p.repeats) a.all_tiles *= each.count;
  a.whole = p.whole;
  a.unit = p.unit;
  a.loaded = p.loaded;
  a.stored = p.stored;
}

template <class T>
void cuda_transform<T>::launch(const prepared& work, const std::array<unsigned char*, k_places>& base, std::int64_t chunk,
                               const scratch& memory, const inject::device_faults& faults, bool instrumented, const call& how) const {
  for (const prepared_pass& each : work.passes) {
    if (each.kernel == nullptr) continue;
    launch_argument given{each.arguments, faults};
    if (!each.pass.pair) {
      launch_lines(each, given, work, base, chunk, memory, instrumented, how);
      continue;
    }
    const prepared_pass& next = *(&each + 1);
    instrumented_pair_argument both{given, {next.arguments, faults}, *each.pass.pair};
    set_call(each, both.first.arguments, base, chunk, memory, how);
    set_call(next, both.second.arguments, base, chunk, memory, how);
    both.pair.counters = reinterpret_cast<std::uint32_t*>(memory.counters);
    const std::int64_t blocks = std::min(each.pass.groups() + next.pass.groups(), each.most_blocks);
    if (instrumented) {
      device_->launch(*each.kernel, blocks, &both, sizeof(both), how.stream);
    } else {
      const pair_argument bare{both.first.arguments, both.second.arguments, both.pair};
      device_->launch(*each.kernel, blocks, &bare, sizeof(bare), how.stream);
    }
  }
}

// What an execution puts into the argument of a pass.
template <class T>
void cuda_transform<T>::set_call(const prepared_pass& each, line_arguments& a, const std::array<unsigned char*, k_places>& base,
                                 std::int64_t chunk, const scratch& memory, const call& how) const {
  const pass& p = each.pass;
  a.events = reinterpret_cast<event_ring*>(memory.ring);
  a.chunk = static_cast<int>(chunk);
  a.repairs = run::repeats_of(how.protection);
  a.scale = how.scale;
  const double factor = p.policy.scaled ? std::abs(how.scale) : 1;
  const double points = static_cast<double>(p.policy.length);
  const bool folds = p.policy.folds();
  const double offset = abft::fft_residual<T>(points, 0, k_kappa) * factor + abft::fft_output_underflow<T>(points) +
                        (folds ? abft::fft_factor_underflow<T>(points) : 0);
  const double slope = (abft::fft_residual<T>(points, 1, k_kappa) - abft::fft_residual<T>(points, 0, k_kappa)) * factor *
                       abft::fft_group_growth(points, p.policy.transactions) *
                       abft::fft_line_growth(points, p.policy.radix[0], p.policy.sum_levels(), folds);
  for (int copy = 0; copy < 2; ++copy) {
    a.one[copy] = 1;
    a.slope[copy] = slope;
    a.offset[copy] = offset;
  }
  a.kappa = k_kappa;
  a.overflow = static_cast<double>(std::numeric_limits<T>::max()) / (8 * std::sqrt(points)) / std::max(1.0, factor);

  a.in = base[static_cast<std::size_t>(p.from)];
  a.out = base[static_cast<std::size_t>(p.to)];
  a.input_kept = a.in != a.out;
}

template <class T>
void cuda_transform<T>::launch_lines(const prepared_pass& each, launch_argument& given, const prepared& work,
                                     const std::array<unsigned char*, k_places>& base, std::int64_t chunk, const scratch& memory,
                                     bool instrumented, const call& how) const {
  const pass& p = each.pass;
  line_arguments& a = given.arguments;
  set_call(each, a, base, chunk, memory, how);
  const std::int64_t source_width = (p.policy.load == load_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t target_width = (p.policy.store == store_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
  const auto* from = static_cast<const unsigned char*>(a.in);
  auto* const to = static_cast<unsigned char*>(a.out);
  if (p.policy.check == check_form::one_sided && a.input_kept == 0) {
    device_->copy(memory.copy, from, bytes_at(p.from, work.room, work.batch), how.stream);
    from = memory.copy;
  }
  std::vector<std::int64_t> at(p.repeats.size(), 0);
  for (std::int64_t round = 0;; ++round) {
    std::int64_t source = 0;
    std::int64_t target = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      source += at[i] * p.repeats[i].source;
      target += at[i] * p.repeats[i].target;
    }
    a.in = from + source * source_width;
    a.out = to + target * target_width;
    a.first_tile = round * a.tiles;
    const std::size_t size = instrumented ? sizeof(launch_argument) : sizeof(line_arguments);
    device_->launch(*each.kernel, std::min(p.groups() * p.policy.cluster, each.most_blocks), &given, size, how.stream);
    std::size_t i = 0;
    while (i < at.size() && ++at[i] == p.repeats[i].count) at[i++] = 0;
    if (i == at.size()) break;
  }
}

const char* name_of_check(std::uint32_t what) {
  switch (static_cast<event_check>(what >> 8 & 0xff)) {
    case event_check::line: return "fft.line";
    case event_check::product: return "fft.product";
    case event_check::composite: return "fft.composite";
    case event_check::butterfly: return "fft.butterfly";
  }
  return "fft";
}

// One execution from its first launch until its report has been read.
template <class T>
class cuda_transform<T>::flight final : public run::pending {
 public:
  flight(const cuda_transform& plan, scratch_handle memory, ballast::cuda::stream on)
      : plan_(plan), memory_(std::move(memory)), stream_(on) {}
  ~flight() override { plan_.give_back(std::move(memory_)); }

  void collect(run::recorder& seen) override;

  const cuda_transform& plan_;
  scratch_handle memory_;
  ballast::cuda::stream stream_;
  std::vector<const prepared*> chunks_;
  device_buffer faults_;
};

template <class T>
void cuda_transform<T>::flight::collect(run::recorder& seen) {
  ballast::cuda::device& device = *plan_.device_;
  seen.runs_on(device.about().name);
  if (plan_.check_ == check_form::none) {
    device.synchronize(stream_);
    return;
  }
  // One comparison for each line of each pass; those of lines that were computed again are not known and not counted.
  for (const prepared* each : chunks_) {
    for (const prepared_pass& one : each->passes) seen.checked(static_cast<std::uint64_t>(one.pass.checks()));
  }
  event_ring ring;
  constexpr std::size_t head = offsetof(event_ring, events);
  device.copy(&ring, memory_->ring, head, stream_);
  device.synchronize(stream_);
  if (ring.written == 0 && ring.false_alarms == 0) return;
  device.copy(ring.events, memory_->ring + head, sizeof(ring.events), stream_);
  device.zero(memory_->ring, head, stream_);
  device.synchronize(stream_);
  run::device_log log;
  log.corrected = ring.corrected;
  log.recomputed = ring.recomputed;
  log.uncorrectable = ring.uncorrectable;
  log.false_alarms = ring.false_alarms;
  const std::size_t kept = std::min<std::size_t>(ring.written, k_ring_events);
  for (std::size_t i = 0; i < kept; ++i) log.events.push_back(plan_.readable(ring.events[i], chunks_));
  seen.add(log);
}

template <class T>
run::device_log::entry cuda_transform<T>::readable(const device_event& e, const std::vector<const prepared*>& chunks) const {
  run::device_log::entry out;
  out.damaged = event_seal(e) != e.seal;
  out.site = name_of_check(e.what);
  const std::size_t number = e.what & 0xff;
  if (e.chunk < chunks.size() && number < chunks[e.chunk]->passes.size() && e.index >= 0) {
    const pass& p = chunks[e.chunk]->passes[number].pass;
    out.index = static_cast<std::int64_t>(e.chunk) * chunk_;
    std::int64_t rest = e.index;
    const auto add = [&](std::int64_t count, const signal_of_index& signals) {
      out.index += rest % count / signals.divisor % signals.modulus;
      rest /= count;
    };
    add(p.columns, p.signals[0]);
    add(p.middles, p.signals[1]);
    add(p.batches, p.signals[2]);
    for (const pass::repeat& each : p.repeats) add(each.count, each.signals);
  }
  out.residual = e.residual;
  out.threshold = std::sqrt(e.threshold);
  switch (static_cast<event_action>(e.what >> 16)) {
    case event_action::corrected: out.what = action::corrected; break;
    case event_action::recomputed: out.what = action::recomputed; break;
    default: out.what = action::uncorrectable; break;
  }
  out.time = static_cast<double>(e.time) * 1e-9;
  out.multiprocessor = static_cast<int>(e.multiprocessor);
  return out;
}

template <class T>
typename cuda_transform<T>::scratch_handle cuda_transform<T>::take_scratch(const call& how) const {
  const std::int64_t needed = workspace_bytes();
  auto made = std::make_unique<scratch>();
  unsigned char* memory = workspace_of(how, needed);
  if (memory == nullptr) {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      scratch_handle kept = std::move(idle_.back());
      idle_.pop_back();
      return kept;
    }
    made->owned = device_buffer(device_, needed, how.stream);
    memory = static_cast<unsigned char*>(made->owned.data());
  }
  made->ring = memory;
  made->counters = memory + k_ring_room;
  made->work = made->counters + counter_bytes_;
  made->copy = made->work + work_bytes_;
  device_->zero(made->ring, offsetof(event_ring, events), how.stream);
  if (counter_bytes_ != 0) device_->zero(made->counters, counter_bytes_, how.stream);
  return made;
}

template <class T>
void cuda_transform<T>::give_back(scratch_handle memory) const {
  if (memory->owned.data() == nullptr) return;
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(memory));
}

template <class T>
std::unique_ptr<run::pending> cuda_transform<T>::start(const unsigned char* in, unsigned char* out, const call& how) const {
  const bool scaled = how.scale != 1;
  const bool instrumented = how.injector.armed_sites() != 0;
  // Of every chunk: signals of an even number of bytes to a boundary stay on it.
  const auto on = [&](const void* data, const side& s, std::int64_t boundary) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(boundary) == 0 &&
           (shape_.batch == 1 || s.distance * width_of(s) % boundary == 0);
  };
  constexpr std::int64_t pair = 2 * sizeof(T);
  const alignment aligned{on(in, shape_.input, 16), on(in, shape_.input, pair) && on(out, shape_.output, pair)};
  const prepared& full = prepare(how.direction, scaled, chunk_, aligned, instrumented);
  const std::int64_t rest = shape_.batch % chunk_;
  const prepared* const tail = rest == 0 ? nullptr : &prepare(how.direction, scaled, rest, aligned, instrumented);
  auto made = std::make_unique<flight>(*this, take_scratch(how), how.stream);

  inject::device_faults faults;
  if (instrumented) {
    const auto list = how.injector.for_device();
    made->faults_ = device_buffer(device_, static_cast<std::int64_t>(list.size() * sizeof(inject::device_fault)), how.stream);
    device_->copy(made->faults_.data(), list.data(), made->faults_.bytes(), how.stream);
    faults = {static_cast<inject::device_fault*>(made->faults_.data()), static_cast<std::int32_t>(list.size()), how.injector.armed_sites()};
  }
  for (std::int64_t first = 0; first < shape_.batch; first += chunk_) {
    const prepared& now = first + chunk_ <= shape_.batch ? full : *tail;
    std::array<unsigned char*, k_places> base{};
    base[0] = const_cast<unsigned char*>(in) + first * shape_.input.distance * width_of(shape_.input);
    base[1] = out + first * shape_.output.distance * width_of(shape_.output);
    unsigned char* work = made->memory_->work;
    for (std::size_t part = 2; part < k_places; ++part) {
      base[part] = work;
      work += now.room[part] * 2 * static_cast<std::int64_t>(sizeof(T));
    }
    launch(now, base, first / chunk_, *made->memory_, faults, instrumented, how);
    made->chunks_.push_back(&now);
  }
  return made;
}

}  // namespace

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, const transform_options& options) {
  if (type == precision::f32) return std::make_unique<cuda_transform<float>>(shape, options);
  return std::make_unique<cuda_transform<double>>(shape, options);
}

}  // namespace ballast::fft::cuda
