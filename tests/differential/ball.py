"""Balls: numbers with the error that arithmetic of a given precision may have made in them.

A ball is the f64 value `v` of a formula and a radius `r`: whatever order a backend adds in and wherever it fuses, its result
lies within r of v.  Every operation adds its own rounding: `unit` of the result, and `tiny` where it may have underflowed.
Beyond `most` a result may be infinite, so the radius is infinite: anything goes.  A NaN with a finite radius must come out as no
finite number.
"""

from typing import NamedTuple

import numpy as np

ANY = np.inf


class Arithmetic(NamedTuple):
    """What a backend computes in.

    The reference and f64 tensors are held to 2**-51: half of it is the error of the values here, which are f64, too.  `most` is half
    of the largest number: a difference of two numbers in range is in range."""

    unit: float
    tiny: float
    most: float
    weight: float = 0.0  # of a small weight of an average, absolute
    root: float = 0.0  # of a reciprocal root that is not exact, relative


F32 = Arithmetic(2.0**-24, 2.0**-149, 2.0**127)
LONG = Arithmetic(2.0**-24, 2.0**-1073, 2.0**1022)  # the digits of f32 and the range of f64, for norms
F64 = Arithmetic(2.0**-51, 2.0**-1073, 2.0**1022)
# rsqrt.approx has an error of up to 2**-22.4; the emulated device one of four roundings.
DEVICE_F32 = F32._replace(root=2.0**-22)
# torch.lerp, of which the loop and torch.optim are made, takes the weight beta < 1/2 as 1 minus a rounded 1 - beta.
LERP = {F32: F32._replace(weight=F32.unit), F64: F64._replace(weight=F64.unit)}


def arithmetic_of(tensor, exact, device=False):
    """Of a tensor's step: on the reference, in the kernels, or in those of a device."""
    if exact or tensor["dtype"] == "float64":
        return F64
    return DEVICE_F32 if device else F32


class Ball:
    """Arrays of values and radii; operators add the rounding of one operation."""

    def __init__(self, v, a, r=0.0):
        self.v, self.a = np.asarray(v, np.float64), a
        self.r = np.broadcast_to(np.asarray(r, np.float64), self.v.shape)

    def of(self, other):
        """Another number, exact, in the same arithmetic."""
        return other if isinstance(other, Ball) else Ball(other, self.a)

    def exactly(self, value):
        return (self.v == value) & (self.r == 0)

    def _made(self, v, r, operands, exact=False):
        """The result of one operation; `exact` where it rounds nothing."""
        r = np.where(exact, r, r + self.a.unit * (np.abs(v) + r) + self.a.tiny)
        lost = np.zeros(np.shape(v), bool)
        for x in operands:
            lost = lost | np.isinf(x.r)
        # A value that is NaN, with nothing lost before, is NaN for sure.
        r = np.where(np.isnan(v) & ~lost, 0.0, np.where(np.isnan(r) | lost | (np.abs(v) + r > self.a.most), ANY, r))
        return Ball(v, self.a, r)

    def __add__(self, other):
        y = self.of(other)
        return self._made(self.v + y.v, self.r + y.r, (self, y), self.exactly(0) | y.exactly(0))

    __radd__ = __add__

    def __sub__(self, other):
        y = self.of(other)
        return self._made(self.v - y.v, self.r + y.r, (self, y), y.exactly(0))

    def __mul__(self, other):
        y = self.of(other)
        with np.errstate(all="ignore"):
            r = np.abs(self.v) * y.r + np.abs(y.v) * self.r + self.r * y.r
            exact = self.exactly(0) | y.exactly(0)
            for x in (self, y):
                exact = exact | x.exactly(1) | x.exactly(-1)
            return self._made(self.v * y.v, r, (self, y), exact)

    __rmul__ = __mul__

    def __truediv__(self, other):
        y = self.of(other)
        with np.errstate(all="ignore"):
            least = np.abs(y.v) - y.r
            r = np.where(least > 0, (self.r + np.abs(self.v / y.v) * y.r) / least, np.where(np.isnan(y.v), 0.0, ANY))
            return self._made(self.v / y.v, r, (self, y), (self.exactly(0) & (least > 0)) | y.exactly(1))

    def square(self):
        with np.errstate(all="ignore"):
            return self._made(self.v * self.v, (2 * np.abs(self.v) + self.r) * self.r, (self,), self.exactly(0))

    def sqrt(self):
        with np.errstate(all="ignore"):
            v, low = np.sqrt(self.v), np.sqrt(np.maximum(self.v - self.r, 0))
            return self._made(v, np.maximum(np.sqrt(self.v + self.r) - v, v - low), (self,), self.exactly(0))

    def blurred(self, relative):
        """The same number with so much more error, relative to it."""
        sure = (relative == 0) | ~np.isfinite(self.v)
        return Ball(self.v, self.a, np.where(sure, self.r, self.r + relative * np.where(sure, 0.0, np.abs(self.v) + self.r)))

    def sum(self, axis):
        """In any order: each of n numbers goes through at most n - 1 additions."""
        with np.errstate(all="ignore"):
            v, n = self.v.sum(axis), self.v.size // max(1, self.v.sum(axis).size)
            r = self.r.sum(axis)
            size = (np.abs(self.v) + self.r).sum(axis)
            r = np.where(size == 0, 0.0, r + max(0, n - 1) * (self.a.unit * size + self.a.tiny))
            lost = np.isinf(self.r).any(axis)
            r = np.where(np.isnan(v) & ~lost, 0.0, np.where(np.isnan(r) | lost | (np.abs(v) + r > self.a.most), ANY, r))
            return Ball(v, self.a, r)

    def max(self, axis):
        """NaN if one is."""
        lost = np.isinf(self.r).any(axis)
        low, high = (self.v - self.r).max(axis), (self.v + self.r).max(axis)
        v = self.v.max(axis)
        with np.errstate(all="ignore"):
            r = np.where(np.isnan(v) & ~lost, 0.0, np.where(lost, ANY, np.maximum(high - v, v - low)))
        return Ball(v, self.a, r)

    def within(self, a):
        """The same number in another arithmetic: rounded, where that is the narrower one."""
        if a is self.a or a.unit < self.a.unit:
            return Ball(self.v, a, self.r)
        return Ball(self.v, a)._made(self.v, self.r, (self,), self.exactly(0) | self.exactly(1) | self.exactly(-1))

    def squares(self):
        """The sum of all squares, as norms are made of: in range wherever the numbers are."""
        wide = Ball(self.v, LONG if self.a.unit == F32.unit else self.a, self.r)
        return wide.square().reshape(-1).sum(0).within(F64)

    def reshape(self, *shape):
        return Ball(self.v.reshape(*shape), self.a, self.r.reshape(*shape))

    def __getitem__(self, key):
        return Ball(self.v[key], self.a, self.r[key])

    def low(self):
        return np.where(np.isinf(self.r), -np.inf, self.v - self.r)

    def high(self):
        return np.where(np.isinf(self.r), np.inf, self.v + self.r)


