// One step of many filters whose transition is blocks: dampings with slopes, beside a dense matrix; and whose
// observation is one number. Given the predicted mean, only covariances are computed.
#pragma once
#include "small.h"

// The transition of one filter, A = (diag(d) + slopes) beside F, for n = s + m states.
template <class T> struct Blocked {
  const int s, m, n, np, mp, slopes;
  const int64_t* pairs;  // (level, slope) of each
  T *d, *f, *ft, *columns, *block;
  T slope = 1;
  static size_t numbers(int n, int m) { return (size_t)padded<T>(n) + 3 * (m + 1) * padded<T>(m + 1) + n * padded<T>(m + 1); }
  Blocked(Scratch<T>& scratch, int n, int m, int slopes, const int64_t* pairs)
      : s(n - m), m(m), n(n), np(padded<T>(n)), mp(padded<T>(m)), slopes(slopes), pairs(pairs) {
    d = scratch.take(np), columns = scratch.take(n * mp);
    for (T** x : {&f, &ft, &block}) *x = scratch.take((m + 1) * mp);
  }
  void set(const T* diagonal, const T* dense, const T* share) {
    for (int i = 0; i < s; ++i) d[i] = diagonal ? diagonal[i] : T(1);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < m; ++j) f[i * mp + j] = ft[j * mp + i] = dense[i * m + j];
    slope = share ? *share : T(1);
  }
  // A p A' of a symmetric p without slopes, symmetric to the last bit.
  void around(const T* p, T* to) const {
    if (m) product<T, false>(n, m, m, 1, p + s, np, ft, mp, columns, mp, false);
    for (int i = 0; i < s; ++i) {
      const Vector<T> own = splat<T>(d[i]);
      for (int v = 0; v < np; v += width<T>) store(to + i * np + v, own * load(d + v) * load(p + i * np + v));
      for (int j = 0; j < m; ++j) to[i * np + s + j] = to[(s + j) * np + i] = d[i] * columns[i * mp + j];
    }
    if (!m) return;
    product<T, false>(m, m, m, 1, f, mp, columns + s * mp, mp, block, mp, false);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j <= i; ++j) to[(s + i) * np + s + j] = to[(s + j) * np + s + i] = T(0.5) * (block[i * mp + j] + block[j * mp + i]);
  }
  // to = A x, or A' x.
  void left(const T* x, T* to, bool transposed) const {
    for (int i = 0; i < s; ++i)
      for (int v = 0; v < np; v += width<T>) store(to + i * np + v, splat<T>(d[i]) * load(x + i * np + v));
    for (int k = 0; k < slopes; ++k) {
      const int64_t level = pairs[2 * k], own = pairs[2 * k + 1];
      axpy<T>(to + (transposed ? own : level) * np, slope, x + (transposed ? level : own) * np, np);
    }
    if (m) product<T, false>(m, m, n, 1, transposed ? ft : f, mp, x + s * np, np, to + s * np, np, false);
  }
  // to = x A', or x A.
  void right(const T* x, T* to, bool transposed) const {
    for (int i = 0; i < n; ++i)
      for (int v = 0; v < np; v += width<T>) store(to + i * np + v, load(d + v) * load(x + i * np + v));
    for (int k = 0; k < slopes; ++k) {
      const int64_t level = pairs[2 * k], own = pairs[2 * k + 1];
      const int64_t source = transposed ? own : level, place = transposed ? level : own;
      for (int i = 0; i < n; ++i) to[i * np + place] += slope * x[i * np + source];
    }
    if (!m) return;
    product<T, false>(n, m, m, 1, x + s, np, transposed ? ft : f, mp, columns, mp, false);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < m; ++j) to[i * np + s + j] = columns[i * mp + j];
  }
};

// y = A x.
template <class T> INLINE void apply(int rows, int columns, const T* a, int ld, const T* x, T* y) {
  for (int i = 0; i < rows; ++i) {
    Vector<T> sum = {};
    for (int v = 0; v < padded<T>(columns); v += width<T>) sum += load(a + i * ld + v) * load(x + v);
    T total = 0;
    for (int k = 0; k < width<T>; ++k) total += sum[k];
    y[i] = total;
  }
}

