// One step of many filters: a belief pushed through a matrix, conditioned on an observation, or on a sampled one.
#pragma once
#include "small.h"

#define EACH_FILTER _Pragma("omp for schedule(static)") for (int64_t b = 0; b < count; ++b)
#define THREADS _Pragma("omp parallel num_threads(threads) if (threads > 1)")
#define COUNTING_THREADS _Pragma("omp parallel num_threads(threads) if (threads > 1) reduction(+ : failed)")

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
        if (C_bar) product<T, false>(k, k, n, 2, s, kp, c, np, y, np, true);
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
  // Of the cotangents of mean and covariance: those of cross (g) and residual (r), and K, from which that of the
  // covariance of b follows. Begins with what z_bar and K already hold.
  void cotangents(const T* mean_bar, const T* cov_bar) {
    clear(w_bar, k * np);
    if (cov_bar) {
      for (int i = 0; i < n; ++i)
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
      f.factor(among + b * k * k, cross + b * k * n, mask);
      for (int i = 0; i < k; ++i) f.r[i] = !mask || mask[i] ? residual[b * k + i] : 0;
      f.whiten();
      clear(f.K, k * f.kp);
      for (int i = 0; i < k; ++i) {
        f.K[i * f.kp + i] = -bar;
        f.z_bar[i] = -bar * f.z[i];
      }
      f.cotangents(mean_bar ? mean_bar + b * n : nullptr, cov_bar ? cov_bar + b * n * n : nullptr);
      f.factor_bar();
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
