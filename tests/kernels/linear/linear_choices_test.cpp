// SPDX-License-Identifier: MIT
// The file of choices: kept from run to run, shared between processes, ignored when it is not its own.
#include "kernels/linear/choices.h"

#include <filesystem>

#include "tests/temp_dir.h"

namespace weft {
namespace {

TEST(LinearChoices, AreKeptFromRunToRun) {
  const TempDir dir;
  const std::string folder = dir / "new/weft";
  {
    LinearChoices choices(folder, "a GPU");
    EXPECT_EQ(choices.find("1,2"), -1);
    choices.add("1,2", 3);
    choices.add("4,5", 0);
    EXPECT_EQ(choices.find("1,2"), 3);
  }
  const LinearChoices again(folder, "a GPU");
  EXPECT_EQ(again.find("1,2"), 3);
  EXPECT_EQ(again.find("4,5"), 0);
  EXPECT_EQ(again.find("1"), -1);
  const LinearChoices other(folder, "another GPU");
  EXPECT_EQ(other.find("1,2"), -1);
  EXPECT_NE(other.path(), again.path());
}

TEST(LinearChoices, OfTwoProcessesAreJoined) {
  const TempDir dir;
  LinearChoices one(dir.path(), "a GPU"), two(dir.path(), "a GPU");
  one.add("1", 1);
  two.add("2", 2);
  one.add("3", 3);
  const LinearChoices both(dir.path(), "a GPU");
  EXPECT_EQ(both.find("1"), 1);
  EXPECT_EQ(both.find("2"), 2);
  EXPECT_EQ(both.find("3"), 3);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++files;
  EXPECT_EQ(files, 1u);  // nothing is left beside it
}

TEST(LinearChoices, BrokenAndForeignFilesAreIgnored) {
  const TempDir dir;
  LinearChoices choices(dir.path(), "a GPU");
  choices.add("1", 1);
  const std::string path = choices.path(), whole = read_file(path);
  const auto found = [&](const std::string& bytes) {
    write_file(path, bytes);
    return LinearChoices(dir.path(), "a GPU").find("1");
  };
  EXPECT_EQ(found(whole), 1);
  for (const std::string& broken :
       {std::string(), std::string("\0\xff\n", 3), whole.substr(0, whole.size() - 2), "x" + whole,
        whole + "2\n", whole + "2 -1\n", whole + "2 99999999999\n", whole + "2 1 1\n", whole + "\n"})
    EXPECT_EQ(found(broken), -1) << broken;
  std::string foreign = whole;
  foreign.replace(foreign.find("a GPU"), 5, "b GPU");
  EXPECT_EQ(found(foreign), -1);
}

TEST(LinearChoices, AFolderThatCannotBeWrittenIsNoError) {
  const TempDir dir;
  write_file(dir / "file", "");
  LinearChoices choices(dir / "file/below", "a GPU");
  choices.add("1", 1);
  EXPECT_EQ(choices.find("1"), 1);
  LinearChoices none("", "a GPU");
  none.add("1", 2);
  EXPECT_EQ(none.find("1"), 2);
}

}  // namespace
}  // namespace weft
