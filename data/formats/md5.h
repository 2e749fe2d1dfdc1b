// SPDX-License-Identifier: MIT
// MD5 (RFC 1321): recognises well-known data sets, whose publishers state it. Not for secrets.
#pragma once

#include <span>
#include <string>

namespace weft {

// 32 hexadecimal digits.
std::string md5(std::span<const char> bytes);

}  // namespace weft