// What forward and backward have in common: the predicted covariance A P A' + diag(q), its product c with the row h of
// the observation, and the variance v of the latter.
template <class T> struct Prediction {
  const int n, np;
  const T* prior;
  T *p, *x, *own, *cov, *h, *c, v;
  static size_t numbers(int n) { return (size_t)3 * n * padded<T>(n) + 2 * padded<T>(n) + 64; }
  Prediction(Scratch<T>& scratch, int n) : n(n), np(padded<T>(n)) {
    for (T** part : {&p, &x, &own}) *part = scratch.take(n * np);
    for (T** part : {&h, &c}) *part = scratch.take(np);
  }
  void set(const Blocked<T>& a, const T* given, const T* q, const T* row, T noise, T* to) {
    prior = read(p, np, given, n, n);
    cov = to;
    if (a.slopes) {
      a.left(prior, x, false);
      a.right(x, cov, true);
      for (int i = 0; i < n; ++i)
        // Two products round differently on both sides of the diagonal.
        for (int j = 0; j < i; ++j) cov[i * np + j] = cov[j * np + i] = T(0.5) * (cov[i * np + j] + cov[j * np + i]);
    } else {
      a.around(prior, cov);
    }
    for (int i = 0; i < n; ++i) {
      cov[i * np + i] += q[i];
      h[i] = row[i];
    }
    apply_transposed(n, n, cov, np, h, c);
    v = noise;
    for (int i = 0; i < n; ++i) v += h[i] * c[i];
  }
};

template <class T> static int64_t structural_forward(const int64_t* sizes, void** pointers) {
  const int64_t count = sizes[0];
  const int n = sizes[1], m = sizes[2], threads = sizes[3], slopes = sizes[4];
  const T *m_ = (T*)pointers[0], *P = (T*)pointers[1], *d = (T*)pointers[2], *F = (T*)pointers[3], *q = (T*)pointers[4];
  const int64_t* pairs = (int64_t*)pointers[5];
  const T *share = (T*)pointers[6], *h = (T*)pointers[7], *residual = (T*)pointers[8], *r = (T*)pointers[9];
  const uint8_t* seen = (uint8_t*)pointers[10];
  T *mean = (T*)pointers[11], *cov = (T*)pointers[12], *log_prob = (T*)pointers[13], *variance = (T*)pointers[14];
  int32_t* info = (int32_t*)pointers[15];
  int64_t failed = 0;
  COUNTING_THREADS {
    Scratch<T> scratch(Blocked<T>::numbers(n, m) + Prediction<T>::numbers(n));
    Blocked<T> a(scratch, n, m, slopes, pairs);
    Prediction<T> now(scratch, n);
    EACH_FILTER {
      a.set(d ? d + b * (n - m) : nullptr, F + b * m * m, share ? share + b : nullptr);
      now.set(a, P + b * n * n, q + b * n, h + b * n, r[b], place(cov + b * n * n, now.own, now.np, n));
      variance[b] = now.v;
      info[b] = !(now.v > 0);
      failed += info[b];
      const bool updates = seen[b] && !info[b];  // a failed filter keeps its prediction; the caller raises for it
      const T root = updates ? 1 / std::sqrt(now.v) : 0, z = updates ? residual[b] * root : 0;
      log_prob[b] = updates ? T(-0.5) * (z * z + std::log(now.v) + log_2pi<T>) : 0;
      for (int j = 0; j < n; ++j) now.c[j] *= root;
      for (int j = 0; j < n; ++j) mean[b * n + j] = m_[b * n + j] + now.c[j] * z;
      if (updates)
        for (int i = 0; i < n; ++i) axpy<T>(now.cov + i * now.np, -now.c[i], now.c, now.np);
      write(cov + b * n * n, now.cov, now.np, n, n);
    }
  }
  return failed;
}

