"""Names that options take, for the parsers: the tables behind them need torch, and a help text must not wait for it.

A test compares each of them with its table.
"""

MODELS = (
    "bank",
    "issm",
    "gls",
    "deepstate",
    "markov",
    "sgls",
    "rsgls",
    "rsgls-issm",
    "pool",
    "arsgls",
    "kvae-rb",
    "kvae-mc",
)
AUTO = "auto"
TRAINED = (AUTO, *MODELS)  # what `train` takes

DATASETS = (
    "exchange", "electricity", "electricity-18dec", "traffic", "solar", "wiki", "taxi-blizzard", "eia-2020",
    "electricity-2012-2014", "exchange-full", "electricity-full", "traffic-full", "solar-full", "wiki-full",
)  # fmt: skip
STREAMS = ("digits", "breast-cancer", "diabetes", "phishing")
PREPARED = ("elec2", "noaa", "gas-drift", "spambase", "uci-regression", "mnist")

BANDITS = ("linear", "wheel", "clicks")
BANDIT_TABLES = ("adult", "covertype", "shuttle", "mushroom", "movielens", "mnist")
AGENTS = (
    "linear", "linucb", "linear-window", "adf", "ep", "laplace", "fab-cost", "ekf", "iterated-ekf", "decoupled-ekf",
    "vd-ekf", "lofi", "lrkf", "bong", "blr", "bog", "bbb", "wolf-ekf", "ogd", "vb", "subspace-svd",
    "subspace-random", "subspace-svd-diagonal", "neural-linear", "neural-linear-limited", "neural-greedy", "lim2",
    "neural-ts", "neural-ucb", "bootstrap", "dropout", "stein",
)  # fmt: skip
RULES = ("thompson", "ucb", "greedy", "epsilon")
ENCODINGS = ("output", "concatenated", "block")

LEARNERS = (
    "ekf", "iterated-ekf", "subspace-ekf", "decoupled-ekf", "vd-ekf", "lofi", "lrkf", "bong", "blr", "bog", "bbb",
    "wolf-ekf", "adf", "ogd", "vb",
)  # fmt: skip
OF_NUMBERS = tuple(name for name in LEARNERS if name != "adf")
DRIFTS = ("none", "wiener", "ou", "forgetting", "exponential", "shrink")
MEMORIES = ("none", "random", "k-center", "grs")
MEMORIES_OF_WINDOWS = ("none", "random", "grs")
ACTIVATIONS = ("tanh", "relu", "sigmoid")
WEIGHTS = ("none", "imq", "gate")
FUNCTIONS = ("branin", "ackley-2", "ackley-5", "hartmann-6")
ENGINES = ("local", "ray")
EVIDENCE = ("likelihood", "objective")

BASELINES = (
    "seasonal_naive", "random_walk", "empirical_seasonal", "empirical_random_walk", "auto_ets", "auto_theta", "mstl",
    "auto_arima", "deepar",
)  # fmt: skip
