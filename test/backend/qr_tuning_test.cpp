// The tuning table of QR: its lines are read and written without loss, and override the built-in choices.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/jit/jit.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/tuning.hpp"

namespace ballast::qr::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(qr_tuning, the_built_in_entries_are_read_and_written_without_loss) {
  const auto table = choice_table::parse(choice_form::built_in);
  EXPECT_THAT(table.warnings(), IsEmpty());
  EXPECT_EQ(table.entries().size(), 2u * k_tuned_count);
  EXPECT_EQ(choice_table::parse(table.to_text()).entries(), table.entries());
  const choice_table built_in(table);
  for (const int major : {8, 9, 10}) {
    for (const bool wide : {false, true}) {
      const launch_choices made = built_in.choices_for(major, wide);
      EXPECT_EQ(made.scan_rows, 4096);
      EXPECT_EQ(made.scan_blocks, 2048);
      EXPECT_EQ(made.chunk_rows, 256);
      EXPECT_THAT(made.team_rows, ElementsAre(0, 192, 1536, 4096));
      EXPECT_EQ(made.tall_rows, 128);
      EXPECT_EQ(made.one_panel, 128);
      EXPECT_EQ(made.medium_steps, 192);
      EXPECT_EQ(made.wide_tall_steps, 512);
      EXPECT_EQ(made.wide_steps, 2048);
    }
  }
}

TEST(qr_tuning, an_entry_is_for_its_architecture_and_precision) {
  const std::string text =
      std::string(choice_form::built_in) + "qr sm_80 f64 team_rows 0 100 200 300 1.25\nqr sm_90 f32 tall_rows 64 1.1\n";
  const choice_table table(choice_table::parse(text));
  EXPECT_THAT(table.warnings(), IsEmpty());
  EXPECT_THAT(table.choices_for(8, true).team_rows, ElementsAre(0, 100, 200, 300));
  EXPECT_THAT(table.choices_for(9, true).team_rows, ElementsAre(0, 192, 1536, 4096));
  EXPECT_EQ(table.choices_for(8, true).chunk_rows, 256);
  EXPECT_EQ(table.choices_for(9, false).tall_rows, 64);
  EXPECT_EQ(table.choices_for(9, true).tall_rows, 128);
  EXPECT_THAT(table.to_text(), HasSubstr("qr sm_80 f64 team_rows 0 100 200 300 1.25\n"));
}

TEST(qr_tuning, a_line_of_another_version_is_skipped_and_kept) {
  for (const std::string line :
       {"qr sm_90 f16 scan 4096 2048 1", "qr sm_90 f32 magic 1 1", "qr sm_90 f32 scan 4096 1", "qr sm_90 f32 scan 0 2048 1",
        "qr sm_90 f32 team_rows 0 192 100 4096 1", "qr sm_90 f32 panel_steps 1 2 3 1", "qr hopper f32 tall_rows 64 1"}) {
    const auto table = choice_table::parse("fft sm_90 f32 8 what\n" + line + "\n");
    EXPECT_TRUE(table.entries().empty()) << line;
    ASSERT_EQ(table.warnings().size(), 1u) << line;
    EXPECT_THAT(table.warnings()[0], HasSubstr("line 2")) << line;
    EXPECT_THAT(table.to_text(), HasSubstr(line));
  }
}

// The memory of slabs is a sixteenth of the device's, unless one slab alone is more; the memory that is measured for 32 columns holds the
// slabs of fewer.
TEST(qr_tuning, slabs_of_tall_matrices_are_bounded) {
  ballast::cuda::capabilities on = ballast::cuda::typical_capabilities("sm_90a");
  on.memory = std::int64_t{80} << 30;
  for (const std::int64_t bytes : {4, 8}) {
    for (const std::int64_t m : {3000, 100000, 4000000, 60000000}) {
      const tall_choice measured = choose_tall(batch_work::apply, m, 32, bytes, on);
      if (m > 3000) ASSERT_EQ(measured.size, tall_size::outside);
      EXPECT_LE(measured.slab_bytes(), std::max(on.memory / 16, measured.pitch));
      EXPECT_LE(measured.slabs, on.multiprocessors);
      for (const std::int64_t n : {1, 4, 31, 32, 200}) {
        EXPECT_LE(choose_tall(batch_work::apply, m, n, bytes, on).slab_bytes(), measured.slab_bytes()) << m << " × " << n;
        const tall_choice factored = choose_tall(batch_work::factor, m, n, bytes, on);
        EXPECT_LE(factored.slab_bytes(), std::max(on.memory / 16, factored.pitch));
        EXPECT_EQ(factored.slabs > 0, factored.size == tall_size::outside);
      }
    }
  }
}

}  // namespace
}  // namespace ballast::qr::cuda
