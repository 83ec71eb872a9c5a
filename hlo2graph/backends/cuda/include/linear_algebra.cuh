// Linear algebra of one matrix by one block: all its threads call, and all meet at the end.
//
// Sums and norms are kept in double, so that no square of a float runs over or under.
#pragma once

#include "complex.cuh"
#include "convert.cuh"
#include "cooperate.cuh"
#include "factor.cuh"

namespace hlo {

template <class T> struct Real { typedef T type; };
template <class T> struct Real<Complex<T>> { typedef T type; };

// A matrix, or part of one, in memory: strides count elements.
template <class T>
struct Matrix {
  T* at;
  s64 row, column;
  int rows, columns;
  __device__ T& operator()(int i, int j) const { return at[i * row + j * column]; }
  __device__ Matrix part(int i, int j) const {
    return {at + i * row + j * column, row, column, rows - i, columns - j};
  }
  __device__ Matrix transposed() const { return {at, column, row, columns, rows}; }
  __device__ Matrix turned_round() const {
    return {at + (rows - 1) * row + (columns - 1) * column, -row, -column, rows, columns};
  }
};

template <class T>
struct Vector {
  T* at;
  s64 step;
  __device__ T& operator[](int i) const { return at[i * step]; }
  __device__ Vector turned_round(int size) const { return {at + (size - 1) * step, -step}; }
};

template <class T> __device__ inline f64 norm2(T x) {
  return plus_product((f64)real(x) * (f64)real(x), (f64)imag(x), (f64)imag(x));
}
template <class T> __device__ inline f64 size1(T x) {
  return ::fabs((f64)real(x)) + ::fabs((f64)imag(x));
}
__device__ inline void assign(f32& to, f64 re, f64) { to = (f32)re; }
__device__ inline void assign(f64& to, f64 re, f64) { to = re; }
template <class T> __device__ inline void assign(Complex<T>& to, f64 re, f64 im) {
  to = Complex<T>{(T)re, (T)im};
}
template <class T> __device__ inline T number(f64 re, f64 im = 0) {
  T x;
  assign(x, re, im);
  return x;
}

template <int Threads, class T> __device__ inline void fill(const Matrix<T>& a, T other, T diagonal) {
  for (int i = threadIdx.x; i < a.rows; i += Threads)
    for (int j = 0; j < a.columns; ++j) a(i, j) = i == j ? diagonal : other;
  __syncthreads();
}

template <int Threads, class T> __device__ inline void conjugate(const Matrix<T>& a) {
  for (int i = threadIdx.x; i < a.rows; i += Threads)
    for (int j = 0; j < a.columns; ++j) a(i, j) = conj(a(i, j));
  __syncthreads();
}

template <int Threads, class T> __device__ inline bool all_finite(const Matrix<T>& a) {
  int bad = 0;
  for (int i = threadIdx.x; i < a.rows; i += Threads)
    for (int j = 0; j < a.columns; ++j) bad += !is_finite(a(i, j));
  return block_sum<Threads>(bad) == 0;
}

template <int Threads, class T> __device__ inline void swap_columns(const Matrix<T>& a, int j, int k) {
  for (int i = threadIdx.x; j != k && i < a.rows; i += Threads) {
    const T held = a(i, j);
    a(i, j) = a(i, k);
    a(i, k) = held;
  }
  __syncthreads();
}

// The sum over the lanes of a warp, which each of them gets; all threads of the block take part.
template <class T> __device__ inline T warp_sum(T x) {
  const int words = sizeof(T) / 4;
  for (int mask = 16; mask; mask /= 2) {
    u32 bits[words];
    memcpy(bits, &x, sizeof(T));
    for (int k = 0; k < words; ++k) bits[k] = __shfl_xor_sync(0xffffffffu, bits[k], mask);
    T other;
    memcpy(&other, bits, sizeof(T));
    x = add(x, other);
  }
  return x;
}

// Where the largest of all threads' values is; of equals, the lowest place.
template <int Threads> __device__ inline int block_argmax(f64 value, int place) {
  __shared__ f64 values[Threads];
  __shared__ int places[Threads];
  __syncthreads();
  values[threadIdx.x] = value;
  places[threadIdx.x] = place;
  __syncthreads();
  for (int half = Threads / 2; half > 0; half /= 2) {
    const int me = threadIdx.x, other = me + half;
    if (me < half) {
      const bool wins = values[other] > values[me] ||
                        (values[other] == values[me] && places[other] < places[me]);
      if (wins) values[me] = values[other], places[me] = places[other];
    }
    __syncthreads();
  }
  return places[0];
}

// ---- reflections I - tau v v^H, where v starts with a 1 that is not stored ----------------------

// Turn a column x into beta and the rest of v, so that the adjoint of the reflection makes beta e1
// of it; return tau.
template <int Threads, class T> __device__ inline T reflect(Vector<T> x, int size) {
  f64 part = 0;
  for (int i = 1 + threadIdx.x; i < size; i += Threads) part += norm2(x[i]);
  const f64 rest = block_sum<Threads>(part);
  const T alpha = x[0];
  __syncthreads();
  if (rest == 0 && imag(alpha) == 0) return T{};
  const f64 beta = -::copysign(::sqrt(norm2(alpha) + rest), (f64)real(alpha));
  const T scale = divide(number<T>(1), subtract(alpha, number<T>(beta)));
  for (int i = 1 + threadIdx.x; i < size; i += Threads) x[i] = multiply(x[i], scale);
  if (threadIdx.x == 0) x[0] = number<T>(beta);
  __syncthreads();
  return number<T>((beta - real(alpha)) / beta, -imag(alpha) / beta);
}

// A warp takes a column, whose elements lie side by side in what LAPACK's callers give.
template <int Threads, class T>
__device__ inline void apply_left(Vector<T> v, T tau, const Matrix<T>& c) {
  const int lane = threadIdx.x % 32;
  const auto element = [&](int i) { return i ? v[i] : number<T>(1); };
  for (int first = 0; first < c.columns; first += Threads / 32) {
    const int j = first + threadIdx.x / 32, rows = j < c.columns ? c.rows : 0;
    T sum = T{};
    for (int i = lane; i < rows; i += 32) sum = plus_product(sum, conj(element(i)), c(i, j));
    sum = multiply(tau, warp_sum(sum));
    for (int i = lane; i < rows; i += 32) c(i, j) = minus_product(c(i, j), element(i), sum);
  }
  __syncthreads();
}

template <int Threads, class T>
__device__ inline void apply_right(Vector<T> v, T tau, const Matrix<T>& c) {
  for (int i = threadIdx.x; i < c.rows; i += Threads) {
    T sum = c(i, 0);
    for (int j = 1; j < c.columns; ++j) sum = plus_product(sum, c(i, j), v[j]);
    sum = multiply(tau, sum);
    c(i, 0) = subtract(c(i, 0), sum);
    for (int j = 1; j < c.columns; ++j) c(i, j) = minus_product(c(i, j), sum, conj(v[j]));
  }
  __syncthreads();
}

template <class T> __device__ inline Vector<T> below(const Matrix<T>& a, int i, int j) {
  return {&a(i, j), a.row};
}

template <int Threads, class T>
__device__ inline void factor_column(const Matrix<T>& a, int k, Vector<T> tau) {
  const T held = reflect<Threads>(below(a, k, k), a.rows - k);
  if (threadIdx.x == 0) tau[k] = held;
  apply_left<Threads>(below(a, k, k), conj(held), a.part(k, k + 1));
}

template <int Threads, class T>
__device__ inline void geqrf(const Matrix<T>& a, Vector<T> tau) {
  for (int k = 0; k < a.rows && k < a.columns; ++k) factor_column<Threads>(a, k, tau);
}

template <int Threads, class T>
__device__ inline void geqp3(const Matrix<T>& a, Vector<s32> pivots, Vector<T> tau) {
  int fixed = 0;
  for (int j = 0; j < a.columns; ++j) {
    const bool is_fixed = pivots[j] != 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      pivots[j] = is_fixed ? pivots[fixed] : j + 1;
      if (is_fixed) pivots[fixed] = j + 1;
    }
    if (is_fixed) swap_columns<Threads>(a, fixed++, j);
    __syncthreads();
  }
  for (int k = 0; k < a.rows && k < a.columns; ++k) {
    if (k >= fixed) {
      f64 largest = -1;
      int place = a.columns;
      for (int j = k + threadIdx.x; j < a.columns; j += Threads) {
        f64 sum = 0;
        for (int i = k; i < a.rows; ++i) sum += norm2(a(i, j));
        if (sum > largest) largest = sum, place = j;
      }
      const int best = block_argmax<Threads>(largest, place);
      if (threadIdx.x == 0 && best != k) {
        const s32 held = pivots[k];
        pivots[k] = pivots[best];
        pivots[best] = held;
      }
      swap_columns<Threads>(a, k, best);
    }
    factor_column<Threads>(a, k, tau);
  }
}

