// The filter through a chain of blocks and its adjoint, a group of series after the other; see core/series/blocks.py.
#pragma once
#include "steps.h"

enum Kind { IDENTITY, DIAGONAL, DENSE };  // of transitions and of noises of the state

// A parameter of every block and group, perhaps shared by the blocks or by the groups.
template <class T> struct Parameter {
  T* data;
  int64_t block, group;  // strides
  T* at(int64_t k, int64_t g) const { return data ? data + k * block + g * group : nullptr; }
};

template <class T> struct Chain {
  int64_t groups, blocks;
  int k, n, columns, threads, kind, noise_kind, kp, np;
  bool crossed, keep, keep_moments;
  const T *rows, *mean, *cov;
  const uint8_t* mask;
  Parameter<T> matrix, noise, cross, transition, drift, state_noise;
  int drift_columns;

  Chain(const int64_t* s, void** p) {
    groups = s[0], k = s[1], n = s[2], threads = s[3], blocks = s[4], columns = s[5], kind = s[6], noise_kind = s[7];
    drift_columns = s[8], keep = s[9], keep_moments = s[10];
    rows = (T*)p[0], mask = (uint8_t*)p[1], mean = (T*)p[2], cov = (T*)p[3];
    Parameter<T>* all[] = {&matrix, &noise, &cross, &transition, &drift, &state_noise};
    for (int i = 0; i < 6; ++i) *all[i] = {(T*)p[4 + i], s[11 + 2 * i], s[12 + 2 * i]};
    crossed = cross.data, kp = padded<T>(k), np = padded<T>(n);
  }
  // L^{-1}, w and z of a block, then the moments that its observations saw.
  int64_t tape_size() const { return k * k + k * n + k * columns + (keep_moments ? n * n + n * columns : 0); }
};

// The nonzero entries of a matrix of which most are zero, or the matrix.
template <class T> struct Rows {
  int count, *row, *column;
  T* value;
  bool sparse;
  const T* dense;
  void set(const T* matrix, int k, int n, T* scratch, int np) {
    count = 0, sparse = true, dense = nullptr;
    for (int i = 0; i < k && sparse; ++i)
      for (int j = 0; j < n; ++j)
        if (matrix[i * n + j] != 0) {
          if (4 * count >= k * n) { sparse = false; break; }
          row[count] = i, column[count] = j, value[count++] = matrix[i * n + j];
        }
    if (!sparse) dense = read(scratch, np, matrix, k, n);
  }
  // Y += H X, for k rows of padded numbers, and Y += H'X.
  void times(int k, int n, int np, const T* x, int columns, T* y) const {
    if (!sparse) product<T, false>(k, n, columns, 1, dense, np, x, padded<T>(columns), y, padded<T>(columns), true);
    else for (int e = 0; e < count; ++e) axpy<T>(y + row[e] * padded<T>(columns), value[e], x + column[e] * padded<T>(columns), padded<T>(columns));
  }
  void transposed_times(int k, int n, int np, const T* x, int columns, T* y) const {
    if (!sparse) product<T, true>(n, k, columns, 1, dense, np, x, padded<T>(columns), y, padded<T>(columns), true);
    else for (int e = 0; e < count; ++e) axpy<T>(y + column[e] * padded<T>(columns), value[e], x + row[e] * padded<T>(columns), padded<T>(columns));
  }
  // S += G H' (k x k).
  void right(int k, int n, int np, const T* g, T* ht, int kp, T* s) const {
    if (sparse) {
      for (int e = 0; e < count; ++e)
        for (int i = 0; i < k; ++i) s[i * kp + row[e]] += g[i * np + column[e]] * value[e];
      return;
    }
    transpose(ht, kp, dense, np, k, n);
    product<T, false>(k, n, k, 1, g, np, ht, kp, s, kp, true);
  }
};

// y -= H m for a vector of n numbers.
template <class T> INLINE void subtract(const Rows<T>& h, int k, int n, const T* matrix, const T* m, T* y) {
  if (h.sparse) {
    for (int e = 0; e < h.count; ++e) y[h.row[e]] -= h.value[e] * m[h.column[e]];
    return;
  }
  for (int i = 0; i < k; ++i) {
    T sum = 0;
    for (int j = 0; j < n; ++j) sum += matrix[i * n + j] * m[j];
    y[i] -= sum;
  }
}

