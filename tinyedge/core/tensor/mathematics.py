"""Elementary functions composed of primitives, accurate over the whole line.

A form that subtracts nearly equal numbers is replaced by one that does not, and none relies on an
operation being rounded in a certain way: compilers of kernels may contract and reorder arithmetic.
The results are within a few units in the last place wherever exp, log and tanh are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tinyedge.core import dtype as dt
from tinyedge.core.tensor.elementwise import Elementwise

T = TypeVar("T", bound=Elementwise)

# erfc(x) = exp(-x^2) P(u) / (1 + 0.4 x) for x >= 0, where u = (1 - 0.4 x) / (1 + 0.4 x): the
# coefficients of P by Chebyshev interpolation, to 7e-9 and to 4e-15.
# fmt: off
TAIL = (
    0.4216127272, 0.3218607667, 0.1815657422, 0.06849986121, 0.01134323142, -0.003353494205,
    -0.001920545671, 0.0001658947871, 0.0002655726987, -1.094815713e-05, -2.881487518e-05,
)
TAIL_OF_DOUBLES = (
    0.42161272812228723, 0.32186073977565915, 0.18156564665925193, 0.06850045809854989,
    0.01134462005196057, -0.0033572177248111647, -0.0019275141944645195, 0.00017568335841281507,
    0.00028107737409430124, -2.332350257018588e-05, -4.5041476169931215e-05, 7.81455243837963e-06,
    7.296845265302813e-06, -2.7063099942593673e-06, -9.324439022434747e-07, 7.93267366135022e-07,
    -7.020951880980017e-10, -1.8867930789406728e-07, 5.112990353613561e-08, 3.4736510209612747e-08,
    -1.6949037172741716e-08, -4.667564431301945e-09, 2.2910347264755557e-09, 3.857594398710993e-10,
    1.4229212169047604e-12,
)
# fmt: on
ALL_BELOW = 40.0  # exp(-x^2 / 2) is 0 from there on, of doubles too


def polynomial(x: T, coefficients: Sequence[float]) -> T:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    result = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result = (result + coefficient) * x
    return result + coefficients[0]


def _terms(x: T, single: int, double: int) -> range:
    """The terms of a series that float32, or float64, takes."""
    return range(double if x.dtype is dt.float64 else single)


def log1p(x: T) -> T:
    """log(1 + x): near 0 by 2 artanh(s / 2) with s = x / (1 + x / 2)."""
    s = x / (1.0 + x * 0.5)
    near = s * polynomial(s * s * 0.25, [1 / (2 * k + 1) for k in _terms(x, 6, 12)])
    return ((x > -1 / 3) & (x < 0.5)).where(near, (1.0 + x).log())


def expm1(x: T) -> T:
    """exp(x) - 1: near 0 by its series."""
    near = x * polynomial(x, [1 / math.factorial(k + 1) for k in _terms(x, 10, 18)])
    return (x.abs() < 0.5).where(near, x.exp() - 1.0)


def sigmoid(x: T) -> T:
    """1 / (1 + exp(-x)), of negative x as exp(x) / (1 + exp(x)): nothing overflows."""
    e = (-x.abs()).exp()
    return (x < 0).where(e, 1.0) * (1.0 / (1.0 + e))  # a reciprocal is cheaper than a quotient


def softplus(x: T) -> T:
    """log(1 + exp(x)), without overflow."""
    return x.maximum(0.0) + log1p((-x.abs()).exp())


def silu(x: T) -> T:
    """x * sigmoid(x). In its lower tail, x * exp(x), the exponential is subnormal before the
    product is: x is multiplied by the root of exp(x), twice.
    """
    root = (x.abs() * -0.5).exp()
    e = root * root
    return (x < 0).where(x * root * root, x) / (1.0 + e)


def mish(x: T) -> T:
    """x * tanh(softplus(x)), where tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2)."""
    root = (x.minimum(20.0) * 0.5).exp()  # beyond, the quotient is 1
    e = root * root
    below = x < 0
    quotient = below.where(root, e) * (e + 2.0) / (e * (e + 2.0) + 2.0)
    return below.where(x * root, x) * quotient


def _scaled_erfc(x: T, scale: float = 1.0) -> T:
    """erfc(z) * exp(z^2) for z = scale * x >= 0."""
    t = 1.0 / (1.0 + 0.4 * scale * x)
    return t * polynomial(2.0 * t - 1.0, TAIL_OF_DOUBLES if x.dtype is dt.float64 else TAIL)


def erf(x: T) -> T:
    """The error function: near 0 by its series, beyond 1 as 1 - erfc."""
    size = x.abs().minimum(ALL_BELOW)
    large = 1.0 - (-(size * size)).exp() * _scaled_erfc(size)
    slope = 2.0 / math.sqrt(math.pi)
    terms = [(-1.0) ** n * slope / (math.factorial(n) * (2 * n + 1)) for n in _terms(x, 10, 19)]
    small = polynomial(x * x, [terms[0] - 1.0, *terms[1:]]) * x + x
    return (x.abs() < 1.0).where(small, (x < 0).where(-large, large))


def gelu(x: T) -> T:
    """x * Phi(x) = x * erfc(-x / sqrt(2)) / 2, of which the lower tail keeps its digits."""
    size = x.abs().minimum(ALL_BELOW)
    tail = _exp_of_half_square(size) * (0.5 * _scaled_erfc(size, math.sqrt(0.5)))
    return x * (x < 0).where(tail, 1.0 - tail)


def _exp_of_half_square(x: T) -> T:
    """exp(-x^2 / 2). What rounding takes from the square, exp would multiply: it is found from a
    neighbor of x whose square is exact.
    """
    half = x * x * 0.5
    neighbor = (x * 16.0).round() * 0.0625
    lost = (neighbor * neighbor * 0.5 - half) + (x - neighbor) * (x + neighbor) * 0.5
    return (-half).exp() * (1.0 - lost)


def gelu_by_tanh(x: T) -> T:
    """x * (1 + tanh(u)) / 2 = x * sigmoid(2 u), of which the lower tail keeps its digits."""
    return x * sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * (x * x * x)))


def sinh(x: T) -> T:
    """Near 0 by its series. exp(|x|) in two factors, because it overflows before its half does."""
    series = [1 / math.factorial(2 * k + 1) for k in _terms(x, 9, 14)]
    half = (x.abs() * 0.5).exp()
    large = half * 0.5 * half - 0.5 / half / half
    return (x.abs() < 2.0).where(x * polynomial(x * x, series), (x < 0).where(-large, large))


def cosh(x: T) -> T:
    half = (x.abs() * 0.5).exp()
    return half * 0.5 * half + 0.5 / half / half


def asinh(x: T) -> T:
    """sign(x) * log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))); beyond 1e9, log(2 |x|)."""
    size = x.abs()
    moderate = size.minimum(1e9)
    square = moderate * moderate
    near = log1p(moderate + square / (1.0 + (square + 1.0).sqrt()))
    large = (size < 1e9).where(near, size.log() + math.log(2.0))
    return (x < 0).where(-large, large)


def acosh(x: T) -> T:
    """log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1; beyond 1e9, log(2 x)."""
    t = x - 1.0
    near = log1p(t + t.sqrt() * (t + 2.0).sqrt())
    return (x < 1e9).where(near, x.log() + math.log(2.0))


def atanh(x: T) -> T:
    """sign(x) / 2 * log1p(2 |x| / (1 - |x|))."""
    size = x.abs()
    large = 0.5 * log1p(2.0 * size / (1.0 - size))
    return (x < 0).where(-large, large)


def atan(x: T) -> T:
    """By the series, reduced to |t| <= tan(pi/8).

    atan(a) = pi/2 - atan(1/a) = pi/4 + atan((a - 1) / (a + 1)).
    """
    size = x.abs()
    inverted = size > 1.0
    small = inverted.where(1.0 / size, size)
    shifted = small > math.tan(math.pi / 8)
    t = shifted.where((small - 1.0) / (small + 1.0), small)
    near = t * polynomial(t * t, [(-1.0) ** k / (2 * k + 1) for k in _terms(x, 11, 23)])
    angle = shifted.where(near + math.pi / 4, near)
    result = inverted.where(math.pi / 2 - angle, angle)
    return (x < 0).where(-result, x.isnan().where(x, result))


def asin(x: T) -> T:
    return atan(x / ((1.0 - x) * (1.0 + x)).sqrt())


def acos(x: T) -> T:
    """2 * atan(sqrt((1 - x) / (1 + x))), accurate at both ends."""
    return 2.0 * atan(((1.0 - x) / (1.0 + x)).sqrt())
