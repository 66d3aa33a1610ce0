// Whole series of structural filters with one observed number a step, and the adjoint; see core/structural.py. A step
// costs O(n^2) for n states: no product of matrices.
#pragma once
#include "chain.h"

constexpr int64_t MOST_KEPT = 1 << 18;  // numbers of gains that a thread keeps

enum Part { LEVEL, TREND, SEASON, HARMONICS };

// A component: where its states, noises, dampings (-1: none), season and basis begin.
struct Component { int64_t kind, first, size, source, season, damped, basis; };

template <class T> struct Innovation {
  int64_t count, steps;
  int n, parts, threads, damped, sources, np;
  const Component* table;
  const T* values;
  Parameter<uint8_t> seen, active;
  Parameter<int64_t> index;
  Parameter<T> basis, noise, variance, damping, mean, cov;

  Innovation(const int64_t* s, void** p) {
    count = s[0], steps = s[1], n = s[2], threads = s[3], parts = s[4], damped = s[5], np = padded<T>(n);
    table = (Component*)p[0], values = (T*)p[1];
    int i = 2;
    auto take = [&](auto& to) { to = {(decltype(to.data))p[i], s[2 * i + 2], s[2 * i + 3]}, ++i; };
    take(seen), take(active), take(index), take(basis), take(noise), take(variance), take(damping), take(mean), take(cov);
    sources = s[24];
  }
  bool observes(int64_t t, int64_t b) const { return !seen.data || *seen.at(t, b); }
  bool moves(int64_t t, int64_t b) const { return !active.data || *active.at(t, b); }
  // Whether all that a covariance depends on is as in the series before.
  bool is_like(int64_t b) const {
    return same(noise, b) && same(variance, b) && same(damping, b) && same(cov, b) && same(index, b) && same(basis, b) &&
           same(seen, b) && same(active, b);
  }
  template <class X> bool same(const Parameter<X>& x, int64_t b) const {
    for (int64_t t = 0; x.data && x.group && t < (x.block ? steps : 1); ++t)
      if (std::memcmp(x.at(t, b), x.at(t, b - 1), sizeof(X) * x.group)) return false;
    return true;
  }
  // Of a step: w, a column of A P for each damped state, then 1 / sqrt(v), z, and the mean before of each damped state.
  int64_t tape_size() const { return (1 + damped) * n + 2 + damped; }
};

// What a step emits, and which noises move which states.
template <class T> struct Entries {
  int emitted = 0, moved = 0, *place, *move, *source;
  T *coefficient, *row;
  static size_t numbers(int n) { return n + padded<T>(n) + 64; }
  Entries(Scratch<T>& scratch, int* memory, int n)
      : place(memory), move(memory + n), source(memory + 2 * n), coefficient(scratch.take(n)), row(scratch.take(padded<T>(n))) {}
  // False if a position is none of its season's.
  bool set(const Innovation<T>& c, int64_t t, int64_t b) {
    for (int e = 0; e < emitted; ++e) row[place[e]] = 0;
    emitted = moved = 0;
    for (int i = 0; i < c.parts; ++i) {
      const Component& part = c.table[i];
      const int first = part.first, own = part.source;
      if (part.kind == HARMONICS) {
        const T* basis = c.basis.at(t, b) + part.basis;
        for (int j = 0; j < part.size; ++j) emit(first + j, basis[j]), shift(first + j, own);
        continue;
      }
      const int64_t position = part.kind == SEASON ? c.index.at(t, b)[part.season] : 0;
      if (position < 0 || position >= part.size) return false;
      emit(first + position, 1), shift(first + position, own);
      if (part.kind == TREND) shift(first + 1, own + 1);
    }
    return true;
  }
  void emit(int where, T x) { place[emitted] = where, coefficient[emitted++] = row[where] = x; }
  void shift(int where, int from) { move[moved] = where, source[moved++] = from; }
};

