// Tiles of a product's operands in shared memory.
#pragma once

#include "complex.cuh"
#include "elementwise.cuh"

namespace hlo {

// Depth steps of Tile rows, or columns. The gap behind each step's keeps those that are stored side by
// side in different banks, and the next step's on whole accesses.
template <class T, int Depth, int Tile> struct Slab {
  static constexpr int Gap = sizeof(T) < 16 ? 16 / sizeof(T) : 1;
  alignas(16) T at[Depth][Tile + Gap];

  // Add the products of Each rows from `row` on and as many columns of the other operand.
  template <int Each>
  __device__ void multiply(const Slab& other, int row, int column, T (&total)[Each][Each]) const {
#pragma unroll 16
    for (int k = 0; k < Depth; ++k) {
      T left[Each], right[Each];
#pragma unroll
      for (int n = 0; n < Each; ++n) left[n] = at[k][row + n], right[n] = other.at[k][column + n];
#pragma unroll
      for (int i = 0; i < Each; ++i)
#pragma unroll
        for (int j = 0; j < Each; ++j)
          total[i][j] = plus_product(total[i][j], left[i], right[j]);
    }
  }
};

}  // namespace hlo
