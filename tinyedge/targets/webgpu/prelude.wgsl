// Helpers of generated kernels. A kernel gets those that it uses; a helper for vectors that is not written here
// applies the one for scalars to each lane. WGSL compilers may assume that no NaN and no infinity occurs, so NaN
// is tested by its bits, constants that are not finite come from a variable, and built-in functions only see
// arguments for which they are right everywhere.
var<private> te_bits_infinity: u32 = 0x7f800000u;
var<private> te_bits_nan: u32 = 0x7fc00000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_nan() -> f32 { return bitcast<f32>(te_bits_nan); }

fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_isnan_f32x2(x: vec2<f32>) -> vec2<bool> { return (bitcast<vec2<u32>>(x) & vec2<u32>(0x7fffffffu)) > vec2<u32>(0x7f800000u); }
fn te_isnan_f32x4(x: vec4<f32>) -> vec4<bool> { return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u); }
// x - x and x * 0, which compilers fold to 0.
fn te_nothing_f32(x: f32) -> f32 { return select(te_nan(), 0.0, (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u); }
fn te_eq_f32(a: f32, b: f32) -> bool { return (a == b) & !(te_isnan_f32(a) | te_isnan_f32(b)); }

fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
fn te_max_f32x2(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return select(a, b, (a < b) | te_isnan_f32x2(b)); }
fn te_max_f32x4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (a < b) | te_isnan_f32x4(b)); }
fn te_min_f32(a: f32, b: f32) -> f32 { return select(a, b, (a > b) | te_isnan_f32(b)); }
fn te_min_f32x2(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return select(a, b, (a > b) | te_isnan_f32x2(b)); }
fn te_min_f32x4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (a > b) | te_isnan_f32x4(b)); }

fn te_exp_f32(x: f32) -> f32 {
    let y = select(exp(clamp(x, -104.0, 88.72283)), te_infinity(), x > 88.72283);
    return select(y, x, te_isnan_f32(x));
}
fn te_exp_f32x4(x: vec4<f32>) -> vec4<f32> {
    let y = select(exp(clamp(x, vec4<f32>(-104.0), vec4<f32>(88.72283))), vec4<f32>(te_infinity()), x > vec4<f32>(88.72283));
    return select(y, x, te_isnan_f32x4(x));
}
fn te_tanh_f32(x: f32) -> f32 { return select(tanh(clamp(x, -10.0, 10.0)), x, te_isnan_f32(x)); }
fn te_tanh_f32x4(x: vec4<f32>) -> vec4<f32> { return select(tanh(clamp(x, vec4<f32>(-10.0), vec4<f32>(10.0))), x, te_isnan_f32x4(x)); }
fn te_log_f32(x: f32) -> f32 {
    var y = log(clamp(x, 1.17549435e-38, 3.4028234e38));
    y = select(y, -te_infinity(), x < 1.17549435e-38);
    y = select(y, te_nan(), x < 0.0);
    return select(y, x, (x > 3.4028234e38) | te_isnan_f32(x));
}
fn te_sqrt_f32(x: f32) -> f32 {
    let y = select(sqrt(clamp(x, 0.0, 3.4028234e38)), te_nan(), x < 0.0);
    return select(y, x, (x == 0.0) | (x > 3.4028234e38) | te_isnan_f32(x));
}

// x^y: 1 for y = 0 and for x = 1, NaN included; the sign of an odd integer power of a negative number.
fn te_pow_f32(x: f32, y: f32) -> f32 {
    let base = abs(x);
    let power = y * select(log2(clamp(base, 1.17549435e-38, 3.4028234e38)), te_infinity(), base > 3.4028234e38);
    var z = exp2(clamp(power, -150.0, 127.99999));
    z = select(z, te_infinity(), power >= 128.0);
    z = select(z, select(0.0, te_infinity(), y < 0.0), base < 1.17549435e-38);
    let whole = (y == floor(y)) | (abs(y) > 3.4028234e38);
    let odd = whole & (abs(y) < 16777216.0) & (y - 2.0 * floor(y * 0.5) == 1.0);
    z = select(z, -z, odd & ((bitcast<u32>(x) >> 31u) == 1u));
    z = select(z, te_nan(), (x < 0.0) & (base <= 3.4028234e38) & !whole);
    z = select(z, 1.0, (base == 1.0) & (abs(y) > 3.4028234e38));
    z = select(z, te_nan(), te_isnan_f32(x) | te_isnan_f32(y));
    return select(z, 1.0, te_eq_f32(x, 1.0) | te_eq_f32(y, 0.0));
}

