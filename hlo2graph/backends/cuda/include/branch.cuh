// Branches whose loads are to stay apart.
#pragma once

namespace hlo {

// Ends branch `Number` of several that end alike. The compiler would move their loads behind the
// branches, to addresses chosen one by one, and make no wide access of neighbouring ones any more.
template <int Number> __device__ inline void branch_end() {
#ifdef __CUDA_ARCH__
  asm volatile("// branch %0" ::"n"(Number));
#endif
}

}  // namespace hlo