// Multiply out the first columns of a product of reflections, whose factors tau(k) tells.
template <int Threads, class T, class Tau>
__device__ inline void orgqr(const Matrix<T>& a, const Tau& tau, int count) {
  for (int i = threadIdx.x; i < a.rows; i += Threads)
    for (int j = count; j < a.columns; ++j) a(i, j) = number<T>(i == j);
  __syncthreads();
  for (int k = count - 1; k >= 0; --k) {
    const T factor = tau(k);
    apply_left<Threads>(below(a, k, k), factor, a.part(k, k + 1));
    for (int i = threadIdx.x; i < a.rows; i += Threads) {
      const T turned = i > k ? multiply(factor, a(i, k)) : T{};
      a(i, k) = i == k ? subtract(number<T>(1), factor) : subtract(T{}, turned);
    }
    __syncthreads();
  }
}

// Multiply c by the product of the reflections that stand in a matrix a(i, j) of `rows` rows.
template <int Threads, int Rows, class T, class A, class Tau>
__device__ inline void ormqr(
    const A& a, const Tau& tau, int count, const Matrix<T>& c, bool left, bool adjoint) {
  __shared__ T v[Rows];
  for (int step = 0; step < count; ++step) {
    const int k = left != adjoint ? count - 1 - step : step;
    for (int i = threadIdx.x; k + i < Rows; i += Threads) v[i] = a(k + i, k);
    __syncthreads();
    const T held = tau(k), factor = adjoint ? conj(held) : held;
    if (left) apply_left<Threads>(Vector<T>{v, 1}, factor, c.part(k, 0));
    else apply_right<Threads>(Vector<T>{v, 1}, factor, c.part(0, k));
  }
}

