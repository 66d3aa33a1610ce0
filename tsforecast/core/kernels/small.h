// Products and factors of small dense matrices, one filter at a time. Rows are padded to whole vectors, with zeros.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define INLINE static inline __attribute__((always_inline))

template <class T> struct Simd;
template <> struct Simd<double> { typedef double type __attribute__((vector_size(VECTOR_BYTES))); };
template <> struct Simd<float> { typedef float type __attribute__((vector_size(VECTOR_BYTES))); };
template <class T> using Vector = typename Simd<T>::type;
template <class T> constexpr int width = VECTOR_BYTES / sizeof(T);
template <class T> constexpr T log_2pi = T(1.8378770664093454836);

template <class T> INLINE Vector<T> load(const T* p) { Vector<T> x; std::memcpy(&x, p, VECTOR_BYTES); return x; }
template <class T> INLINE void store(T* p, Vector<T> x) { std::memcpy(p, &x, VECTOR_BYTES); }
template <class T> INLINE Vector<T> splat(T x) { Vector<T> zero = {}; return zero + x; }
template <class T> INLINE int padded(int n) { return (n + width<T> - 1) / width<T> * width<T>; }

// A number in one place of a vector. Written alone, it would make the next load of the vector wait.
template <class T> struct Lanes {
  T rows[width<T>][width<T>] = {};
  constexpr Lanes() { for (int i = 0; i < width<T>; ++i) rows[i][i] = 1; }
};
template <class T> constexpr Lanes<T> lanes{};
template <class T> INLINE void add_at(T* row, int place, T x) {  // of a padded row
  T* to = row + place / width<T> * width<T>;
  store(to, load(to) + splat<T>(x) * load(lanes<T>.rows[place % width<T>]));
}

// Zeroed scratch memory of one thread.
template <class T> struct Scratch {
  char* memory;
  size_t used = 0;
  explicit Scratch(size_t numbers) {
    // Each of up to 64 takes is rounded up to a line of the cache.
    size_t bytes = (numbers * sizeof(T) + 63) / 64 * 64 + 64 * 64;
    memory = static_cast<char*>(std::aligned_alloc(64, bytes));
    if (!memory) std::abort();  // no exception may leave a parallel region
    std::memset(memory, 0, bytes);  // products read the padding of rows as zeros
  }
  ~Scratch() { std::free(memory); }
  Scratch(const Scratch&) = delete;
  T* take(size_t numbers) {
    T* p = reinterpret_cast<T*>(memory + used);
    used += (numbers * sizeof(T) + 63) / 64 * 64;
    return p;
  }
};