def smaller(x, y):
    """The smaller of two balls, exact but for their radii; NaN if either is."""
    v = np.minimum(x.v, y.v)
    r = np.where(np.isnan(v), 0.0, np.maximum(x.r, y.r))
    return Ball(v, x.a, r)


def average(old, beta, new):
    """beta old + (1 - beta) new, relative to the sum of the two magnitudes.

    For beta >= 1/2 backends take old + (1-beta)(new - old): three roundings of (1-beta)|new - old|, that of 1-beta among them, and
    one of the result; (1-beta)|old| is at most beta |old|.  For less they take the two products: two roundings each, one of
    the sum.  Four roundings cover either.  A beta so small that it is subnormal has an absolute error.
    """
    a = new.a
    with np.errstate(all="ignore"):
        # A weight of zero takes nothing, of infinities either.
        v = (beta * old.v if beta > 0 else 0.0 * np.nan_to_num(old.v)) + (1 - beta) * new.v
        size = beta * (np.abs(old.v) + old.r) + (1 - beta) * (np.abs(new.v) + new.r)
        lerp = a.weight * (np.abs(old.v) + np.abs(new.v)) if beta < 0.5 else 0.0
        r = np.where(size == 0, 0.0, beta * old.r + (1 - beta) * new.r + 4 * (a.unit * size + a.tiny))
        r = r + np.where((beta > 0) & (size > 0), a.tiny * (np.abs(old.v) + np.abs(new.v)), 0.0)
        r = r + lerp
        lost = np.isinf(new.r) | np.isinf(old.r)
        big = np.maximum(np.abs(old.v), np.abs(new.v) + new.r) > a.most
        r = np.where(np.isnan(v) & ~lost, 0.0, np.where(np.isnan(r) | lost | big, ANY, r))
    return Ball(v, a, r)


def choice(known, sure, x):
    """x where `sure`, 0 where it is known not to be, and anything between where that is not known; a NaN is neither."""
    half = np.abs(x.v) / 2 + x.r
    v = np.where(known, np.where(sure | np.isnan(x.v), x.v, 0.0), x.v / 2)
    r = np.where(known, np.where(sure, x.r, 0.0), half)
    lost = np.isinf(x.r) & ~(known & ~sure)
    return Ball(v, x.a, np.where(lost, ANY, np.where(np.isnan(v), 0.0, r)))
