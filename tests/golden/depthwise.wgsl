// k0: split range=2 factor=4 outer=5; to range=6 kind=vector; to range=4 kind=unroll; to range=5 kind=local; to range=1 kind=local; split range=0 factor=4 outer=7; to range=8 kind=local; to range=7 kind=grid
@group(0) @binding(0) var<storage, read_write> b0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@compute @workgroup_size(64, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g7 = i32(group.x);
    let l1 = (i32(thread) / 4) / 2;
    let l5 = (i32(thread) / 4) % 2;
    let l8 = i32(thread) % 4;
    let i0 = l5 * 8;
    let i1 = (((l1 * 30) + i0) + (g7 * 900)) + (l8 * 225);
    let i2 = l1 * 2;
    let v0 = 0 < i0;
    let i3 = (g7 * 36) + (l8 * 9);
    let v1 = (i0 + 7) < 15;
    var acc0 = vec4<f32>(0.0f);
    for (var r3 = 0; r3 < 3; r3++) {
        let i4 = i1 + (r3 * 15);
        let i5 = i2 + r3;
        let v2 = (0 < i5) & ((i5 + (-1)) < 15);
        let x0 = select(0.0f, b1[i4 + (-14)], v2);
        let x1 = select(0.0f, b1[i4 + (-12)], v2);
        let x2 = select(0.0f, b1[i4 + (-10)], v2);
        let i6 = i3 + (r3 * 3);
        acc0 += vec4<f32>(select(0.0f, b1[i4 + (-16)], v2 & v0), x0, x1, x2) * vec4<f32>(b2[i6]);
        acc0 += vec4<f32>(select(0.0f, b1[i4 + (-15)], v2), select(0.0f, b1[i4 + (-13)], v2), select(0.0f, b1[i4 + (-11)], v2), select(0.0f, b1[i4 + (-9)], v2)) * vec4<f32>(b2[i6 + 1]);
        acc0 += vec4<f32>(x0, x1, x2, select(0.0f, b1[i4 + (-8)], v2 & v1)) * vec4<f32>(b2[i6 + 2]);
    }
    b0[((i2 + l5) + (g7 * 64)) + (l8 * 16)] = acc0;
}
