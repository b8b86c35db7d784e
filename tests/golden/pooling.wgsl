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

// k1: split range=0 factor=4 outer=2; to range=3 kind=vector; split range=1 factor=4 outer=4; to range=5 kind=unroll; to range=2 kind=local
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<vec4<f32>>;
@compute @workgroup_size(2, 1, 1)
fn k1(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let l2 = i32(thread);
    let i0 = l2 * 144;
    var acc0 = vec4<f32>(0.0f);
    for (var r4 = 0; r4 < 36; r4++) {
        let i1 = i0 + r4;
        let x0 = b1[i1];
        let x1 = b1[i1 + 36];
        let x2 = b1[i1 + 72];
        let x3 = b1[i1 + 108];
        acc0 += vec4<f32>(x0.x, x1.x, x2.x, x3.x);
        acc0 += vec4<f32>(x0.y, x1.y, x2.y, x3.y);
        acc0 += vec4<f32>(x0.z, x1.z, x2.z, x3.z);
        acc0 += vec4<f32>(x0.w, x1.w, x2.w, x3.w);
    }
    b0[l2] = acc0 / vec4<f32>(144.0f);
}
