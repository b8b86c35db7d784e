// k0: split range=2 factor=2 outer=6; to range=7 kind=vector; split range=0 factor=2 outer=8; to range=9 kind=upcast; to range=5 kind=unroll; to range=6 kind=local; split range=1 factor=7 outer=10; to range=11 kind=local; to range=8 kind=grid; to range=10 kind=grid
@group(0) @binding(0) var<storage, read_write> b0: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read> b3: array<f32>;
@compute @workgroup_size(49, 1, 1)
fn k0(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let g10 = i32(group.x);
    let g8 = i32(group.y);
    let l6 = i32(thread) / 7;
    let l11 = i32(thread) % 7;
    let i0 = l6 * 2;
    let i1 = (i0 + (g10 * 98)) + (l11 * 14);
    let i2 = (g10 * 7) + l11;
    let v0 = 0 < i0;
    let i3 = g8 * 144;
    let v1 = (i0 + 2) < 14;
    var acc0 = vec2<f32>(0.0f);
    var acc1 = vec2<f32>(0.0f);
    for (var r3 = 0; r3 < 8; r3++) {
        let i4 = i1 + (r3 * 196);
        let i5 = i3 + (r3 * 9);
        for (var r4 = 0; r4 < 3; r4++) {
            let i6 = i4 + (r4 * 14);
            let i7 = i2 + r4;
            let v2 = (0 < i7) & ((i7 + (-1)) < 14);
            let x0 = select(0.0f, b1[i6 + (-14)], v2);
            let v3 = vec2<f32>(select(0.0f, b1[i6 + (-15)], v2 & v0), x0);
            let i8 = i5 + (r4 * 3);
            acc0 = acc0 + (v3 * vec2<f32>(b2[i8]));
            let x1 = select(0.0f, b1[i6 + (-13)], v2);
            let v4 = vec2<f32>(x0, x1);
            acc0 = acc0 + (v4 * vec2<f32>(b2[i8 + 1]));
            let v5 = vec2<f32>(x1, select(0.0f, b1[i6 + (-12)], v2 & v1));
            acc0 = acc0 + (v5 * vec2<f32>(b2[i8 + 2]));
            acc1 = acc1 + (v3 * vec2<f32>(b2[i8 + 72]));
            acc1 = acc1 + (v4 * vec2<f32>(b2[i8 + 73]));
            acc1 = acc1 + (v5 * vec2<f32>(b2[i8 + 74]));
        }
    }
    let i9 = g8 * 2;
    let v6 = acc0 + vec2<f32>(b3[i9]);
    let i10 = ((l6 + (g8 * 196)) + (g10 * 49)) + (l11 * 7);
    b0[i10] = select(v6, vec2<f32>(0.0f), v6 < vec2<f32>(0.0f));
    let v7 = acc1 + vec2<f32>(b3[i9 + 1]);
    b0[i10 + 98] = select(v7, vec2<f32>(0.0f), v7 < vec2<f32>(0.0f));
}