// Moments of the state: covariance, and means as rows of a column each.
template <class T> struct Moments { T *cov, *mean; };

// Scratch for products with a transition.
template <class T> struct Mover {
  T *x, *turned, *phi, *vector;
  static size_t numbers(int n, int np) { return (size_t)3 * n * np + np; }
  Mover(Scratch<T>& s, int n, int np) : x(s.take(n * np)), turned(s.take(n * np)), phi(s.take(n * np)), vector(s.take(np)) {}

  // [Phi P Phi' + Q, Phi m + drift] in place, or the adjoint [Phi' P Phi, Phi' m] without noise.
  void move(const Chain<T>& c, int64_t t, int64_t g, Moments<T> to, bool adjoint) const {
    const int n = c.n, np = c.np;
    const T *given = c.transition.at(t, g), *q = c.state_noise.at(t, g), *d = c.drift.at(t, g);
    if (c.kind == DENSE) {
      const T* f = read(phi, np, given, n, n);
      if (!adjoint) {
        if (t == 0 || c.transition.block) transpose(turned, np, f, np, n, n);
        product<T, false>(n, n, n, 1, f, np, to.cov, np, x, np, false);
      } else {
        product<T, true>(n, n, n, 1, f, np, to.cov, np, x, np, false);
      }
      product<T, false>(n, n, n, 1, x, np, adjoint ? f : turned, np, to.cov, np, false);
      for (int i = 0; i < c.columns; ++i) {
        apply_transposed(n, n, adjoint ? f : turned, np, to.mean + i * np, vector);
        std::memcpy(to.mean + i * np, vector, sizeof(T) * np);
      }
    } else if (c.kind == DIAGONAL) {
      for (int j = 0; j < n; ++j) vector[j] = given[j];
      for (int j = n; j < np; ++j) vector[j] = 0;
      for (int i = 0; i < n; ++i)
        for (int v = 0; v < np; v += width<T>)
          store(to.cov + i * np + v, load(to.cov + i * np + v) * load(vector + v) * splat<T>(vector[i]));
      for (int i = 0; i < c.columns; ++i)
        for (int j = 0; j < n; ++j) to.mean[i * np + j] *= vector[j];
    }
    if (adjoint) return;
    if (c.noise_kind == DENSE)
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) to.cov[i * np + j] += q[i * n + j];
    else
      for (int i = 0; i < n; ++i)
        if (q[i] != 0) add_at(to.cov + i * np, i, q[i]);
    if (d)
      for (int i = 0; i < c.columns; ++i)
        for (int j = 0; j < n; ++j) to.mean[i * np + j] += d[j * c.drift_columns + (c.drift_columns > 1 ? i : 0)];
  }
  // Y = X Phi', or X Phi, for k rows.
  void columns(const Chain<T>& c, int64_t t, int64_t g, const T* from, T* to, bool adjoint) const {
    const int n = c.n, np = c.np;
    const T* given = c.transition.at(t, g);
    if (c.kind == DENSE) {
      const T* f = read(phi, np, given, n, n);
      if (!adjoint && (t == 0 || c.transition.block)) transpose(turned, np, f, np, n, n);
      product<T, false>(c.k, n, n, 1, from, np, adjoint ? f : turned, np, to, np, false);
      return;
    }
    std::memcpy(to, from, sizeof(T) * c.k * np);
    for (int i = 0; c.kind == DIAGONAL && i < c.k; ++i)
      for (int j = 0; j < n; ++j) to[i * np + j] *= given[j];
  }
};

template <class T> INLINE void symmetrise(T* p, int n, int np) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j) p[i * np + j] = p[j * np + i] = T(0.5) * (p[i * np + j] + p[j * np + i]);
}
template <class T> INLINE void read_copy(T* to, int ld, const T* from, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[i * ld + j] = from[i * columns + j];
}
template <class T> INLINE void read_means(T* to, int np, const T* from, int n, int columns) {
  for (int i = 0; i < columns; ++i)
    for (int j = 0; j < n; ++j) to[i * np + j] = from[j * columns + i];
}
template <class T> INLINE void write_means(T* to, const T* from, int np, int n, int columns, T sign) {
  for (int i = 0; i < columns; ++i)
    for (int j = 0; j < n; ++j) to[j * columns + i] = sign * from[i * np + j];
}
template <class T> INLINE void add_rows(T* to, const T* from, int ld, int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[i * columns + j] += from[i * ld + j];
}
// Moments less what an observation took off: P - w'w, m + w'z.
template <class T> INLINE void take_off(const Chain<T>& c, const T* w, const T* z, Moments<T> to) {
  product<T, true>(c.n, c.k, c.n, -1, w, c.np, w, c.np, to.cov, c.np, true);
  for (int j = 0; j < c.columns; ++j)
    for (int i = 0; i < c.k; ++i) axpy<T>(to.mean + j * c.np, z[j * c.kp + i], w + i * c.np, c.np);
}

