// SPDX-License-Identifier: MIT
// Tasks in a shuffled order against the definition: rows that are not theirs, counts, gradients.
// Needs: weft
#include "src/patterns/packed_maps.h"
#include "src/patterns/pattern.h"
#include "tests/exercises/14_tiled_backward/exercise.h"
#include "tests/exercises/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

using exercise::expect;

namespace {
Matrix normals(int64_t rows, int64_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Matrix matrix(rows, Row(columns));
  for (Row& row : matrix)
    for (double& value : row) value = normal(random);
  return matrix;
}
}  // namespace

Problem::Problem(weft::definition::Head head, int64_t value_size)
    : head_(std::move(head)),
      out_(weft::definition::forward(head_)),
      dy_(normals(static_cast<int64_t>(head_.q.size()), value_size, 4)) {}

double Problem::score(int64_t i, int64_t j) const {
  ++computed_;
  return head_.scale * weft::definition::dot(q(i), k(j));
}

namespace {
constexpr int64_t kSize = 3, kValueSize = 2;
constexpr double kScale = 0.6;

// A gradient whose rows are garbage until a task stores them, once.
class Guarded {
 public:
  Guarded(std::string name, int64_t rows, int64_t columns)
      : name_(std::move(name)),
        rows_(rows, Row(columns, std::numeric_limits<double>::quiet_NaN())),
        before_(rows_) {}

  Matrix& rows() { return rows_; }

  // After a task that owns the positions in these slots.
  void check_task(const std::string& task, const int32_t* slots, int64_t edge) {
    for (int64_t row = 0; row < static_cast<int64_t>(rows_.size()); ++row) {
      const bool own = std::find(slots, slots + edge, row) != slots + edge;
      for (std::size_t d = 0; d < rows_[row].size(); ++d) {
        const double now = rows_[row][d], before = before_[row][d];
        const bool same = now == before || (std::isnan(now) && std::isnan(before));
        expect(own || same, task, " wrote row ", row, " of ", name_, ", which is another task's");
        expect(!own || !std::isnan(now), task, " left row ", row, " of ", name_,
               " as it was, or added to it: rows are stored, 0 where there is nothing");
      }
    }
    before_ = rows_;
  }

  void compare(const std::string& what, const Matrix& want) const {
    for (std::size_t row = 0; row < want.size(); ++row)
      for (std::size_t d = 0; d < want[row].size(); ++d)
        expect(std::abs(rows_[row][d] - want[row][d]) < 1e-10, what, name_, " of position ", row,
               " is ", want[row][d], ", yours is ", rows_[row][d],
               want[row][d] == 0 ? ""
                                 : exercise::text(", ", rows_[row][d] / want[row][d],
                                                  " times that (1 / scale is ", 1 / kScale, ")"));
  }

 private:
  std::string name_;
  Matrix rows_, before_;
};

std::vector<int64_t> shuffled(int64_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(6));
  return order;
}

class Run {
 public:
  Run(const weft::PatternSpec& spec, int64_t n)
      : pattern_(weft::make_pattern(spec, 1)),
        tables_(weft::build_tile_tables(*pattern_, 0, n)),
        n_(n),
        problem_({normals(n, kSize, 1), normals(n, kSize, 2), normals(n, kValueSize, 3), kScale,
                  [this](std::size_t i, std::size_t j) {
                    return pattern_->attends(0, static_cast<int64_t>(i), static_cast<int64_t>(j));
                  }},
                 kValueSize),
        what_(exercise::text(pattern_->name(), ", ", n, " positions: ")) {}

  Run(const Run&) = delete;

  void check_dq() {
    Guarded dq("dq", n_, kSize);
    for (const int64_t tile : shuffled(tables_.query_tiles())) {
      dq_of_tile(problem_, tables_, tile, dq.rows());
      dq.check_task(exercise::text(what_, "the task of query tile ", tile),
                    &tables_.query_order[tile * tables_.edge], tables_.edge);
    }
    dq.compare(what_, problem_.gradients().dq);
    check_count();
  }

  void check_dk_dv() {
    Guarded dk("dk", n_, kSize), dv("dv", n_, kValueSize);
    for (const int64_t tile : shuffled(tables_.key_tiles())) {
      dk_dv_of_tile(problem_, tables_, tile, dk.rows(), dv.rows());
      const int32_t* keys = &tables_.key_order[tile * tables_.edge];
      const std::string task = exercise::text(what_, "the task of key tile ", tile);
      dk.check_task(task, keys, tables_.edge);
      dv.check_task(task, keys, tables_.edge);
    }
    dv.compare(what_, problem_.gradients().dv);
    dk.compare(what_, problem_.gradients().dk);
    check_count();
  }

 private:
  void check_count() const {
    expect(problem_.computed() <= tables_.pairs.executed, what_, problem_.computed(),
           " scores were computed, the tiles of the tables have ", tables_.pairs.executed,
           " pairs");
  }

  std::unique_ptr<weft::AttentionPattern> pattern_;
  weft::TileTables tables_;
  int64_t n_;
  Problem problem_;
  std::string what_;
};

const std::pair<weft::PatternSpec, int64_t> kRuns[] = {
    {{.kind = "all"}, 64},
    {{.kind = "all"}, 200},
    {{.kind = "local", .stride = 70}, 201},
    {{.kind = "strided", .stride = 24}, 200},
    {{.kind = "fixed", .stride = 32, .c = 8}, 200},
    {{.kind = "summary", .stride = 32, .c = 8}, 130},
};

void dq_by_query_tiles() {
  for (const auto& [spec, n] : kRuns) Run(spec, n).check_dq();
}

void dk_and_dv_by_key_tiles() {
  for (const auto& [spec, n] : kRuns) Run(spec, n).check_dk_dv();
}
}  // namespace

int main() {
  return exercise::run({
      {"dq, a task for each query tile", dq_by_query_tiles},
      {"dk and dv, a task for each key tile", dk_and_dv_by_key_tiles},
  });
}
