// A belief pushed through a matrix, for many filters, and the adjoint.
#pragma once
#include "small.h"

// mean = C m + d, cross = C P, among = sym(cross C') + Q. Q is a diagonal or a matrix.
template <class T> static int64_t push_forward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3], full = sizes[4], kp = padded<T>(k), np = padded<T>(n);
  const T *C = (T*)p[0], *P = (T*)p[1], *m = (T*)p[2], *d = (T*)p[3], *q = (T*)p[4];
  T *mean = (T*)p[5], *cross = (T*)p[6], *among = (T*)p[7];
  THREADS {
    Scratch<T> scratch((size_t)2 * k * np + n * kp + n * np + k * kp + kp);
    T *c_ = scratch.take(k * np), *ct = scratch.take(n * kp), *cov_ = scratch.take(n * np), *x_ = scratch.take(k * np);
    T *s = scratch.take(k * kp), *y = scratch.take(kp);
    EACH_FILTER {
      const T *c = read(c_, np, C + b * k * n, k, n), *cov = read(cov_, np, P + b * n * n, n, n);
      T* x = cross ? place(cross + b * k * n, x_, np, n) : x_;
      transpose(ct, kp, c, np, k, n);
      product<T, false>(k, n, n, 1, c, np, cov, np, x, np, false);
      product<T, false>(k, n, k, 1, x, np, ct, kp, s, kp, false);
      T* out = among + b * k * k;
      for (int i = 0; i < k; ++i)
        for (int j = 0; j <= i; ++j) out[i * k + j] = out[j * k + i] = T(0.5) * (s[i * kp + j] + s[j * kp + i]);
      if (full)
        for (int i = 0; i < k * k; ++i) out[i] += q[b * k * k + i];
      else
        for (int i = 0; i < k; ++i) out[i * k + i] += q[b * k + i];
      if (cross) write(cross + b * k * n, x, np, k, n);
      apply_transposed(n, k, ct, kp, m + b * n, y);
      for (int i = 0; i < k; ++i) mean[b * k + i] = y[i] + d[b * k + i];
    }
  }
  return 0;
}

// Cotangents of C, P and m, each where it is wanted, and of the diagonal or matrix Q.
template <class T> static int64_t push_backward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3], full = sizes[4], kp = padded<T>(k), np = padded<T>(n);
  const T *C = (T*)p[0], *P = (T*)p[1], *m = (T*)p[2], *mean_bar = (T*)p[3], *cross_bar = (T*)p[4], *among_bar = (T*)p[5];
  T *C_bar = (T*)p[6], *P_bar = (T*)p[7], *m_bar = (T*)p[8], *q_bar = (T*)p[9];
  THREADS {
    Scratch<T> scratch((size_t)4 * k * np + 2 * n * np + k * kp + 2 * np);
    T *c_ = scratch.take(k * np), *cov_ = scratch.take(n * np), *s = scratch.take(k * kp), *x = scratch.take(k * np);
    T *y = scratch.take(k * np), *g_ = scratch.take(k * np), *out_ = scratch.take(n * np), *row = scratch.take(np);
    T* prior = scratch.take(np);
    EACH_FILTER {
      const T* c = read(c_, np, C + b * k * n, k, n);
      clear(x, k * np);
      if (cross_bar)
        for (int i = 0; i < k; ++i)
          for (int j = 0; j < n; ++j) x[i * np + j] = cross_bar[(b * k + i) * n + j];
      std::memcpy(y, x, sizeof(T) * k * np);  // x is that of C P, y also that of the other C
      if (among_bar) {
        const T* bar = among_bar + b * k * k;
        for (int i = 0; i < k; ++i)
          for (int j = 0; j <= i; ++j) s[i * kp + j] = s[j * kp + i] = T(0.5) * (bar[i * k + j] + bar[j * k + i]);
        product<T, false>(k, k, n, 1, s, kp, c, np, x, np, true);
        if (C_bar) product<T, false>(k, k, n, 2, s, kp, c, np, y, np, true);  // C stands on both sides of C P C'
        if (q_bar && full) std::memcpy(q_bar + b * k * k, bar, sizeof(T) * k * k);
        if (q_bar && !full)
          for (int i = 0; i < k; ++i) q_bar[b * k + i] = bar[i * k + i];
      } else if (q_bar) {
        clear(q_bar + b * k * (full ? k : 1), k * (full ? k : 1));
      }
      if (C_bar) {
        T* g = place(C_bar + b * k * n, g_, np, n);
        product<T, false>(k, n, n, 1, y, np, read(cov_, np, P + b * n * n, n, n), np, g, np, false);
        if (mean_bar) {
          for (int j = 0; j < n; ++j) prior[j] = m[b * n + j];
          for (int i = 0; i < k; ++i) axpy<T>(g + i * np, mean_bar[b * k + i], prior, np);
        }
        write(C_bar + b * k * n, g, np, k, n);
      }
      if (P_bar) {
        T* out = place(P_bar + b * n * n, out_, np, n);
        product<T, true>(n, k, n, 1, c, np, x, np, out, np, false);
        write(P_bar + b * n * n, out, np, n, n);
      }
      if (m_bar) {
        if (mean_bar) apply_transposed(k, n, c, np, mean_bar + b * k, row);
        else clear(row, np);
        for (int j = 0; j < n; ++j) m_bar[b * n + j] = row[j];
      }
    }
  }
  return 0;
}