// One tile of C = alpha A B (+ C): ROWS rows, VECTORS vectors of columns.
template <class T, bool TRANSPOSED, int ROWS, int VECTORS>
INLINE void tile(int inner, T alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc, bool add) {
  Vector<T> sum[ROWS][VECTORS] = {};
  for (int k = 0; k < inner; ++k) {
    Vector<T> row[VECTORS];
    for (int v = 0; v < VECTORS; ++v) row[v] = load(b + k * ldb + v * width<T>);
    for (int r = 0; r < ROWS; ++r) {
      Vector<T> x = splat<T>(TRANSPOSED ? a[k * lda + r] : a[r * lda + k]);
      for (int v = 0; v < VECTORS; ++v) sum[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) {
      T* to = c + r * ldc + v * width<T>;
      Vector<T> x = sum[r][v] * splat<T>(alpha);
      store(to, add ? load(to) + x : x);
    }
}

template <class T, bool TRANSPOSED, int ROWS, int VECTORS>
INLINE int tiles(int i, int rows, int inner, T alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc, bool add) {
  for (; i + ROWS <= rows; i += ROWS)
    tile<T, TRANSPOSED, ROWS, VECTORS>(inner, alpha, a + (TRANSPOSED ? i : i * lda), lda, b, ldb, c + i * ldc, ldc, add);
  return i;
}

// C = alpha A B, or alpha A' B, added to C on request. `columns` is without the padding.
template <class T, bool TRANSPOSED>
static void product(int rows, int inner, int columns, T alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc, bool add) {
  int j = 0, end = padded<T>(columns);
  for (; j + 2 * width<T> <= end; j += 2 * width<T>) {
    // Twelve sums, two vectors of B and one of A fill fifteen of AVX2's sixteen registers.
    int i = tiles<T, TRANSPOSED, 6, 2>(0, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
    i = tiles<T, TRANSPOSED, 2, 2>(i, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
    tiles<T, TRANSPOSED, 1, 2>(i, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
  }
  if (j < end) {
    // A single vector needs more rows: eight sums hide the latency of a multiply-add.
    int i = tiles<T, TRANSPOSED, 8, 1>(0, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
    i = tiles<T, TRANSPOSED, 2, 1>(i, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
    tiles<T, TRANSPOSED, 1, 1>(i, rows, inner, alpha, a, lda, b + j, ldb, c + j, ldc, add);
  }
}

// Rows of a tensor, padded with zeros in scratch memory where they are no whole vectors.
template <class T> INLINE const T* read(T* to, int ld, const T* from, int rows, int columns) {
  if (columns == ld) return from;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[i * ld + j] = from[i * columns + j];
  return to;
}
template <class T> INLINE T* place(T* to, T* scratch, int ld, int columns) { return columns == ld ? to : scratch; }
template <class T> INLINE void write(T* to, const T* from, int ld, int rows, int columns) {
  if (to == from) return;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) to[i * columns + j] = from[i * ld + j];
}
template <class T> INLINE void transpose(T* to, int ldt, const T* from, int ld, int rows, int columns) {
  for (int j = 0; j < columns; ++j)
    for (int i = 0; i < rows; ++i) to[j * ldt + i] = from[i * ld + j];
}
template <class T> INLINE void clear(T* x, int numbers) { std::memset(x, 0, sizeof(T) * numbers); }
template <class T> INLINE void axpy(T* to, T x, const T* from, int end) {  // of padded rows
  for (int i = 0; i < end; i += width<T>) store(to + i, load(to + i) + splat<T>(x) * load(from + i));
}
// y = A' x, into a padded row.
template <class T> INLINE void apply_transposed(int rows, int columns, const T* a, int ld, const T* x, T* y) {
  const int end = padded<T>(columns);
  for (int j = 0; j < end; j += width<T>) {
    Vector<T> even = {}, odd = {};  // two sums: in a single one each addition would wait for the one before
    int i = 0;
    for (; i + 2 <= rows; i += 2) {
      even += splat<T>(x[i]) * load(a + i * ld + j);
      odd += splat<T>(x[i + 1]) * load(a + (i + 1) * ld + j);
    }
    if (i < rows) even += splat<T>(x[i]) * load(a + i * ld + j);
    store(y + j, even + odd);
  }
}

// S = U'U in place of S, of which the upper triangle is read; and L^{-1} for L = U'. Returns 0, or 1 + the row that fails.
template <class T, bool ONE> INLINE int factorise_rows(int n, T* s, T* inverse, int given) {
  const int ld = ONE ? width<T> : given;  // known to the compiler where a row is one vector
  for (int j = 0; j < n; ++j) {
    T *row = s + j * ld, *from = inverse + j * ld, d = row[j];
    if (!(d > 0) || !std::isfinite(d)) return j + 1;  // a NaN fails too
    const T scale = T(1) / std::sqrt(d);
    for (int v = 0; v < ld; v += width<T>) store(row + v, load(row + v) * splat<T>(scale));
    for (int i = j + 1; i < n; ++i)
      // From the vector with the diagonal on: only the upper triangle is read.
      for (int v = ONE ? 0 : i / width<T> * width<T>; v < ld; v += width<T>)
        store(s + i * ld + v, load(s + i * ld + v) - splat<T>(row[i]) * load(row + v));
    for (int v = 0; v < ld; v += width<T>) {
      Vector<T> even = {}, odd = {};
      int k = 0;
      for (; k + 2 <= j; k += 2) {
        even -= splat<T>(s[k * ld + j]) * load(inverse + k * ld + v);
        odd -= splat<T>(s[(k + 1) * ld + j]) * load(inverse + (k + 1) * ld + v);
      }
      if (k < j) even -= splat<T>(s[k * ld + j]) * load(inverse + k * ld + v);
      store(from + v, (even + odd) * splat<T>(scale));
    }
    from[j] = scale;
  }
  for (int j = 1; j < n; ++j)  // callers multiply by U as a whole matrix
    for (int i = 0; i < j; ++i) s[j * ld + i] = 0;
  return 0;
}
template <class T> static int factorise(int n, T* s, T* inverse, int ld) {
  return ld == width<T> ? factorise_rows<T, true>(n, s, inverse, ld) : factorise_rows<T, false>(n, s, inverse, ld);
}
// y = A x for a lower triangular A, whose transpose is scratch: y and x are padded rows.
template <class T> INLINE void apply_lower(int n, const T* a, T* transposed, int ld, const T* x, T* y) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j) transposed[j * ld + i] = a[i * ld + j];
  apply_transposed(n, n, transposed, ld, x, y);
}
// The sum of the logarithms of positive numbers, several at a time.
template <class T> INLINE T sum_of_logs(int n, const T* x, int stride) {
  // So many floats, or roots of doubles, that their product stays within the range of a double: one logarithm for all.
  constexpr int several = sizeof(T) == 4 ? 6 : 2;
  double sum = 0;
  for (int i = 0; i < n; i += several) {
    double product = 1;
    for (int j = i; j < n && j < i + several; ++j) product *= x[j * stride];
    sum += std::log(product);
  }
  return T(sum);
}
// The cotangent of S = L L', L^{-T} K L^{-1} / 2, where K mirrors its lower triangle; overwrites K.
template <class T> INLINE void factor_cotangent(int n, T* k, const T* inverse, T* work, T* s_bar, int ld) {
  for (int i = 0; i < n; ++i)
    for (int j = i + 1; j < n; ++j) k[i * ld + j] = k[j * ld + i];
  product<T, true>(n, n, n, T(0.5), inverse, ld, k, ld, work, ld, false);
  product<T, false>(n, n, n, T(1), work, ld, inverse, ld, s_bar, ld, false);
}

// Static: a thread takes its filters in order, so `innovation.h` finds the gains of the one before.
#define EACH_FILTER _Pragma("omp for schedule(static)") for (int64_t b = 0; b < count; ++b)
#define THREADS _Pragma("omp parallel num_threads(threads) if (threads > 1)")
#define COUNTING_THREADS _Pragma("omp parallel num_threads(threads) if (threads > 1) reduction(+ : failed)")
