// k0: to range=4 kind=unroll; to range=2 kind=local; to range=1 kind=local; split range=0 factor=2 outer=5; to range=6 kind=local; to range=5 kind=grid
var<private> te_bits_infinity: u32 = 0x7f800000u;
fn te_infinity() -> f32 { return bitcast<f32>(te_bits_infinity); }
fn te_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn te_max_f32(a: f32, b: f32) -> f32 { return select(a, b, (a < b) | te_isnan_f32(b)); }
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@compute @workgroup_size(50, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g5 = i32(group.x);
    let l1 = (i32(thread) / 2) / 5;
    let l2 = (i32(thread) / 2) % 5;
    let l6 = i32(thread) % 2;
    let i0 = (((l1 * 24) + (l2 * 2)) + (g5 * 288)) + (l6 * 144);
    var acc0 = (-te_infinity());
    for (var r3 = 0; r3 < 3; r3++) {
        let i1 = i0 + (r3 * 12);
        acc0 = te_max_f32(acc0, b1[i1]);
        acc0 = te_max_f32(acc0, b1[i1 + 1]);
        acc0 = te_max_f32(acc0, b1[i1 + 2]);
    }
    b0[(((l1 * 5) + l2) + (g5 * 50)) + (l6 * 25)] = acc0;
}

// k1: split range=1 factor=16 outer=2; to range=3 kind=lanes; to range=0 kind=local
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@compute @workgroup_size(8, 1, 1)
fn k1(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l0 = i32(thread);
    let i0 = l0 * 36;
    var acc0 = vec4<f32>(0.0f);
    var acc1 = vec4<f32>(0.0f);
    var acc2 = vec4<f32>(0.0f);
    var acc3 = vec4<f32>(0.0f);
    for (var r2 = 0; r2 < 9; r2++) {
        let i1 = i0 + (r2 * 4);
        acc0 += b1[i1];
        acc1 += b1[i1 + 1];
        acc2 += b1[i1 + 2];
        acc3 += b1[i1 + 3];
    }
    let v0 = (acc0 + acc1) + (acc2 + acc3);
    b0[l0] = ((v0.x + v0.z) + (v0.y + v0.w)) / 144.0f;
}
