// A belief conditioned on an observation, for many filters, and the adjoint.
#pragma once
#include "small.h"

// Scratch of a filter that is conditioned on b: the factor U'U of the covariance of b, L^{-1} for L = U',
// w = L^{-1} Cov(b, a), z = L^{-1} (b - E b), and what cotangents need.
template <class T> struct Update {
  const int k, n, kp, np;
  T *upper, *inverse, *transposed, *cross, *w, *z, *cov, *row, *wt, *sum, *w_bar, *g, *K, *work, *s_bar, *z_bar, *r;
  static size_t numbers(int k, int n) {
    const int kp = padded<T>(k), np = padded<T>(n);
    return (size_t)6 * k * kp + 4 * k * np + n * (2 * np + kp) + np + 3 * kp;
  }
  Update(Scratch<T>& scratch, int k, int n) : k(k), n(n), kp(padded<T>(k)), np(padded<T>(n)) {
    for (T** x : {&upper, &inverse, &transposed, &K, &work, &s_bar}) *x = scratch.take(k * kp);
    for (T** x : {&cross, &w, &w_bar, &g}) *x = scratch.take(k * np);
    for (T** x : {&cov, &sum}) *x = scratch.take(n * np);
    for (T** x : {&z, &z_bar, &r}) *x = scratch.take(kp);
    wt = scratch.take(n * kp), row = scratch.take(np);
  }
  // What is missing has no covariance with anything, and variance 1.
  bool factor(const T* among, const T* cross_in, const uint8_t* seen) {
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < k; ++j) upper[i * kp + j] = among[i * k + j];
    const T* rows = read(cross, np, cross_in, k, n);
    if (seen) {
      if (rows != cross) std::memcpy(cross, rows, sizeof(T) * k * np), rows = cross;
      for (int i = 0; i < k; ++i) {
        if (seen[i]) continue;
        clear(cross + i * np, np);
        for (int j = 0; j < k; ++j) upper[i * kp + j] = upper[j * kp + i] = i == j;
      }
    }
    if (factorise(k, upper, inverse, kp)) return false;
    product<T, false>(k, k, n, 1, inverse, kp, rows, np, w, np, false);
    return true;
  }
  // From r, the residual.
  void whiten() { apply_lower(k, inverse, transposed, kp, r, z); }
  // m + w'z and P - w'w.
  void posterior(const T* m, const T* P, T* mean_out, T* cov_out) {
    T* out = place(cov_out, cov, np, n);
    if (out == cov) read(cov, np, P, n, n);
    else std::memcpy(out, P, sizeof(T) * n * n);
    product<T, true>(n, k, n, -1, w, np, w, np, out, np, true);
    write(cov_out, out, np, n, n);
    apply_transposed(k, n, w, np, z, row);
    for (int j = 0; j < n; ++j) mean_out[j] = m[j] + row[j];
  }
  // From the cotangents of mean and covariance: those of cross (g) and residual (r), and K, from which that of the
  // covariance of b follows. Begins with what z_bar and K already hold.
  void cotangents(const T* mean_bar, const T* cov_bar) {
    clear(w_bar, k * np);
    if (cov_bar) {
      for (int i = 0; i < n; ++i)
        // P - w'w depends on w twice: P_bar + P_bar'.
        for (int j = 0; j < n; ++j) sum[i * np + j] = cov_bar[i * n + j] + cov_bar[j * n + i];
      product<T, false>(k, n, n, -1, w, np, sum, np, w_bar, np, false);
    }
    transpose(wt, kp, w, np, k, n);
    if (mean_bar) {
      for (int j = 0; j < n; ++j) row[j] = mean_bar[j];
      for (int i = 0; i < k; ++i) axpy<T>(w_bar + i * np, z[i], row, np);
      apply_transposed(n, k, wt, kp, row, r);
      for (int i = 0; i < k; ++i) z_bar[i] += r[i];
    }
    product<T, false>(k, n, k, -1, w_bar, np, wt, kp, K, kp, true);
    for (int i = 0; i < k; ++i) axpy<T>(K + i * kp, -z_bar[i], z, kp);
    product<T, true>(k, k, n, 1, inverse, kp, w_bar, np, g, np, false);
    apply_transposed(k, k, inverse, kp, z_bar, r);
  }
  void factor_bar() { factor_cotangent(k, K, inverse, work, s_bar, kp); }
};

