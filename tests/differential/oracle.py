"""One step of every optimizer, from docs/algorithms.md, in balls: what the memory after a step may hold, given what it held before.

Everything downstream of a stored number is taken from the stored number (docs/numerics.md).  So the step is checked stage by stage,
each from what the backend itself has stored in the stage before: errors do not add up, and a code that fell the other way
changes nothing else.  A wrong number raises Wrong.
"""

import numpy as np

from ball import ANY, F32, F64, Ball, average, choice, smaller
from formats import BLOCK, LEVELS, MOMENTUM, PARAMETER, SECOND, code_of, each, f64, random_bits, rounded, second_code
from formats import second_value, unpack, value_of


class Wrong(AssertionError):
    """A stored number outside its ball."""


def gradient(memory, a):
    """A stored gradient; one of f64 is rounded where the arithmetic is f32."""
    stored, dtype = memory
    value = Ball(f64(stored, dtype), F64 if dtype == "float64" else a)
    return value.within(a)


class Subject:
    """One tensor of one step: memory before and after, and the arithmetic that took it there.

    `before` and `after` map "param", "grad" and the names of states to (stored array, dtype); `view` is (factored, batch, rows, cols);
    `between` are roundings of the parameter before the last one."""

    def __init__(self, o, view, before, after, arithmetic, lr, count, id, factor, between=0):
        self.o, self.before, self.after, self.a, self.lr, self.count, self.id = o, before, after, arithmetic, lr, count, id
        self.factored, self.shape, self.between = view[0], tuple(view[1:]), between
        self.elements, self.checked, self.free = int(np.prod(self.shape)), 0, 0
        self.theta = Ball(self.number("param"), self.a)
        # (1): unscaled, clipped, turned.
        sign = Ball(-1.0 if o.maximize else 1.0, F64)
        self.factor = factor
        self.g = gradient(before["grad"], self.a).reshape(self.shape) * (factor * sign).within(self.a)

    def number(self, name):
        stored, dtype = self.before[name]
        return f64(stored, dtype).reshape(self.shape)

    def has(self, name):
        return name in self.after

    def constant(self, x):
        """A number that is computed in f64 and used in the tensor's arithmetic."""
        return (x if isinstance(x, Ball) else Ball(x, F64)).within(self.a)

    def random(self, stream):
        return random_bits(self.o.seed, self.count, self.id, stream, self.elements).reshape(self.shape)

    # ---- what is stored --------------------------------------------------------------------------------

    def expect(self, name, ball, random=None):
        """Checks a stored array of numbers; returns it as exact from now on."""
        stored, dtype = self.after[name]
        got = f64(stored, dtype).reshape(ball.v.shape)
        low, high = (rounded(end, dtype, random) for end in (ball.low(), ball.high()))
        self.judge(name, got, ball, low, high)
        return Ball(got, self.a, np.where(np.isinf(got), ANY, 0.0))

    def judge(self, name, got, ball, low, high):
        nothing, nan = np.isinf(ball.r), np.isnan(ball.v) & ~np.isinf(ball.r)
        with np.errstate(invalid="ignore"):
            right = nothing | np.where(nan, ~np.isfinite(got), (low <= got) & (got <= high))
        self.checked += right.size
        self.free += int(nothing.sum())
        if not right.all():
            at = tuple(int(k[0]) for k in np.nonzero(~right))
            raise Wrong(
                f"{name}{list(at)} is {got[at]!r}, expected {ball.v[at]!r} within [{low[at]!r}, {high[at]!r}]; "
                f"{int((~right).sum())} of {right.size} are wrong"
            )

    def code_type(self):
        return "int8" if self.after["exp_avg"][1] == "int8" else "int4"

    def codes(self, memory, name):
        packed = name == "exp_avg" and self.code_type() == "int4"
        stored = memory[name][0].reshape(*self.shape[:2], -(-self.shape[2] // 2) if packed else self.shape[2])
        return unpack(stored, self.shape[2]) if packed else stored.astype(np.int32)

    def scales(self, memory, name):
        return memory[name + "_scale"][0].reshape(*self.shape[:2], -(-self.shape[2] // BLOCK))

    def moment(self, name, memory=None):
        """A number per element, whatever it is stored as; before the step, unless told."""
        memory = self.before if memory is None else memory
        if name + "_scale" not in memory:
            stored, dtype = memory[name]
            value = f64(stored, dtype).reshape(self.shape)
            return Ball(value, self.a, np.where(np.isinf(value), ANY, 0.0))
        scale = each(self.scales(memory, name), self.shape[2])
        code = self.codes(memory, name)
        value = second_value(code, scale) if name == "exp_avg_sq" else value_of(code, scale, LEVELS[self.code_type()])
        # A code is read with two products in f32, in either order: two roundings here, two there.
        return Ball(value, self.a, np.where(np.isfinite(value), 4 * F32.unit * np.abs(value), np.where(np.isnan(value), 0.0, ANY)))

    def expect_moment(self, name, ball):
        """Checks a moment in whatever storage; returns what is stored as exact."""
        if not self.has(name + "_scale"):
            drawn = self.o.stochastic_rounding and self.after[name][1] in ("bfloat16", "float16")
            return self.expect(name, ball, self.random(MOMENTUM) if drawn else None)
        self.expect_codes(name, ball, second=name == "exp_avg_sq")
        return self.moment(name, self.after)

    def expect_codes(self, name, ball, second):
        b, i, j = self.shape
        pad = [(0, 0), (0, 0), (0, -j % BLOCK)]
        blocks = lambda x: np.pad(x, pad).reshape(b, i, -1, BLOCK)
        size = Ball(np.abs(ball.v), ball.a, ball.r)
        largest = Ball(blocks(size.v), ball.a, blocks(size.r)).max(-1)
        lost = np.isinf(largest.r)

        def scale_of(x):
            x = rounded(np.maximum(x, 0), "float32")
            return np.where((x > 0) & (x < 2.0**-94), 2.0**-94, x) if second else np.where(x < 2.0**-110, 0.0, x)

        scale = self.scales(self.after, name).astype(np.float64)
        self.judge(name + "_scale", scale, largest, scale_of(largest.low()), scale_of(largest.high()))
        # Codes are found in f32: a product, a quotient and two roots, so a magnitude is as good as one 16 roundings away.
        slack = 16 * F32.unit * np.abs(ball.v)
        sigma, got = each(scale, j), self.codes(self.after, name).astype(np.float64)
        ends = [rounded(end, "float32") for end in (ball.v - ball.r - slack, ball.v + ball.r + slack)]
        if second:
            random = self.random(SECOND)
            low, high = (second_code(np.clip(end, 0, sigma), sigma, random) for end in ends)
        else:
            low, high = (code_of(end, sigma, LEVELS[self.code_type()]) for end in ends)
        free = each(lost, j) | ~np.isfinite(sigma)
        self.judge(name, got, Ball(np.where(free, 0.0, ball.v), ball.a, np.where(free, ANY, ball.r)), low, high)

    def move(self, decay, move):
        """(4): decay and move in one rounding."""
        theta = self.theta
        change = (theta * self.constant(decay) + move) if np.any(decay.v != 0) else move
        # The difference is rounded as it is stored; here it is rounded to f64.
        value = Ball(theta.v - change.v, self.a, change.r + 2.0**-53 * np.abs(theta.v - change.v))
        value.r = value.r + self.between * self.a.unit * np.abs(theta.v)
        lost = np.isinf(change.r) | (np.abs(value.v) + value.r > self.a.most)
        value.r = np.where(np.isnan(value.v) & ~np.isinf(change.r), 0.0, np.where(lost | np.isnan(value.r), ANY, value.r))
        dtype = self.after["param"][1]
        drawn = self.o.stochastic_rounding and dtype in ("bfloat16", "float16")
        self.expect("param", value, self.random(PARAMETER) if drawn else None)

    # ---- what several share ----------------------------------------------------------------------------

    def agreement(self, direction, rescale=True):
        """(3): the direction where its sign is the gradient's, and the factor of the rest."""
        if not self.o.cautious:
            return lambda s: s
        # A sign is known unless its ball has both, or a zero that was none; so is a zero that is exact.
        known = np.ones(self.shape, bool)
        agree = np.sign(direction.v) * np.sign(self.g.v) > 0
        for x in (direction, self.g):
            known &= (np.abs(x.v) > x.r) | x.exactly(0) | np.isnan(x.v)
        zero = direction.exactly(0) | self.g.exactly(0)
        known |= zero
        agree &= ~zero
        if not rescale:
            return lambda s: choice(known, agree, s)
        n = max(1, self.elements)
        least, most = int((agree & known).sum()), int((agree | ~known).sum())
        ends = [n / max(count, 1e-3 * n) for count in (most, least)]
        factor = Ball(sum(ends) / 2, F64, (ends[1] - ends[0]) / 2)
        return lambda s: choice(known, agree, s * self.constant(factor))

    def factors(self, name, x, beta, eps):
        """(5), (6): averages of the means over rows and columns; returns them as stored."""
        made = []
        for suffix, axis in (("_row", 2), ("_col", 1)):
            stored, dtype = self.before[name + suffix]
            old = Ball(f64(stored, dtype).reshape(np.delete(self.shape, axis)), self.a)
            mean = x.sum(axis).within(F64) / max(1, self.shape[axis]) + eps
            made.append(self.expect(name + suffix, average(old, beta, mean.within(self.a))))
        return made

    def root(self, row, col, factor, within=1.0):
        """factor * sqrt(mean(row) / (row_i col_j)), in the parts that a backend rounds: of a row, and of a column.

        A backend has `within` in the row's part, too: where that is subnormal it has fewer digits, and where it is beyond the
        range the part is any finite number."""
        wide = lambda x: x.within(F64)
        mean = row.sum(1).within(F64) / max(1, self.shape[1])
        of_row = wide(factor) * mean.sqrt()[:, None] / wide(row).sqrt()
        lost = np.isinf((of_row * within).within(self.a).r)
        of_row = of_row.within(self.a)
        size = np.abs(within.v if isinstance(within, Ball) else within)
        with np.errstate(all="ignore"):
            of_row.r = np.where(size > 0, of_row.r + self.a.tiny / size, of_row.r)
        of_row.r = np.where(lost, ANY, of_row.r)
        of_col = Ball(np.ones(col.v.shape), self.a) / col.sqrt()
        return of_row[:, :, None], of_col[:, None, :]

    @staticmethod
    def product(x, row, col):
        """x row col in either order; 0 where x is, if the others are finite."""
        with np.errstate(invalid="ignore"):
            one, other = (x * row) * col, (x * col) * row
        zero = x.exactly(0) & np.isfinite(row.v) & np.isfinite(col.v)
        return Ball(np.where(zero, 0.0, one.v), one.a, np.where(zero, 0.0, np.maximum(one.r, other.r)))

    def lost_squares(self, row, col):
        """What the mean square of an update may miss: gradients over the root of one average are squared, times 2**64, before they
        are divided by the other, and what is subnormal then is rounded."""
        size = row.sum(1).v / max(1, self.shape[1])
        with np.errstate(all="ignore"):
            by_rows = self.shape[1] * (1 / col.v).sum(1) * size
            by_columns = self.shape[2] * (1 / row.v).sum(1) * size
            lost = self.a.tiny * 2.0**-64 * np.fmax(by_rows, by_columns).sum() / max(1, self.elements)
        return lost if np.isfinite(lost) else 0.0

    def update(self, beta2):
        """(5) to (8): the clipped update."""
        o, one = self.o, Ball(1.0, F64)
        x = self.g.square()
        if self.factored:
            row, col = self.factors("exp_avg_sq", x, beta2, o.eps1)
            u = self.product(self.g, *self.root(row, col, one, self.factor))
        else:
            old = self.moment("exp_avg_sq")
            v = self.expect("exp_avg_sq", average(old, beta2, x + self.constant(o.eps1)))
            u = (self.g / v.sqrt()).blurred(self.a.root)
        if self.elements == 0:
            return u
        mean_square = u.squares() / self.elements
        if self.factored:
            mean_square.r = mean_square.r + self.lost_squares(row, col)
        ratio = mean_square.sqrt().blurred(self.a.root) / o.clip_threshold
        if np.isnan(ratio.v) and not np.isinf(ratio.r):
            return u  # a NaN does not clip
        ratio = Ball(np.fmax(ratio.v, 1.0), F64, np.where(ratio.high() <= 1, 0.0, ratio.r))
        factor = one / ratio
        if not self.factored:
            return u * self.constant(factor)
        return self.product(self.g, *self.root(row, col, factor, self.factor))


def came(s):
    o = s.o
    u = s.update(o.beta2)
    m = s.expect_moment("exp_avg", average(s.moment("exp_avg"), o.beta1, u))
    instability = (u - m).square()
    correction = Ball(1 - o.beta3**s.count if o.bias_correction else 1.0, F64).sqrt()
    agree, lr = s.agreement(m), Ball(s.lr, F64)
    if s.factored:
        row, col = s.factors("exp_avg_res", instability, o.beta3, o.eps2)
        move = s.product(m, *s.root(row, col, lr * correction))
    elif o.confidence_1d:
        old = s.moment("exp_avg_res")
        full = s.expect("exp_avg_res", average(old, o.beta3, instability + s.constant(o.eps2)))
        move = m * s.constant(lr * correction) / full.sqrt()
    else:
        move = m * s.constant(lr)
    s.move(Ball(s.lr * o.weight_decay, F64), agree(move))


def adafactor(s):
    o = s.o
    u = s.update(1 - s.count**o.beta2_decay if o.beta2_decay < 0 else o.beta2)
    rate = Ball(s.lr, F64)
    if o.relative_step:
        rate = Ball(min(1e-6 * s.count if o.warmup_init else 1e-2, s.count**-0.5), F64)
    if o.scale_parameter and s.elements:
        rms = (s.theta.squares() / s.elements).sqrt()
        rate = rate * Ball(np.fmax(o.eps2, rms.v), F64, rms.r)  # a NaN is not the larger one
    decay = rate * o.weight_decay
    if not s.has("exp_avg"):
        s.move(decay, u * s.constant(rate))
        return
    value = u * s.constant(rate) if o.lr_in_momentum else u
    m = s.expect_moment("exp_avg", average(s.moment("exp_avg"), o.beta1, value))
    move = m if o.lr_in_momentum else m * s.constant(rate)
    s.move(decay, s.agreement(m)(move))


def moments(s, g):
    """(19)"""
    old = s.moment("exp_avg_sq")
    v = s.expect_moment("exp_avg_sq", average(old, s.o.beta2, g.square()))
    m = s.expect_moment("exp_avg", average(s.moment("exp_avg"), s.o.beta1, g))
    return m, v


def divided(s, m, v, rate, corrects=True):
    """rate m / (sqrt(v / correction2) + eps), by a rate or by the numbers it is made of, one after the other."""
    # A momentum that is subnormal, or becomes so on the way, is rounded once more.
    m = Ball(m.v, m.a, np.where(m.exactly(0), m.r, m.r + m.a.tiny))
    root = Ball((1 - s.o.beta2**s.count) ** -0.5 if corrects else 1.0, F64)
    return (m * s.constant(rate)) / (v.sqrt() * s.constant(root) + s.constant(s.o.eps))


def adam(s, decoupled=False):
    o = s.o
    if not decoupled:
        # (18); 0 times a parameter that is no number need not be taken.
        whole = s.g + s.theta * s.constant(o.weight_decay) if o.weight_decay else s.g
        s.g = Ball(whole.v, s.a, np.where(np.isfinite(s.theta.v), whole.r, ANY))
    m, v = moments(s, s.g)
    move = divided(s, m, v, Ball(s.lr / (1 - o.beta1**s.count), F64))
    s.move(Ball(s.lr * o.weight_decay if decoupled else 0.0, F64), s.agreement(m)(move))


def adamw(s):
    adam(s, decoupled=True)


def lamb(s):
    o = s.o
    m, v = moments(s, s.g)
    corrects = bool(o.bias_correction)
    u = divided(s, m, v, Ball(1 / (1 - o.beta1**s.count) if corrects else 1.0, F64), corrects)
    u = u + s.theta * s.constant(o.weight_decay)
    u = s.agreement(u, rescale=False)(u)
    squares = [x.squares() for x in (s.theta, u)]
    if any(x.exactly(0) for x in squares):
        ratio = Ball(1.0, F64)  # (23)
    elif any(np.isnan(x.v) and not np.isinf(x.r) for x in squares):
        ratio = Ball(1.0, F64)  # neither is a NaN greater than 0; what is NaN stays so
    elif any(x.v - x.r <= 0 for x in squares):
        ratio = Ball(1.0, F64, ANY)
    else:
        ratio = squares[0].sqrt() / squares[1].sqrt()
    s.move(Ball(0.0, F64), u * s.constant(Ball(s.lr, F64) * ratio))


def sm3(s):
    o, x = s.o, s.g.square()
    if s.factored:
        old = []
        for suffix, axis in (("_row", 2), ("_col", 1)):
            stored, dtype = s.before["accumulator" + suffix]
            number = np.expand_dims(f64(stored, dtype).reshape(np.delete(s.shape, axis)), axis)
            old.append(Ball(np.broadcast_to(number, s.shape), s.a, np.where(np.isinf(number), ANY, 0.0)))
        cover = smaller(*old) + x
        for suffix, axis in (("_row", 2), ("_col", 1)):
            if s.shape[axis] > 0:
                s.expect("accumulator" + suffix, cover.max(axis))
    else:
        cover = s.moment("accumulator") + x
        s.expect("accumulator", cover)
    direction = s.g / (cover + s.constant(o.eps)).sqrt()
    if s.has("exp_avg"):
        m = s.expect_moment("exp_avg", average(s.moment("exp_avg"), o.beta1, direction))
        direction = s.agreement(m)(m)
    s.move(Ball(s.lr * o.weight_decay, F64), direction * s.constant(s.lr))


STEPS = {"came": came, "adafactor": adafactor, "adam": adam, "adamw": adamw, "lamb": lamb, "sm3": sm3}


def gradient_factor(o, grad_scale, grads):
    """(1), (2) in f64; `grads` are balls of all gradients that take part."""
    factor = Ball(1.0, F64) / Ball(grad_scale, F64)
    if o.max_grad_norm == 0:
        return factor
    if any(np.isinf(g.v).any() for g in grads):
        return Ball(0.0, F64)
    total = Ball(0.0, F64)
    for g in grads:
        total = total + (g * factor.within(g.a)).squares()
    norm = total.sqrt()
    if np.isnan(norm.v) and not np.isinf(norm.r):
        return Ball(0.0, F64)
    if norm.exactly(0):
        return factor
    ratio = Ball(o.max_grad_norm, F64) / (norm + 1e-6)
    return factor * Ball(np.minimum(ratio.v, 1.0), F64, np.where(ratio.low() >= 1, 0.0, ratio.r))
