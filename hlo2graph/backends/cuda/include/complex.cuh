// Complex arithmetic for c64 and c128.
#pragma once

#include "functions.cuh"

namespace hlo {

// Aligned so that both parts of a c64 are one access.
template <class T> struct alignas(8) Complex {
  T re, im;
};
typedef Complex<f32> c64;
typedef Complex<f64> c128;

template <class T> __device__ inline Complex<T> complex(T re, T im) { return Complex<T>{re, im}; }
template <class T> __device__ inline T real(Complex<T> x) { return x.re; }
template <class T> __device__ inline T imag(Complex<T> x) { return x.im; }
template <HLO_REAL(T)> __device__ inline T real(T x) { return x; }
template <HLO_REAL(T)> __device__ inline T imag(T) { return (T)0; }

template <class T> __device__ inline Complex<T> conj(Complex<T> x) { return {x.re, -x.im}; }
template <HLO_REAL(T)> __device__ inline T conj(T x) { return x; }
template <class T> __device__ inline Complex<T> scaled(Complex<T> x, T by) {
  return {x.re * by, x.im * by};
}
template <HLO_REAL(T)> __device__ inline T scaled(T x, T by) { return x * by; }
template <HLO_REAL(T)> __device__ inline T squared(T x) { return x * x; }

template <class T> __device__ inline Complex<T> add(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T> __device__ inline Complex<T> subtract(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T> __device__ inline Complex<T> multiply(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
__device__ inline Complex<T> plus_product(Complex<T> sum, Complex<T> a, Complex<T> b) {
  return {minus_product(plus_product(sum.re, a.re, b.re), a.im, b.im),
          plus_product(plus_product(sum.im, a.re, b.im), a.im, b.re)};
}
template <class T>
__device__ inline Complex<T> minus_product(Complex<T> sum, Complex<T> a, Complex<T> b) {
  return plus_product(sum, Complex<T>{-a.re, -a.im}, b);
}
// The product by a number of size 1, each part rounded as a sum is.
template <class T> __device__ inline Complex<T> rotated(Complex<T> x, Complex<T> by) {
  return {minus_product(x.re * by.re, x.im, by.im), plus_product(x.re * by.im, x.im, by.re)};
}
template <class T>
__device__ inline Complex<T> plus_scaled(Complex<T> sum, Complex<T> x, T by) {
  return {plus_product(sum.re, x.re, by), plus_product(sum.im, x.im, by)};
}
template <HLO_REAL(T)> __device__ inline T plus_scaled(T sum, T x, T by) {
  return plus_product(sum, x, by);
}
template <class T> __device__ inline Complex<T> negate(Complex<T> a) { return {-a.re, -a.im}; }

// Smith's division: scales by the larger part of the divisor, so that nothing overflows early.
template <class T> __device__ inline Complex<T> divide_finite(Complex<T> a, Complex<T> b) {
  if (b.re == 0 && b.im == 0) return {a.re / b.re, a.im / b.re};
  if (abs(b.re) >= abs(b.im)) {
    T ratio = b.im / b.re, scale = b.re + b.im * ratio;
    return {(a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale};
  }
  T ratio = b.re / b.im, scale = b.re * ratio + b.im;
  return {(a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale};
}

// 1 for what is infinite and 0 for what is not, in each part, with its sign.
template <class T> __device__ inline T infinite_part(T x) {
  T size = (T)(abs(x) == infinity_like(x));
  return sign_bit(x) ? -size : size;
}
template <class T> __device__ inline Complex<T> infinite_parts(Complex<T> a) {
  return {infinite_part(a.re), infinite_part(a.im)};
}
template <class T> __device__ inline bool has_infinity(Complex<T> a) {
  Complex<T> parts = infinite_parts(a);
  return parts.re != 0 || parts.im != 0;
}
template <class T> __device__ inline bool has_finite_parts(Complex<T> a) {
  return is_finite(a.re) && is_finite(a.im);
}

// Where division has no number to give, what C says of infinities.
template <class T>
__device__ __noinline__ static Complex<T> divide_infinite(Complex<T> a, Complex<T> b) {
  bool large = has_infinity(a) && has_finite_parts(b);
  bool small = has_infinity(b) && has_finite_parts(a);
  T size = large ? infinity_like(a.re) : small ? (T)0 : infinity_like(a.re) - infinity_like(a.re);
  if (large) a = infinite_parts(a);
  if (small) b = infinite_parts(b);
  return {size * (a.re * b.re + a.im * b.im), size * (a.im * b.re - a.re * b.im)};
}
template <class T> __device__ inline Complex<T> divide(Complex<T> a, Complex<T> b) {
  Complex<T> found = divide_finite(a, b);
  return is_nan(found.re) && is_nan(found.im) ? divide_infinite(a, b) : found;
}

__device__ inline f32 hypotenuse(c64 a) { return ::hypotf(a.re, a.im); }
__device__ inline f64 hypotenuse(c128 a) { return ::hypot(a.re, a.im); }
// C has it that one infinite part is enough, and XLA that no part may be NaN.
template <class T> __device__ inline T abs(Complex<T> a) {
  return is_nan(a.re) || is_nan(a.im) ? nan_like(a.re) : hypotenuse(a);
}
template <class T> __device__ inline Complex<T> sign(Complex<T> a) {
  T size = abs(a);
  return size == 0 ? Complex<T>{(T)0, (T)0} : Complex<T>{a.re / size, a.im / size};
}
template <class T> __device__ inline bool is_finite(Complex<T> a) {
  return is_finite(a.re) && is_finite(a.im);
}

template <class T> __device__ inline Complex<T> exponential(Complex<T> a) {
  T size = exponential(a.re);
  if (a.im == 0) return {size, a.im};
  return {size * cosine(a.im), size * sine(a.im)};
}
template <class T> __device__ inline Complex<T> log(Complex<T> a) {
  return {log(abs(a)), atan2(a.im, a.re)};
}
template <class T> __device__ inline Complex<T> exponential_minus_one(Complex<T> a) {
  T half = sine(a.im / 2), grown = exponential_minus_one(a.re);
  if (a.im == 0) return {grown, a.im};
  if (grown == infinity_like(grown)) return {grown * cosine(a.im), grown * sine(a.im)};
  return {grown - 2 * half * half * (grown + 1), (grown + 1) * sine(a.im)};
}
template <class T> __device__ inline Complex<T> log_plus_one(Complex<T> a) {
  T x = a.re, y = a.im;
  if (abs(x) < (T)0.5 && abs(y) < (T)0.5)
    return {log_plus_one(x * (2 + x) + y * y) / 2, atan2(y, x + 1)};
  return log(Complex<T>{x + 1, y});
}
template <class T> __device__ inline Complex<T> sine(Complex<T> a) {
  return {sine(a.re) * cosh(a.im), cosine(a.re) * sinh(a.im)};
}
template <class T> __device__ inline Complex<T> cosine(Complex<T> a) {
  return {cosine(a.re) * cosh(a.im), -sine(a.re) * sinh(a.im)};
}
template <class T> __device__ inline Complex<T> tanh(Complex<T> a) {
  if (a.im == 0) return {tanh(a.re), a.im};
  if (abs(a.re) == infinity_like(a.re)) return {a.re > 0 ? (T)1 : (T)-1, (T)0};
  if (abs(a.re) > (T)20) {
    T fade = exponential(-2 * abs(a.re));
    return {a.re > 0 ? (T)1 : (T)-1, 4 * sine(a.im) * cosine(a.im) * fade};
  }
  T t = tan(a.im), s = sinh(a.re), beta = 1 + t * t, rho = sqrt(1 + s * s);
  T scale = 1 + beta * s * s;
  return {beta * rho * s / scale, t / scale};
}
template <class T> __device__ inline Complex<T> tan(Complex<T> a) {
  Complex<T> turned = tanh(Complex<T>{-a.im, a.re});
  return {turned.im, -turned.re};
}
template <class T> __device__ inline Complex<T> square_root(Complex<T> a) {
  T size = hypotenuse(a);
  if (size == 0) return {(T)0, a.im};
  if (abs(a.im) == infinity_like(size)) return {abs(a.im), a.im};
  if (size == infinity_like(size) && is_finite(a.re) && !is_nan(a.im)) return {size, a.im};
  T root = sqrt((size + abs(a.re)) / 2);
  if (a.re >= 0) return {root, a.im / (2 * root)};
  return {abs(a.im) / (2 * root), sign_bit(a.im) ? -root : root};
}
template <class T> __device__ inline Complex<T> sqrt(Complex<T> a) {
  if (is_nan(a.re) || is_nan(a.im)) return {nan_like(a.re), nan_like(a.re)};
  return square_root(Complex<T>{a.re, a.im == 0 ? (T)0 : a.im});  // -0 counts as 0, as in XLA
}
template <class T> __device__ inline Complex<T> rsqrt(Complex<T> a) {
  return divide(Complex<T>{(T)1, (T)0}, square_root(a));
}
template <class T> __device__ inline Complex<T> cbrt(Complex<T> a) {
  T size = cbrt(abs(a)), angle = atan2(a.im, a.re) / 3;
  return {size * cosine(angle), size * sine(angle)};
}
template <class T> __device__ inline Complex<T> logistic(Complex<T> a) {
  Complex<T> one = {(T)1, (T)0};
  return divide(one, add(one, exponential(negate(a))));
}
template <class T> __device__ inline Complex<T> power(Complex<T> a, Complex<T> b) {
  if ((b.re == 0 && b.im == 0) || (a.re == 1 && a.im == 0)) return {(T)1, (T)0};
  bool real = a.im == 0 && b.im == 0, infinite = a.re > 0 && a.re == 2 * a.re;
  if (real && ((a.re == 0 && b.re > 0) || (infinite && b.re < 0))) return {(T)0, (T)0};
  if (real && infinite && b.re > 0) return a;
  T size = abs(a), angle = atan2(a.im, a.re), turn = b.re * angle + b.im * log(size);
  size = power(size, b.re) * exponential(-b.im * angle);
  return {size * cosine(turn), size * sine(turn)};
}
template <class T> __device__ inline Complex<T> atan2(Complex<T> y, Complex<T> x) {
  // -i log((x + iy) / sqrt(x^2 + y^2))
  Complex<T> along = add(x, Complex<T>{-y.im, y.re});
  Complex<T> size = square_root(add(multiply(x, x), multiply(y, y)));
  Complex<T> angle = log(divide(along, size));
  return {angle.im, -angle.re};
}

template <class T> __device__ inline Complex<T> cosh(Complex<T> a) {
  return {cosh(a.re) * cosine(a.im), sinh(a.re) * sine(a.im)};
}
template <class T> __device__ inline Complex<T> sinh(Complex<T> a) {
  return {sinh(a.re) * cosine(a.im), cosh(a.re) * sine(a.im)};
}

// Kahan, "Branch cuts for complex elementary functions" (1987).
template <class T> __device__ inline Complex<T> one_plus(T sign, Complex<T> a) {
  return {1 + sign * a.re, sign * a.im};
}
template <class T> __device__ inline Complex<T> asin(Complex<T> a) {
  Complex<T> low = square_root(one_plus((T)-1, a));
  Complex<T> high = square_root(one_plus((T)1, a));
  return {atan2(a.re, low.re * high.re - low.im * high.im),
          asinh(low.re * high.im - low.im * high.re)};
}
template <class T> __device__ inline Complex<T> acos(Complex<T> a) {
  Complex<T> low = square_root(one_plus((T)-1, a));
  Complex<T> high = square_root(one_plus((T)1, a));
  return {2 * atan2(low.re, high.re), asinh(high.re * low.im - high.im * low.re)};
}
template <class T> __device__ inline Complex<T> asinh(Complex<T> a) {
  Complex<T> turned = asin(Complex<T>{-a.im, a.re});
  return {turned.im, -turned.re};
}
template <class T> __device__ inline Complex<T> acosh(Complex<T> a) {
  Complex<T> low = square_root(Complex<T>{a.re - 1, a.im});
  Complex<T> high = square_root(Complex<T>{a.re + 1, a.im});
  return {asinh(low.re * high.re + low.im * high.im), 2 * atan2(low.im, high.re)};
}
template <class T> __device__ inline Complex<T> atanh(Complex<T> a) {
  T x = abs(a.re), y = a.im, square = y * y;
  T re = log_plus_one(4 * x / ((1 - x) * (1 - x) + square)) / 4;
  T im = atan2(2 * y, (1 - x) * (1 + x) - square) / 2;
  return {sign_bit(a.re) ? -re : re, im};
}

// XLA orders complex numbers by their real parts; the imaginary ones decide for < and > alone.
template <class T> __device__ inline bool operator<(Complex<T> a, Complex<T> b) {
  return a.re < b.re || (a.re == b.re && a.im < b.im);
}
template <class T> __device__ inline bool operator>(Complex<T> a, Complex<T> b) { return b < a; }
template <class T> __device__ inline bool operator<=(Complex<T> a, Complex<T> b) {
  return a.re <= b.re;
}
template <class T> __device__ inline bool operator>=(Complex<T> a, Complex<T> b) {
  return a.re >= b.re;
}
template <class T> __device__ inline Complex<T> maximum(Complex<T> a, Complex<T> b) {
  return a >= b ? a : b;
}
template <class T> __device__ inline Complex<T> minimum(Complex<T> a, Complex<T> b) {
  return a <= b ? a : b;
}

// e to the i 2 pi `part` / `whole` and its conjugate, with 0 <= part < whole.
template <class C> struct Turned;
template <> struct Turned<c64> {
  __device__ static c64 of(s64 part, s64 whole, int sign) {
    f32 s, c;
    ::sincospif(2.0f * (f32)part / (f32)whole, &s, &c);
    return {c, sign * s};
  }
};
template <> struct Turned<c128> {
  __device__ static c128 of(s64 part, s64 whole, int sign) {
    f64 s, c;
    ::sincospi(2.0 * (f64)part / (f64)whole, &s, &c);
    return {c, sign * s};
  }
};
template <class C> __device__ inline C turned(s64 part, s64 whole, int sign) {
  return Turned<C>::of(part, whole, sign);
}

template <class T> __device__ inline bool operator==(Complex<T> a, Complex<T> b) {
  return a.re == b.re && a.im == b.im;
}
template <class T> __device__ inline bool operator!=(Complex<T> a, Complex<T> b) {
  return !(a == b);
}

}  // namespace hlo
