// k0: split range=1 factor=4 outer=4; to range=5 kind=vector; split range=2 factor=4 outer=6; to range=7 kind=unroll; split range=6 factor=8 outer=8; to range=9 kind=threads; split range=3 factor=4 outer=10; to range=11 kind=unroll; split range=10 factor=8 outer=12; to range=13 kind=threads; split range=4 factor=8 outer=14; to range=15 kind=lane; to range=0 kind=local
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
var<workgroup> shared0: array<f32, 56>;
var<workgroup> shared1: array<f32, 56>;
@compute @workgroup_size(56, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l9 = i32(thread) % 8;
    let l13 = i32(thread) % 8;
    let l15 = i32(thread) % 8;
    let l0 = i32(thread) / 8;
    let i0 = l0 * 24;
    let i1 = i0 + l15;
    let i2 = i0 + l9;
    var acc0 = 0.0f;
    for (var r8 = 0; r8 < 3; r8++) {
        let x0 = b1[i2 + (r8 * 8)];
        acc0 += x0.x;
        acc0 += x0.y;
        acc0 += x0.z;
        acc0 += x0.w;
    }
    let i3 = i0 + l13;
    var acc1 = 0.0f;
    let i4 = i32(thread) - l9;
    shared0[i32(thread)] = acc0;
    workgroupBarrier();
    var acc2 = 0.0f;
    for (var r16 = 0; r16 < 8; r16++) {
        acc2 += shared0[i4 + r16];
    }
    let v0 = acc2 / 96.0f;
    let v1 = vec4<f32>(v0);
    for (var r12 = 0; r12 < 3; r12++) {
        let x1 = b1[i3 + (r12 * 8)];
        let v2 = x1.x - v0;
        acc1 += v2 * v2;
        let v3 = x1.y - v0;
        acc1 += v3 * v3;
        let v4 = x1.z - v0;
        acc1 += v4 * v4;
        let v5 = x1.w - v0;
        acc1 += v5 * v5;
    }
    let i5 = i32(thread) - l13;
    shared1[i32(thread)] = acc1;
    workgroupBarrier();
    var acc3 = 0.0f;
    for (var r17 = 0; r17 < 8; r17++) {
        acc3 += shared1[i5 + r17];
    }
    let v6 = vec4<f32>(te_sqrt_f32((acc3 / 96.0f) + 1e-05f));
    for (var r14 = 0; r14 < 3; r14++) {
        let i6 = r14 * 8;
        let i7 = i1 + i6;
        b0[i7] = ((b1[i7] - v1) / v6) * b2[l15 + i6];
    }
}
