// SPDX-License-Identifier: MIT
// How the files of this folder fill the table of cases: a function each, called in table.cpp.
#pragma once

#include <utility>

#include "train/kernel_cases/kernel_cases.h"

namespace weft {

using Build = std::function<void(CaseRun&)>;

// Calls `f` with the run of a case and these values.
template <class... Values>
Build case_of(void (*f)(CaseRun&, Values...), std::type_identity_t<Values>... values) {
  return [=](CaseRun& r) { f(r, values...); };
}

class Table {
 public:
  // A case to verify. `sizes` are joined into its text.
  template <class Kernel, class... Sizes>
  void add(Build build, const Sizes&... sizes) {
    put<Kernel>(false, std::move(build), sizes...);
  }
  // A case of realistic size, to time.
  template <class Kernel, class... Sizes>
  void time(Build build, const Sizes&... sizes) {
    put<Kernel>(true, std::move(build), sizes...);
  }
  template <class Kernel, class... Sizes>
  void put(bool realistic, Build build, const Sizes&... sizes) {
    cases.push_back({Kernel::kName, str(sizes...), realistic, std::move(build)});
  }

  std::vector<KernelCase> cases;
};

void add_attention_cases(Table&);
void add_block_cases(Table&);  // residual blocks in sampling
void add_content_cases(Table&);
void add_linear_activation_cases(Table&);
void add_muon_cases(Table&);
void add_norm_cases(Table&);
void add_rotary_cases(Table&);
void add_sampling_cases(Table&);
void add_step_cases(Table&);  // what an update does with losses, gradients and weights

}  // namespace weft
