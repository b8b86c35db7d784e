// k0: split range=0 factor=4 outer=6; to range=7 kind=vector; split range=2 factor=2 outer=8; to range=9 kind=upcast; to range=5 kind=unroll; to range=8 kind=local; split range=1 factor=7 outer=10; to range=11 kind=local; to range=6 kind=grid; to range=10 kind=grid
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> b3: array<vec4<f32>>;
@compute @workgroup_size(49, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g10 = i32(group.x);
    let g6 = i32(group.y);
    let l8 = i32(thread) / 7;
    let l11 = i32(thread) % 7;
    let i0 = l8 * 2;
    let i1 = g10 * 98;
    let i2 = l11 * 14;
    let i3 = (i0 + i1) + i2;
    let i4 = (g10 * (-7)) + (l11 * (-1));
    let i5 = max(i4 + 1, 0);
    let i6 = min(i4 + 15, 3);
    let i7 = i1 + i2;
    let i8 = select(i7 + (-13), i3 + (-15), 0 < i0);
    let i9 = select(i7 + (-2), i3 + (-12), (i0 + 2) < 14);
    var acc0 = vec4<f32>(0.0f);
    var acc1 = vec4<f32>(0.0f);
    var acc2 = vec4<f32>(0.0f);
    var acc3 = vec4<f32>(0.0f);
    for (var r4 = i5; r4 < i6; r4++) {
        let i10 = r4 * 14;
        let i11 = i3 + i10;
        let i12 = g6 + (r4 * 12);
        let i13 = i8 + i10;
        let i14 = i9 + i10;
        for (var r3 = 0; r3 < 8; r3++) {
            let i15 = r3 * 196;
            let i16 = i11 + i15;
            let v0 = vec4<f32>(b1[i16 + (-14)]);
            let i17 = i12 + (r3 * 36);
            let x0 = b2[i17 + 4];
            acc0 += v0 * x0;
            let v1 = vec4<f32>(b1[i16 + (-13)]);
            let x1 = b2[i17 + 8];
            acc0 += v1 * x1;
            let x2 = b2[i17];
            acc1 += vec4<f32>(b1[i13 + i15]) * x2;
            acc2 += v0 * x2;
            acc2 += v1 * x0;
            acc3 += vec4<f32>(b1[i14 + i15]) * x1;
        }
    }
    let x3 = b3[g6];
    let v2 = (acc0 + select(vec4<f32>(0.0f), acc1, vec4<bool>(0 < l8))) + x3;
    let v3 = select(v2, vec4<f32>(0.0f), v2 < vec4<f32>(0.0f));
    let i18 = (((g6 * 784) + i0) + i1) + i2;
    b0[i18] = v3.x;
    b0[i18 + 196] = v3.y;
    b0[i18 + 392] = v3.z;
    b0[i18 + 588] = v3.w;
    let v4 = (acc2 + select(vec4<f32>(0.0f), acc3, vec4<bool>(0 < ((l8 * (-1)) + 6)))) + x3;
    let v5 = select(v4, vec4<f32>(0.0f), v4 < vec4<f32>(0.0f));
    b0[i18 + 1] = v5.x;
    b0[i18 + 197] = v5.y;
    b0[i18 + 393] = v5.z;
    b0[i18 + 589] = v5.w;
}
