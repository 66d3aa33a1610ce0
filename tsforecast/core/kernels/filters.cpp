// Steps of small Kalman filters with their adjoints. Plain C functions of sizes and pointers: no header of torch.
#include <initializer_list>
#include <utility>

#include "chain.h"
#include "condition.h"
#include "innovation.h"
#include "mixture.h"
#include "propose.h"
#include "push.h"
#include "regimes.h"
#include "structural.h"

#define BOTH(name) \
  extern "C" int64_t name##_float32(const int64_t* sizes, void** p) { return name<float>(sizes, p); } \
  extern "C" int64_t name##_float64(const int64_t* sizes, void** p) { return name<double>(sizes, p); }

BOTH(push_forward)
BOTH(push_backward)
BOTH(condition_forward)
BOTH(condition_backward)
BOTH(propose_forward)
BOTH(propose_backward)
BOTH(chain_forward)
BOTH(chain_backward)
BOTH(structural_forward)
BOTH(structural_backward)
BOTH(innovation_forward)
BOTH(innovation_backward)
BOTH(regimes_smooth)

extern "C" int64_t mixture_quantiles_float64(const int64_t* sizes, void** p) { return mixture_quantiles(sizes, p); }
extern "C" int64_t mixture_means_float64(const int64_t* sizes, void** p) { return mixture_means(sizes, p); }
