// The exchange between two stages: results go through shared memory to the threads that need them next, within a block or within a cluster.
// Layer: fft/cuda kernels; a part of line.cuh.
#pragma once

#include "cuda/arch/cluster.cuh"
#include "fft/cuda/kernel/line_memory.cuh"

namespace ballast::fft::cuda {

template <line_policy P, class Injector>
struct line_exchange : line_memory<P, Injector> {
  using below = line_memory<P, Injector>;
  using below::arrival_parity;
  using below::barrier;
  using below::k_last;
  using below::k_linear;
  using below::line_of;
  using below::position_of;
  using below::rank;
  using below::refill;
  using below::shared;
  using below::x;
  using typename below::number;
  using typename below::real;

  using below::below;

  template <int S>
  static BALLAST_HD constexpr int slot(int i, int line) {
    constexpr exchange_layout e = P.exchange[S];
    const int word = e.columns ? e.position(i) * P.lines + line : line * e.position(P.share()) + e.position(i);
    int at = word;
    if constexpr (e.mask[0] != 0) at ^= (word >> e.shift[0]) & e.mask[0];
    if constexpr (e.mask[1] != 0) at ^= (word >> e.shift[1]) & e.mask[1];
    return at;
  }

  // True for padded layouts. Their slots of elements within one run differ by constants, as do those of elements whole runs apart.
  template <int S>
  static constexpr bool k_straight = P.exchange[S].pad != 0;

  // With powers of two, the slots of a thread differ from its first slot by constants. The bits of a constant above k_mixed never coincide
  // with a set bit of the first slot, so they are added. The masks of the layout permute the lower bits, so these are combined by exclusive
  // or.
  static constexpr int k_mixed = 15;

  template <int Constant, class Word>
  static __device__ __forceinline__ Word& word_at(unsigned char* first, int offset) {
    constexpr int low = (Constant & k_mixed) * static_cast<int>(sizeof(Word));
    constexpr int high = (Constant & ~k_mixed) * static_cast<int>(sizeof(Word));
    return *reinterpret_cast<Word*>(first + ((offset ^ low) + high));
  }

  // Returns the position of the first result of butterfly j, in a stage with radix r after stages of product p: ⌊j / p⌋ · p · r + j mod p.
  static BALLAST_HD constexpr int spread(int j, int p, int r) { return (j - j % p) * r + j % p; }

  // Return the destination of result k of butterfly j of this block, in stage S = cluster_after: the block, and the position in its share.
  static BALLAST_HD constexpr int block_of_result(int j, int k) {
    constexpr int p = P.before(P.cluster_after);
    return P.rank_of_residue(j % p + k * p);
  }
  static BALLAST_HD constexpr int position_of_result(int j, int k, int rank) {
    constexpr int p = P.before(P.cluster_after);
    return (rank * P.source_run() + j / p) * P.target_run() + P.position_of_residue(j % p + k * p);
  }

  // Every word sent to a block counts its bytes on the mbarrier of that block; the receiver waits there for all its words.
  __device__ __forceinline__ arch::mbarrier* arrival() const { return reinterpret_cast<arch::mbarrier*>(shared + P.arrival_offset()); }

  template <int S, class Word, class Part>
  __device__ __forceinline__ void write_to_cluster(int from, Part&& part) {
    constexpr int r = P.radix[S];
    if (threadIdx.x == 0) arch::arrive_expect(arrival(), static_cast<std::uint32_t>(P.share() * sizeof(Word)));
    const int first = slot<S>(position_of_result(from, 0, rank()), 0) * static_cast<int>(sizeof(Word));
    const int first_block = block_of_result(from, 0);
    constexpr int p = P.before(S);
    const int row = position_of_result(from, 0, rank()) / P.target_run() * P.target_run();
    const int first_negative =
        !P.mirrors() ? 0 : slot<S>(row + P.target_run() / 2 + (p - from % p) % (P.target_run() / 2), 0) * static_cast<int>(sizeof(Word));
    unrolled<P.butterflies(S)>([&](auto qi) {
      constexpr int q = decltype(qi)::value;
      const int j = from + q * P.threads;
      if (!P.ragged(S) || j < P.share() / r) {
        unrolled<r>([&](auto ki) {
          constexpr int k = decltype(ki)::value;
          if constexpr (below::k_linear && P.mirrors() && p % (P.target_run() / 2) == 0 && P.threads % p == 0) {
            // Residues of the upper half are negatives: p − from % p counts down from the last one. Half the distance is its own negative:
            // the formula gives rank `cluster`, and the modulo wraps it to 0.
            constexpr int half = P.target_run() / 2;
            constexpr bool negative = 2 * k >= r;
            constexpr int blocks = (negative ? r - 1 - k : k) * (p / half);
            const int residue = negative ? p - from % p : from % p;
            Word& to = word_at<slot<S>(position_of_result(q * P.threads, 0, 0), 0), Word>(this->shared, negative ? first_negative : first);
            arch::store_async(&to, (blocks + residue / half) % P.cluster, part(this->x[q * r + k]), arrival());
          } else if constexpr (below::k_linear && !P.mirrors()) {
            // The bits of `from` do not overlap those of q and k, so the addition has no carries.
            constexpr int ahead = block_of_result(q * P.threads, k);
            Word& to = word_at<slot<S>(position_of_result(q * P.threads, k, 0), 0), Word>(this->shared, first);
            if constexpr (P.target_run() % P.before(S) == 0) {
              arch::store_async(&to, ahead, part(this->x[q * r + k]), arrival());
            } else {
              arch::store_async(&to, first_block + ahead, part(this->x[q * r + k]), arrival());
            }
          } else {
            Word* const to = reinterpret_cast<Word*>(this->shared) + slot<S>(position_of_result(j, k, this->rank()), 0);
            arch::store_async(to, block_of_result(j, k), part(this->x[q * r + k]), arrival());
          }
        });
      }
    });
  }