// Conditioning on b of which the residual is given. Returns how many failed.
template <class T> static int64_t condition_forward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3];
  const T *m = (T*)p[0], *P = (T*)p[1], *residual = (T*)p[2], *cross = (T*)p[3], *among = (T*)p[4];
  const uint8_t* seen = (uint8_t*)p[5];
  T *mean = (T*)p[6], *cov = (T*)p[7], *log_prob = (T*)p[8];
  int32_t* info = (int32_t*)p[9];
  int64_t failed = 0;
  COUNTING_THREADS {
    Scratch<T> scratch(Update<T>::numbers(k, n));
    Update<T> f(scratch, k, n);
    EACH_FILTER {
      const uint8_t* mask = seen ? seen + b * k : nullptr;
      info[b] = !f.factor(among + b * k * k, cross + b * k * n, mask);
      failed += info[b];
      if (info[b]) continue;
      int observed = 0;
      T square = 0;
      for (int i = 0; i < k; ++i) {
        const bool there = !mask || mask[i];
        observed += there;
        f.r[i] = there ? residual[b * k + i] : 0;
      }
      f.whiten();
      for (int i = 0; i < k; ++i) square += f.z[i] * f.z[i];
      log_prob[b] = T(-0.5) * (square + observed * log_2pi<T>) - sum_of_logs(k, f.upper, f.kp + 1);
      f.posterior(m + b * n, P + b * n * n, mean + b * n, cov + b * n * n);
    }
  }
  return failed;
}

template <class T> static int64_t condition_backward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3];
  const T *residual = (T*)p[0], *cross = (T*)p[1], *among = (T*)p[2];
  const uint8_t* seen = (uint8_t*)p[3];
  const T *mean_bar = (T*)p[4], *cov_bar = (T*)p[5], *log_bar = (T*)p[6];
  T *residual_bar = (T*)p[7], *cross_bar = (T*)p[8], *among_bar = (T*)p[9];
  THREADS {
    Scratch<T> scratch(Update<T>::numbers(k, n));
    Update<T> f(scratch, k, n);
    EACH_FILTER {
      const uint8_t* mask = seen ? seen + b * k : nullptr;
      const T bar = log_bar ? log_bar[b] : 0;
      f.factor(among + b * k * k, cross + b * k * n, mask);  // factorised anew, so that nothing but the inputs is kept
      for (int i = 0; i < k; ++i) f.r[i] = !mask || mask[i] ? residual[b * k + i] : 0;
      f.whiten();
      clear(f.K, k * f.kp);
      for (int i = 0; i < k; ++i) {
        f.K[i * f.kp + i] = -bar;  // L'L_bar for the -log|L| of the density
        f.z_bar[i] = -bar * f.z[i];
      }
      f.cotangents(mean_bar ? mean_bar + b * n : nullptr, cov_bar ? cov_bar + b * n * n : nullptr);
      f.factor_bar();
      // What is missing was replaced by constants.
      for (int i = 0; mask && i < k; ++i) {
        if (mask[i]) continue;
        f.r[i] = 0;
        clear(f.g + i * f.np, f.np);
        for (int j = 0; j < k; ++j) f.s_bar[i * f.kp + j] = f.s_bar[j * f.kp + i] = 0;
      }
      for (int i = 0; i < k; ++i) residual_bar[b * k + i] = f.r[i];
      write(cross_bar + b * k * n, f.g, f.np, k, n);
      write(among_bar + b * k * k, f.s_bar, f.kp, k, k);
    }
  }
  return 0;
}
