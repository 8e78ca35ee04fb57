// Faults of the wire and killed processes in the stage `nccl`.
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>
#include <ballast/fft_group.hpp>
#include <ballast/kmeans.hpp>

#include "core/counter_rng.hpp"
#include "cuda/device/device.hpp"
#include "distributed.hpp"
#include "nccl/stage.hpp"
#include "output.hpp"

namespace ballast::gpu_check::over_nccl {
namespace {

using loaded_nccl::fault;

constexpr compared_fit k_fit = {"kmeans_f32_m20001_n17_k33", kmeans::init::kmeans_plus_plus, false, 0};
const std::vector<std::int64_t> k_shape = {64, 96, 128};
constexpr std::int64_t k_slot = 65536;  // bytes of a slot of messages; blocks between devices are longer
constexpr double k_margin = 2;          // seconds beside the patience until a loss is known

// A call that is made again and again, with the same bits unless something goes wrong.
class repeated_fit {
 public:
  repeated_fit(const group& all, int place, protection level)
      : operands_(k_fit), where_{.protection = level, .group = all}, size_(kmeans::parse_token(k_fit.token)) {
    first_ = first_row(size_.points, place, all.size());
    count_ = first_row(size_.points, place + 1, all.size()) - first_;
  }
  // Returns the report of a call; words() then has its results.
  report run() {
    const auto points = row_major<const float>(operands_.points.data(), size_.points, size_.features);
    const auto made = kmeans::fit(kmeans::data<float>{.points = points.block(first_, 0, count_, size_.features)}, size_.clusters,
                                  k_fit.options(), where_, {.throw_on_uncorrectable = false});
    words_.assign(made.centroids.data(), made.centroids.data() + made.centroids.size());
    words_.insert(words_.end(), made.labels.begin(), made.labels.end());
    words_.push_back(static_cast<float>(made.iterations));
    return made.report;
  }
  const std::vector<float>& words() const { return words_; }
  // The results of one device without a group, with the labels of this part.
  std::vector<float> alone(int device) {
    const execution before = std::exchange(where_, {.backend = backend::cuda, .device = device, .protection = where_.protection});
    const std::int64_t first = std::exchange(first_, 0), count = std::exchange(count_, size_.points);
    (void)run();
    where_ = before, first_ = first, count_ = count;
    const auto labels = words_.begin() + size_.clusters * size_.features;
    std::vector<float> made(words_.begin(), labels);
    made.insert(made.end(), labels + first, labels + first + count);
    made.push_back(words_.back());
    return made;
  }

 private:
  fit_operands<float> operands_;
  execution where_;
  kmeans::problem size_;
  std::int64_t first_ = 0, count_ = 0;
  std::vector<float> words_;
};

// A transform to natural order and back, in device memory.
class repeated_transform {
 public:
  repeated_transform(const group& all, int device, protection level)
      : plan_(k_shape, {.protection = level, .group = all}, {.order = fft::result_order::natural}), number_(device) {
    const cuda::device_scope on(number_);
    device_ = cuda::current_device();
    for (std::int64_t i = 0; i < 2 * plan_.data().size(); ++i)
      in_.push_back(
          static_cast<float>(core::random_uniform(1, static_cast<std::uint64_t>(all.rank()), static_cast<std::uint64_t>(i)) - 0.5));
    from_ = cuda::device_buffer(device_, bytes(in_.size()));
    to_ = cuda::device_buffer(device_, 8 * plan_.spectrum().size());
  }
  report run() {
    const cuda::device_scope on(number_);
    device_->copy(from_.data(), in_.data(), from_.bytes(), nullptr);
    device_->synchronize(nullptr);
    const std::span in(static_cast<std::complex<float>*>(from_.data()), in_.size() / 2);
    const std::span out(static_cast<std::complex<float>*>(to_.data()), static_cast<std::size_t>(plan_.spectrum().size()));
    const call kept{.throw_on_uncorrectable = false};
    report made = plan_.forward(std::span<const std::complex<float>>(in), out, kept);
    made.merge(plan_.inverse(std::span<const std::complex<float>>(out), in, kept));
    words_.resize(in_.size() + 2 * out.size());
    device_->copy(words_.data(), from_.data(), from_.bytes(), nullptr);
    device_->copy(words_.data() + in_.size(), to_.data(), to_.bytes(), nullptr);
    device_->synchronize(nullptr);
    return made;
  }
  const std::vector<float>& words() const { return words_; }

