// Runs a schedule on a device: tables and kernels when the plan is made, launches when it is executed, events when the report is asked for.
// Layer: backend "cuda".
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
#include "core/recorder.hpp"
#include "cuda/device.hpp"
#include "fft/checks.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/schedule.hpp"
#include "fft/cuda/tables.hpp"
#include "inject/device_fault.hpp"

namespace ballast::fft::cuda {
namespace {

using ballast::cuda::device_buffer;

// What waits between passes should stay in the L2 cache; one signal is the least that a chunk can be.
std::int64_t chunk_bytes(const ballast::cuda::capabilities& about) { return std::max<std::int64_t>(about.l2_cache / 3, 1 << 20); }

template <class T>
class cuda_transform final : public transform {
 public:
  cuda_transform(const geometry& shape, check_form check, int transactions)
      : device_(ballast::cuda::current_device()),
        shape_(shape),
        check_(check),
        transactions_(transactions),
        tables_(device_, precision_of<T>) {
    // Work is needed for as many signals as run at a time: as many as fit into the cache together.
    schedule whole = scheduled(direction::forward, false, shape_.batch);
    const std::int64_t work = whole.work_elements() * 2 * static_cast<std::int64_t>(sizeof(T));
    chunk_ = shape_.batch;
    if (work > 0) chunk_ = std::clamp<std::int64_t>(chunk_bytes(device_->about()) * shape_.batch / work, 1, shape_.batch);
  }

  void run(const void* in, void* out, const call& how) const override;

 private:
  // A schedule with everything that does not change from call to call.
  struct prepared_pass {
    cuda::pass pass;
    const ballast::cuda::kernel* kernel;
    line_arguments arguments;
  };
  struct prepared {
    std::int64_t batch;
    std::vector<prepared_pass> passes;
    std::array<std::int64_t, k_places> room;
    std::int64_t work_bytes;
  };
  // What one execution needs on the device; kept for the next one.
  struct scratch {
    device_buffer work;
    device_buffer ring;
  };

  schedule scheduled(direction way, bool scaled, std::int64_t batch) const {
    schedule_request wanted;
    wanted.shape = shape_;
    wanted.shape.batch = batch;
    wanted.precision = precision_of<T>;
    wanted.direction = way;
    wanted.scaled = scaled;
    wanted.check = check_;
    wanted.transactions = transactions_;
    return make_schedule(wanted, device_->about());
  }

  const prepared& prepare(direction way, bool scaled, std::int64_t batch) const;
  void fill(prepared_pass& made) const;
  void enqueue(const prepared& work, std::array<unsigned char*, k_places> base, std::int64_t chunk, void* ring,
               const inject::device_faults* faults, const call& how) const;
  void collect(const std::vector<const prepared*>& chunks, void* ring, const call& how) const;

