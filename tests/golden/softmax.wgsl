// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; padto range=6 multiple=32; to range=6 kind=threads; split range=3 factor=4 outer=8; to range=9 kind=unroll; padto range=8 multiple=32; to range=8 kind=threads; padto range=4 multiple=32; to range=4 kind=lane; split range=0 factor=2 outer=10; to range=11 kind=local; to range=10 kind=grid
var<private> te_bits_infinity: u32 = 0x7f800000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_isnan_f32x4(x: vec4<f32>) -> vec4<bool> { return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u); }
fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
fn te_scale_f32(x: f32, k: i32) -> f32 {
    let half = k >> 1u;
    return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(k - half + 127) << 23u);
}
fn te_scale_f32x4(x: vec4<f32>, k: vec4<i32>) -> vec4<f32> {
    let half = k >> vec4<u32>(1u);
    let first = bitcast<vec4<f32>>(vec4<u32>(half + 127) << vec4<u32>(23u));
    return x * first * bitcast<vec4<f32>>(vec4<u32>(k - half + 127) << vec4<u32>(23u));
}
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
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
var<workgroup> shared0: array<f32, 64>;
var<workgroup> shared1: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g10 = i32(group.x);
    let l4 = i32(thread) % 32;
    let l6 = i32(thread) % 32;
    let l8 = i32(thread) % 32;
    let l11 = i32(thread) / 32;
    let i0 = (g10 * 50) + (l11 * 25);
    let i1 = i0 + min(l4, 24);
    let v0 = l6 < 25;
    let x0 = b1[i0 + min(l6, 24)];
    let v1 = l8 < 25;
    let x1 = b1[i0 + min(l8, 24)];
    let i2 = i32(thread) - l6;
    shared0[i32(thread)] = te_max_f32(te_max_f32(te_max_f32(select(-te_infinity(), x0.x, v0), select(-te_infinity(), x0.y, v0)), select(-te_infinity(), x0.z, v0)), select(-te_infinity(), x0.w, v0));
    workgroupBarrier();
    if (l6 < 16) { shared0[i32(thread)] = te_max_f32(shared0[i32(thread)], shared0[i32(thread) + 16]); }
    workgroupBarrier();
    var acc0 = (-te_infinity());
    for (var r12 = 0; r12 < 16; r12++) {
        acc0 = te_max_f32(acc0, shared0[i2 + r12]);
    }
    let i3 = i32(thread) - l8;
    shared1[i32(thread)] = ((select(0.0f, te_exp_f32(x1.x - acc0), v1) + select(0.0f, te_exp_f32(x1.y - acc0), v1)) + select(0.0f, te_exp_f32(x1.z - acc0), v1)) + select(0.0f, te_exp_f32(x1.w - acc0), v1);
    workgroupBarrier();
    if (l8 < 16) { shared1[i32(thread)] = shared1[i32(thread)] + shared1[i32(thread) + 16]; }
    workgroupBarrier();
    var acc1 = 0.0f;
    for (var r13 = 0; r13 < 16; r13++) {
        acc1 += shared1[i3 + r13];
    }
    if (l4 < 25) { b0[i1] = te_exp_f32x4(b1[i1] - vec4<f32>(acc0)) * vec4<f32>(1.0f / acc1); }
}
