// Quantiles of mixtures of Gaussians behind rising maps; see models/parts/marginals.py. Components without a weight cost
// nothing.
#pragma once
#include <cmath>
#include <limits>

#include "small.h"

typedef Vector<double> Row;
typedef int64_t Bits __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));

// exp(x) between -708 and 708. The compiler may reorder sums, so numbers are not rounded by adding a large one.
INLINE Row exponential(Row x) {
  const Row end = splat(708.0);  // beyond it the exponent of a double overflows
  x = x < -end ? -end : x > end ? end : x;
  const Halves whole = __builtin_convertvector(x * splat(1.4426950408889634074) + (x < 0 ? splat(-0.5) : splat(0.5)), Halves);
  const Row n = __builtin_convertvector(whole, Row);
  const Row r = x - n * splat(0.69314718055994530942);
  // The Taylor series up to r^13: for |r| <= log(2) / 2 the rest is below 1e-17.
  Row sum = splat(1.0 / 6227020800);
  for (double factorial : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0})
    sum = sum * r + splat(1 / factorial);
  return sum * (Row)((__builtin_convertvector(whole, Bits) + 1023) << 52);
}

// erfc(a) exp(a^2) (3 + a) / 3 for a >= 0, a polynomial of 6 / (3 + a) - 1 to 15 digits.
INLINE Row tail_factor(Row y) {
  Row sum = {};
  for (double c : {1.3182115698495568e-09, -1.127218108855156e-09, -1.3045998402316558e-08, 1.6387680474358397e-08, 7.2133694317562635e-08, -1.3672139660462538e-07, -3.2764586736146622e-07, 9.220475962189182e-07, 1.579870605496058e-06, -5.8235252407587199e-06, -1.0131465163419092e-05, 3.5853803559456934e-05, 9.2258968339324832e-05, -0.00018276989121893865, -0.0010113539530103926, -0.0004041388755241463, 0.0089424115376120633, 0.039842587095557512, 0.10348908730032416, 0.19674278570138462, 0.29446481772329341, 0.3580023023627798})
    sum = sum * y + splat(c);
  return sum;
}

// The standard normal distribution function at sqrt(2) q, given exp(-q^2).
INLINE Row distribution(Row q, Row e) {
  const Row a = q < 0 ? -q : q, inverse = splat(1.0) / (splat(3.0) + a);
  const Row tail = splat(1.5) * e * inverse * tail_factor(splat(6.0) * inverse - splat(1.0));
  return q < 0 ? tail : splat(1.0) - tail;
}

