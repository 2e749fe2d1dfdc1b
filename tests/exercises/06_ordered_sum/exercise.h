// SPDX-License-Identifier: MIT
// A sum by several workers, as thread blocks of a GPU or threads of a CPU would compute it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

// Workers of which nobody knows who comes first.
class Team {
 public:
  Team(int size, unsigned seed);

  int size() const { return size_; }

  // Calls work(0) .. work(size() - 1), each once, in any order. Returns when all are done. To be
  // called as often as you like.
  void run(const std::function<void(int worker)>& work);

  int at_work() const { return at_work_; }

 private:
  int size_, at_work_ = -1;
  unsigned seed_;
};

// The numbers to add. They count who reads them.
class Numbers {
 public:
  Numbers(std::vector<float> values, const Team&);

  int64_t size() const;
  float operator[](int64_t i) const;

  const std::vector<int>& reads() const { return reads_; }  // of each number

  int64_t most_reads() const;  // of one worker; the caller of run() counts as one

 private:
  std::vector<float> values_;
  const Team& team_;
  mutable std::vector<int> reads_;
  mutable std::vector<int64_t> of_worker_;
};

// The sum of all numbers: the same bits for teams of any size, in whatever order they work.
float ordered_sum(const Numbers&, Team&);
