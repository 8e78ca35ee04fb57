// The rewriting of PTX: the struck registers, those that are not struck, and the position of the inserted code.
#include "strike/ptx.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace ballast::gpu_check {
namespace {

std::string kernel(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n\n.visible .entry one(\n\t.param .u64 one_param_0\n)\n.maxntid 64, 1, "
         "1\n.minnctapersm 4\n{\n"
         "\t.reg .pred \t%p<3>;\n\t.reg .f32 \t%f<9>;\n\t.reg .b32 \t%r<9>;\n\t.reg .b64 \t%rd<9>;\n\t.reg .f64 \t%fd<9>;\n" +
         body + "\tret;\n}\n\t.file\t1 \"/somewhere/one.cuh\"\n";
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Returns the struck register of each site, in order: the operand of its xor.
std::vector<std::string> struck_registers(const std::string& text) {
  std::vector<std::string> made;
  const std::string mark = "@%strike_now xor.b";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const auto first = text.find('%', at + mark.size());
    made.push_back(text.substr(first, text.find(',', first) - first));
  }
  return made;
}

using names = std::vector<std::string>;

TEST(StruckPtx, StrikesWhatArithmeticMakes) {
  const auto made = with_strikes(kernel("\tfma.rn.f32 \t%f3, %f1, %f2, %f1;\n\tadd.f64 \t%fd2, %fd1, %fd1;\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%f3", "%fd2"}));
  EXPECT_TRUE(holds(made.text, "xor.b32 \t%f3, %f3, %strike_mask;"));
  EXPECT_TRUE(holds(made.text, "xor.b64 \t%fd2, %fd2, %strike_wide;"));
  EXPECT_EQ(made.sites.size(), 2U);
}

TEST(StruckPtx, LeavesAddressesCountersAndPredicatesAlone) {
  // A store makes its address one.
  const auto made = with_strikes(
      kernel("\tld.param.u64 \t%rd1, [one_param_0];\n\tadd.s64 \t%rd2, %rd1, 8;\n\tmov.u32 \t%r1, %tid.x;\n\tadd.s32 \t%r2, %r1, 1;\n"
             "\tsetp.eq.s32 \t%p2, %r2, 9;\n\t@%p2 bra \tL;\nL:\n\tsetp.gt.f32 \t%p1, %f1, %f2;\n\tst.global.f32 \t[%rd2], "
             "%f1;\n\tbar.sync \t0;\n"));
  EXPECT_EQ(struck_registers(made.text), names{});
}

TEST(StruckPtx, FollowsNumbersThroughMovesLoadsAndExchanges) {
  const auto made = with_strikes(
      kernel("\tld.global.v2.u32 \t{%r1, %r2}, [%rd1];\n\tmov.b32 \t%f1, %r1;\n\tadd.f32 \t%f2, %f1, %f1;\n\tmov.b32 \t%r3, %f2;\n"
             "\tshfl.sync.bfly.b32 \t%r4|%p1, %r3, 1, 31, -1;\n\tmov.b64 \t%rd3, {%r4, %r2};\n"));
  // %r2 becomes a number because it is packed with one.
  EXPECT_EQ(struck_registers(made.text), (names{"%r1", "%r2", "%f1", "%f2", "%r3", "%r4", "%rd3"}));
}

TEST(StruckPtx, StrikesIntegersThatAreData) {
  // A label that is chosen and stored; its old value decides a branch, and the thread's number makes an address.
  const auto made = with_strikes(
      kernel("\tld.global.u32 \t%r1, [%rd1];\n\tadd.s32 \t%r2, %r1, 1;\n\tst.global.u32 \t[%rd1], %r2;\n\tld.global.u32 \t%r3, [%rd1];\n"
             "\tsetp.ne.s32 \t%p1, %r3, 0;\n\tselp.b32 \t%r5, 7, %r2, %p2;\n\tst.global.u32 \t[%rd1], %r5;\n\tmov.u32 \t%r4, %tid.x;\n"
             "\tmad.wide.u32 \t%rd2, %r4, 4, %rd1;\n\tst.global.u32 \t[%rd2], 0;\n\t@%p1 bra \tL;\nL:\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%r1", "%r2", "%r5"}));
}

TEST(StruckPtx, IntegersThatGuardControlAreControl) {
  // %r2 decides by way of %p2, since a guarded instruction writes the register of a branch.
  const auto made =
      with_strikes(kernel("\tld.global.u32 \t%r2, [%rd1];\n\tsetp.ne.s32 \t%p2, %r2, 0;\n\tmov.u32 \t%r1, 0;\n\t@%p2 mov.u32 \t%r1, 1;\n"
                          "\tsetp.ne.s32 \t%p1, %r1, 0;\n\t@!%p1 bra \tL;\nL:\n"));
  EXPECT_EQ(struck_registers(made.text), names{});
}

TEST(StruckPtx, ConversionsHaveTwoTypes) {
  const auto made = with_strikes(
      kernel("\tcvt.rzi.s32.f32 \t%r1, %f1;\n\tmul.wide.s32 \t%rd3, %r1, 4;\n\tst.global.f32 \t[%rd3], %f1;\n\tcvt.rn.f32.s32 \t%f2, "
             "%r2;\n\tcvt.f64.f32 \t%fd1, %f2;\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%f2", "%fd1"}));
}

