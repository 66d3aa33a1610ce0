// The filter through a chain of blocks and its adjoint, a group of series after the other; see core/series/blocks.py.
#pragma once
#include "chain_moves.h"

// Log-likelihoods, last moments, failing rows, and a tape for the adjoint.
template <class T> static int64_t chain_forward(const int64_t* sizes, void** p) {
  const Chain<T> c(sizes, p);
  const int k = c.k, n = c.n, kp = c.kp, np = c.np, columns = c.columns, threads = c.threads;
  T *terms = (T*)p[10], *mean_out = (T*)p[11], *cov_out = (T*)p[12], *tape = (T*)p[14];
  int32_t* info = (int32_t*)p[13];
  const int64_t size = c.tape_size(), count = c.groups;
  THREADS {
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
        if (t == 0 || c.matrix.block) h.set(matrix, k, n, h_, np);  // shared by all blocks, it is searched for zeros once
        if (!c.crossed) mover.move(c, t, b, now, false);  // without `cross` the rows read the state after the move
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
          // A masked row is independent of all others with variance 1, so one factorisation serves any pattern.
          for (int j = 0; j < k; ++j) s[i * kp + j] = s[j * kp + i] = i == j;
        }
        info[place] = factorise(k, s, inverse, kp);
        if (info[place]) {  // nothing after it means anything
          for (int64_t later = t; later < c.blocks; ++later) {
            const int64_t first = (later * c.groups + b) * k * columns;
            for (int i = 0; i < k * columns; ++i) terms[first + i] = NAN;
            if (later > t) info[later * c.groups + b] = 0;  // the first failure alone is named
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
        // The asymmetry of rounding grows slowly: a pass every eighth block is enough.
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
  return 0;
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
        // Covariances are symmetric, so only the symmetric part of their cotangent acts; the products below rely on it.
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
        for (int i = 0; seen && i < k; ++i) {  // a masked row had no influence
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
        // The cotangent of the gain, H P or H P Phi', through its product with H', which is a part of S.
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
              // The move began at the moments behind the block before: they are made anew from its tape, not kept beside it.
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