// The transition of a series, A = D S: S adds slopes to levels, then D damps.
template <class T> struct Motion {
  const Innovation<T>& c;
  T* factors;  // of all states
  int *damped, *is_damped;
  Motion(Scratch<T>& scratch, const Innovation<T>& c, int* memory) : c(c), factors(scratch.take(c.np)), damped(memory), is_damped(memory + c.n) {}
  void set(int64_t b) {
    for (int i = 0; i < c.n; ++i) factors[i] = 1, is_damped[i] = 0;
    for (int i = 0; i < c.parts; ++i) {
      const Component& part = c.table[i];
      if (part.damped < 0) continue;
      const int state = part.first + (part.kind == TREND);
      damped[part.damped] = state, is_damped[state] = 1, factors[state] = c.damping.at(0, b)[part.damped];
    }
  }
  void push(T* x) const {
    for (int i = 0; i < c.parts; ++i)
      if (c.table[i].kind == TREND) x[c.table[i].first] += x[c.table[i].first + 1];
    for (int k = 0; k < c.damped; ++k) x[damped[k]] *= factors[damped[k]];
  }
  // [A P A', A m], or the adjoint [A' P A, A' m].
  void move(T* p, T* m, bool adjoint) const {
    if (adjoint) damp(p, m);
    for (int i = 0; i < c.parts; ++i) {
      if (c.table[i].kind != TREND) continue;
      const int to = c.table[i].first + adjoint, from = c.table[i].first + !adjoint;
      axpy<T>(p + to * c.np, 1, p + from * c.np, c.np);
      for (int j = 0; j < c.n; ++j) p[j * c.np + to] += p[j * c.np + from];
      m[to] += m[from];
    }
    if (!adjoint) damp(p, m);
  }
  void damp(T* p, T* m) const {
    for (int k = 0; k < c.damped; ++k) {
      const int i = damped[k];
      const T own = factors[i];
      for (int v = 0; v < c.np; v += width<T>)
        store(p + i * c.np + v, load(p + i * c.np + v) * (splat<T>(own) * load(factors + v)));
      for (int j = 0; j < c.n; ++j)  // rows of damped states had this factor above
        if (!is_damped[j]) p[j * c.np + i] *= own;
      m[i] *= own;
    }
  }
};

template <class T> INLINE T sum_of(Vector<T> x) {
  T total = 0;
  for (int k = 0; k < width<T>; ++k) total += x[k];
  return total;
}

