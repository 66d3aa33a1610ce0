// A sampled observation and the belief conditioned on it, for many filters, and the adjoint.
#pragma once
#include "condition.h"

// Proposing from p(b) q(b): what forward and backward have in common, for M = S + D = L L'.
template <class T> struct Proposal {
  const int k, kp;
  T *total, *inverse, *transposed, *precision, *noisy, *gap, *white, *u, *v, *a, *shift, *rows;
  static size_t numbers(int k) { return (size_t)5 * k * padded<T>(k) + 7 * padded<T>(k); }
  Proposal(Scratch<T>& scratch, int k) : k(k), kp(padded<T>(k)) {
    for (T** x : {&total, &inverse, &transposed, &precision, &rows}) *x = scratch.take(k * kp);
    for (T** x : {&noisy, &gap, &white, &u, &v, &a, &shift}) *x = scratch.take(kp);
  }
  // to = M^{-1} x; returns x'M^{-1}x. By L^{-1} and then L^{-T}: the product of the two would round so much that in
  // float32 the gradients of S and of Cov(b, a), which nearly cancel in that of a matrix C, leave noise.
  T solve(const T* x, T* to) {
    T square = 0;
    apply_lower(k, inverse, transposed, kp, x, white);
    for (int i = 0; i < k; ++i) square += white[i] * white[i];
    apply_transposed(k, k, inverse, kp, white, to);
    return square;
  }
  // In `a` a sample of p(b), then u = M^{-1} (c + sqrt(D) e - a) and v = M^{-1} (c - mu).
  bool factor(const T* S, const T* mu, const T* c, const T* D, const T* e, T& square) {
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j < k; ++j) total[i * kp + j] = rows[i * kp + j] = S[i * k + j];
      total[i * kp + i] += D[i];
      noisy[i] = c[i] + std::sqrt(D[i]) * e[i] - a[i];
      gap[i] = c[i] - mu[i];
    }
    if (factorise(k, total, inverse, kp)) return false;
    solve(noisy, u);
    square = solve(gap, v);
    apply_transposed(k, k, rows, kp, u, shift);
    return true;
  }
};

// A sample of p(b) q(b) by Matheron's rule and the state given it, without q of p(b); see `propose`.
template <class T> static int64_t propose_forward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3];
  const T *m = (T*)p[0], *P = (T*)p[1], *mu = (T*)p[2], *cross = (T*)p[3], *among = (T*)p[4], *e1 = (T*)p[5];
  const T *c = (T*)p[6], *D = (T*)p[7], *e2 = (T*)p[8];
  const uint8_t* used = (uint8_t*)p[9];
  T *sample = (T*)p[10], *log_ratio = (T*)p[11], *mean = (T*)p[12], *cov = (T*)p[13];
  int32_t* info = (int32_t*)p[14];
  int64_t failed = 0;
  COUNTING_THREADS {
    Scratch<T> scratch(Update<T>::numbers(k, n) + Proposal<T>::numbers(k));
    Update<T> f(scratch, k, n);
    Proposal<T> q(scratch, k);
    EACH_FILTER {
      info[b] = !f.factor(among + b * k * k, cross + b * k * n, nullptr);
      if (info[b]) { ++failed; continue; }
      apply_transposed(k, k, f.upper, f.kp, e1 + b * k, q.a);
      for (int i = 0; i < k; ++i) q.a[i] += mu[b * k + i];
      log_ratio[b] = 0;
      if (c && (!used || used[b])) {
        const T *cb = c + b * k, *Db = D + b * k;
        T square, log_q = 0;
        // 2: the proposal's covariance, not the predictive one, cannot be factorised.
        info[b] = q.factor(among + b * k * k, mu + b * k, cb, Db, e2 + b * k, square) ? 0 : 2;
        if (info[b]) { ++failed; continue; }
        for (int i = 0; i < k; ++i) {
          q.a[i] += q.shift[i];
          log_q += (q.a[i] - cb[i]) * (q.a[i] - cb[i]) / Db[i];
        }
        log_q += sum_of_logs(k, Db, 1);
        log_ratio[b] = T(0.5) * (log_q - square) - sum_of_logs(k, q.total, q.kp + 1);
      }
      for (int i = 0; i < k; ++i) {
        sample[b * k + i] = q.a[i];
        f.r[i] = q.a[i] - mu[b * k + i];
      }
      f.whiten();
      f.posterior(m + b * n, P + b * n * n, mean + b * n, cov + b * n * n);
    }
  }
  return failed;
}

