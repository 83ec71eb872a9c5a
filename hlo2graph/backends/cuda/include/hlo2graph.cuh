// All that generated kernels include.
#pragma once

#include "types.cuh"
#include "elementwise.cuh"
#include "complex.cuh"
#include "convert.cuh"
#include "cooperate.cuh"