template <int Threads, class T>
__device__ inline void gehrd(const Matrix<T>& a, Vector<T> tau) {
  for (int k = 0; k + 1 < a.rows; ++k) {
    const Vector<T> v = below(a, k + 1, k);
    const T held = reflect<Threads>(v, a.rows - k - 1);
    if (threadIdx.x == 0) tau[k] = held;
    apply_right<Threads>(v, held, a.part(0, k + 1));
    apply_left<Threads>(v, conj(held), a.part(k + 1, k + 1));
  }
}

// Make a Hermitian matrix tridiagonal; its lower triangle is read and written.
template <int Threads, class T, class D>
__device__ inline void sytrd(const Matrix<T>& a, Vector<D> diagonal, Vector<D> beside, Vector<T> tau) {
  for (int k = 0; k + 1 < a.rows; ++k) {
    const Vector<T> v = below(a, k + 1, k);
    const int size = a.rows - k - 1;
    const Matrix<T> b = a.part(k + 1, k + 1);
    const T held = reflect<Threads>(v, size);
    const auto element = [&](int i) { return i ? v[i] : number<T>(1); };
    for (int i = threadIdx.x; i < size; i += Threads) {
      T sum = multiply(number<T>(real(b(i, i))), element(i));
      for (int j = 0; j < i; ++j) sum = plus_product(sum, b(i, j), element(j));
      for (int j = i + 1; j < size; ++j) sum = plus_product(sum, conj(b(j, i)), element(j));
      tau[k + i] = multiply(held, sum);
    }
    __syncthreads();
    f64 re = 0, im = 0;
    for (int i = threadIdx.x; i < size; i += Threads) {
      const T product = multiply(conj(tau[k + i]), element(i));
      re += real(product), im += imag(product);
    }
    re = block_sum<Threads>(re);
    im = block_sum<Threads>(im);
    const T alpha = multiply(held, number<T>(re / -2, im / -2));
    for (int i = threadIdx.x; i < size; i += Threads)
      tau[k + i] = plus_product(tau[k + i], alpha, element(i));
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += Threads)
      for (int j = 0; j <= i; ++j) {
        const T one = multiply(element(i), conj(tau[k + j]));
        b(i, j) = subtract(b(i, j), plus_product(one, tau[k + i], conj(element(j))));
      }
    if (threadIdx.x == 0) diagonal[k] = (D)real(a(k, k)), beside[k] = (D)real(v[0]);
    __syncthreads();
    if (threadIdx.x == 0) tau[k] = held;
    __syncthreads();
  }
  if (threadIdx.x == 0) diagonal[a.rows - 1] = (D)real(a(a.rows - 1, a.rows - 1));
  __syncthreads();
}

// ---- factors ---------------------------------------------------------------------------------