// x - trunc(x / y) * y without rounding: a long division of the significands, eight bits of the quotient a turn.
fn te_fmod_f32(x: f32, y: f32) -> f32 {
    let a = bitcast<u32>(x) & 0x7fffffffu;
    let b = bitcast<u32>(y) & 0x7fffffffu;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return te_nan(); }
    if (a < b) { return x; }
    let exponent = max(i32(b >> 23u), 1);
    let divisor = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
    var rest = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % divisor;
    for (var left = max(i32(a >> 23u), 1) - exponent; left > 0; left -= 8) {
        rest = (rest << u32(min(left, 8))) % divisor;
    }
    let shift = countLeadingZeros(rest) - 8u;
    let power = exponent - i32(shift);
    var bits = (u32(power) << 23u) | ((rest << shift) & 0x7fffffu);
    if (power < 1) { bits = rest << u32(exponent - 1); }
    return bitcast<f32>(select(bits, 0u, rest == 0u) | (bitcast<u32>(x) & 0x80000000u));
}

// Sine and cosine: k = round(x / (pi/2)) and r = x - k * pi/2 by Cody and Waite (Software Manual for the Elementary
// Functions, 1980): pi/2 in parts of 8 bits, so that products with k < 2^16 are exact; then the polynomials of
// Cephes' sinf and cosf (Moshier) on [-pi/4, pi/4]. Beyond 1e5 the built-in function has to do.
fn te_quadrant(x: f32) -> vec2<f32> {
    let k = round(clamp(x, -1e5, 1e5) * 0.63661977);
    let r = (((x - k * 1.5703125) - k * 0.0004825592041015625) - k * 0.00000126659870147705) - k * 9.920936e-10;
    return vec2<f32>(r, k);
}
fn te_sin_part(r: f32) -> f32 {
    let z = r * r;
    return ((-1.9515296e-4 * z + 8.332161e-3) * z - 0.16666655) * z * r + r;
}
fn te_cos_part(r: f32) -> f32 {
    let z = r * r;
    return ((2.4433157e-5 * z - 1.3887316e-3) * z + 0.041666646) * z * z - 0.5 * z + 1.0;
}
fn te_periodic(x: f32, shift: i32) -> f32 {
    let q = te_quadrant(x);
    let n = i32(q.y) + shift;
    let y = select(te_sin_part(q.x), te_cos_part(q.x), (n & 1) == 1);
    let z = select(y, -y, (n & 2) == 2);
    return select(z, te_nan(), (abs(x) > 3.4028234e38) | te_isnan_f32(x));
}
fn te_sin_f32(x: f32) -> f32 {
    return select(te_periodic(x, 0), sin(clamp(x, -3.4028234e38, 3.4028234e38)), (abs(x) > 1e5) & (abs(x) <= 3.4028234e38));
}
fn te_cos_f32(x: f32) -> f32 {
    return select(te_periodic(x, 1), cos(clamp(x, -3.4028234e38, 3.4028234e38)), (abs(x) > 1e5) & (abs(x) <= 3.4028234e38));
}

// Quotients round down, remainders take the divisor's sign; a zero divisor counts as one.
fn te_floordiv_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1, b == 0);
    let q = a / d;
    let r = a - q * d;
    return q - select(0, 1, (r != 0) & ((r < 0) != (d < 0)));
}
fn te_mod_i32(a: i32, b: i32) -> i32 { return a - te_floordiv_i32(a, b) * select(b, 1, b == 0); }
fn te_floordiv_u32(a: u32, b: u32) -> u32 { return a / select(b, 1u, b == 0u); }
fn te_mod_u32(a: u32, b: u32) -> u32 { return a % select(b, 1u, b == 0u); }
fn te_truncdiv_i32(a: i32, b: i32) -> i32 { return a / select(b, 1, b == 0); }
fn te_truncdiv_u32(a: u32, b: u32) -> u32 { return a / select(b, 1u, b == 0u); }

// Floats to integers truncate and saturate; NaN gives 0.
fn te_f32_to_i32(x: f32) -> i32 {
    let y = select(i32(clamp(x, -2147483648.0, 2147483520.0)), 2147483647, x >= 2147483648.0);
    return select(y, 0, te_isnan_f32(x));
}
fn te_f32_to_u32(x: f32) -> u32 {
    let y = select(u32(clamp(x, 0.0, 4294967040.0)), 4294967295u, x >= 4294967296.0);
    return select(y, 0u, te_isnan_f32(x));
}

// Shifts by the width or more give 0, or the sign.
fn te_shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0, (b < 0) | (b > 31)); }
fn te_shr_i32(a: i32, b: i32) -> i32 { return a >> u32(select(b, 31, (b < 0) | (b > 31))); }
fn te_shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }
fn te_shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }

// Halves in memory, two a word. What a half cannot hold saturates; NaN stays NaN.
fn te_half(word: u32, index: i32) -> f32 { return unpack2x16float(word >> (u32(index & 1) * 16u)).x; }
fn te_unpack(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }
fn te_pack2(v: vec2<f32>) -> u32 {
    let nan = te_isnan_f32x2(v);
    let word = pack2x16float(clamp(v, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
    return select(word, word | 0x7e00u, nan.x) | select(0u, 0x7e000000u, nan.y);
}
fn te_pack(v: vec4<f32>) -> vec2<u32> { return vec2<u32>(te_pack2(v.xy), te_pack2(v.zw)); }