// The standard normal quantile (Wichura 1988, AS 241).
static double normal_quantile(double p) {
  const double q = p - 0.5;
  auto ratio = [](double r, const double* a, const double* b) {
    double top = a[7], bottom = b[7];
    for (int i = 6; i >= 0; --i) top = top * r + a[i], bottom = bottom * r + b[i];
    return top / bottom;
  };
  static const double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
                             4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3};
  static const double b[] = {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                             2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3};
  if (std::fabs(q) <= 0.425) return q * ratio(0.180625 - q * q, a, b);
  static const double c[] = {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
                             1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static const double d[] = {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                             1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9};
  static const double e[] = {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
                             2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static const double f[] = {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                             7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15};
  // A tail that underflowed would have an infinite score.
  const double tail = std::fmax(q < 0 ? p : 1 - p, std::numeric_limits<double>::min()), r = std::sqrt(-std::log(tail));
  const double x = r <= 5 ? ratio(r - 1.6, c, d) : ratio(r - 5, e, f);
  return q < 0 ? -x : x;
}

// The maps, in the order of their numbers, of values of size one: their places, slopes, bends and inverses.
enum Map { PLAIN, ASINH, SYMLOG, SYMSQRT, MAPS };

static void place(int map, double v, double& u, double& slope, double& bend) {
  const double steep = map > ASINH ? 10 : 1, x = steep * v, root = std::sqrt(1 + (map == SYMSQRT ? std::fabs(x) : x * x));
  if (map == PLAIN) u = v, slope = 1, bend = 0;
  else {
    u = map == SYMSQRT ? 2 * x / (1 + root) : std::asinh(x), slope = steep / root;
    bend = -slope * slope * slope / steep * (map == SYMSQRT ? std::copysign(0.5, x) : x);
  }
}

static double restored(int map, double u) {
  if (map == PLAIN) return u;
  if (map == SYMSQRT) return u * (1 + 0.25 * std::fabs(u)) / 10;
  return std::sinh(std::fmin(std::fmax(u, -700.0), 700.0)) / (map == SYMLOG ? 10 : 1);  // sinh overflows above 710
}

// A value, its standard normal score, and the first two terms of values by scores around it.
struct Point {
  double v, score, first, second;
};

// The value of a score behind two points: a polynomial that goes through both with their terms.
// Hermite's interpolation of fifth order, by divided differences.
static double beyond(const Point& a, const Point& b, double score) {
  const double d = b.score - a.score, x = score - b.score, s = (b.v - a.v) / d, t = (b.first - s) / d, u = (s - a.first) / d;
  const double third = (b.second - t) / d, both = (t - u) / d, last = (u - a.second) / d;
  const double fourth = (third - both) / d, fifth = (fourth - (both - last) / d) / d;
  return b.v + x * (b.first + x * (b.second + x * (third + (x + d) * (fourth + (x + d) * fifth))));
}

// The components of one value that have a weight, those of a map one after the other, padded with weights of 0.
struct Mixture {
  int first[MAPS + 1];
  double *weight, *mean, *scale, *precision;

  explicit Mixture(Scratch<double>& scratch, size_t most)
      : weight(scratch.take(most)), mean(scratch.take(most)), scale(scratch.take(most)), precision(scratch.take(most)) {}
  // The components of a cell, of their weights, means and deviations; the latter are so many steps apart.
  void fill(const double* w, const double* m, const double* d, const int64_t* map, int64_t count, int64_t steps) {
    int n = 0;
    for (int kind = 0; kind < MAPS; ++kind) {
      first[kind] = n;
      for (int64_t k = 0; k < count; ++k) {
        if (map[k] != kind || !(w[k] > 0)) continue;
        weight[n] = w[k], mean[n] = m[k * steps], scale[n] = d[k * steps], precision[n] = 1 / scale[n], ++n;
      }
      for (; n % width<double>; ++n) weight[n] = mean[n] = scale[n] = precision[n] = 0;
    }
    first[MAPS] = n;
  }
  // The mean of values, each component's between two ends; of those above 0 where they are clipped.
  double expectation(bool clipped, double low, double high) const {
    double found = 0;
    for (int map = 0; map < MAPS; ++map)
      for (int k = first[map]; k < first[map + 1]; k += width<double>) {
        const Row m = load(mean + k), s = load(scale + k), root = splat(0.70710678118654752440) * load(precision + k);
        const Row half = splat(0.5), square = s * s, one = splat(1.0);
        auto below = [&](Row x) { const Row q = x * root; return clipped ? distribution(q, exponential(-q * q)) : one; };
        Row x;
        // By the moments of a lognormal variable, cut off at 0 where values are clipped.
        if (map == ASINH || map == SYMLOG)
          x = half * (exponential(m + half * square) * below(m + square) - exponential(half * square - m) * below(m - square));
        else {
          const Row density = splat(0.39894228040143267794) * s * exponential(-m * m * root * root), share = below(m);
          x = clipped ? m * share + density : m;
          if (map == SYMSQRT) {
            const Row whole = clipped ? share : splat(2.0) * distribution(m * root, exponential(-m * m * root * root)) - one;
            x += splat(0.25) * ((m * m + square) * whole + m * density * splat(clipped ? 1.0 : 2.0));
          }
        }
        const Row w = load(weight + k), scaled = map > ASINH ? x * splat(0.1) : x;
        const Row bounded = scaled < splat(low) ? splat(low) : scaled > splat(high) ? splat(high) : scaled;
        for (int i = 0; i < width<double>; ++i) found += w[i] > 0 ? w[i] * bounded[i] : 0;
      }
    return found;
  }
  // The probability of at most v, or of more; the density at v, and its slope.
  void at(double v, bool above, double& probability, double& density, double& change) const {
    const Row sign = splat(above ? -1.0 : 1.0);
    probability = density = change = 0;
    for (int map = 0; map < MAPS; ++map) {
      if (first[map] == first[map + 1]) continue;
      double u, slope, bend;
      place(map, v, u, slope, bend);
      Row sum = {}, dense = {}, falls = {};
      for (int k = first[map]; k < first[map + 1]; k += width<double>) {
        const Row own = load(precision + k), z = (splat(u) - load(mean + k)) * own * splat(0.70710678118654752440);
        const Row e = exponential(-z * z), w = load(weight + k), d = w * own * e;
        sum += w * distribution(z * sign, e), dense += d, falls += d * own * z;
      }
      for (int i = 0; i < width<double>; ++i) {
        probability += sum[i], density += slope * dense[i] * 0.39894228040143267794;
        change += (bend * dense[i] - slope * slope * 1.41421356237309504880 * falls[i]) * 0.39894228040143267794;
      }
    }
  }
  // The smallest and largest quantile of the components, and a mean of them.
  void ends(double normal, double& low, double& high, double& middle) const {
    low = std::numeric_limits<double>::infinity(), high = -low, middle = 0;
    for (int map = 0; map < MAPS; ++map) {
      double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0, total = 0;
      for (int k = first[map]; k < first[map + 1]; ++k) {
        if (!(weight[k] > 0)) continue;
        const double u = mean[k] + normal * scale[k];
        least = u < least ? u : least, most = u > most ? u : most, sum += weight[k] * u, total += weight[k];
      }
      if (!(total > 0)) continue;
      low = std::fmin(low, restored(map, least)), high = std::fmax(high, restored(map, most));
      middle += total * restored(map, sum / total);
    }
  }
  // The value whose standard normal score is `normal`, by Halley's steps inside of what is known to hold it. `last` is where
  // the last step began.
  double root(double v, double normal, double low, double high, Point& last) const {
    double before = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 200; ++round) {
      double probability, density, change;
      at(v, normal > 0, probability, density, change);  // of the smaller tail: near 1 a probability has no digits left
      const double score = normal_quantile(probability) * (normal > 0 ? -1 : 1), error = score - normal;
      (error < 0 ? low : high) = v;
      const double unit = 0.39894228040143267794 * std::exp(-0.5 * score * score), rise = density / unit;
      const double bend = 0.5 * (change / unit + score * rise * rise) / rise;
      last = {v, score, 1 / rise, -bend / (rise * rise)};
      // Halley's factor is bounded: far from the root the curvature says little.
      const double step = error / rise, next = v - step / std::fmax(1 - step * bend, 0.5);
      const bool is_inside = next >= low && next <= high;
      // The next error is of the order of the third power of this one.
      if (error == 0 || (std::fabs(error) < 1e-4 && is_inside)) return error == 0 ? v : next;
      if (high - low <= 4 * std::numeric_limits<double>::epsilon() * (std::fabs(low) + std::fabs(high))) return v;
      // Halved by order of magnitude, since ends may be 1e300 apart.
      const double halved = std::sinh(0.5 * (std::asinh(10 * low) + std::asinh(10 * high))) / 10;
      // Steps that do not halve the error are left to bisection.
      v = is_inside && std::fabs(error) < 0.5 * before ? next : halved;
      before = std::fabs(error);
    }
    return v;
  }
};

