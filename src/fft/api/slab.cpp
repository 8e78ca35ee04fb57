// Two-dimensional transforms on the ranks of a group. See include/ballast/fft_slab.hpp.
// Layer: algorithm, over fft::plan and group/session.hpp.
#include <ballast/fft_slab.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ballast/error.hpp>

#include "abft/seal.hpp"
#include "core/format.hpp"
#include "fft/sites.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft {

namespace {

// A range of lines for each rank: those of rank p begin at p · all / ranks.
std::int64_t first_line(std::int64_t all, std::size_t p, std::size_t ranks) {
  return static_cast<std::int64_t>(static_cast<__int128>(all) * static_cast<std::int64_t>(p) / static_cast<std::int64_t>(ranks));
}

// The term of one number in the sum that follows it from the source of an exchange to its destination.
template <class T>
std::uint64_t term_of(const std::complex<T>& x, std::int64_t place) {
  const auto at = static_cast<std::uint64_t>(2 * place);
  return abft::hash_term(abft::word_of(x.real()), at) + abft::hash_term(abft::word_of(x.imag()), at + 1);
}

}  // namespace

inline namespace abi_1 {

template <class T>
struct slab_plan<T>::implementation {
  std::int64_t lengths[2];
  execution where;
  slab_order result;
  fft::norm scaling;
  std::size_t place, ranks;
  std::string token;
  std::optional<fft::plan> lines[2];  // lines[d]: this rank's lines along axis 1 − d: its rows, its columns

  wire::exchange& over() const { return where.group.internal()->over; }
  std::int64_t first(int axis, std::size_t p) const { return first_line(lengths[axis], p, ranks); }
  std::int64_t count(int axis) const { return first(axis, place + 1) - first(axis, place); }
  std::size_t size(int axis) const { return static_cast<std::size_t>(count(axis) * lengths[1 - axis]); }

  std::vector<std::byte> pack(const std::complex<T>* from, int axis, std::size_t to) const;
  bool unpack(const wire::bytes& block, int axis, std::size_t from, std::complex<T>* to, bool verify) const;
  void turn(const std::vector<std::complex<T>>& from, int axis, std::vector<std::complex<T>>& to, run::recorder& seen,
            protection wanted) const;
  report transform(bool forward, std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now) const;
};

// The numbers of this rank's lines of an axis that belong to lines of another rank, line by line of those. Their sum is the first word.
template <class T>
std::vector<std::byte> slab_plan<T>::implementation::pack(const std::complex<T>* from, int axis, std::size_t to) const {
  const std::int64_t begin = first(1 - axis, to), end = first(1 - axis, to + 1), mine = count(axis), length = lengths[1 - axis];
  std::vector<std::complex<T>> made;
  made.reserve(static_cast<std::size_t>((end - begin) * mine));
  for (std::int64_t j = begin; j < end; ++j)
    for (std::int64_t i = 0; i < mine; ++i) made.push_back(from[i * length + j]);
  // The sum reads the source again, in another order.
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < mine; ++i) {
    const std::int64_t line = first(axis, place) + i;
    for (std::int64_t j = begin; j < end; ++j)
      sum += term_of(from[i * length + j], axis == 0 ? line * lengths[1] + j : j * lengths[1] + line);
  }
  std::vector<std::byte> block(sizeof sum + made.size() * sizeof(std::complex<T>));
  std::memcpy(block.data(), &sum, sizeof sum);
  if (!made.empty()) std::memcpy(block.data() + sizeof sum, made.data(), made.size() * sizeof(std::complex<T>));
  return block;
}

// Stores a block of rank `from`, which packed it from lines of `axis`. Returns whether it has its size, and the stored numbers its sum.
template <class T>
bool slab_plan<T>::implementation::unpack(const wire::bytes& block, int axis, std::size_t from, std::complex<T>* to, bool verify) const {
  const std::int64_t begin = first(axis, from), end = first(axis, from + 1), mine = count(1 - axis), length = lengths[axis];
  std::uint64_t expected = 0;
  if (block.size() != sizeof expected + static_cast<std::size_t>(mine * (end - begin)) * sizeof(std::complex<T>)) return false;
  std::memcpy(&expected, block.data(), sizeof expected);
  const std::size_t line_bytes = static_cast<std::size_t>(end - begin) * sizeof(std::complex<T>);
  for (std::int64_t j = 0; j < mine && begin < end; ++j)
    std::memcpy(to + j * length + begin, block.data() + sizeof expected + static_cast<std::size_t>(j) * line_bytes, line_bytes);
  if (!verify) return true;
  std::uint64_t sum = 0;
  for (std::int64_t j = 0; j < mine; ++j) {
    const std::int64_t line = first(1 - axis, place) + j;
    for (std::int64_t i = begin; i < end; ++i)
      sum += term_of(to[j * length + i], axis == 0 ? i * lengths[1] + line : line * lengths[1] + i);
  }
  return sum == expected;
}

