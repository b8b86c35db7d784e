// k0: split range=1 factor=4 outer=2; to range=3 kind=unroll; split range=2 factor=8 outer=4; to range=5 kind=threads; split range=0 factor=6 outer=6; to range=7 kind=local; to range=6 kind=grid
var<private> te_bits_infinity: u32 = 0x7f800000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<vec4<f32>>;
var<workgroup> shared0: array<f32, 48>;
var<workgroup> shared1: array<f32, 48>;
@compute @workgroup_size(48, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g6 = i32(group.x);
    let l5 = i32(thread) % 8;
    let l7 = i32(thread) / 8;
    let v0 = l5 < 1;
    let i0 = (l5 + (g6 * 144)) + (l7 * 24);
    var acc0 = (-te_infinity());
    var acc1 = 0.0f;
    for (var r4 = 0; r4 < 3; r4++) {
        let x0 = b2[i0 + (r4 * 8)];
        acc0 = te_max_f32(acc0, x0.x);
        acc0 = te_max_f32(acc0, x0.y);
        acc0 = te_max_f32(acc0, x0.z);
        acc0 = te_max_f32(acc0, x0.w);
        acc1 += x0.x;
        acc1 += x0.y;
        acc1 += x0.z;
        acc1 += x0.w;
    }
    let i1 = (g6 * 6) + l7;
    let i2 = i32(thread) - l5;
    shared0[i32(thread)] = acc0;
    shared1[i32(thread)] = acc1;
    workgroupBarrier();
    var acc2 = (-te_infinity());
    var acc3 = 0.0f;
    for (var r8 = 0; r8 < 8; r8++) {
        acc2 = te_max_f32(acc2, shared0[i2 + r8]);
        acc3 += shared1[i2 + r8];
    }
    if (v0) { b0[i1] = acc2; }
    if (v0) { b1[i1] = acc3 / 96.0f; }
}