// Cotangents of P, d, F, q, h, residual and r; that of the predicted mean is that of the mean.
template <class T> static int64_t structural_backward(const int64_t* sizes, void** pointers) {
  const int64_t count = sizes[0];
  const int n = sizes[1], m = sizes[2], threads = sizes[3], slopes = sizes[4], s = n - m;
  const T *P = (T*)pointers[0], *d = (T*)pointers[1], *F = (T*)pointers[2], *q = (T*)pointers[3];
  const int64_t* pairs = (int64_t*)pointers[4];
  const T *share = (T*)pointers[5], *h = (T*)pointers[6], *residual = (T*)pointers[7], *r = (T*)pointers[8];
  const uint8_t* seen = (uint8_t*)pointers[9];
  const T *mean_bar = (T*)pointers[10], *cov_bar = (T*)pointers[11], *log_bar = (T*)pointers[12], *variance_bar = (T*)pointers[13];
  T *P_out = (T*)pointers[14], *d_out = (T*)pointers[15], *F_out = (T*)pointers[16], *q_out = (T*)pointers[17];
  T *h_out = (T*)pointers[18], *residual_out = (T*)pointers[19], *r_out = (T*)pointers[20];
  THREADS {
    Scratch<T> scratch(Blocked<T>::numbers(n, m) + Prediction<T>::numbers(n) + (size_t)2 * n * padded<T>(n) + 5 * padded<T>(n) + m * padded<T>(m + 1) + 512);
    Blocked<T> a(scratch, n, m, slopes, pairs);
    Prediction<T> now(scratch, n);
    const int np = now.np;
    T *g = scratch.take(n * np), *y = scratch.take(n * np), *w_bar = scratch.take(np), *c_bar = scratch.take(np);
    T *row = scratch.take(np), *sum = scratch.take(np), *f_bar = scratch.take((m + 1) * a.mp);
    EACH_FILTER {
      a.set(d ? d + b * s : nullptr, F + b * m * m, share ? share + b : nullptr);
      now.set(a, P + b * n * n, q + b * n, h + b * n, r[b], now.own);
      clear(g, n * np);
      if (cov_bar)
        for (int i = 0; i < n; ++i) std::memcpy(g + i * np, cov_bar + (b * n + i) * n, sizeof(T) * n);
      T v_bar = variance_bar ? variance_bar[b] : 0, e_bar = 0;
      clear(c_bar, np);
      if (seen[b]) {
        const T root = 1 / std::sqrt(now.v), z = residual[b] * root, bar = log_bar ? log_bar[b] : 0;
        apply_transposed(n, n, g, np, now.c, w_bar);  // with `row` (g + g') w, times the root below
        apply(n, n, g, np, now.c, row);
        T z_bar = -bar * z, both = 0;
        for (int j = 0; j < n; ++j) {
          const T own = mean_bar ? mean_bar[b * n + j] : 0;
          w_bar[j] = own * z - root * (w_bar[j] + row[j]);
          z_bar += own * now.c[j] * root;
          both += w_bar[j] * now.c[j] * root;
          c_bar[j] = w_bar[j] * root;
        }
        e_bar = z_bar * root;
        v_bar -= T(0.5) * (both + z_bar * z + bar) / now.v;
      }
      for (int j = 0; j < n; ++j) c_bar[j] += v_bar * now.h[j];
      apply_transposed(n, n, now.cov, np, c_bar, row);
      for (int j = 0; j < n; ++j) h_out[b * n + j] = v_bar * now.c[j] + row[j];
      residual_out[b] = e_bar;
      r_out[b] = v_bar;
      for (int i = 0; i < n; ++i) {
        axpy<T>(g + i * np, T(0.5) * c_bar[i], now.h, np);
        axpy<T>(g + i * np, T(0.5) * now.h[i], c_bar, np);
      }
      for (int i = 0; i < n; ++i) q_out[b * n + i] = g[i * np + i];
      // The cotangent of A is (g + g') A P.
      a.left(now.prior, now.x, false);
      if (d_out) {
        a.right(now.prior, y, true);
        clear(sum, np);
        for (int j = 0; j < n; ++j)
          for (int v = 0; v < np; v += width<T>)
            store(sum + v, load(sum + v) + load(g + j * np + v) * load(now.x + j * np + v));
        for (int i = 0; i < s; ++i) {
          Vector<T> both = {};
          for (int v = 0; v < np; v += width<T>) both += load(g + i * np + v) * load(y + i * np + v);
          for (int k = 0; k < width<T>; ++k) sum[i] += both[k];
          d_out[b * s + i] = sum[i];
        }
      }
      if (F_out && m) {
        product<T, false>(m, n, m, 1, g + s * np, np, now.x + s, np, f_bar, a.mp, false);
        product<T, true>(m, n, m, 1, g + s, np, now.x + s, np, f_bar, a.mp, true);
        write(F_out + b * m * m, f_bar, a.mp, m, m);
      }
      if (P_out) {
        a.left(g, y, true);
        a.right(y, now.p, false);
        write(P_out + b * n * n, now.p, np, n, n);
      }
    }
  }
  return 0;
}