TEST(StruckPtx, StandsBehindPredicatedInstructionsAndInFrontOfReturns) {
  const auto made = with_strikes(kernel("\t@%p1 mul.f32 \t%f2, %f1, %f1;\n\t@%p1 ret;\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%f2"}));
  const auto report = made.text.find("[%strike_at+32]");
  ASSERT_NE(report, std::string::npos);
  EXPECT_LT(report, made.text.find("@%p1 ret"));
  EXPECT_LT(made.text.rfind("[%strike_at+40]"), made.text.rfind("ret;"));
}

TEST(StruckPtx, NamesTheLinesOfInlinedFunctions) {
  const auto made = with_strikes(
      kernel("\t.loc\t1 10 3\n\t.loc\t1 20 5, function_name $L__info_string0, inlined_at 1 10 3\n\tadd.f32 \t%f2, %f1, %f1;\n"));
  ASSERT_EQ(made.sites.size(), 1U);
  EXPECT_EQ(made.sites[0], "add.f32 %f2, %f1, %f1;\tone.cuh:20 < one.cuh:10");
  EXPECT_FALSE(holds(made.text, ".loc"));
}

TEST(StruckPtx, SaysWhetherThereAreNumbers) {
  EXPECT_TRUE(with_strikes(kernel("\tadd.f32 \t%f2, %f1, %f1;\n")).has_numbers);
  EXPECT_FALSE(with_strikes(kernel("\tadd.u32 \t%r2, %r1, %r1;\n")).has_numbers);
}

TEST(StruckPtx, MemoryOfAThreadIsNoLineOfTheSource) {
  const auto made = with_strikes(kernel("\t.local .align 8 .b8 \t__local_depot0[24];\n\tadd.f32 \t%f2, %f1, %f1;\n"));
  EXPECT_TRUE(holds(made.text, "__local_depot0[24]"));
  EXPECT_EQ(made.sites.size(), 1U);
}

TEST(StruckPtx, BracesOfInlineAssemblyDoNotEndTheKernel) {
  const auto made = with_strikes(kernel("\t{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %r1, 0;\n}\n\tadd.f32 \t%f2, %f1, %f1;\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%f2"}));
}

TEST(StruckPtx, NothingStandsInACall) {
  const auto made = with_strikes(
      kernel("\t{ // callseq 0, 0\n\t.param .b32 param0;\n\tst.param.f32 \t[param0+0], %f1;\n\tcall.uni \n\tother, \n\t(\n\tparam0\n\t);\n"
             "\tld.param.f32 \t%f3, [retval0+0];\n\t} // callseq 0\n\tadd.f32 \t%f2, %f3, %f1;\n"));
  EXPECT_EQ(struck_registers(made.text), (names{"%f2"}));
}

TEST(StruckPtx, EachSiteHasItsNumber) {
  const auto made = with_strikes(kernel("\tadd.f32 \t%f2, %f1, %f1;\n\tadd.f32 \t%f3, %f1, %f1;\n"));
  EXPECT_TRUE(holds(made.text, "lop3.b32 \t%strike_a, %strike_wanted, 1, %strike_only, 0x28;"));
  EXPECT_TRUE(holds(made.text, "lop3.b32 \t%strike_a, %strike_wanted, 2, %strike_only, 0x28;"));
  EXPECT_TRUE(holds(made.text, "@%strike_now mov.u32 \t%strike_site, 2;"));
  EXPECT_FALSE(holds(made.text, "SITE"));
}

TEST(StruckPtx, FoundThreadsAreDecoded) {
  strike_control answer;
  answer.key = 0x9e3779b9;
  answer.found = ((std::uint64_t{123'456} ^ answer.key) << 24) | 17;
  EXPECT_EQ(answer.found_thread(), 123'456U);
  EXPECT_EQ(answer.found_executions(), 17U);
}

TEST(StruckPtx, HasOneVariableAndMoreRoomForRegisters) {
  const auto made = with_strikes(kernel(""));
  EXPECT_TRUE(holds(made.text, std::string(".b8 ") + k_strike_variable + "[48]"));
  EXPECT_EQ(sizeof(strike_control), 48U);
  EXPECT_TRUE(holds(made.text, ".maxntid"));
  EXPECT_FALSE(holds(made.text, ".minnctapersm"));
}

TEST(StruckPtx, KeepsFunctionsBehindTheKernel) {
  const auto made = with_strikes(kernel("\tadd.f32 \t%f2, %f1, %f1;\n") + ".section .debug_str\n{\n}\n");
  EXPECT_FALSE(holds(made.text, ".debug_str"));
  std::string text = kernel("\tadd.f32 \t%f2, %f1, %f1;\n");
  text.insert(text.find("\t.file"), ".func helper()\n{\n\t.loc\t1 3 1\n\tadd.f32 \t%f9, %f1, %f1;\n\tret;\n}\n");
  const auto more = with_strikes(text);
  EXPECT_TRUE(holds(more.text, ".func helper()"));
  EXPECT_FALSE(holds(more.text, ".loc"));
  EXPECT_EQ(more.sites.size(), 1U);
}

TEST(StruckPtx, RefusesWhatIsNoKernel) {
  EXPECT_THROW((void)with_strikes(""), std::runtime_error);
  EXPECT_THROW((void)with_strikes(".version 9.0\n"), std::runtime_error);
  EXPECT_THROW((void)with_strikes(kernel("") + kernel("")), std::runtime_error);
}

}  // namespace
}  // namespace ballast::gpu_check