// Rows of a known number of vectors are unrolled (VECTORS 0: any number). From a step on whose variance is not positive,
// the numbers of a series are NaN. Returns -1 where a position is none of its season's.
template <class T, int VECTORS> static int64_t filter_innovation(const Innovation<T>& c, void** p) {
  const int n = c.n, np = VECTORS ? VECTORS * width<T> : c.np, threads = c.threads;
  const int64_t count = c.count, size = c.tape_size();
  T *variance = (T*)p[11], *error_out = (T*)p[12], *mean_out = (T*)p[13], *cov_out = (T*)p[14], *tape = (T*)p[15];
  int64_t astray = 0;
  _Pragma("omp parallel num_threads(threads) if (threads > 1) reduction(+ : astray)") {
    Scratch<T> scratch((size_t)n * np + 4 * np + Entries<T>::numbers(n));
    int* memory = (int*)std::calloc(5 * n, sizeof(int));
    Entries<T> h(scratch, memory, n);
    Motion<T> a(scratch, c, memory + 3 * n);
    T *P = scratch.take(n * np), *m = scratch.take(np), *w = scratch.take(np);
    // Series of the same days and parameters have the same covariances: the gains of the one before serve them.
    const bool keeps = !tape && c.steps * (np + 2) <= MOST_KEPT;
    Scratch<T> gains(keeps ? c.steps * (np + 2) : 0);
    T* gain = gains.take(keeps ? c.steps * (np + 2) : 0);
    int64_t done = -1;
    EACH_FILTER {
      const bool is_known = keeps && done == b - 1 && b > 0 && c.is_like(b);
      if (!is_known) read_copy(P, np, c.cov.at(0, b), n, n);
      std::memcpy(m, c.mean.at(0, b), sizeof(T) * n);
      a.set(b);
      done = b;
      for (int64_t t = 0; is_known && t < c.steps; ++t) {
        const int64_t at = t * count + b;
        h.set(c, t, b);
        if (c.moves(t, b)) a.push(m);
        T error = c.values[at];
        for (int e = 0; e < h.emitted; ++e) error -= h.coefficient[e] * m[h.place[e]];
        const T *own = gain + t * (np + 2), z = error * own[np];
        variance[at] = own[np + 1], error_out[at] = error;
        for (int v = 0; c.observes(t, b) && v < np; v += width<T>) store(m + v, load(m + v) + splat<T>(z) * load(own + v));
      }
      for (int64_t t = 0; !is_known && t < c.steps; ++t) {
        T* kept = tape ? tape + (b * c.steps + t) * size : nullptr;
        T* rest = tape ? kept + (1 + c.damped) * n : nullptr;
        const int64_t at = t * count + b;
        if (!h.set(c, t, b)) { ++astray, done = -1; break; }
        if (c.moves(t, b)) {
          for (int k = 0; kept && k < c.damped; ++k) {
            T* x = kept + (1 + k) * n;
            std::memcpy(x, P + a.damped[k] * np, sizeof(T) * n);
            a.push(x);
            rest[2 + k] = m[a.damped[k]];
          }
          a.move(P, m, false);
          const T* q = c.noise.at(t, b);
          for (int e = 0; e < h.moved; ++e) add_at(P + h.move[e] * np, h.move[e], q[h.source[e]]);
        }
        for (int v = 0; v < np; v += width<T>) {
          Vector<T> sum = {};
          for (int e = 0; e < h.emitted; ++e) sum += splat<T>(h.coefficient[e]) * load(P + h.place[e] * np + v);
          store(w + v, sum);
        }
        T total = *c.variance.at(t, b), error = c.values[at];
        for (int e = 0; e < h.emitted; ++e) {
          total += h.coefficient[e] * w[h.place[e]];
          error -= h.coefficient[e] * m[h.place[e]];
        }
        if (!(total > 0) || !std::isfinite(total)) {
          done = -1;
          for (int64_t later = t; later < c.steps; ++later) variance[later * count + b] = error_out[later * count + b] = NAN;
          break;
        }
        variance[at] = total, error_out[at] = error;
        if (keeps) gain[t * (np + 2) + np + 1] = total;
        if (!c.observes(t, b)) continue;
        const T root = 1 / std::sqrt(total), z = error * root;
        for (int v = 0; v < np; v += width<T>) {
          const Vector<T> x = load(w + v) * splat<T>(root);
          store(w + v, x), store(m + v, load(m + v) + splat<T>(z) * x);
        }
        for (int i = 0; i < n; ++i)
          for (int v = 0; v < np; v += width<T>) store(P + i * np + v, load(P + i * np + v) - splat<T>(w[i]) * load(w + v));
        if (kept) std::memcpy(kept, w, sizeof(T) * n), rest[0] = root, rest[1] = z;
        if (keeps) std::memcpy(gain + t * (np + 2), w, sizeof(T) * np), gain[t * (np + 2) + np] = root;
      }
      for (int i = 0; i < n; ++i) std::memcpy(cov_out + (b * n + i) * n, P + i * np, sizeof(T) * n);
      std::memcpy(mean_out + b * n, m, sizeof(T) * n);
    }
    std::free(memory);
  }
  return astray ? -1 : 0;
}

