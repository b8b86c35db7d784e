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

// 2^k * x for |k| < 252, also where the result is subnormal.
fn te_scale_f32(x: f32, k: i32) -> f32 {
    let half = k >> 1u;
    return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(k - half + 127) << 23u);
}
fn te_scale_f32x4(x: vec4<f32>, k: vec4<i32>) -> vec4<f32> {
    let half = k >> vec4<u32>(1u);
    let first = bitcast<vec4<f32>>(vec4<u32>(half + 127) << vec4<u32>(23u));
    return x * first * bitcast<vec4<f32>>(vec4<u32>(k - half + 127) << vec4<u32>(23u));
}
// Built-in functions may be far off: exp by 3 + 2 |x| units in the last place, tanh as much as 1e-5, log near 1 by
// 2^-21 of 1. These are Cephes' expf, logf and tanhf (Moshier), within 2 units.
fn te_exp_f32(x: f32) -> f32 {
    let y = clamp(x, -104.0, 88.72283);
    let k = round(y * 1.44269504);
    let r = (y - k * 0.693359375) + k * 2.12194440e-4;
    let p = ((((1.9875691e-4 * r + 1.3981999e-3) * r + 8.333452e-3) * r + 4.1665796e-2) * r + 0.16666665) * r + 0.5;
    let z = select(te_scale_f32(p * (r * r) + r + 1.0, i32(k)), te_infinity(), x > 88.72283);
    return select(z, x, te_isnan_f32(x));
}
fn te_exp_f32x4(x: vec4<f32>) -> vec4<f32> {
    let y = clamp(x, vec4<f32>(-104.0), vec4<f32>(88.72283));
    let k = round(y * 1.44269504);
    let r = (y - k * 0.693359375) + k * 2.12194440e-4;
    let p = ((((1.9875691e-4 * r + 1.3981999e-3) * r + 8.333452e-3) * r + 4.1665796e-2) * r + 0.16666665) * r + 0.5;
    let z = te_scale_f32x4(p * (r * r) + r + 1.0, vec4<i32>(k));
    return select(select(z, vec4<f32>(te_infinity()), x > vec4<f32>(88.72283)), x, te_isnan_f32x4(x));
}
// The same to the bit for x <= 0: nothing is infinite, and 2^k is two factors of which one is always 2^-24.
fn te_fall_f32(x: f32) -> f32 {
    let y = max(x, -104.0);
    let k = round(y * 1.44269504);
    let r = (y - k * 0.693359375) + k * 2.12194440e-4;
    let p = ((((1.9875691e-4 * r + 1.3981999e-3) * r + 8.333452e-3) * r + 4.1665796e-2) * r + 0.16666665) * r + 0.5;
    let z = (p * (r * r) + r + 1.0) * bitcast<f32>((i32(k) + 151) << 23u) * 5.9604645e-8;
    return select(z, x, te_isnan_f32(x));
}
fn te_fall_f32x4(x: vec4<f32>) -> vec4<f32> {
    let y = max(x, vec4<f32>(-104.0));
    let k = round(y * 1.44269504);
    let r = (y - k * 0.693359375) + k * 2.12194440e-4;
    let p = ((((1.9875691e-4 * r + 1.3981999e-3) * r + 8.333452e-3) * r + 4.1665796e-2) * r + 0.16666665) * r + 0.5;
    let z = (p * (r * r) + r + 1.0) * bitcast<vec4<f32>>((vec4<i32>(k) + 151) << vec4<u32>(23u)) * 5.9604645e-8;
    return select(z, x, te_isnan_f32x4(x));
}
fn te_tanh_f32(x: f32) -> f32 {
    let size = min(abs(x), 10.0);
    let z = size * size;
    let p = (((-5.7049887e-3 * z + 2.0639089e-2) * z - 5.3739716e-2) * z + 0.13331442) * z - 0.33333282;
    let y = select(1.0 - 2.0 / (te_exp_f32(2.0 * size) + 1.0), p * z * size + size, size < 0.625);
    return select(select(y, -y, x < 0.0), x, te_isnan_f32(x));
}
fn te_log_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(clamp(x, 1.17549435e-38, 3.4028234e38));
    let low = (bits & 0x7fffffu) < 0x3504f3u;  // m lies in [sqrt(1/2), sqrt(2))
    let m = bitcast<f32>((bits & 0x7fffffu) | select(0x3f000000u, 0x3f800000u, low)) - 1.0;
    let e = f32(i32(bits >> 23u) - select(126, 127, low));
    let z = m * m;
    var p = (((7.0376836e-2 * m - 0.1151461) * m + 0.116769984) * m - 0.12420141) * m + 0.14249323;
    p = (((p * m - 0.16668057) * m + 0.20000714) * m - 0.24999994) * m + 0.3333333;
    var y = (m + (p * m * z - e * 2.12194440e-4 - 0.5 * z)) + e * 0.693359375;
    y = select(y, -te_infinity(), x < 1.17549435e-38);
    y = select(y, te_nan(), x < 0.0);
    return select(y, x, (x > 3.4028234e38) | te_isnan_f32(x));
}
fn te_sqrt_f32(x: f32) -> f32 {
    let y = select(sqrt(clamp(x, 0.0, 3.4028234e38)), te_nan(), x < 0.0);
    return select(y, x, (x == 0.0) | (x > 3.4028234e38) | te_isnan_f32(x));
}