// Log-likelihoods, last moments, failing rows, and a tape for the adjoint.
template <class T> static int64_t chain_forward(const int64_t* sizes, void** p) {
  const Chain<T> c(sizes, p);
  const int k = c.k, n = c.n, kp = c.kp, np = c.np, columns = c.columns, threads = c.threads;
  T *terms = (T*)p[10], *mean_out = (T*)p[11], *cov_out = (T*)p[12], *tape = (T*)p[14];
  int32_t* info = (int32_t*)p[13];
  const int64_t size = c.tape_size(), count = c.groups;
  int64_t failed = 0;
  COUNTING_THREADS {
    Scratch<T> scratch(Mover<T>::numbers(n, np) + (size_t)3 * k * kp + 4 * k * np + n * np + n * kp + columns * (np + kp) + k * n + kp);
    const Mover<T> mover(scratch, n, np);
    T *s = scratch.take(k * kp), *inverse = scratch.take(k * kp), *turned = scratch.take(k * kp), *ht = scratch.take(n * kp);
    T *h_ = scratch.take(k * np), *seen_gain = scratch.take(k * np), *gain = scratch.take(k * np), *w = scratch.take(k * np);
    T *r = scratch.take(kp), *z = scratch.take(columns * kp), *values = scratch.take(k * n);
    const Moments<T> now{scratch.take(n * np), scratch.take(columns * np)};
    int* index = (int*)std::calloc(2 * k * n, sizeof(int));
    Rows<T> h{0, index, index + k * n, values, false, nullptr};
    EACH_FILTER {
      read_copy(now.cov, np, c.cov + b * n * n, n, n);
      read_means(now.mean, np, c.mean + b * n * columns, n, columns);
      for (int64_t t = 0; t < c.blocks; ++t) {
        const int64_t place = t * c.groups + b;
        const uint8_t* seen = c.mask ? c.mask + place * k : nullptr;
        const T *e = c.noise.at(t, b), *f = c.cross.at(t, b), *matrix = c.matrix.at(t, b);
        T* kept = tape ? tape + (b * c.blocks + t) * size : nullptr;
        if (t == 0 || c.matrix.block) h.set(matrix, k, n, h_, np);
        if (!c.crossed) mover.move(c, t, b, now, false);
        if (kept && c.keep_moments) {
          write(kept + k * (k + n + columns), now.cov, np, n, n);
          for (int i = 0; i < columns; ++i) std::memcpy(kept + k * (k + n + columns) + n * (n + i), now.mean + i * np, sizeof(T) * n);
        }
        clear(gain, k * np);
        h.times(k, n, np, now.cov, n, gain);
        read_copy(s, kp, e, k, k);
        h.right(k, n, np, gain, ht, kp, s);
        for (int j = 0; j < columns; ++j) {
          for (int i = 0; i < k; ++i) r[i] = c.rows[(place * k + i) * columns + j];
          subtract(h, k, n, matrix, now.mean + j * np, r);
          for (int i = 0; seen && i < k; ++i) r[i] = seen[i] ? r[i] : 0;
          std::memcpy(z + j * kp, r, sizeof(T) * kp);
        }
        if (c.crossed) {
          mover.columns(c, t, b, gain, seen_gain, false);
          std::swap(gain, seen_gain);
          for (int i = 0; i < k; ++i)
            for (int j = 0; j < n; ++j) gain[i * np + j] += f[i * n + j];
          mover.move(c, t, b, now, false);
        }
        for (int i = 0; seen && i < k; ++i) {
          if (seen[i]) continue;
          clear(gain + i * np, np);
          for (int j = 0; j < k; ++j) s[i * kp + j] = s[j * kp + i] = i == j;
        }
        info[place] = factorise(k, s, inverse, kp);
        if (info[place]) {  // nothing after it means anything
          ++failed;
          for (int64_t later = t; later < c.blocks; ++later) {
            const int64_t first = (later * c.groups + b) * k * columns;
            for (int i = 0; i < k * columns; ++i) terms[first + i] = NAN;
            if (later > t) info[later * c.groups + b] = 0;
          }
          break;
        }
        product<T, false>(k, k, n, 1, inverse, kp, gain, np, w, np, false);
        for (int j = 0; j < columns; ++j) {
          std::memcpy(r, z + j * kp, sizeof(T) * kp);
          apply_lower(k, inverse, turned, kp, r, z + j * kp);
          for (int i = 0; i < k; ++i)
            terms[(place * k + i) * columns + j] = T(-0.5) * (z[j * kp + i] * z[j * kp + i] + (!seen || seen[i] ? log_2pi<T> : 0)) - std::log(s[i * kp + i]);
        }
        take_off(c, w, z, now);
        if (t % 8 == 7 || t == c.blocks - 1) symmetrise(now.cov, n, np);
        if (!kept) continue;
        write(kept, inverse, kp, k, k);
        write(kept + k * k, w, np, k, n);
        for (int j = 0; j < columns; ++j) std::memcpy(kept + k * (k + n + j), z + j * kp, sizeof(T) * k);
      }
      for (int i = 0; i < n; ++i) std::memcpy(cov_out + (b * n + i) * n, now.cov + i * np, sizeof(T) * n);
      write_means(mean_out + b * n * columns, now.mean, np, n, columns, T(1));
    }
    std::free(index);
  }
  return failed;
}

