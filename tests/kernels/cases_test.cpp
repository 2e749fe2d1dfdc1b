// SPDX-License-Identifier: MIT
// Every case of every kernel: the CPU forms of all types against f64, the CUDA forms against the
// CPU forms; and that every kernel struct has a case.
#include "kernels/layers/pointwise.h"
#include "tests/cases/compare.h"
#include "tests/cases/kernel_cases.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

namespace weft {
namespace {
std::set<std::string> kernels_with_cases(bool realistic) {
  std::set<std::string> names;
  for (const KernelCase& c : kernel_cases()) {
    if (c.realistic == realistic) names.insert(c.kernel);
  }
  return names;
}

void verify_all(Device& device, const std::string& kernel, DType type) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.kernel != kernel || c.realistic) continue;
    EXPECT_NO_THROW(verify(device, c, {type, type, false, false})) << c.sizes;
    EXPECT_NO_THROW(verify(device, c, {type, type, true, false})) << c.sizes << ", accumulating";
  }
}

using KernelAndType = std::tuple<std::string, DType>;

std::string name_of_test(const testing::TestParamInfo<KernelAndType>& info) {
  return std::get<0>(info.param) + "_" + name_of(std::get<1>(info.param));
}

// Not before main(): parts add their cases while static objects are made.
auto all_kernels() {
  return testing::Combine(testing::ValuesIn(kernels_with_cases(false)),
                          testing::Values(DType::f32, DType::f16, DType::bf16));
}

class KernelCases : public testing::TestWithParam<KernelAndType> {};

INSTANTIATE_TEST_SUITE_P(Cpu, KernelCases, all_kernels(), name_of_test);

TEST_P(KernelCases, AgreeWithF64) {
  const auto cpu = make_device("cpu");
  verify_all(*cpu, std::get<0>(GetParam()), std::get<1>(GetParam()));
}

// In a folder of a part that is switched off.
bool is_left_out(const std::string& path) {
  std::istringstream folders(WEFT_TEST_ABSENT_FOLDERS);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (path.starts_with(WEFT_TEST_SOURCE "/" + folder + "/")) return true;
  return false;
}

TEST(KernelCases, EveryKernelHasOne) {
  const std::regex name(R"(kName\s*=\s*\"(\w+)\")");
  const std::set<std::string> small = kernels_with_cases(false),
                              realistic = kernels_with_cases(true);
  int found = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(WEFT_TEST_SOURCE "/kernels")) {
    if (entry.path().extension() != ".h" || is_left_out(entry.path())) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string header = text.str();
    for (std::sregex_iterator it(header.begin(), header.end(), name), end; it != end;
         ++it, ++found) {
      EXPECT_TRUE(small.contains((*it)[1])) << (*it)[1] << " has no case in tests/cases/";
      EXPECT_TRUE(realistic.contains((*it)[1])) << (*it)[1] << " has no case of realistic size";
    }
  }
  EXPECT_GE(found, 20);
}

TEST(KernelCases, RelativeErrorSeesEveryKindOfDifference) {
  EXPECT_EQ(relative_error({1, 2, 3}, {1, 2, 3}), 0);
  EXPECT_NEAR(relative_error({1, 2, 3.3}, {1, 2, 3}), 0.1, 1e-12);
  EXPECT_GT(relative_error({1, 2, 3, 4}, {1, 2, 3}), 1e300);
  EXPECT_GT(relative_error({1, NAN, 3}, {1, 2, 3}), 1e300);
  EXPECT_GT(relative_error({1, 2, 3}, {1, INFINITY, 3}), 1e300);
  EXPECT_EQ(relative_error({1, INFINITY, NAN}, {1, INFINITY, NAN}), 0);
  EXPECT_GT(relative_error({1e-3}, {0}), 1e300);
}

KernelCase broken_add(int mistake) {
  return {"add", "broken", false, [=](CaseRun& r) {
            Add k{r.gradient("out", {33}), r.input({33})};
            // writes one element too many
            if (mistake == 1) k.x.shape[0] = k.out.view.shape[0] = 34;
            // one too few: the poison stays
            if (mistake == 2) k.x.shape[0] = k.out.view.shape[0] = 32;
            if (mistake == 3) std::swap(k.x.data, k.out.view.data);  // writes its input
            r.kernel(k);
          }};
}

TEST(KernelCases, MistakesAreFound) {
  const auto cpu = make_device("cpu");
  EXPECT_NO_THROW(verify(*cpu, broken_add(0), {}));
  for (int mistake : {1, 2, 3})
    EXPECT_THROW(verify(*cpu, broken_add(mistake), {}), Error) << mistake;
}

#ifdef WEFT_CUDA
// Tensors that do not begin on a 16-byte boundary. Views of parameters and activations always do:
// GEMMs and attention rely on it.
void verify_misaligned(Device& device, const std::string& kernel, DType type) {
  if (kernel.starts_with("linear") || kernel.starts_with("attention") ||
      kernel == "decode_blocks" || kernel.starts_with("qk_") || kernel.starts_with("content_") ||
      kernel == "newton_schulz")
    return;
  for (const KernelCase& c : kernel_cases()) {
    if (c.kernel != kernel || c.realistic) continue;
    EXPECT_NO_THROW(verify(device, c, {type, type, false, true})) << c.sizes << ", misaligned";
    EXPECT_NO_THROW(verify(device, c, {type, type, true, true}))
        << c.sizes << ", misaligned, accumulating";
  }
}

class CudaParity : public testing::TestWithParam<KernelAndType> {};

INSTANTIATE_TEST_SUITE_P(Cuda, CudaParity, all_kernels(), name_of_test);

TEST_P(CudaParity, AgreesWithTheCpuForm) {
  const auto cuda = make_device("cuda");
  verify_all(*cuda, std::get<0>(GetParam()), std::get<1>(GetParam()));
}

TEST_P(CudaParity, AgreesOnMisalignedTensors) {
  const auto cuda = make_device("cuda");
  verify_misaligned(*cuda, std::get<0>(GetParam()), std::get<1>(GetParam()));
}
#endif
}  // namespace
}  // namespace weft
