// Helpers of generated kernels. WGSL compilers may assume that no NaN and no infinity occurs, so NaN is tested
// by its bits, constants that are not finite come from a variable, and arguments are clamped where built-in
// functions go wrong for large values.
var<private> te_bits_infinity: u32 = 0x7f800000u;
var<private> te_bits_nan: u32 = 0x7fc00000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_nan() -> f32 { return bitcast<f32>(te_bits_nan); }

fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_isnan_f32x2(x: vec2<f32>) -> vec2<bool> { return (bitcast<vec2<u32>>(x) & vec2<u32>(0x7fffffffu)) > vec2<u32>(0x7f800000u); }
fn te_isnan_f32x4(x: vec4<f32>) -> vec4<bool> { return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u); }

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
fn te_exp_f32x2(x: vec2<f32>) -> vec2<f32> { return vec2<f32>(te_exp_f32(x.x), te_exp_f32(x.y)); }
fn te_exp_f32x4(x: vec4<f32>) -> vec4<f32> {
    let y = select(exp(clamp(x, vec4<f32>(-104.0), vec4<f32>(88.72283))), vec4<f32>(te_infinity()), x > vec4<f32>(88.72283));
    return select(y, x, te_isnan_f32x4(x));
}
fn te_tanh_f32(x: f32) -> f32 { return select(tanh(clamp(x, -10.0, 10.0)), x, te_isnan_f32(x)); }
fn te_tanh_f32x2(x: vec2<f32>) -> vec2<f32> { return select(tanh(clamp(x, vec2<f32>(-10.0), vec2<f32>(10.0))), x, te_isnan_f32x2(x)); }
fn te_tanh_f32x4(x: vec4<f32>) -> vec4<f32> { return select(tanh(clamp(x, vec4<f32>(-10.0), vec4<f32>(10.0))), x, te_isnan_f32x4(x)); }

// Quotients round down, remainders take the divisor's sign; a zero divisor counts as one.
fn te_floordiv_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1, b == 0);
    let q = a / d;
    let r = a - q * d;
    return q - select(0, 1, (r != 0) & ((r < 0) != (d < 0)));
}
fn te_mod_i32(a: i32, b: i32) -> i32 { return a - te_floordiv_i32(a, b) * select(b, 1, b == 0); }
fn te_truncdiv_i32(a: i32, b: i32) -> i32 { return a / select(b, 1, b == 0); }
fn te_truncdiv_u32(a: u32, b: u32) -> u32 { return a / select(b, 1u, b == 0u); }

fn te_f32_to_i32(x: f32) -> i32 {
    let y = select(i32(clamp(x, -2147483648.0, 2147483520.0)), 2147483647, x >= 2147483648.0);
    return select(y, 0, te_isnan_f32(x));
}
fn te_f32_to_u32(x: f32) -> u32 {
    let y = select(u32(clamp(x, 0.0, 4294967040.0)), 4294967295u, x >= 4294967296.0);
    return select(y, 0u, te_isnan_f32(x));
}
fn te_shl_i32(a: i32, b: i32) -> i32 { return select(a << (u32(b) & 31u), 0, (b < 0) | (b > 31)); }
fn te_shr_i32(a: i32, b: i32) -> i32 { return a >> u32(select(b, 31, (b < 0) | (b > 31))); }
fn te_shl_u32(a: u32, b: u32) -> u32 { return select(a << (b & 31u), 0u, b > 31u); }
fn te_shr_u32(a: u32, b: u32) -> u32 { return select(a >> (b & 31u), 0u, b > 31u); }