// Cotangents of rows, mean and cov, and of each parameter that is wanted, one for every group.
template <class T> static int64_t chain_backward(const int64_t* sizes, void** p) {
  const Chain<T> c(sizes, p);
  const int k = c.k, n = c.n, kp = c.kp, np = c.np, columns = c.columns, threads = c.threads;
  const T *tape = (T*)p[10], *weights = (T*)p[11], *mean_bar = (T*)p[12], *cov_bar = (T*)p[13];
  T *rows_out = (T*)p[14], *mean_out = (T*)p[15], *cov_out = (T*)p[16];
  Parameter<T> out[6];
  for (int i = 0; i < 6; ++i) out[i] = {(T*)p[17 + i], sizes[23 + i], 0};
  const int widths[] = {k * n, k * k, k * n, n * (c.kind == DENSE ? n : 1), n * c.drift_columns, n * (c.noise_kind == DENSE ? n : 1)};
  const int64_t size = c.tape_size(), count = c.groups;
  THREADS {
    Scratch<T> scratch(Mover<T>::numbers(n, np) + (size_t)4 * k * kp + 7 * k * np + 2 * n * np + (n > k ? n : k) * np + n * kp + 2 * columns * (kp + np) + k * n + kp);
    const Mover<T> mover(scratch, n, np);
    T *inverse = scratch.take(k * kp), *K = scratch.take(k * kp), *work = scratch.take(k * kp), *s_bar = scratch.take(k * kp);
    T *wt = scratch.take(n * kp), *h_ = scratch.take(k * np), *w = scratch.take(k * np), *w_bar = scratch.take(k * np), *g = scratch.take(k * np);
    T *gp = scratch.take(k * np), *through = scratch.take(k * np), *y = scratch.take(k * np), *z = scratch.take(columns * kp), *r = scratch.take(columns * kp);
    T *z_bar = scratch.take(kp), *values = scratch.take(k * n), *f_bar = scratch.take((n > k ? n : k) * np);
    const Moments<T> bar{scratch.take(n * np), scratch.take(columns * np)}, source{scratch.take(n * np), scratch.take(columns * np)};
    int* index = (int*)std::calloc(2 * k * n, sizeof(int));
    Rows<T> h{0, index, index + k * n, values, false, nullptr};
    EACH_FILTER {
      auto into = [&](int which, int64_t t) -> T* {
        return out[which].data ? out[which].data + (t * out[which].block * c.groups + b) * widths[which] : nullptr;
      };
      for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) bar.cov[i * np + j] = T(0.5) * (cov_bar[(b * n + i) * n + j] + cov_bar[(b * n + j) * n + i]);
      read_means(bar.mean, np, mean_bar + b * n * columns, n, columns);
      for (int64_t t = c.blocks - 1; t >= 0; --t) {
        const int64_t place = t * c.groups + b;
        const uint8_t* seen = c.mask ? c.mask + place * k : nullptr;
        const T *kept = tape + (b * c.blocks + t) * size, *saved = kept + k * (k + n + columns);
        if (t == c.blocks - 1 || c.matrix.block) h.set(c.matrix.at(t, b), k, n, h_, np);
        read_copy(inverse, kp, kept, k, k);
        read_copy(w, np, kept + k * k, k, n);
        for (int j = 0; j < columns; ++j)
          for (int i = 0; i < k; ++i) z[j * kp + i] = kept[k * (k + n + j) + i];
        if (c.keep_moments) {
          read_copy(source.cov, np, saved, n, n);
          for (int i = 0; i < columns; ++i)
            for (int j = 0; j < n; ++j) source.mean[i * np + j] = saved[n * (n + i) + j];
        }
        // The update: cotangents of gain, residuals and covariance of the observations.
        clear(K, k * kp);
        product<T, false>(k, n, n, -2, w, np, bar.cov, np, w_bar, np, false);
        for (int j = 0; j < columns; ++j)
          for (int i = 0; i < k; ++i) axpy<T>(w_bar + i * np, z[j * kp + i], bar.mean + j * np, np);
        transpose(wt, kp, w, np, k, n);
        product<T, false>(k, n, k, -1, w_bar, np, wt, kp, K, kp, true);
        for (int j = 0; j < columns; ++j) {
          apply_transposed(n, k, wt, kp, bar.mean + j * np, z_bar);
          for (int i = 0; i < k; ++i) {
            const T weight = weights[(place * k + i) * columns + j];
            K[i * kp + i] -= weight;
            z_bar[i] -= weight * z[j * kp + i];
          }
          for (int i = 0; i < k; ++i) axpy<T>(K + i * kp, -z_bar[i], z + j * kp, kp);
          apply_transposed(k, k, inverse, kp, z_bar, r + j * kp);
        }
        product<T, true>(k, k, n, 1, inverse, kp, w_bar, np, g, np, false);
        factor_cotangent(k, K, inverse, work, s_bar, kp);
        for (int i = 0; seen && i < k; ++i) {
          if (seen[i]) continue;
          clear(g + i * np, np);
          for (int j = 0; j < columns; ++j) r[j * kp + i] = 0;
          for (int j = 0; j < k; ++j) s_bar[i * kp + j] = s_bar[j * kp + i] = 0;
        }
        if (rows_out)
          for (int j = 0; j < columns; ++j)
            for (int i = 0; i < k; ++i) rows_out[(place * k + i) * columns + j] = r[j * kp + i];
        if (T* to = into(1, t)) add_rows(to, s_bar, kp, k, k);
        if (T* to = into(2, t)) add_rows(to, g, np, k, n);
        // What goes through the matrix: of gain H P (or H P Phi') and of its product with H'.
        clear(through, k * np);
        if (h.sparse) {
          for (int e = 0; e < h.count; ++e)
            for (int i = 0; i < k; ++i) through[i * np + h.column[e]] += s_bar[i * kp + h.row[e]] * h.value[e];
        } else {
          product<T, false>(k, k, n, 1, s_bar, kp, h.dense, np, through, np, false);
        }
        T *phi_to = into(3, t), *drift_to = into(4, t), *noise_to = into(5, t), *matrix_to = into(0, t);
        const bool crossed = c.crossed;
        auto through_matrix = [&](const T* gain_bar) {
          for (int i = 0; i < k; ++i)
            for (int v = 0; v < np; v += width<T>) store(y + i * np + v, load(gain_bar + i * np + v) + load(through + i * np + v));
          if (matrix_to) {
            T* total = f_bar;  // (gain_bar + 2 through) P - r m'
            for (int i = 0; i < k; ++i)
              for (int v = 0; v < np; v += width<T>) store(w_bar + i * np + v, load(y + i * np + v) + load(through + i * np + v));
            product<T, false>(k, n, n, 1, w_bar, np, source.cov, np, total, np, false);
            for (int j = 0; j < columns; ++j)
              for (int i = 0; i < k; ++i) axpy<T>(total + i * np, -r[j * kp + i], source.mean + j * np, np);
            add_rows(matrix_to, total, np, k, n);
          }
        };
        auto back_through_matrix = [&]() {  // adds sym(H'Y) and -H'r to the cotangents of the moments
          if (h.sparse) {
            for (int e = 0; e < h.count; ++e) {
              const T half = T(0.5) * h.value[e];
              const T* from = y + h.row[e] * np;
              axpy<T>(bar.cov + h.column[e] * np, half, from, np);
              for (int j = 0; j < n; ++j) add_at(bar.cov + j * np, h.column[e], half * from[j]);
              for (int j = 0; j < columns; ++j) bar.mean[j * np + h.column[e]] -= h.value[e] * r[j * kp + h.row[e]];
            }
            return;
          }
          product<T, true>(n, k, n, T(0.5), h.dense, np, y, np, bar.cov, np, true);
          product<T, true>(n, k, n, T(0.5), y, np, h.dense, np, bar.cov, np, true);
          for (int j = 0; j < columns; ++j)
            for (int i = 0; i < k; ++i) axpy<T>(bar.mean + j * np, -r[j * kp + i], h.dense + i * np, np);
        };
        auto through_transition = [&](Moments<T> before, bool gain) {
          if (drift_to)
            for (int j = 0; j < columns; ++j)
              for (int i = 0; i < n; ++i) drift_to[i * c.drift_columns + (c.drift_columns > 1 ? j : 0)] += bar.mean[j * np + i];
          if (noise_to && c.noise_kind == DENSE) add_rows(noise_to, bar.cov, np, n, n);
          if (noise_to && c.noise_kind != DENSE)
            for (int i = 0; i < n; ++i) noise_to[i] += bar.cov[i * np + i];
          if (!phi_to) return;
          // 2 P_bar Phi P + m_bar m', and of the gain g'(H P)
          T* left = mover.x;
          const T* given = c.transition.at(t, b);
          if (c.kind == DENSE) {
            const T* phi = read(mover.phi, np, given, n, n);
            product<T, false>(n, n, n, 2, bar.cov, np, phi, np, left, np, false);
          } else {
            for (int i = 0; i < n; ++i)
              for (int j = 0; j < n; ++j) left[i * np + j] = 2 * bar.cov[i * np + j] * given[j];
          }
          if (gain) {  // + g' H
            if (h.sparse) {
              for (int e = 0; e < h.count; ++e)
                for (int i = 0; i < n; ++i) left[i * np + h.column[e]] += g[h.row[e] * np + i] * h.value[e];
            } else {
              product<T, true>(n, k, n, 1, g, np, h.dense, np, left, np, true);
            }
          }
          if (c.kind == DENSE) {
            product<T, false>(n, n, n, 1, left, np, before.cov, np, f_bar, np, false);
            for (int j = 0; j < columns; ++j)
              for (int i = 0; i < n; ++i) axpy<T>(f_bar + i * np, bar.mean[j * np + i], before.mean + j * np, np);
            add_rows(phi_to, f_bar, np, n, n);
          } else {
            for (int i = 0; i < n; ++i) {
              T sum = 0;
              for (int j = 0; j < n; ++j) sum += left[i * np + j] * before.cov[i * np + j];
              for (int j = 0; j < columns; ++j) sum += bar.mean[j * np + i] * before.mean[j * np + i];
              phi_to[i] += sum;
            }
          }
        };
        if (!crossed) {
          through_matrix(g);
          back_through_matrix();
          if (phi_to) {
            if (t > 0) {
              const T *last = kept - size, *old = last + k * (k + n + columns);
              read_copy(source.cov, np, old, n, n);
              for (int i = 0; i < columns; ++i)
                for (int j = 0; j < n; ++j) source.mean[i * np + j] = old[n * (n + i) + j];
              read_copy(w, np, last + k * k, k, n);
              for (int j = 0; j < columns; ++j)
                for (int i = 0; i < k; ++i) z[j * kp + i] = last[k * (k + n + j) + i];
              take_off(c, w, z, source);
            } else {
              read_copy(source.cov, np, c.cov + b * n * n, n, n);
              read_means(source.mean, np, c.mean + b * n * columns, n, columns);
            }
          }
          through_transition(source, false);
          mover.move(c, t, b, bar, true);
        } else {
          through_transition(source, true);
          mover.move(c, t, b, bar, true);
          mover.columns(c, t, b, g, gp, true);
          through_matrix(gp);
          back_through_matrix();
        }
      }
      for (int i = 0; i < n; ++i) std::memcpy(cov_out + (b * n + i) * n, bar.cov + i * np, sizeof(T) * n);
      write_means(mean_out + b * n * columns, bar.mean, np, n, columns, T(1));
    }
    std::free(index);
  }
  return 0;
}