// Cotangents of values, noises, variances of the observation, dampings, mean and cov; those of parameters are added up.
template <class T, int VECTORS> static int64_t innovation_cotangents(const Innovation<T>& c, void** p) {
  const int n = c.n, np = VECTORS ? VECTORS * width<T> : c.np, threads = c.threads;
  const int64_t count = c.count, size = c.tape_size();
  const T *tape = (T*)p[11], *variance_bar = (T*)p[12], *error_bar = (T*)p[13], *mean_bar = (T*)p[14], *cov_bar = (T*)p[15];
  T *value_out = (T*)p[16], *noise_out = (T*)p[17], *variance_out = (T*)p[18], *damping_out = (T*)p[19];
  T *mean_out = (T*)p[20], *cov_out = (T*)p[21];
  const bool noise_moves = c.noise.block, variance_moves = c.variance.block;
  THREADS {
    Scratch<T> scratch((size_t)n * np + 6 * np + Entries<T>::numbers(n));
    int* memory = (int*)std::calloc(5 * n, sizeof(int));
    Entries<T> h(scratch, memory, n);
    Motion<T> a(scratch, c, memory + 3 * n);
    T *G = scratch.take(n * np), *g = scratch.take(np), *half = scratch.take(np), *w = scratch.take(np), *x = scratch.take(np);
    EACH_FILTER {
      clear(g, np), clear(G, n * np);
      if (mean_bar) std::memcpy(g, mean_bar + b * n, sizeof(T) * n);
      for (int i = 0; cov_bar && i < n; ++i)
        for (int j = 0; j < n; ++j) G[i * np + j] = T(0.5) * (cov_bar[(b * n + i) * n + j] + cov_bar[(b * n + j) * n + i]);
      a.set(b);
      for (int64_t t = c.steps - 1; t >= 0; --t) {
        const T *kept = tape + (b * c.steps + t) * size, *rest = kept + (1 + c.damped) * n;
        const int64_t at = t * count + b;
        const T root = c.observes(t, b) ? rest[0] : 0, z = rest[1];
        h.set(c, t, b);
        T v_bar = variance_bar ? variance_bar[at] : 0, e_bar = error_bar ? error_bar[at] : 0;
        const bool is_read = root > 0;
        if (is_read) {
          std::memcpy(w, kept, sizeof(T) * n);
          // u = G w, then the cotangents of w and z, and by them those of P h, the variance and the residual
          Vector<T> along = {}, across = {};
          for (int v = 0; v < np; v += width<T>) {
            Vector<T> even = {}, odd = {};  // two sums: in a single one each addition would wait for the one before
            int i = 0;
            for (; i + 2 <= n; i += 2) {
              even += splat<T>(w[i]) * load(G + i * np + v);
              odd += splat<T>(w[i + 1]) * load(G + (i + 1) * np + v);
            }
            if (i < n) even += splat<T>(w[i]) * load(G + i * np + v);
            const Vector<T> own = load(g + v), w_bar = splat<T>(z) * own - splat<T>(2) * (even + odd);
            along += w_bar * load(w + v), across += own * load(w + v);
            store(half + v, w_bar);
          }
          const T z_bar = sum_of<T>(across);
          v_bar -= T(0.5) * root * root * (sum_of<T>(along) + z_bar * z), e_bar += z_bar * root;
        } else {
          clear(half, np);
        }
        value_out[at] = e_bar;
        if (is_read || v_bar != 0 || e_bar != 0) {
          if (variance_out) variance_out[variance_moves ? at : b] += v_bar;
          for (int v = 0; v < np; v += width<T>)
            store(half + v, splat<T>(T(0.5)) * (load(half + v) * splat<T>(root) + splat<T>(v_bar) * load(h.row + v)));
          for (int i = 0; i < n; ++i)
            for (int v = 0; v < np; v += width<T>)
              store(G + i * np + v, load(G + i * np + v) + splat<T>(half[i]) * load(h.row + v));
          for (int e = 0; e < h.emitted; ++e) {
            axpy<T>(G + h.place[e] * np, h.coefficient[e], half, np);
            g[h.place[e]] -= e_bar * h.coefficient[e];
          }
        }
        if (!c.moves(t, b)) continue;
        T* to = noise_out ? noise_out + (noise_moves ? at : b) * c.sources : nullptr;
        for (int e = 0; to && e < h.moved; ++e) to[h.source[e]] += G[h.move[e] * (np + 1)];
        for (int k = 0; damping_out && k < c.damped; ++k) {
          const int i = a.damped[k];
          std::memcpy(x, kept + (1 + k) * n, sizeof(T) * n);
          Vector<T> sum = {};
          for (int v = 0; v < np; v += width<T>) sum += load(G + i * np + v) * load(x + v);
          damping_out[b * c.damped + k] += 2 * sum_of<T>(sum) + g[i] * rest[2 + k];
        }
        a.move(G, g, true);
      }
      if (mean_out) std::memcpy(mean_out + b * n, g, sizeof(T) * n);
      for (int i = 0; cov_out && i < n; ++i)
        for (int j = 0; j < n; ++j) cov_out[(b * n + i) * n + j] = T(0.5) * (G[i * np + j] + G[j * np + i]);
    }
    std::free(memory);
  }
  return 0;
}

template <class T> static int64_t innovation_forward(const int64_t* sizes, void** p) {
  const Innovation<T> c(sizes, p);
  switch (c.np / width<T>) {
    case 1: return filter_innovation<T, 1>(c, p);
    case 2: return filter_innovation<T, 2>(c, p);
    default: return filter_innovation<T, 0>(c, p);
  }
}

template <class T> static int64_t innovation_backward(const int64_t* sizes, void** p) {
  const Innovation<T> c(sizes, p);
  switch (c.np / width<T>) {
    case 1: return innovation_cotangents<T, 1>(c, p);
    case 2: return innovation_cotangents<T, 2>(c, p);
    default: return innovation_cotangents<T, 0>(c, p);
  }
}