 private:
  static std::int64_t bytes(std::size_t words) { return static_cast<std::int64_t>(words * sizeof(float)); }
  fft::group_plan<float> plan_;
  int number_;
  std::shared_ptr<cuda::device> device_;
  std::vector<float> in_, words_;
  cuda::device_buffer from_, to_;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Makes the call with a fault at each of `numbers`, on the ranks in turn, and compares with the call before. With protection all results
// must be right; without it a fault must reach one.
template <class Call>
int strike_each(const process& own, const group& all, const char* name, Call& call, protection level, fault what, int cases,
                std::int64_t longer) {
  all.barrier();
  if (own.rank == 0) own.shared->struck = 0, own.shared->wrong = 0;
  (void)call.run();
  const std::vector<float> clean = call.words();
  std::uint64_t detected = 0, uncorrectable = 0;
  std::string thrown;
  for (int i = 0; i < cases; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    // A fit has few sums that count: those after its last iteration are not read.
    const bool of_sums = what == fault::left_out || what == fault::bit_of_sum;
    if (own.rank == i % own.size)
      loaded_nccl::arm({what,
                        of_sums      ? seed / 2 % 2
                        : longer > 0 ? seed / 2
                                     : 3 * seed,
                        level == protection::off ? 1000U : 1U, seed, longer});
    const report seen = call.run();
    if (own.rank == i % own.size) own.shared->struck += loaded_nccl::struck();
    all.barrier();  // the copies are read until here
    loaded_nccl::disarm();
    if (!same(call.words(), clean)) ++own.shared->wrong;
    detected += seen.detected;
    uncorrectable += seen.uncorrectable;
  }
  all.barrier();
  const std::uint64_t wrong = own.shared->wrong, struck = own.shared->struck;
  // A slot of messages is empty for the most part, so not every fault of one is met by a check.
  const bool must_be_seen = longer > 0 || what == fault::left_out || what == fault::bit_of_sum;
  const bool pass =
      struck > 0 && uncorrectable == 0 && (level == protection::off ? wrong > 0 : wrong == 0 && (!must_be_seen || detected > 0));
  if (own.rank == 0)
    row("nccl faults")
        .add("call", name)
        .add("fault", loaded_nccl::to_string(what))
        .add("protection", to_string(level))
        .add("cases", cases)
        .add("struck", struck)
        .add("detected", detected)
        .add("uncorrectable", uncorrectable)
        .add("wrong", wrong)
        .add("pass", pass)
        .print();
  return pass ? 0 : 1;
}

std::string names(const std::vector<int>& ranks) {
  std::string made;
  for (const int each : ranks) made += (made.empty() ? "" : ",") + std::to_string(each);
  return made;
}

}  // namespace

int faults(const process& own, const group& all, bool quick) {
  const int cases = quick ? 4 : 12;
  int failed = 0;
  for (const protection level : {protection::correct, protection::off}) {
    const bool off = level == protection::off;
    repeated_fit fit(all, own.rank, level);
    // Without protection only sums are struck: messages have seals, and a wrong length would be undefined.
    for (const fault what : {fault::bit, fault::swapped, fault::stale, fault::left_out, fault::bit_of_sum}) {
      if (off && what != fault::left_out) continue;
      failed += strike_each(own, all, "fit", fit, level, what, off ? 2 : cases, 0);
    }
    repeated_transform transform(all, own.rank, level);
    for (const fault what : {fault::bit, fault::swapped, fault::stale}) {
      if (off && what == fault::bit) continue;  // a low bit changes next to nothing
      failed += strike_each(own, all, "transform", transform, level, what, off ? 2 : cases, k_slot);
    }
  }
  return failed;
}

int loss(const process& own, const group& all, lost_during what, std::uint64_t number) {
  repeated_fit fit(all, own.rank, protection::correct);
  repeated_transform transform(all, own.rank, protection::correct);
  const auto once = [&] {
    if (what == lost_during::fit)
      (void)fit.run();
    else if (what == lost_during::transform)
      (void)transform.run();
    else
      all.barrier();
  };
  once();  // loads kernels: the patience is short
  all.barrier();
  if (own.rank == 1) loaded_nccl::end_at(number, &own.shared->ended);
  std::string named, later = "no error";
  double seconds = 0;
  try {
    for (int i = 0; i < 1000; ++i) once();
    if (own.rank == 1) return 1;
  } catch (const rank_lost_error& lost) {
    seconds = loaded_nccl::now() - own.shared->ended.load();
    named = names(lost.ranks());
  }
  try {
    once();
  } catch (const rank_lost_error& lost) {
    later = names(lost.ranks());
  }
  // Those that are left make a new communicator and group.
  const int place = own.rank == 0 ? 0 : own.rank - 1;
  const group left = own.join(1, place, own.size - 1);
  repeated_fit again(left, place, protection::correct);
  (void)again.run();
  const std::vector<float> made = again.words();
  const bool right = same(made, again.alone(own.rank));
  // A wait for an operation between devices may take the patience, and then the round that finds the names.
  const double limit = (what == lost_during::barriers ? 1 : 2) * own.patience + k_margin;
  const bool pass = named == "1" && later == "1" && seconds > 0 && seconds <= limit && right;
  row("nccl loss")
      .add("during", what == lost_during::barriers ? "barriers"
                     : what == lost_during::fit    ? "fit"
                                                   : "transform")
      .add("number", number)
      .add("rank", own.rank)
      .add("ranks", own.size)
      .add("patience", own.patience)
      .add("seconds", seconds)
      .add("limit", limit)
      .add("named", named)
      .add("later", later)
      .add("new_group_right", right)
      .add("pass", pass)
      .print();
  return pass ? 0 : 1;
}

}  // namespace ballast::gpu_check::over_nccl
