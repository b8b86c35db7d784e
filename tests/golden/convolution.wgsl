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
    let i4 = (g10 * 7) + l11;
    let v0 = 0 < i0;
    let v1 = (i0 + 2) < 14;
    var acc0 = vec4<f32>(0.0f);
    var acc1 = vec4<f32>(0.0f);
    for (var r3 = 0; r3 < 8; r3++) {
        let i5 = i3 + (r3 * 196);
        let i6 = g6 + (r3 * 36);
        for (var r4 = 0; r4 < 3; r4++) {
            let i7 = i5 + (r4 * 14);
            let i8 = i4 + r4;
            let v2 = (0 < i8) & ((i8 + (-1)) < 14);
            let i9 = i6 + (r4 * 12);
            let x0 = b2[i9];
            acc0 += vec4<f32>(select(0.0f, b1[i7 + (-15)], v2 & v0)) * x0;
            let v3 = vec4<f32>(select(0.0f, b1[i7 + (-14)], v2));
            let x1 = b2[i9 + 4];
            acc0 += v3 * x1;
            let v4 = vec4<f32>(select(0.0f, b1[i7 + (-13)], v2));
            let x2 = b2[i9 + 8];
            acc0 += v4 * x2;
            acc1 += v3 * x0;
            acc1 += v4 * x1;
            acc1 += vec4<f32>(select(0.0f, b1[i7 + (-12)], v2 & v1)) * x2;
        }
    }
    let x3 = b3[g6];
    let v5 = acc0 + x3;
    let v6 = select(v5, vec4<f32>(0.0f), v5 < vec4<f32>(0.0f));
    let i10 = (((g6 * 784) + i0) + i1) + i2;
    b0[i10] = v6.x;
    b0[i10 + 196] = v6.y;
    b0[i10 + 392] = v6.z;
    b0[i10 + 588] = v6.w;
    let v7 = acc1 + x3;
    let v8 = select(v7, vec4<f32>(0.0f), v7 < vec4<f32>(0.0f));
    b0[i10 + 1] = v8.x;
    b0[i10 + 197] = v8.y;
    b0[i10 + 393] = v8.z;
    b0[i10 + 589] = v8.w;
}
