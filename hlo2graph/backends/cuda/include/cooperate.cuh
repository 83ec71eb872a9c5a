// What the threads of a warp do together.
#pragma once

#include "types.cuh"

namespace hlo {

// The value that the thread `delta` lanes further on holds; all 32 lanes take part.
template <class T> __device__ inline T shuffle_down(T x, int delta) {
  const int words = (sizeof(T) + 3) / 4;
  u32 bits[words] = {};
  memcpy(bits, &x, sizeof(T));
  for (int k = 0; k < words; ++k) bits[k] = __shfl_down_sync(0xffffffffu, bits[k], delta);
  memcpy(&x, bits, sizeof(T));
  return x;
}

}  // namespace hlo