template <class T> static int64_t propose_backward(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0];
  const int k = sizes[1], n = sizes[2], threads = sizes[3];
  const T *mu = (T*)p[0], *cross = (T*)p[1], *among = (T*)p[2], *e1 = (T*)p[3], *c = (T*)p[4], *D = (T*)p[5], *e2 = (T*)p[6];
  const uint8_t* used = (uint8_t*)p[7];
  const T *sample = (T*)p[8], *sample_bar = (T*)p[9], *ratio_bar = (T*)p[10], *mean_bar = (T*)p[11], *cov_bar = (T*)p[12];
  T *mu_bar = (T*)p[13], *cross_bar = (T*)p[14], *among_bar = (T*)p[15], *c_bar = (T*)p[16], *D_bar = (T*)p[17];
  THREADS {
    Scratch<T> scratch(Update<T>::numbers(k, n) + Proposal<T>::numbers(k) + 3 * padded<T>(k));
    Update<T> f(scratch, k, n);
    Proposal<T> q(scratch, k);
    const int kp = f.kp;
    T *h = scratch.take(kp), *x = scratch.take(kp), *noisy_bar = scratch.take(kp);
    EACH_FILTER {
      const T* S = among + b * k * k;
      T* S_bar = among_bar + b * k * k;
      f.factor(S, cross + b * k * n, nullptr);
      apply_transposed(k, k, f.upper, kp, e1 + b * k, q.a);
      for (int i = 0; i < k; ++i) {
        q.a[i] += mu[b * k + i];
        f.r[i] = sample[b * k + i] - mu[b * k + i];
        f.z_bar[i] = 0;
      }
      f.whiten();
      clear(f.K, k * kp);
      f.cotangents(mean_bar ? mean_bar + b * n : nullptr, cov_bar ? cov_bar + b * n * n : nullptr);
      write(cross_bar + b * k * n, f.g, f.np, k, n);
      for (int i = 0; i < k; ++i) {
        h[i] = f.r[i] + (sample_bar ? sample_bar[b * k + i] : 0);
        mu_bar[b * k + i] = -f.r[i];
        if (c_bar) c_bar[b * k + i] = 0;
        if (D_bar) D_bar[b * k + i] = 0;
      }
      clear(S_bar, k * k);
      if (c && (!used || used[b])) {
        const T *cb = c + b * k, *Db = D + b * k, bar = ratio_bar ? ratio_bar[b] : 0;
        T square;
        q.factor(S, mu + b * k, cb, Db, e2 + b * k, square);
        product<T, true>(k, k, k, 1, q.inverse, kp, q.inverse, kp, q.precision, kp, false);
        for (int i = 0; i < k; ++i) {
          const T gap = (sample[b * k + i] - cb[i]) / Db[i];
          h[i] += bar * gap;
          if (c_bar) c_bar[b * k + i] -= bar * gap;
          if (D_bar) D_bar[b * k + i] -= bar * T(0.5) * (gap * gap - 1 / Db[i]);
        }
        apply_transposed(k, k, q.rows, kp, h, x);
        q.solve(x, noisy_bar);
        for (int i = 0; i < k; ++i) {
          for (int j = 0; j < k; ++j)
            S_bar[i * k + j] = T(0.5) * (bar * (q.v[i] * q.v[j] - q.precision[i * kp + j]) - noisy_bar[i] * q.u[j] - q.u[i] * noisy_bar[j]);
          if (D_bar) D_bar[b * k + i] += S_bar[i * k + i] + noisy_bar[i] * e2[b * k + i] / (2 * std::sqrt(Db[i]));
          if (c_bar) c_bar[b * k + i] += noisy_bar[i] - bar * q.v[i];
          mu_bar[b * k + i] += bar * q.v[i];
        }
        for (int i = 0; i < k; ++i)
          for (int j = 0; j < k; ++j) S_bar[i * k + j] += T(0.5) * (h[i] * q.u[j] + h[j] * q.u[i]);
        for (int i = 0; i < k; ++i) h[i] -= noisy_bar[i];
      }
      // What is left in h is the cotangent of mu + L e1; K gets (L'h) e1', where L'h = U h.
      for (int i = 0; i < k; ++i) {
        T sum = 0;
        for (int j = i; j < k; ++j) sum += f.upper[i * kp + j] * h[j];
        mu_bar[b * k + i] += h[i];
        for (int j = 0; j <= i; ++j) f.K[i * kp + j] += sum * e1[b * k + j];
      }
      f.factor_bar();
      for (int i = 0; i < k; ++i)
        for (int j = 0; j < k; ++j) S_bar[i * k + j] += f.s_bar[i * kp + j];
    }
  }
  return 0;
}
