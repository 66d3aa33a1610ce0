"""The random numbers of R: `set.seed`, `rnorm` and `arima.sim`, for examples that R packages publish.

Mersenne-Twister (Matsumoto and Nishimura 1998) seeded as R does, and normal numbers by inversion of two uniform ones.
"""

import numpy as np
from scipy.special import ndtri

_BIG = 134217728  # 2^27


class RRandom:
    def __init__(self, seed: int) -> None:
        for _ in range(50):
            seed = (69069 * seed + 1) % 2**32
        state = []
        for _ in range(625):
            seed = (69069 * seed + 1) % 2**32
            state.append(seed)
        self.bits = np.random.MT19937()
        key = {"key": np.array(state[1:], np.uint32), "pos": 624}
        self.bits.state = {"bit_generator": "MT19937", "state": key}

    def uniform(self) -> float:
        drawn = int(self.bits.random_raw()) * 2.3283064365386963e-10
        return min(max(drawn, 0.5 * 2.328306437080797e-10), 1 - 0.5 * 2.328306437080797e-10)

    def normal(self, count: int) -> np.ndarray:
        return np.array([ndtri((int(_BIG * self.uniform()) + self.uniform()) / _BIG) for _ in range(count)])

    def autoregression(self, coefficient: float, count: int) -> np.ndarray:
        """`arima.sim(model = list(ar = coefficient), n = count)`: a long run-in goes before."""
        run_in = 1 + int(np.ceil(6 / np.log(1 / coefficient)))
        value, found = 0.0, []
        for shock in self.normal(run_in + count):
            value = coefficient * value + shock
            found.append(value)
        return np.array(found[run_in:])
