// Eigenvalues of Hermitian matrices and singular values, of one matrix by one block.
#pragma once

#include "linear_algebra.cuh"

namespace hlo {

__device__ inline f64 rounding(f32) { return 1.1920929e-7; }
__device__ inline f64 rounding(f64) { return 2.220446049250313e-16; }

// ---- Hermitian: tridiagonal by reflections, then diagonal by implicit QL steps -----------------

// One QL step on the block of rows first to last; the rotations of rows (i, i + 1) stand at i from
// the returned row on.
__device__ inline int ql_step(f64* d, f64* e, int first, int last, f64* cosines, f64* sines) {
  f64 g = (d[first + 1] - d[first]) / (2 * e[first]);
  g = d[last] - d[first] + e[first] / (g + ::copysign(::hypot(g, 1.0), g));
  f64 s = 1, c = 1, p = 0;
  for (int i = last - 1; i >= first; --i) {
    const f64 f = s * e[i], b = c * e[i], r = ::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {
      d[i + 1] -= p;
      e[last] = 0;
      return i + 1;
    }
    s = f / r, c = g / r;
    g = d[i + 1] - p;
    const f64 t = plus_product(2 * c * b, d[i] - g, s);
    p = s * t;
    d[i + 1] = g + p;
    g = plus_product(-b, c, t);
    cosines[i] = c, sines[i] = s;
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0;
  return first;
}

template <int Threads, class T>
__device__ inline void rotate_columns(
    const Matrix<T>& z, int from, int last, const f64* cosines, const f64* sines) {
  typedef typename Real<T>::type R;
  for (int row = threadIdx.x; row < z.rows; row += Threads)
    for (int i = last - 1; i >= from; --i) {
      const T low = z(row, i), high = z(row, i + 1);
      const R c = (R)cosines[i], s = (R)sines[i];
      z(row, i + 1) = plus_scaled(scaled(low, s), high, c);
      z(row, i) = plus_scaled(scaled(low, c), high, -s);
    }
  __syncthreads();
}

// Make the tridiagonal matrix diagonal and turn z's columns with it; false if that does not end.
template <int Threads, class T>
__device__ inline bool tridiagonal_ql(
    const Matrix<T>& z, f64* d, f64* e, f64* cosines, f64* sines) {
  __shared__ int last, from;
  const int n = z.columns;
  for (int first = 0; first < n; ++first)
    for (int round = 0;; ++round) {
      __syncthreads();
      if (threadIdx.x == 0) {
        for (last = first; last + 1 < n; ++last)
          if (::fabs(e[last]) + (::fabs(d[last]) + ::fabs(d[last + 1])) ==
              ::fabs(d[last]) + ::fabs(d[last + 1]))
            break;
        if (last > first && round < 60) from = ql_step(d, e, first, last, cosines, sines);
      }
      __syncthreads();
      if (last == first) break;
      if (round == 60) return false;
      rotate_columns<Threads>(z, from, last, cosines, sines);
    }
  return true;
}

// Order the values, and the columns that belong to them.
template <int Threads, class T>
__device__ inline void sort_columns(
    const Matrix<T>& a, const Matrix<T>& b, f64* d, int count, bool rising) {
  for (int i = 0; i + 1 < count; ++i) {
    int best = i;
    for (int j = i + 1; j < count; ++j)
      if (rising ? d[j] < d[best] : d[j] > d[best]) best = j;
    const f64 held = d[i], found = d[best];
    __syncthreads();
    if (threadIdx.x == 0) d[best] = held, d[i] = found;
    swap_columns<Threads>(a, i, best);
    if (b.columns) swap_columns<Threads>(b, i, best);
  }
}

// Eigenvectors in place of a Hermitian matrix whose lower triangle is read; values rise.
template <int Threads, int Size, class T, class R>
__device__ inline bool syevd(const Matrix<T>& a, Vector<R> values) {
  __shared__ f64 d[Size], e[Size], cosines[Size], sines[Size];
  __shared__ T held[Size];
  const Vector<T> tau = {held, 1};
  const int n = a.rows;
  sytrd<Threads>(a, Vector<f64>{d, 1}, Vector<f64>{e, 1}, tau);
  if (threadIdx.x == 0) e[n - 1] = 0;
  if (n > 1) {
    const Matrix<T> q = {&a(1, 0), a.row, a.column, n - 1, n - 1};
    orgqr<Threads>(q, [&](int k) { return tau[k]; }, n - 1);
  }
  for (int i = threadIdx.x; i < n; i += Threads) {
    for (int j = n - 1; j > 0; --j) a(i, j) = i ? a(i, j - 1) : T{};
    a(i, 0) = number<T>(i == 0);
  }
  __syncthreads();
  const bool good = tridiagonal_ql<Threads>(a, d, e, cosines, sines);
  sort_columns<Threads>(a, Matrix<T>{}, d, n, true);
  for (int i = threadIdx.x; i < n; i += Threads) values[i] = (R)d[i];
  __syncthreads();
  return good;
}

// ---- singular values: rotations of pairs of columns until all are orthogonal --------------------

// Turn columns x and y, and those of v, so that x and y become orthogonal; true if they were not.
// A warp takes a pair; where it has none, it goes along with the others.
template <class T>
__device__ inline bool turn_pair(
    const Matrix<T>& a, const Matrix<T>& v, int x, int y, f64 bound, bool there) {
  typedef typename Real<T>::type R;
  const int lane = threadIdx.x % 32;
  f64 xx = 0, yy = 0, re = 0, im = 0;
  for (int i = lane; there && i < a.rows; i += 32) {
    const T p = a(i, x), q = a(i, y);
    xx += norm2(p), yy += norm2(q);
    re = plus_product(plus_product(re, (f64)real(p), (f64)real(q)), (f64)imag(p), (f64)imag(q));
    im = minus_product(plus_product(im, (f64)real(p), (f64)imag(q)), (f64)imag(p), (f64)real(q));
  }
  xx = warp_sum(xx), yy = warp_sum(yy), re = warp_sum(re), im = warp_sum(im);
  const f64 size = ::hypot(re, im);
  if (!(size > bound * ::sqrt(xx) * ::sqrt(yy))) return false;
  const f64 zeta = (yy - xx) / (2 * size);
  const f64 t = ::copysign(1.0, zeta) / (::fabs(zeta) + ::hypot(1.0, zeta));
  const f64 c = 1 / ::hypot(1.0, t), s = c * t;
  const T phase = number<T>(re / size, -im / size);
  const auto turn = [&](const Matrix<T>& m) {
    for (int i = lane; i < m.rows; i += 32) {
      const T p = m(i, x), q = multiply(m(i, y), phase);
      m(i, x) = plus_scaled(scaled(p, (R)c), q, (R)-s);
      m(i, y) = plus_scaled(scaled(p, (R)s), q, (R)c);
    }
  };
  turn(a);
  turn(v);
  return true;
}

// Each round pairs all columns, each with another one, as players of a tournament are paired.
template <int Threads, class T>
__device__ inline void orthogonalize(const Matrix<T>& a, const Matrix<T>& v, int count, f64 bound) {
  const int players = count + count % 2, rounds = players - 1;
  for (int sweep = 0; sweep < 40; ++sweep) {
    int turned = 0;
    for (int round = 0; round < rounds; ++round) {
      for (int first = 0; first < players / 2; first += Threads / 32) {
        const int pair = first + threadIdx.x / 32;
        const int one = pair ? (round + pair) % rounds : rounds;
        const int other = pair ? (round + rounds - pair) % rounds : round;
        const int x = one < other ? one : other, y = one < other ? other : one;
        turned += turn_pair(a, v, x, y, bound, pair < players / 2 && y < count);
      }
      __syncthreads();
    }
    if (block_sum<Threads>(turned) == 0) break;
  }
}

// Make column j a unit vector that is orthogonal to all before it.
template <int Threads, class T>
__device__ inline void complete_column(const Matrix<T>& a, int j) {
  const f64 wanted = 0.5 * ::sqrt((f64)(a.rows - j) / a.rows);
  for (int unit = 0; unit < a.rows; ++unit) {
    for (int i = threadIdx.x; i < a.rows; i += Threads) a(i, j) = number<T>(i == unit);
    f64 size = 1;
    for (int round = 0; round < 2 && size > wanted; ++round) {
      for (int k = 0; k < j; ++k) {
        f64 re = 0, im = 0;
        for (int i = threadIdx.x; i < a.rows; i += Threads) {
          const T product = multiply(conj(a(i, k)), a(i, j));
          re += real(product), im += imag(product);
        }
        re = block_sum<Threads>(re);
        im = block_sum<Threads>(im);
        for (int i = threadIdx.x; i < a.rows; i += Threads)
          a(i, j) = subtract(a(i, j), multiply(number<T>(re, im), a(i, k)));
      }
      f64 square = 0;
      for (int i = threadIdx.x; i < a.rows; i += Threads) square += norm2(a(i, j));
      size = ::sqrt(block_sum<Threads>(square));
      for (int i = threadIdx.x; size > 0 && i < a.rows; i += Threads)
        a(i, j) = number<T>(real(a(i, j)) / size, imag(a(i, j)) / size);
      if (round) size = 1;
    }
    __syncthreads();
    if (size > wanted) return;
  }
}

// A tall matrix, the first `count` columns of a, becomes its left singular vectors, and v the right
// ones; values fall. Columns without a value, and those behind, complete the basis if `vectors`.
template <int Threads, int Size, class T, class R>
__device__ inline void singular(
    const Matrix<T>& a, const Matrix<T>& v, Vector<R> values, int count, bool vectors) {
  __shared__ f64 d[Size];
  const f64 eps = rounding(R{});
  if (v.columns) fill<Threads>(v, T{}, number<T>(1));
  orthogonalize<Threads>(a, v, count, eps * (a.rows > 16 ? ::sqrt((f64)a.rows) : 4.0));
  for (int j = threadIdx.x; j < count; j += Threads) {
    f64 sum = 0;
    for (int i = 0; i < a.rows; ++i) sum += norm2(a(i, j));
    d[j] = ::sqrt(sum);
  }
  __syncthreads();
  sort_columns<Threads>(a, v, d, count, false);
  __syncthreads();
  for (int j = threadIdx.x; j < count; j += Threads) values[j] = (R)d[j];
  for (int j = 0; vectors && j < a.columns; ++j) {
    if (j >= count || !(d[j] > eps * a.rows * d[0])) {
      complete_column<Threads>(a, j);
      continue;
    }
    for (int i = threadIdx.x; i < a.rows; i += Threads)
      a(i, j) = number<T>(real(a(i, j)) / d[j], imag(a(i, j)) / d[j]);
    __syncthreads();
  }
}

}  // namespace hlo
