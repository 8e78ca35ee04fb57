// Turns schedules into launches: loads kernels, uploads tables, fills in arguments. Once for each problem, direction and alignment.
#include "fft/cuda/run/program.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "cuda/memory/workspace.hpp"
#include "fft/cuda/plan/fallback.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/real_lines.hpp"
#include "fft/cuda/plan/tables.hpp"

namespace ballast::fft::cuda {
namespace {

// Returns the limit of the intermediate data of a chunk; a chunk has at least one signal. Measured on an H200 (256 MiB of 2^16-point f32
// signals): chunks that fit into the L2 cache (8 to 40 MiB) are 13 to 34 % slower than one chunk of all signals, because each launch drains
// the device; from 80 MiB on they are at most 6 % slower. So a chunk is large, and limited only so that big batches do not need as much
// memory again.
std::int64_t chunk_bytes(const ballast::cuda::capabilities& about) { return about.memory / 256; }

// The alignments that change the amount of memory. A plan has room for all of them.
constexpr alignment k_alignments[] = {{true, true}, {true, false}};

// Returns whether the input is kept, for all cases that give different schedules.
std::vector<bool> kept_or_not(const transform_options& options) {
  return options.end_to_end ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

// Returns a text of everything that a program depends on besides its device.
std::string name_of(const geometry& shape, precision type, const transform_options& options) {
  std::string text = type == precision::f32 ? "fft f32" : "fft f64";
  const auto add = [&](std::int64_t number) { text.append(1, ' ').append(std::to_string(number)); };
  add(static_cast<int>(shape.kind));
  add(static_cast<int>(shape.real));
  for (const std::int64_t n : shape.n) add(n);
  add(shape.batch);
  for (const side& s : {shape.input, shape.output}) {
    for (const std::int64_t length : s.length) add(length);
    for (const std::int64_t stride : s.stride) add(stride);
    for (const std::int64_t number : {s.distance, std::int64_t{s.real}, s.extent}) add(number);
  }
  for (const int number :
       {static_cast<int>(options.check), options.transactions, static_cast<int>(options.end_to_end), static_cast<int>(options.plain),
        static_cast<int>(options.fallback), static_cast<int>(options.pairs), static_cast<int>(options.origin)})
    add(number);
  return text;
}

// Returns a name of the stages of a pass.
std::string radices_of(const line_policy& policy) {
  std::string text = std::to_string(policy.length);
  for (int s = 0; s < policy.stages; ++s) text.append(1, '.').append(std::to_string(policy.radix[s]));
  return text;
}

// Returns the kernels of the launches, in order.
std::vector<ballast::cuda::kernel_request> kernels_of(const schedule& made, bool instrumented) {
  std::vector<ballast::cuda::kernel_request> list;
  for (std::size_t i = 0; i < made.passes.size(); ++i) {
    if (i == 0 || !made.passes[i - 1].pair) list.push_back(kernel_for(made, i, instrumented));
  }
  return list;
}

}  // namespace

template <class T>
line_program<T>::line_program(std::shared_ptr<ballast::cuda::device> on, const geometry& shape, const transform_options& options)
    : device_(std::move(on)), shape_(shape), options_(options) {
  // The workspace must hold as many signals as run at a time.
  constexpr std::int64_t width = 2 * sizeof(T);
  std::int64_t work = 0;
  for (const alignment aligned : k_alignments) {
    for (const bool kept : kept_or_not(options_)) {
      const schedule whole = scheduled(direction::forward, false, shape_.batch, aligned, kept);
      work = std::max(work, (whole.work_elements() - whole.elements[static_cast<std::size_t>(pass_buffer::ring)]) * width);
    }
  }
  chunk_ = shape_.batch;
  if (work > 0) chunk_ = std::clamp<std::int64_t>(chunk_bytes(device_->about()) / (work / shape_.batch), 1, shape_.batch);
  std::uint32_t counters = 0;
  for (const std::int64_t batch : {chunk_, shape_.batch % chunk_}) {
    if (batch == 0) continue;
    for (const alignment aligned : k_alignments) {
      for (const bool kept : kept_or_not(options_)) {
        const schedule part = scheduled(direction::forward, false, batch, aligned, kept);
        work_bytes_ = std::max(work_bytes_, ballast::cuda::aligned_bytes(part.work_elements() * width));
        counters = std::max(counters, part.counters());
      }
    }
  }
  counter_bytes_ = ballast::cuda::aligned_bytes(counters * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  if (options_.check != check_form::one_sided) return;
  for (const alignment aligned : k_alignments) {
    const schedule part = scheduled(direction::forward, false, chunk_, aligned, false);
    for (int from = 0; from < k_pass_buffers; ++from)
      copy_bytes_ = std::max(copy_bytes_, bytes_at(static_cast<pass_buffer>(from), part.elements, chunk_));
  }
}

template <class T>
std::int64_t line_program<T>::bytes_at(pass_buffer from, const std::array<std::int64_t, k_pass_buffers>& elements,
                                       std::int64_t batch) const {
  const auto part = [&](const side& s) {
    return (s.extent - (shape_.batch - batch) * s.distance) * (s.real ? 1 : 2) * static_cast<std::int64_t>(sizeof(T));
  };
  if (from == pass_buffer::input) return part(shape_.input);
  if (from == pass_buffer::output) return part(shape_.output);
  return elements[static_cast<std::size_t>(from)] * 2 * static_cast<std::int64_t>(sizeof(T));
}

template <class T>
schedule line_program<T>::scheduled(direction way, bool scaled, std::int64_t batch, alignment aligned, bool kept) const {
  schedule_request wanted;
  wanted.shape = shape_;
  wanted.shape.batch = batch;
  wanted.precision = precision_of<T>;
  wanted.direction = way;
  wanted.scaled = scaled;
  wanted.check = options_.check;
  wanted.transactions = options_.transactions;
  wanted.end_to_end = options_.end_to_end && kept;
  wanted.plain = options_.plain;
  wanted.fallback = options_.fallback;
  wanted.tuned = &options_.tuned();
  wanted.aligned = aligned;
  wanted.pairs = options_.pairs;
  return make_schedule(wanted, device_->about());
}

template <class T>
const prepared* line_program<T>::already(const form& wanted) {
  const std::lock_guard lock(mutex_);
  const auto there = prepared_.find(wanted);
  return there == prepared_.end() ? nullptr : there->second.get();
}

template <class T>
std::vector<ballast::cuda::kernel_request> line_program<T>::missing(const form& wanted) {
  if (already(wanted) != nullptr) return {};
  const std::lock_guard lock(mutex_);
  auto& list = missing_[wanted];
  if (list.empty()) list = kernels_of(scheduled(wanted.way, wanted.scaled, wanted.batch, wanted.aligned, wanted.kept), wanted.instrumented);
  return list;
}

template <class T>
const prepared& line_program<T>::prepare(const form& wanted, int threads) {
  if (const prepared* const there = already(wanted); there != nullptr) return *there;
  schedule made = scheduled(wanted.way, wanted.scaled, wanted.batch, wanted.aligned, wanted.kept);
  // No lock is held here: this step can take as long as a compilation.
  const std::vector<const ballast::cuda::kernel*> loaded = device_->load_all(kernels_of(made, wanted.instrumented));
  const std::lock_guard one_at_a_time(making_);
  if (const prepared* const there = already(wanted); there != nullptr) return *there;
  auto work = std::make_unique<prepared>();
  work->elements = made.elements;
  work->batch = wanted.batch;
  const auto twiddle_steps = [](const pass& each) {
    return each.policy.stages - 1 + (each.policy.multiplies_outputs() || each.policy.of_reals() ? 1 : 0);
  };
  // The step from a line to the spectrum of reals counts as one more stage, as does the one from reals to a line.
  const auto stages_of = [](const pass& each) { return each.policy.stages + (each.policy.mirrors() || each.policy.of_reals() ? 1 : 0); };
  int stages = 0;
  int twiddles = 0;
  int passes = 0;
  for (const pass& each : made.passes) {
    if (each.repairs()) continue;
    ++passes;
    stages += stages_of(each);
    twiddles += twiddle_steps(each);
  }
  auto next = loaded.begin();
  int stage = 0;
  int twiddle = 0;
  int pass_number = 0;
  for (std::size_t i = 0; i < made.passes.size(); ++i) {
    const pass& each = made.passes[i];
    // A launch with more blocks than a device can start fails; most kernels take one tile per block.
    prepared_pass one{each, nullptr, {}, std::numeric_limits<std::int64_t>::max()};
    if (i == 0 || !made.passes[i - 1].pair) {
      one.kernel = *next++;
      // Blocks that prefetch, and those that draw tickets, process several tiles.
      if (each.policy.staged || each.pair) one.most_blocks = device_->resident_blocks(*one.kernel);
      // A repair usually finds nothing to do, so it has few blocks, which take all tiles.
      if (each.repairs()) one.most_blocks = device_->about().multiprocessors;
    }
    fill(one, made, threads);
    line_arguments& a = one.arguments;
    a.part = static_cast<int>(i);
    if (each.repairs()) {
      const line_arguments& first = work->passes[i - each.whole_line->passes].arguments;
      a.pass = first.pass;
      a.first_stage = first.first_stage;
      a.first_twiddle = first.first_twiddle;
    } else {
      a.pass = pass_number++;
      a.first_stage = stage;
      a.first_twiddle = twiddle;
      stage += stages_of(each);
      twiddle += twiddle_steps(each);
    }
    a.passes = passes;
    a.stages = stages;
    a.twiddle_steps = std::max(twiddles, 1);
    work->passes.push_back(std::move(one));
  }
  const std::lock_guard lock(mutex_);
  missing_.erase(wanted);
  auto& slot = prepared_[wanted];
  slot = std::move(work);
  return *slot;
}

template <class T>
template <class Make>
const void* line_program<T>::table(const std::string& name, int copy, Make&& make) {
  auto& slot = tables_[{name, copy}];
  if (!slot) {
    const char* const type = sizeof(T) == 4 ? "fft f32 " : "fft f64 ";
    slot = ballast::cuda::share_table(device_, type + name, copy, std::forward<Make>(make));
    table_bytes_ += slot->device_bytes();
  }
  return slot->data();
}

// Fills in the weights of a pass's checksums.
template <class T>
void line_program<T>::fill_weights(const pass& p, const schedule& made, line_arguments& a) {
  using source = table_source<T>;
  const line_policy& policy = p.policy;
  if (p.whole_line) {
    const end_to_end_part& part = *p.whole_line;
    a.whole_line.lines = static_cast<std::uint32_t>(part.lines);
    a.whole_line.tiles = static_cast<std::uint32_t>(part.tiles);
    a.whole_line.first_tiles = static_cast<std::uint32_t>(part.first_tiles);
    a.whole_line.last_tiles = static_cast<std::uint32_t>(part.last_tiles);
  }
  if (!policy.sums()) return;
  if (policy.begins() || policy.ends()) {
    std::vector<line_policy> passes;
    std::string which;
    for (std::size_t i = 0; i < p.whole_line->passes; ++i) {
      passes.push_back(made.passes[p.whole_line->first + i].policy);
      which += ' ' + radices_of(passes.back());
    }
    std::optional<end_to_end_phases> phases;
    const auto with_phases = [&](auto make) {
      return [&passes, &phases, make] {
        if (!phases) phases = source::end_to_end_phases_of(passes);
        return make(passes, *phases);
      };
    };
    if (policy.begins()) {
      a.encode = table("end to end encode" + which, 0, with_phases(source::end_to_end_encode));
    } else {
      a.verify = table("end to end verify" + which, 0, with_phases(source::end_to_end_verify));
      a.whole_line.line_weights = table("end to end lines" + which, 0, with_phases(source::end_to_end_lines));
    }
    return;
  }
  if (policy.of_reals()) {
    const std::string which = std::to_string(static_cast<int>(p.real)) + " " + std::to_string(policy.points);
    std::optional<real_weights<T>> weights;
    const auto once = [&]() -> const real_weights<T>& {
      if (!weights) weights = make_real_weights<T>(p.real, policy.points);
      return *weights;
    };
    a.verify = table("verify reals " + which, 0, [&]() -> const std::vector<T>& { return once().verify; });
    a.encode = table("encode reals " + which, 0, [&]() -> const std::vector<T>& { return once().encode; });
    return;
  }
  std::optional<typename source::weights> weights;
  const auto once = [&]() -> const typename source::weights& {
    if (!weights) weights = source::checksum_weights(policy);
    return *weights;
  };
  const std::string which = radices_of(policy) + (policy.mirrors() ? " mirrored" : "");
  a.verify = table("verify " + which, 0, [&]() -> const std::vector<T>& { return once().verify; });
  a.encode = table("encode " + which, 0, [&]() -> const std::vector<T>& { return once().encode; });
}

// Fills in the tables and addresses of a pass.
template <class T>
void line_program<T>::fill(prepared_pass& made, const schedule& of, int threads) {
  const pass& p = made.pass;
  const line_policy& policy = p.policy;
  line_arguments& a = made.arguments;
  a = {};
  const std::string key = radices_of(policy);
  using source = table_source<T>;
  const bool checked = policy.check != check_form::none || p.whole_line;
  // Sets a table and the table that checks read in its place: a second copy, or its inverses.
  const auto twins = [&](const std::string& name, const void*& first, const void*& second, const auto& make, bool inverse = false) {
    if (!checked) {
      first = table(name, 0, make);
      return;
    }
    std::optional<twin_tables<T>> tables;
    const auto both = [&]() -> const twin_tables<T>& {
      if (!tables) tables = make_twins<T>(name, make, inverse, threads);
      return *tables;
    };
    first = table(name, 0, [&]() -> const std::vector<T>& { return both().table; });
    second = table(inverse ? name + " inverse" : name, 1, [&]() -> const std::vector<T>& { return both().twin; });
  };
  if (policy.stages > 1) a.twiddles = table("stages " + key, 0, [&] { return source::stage_twiddles(policy); });
  const auto factors = [&](table_kind kind, const void*& first, const void*& second, bool inverse) {
    const std::string which = std::to_string(p.convolution) + " " + std::to_string(p.padded_to);
    if (kind == table_kind::chirp) {
      twins(
          "chirp " + which + (policy.inverse ? " mirrored" : ""), first, second,
          [&] { return source::chirp(p.convolution, p.padded_to, policy.inverse); }, inverse);
    } else {
      twins(
          "filter " + which, first, second, [&] { return source::filter(p.convolution, p.padded_to, threads); }, inverse);
      if (inverse) made.largest_inverse = 1 / source::smallest_of_filter(p.convolution, p.padded_to);
    }
  };
  if (policy.load_factor == factor_form::table) factors(p.load_table, a.load_table, a.load_twin, false);
  if (policy.store_factor == factor_form::table) factors(p.store_table, a.store_table, a.store_twin, policy.folds());
  if (policy.load == load_form::spectrum)
    twins("spectrum in " + key, a.load_table, a.load_twin, [&] { return source::spectrum_factors(policy, true); });
  if (policy.mirrors()) twins("spectrum out " + key, a.store_table, a.store_twin, [&] { return source::spectrum_factors(policy, false); });
  if (policy.twiddles()) {
    a.fine_bits = fine_bits_of(p.twiddle_order);
    a.coarse_size = static_cast<int>(coarse_size_of(p.twiddle_order));
    const auto name = "twiddles " + std::to_string(p.twiddle_order);
    const auto make = [&] { return source::split_twiddles(p.twiddle_order, a.fine_bits); };
    if (policy.store_factor == factor_form::separated) {
      const std::int64_t columns = p.twiddle_order / policy.length;
      const std::string parts = "separated " + key + " " + std::to_string(columns);
      const auto make_parts = [&] { return source::separated_twiddles(policy, columns); };
      a.store_table = table(parts, 0, [&] { return checked ? make_twins<T>(parts, make_parts, false, threads).table : make_parts(); });
      if (checked) a.store_twin = table(name, 1, [&] { return make_twins<T>(name, make, false, threads).twin; });
    } else {
      twins(name, a.store_table, a.store_twin, make);
    }
  }
  if (policy.of_reals()) {
    const std::string which = std::to_string(static_cast<int>(p.real)) + " " + std::to_string(policy.points);
    // One copy: the weights of the check are computed without them.
    const auto factors = [&](const char* name, const std::vector<T>& numbers) -> const void* {
      return numbers.empty() ? nullptr : table(name + which, 0, [&]() -> const std::vector<T>& { return numbers; });
    };
    a.load_table = factors("reals in ", real_load_factors<T>(p.real, policy.points));
    a.store_table = factors("reals out ", real_store_factors<T>(p.real, policy.points));
  }
  fill_weights(p, of, a);
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
  if (!policy.fallback) return;
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  if (!policy.padded) a.loaded = all;
  if (!policy.truncated) a.stored = all;
  a.forms = forms_of(policy);
}

template <class T>
std::shared_ptr<line_program<T>> program_for(const std::shared_ptr<ballast::cuda::device>& on, const geometry& shape,
                                             const transform_options& options) {
  const auto make = [&] { return std::make_shared<line_program<T>>(on, shape, options); };
  if (options.origin == policy_origin::trial) return make();  // the name does not say which table
  return std::static_pointer_cast<line_program<T>>(ballast::cuda::find_or_make_kept(on, name_of(shape, precision_of<T>, options), make));
}

template class line_program<float>;
template class line_program<double>;
template std::shared_ptr<line_program<float>> program_for<float>(const std::shared_ptr<ballast::cuda::device>&, const geometry&,
                                                                 const transform_options&);
template std::shared_ptr<line_program<double>> program_for<double>(const std::shared_ptr<ballast::cuda::device>&, const geometry&,
                                                                   const transform_options&);

}  // namespace ballast::fft::cuda
