"""How cases are drawn: plain data that JSON can hold, small first, so that a failure shrinks to a few lines."""

from hypothesis import strategies as st

from numbers_of import FAMILIES

OPTIMIZERS = ("adam", "adamw", "sm3", "lamb", "adafactor", "came")
SECOND_MOMENT = ("adam", "adamw", "lamb")
SIZES = (1, 2, 3, 0, 7, 16, 17, 33, 64, 65, 127, 128, 129, 257)
MOST_ELEMENTS = 2_000

sizes = st.sampled_from(SIZES)
# Whole ranges, with what is usual and what lies at the ends more often than in between.
betas = st.one_of(
    st.sampled_from([0.9, 0.999, 0.9999, 0.0, 0.5, 0.99, 0.499, 1e-3, 1e-10, 1 - 1e-6, 1 - 2.0**-24, 1 - 2.0**-40]),
    st.floats(0, 1 - 2.0**-40),  # docs/numerics.md, "Ranges"
)
epsilons = st.one_of(st.sampled_from([1e-8, 1e-30, 1e-16, 1e-3, 1.0, 1e-6]), st.floats(-30, 2).map(lambda e: 10.0**e))
rates = st.one_of(st.sampled_from([1e-3, 0.0, 0.1, 1.0, 10.0, 1e-6]), st.floats(-12, 3).map(lambda e: 10.0**e))
decays = st.one_of(st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.floats(-6, 2).map(lambda e: 10.0**e))
norms = st.one_of(st.just(0.0), st.sampled_from([1.0, 1e-3, 1e6]), st.floats(-10, 20).map(lambda e: 10.0**e))
thresholds = st.one_of(st.sampled_from([1.0, 0.1, 1e6]), st.floats(-6, 6).map(lambda e: 10.0**e))
powers = st.one_of(st.just(0), st.sampled_from([-4, 4, -8, 8, -15, 15, -20, 18, -25, -30, 30, -38, -40, -44]))
flags = st.booleans().map(int)


def shapes(most_dims=4):
    def fits(shape):
        count = 1
        for size in shape:
            count *= max(1, size)
        return count <= MOST_ELEMENTS

    small = st.lists(sizes, max_size=most_dims).filter(fits)
    wide = st.sampled_from([[5000], [3, 5000], [5000, 3], [1, 16400], [65, 66], [2, 65, 66], [130, 129], [257, 70], [2, 3, 2, 1200]])
    # Matrices are what most of the code is for.
    matrix = st.lists(sizes, min_size=2, max_size=2).filter(fits)
    return st.integers(0, 11).flatmap(lambda k: wide if k == 11 else small if k > 6 else matrix)


@st.composite
def options(draw, word, momentum=True):
    """Options that differ from the defaults; `came_options` names."""

    def maybe(name, strategy, into, often=2):
        if draw(st.integers(0, often)) == often:
            into[name] = draw(strategy)

    made = {}
    keeps = word in ("came", *SECOND_MOMENT)
    maybe("beta1", betas.filter(lambda b: b > 0) if word == "came" else betas, made)
    if word != "sm3":
        maybe("beta2", betas, made)
    if word == "came":
        maybe("beta3", betas, made)
    maybe("weight_decay", decays, made)
    maybe("max_grad_norm", norms, made, 4)
    maybe("maximize", flags, made, 4)
    if word in (*SECOND_MOMENT, "sm3"):
        maybe("eps", epsilons, made)
    if word in ("came", "adafactor"):
        maybe("eps1", epsilons, made, 4)
        maybe("eps2", epsilons, made, 4)
        maybe("clip_threshold", thresholds, made)
    if word in ("came", "adafactor", "sm3"):
        maybe("view", st.sampled_from(["fold", "last_two"]), made)
    if word in ("came", "lamb"):
        maybe("bias_correction", flags, made)
    if word == "came":
        maybe("confidence_1d", flags, made)
    if word == "adafactor":
        maybe("beta2_decay", st.sampled_from([-0.8, -0.5, -1.0, -3.0]), made)
        for name in ("scale_parameter", "lr_in_momentum", "relative_step"):
            maybe(name, flags, made)
        if made.get("relative_step"):
            maybe("warmup_init", flags, made)
    if momentum:
        maybe("momentum_dtype", st.sampled_from(["f32", "bf16", "int8", "int4"]), made, 1)
        if word in SECOND_MOMENT:
            maybe("second_moment_dtype", st.just("int8"), made)
    if keeps or made.get("beta1", 0.9) > 0:
        if made.get("beta1", 0.9) > 0:
            maybe("cautious", flags, made)
    maybe("stochastic_rounding", flags, made)
    if made.get("stochastic_rounding"):
        maybe("seed", st.integers(0, 2**64 - 1), made)
    return made


dtypes = st.sampled_from(["float32", "float64", "bfloat16", "float16"])


@st.composite
def tensors(draw, groups):
    made = {"shape": draw(shapes()), "dtype": draw(dtypes), "family": draw(st.sampled_from(sorted(FAMILIES)))}
    made["power"] = draw(st.sampled_from([0, -2, 2, None, -10, -30, 15]))
    if draw(st.integers(0, 3)) == 3:
        made["grad_dtype"] = draw(dtypes)
    if groups > 1:
        made["group"] = draw(st.integers(0, groups - 1))
    return made


@st.composite
def steps(draw, count):
    made = {"seed": draw(st.integers(0, 1000)), "power": draw(powers), "lr": draw(rates)}
    if draw(st.integers(0, 4)) == 4:
        made["grad_scale"] = draw(st.sampled_from([2.0, 65536.0, 0.125, 3.0, 1e-10, 1e10]))
    if draw(st.integers(0, 6)) == 6:
        made["found_inf"] = draw(st.sampled_from([0.0, 1.0]))
    if draw(st.integers(0, 4)) == 4:
        made["active"] = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return made


@st.composite
def cuts(draw, shape):
    """Points along one dimension or two."""
    if not shape:
        return None
    dims = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=2, unique=True))
    points = lambda d: draw(st.lists(st.integers(0, shape[d]), min_size=0 if len(dims) > 1 else 1, max_size=3 - len(dims)))
    return [[d, sorted(points(d))] for d in sorted(dims)]


@st.composite
def plan_cases(draw):
    word = draw(st.sampled_from(OPTIMIZERS))
    groups = [draw(options(word)) for _ in range(draw(st.sampled_from([1, 1, 1, 2])))]
    if len(groups) > 1:
        groups[1]["max_grad_norm"] = groups[0].get("max_grad_norm", 0.0)
    made = {"level": "plan", "optimizer": word, "options": groups}
    made["tensors"] = draw(st.lists(tensors(len(groups)), min_size=1, max_size=3))
    made["seed"] = draw(st.integers(0, 100))
    made["steps"] = draw(st.lists(steps(len(made["tensors"])), min_size=1, max_size=4))
    for name, strategy in (
        ("count", st.sampled_from([1, 9, 1000, 2**20, 2**24 - 5])),
        ("counter_dtype", st.sampled_from(["float32", "float64"])),
        ("threads", st.sampled_from([2, 3])),
        ("flush", st.just(True)),
        ("shift", st.integers(1, 7)),
        ("scalars", st.just("device")),
        ("cut", cuts(made["tensors"][0]["shape"])),
    ):
        if draw(st.integers(0, 2)) == 2:
            value = draw(strategy)
            if value is not None:
                made[name] = value
    return made
