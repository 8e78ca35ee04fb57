// The table of kernels.hpp for the scalar type BALLAST_FFT_SCALAR and the instruction set that Highway compiles for.
// Layer: backend "cpu". Thread-to-data mapping: a tile belongs to one thread.
#include "fft/cpu/along-inl.hpp"
#include "fft/cpu/groups-inl.hpp"
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/lines-inl.hpp"
#include "fft/cpu/memory-inl.hpp"
#include "fft/cpu/pairs-inl.hpp"
#include "fft/cpu/products-inl.hpp"
#include "fft/cpu/real-inl.hpp"
#include "fft/cpu/stages-inl.hpp"
#include "fft/cpu/sums-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_KERNELS_INL
#else
#define BALLAST_FFT_KERNELS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

const kernel_table<T>* table_for_target() {
  // clang-format off
  static const kernel_table<T> table = {
      W, load_rows, load_columns, load_blocks, sum_tile, sum_outputs, fold_sums, set_thresholds,
      compare, store_rows, store_columns, join_rows, seal_blocks, seal_rows, extend_seals,
      stage, multiply_rows, twiddle_rows, twiddled_stage, scale_rows, permute_rows, mix_rows,
      split_real, join_real, real_stage, mirror_rows, shape_of_short, short_lines, load_groups,
      store_groups, turn_rows, encode_signals, sum_signals, store_signals, stream_run, repeat_lines, same_bits,
      make_pairs, same_pairs, join_run, store_run, seal_numbers, seal_tile, make_products,
      same_products, make_lines, same_lines, measure};
  // clang-format on
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