// The upper half of a significand, so that products of two are exact.
fn te_upper_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }
// |x|^y for finite x > 0: y log2(x) to 34 bits, in parts that are cut, and 2 to that power: e_powf of fdlibm (Taylor,
// Cygnus), of which the constants and the names are.
fn te_power_f32(x: f32, y: f32) -> f32 {
    let bits = bitcast<u32>(clamp(x, 1.17549435e-38, 3.4028234e38));
    let fraction = bits & 0x7fffffu;
    let second = (fraction > 0x1cc471u) & (fraction < 0x5db3d7u);
    let above = fraction >= 0x5db3d7u;
    let n = f32(i32(bits >> 23u) - select(127, 126, above));
    let m = (fraction | 0x3f800000u) - select(0u, 0x800000u, above);
    let ax = bitcast<f32>(m);
    let bp = select(1.0, 1.5, second);
    let v = 1.0 / (ax + bp);
    let u = ax - bp;
    let s = u * v;
    let s_h = te_upper_f32(s);
    var t_h = bitcast<f32>((((m >> 1u) & 0xfffff000u) | 0x20000000u) + select(0x400000u, 0x600000u, second));
    var t_l = ax - (t_h - bp);
    let s_l = v * ((u - s_h * t_h) - s_h * t_l);
    var s2 = s * s;
    var r = (((0.20697501 * s2 + 0.23066075) * s2 + 0.27272812) * s2 + 0.33333334) * s2 + 0.42857143;
    r = s2 * s2 * (r * s2 + 0.6) + s_l * (s_h + s);
    s2 = s_h * s_h;
    t_h = te_upper_f32(3.0 + s2 + r);
    t_l = r - ((t_h - 3.0) - s2);
    let w = s_l * t_h + t_l * s;
    let p = te_upper_f32(s_h * t_h + w);
    let z_h = 0.96191406 * p;
    let z_l = -1.1736857e-4 * p + (w - (p - s_h * t_h)) * 0.9617967 + select(0.0, 1.5632208e-6, second);
    let dp = select(0.0, 0.58496094, second);
    let t1 = te_upper_f32(((z_h + z_l) + dp) + n);
    let t2 = z_l - (((t1 - n) - dp) - z_h);
    let y1 = te_upper_f32(y);
    let high = y1 * t1;
    let low = (y - y1) * t1 + y * t2;
    let sum = high + low;
    let whole = round(clamp(sum, -160.0, 160.0));
    let rest = high - whole;
    let t = bitcast<f32>(bitcast<u32>(low + rest) & 0xffff8000u);
    let g = t * 0.69314575;
    let h = (low - (t - rest)) * 0.6931472 + t * 1.4286065e-6;
    let z = g + h;
    let e = h - (z - g);
    let zz = z * z;
    let q = z - zz * ((((4.138137e-8 * zz - 1.6533902e-6) * zz + 6.613756e-5) * zz - 2.7777778e-3) * zz + 0.16666667);
    let result = 1.0 - (((z * q) / (q - 2.0) - (e + z * e)) - z);
    return select(select(te_scale_f32(result, i32(whole)), te_infinity(), sum > 128.0), 0.0, sum < -151.0);
}
// x^y: 1 for y = 0 and for x = 1, NaN included; the sign of an odd integer power of a negative number.
fn te_pow_f32(x: f32, y: f32) -> f32 {
    let base = abs(x);
    var z = te_power_f32(base, clamp(y, -3e9, 3e9));  // which decide for every base but 1
    z = select(z, select(te_infinity(), 0.0, y < 0.0), base > 3.4028234e38);
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

// Sine and cosine: x = k pi/2 + r, and the polynomials of Cephes' sinf and cosf (Moshier) on [-pi/4, pi/4].
// Up to 200 by Cody and Waite (Software Manual for the Elementary Functions, 1980): pi/2 in parts of 8 bits, so that
// products with k are exact. Beyond, by Payne and Hanek: the bits of 2/pi that matter, times the significand.
const te_two_over_pi = array<u32, 8>(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau);
fn te_product(a: u32, b: u32) -> vec2<u32> {
    let middle = (a >> 16u) * (b & 0xffffu) + (((a & 0xffffu) * (b & 0xffffu)) >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}
fn te_far_quadrant(x: f32) -> vec2<f32> {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let significand = (bits << 8u) | 0x80000000u;
    let e = max(bits >> 23u, 126u) - 126u;
    var table = te_two_over_pi;
    let i = min(e >> 5u, 4u);
    let shift = e & 31u;
    let high = select(table[i], (table[i] << shift) | (table[i + 1u] >> (32u - shift)), shift > 0u);
    let middle = select(table[i + 1u], (table[i + 1u] << shift) | (table[i + 2u] >> (32u - shift)), shift > 0u);
    let low = select(table[i + 2u], (table[i + 2u] << shift) | (table[i + 3u] >> (32u - shift)), shift > 0u);
    let second = te_product(significand, middle);
    let carried = te_product(significand, low).y;
    var rest = second.x + carried;
    var top = significand * high + second.y + select(0u, 1u, rest < carried);
    var k = top >> 30u;
    top = top & 0x3fffffffu;
    let above = top >= 0x20000000u;
    k = k + select(0u, 1u, above);
    top = select(top, 0x3fffffffu - top + select(0u, 1u, rest == 0u), above);
    rest = select(rest, 0u - rest, above);
    let zeros = countLeadingZeros(top);
    let first = select(rest, (top << zeros) | select(0u, rest >> (32u - zeros), zeros > 0u), zeros < 32u);
    let r = te_scale_f32(f32(first) * 1.4629181e-9, -i32(zeros));  // pi/2 * 2^-30
    return vec2<f32>(select(r, -r, above), f32(k));
}
fn te_quadrant(x: f32) -> vec2<f32> {
    if (abs(x) > 200.0) {
        let far = te_far_quadrant(x);
        return select(far, -far, x < 0.0);
    }
    let k = round(x * 0.63661977);
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
fn te_sin_f32(x: f32) -> f32 { return te_periodic(x, 0); }
fn te_cos_f32(x: f32) -> f32 { return te_periodic(x, 1); }

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
fn te_f32_to_i32x4(x: vec4<f32>) -> vec4<i32> {
    let whole = vec4<i32>(clamp(x, vec4<f32>(-2147483648.0), vec4<f32>(2147483520.0)));
    let y = select(whole, vec4<i32>(2147483647), x >= vec4<f32>(2147483648.0));
    return select(y, vec4<i32>(0), te_isnan_f32x4(x));
}
fn te_f32_to_u32x4(x: vec4<f32>) -> vec4<u32> {
    let whole = vec4<u32>(clamp(x, vec4<f32>(0.0), vec4<f32>(4294967040.0)));
    let y = select(whole, vec4<u32>(4294967295u), x >= vec4<f32>(4294967296.0));
    return select(y, vec4<u32>(0u), te_isnan_f32x4(x));
}

// Shifts by the width or more give 0, or the sign.
fn te_shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0, (b < 0) | (b > 31)); }
fn te_shr_i32(a: i32, b: i32) -> i32 { return a >> u32(select(b, 31, (b < 0) | (b > 31))); }
fn te_shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }
fn te_shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }

// Halves in memory, two a word. What a half cannot hold saturates; NaN and infinity, whose bits are those behind the
// largest half's, stay.
fn te_half(word: u32, index: i32) -> f32 { return unpack2x16float(word >> (u32(index & 1) * 16u)).x; }
fn te_unpack(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }
fn te_pack2(v: vec2<f32>) -> u32 {
    let nan = te_isnan_f32x2(v);
    let infinite = abs(v) > vec2<f32>(3.4028234e38);
    let finite = pack2x16float(clamp(v, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
    let word = finite + select(0u, 1u, infinite.x) + select(0u, 0x10000u, infinite.y);
    return select(word, word | 0x7e00u, nan.x) | select(0u, 0x7e000000u, nan.y);
}
fn te_pack(v: vec4<f32>) -> vec2<u32> { return vec2<u32>(te_pack2(v.xy), te_pack2(v.zw)); }

// Bytes of what a texture gives; where it has decoded them, as sRGB, encoded again. Gray as Pillow makes it.
fn te_bytes(light: vec4<f32>, decoded: bool) -> vec4<u32> {
    var shown = saturate(light);
    if (decoded) {
        let bright = 1.055 * pow(shown, vec4<f32>(1.0 / 2.4)) - 0.055;
        shown = select(bright, 12.92 * shown, shown <= vec4<f32>(0.0031308));
    }
    return vec4<u32>(shown * 255.0 + 0.5);
}
fn te_gray(color: vec4<u32>) -> u32 { return (color.r * 19595u + color.g * 38470u + color.b * 7471u + 32768u) >> 16u; }