// sizes: cells, components, levels, threads, steps; weight (series, component), mean and deviation (series, component,
// step), unit (series), map (component), normal (level), rising -> values (level, series, step).
static int64_t mixture_quantiles(const int64_t* s, void** p) {
  const int64_t count = s[0], components = s[1], levels = s[2], steps = s[4];
  const int threads = s[3];
  const double *weight = (double*)p[0], *mean = (double*)p[1], *deviation = (double*)p[2], *unit = (double*)p[3];
  const int64_t* map = (int64_t*)p[4];
  const double* normal = (double*)p[5];
  double* values = (double*)p[6];
  _Pragma("omp parallel num_threads(threads) if (threads > 1)") {
    const size_t most = components + MAPS * width<double>;
    Scratch<double> scratch(4 * most);
    Mixture m(scratch, most);
    _Pragma("omp for") for (int64_t cell = 0; cell < count; ++cell) {
      const int64_t series = cell / steps, own = series * components * steps + cell % steps;
      m.fill(weight + series * components, mean + own, deviation + own, map, components, steps);
      double low, high, middle, unused;
      // A quantile of a mixture lies between those of its components.
      m.ends(normal[levels - 1], unused, high, middle);
      m.ends(normal[0], low, unused, middle);
      Point last = {}, before = {};
      for (int64_t level = 0; level < levels; ++level) {
        const double x = normal[level] - last.score;
        // Levels rise, so the last root and its slopes lead to the next.
        const double guess = level < 2 ? last.v + x * (last.first + x * last.second) : beyond(before, last, normal[level]);
        before = last;
        low = m.root(level && guess >= low && guess <= high ? guess : middle, normal[level], low, high, last);
        values[level * count + cell] = low * unit[series];
      }
    }
  }
  return 0;
}

// sizes: cells, components, clipped, threads, steps; weight, mean, deviation, unit and map likewise, the ends of values
// (series, 2) -> means (series, step).
static int64_t mixture_means(const int64_t* s, void** p) {
  const int64_t components = s[1], steps = s[4];
  const int threads = s[3];
  const double *weight = (double*)p[0], *mean = (double*)p[1], *deviation = (double*)p[2], *unit = (double*)p[3];
  const int64_t* map = (int64_t*)p[4];
  const double* ends = (double*)p[5];
  double* values = (double*)p[6];
  _Pragma("omp parallel num_threads(threads) if (threads > 1)") {
    const size_t most = components + MAPS * width<double>;
    Scratch<double> scratch(4 * most);
    Mixture m(scratch, most);
    _Pragma("omp for") for (int64_t cell = 0; cell < s[0]; ++cell) {
      const int64_t series = cell / steps, own = series * components * steps + cell % steps;
      const double size = unit[series];
      m.fill(weight + series * components, mean + own, deviation + own, map, components, steps);
      values[cell] = size * m.expectation(s[2], ends[2 * series] / size, ends[2 * series + 1] / size);
    }
  }
  return 0;
}
