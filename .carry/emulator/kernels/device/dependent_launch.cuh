#pragma once
#include "kernels/device/cuda.cuh"