template <int Threads, class T>
__device__ inline void getrf(const Matrix<T>& a, Vector<s32> pivots, s32* info) {
  int singular = 0;
  for (int j = 0; j < a.rows && j < a.columns; ++j) {
    f64 largest = -2;
    int place = a.rows;
    for (int i = j + threadIdx.x; i < a.rows; i += Threads) {
      const f64 size = size1(a(i, j));
      const f64 kept = size == size ? size : -1;
      if (kept > largest) largest = kept, place = i;
    }
    const int best = block_argmax<Threads>(largest, place);
    swap_columns<Threads>(a.transposed(), j, best);
    if (threadIdx.x == 0) pivots[j] = best + 1;
    const T pivot = a(j, j);
    if (size1(pivot) == 0) {
      if (!singular) singular = j + 1;
      continue;
    }
    for (int i = j + 1 + threadIdx.x; i < a.rows; i += Threads) {
      const T factor = divide(a(i, j), pivot);
      a(i, j) = factor;
      for (int k = j + 1; k < a.columns; ++k)
        a(i, k) = minus_product(a(i, k), factor, a(j, k));
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *info = singular;
}

// Factor a positive definite matrix, in its lower triangle; info tells the first bad pivot.
template <int Threads, class T>
__device__ inline int potrf(const Matrix<T>& a) {
  for (int j = 0; j < a.rows; ++j) {
    const f64 pivot = real(a(j, j));
    __syncthreads();
    if (!(pivot > 0) || !(pivot < infinity_like(pivot))) return j + 1;
    const f64 root = ::sqrt(pivot);
    for (int i = j + threadIdx.x; i < a.rows; i += Threads)
      a(i, j) = i == j ? number<T>(root) : number<T>(real(a(i, j)) / root, imag(a(i, j)) / root);
    __syncthreads();
    for (int i = j + 1 + threadIdx.x; i < a.rows; i += Threads)
      for (int k = j + 1; k <= i; ++k)
        a(i, k) = minus_product(a(i, k), a(i, j), conj(a(k, j)));
    __syncthreads();
  }
  return 0;
}

// The upper factor of r^T r + w w^T, by rotations that make w zero.
template <int Threads, class T>
__device__ inline void cholesky_update(const Matrix<T>& r, Vector<T> w) {
  for (int k = 0; k < r.rows; ++k) {
    const f64 a = real(r(k, k)), b = real(w[k]), size = ::hypot(a, b);
    __syncthreads();
    if (size == 0 || b == 0) continue;
    for (int j = k + threadIdx.x; j < r.columns; j += Threads) {
      const f64 x = real(r(k, j)), y = real(w[j]);
      r(k, j) = number<T>((a * x + b * y) / size);
      w[j] = number<T>((a * y - b * x) / size);
    }
    __syncthreads();
  }
}

// Solve a tridiagonal system, exchanging neighbouring rows for larger pivots; return the row, from
// 1, that has no pivot, or 0.
template <int Threads, class T>
__device__ inline int gtsv(Vector<T> below, Vector<T> main, Vector<T> above, const Matrix<T>& b) {
  __shared__ T factor;
  __shared__ int exchanged, bad;
  const int n = b.rows;
  const auto lower = [&](int i) -> T& { return below[i + 1]; };
  if (threadIdx.x == 0) bad = 0;
  for (int i = 0; i < n; ++i) {
    __syncthreads();
    if (threadIdx.x == 0 && i + 1 < n && size1(main[i]) >= size1(lower(i))) {
      exchanged = 0;
      if (size1(main[i]) == 0) {
        bad = i + 1;
      } else {
        factor = divide(lower(i), main[i]);
        main[i + 1] = minus_product(main[i + 1], factor, above[i]);
        if (i + 2 < n) lower(i) = T{};
      }
    } else if (threadIdx.x == 0 && i + 1 < n) {
      exchanged = 1;
      factor = divide(main[i], lower(i));
      const T next = main[i + 1];
      main[i] = lower(i);
      main[i + 1] = minus_product(above[i], factor, next);
      above[i] = next;
      if (i + 2 < n) {
        lower(i) = above[i + 1];
        above[i + 1] = subtract(T{}, multiply(factor, above[i + 1]));
      }
    } else if (threadIdx.x == 0 && size1(main[i]) == 0) {
      bad = n;
    }
    __syncthreads();
    if (bad) return bad;
    for (int j = threadIdx.x; i + 1 < n && j < b.columns; j += Threads) {
      const T mine = b(i, j), next = b(i + 1, j);
      if (exchanged) b(i, j) = next;
      b(i + 1, j) = exchanged ? minus_product(mine, factor, next)
                              : minus_product(next, factor, mine);
    }
  }
  __syncthreads();
  for (int j = threadIdx.x; j < b.columns; j += Threads)
    for (int i = n - 1; i >= 0; --i) {
      T rest = b(i, j);
      if (i + 1 < n) rest = minus_product(rest, above[i], b(i + 1, j));
      if (i + 2 < n) rest = minus_product(rest, lower(i), b(i + 2, j));
      b(i, j) = divide(rest, main[i]);
    }
  __syncthreads();
  return 0;
}

}  // namespace hlo