  // Waits until all results that are read next have been written.
  template <int S>
  __device__ __forceinline__ void written() {
    if constexpr (P.cluster > 1 && S == P.cluster_after) {
      arch::wait_cluster(arrival(), arrival_parity);
      arrival_parity ^= 1;
    } else {
      barrier();
    }
  }

  // Passes the results of stage S to the threads that need them for stage S + 1 or that store them.
  template <int S>
  __device__ __forceinline__ void exchange() {
    constexpr int r = P.radix[S];
    constexpr int p = P.before_share(S);
    constexpr bool ends = S == k_last;
    constexpr int next = ends ? r : P.radix[ends ? S : S + 1];
    constexpr int stride = P.share() / next;
    constexpr int count = ends ? P.butterflies(S) : P.butterflies(ends ? S : S + 1);
    constexpr bool next_ragged = ends ? P.ragged(S) : P.ragged(ends ? S : S + 1);
    constexpr bool from_columns = S == 0 ? P.in_columns : P.out_columns;
    const int from_line = line_of(from_columns);
    const int from = position_of(from_columns);
    const int to_line = line_of(P.out_columns);
    const int to = position_of(P.out_columns);
    constexpr bool leaves = P.cluster > 1 && S == P.cluster_after;
    const auto write = [&](auto word, auto&& part) {
      using type = typename decltype(word)::type;
      if constexpr (leaves) return write_to_cluster<S, type>(from, part);
      const int first = slot<S>(spread(from, p, r), from_line) * static_cast<int>(sizeof(type));
      unrolled<P.butterflies(S)>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int j = from + q * P.threads;
        if (!P.ragged(S) || j < P.share() / r) {
          unrolled<r>([&](auto ki) {
            constexpr int k = decltype(ki)::value;
            if constexpr (k_linear) {
              word_at<slot<S>(spread(q * P.threads, p, r) + k * p, 0), type>(shared, first) = part(x[q * r + k]);
            } else {
              constexpr int ahead = k_straight<S> ? k * p * (P.exchange[S].columns ? P.lines : 1) : 0;
              reinterpret_cast<type*>(shared)[slot<S>(spread(j, p, r) + (k_straight<S> ? 0 : k * p), from_line) + ahead] =
                  part(x[q * r + k]);
            }
          });
        }
      });
    };
    const auto fetch = [&](auto word, auto&& put) {
      using type = typename decltype(word)::type;
      const int first = slot<S>(to, to_line) * static_cast<int>(sizeof(type));
      unrolled<count>([&](auto qi) {
        constexpr int q = decltype(qi)::value;
        const int j = to + q * P.threads;
        if (!next_ragged || j < stride) {
          unrolled<next>([&](auto ki) {
            constexpr int k = decltype(ki)::value;
            if constexpr (k_linear) {
              put(x[q * next + k], word_at<slot<S>(q * P.threads + k * stride, 0), type>(shared, first));
            } else {
              constexpr int ahead = k_straight<S> ? slot<S>(k * stride, 0) : 0;
              put(x[q * next + k], reinterpret_cast<type*>(shared)[slot<S>(j + (k_straight<S> ? 0 : k * stride), to_line) + ahead]);
            }
          });
        }
      });
    };
    if constexpr (leaves) arch::cluster_wait();  // the other blocks have read their shared memory
    if constexpr (P.split) {
      write(type_of<real>{}, [](const number& z) { return z.re; });
      written<S>();
      if constexpr (S == 0) refill();
      real im[P.held()];
      unrolled<P.held()>([&](auto i) { im[decltype(i)::value] = x[decltype(i)::value].im; });
      fetch(type_of<real>{}, [](number& z, real word) { z.re = word; });
      if constexpr (leaves) {
        arch::cluster_sync();  // all blocks have read their shared memory
      } else {
        barrier();
      }
      unrolled<P.held()>([&](auto i) {
        // Keep the real parts that have arrived; the old imaginary parts are exchanged next.
        const real kept = x[decltype(i)::value].re;
        x[decltype(i)::value] = {kept, im[decltype(i)::value]};
      });
      write(type_of<real>{}, [](const number& z) { return z.im; });
      written<S>();
      fetch(type_of<real>{}, [](number& z, real word) { z.im = word; });
      if constexpr (!ends && S + 1 < k_last) barrier();  // before the next exchange writes
    } else {
      if constexpr (S > 0 && !leaves) barrier();  // results of the previous exchange have been read
      write(type_of<number>{}, [](const number& z) { return z; });
      written<S>();
      if constexpr (S == 0) refill();
      fetch(type_of<number>{}, [](number& z, const number& word) { z = word; });
    }
  }
};

}  // namespace ballast::fft::cuda
