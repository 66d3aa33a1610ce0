// Probabilities of the states of chains given all steps; see core/regimes/em.py.
#pragma once
#include <algorithm>
#include <limits>

#include "small.h"

// One chain: `cells` lies between a step and the next. Loops over 2 or 3 states, as STATES, are written out.
template <class T, int STATES>
static void smooth_chain(int64_t steps, int64_t cells, int states, const T* matrix, const T* turned, const T* density,
                         const T* begin, T* weight, T* gain, T* pairs, T* later, T* ahead) {
  const int k = STATES ? STATES : states;
  const T* belief = begin;
  // By probabilities divided by their sum, not by logarithms: no call of exp or log in a step.
  for (int64_t t = 0; t < steps; ++t) {
    const T* now = density + t * cells * k;
    T sum = 0;
    for (int j = 0; j < k; ++j) later[j] = 0;
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < k; ++j) later[j] += belief[i] * matrix[i * k + j];
    for (int j = 0; j < k; ++j) sum += later[j] *= now[j];
    // The order of arguments keeps a NaN, which `fmax` would hide.
    gain[t * cells] = sum = std::max(sum, std::numeric_limits<T>::min());
    T* out = weight + t * cells * k;
    for (int j = 0; j < k; ++j) out[j] = later[j] / sum;
    belief = out;
  }
  // From here on `later` is what is behind a step, given its state; `ahead` has the step as well.
  for (int j = 0; j < k; ++j) later[j] = 1;
  for (int i = 0; i < k * k; ++i) pairs[i] = 0;
  for (int64_t t = steps - 1; t >= 0; --t) {
    const T *now = density + t * cells * k, *before = t ? weight + (t - 1) * cells * k : begin;
    T* out = weight + t * cells * k;
    for (int j = 0; j < k; ++j) out[j] *= later[j], ahead[j] = now[j] * later[j] / gain[t * cells], later[j] = 0;
    for (int i = 0; i < k; ++i)
      for (int j = 0; j < k; ++j) later[j] += turned[i * k + j] * ahead[i], pairs[i * k + j] += before[i] * ahead[j];
  }
  for (int i = 0; i < k * k; ++i) pairs[i] *= matrix[i];
}

// sizes: chains (run, series), steps, states, threads, series; transition (run, state, state), its transpose, density
// (time, run, series, state), start (run, state) -> weight (time, run, series, state), gain (time, run, series), pairs (run,
// series, state, state), first (run, series, state).
template <class T> static int64_t regimes_smooth(const int64_t* sizes, void** p) {
  const int64_t count = sizes[0], steps = sizes[1], series = sizes[4];
  const int k = sizes[2], threads = sizes[3];
  const T *transition = (T*)p[0], *turned = (T*)p[1], *density = (T*)p[2], *start = (T*)p[3];
  T *weight = (T*)p[4], *gain = (T*)p[5], *pairs = (T*)p[6], *first = (T*)p[7];
  auto smooth = k == 2 ? smooth_chain<T, 2> : k == 3 ? smooth_chain<T, 3> : smooth_chain<T, 0>;
  THREADS {
    Scratch<T> scratch((size_t)k * k + 2 * k);
    T *later = scratch.take(k), *ahead = scratch.take(k), *moves = scratch.take(k * k);
    EACH_FILTER {
      const int64_t run = b / series;
      smooth(steps, count, k, transition + run * k * k, turned + run * k * k, density + b * k, start + run * k,
             weight + b * k, gain + b, moves, later, ahead);
      std::memcpy(pairs + b * k * k, moves, sizeof(T) * k * k);
      std::memcpy(first + b * k, later, sizeof(T) * k);
    }
  }
  return 0;
}
