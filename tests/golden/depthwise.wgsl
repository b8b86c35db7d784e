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
    let i0 = l1 * 30;
    let i1 = l5 * 8;
    let i2 = g7 * 900;
    let i3 = l8 * 225;
    let i4 = ((i0 + i1) + i2) + i3;
    let i5 = l1 * (-2);
    let i6 = max(i5 + 1, 0);
    let i7 = min(i5 + 16, 3);
    let i8 = (g7 * 36) + (l8 * 9);
    let i9 = ((i0 + i2) + i3) + (-8);
    let i10 = select(i9, i4 + (-16), 0 < i1);
    let i11 = select(i9, i4 + (-8), (i1 + 7) < 15);
    var acc0 = vec4<f32>(0.0f);
    var acc1 = vec4<f32>(0.0f);
    var acc2 = vec4<f32>(0.0f);
    for (var r3 = i6; r3 < i7; r3++) {
        let i12 = r3 * 15;
        let i13 = i4 + i12;
        let i14 = i8 + (r3 * 3);
        acc0 += vec4<f32>(b1[i13 + (-15)], b1[i13 + (-13)], b1[i13 + (-11)], b1[i13 + (-9)]) * vec4<f32>(b2[i14 + 1]);
        let x0 = b1[i13 + (-14)];
        let x1 = b1[i13 + (-12)];
        let x2 = b1[i13 + (-10)];
        acc1 += vec4<f32>(b1[i10 + i12], x0, x1, x2) * vec4<f32>(b2[i14]);
        acc2 += vec4<f32>(x0, x1, x2, b1[i11 + i12]) * vec4<f32>(b2[i14 + 2]);
    }
    b0[(((l1 * 2) + l5) + (g7 * 64)) + (l8 * 16)] = (acc0 + select(vec4<f32>(0.0f), acc1, vec4<bool>(0 < l5, true, true, true))) + select(vec4<f32>(0.0f), acc2, vec4<bool>(true, true, true, 0 < ((l5 * (-1)) + 1)));
}
