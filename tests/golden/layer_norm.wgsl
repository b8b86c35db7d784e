// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=lanes; padto range=6 multiple=16; split range=6 factor=16 outer=8; to range=9 kind=threads; to range=8 kind=unroll; split range=3 factor=4 outer=10; to range=11 kind=lanes; padto range=10 multiple=16; split range=10 factor=16 outer=12; to range=13 kind=threads; to range=12 kind=unroll; padto range=4 multiple=16; split range=4 factor=16 outer=14; to range=15 kind=lane; to range=14 kind=upcast; padto range=0 multiple=4; split range=0 factor=4 outer=16; to range=17 kind=local; to range=16 kind=grid
var<private> te_bits_nan: u32 = 0x7fc00000u;
fn te_nan() -> f32 { return bitcast<f32>(te_bits_nan); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_sqrt_f32(x: f32) -> f32 {
    let y = select(sqrt(clamp(x, 0.0, 3.4028234e38)), te_nan(), x < 0.0);
    return select(y, x, (x == 0.0) | (x > 3.4028234e38) | te_isnan_f32(x));
}
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b2: array<vec4<f32>>;
var<workgroup> shared0: array<f32, 64>;
var<workgroup> shared1: array<f32, 64>;
@compute @workgroup_size(64, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g16 = i32(group.x);
    let l15 = i32(thread) % 16;
    let l17 = i32(thread) / 16;
    let i0 = (g16 * 4) + l17;
    let v0 = i0 < 7;
    let i1 = min(i0, 6) * 24;
    let i2 = l15 + i1;
    let x0 = b1[i2];
    let i3 = l15 + 16;
    let v1 = i3 < 24;
    let v2 = vec4<bool>(v1);
    let i4 = min(i3, 23);
    let i5 = i1 + i4;
    let x1 = b1[i5];
    let i6 = i32(thread) - l15;
    let v3 = x0 + select(vec4<f32>(0.0f), x1, v2);
    shared0[i32(thread)] = (v3.x + v3.z) + (v3.y + v3.w);
    workgroupBarrier();
    if (l15 < 4) { shared0[i32(thread)] = ((shared0[i32(thread)] + shared0[i32(thread) + 4]) + shared0[i32(thread) + 8]) + shared0[i32(thread) + 12]; }
    workgroupBarrier();
    let v4 = ((shared0[i6] + shared0[i6 + 1]) + shared0[i6 + 2]) + shared0[i6 + 3];
    let v5 = vec4<f32>(v4 / 96.0f);
    let v6 = x0 - v5;
    let v7 = x1 - v5;
    let v8 = (v6 * v6) + select(vec4<f32>(0.0f), v7 * v7, v2);
    shared1[i32(thread)] = (v8.x + v8.z) + (v8.y + v8.w);
    workgroupBarrier();
    if (l15 < 4) { shared1[i32(thread)] = ((shared1[i32(thread)] + shared1[i32(thread) + 4]) + shared1[i32(thread) + 8]) + shared1[i32(thread) + 12]; }
    workgroupBarrier();
    let v9 = ((shared1[i6] + shared1[i6 + 1]) + shared1[i6 + 2]) + shared1[i6 + 3];
    let v10 = vec4<f32>(te_sqrt_f32((v9 / 96.0f) + 1e-05f));
    if (v0) { b0[i2] = (v6 / v10) * b2[l15]; }
    if (v0 & v1) { b0[i5] = (v7 / v10) * b2[i4]; }
}
