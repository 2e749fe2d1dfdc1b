// SPDX-License-Identifier: MIT
#include "train/report/event_file.h"

#include "kernels/view.h"
#include "src/files/files.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace weft {
namespace {
std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
  return out;
}

// Fields of a message: number and wire type, then the value.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out + static_cast<char>(value);
}

std::string field(int number, const std::string& bytes) {
  return varint((number << 3) | 2) + varint(bytes.size()) + bytes;
}

std::string field(int number, int64_t value) {
  return varint(number << 3) + varint(static_cast<uint64_t>(value));
}

std::string field(int number, double value) {
  return varint((number << 3) | 1) + little_endian(std::bit_cast<uint64_t>(value), 8);
}

std::string field(int number, float value) {
  return varint((number << 3) | 5) + little_endian(std::bit_cast<uint32_t>(value), 4);
}

// CRC-32C (Castagnoli, reflected 0x82f63b78), masked as the format wants it.
uint32_t masked_crc(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string scalar(const char* tag, double value) {
  return std::isfinite(value)
             ? field(1, field(1, std::string(tag)) + field(2, static_cast<float>(value)))
             : "";
}
}  // namespace

EventFile::EventFile(const std::string& folder) {
  const std::filesystem::path inside = std::filesystem::path(folder) / "tensorboard";
  make_folder(inside.string());
  path_ = inside / str("events.out.tfevents.", static_cast<int64_t>(wall_time()), ".", host_name(),
                       ".", getpid());
  write(field(1, wall_time()) + field(3, std::string("brain.Event:2")));
}

void EventFile::append(const StepMetrics& m) const {
  std::string values = scalar("bits/train", m.bits()) + scalar("learning_rate", m.lr) +
                       scalar("gradient_norm", m.grad_norm) +
                       scalar("tokens_per_s", m.tokens_per_s) + scalar("mfu", m.mfu);
  if (m.valid_bits) values += scalar("bits/valid", *m.valid_bits);
  if (m.valid_bits_ema) values += scalar("bits/valid_ema", *m.valid_bits_ema);
  if (m.loss_scale) values += scalar("loss_scale", *m.loss_scale);
  write(field(1, wall_time()) + field(2, m.step) + field(5, values));
}

void EventFile::write(const std::string& event) const {
  const std::string length = little_endian(event.size(), 8);
  const std::string record =
      length + little_endian(masked_crc(length), 4) + event + little_endian(masked_crc(event), 4);
  std::ofstream out(path_, std::ios::binary | std::ios::app);
  out << record << std::flush;
  if (!out) fail("cannot write ", path_, ": is the disk full?");
}
}  // namespace weft
