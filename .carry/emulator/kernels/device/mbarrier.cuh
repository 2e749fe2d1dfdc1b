#pragma once
#include <cstdint>
#define WEFT_SM90_ASM(...) static_cast<void>(0)
