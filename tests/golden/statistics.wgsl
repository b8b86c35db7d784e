// k0: split range=1 factor=4 outer=2; to range=3 kind=lanes; padto range=2 multiple=16; split range=2 factor=16 outer=4; to range=5 kind=threads; to range=4 kind=unroll; split range=0 factor=4 outer=6; to range=7 kind=local; to range=6 kind=grid
var<private> te_bits_infinity: u32 = 0x7f800000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_isnan_f32x4(x: vec4<f32>) -> vec4<bool> { return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u); }
fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
fn te_max_f32x4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> { return select(a, b, (a < b) | te_isnan_f32x4(b)); }
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<vec4<f32>>;
var<workgroup> shared0: array<f32, 64>;
var<workgroup> shared1: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g6 = i32(group.x);
    let l5 = i32(thread) % 16;
    let l7 = i32(thread) / 16;
    let v0 = l5 < 1;
    let i0 = g6 * 96;
    let i1 = l7 * 24;
    let x0 = b2[(l5 + i0) + i1];
    let i2 = l5 + 16;
    let v1 = vec4<bool>(i2 < 24);
    let x1 = b2[(i0 + i1) + min(i2, 23)];
    let i3 = (g6 * 4) + l7;
    let i4 = i32(thread) - l5;
    let v2 = te_max_f32x4(x0, select(vec4<f32>(-te_infinity()), x1, v1));
    shared0[i32(thread)] = te_max_f32(te_max_f32(v2.x, v2.z), te_max_f32(v2.y, v2.w));
    let v3 = x0 + select(vec4<f32>(0.0f), x1, v1);
    shared1[i32(thread)] = (v3.x + v3.z) + (v3.y + v3.w);
    workgroupBarrier();
    if (l5 < 4) { shared0[i32(thread)] = te_max_f32(te_max_f32(te_max_f32(shared0[i32(thread)], shared0[i32(thread) + 4]), shared0[i32(thread) + 8]), shared0[i32(thread) + 12]); }
    if (l5 < 4) { shared1[i32(thread)] = ((shared1[i32(thread)] + shared1[i32(thread) + 4]) + shared1[i32(thread) + 8]) + shared1[i32(thread) + 12]; }
    workgroupBarrier();
    let v4 = te_max_f32(te_max_f32(te_max_f32(shared0[i4], shared0[i4 + 1]), shared0[i4 + 2]), shared0[i4 + 3]);
    let v5 = ((shared1[i4] + shared1[i4 + 1]) + shared1[i4 + 2]) + shared1[i4 + 3];
    if (v0) { b0[i3] = v4; }
    if (v0) { b1[i3] = v5 / 96.0f; }
}
