// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; padto range=6 multiple=16; split range=6 factor=16 outer=8; to range=9 kind=threads; to range=8 kind=unroll; split range=3 factor=4 outer=10; to range=11 kind=lanes; padto range=10 multiple=16; split range=10 factor=16 outer=12; to range=13 kind=threads; to range=12 kind=unroll; padto range=4 multiple=16; split range=4 factor=16 outer=14; to range=15 kind=lane; to range=14 kind=upcast; split range=0 factor=4 outer=16; to range=17 kind=local; to range=16 kind=grid
var<private> te_bits_infinity: u32 = 0x7f800000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_isnan_f32x4(x: vec4<f32>) -> vec4<bool> { return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u); }
fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
fn te_max_f32x4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (a < b) | te_isnan_f32x4(b)); }
fn te_fall_f32x4(x: vec4<f32>) -> vec4<f32> {
    let y = max(x, vec4<f32>(-104.0));
    let k = round(y * 1.44269504);
    let r = (y - k * 0.693359375) + k * 2.12194440e-4;
    let p = ((((1.9875691e-4 * r + 1.3981999e-3) * r + 8.333452e-3) * r + 4.1665796e-2) * r + 0.16666665) * r + 0.5;
    let z = (p * (r * r) + r + 1.0) * bitcast<vec4<f32>>((vec4<i32>(k) + 151) << vec4<u32>(23u)) * 5.9604645e-8;
    return select(z, x, te_isnan_f32x4(x));
}
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
var<workgroup> shared0: array<f32, 64>;
var<workgroup> shared1: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g16 = i32(group.x);
    let l15 = i32(thread) % 16;
    let l17 = i32(thread) / 16;
    let i0 = g16 * 100;
    let i1 = l17 * 25;
    let i2 = (l15 + i0) + i1;
    let x0 = b1[i2];
    let i3 = l15 + 16;
    let v0 = i3 < 25;
    let v1 = vec4<bool>(v0);
    let i4 = (i0 + i1) + min(i3, 24);
    let x1 = b1[i4];
    let i5 = i32(thread) - l15;
    let v2 = te_max_f32x4(x0, select(vec4<f32>(-te_infinity()), x1, v1));
    shared0[i32(thread)] = te_max_f32(te_max_f32(v2.x, v2.z), te_max_f32(v2.y, v2.w));
    workgroupBarrier();
    if (l15 < 4) { shared0[i32(thread)] = te_max_f32(te_max_f32(te_max_f32(shared0[i32(thread)], shared0[i32(thread) + 4]), shared0[i32(thread) + 8]), shared0[i32(thread) + 12]); }
    workgroupBarrier();
    let v3 = te_max_f32(te_max_f32(te_max_f32(shared0[i5], shared0[i5 + 1]), shared0[i5 + 2]), shared0[i5 + 3]);
    let v4 = vec4<f32>(v3);
    let v5 = te_fall_f32x4(x0 - v4);
    let v6 = te_fall_f32x4(x1 - v4);
    let v7 = v5 + select(vec4<f32>(0.0f), v6, v1);
    shared1[i32(thread)] = (v7.x + v7.z) + (v7.y + v7.w);
    workgroupBarrier();
    if (l15 < 4) { shared1[i32(thread)] = ((shared1[i32(thread)] + shared1[i32(thread) + 4]) + shared1[i32(thread) + 8]) + shared1[i32(thread) + 12]; }
    workgroupBarrier();
    let v8 = ((shared1[i5] + shared1[i5 + 1]) + shared1[i5 + 2]) + shared1[i5 + 3];
    let v9 = vec4<f32>(1.0f / v8);
    b0[i2] = v5 * v9;
    if (v0) { b0[i4] = v6 * v9; }
}
