// All that generated kernels include.
#pragma once

#include "types.cuh"
#include "elementwise.cuh"
#include "complex.cuh"
#include "convert.cuh"
#include "precision.cuh"
#include "random.cuh"
#include "cooperate.cuh"
#include "mma.cuh"
#include "slab.cuh"
#include "search.cuh"
#include "sort.cuh"
#include "top.cuh"
#include "fft.cuh"
#include "factor.cuh"
#include "branch.cuh"
