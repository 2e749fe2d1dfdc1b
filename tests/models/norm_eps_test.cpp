// SPDX-License-Identifier: MIT
// model.norm_eps reaches every norm.
#include "src/config/config.h"
#include "tests/models/model_testing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace weft {
namespace {
// The largest element of the gradient of each norm's weight.
std::map<std::string, double> norm_gradients(const Config& config) {
  SmallModel small(config);
  small.differentiate(small.tokens(2, 18));
  std::map<std::string, double> most;
  for (const ParamInfo& p : small.store.params())
    for (const double g : small.engine.host(small.store.gradients().slice(p.offset, p.shape)))
      if (p.name.ends_with("norm.weight")) most[p.name] = std::max(most[p.name], std::abs(g));
  return most;
}

// Beside an eps of 1e12 nothing is left of x: a norm is its bias, and no gradient reaches its
// weight. Nor does one pass the final norm: blocks are looked at without it.
TEST(NormEps, ReachesEveryNorm) {
  for (const bool final_norm : {true, false}) {
    Config config = small_config({"local", 5, 1, 1});
    config.model.final_norm = final_norm;
    const std::map<std::string, double> usual = norm_gradients(config);
    config.model.norm_eps = 1e12;
    const std::map<std::string, double> none = norm_gradients(config);
    EXPECT_EQ(usual.size(), final_norm ? 5u : 4u);
    for (const auto& [name, gradient] : usual)
      EXPECT_LT(none.at(name), 1e-4 * gradient)
          << name << (final_norm ? "" : " without final_norm");
  }
}
}  // namespace
}  // namespace weft