// Exchanges lines of `axis` for lines of the other. If the sums of one rank do not agree, all exchange again.
template <class T>
void slab_plan<T>::implementation::turn(const std::vector<std::complex<T>>& from, int axis, std::vector<std::complex<T>>& to,
                                        run::recorder& seen, protection wanted) const {
  to.resize(size(1 - axis));
  const auto once = [&](int) {
    std::vector<std::vector<std::byte>> blocks;
    std::vector<std::span<const std::byte>> views;
    for (std::size_t p = 0; p < ranks; ++p) blocks.push_back(pack(from.data(), axis, p));
    views.reserve(ranks);
    for (const auto& each : blocks) views.emplace_back(each);
    const std::vector<wire::bytes> came = over().all_to_all(views);
    bool right = true;
    for (std::size_t p = 0; p < ranks; ++p) right = unpack(came[p], axis, p, to.data(), wanted != protection::off) && right;
    abft::finding found;
    found.residual = std::numeric_limits<double>::quiet_NaN();
    found.word = right ? abft::k_pass : abft::k_fail;
    if (wanted == protection::off) return found;
    seen.checked(ranks);
    const std::int64_t verdict[] = {right ? 0 : 1};
    for (const auto& each : over().gather(std::span<const std::int64_t>(verdict)))
      if (each[0] != 0) found.word = abft::k_fail;
    return found;
  };
  if (wanted == protection::off) {
    (void)once(0);
    return;
  }
  run::attempt(seen, wanted, "group.transpose", 0, once);
}

template <class T>
report slab_plan<T>::implementation::transform(bool forward, std::span<const std::complex<T>> in, std::span<std::complex<T>> out,
                                               const call& now) const {
  const run::settings how = run::settings_of(where, now);
  inject::active_injector quiet(nullptr, site::table());
  run::recorder seen(token, ballast::backend::automatic, "", how, quiet);
  const bool transposed = result == slab_order::transposed;
  const int in_axis = !forward && transposed ? 1 : 0, out_axis = forward && transposed ? 1 : 0;
  try {
    return wire::in_group(over(), seen, token, [&] {
      if (over().size() != ranks)
        throw invalid_argument_error(
            fmt::format("{}: group: expected the {} ranks that made the plan, got {}", token, ranks, over().size()));
      if (in.size() != size(in_axis) || out.size() != size(out_axis))
        throw invalid_argument_error(fmt::format("{}: expected {} numbers in and {} out, got {} and {}", token, size(in_axis),
                                                 size(out_axis), in.size(), out.size()));
      abft::result_hash alike;
      for (const std::int64_t each : {lengths[0], lengths[1], std::int64_t{forward ? 1 : 0}, std::int64_t{transposed ? 1 : 0},
                                      static_cast<std::int64_t>(scaling), static_cast<std::int64_t>(sizeof(T))})
        alike.add(each);
      over().expect_alike(alike.bits());
      report own;
      std::vector<std::complex<T>> here(in.begin(), in.end()), there;
      const auto along = [&](int axis) {
        if (!lines[axis] || size(axis) == 0) return;
        there.resize(here.size());
        const call silent = {.throw_on_uncorrectable = false};
        const report part = forward
                                ? lines[axis]->forward(std::span<const std::complex<T>>(here), std::span<std::complex<T>>(there), silent)
                                : lines[axis]->inverse(std::span<const std::complex<T>>(here), std::span<std::complex<T>>(there), silent);
        own.backend = part.backend;
        own.scheme = part.scheme;
        own.merge(part);
        here.swap(there);
      };
      along(in_axis);
      turn(here, in_axis, there, seen, how.protection);
      here.swap(there);
      along(1 - in_axis);
      if (in_axis == out_axis) {
        turn(here, 1 - in_axis, there, seen, how.protection);
        here.swap(there);
      }
      report all = seen.collect();
      all.merge(own);
      all.backend = own.backend;
      all.scheme = own.scheme;
      report joined = wire::joined(over(), all);
      // All ranks know the verdict now.
      if (joined.verdict != verdict::uncorrectable) std::ranges::copy(here, out.begin());
      return joined;
    });
  } catch (const wire::ranks_lost&) {
    over().regroup();
    throw rank_lost_error(wire::lost_message(over(), token), over().lost());
  }
}

template <class T>
slab_plan<T>::slab_plan(std::int64_t n0, std::int64_t n1, const execution& where, slab_order result, fft::norm scaling) {
  if (!where.group) throw invalid_argument_error("fft: group: expected one whose ranks have the rows, got none");
  if (n0 < 1 || n1 < 1) throw invalid_argument_error(fmt::format("fft: shape: expected lengths of at least 1, got {} × {}", n0, n1));
  auto made = std::make_shared<implementation>();
  made->lengths[0] = n0;
  made->lengths[1] = n1;
  made->where = where;
  made->result = result;
  made->scaling = scaling;
  made->place = made->over().place();
  made->ranks = made->over().size();
  made->token = to_token(problem{.precision = precision_of<T>, .shape = {n0, n1}}, direction::forward);
  execution alone = where;
  alone.group = {};
  for (const int axis : {0, 1}) {
    if (made->count(axis) == 0) continue;
    made->lines[axis].emplace(
        problem{.precision = precision_of<T>, .shape = {made->lengths[1 - axis]}, .batch = made->count(axis), .norm = scaling}, alone);
  }
  implementation_ = std::move(made);
}

template <class T>
std::int64_t slab_plan<T>::rows() const {
  return implementation_->count(0);
}
template <class T>
std::int64_t slab_plan<T>::first_row() const {
  return implementation_->first(0, implementation_->place);
}
template <class T>
std::int64_t slab_plan<T>::columns() const {
  return implementation_->count(1);
}
template <class T>
std::int64_t slab_plan<T>::first_column() const {
  return implementation_->first(1, implementation_->place);
}

template <class T>
report slab_plan<T>::forward(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now) const {
  return implementation_->transform(true, in, out, now);
}
template <class T>
report slab_plan<T>::inverse(std::span<const std::complex<T>> in, std::span<std::complex<T>> out, const call& now) const {
  return implementation_->transform(false, in, out, now);
}

template class slab_plan<float>;
template class slab_plan<double>;

}  // namespace abi_1
}  // namespace ballast::fft
