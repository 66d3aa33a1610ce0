// Moments of a chain of blocks, moved by transitions and read by sparse or dense matrices.
#pragma once
#include "small.h"

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
          // Entry by entry pays for matrices that are mostly zeros, such as those of components.
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
        if (t == 0 || c.transition.block) transpose(turned, np, f, np, n, n);  // shared by all blocks, it is turned once
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