  std::shared_ptr<ballast::cuda::device> device_;
  geometry shape_;
  check_form check_;
  int transactions_;
  std::int64_t chunk_ = 1;
  mutable std::mutex mutex_;
  mutable table_store tables_;
  mutable std::map<std::tuple<direction, bool, std::int64_t>, std::unique_ptr<prepared>> prepared_;
};

constexpr bool k_instrumented = inject::active_injector::enabled;

// The argument as a kernel takes it: with the faults behind it if it is instrumented.
struct launch_argument {
  line_arguments arguments;
  inject::device_faults faults;
};
static_assert(offsetof(launch_argument, faults) == sizeof(line_arguments));

template <class T>
const typename cuda_transform<T>::prepared& cuda_transform<T>::prepare(direction way, bool scaled, std::int64_t batch) const {
  const std::lock_guard lock(mutex_);
  auto& slot = prepared_[{way, scaled, batch}];
  if (slot) return *slot;
  schedule made = scheduled(way, scaled, batch);
  auto work = std::make_unique<prepared>();
  work->batch = batch;
  work->room = made.room;
  work->work_bytes = made.work_elements() * 2 * static_cast<std::int64_t>(sizeof(T));
  int stages = 0;
  int twiddles = 0;
  for (const pass& each : made.passes) {
    stages += each.policy.stages;
    twiddles += each.policy.stages - 1 + (each.policy.store_factor == factor_form::none ? 0 : 1);
  }
  int stage = 0;
  int twiddle = 0;
  for (pass& each : made.passes) {
    prepared_pass one{each, &device_->load(kernel_for(each.policy, k_instrumented)), {}};
    fill(one);
    line_arguments& a = one.arguments;
    a.pass = static_cast<int>(work->passes.size());
    a.passes = static_cast<int>(made.passes.size());
    a.first_stage = stage;
    a.stages = stages;
    a.first_twiddle = twiddle;
    a.twiddle_steps = std::max(twiddles, 1);
    stage += each.policy.stages;
    twiddle += each.policy.stages - 1 + (each.policy.store_factor == factor_form::none ? 0 : 1);
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
    std::string text = std::to_string(policy.length) + "/" + std::to_string(policy.threads);
    for (int s = 0; s < policy.stages; ++s) text += "." + std::to_string(policy.radix[s]);
    return text;
  }();
  using source = table_source<T>;
  if (policy.stages > 1) a.twiddles = tables_.template get<T>("stages " + key, 0, [&] { return source::stage_twiddles(policy); });
  const auto table = [&](table_kind kind, int copy) -> const void* {
    const std::string which = std::to_string(p.convolution) + (policy.inverse ? " mirrored" : "");
    if (kind == table_kind::chirp)
      return tables_.template get<T>("chirp " + which, copy, [&] { return source::chirp(p.convolution, policy.inverse); });
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
  if (policy.store_factor == factor_form::twiddle) {
    a.fine_bits = fine_bits_of(p.twiddle_order);
    a.coarse_size = static_cast<int>(coarse_size_of(p.twiddle_order));
    const auto name = "twiddles " + std::to_string(p.twiddle_order);
    const auto make = [&] { return source::split_twiddles(p.twiddle_order, a.fine_bits); };
    a.store_table = tables_.template get<T>(name, 0, make);
    a.store_twin = tables_.template get<T>(name, 1, make);
  }
  if (policy.check == check_form::verify_before_store || policy.check == check_form::composite) {
    std::optional<typename source::weights> weights;
    const auto once = [&]() -> typename source::weights& {
      if (!weights) weights = source::checksum_weights(policy);
      return *weights;
    };
    a.verify = tables_.template get<T>("verify " + key, 0, [&] { return once().verify; });
    a.encode = tables_.template get<T>("encode " + key, 0, [&] { return once().encode; });
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
void cuda_transform<T>::enqueue(const prepared& work, std::array<unsigned char*, k_places> base, std::int64_t chunk, void* ring,
                                const inject::device_faults* faults, const call& how) const {
  for (const prepared_pass& each : work.passes) {
    const pass& p = each.pass;
    launch_argument given{each.arguments, faults == nullptr ? inject::device_faults{} : *faults};
    line_arguments& a = given.arguments;
    a.events = static_cast<event_ring*>(ring);
    a.chunk = static_cast<int>(chunk);
    a.repairs = how.protection == protection::correct ? k_repairs : 0;
    a.scale = how.scale;
    const double factor = p.policy.scaled ? std::abs(how.scale) : 1;
    const double points = static_cast<double>(p.policy.length);
    const double offset = abft::fft_residual<T>(points, 0, k_kappa) * factor + abft::fft_output_underflow<T>(points);
    const double slope = (abft::fft_residual<T>(points, 1, k_kappa) - abft::fft_residual<T>(points, 0, k_kappa)) * factor;
    for (int copy = 0; copy < 2; ++copy) {
      a.slope[copy] = slope;
      a.offset[copy] = offset;
    }
    a.overflow = static_cast<double>(std::numeric_limits<T>::max()) / (8 * std::sqrt(points)) / std::max(1.0, factor);

    const std::int64_t source_width = (p.policy.load == load_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t target_width = (p.policy.store == store_form::real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
    std::vector<std::int64_t> at(p.repeats.size(), 0);
    for (std::int64_t round = 0;; ++round) {
      std::int64_t source = 0;
      std::int64_t target = 0;
      for (std::size_t i = 0; i < at.size(); ++i) {
        source += at[i] * p.repeats[i].source;
        target += at[i] * p.repeats[i].target;
      }
      a.in = base[static_cast<std::size_t>(p.from)] + source * source_width;
      a.out = base[static_cast<std::size_t>(p.to)] + target * target_width;
      a.first_tile = round * a.tiles;
      const std::size_t size = k_instrumented ? sizeof(launch_argument) : sizeof(line_arguments);
      device_->launch(*each.kernel, std::min<std::int64_t>(a.tiles, std::numeric_limits<std::int32_t>::max()), &given, size, how.stream);
      std::size_t i = 0;
      while (i < at.size() && ++at[i] == p.repeats[i].count) at[i++] = 0;
      if (i == at.size()) break;
    }
  }
}

const char* name_of_check(std::uint32_t what) {
  switch (static_cast<event_check>(what >> 8 & 0xff)) {
    case event_check::line: return "fft.line";
    case event_check::product: return "fft.product";
    case event_check::seal: return "fft.seal";
    case event_check::composite: return "fft.composite";
  }
  return "fft";
}

template <class T>
void cuda_transform<T>::collect(const std::vector<const prepared*>& chunks, void* ring, const call& how) const {
  // One comparison for each line of each pass; those of lines that were computed again are not known and not counted.
  std::uint64_t checks = 0;
  for (const prepared* each : chunks) {
    for (const prepared_pass& one : each->passes) checks += static_cast<std::uint64_t>(one.pass.lines());
  }
  how.seen.checked(checks);
  event_ring seen;
  constexpr std::size_t head = offsetof(event_ring, events);
  device_->copy(&seen, ring, head, how.stream);
  device_->synchronize(how.stream);
  if (seen.written == 0 && seen.false_alarms == 0) return;
  device_->copy(seen.events, static_cast<unsigned char*>(ring) + head, sizeof(seen.events), how.stream);
  device_->synchronize(how.stream);
  core::device_log log;
  log.corrected = seen.corrected;
  log.recomputed = seen.recomputed;
  log.uncorrectable = seen.uncorrectable;
  log.false_alarms = seen.false_alarms;
  const std::size_t kept = std::min<std::size_t>(seen.written, k_ring_events);
  for (std::size_t i = 0; i < kept; ++i) {
    const device_event& e = seen.events[i];
    core::device_log::entry out;
    out.damaged = event_seal(e) != e.seal;
    out.site = name_of_check(e.what);
    const std::size_t number = e.what & 0xff;
    out.index = -1;
    if (number < chunks.front()->passes.size() && e.index >= 0) {
      const pass& p = chunks.front()->passes[number].pass;
      const std::int64_t place[3] = {e.index % p.columns, e.index / p.columns % p.middles, e.index / p.columns / p.middles};
      out.index = static_cast<std::int64_t>(e.chunk) * chunk_;
      for (std::size_t d = 0; d < 3; ++d) out.index += place[d] / p.signals[d].divisor % p.signals[d].modulus;
    }
    out.residual = e.residual;
    out.threshold = e.threshold;
    switch (static_cast<event_action>(e.what >> 16)) {
      case event_action::corrected: out.what = action::corrected; break;
      case event_action::recomputed: out.what = action::recomputed; break;
      default: out.what = action::uncorrectable; break;
    }
    out.time = static_cast<double>(e.time) * 1e-9;
    out.multiprocessor = static_cast<int>(e.multiprocessor);
    log.events.push_back(out);
  }
  how.seen.add(log);
}

template <class T>
void cuda_transform<T>::run(const void* in, void* out, const call& how) const {
  how.seen.runs_on(device_->about().name);
  const bool scaled = how.scale != 1;
  const auto stream = how.stream;
  ballast::cuda::device& device = *device_;

  // Host arrays are staged whole.
  const auto bytes_of = [](const side& s) { return s.extent * static_cast<std::int64_t>(sizeof(T)) * (s.real ? 1 : 2); };
  const bool in_is_here = device.accessible(in);
  const bool out_is_here = device.accessible(out);
  device_buffer staged_in, staged_out;
  const unsigned char* source = static_cast<const unsigned char*>(in);
  unsigned char* target = static_cast<unsigned char*>(out);
  if (!in_is_here) {
    staged_in = device_buffer(device_, std::max(bytes_of(shape_.input), how.in_place ? bytes_of(shape_.output) : 0), stream);
    device.copy(staged_in.data(), in, bytes_of(shape_.input), stream);
    source = static_cast<const unsigned char*>(staged_in.data());
  }
  if (!out_is_here) {
    if (how.in_place) {
      target = static_cast<unsigned char*>(staged_in.data());
    } else {
      staged_out = device_buffer(device_, bytes_of(shape_.output), stream);
      target = static_cast<unsigned char*>(staged_out.data());
      // What lies between strided elements comes back as it was.
      const side& s = shape_.output;
      if (s.extent != s.length[0] * s.length[1] * s.length[2] * shape_.batch) device.copy(target, out, bytes_of(s), stream);
    }
  }

  const prepared& full = prepare(how.direction, scaled, chunk_);
  const std::int64_t rest = shape_.batch % chunk_;
  const prepared* const tail = rest == 0 ? nullptr : &prepare(how.direction, scaled, rest);
  scratch here;
  if (full.work_bytes > 0) here.work = device_buffer(device_, full.work_bytes, stream);
  const bool checked = check_ != check_form::none;
  if (checked) {
    here.ring = device_buffer(device_, sizeof(event_ring), stream);
    device.zero(here.ring.data(), offsetof(event_ring, events), stream);
  }

  std::optional<inject::device_faults> faults;
  device_buffer fault_memory;
  if constexpr (k_instrumented) {
    const auto list = how.injector.for_device();
    if (!list.empty()) {
      fault_memory = device_buffer(device_, static_cast<std::int64_t>(list.size() * sizeof(inject::device_fault)), stream);
      device.copy(fault_memory.data(), list.data(), fault_memory.bytes(), stream);
      faults = inject::device_faults{static_cast<inject::device_fault*>(fault_memory.data()), static_cast<std::int32_t>(list.size()),
                                     how.injector.armed_sites()};
    }
  }

  std::vector<const prepared*> chunks;
  for (std::int64_t first = 0; first < shape_.batch; first += chunk_) {
    const prepared& now = first + chunk_ <= shape_.batch ? full : *tail;
    std::array<unsigned char*, k_places> base{};
    const auto width = [](const side& s) { return static_cast<std::int64_t>(sizeof(T)) * (s.real ? 1 : 2); };
    base[0] = const_cast<unsigned char*>(source) + first * shape_.input.distance * width(shape_.input);
    base[1] = target + first * shape_.output.distance * width(shape_.output);
    auto* work = static_cast<unsigned char*>(here.work.data());
    for (std::size_t part = 2; part < k_places; ++part) {
      base[part] = work;
      work += now.room[part] * 2 * static_cast<std::int64_t>(sizeof(T));
    }
    enqueue(now, base, first / chunk_, here.ring.data(), faults ? &*faults : nullptr, how);
    chunks.push_back(&now);
  }
  if (checked) collect(chunks, here.ring.data(), how);
  if (!out_is_here) {
    if (!how.seen.uncorrectable()) device.copy(out, target, bytes_of(shape_.output), stream);
    device.synchronize(stream);
  } else if (!checked || faults) {
    device.synchronize(stream);
  }
}

}  // namespace

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect) {
  const check_form check = protect ? check_form::verify_before_store : check_form::none;
  const int transactions = 1;
  if (type == precision::f32) return std::make_unique<cuda_transform<float>>(shape, check, transactions);
  return std::make_unique<cuda_transform<double>>(shape, check, transactions);
}

}  // namespace ballast::fft::cuda
