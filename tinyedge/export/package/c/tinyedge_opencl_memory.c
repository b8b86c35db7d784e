/* The OpenCL backend's memory: arenas, weights, parts of them, and images. */
#include "tinyedge_opencl.h"

/* Arrays of objects in a row, for their release. */
uint32_t te_opencl_memory_count(const te_model *model) {
    return TOTAL(ARENAS) + TOTAL(WEIGHTS) + TOTAL(BUFFERS) + TOTAL(IMAGES);
}

uint64_t te_opencl_lay_out(const te_model *model, opencl *block) {
    opencl unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    to->arenas = te_place(block, &end, te_opencl_memory_count(model), sizeof *to->arenas);
    to->kernels = te_place(block, &end, TOTAL(STEPS), sizeof *to->kernels);
    to->takes_image = te_place(block, &end, TOTAL(BINDINGS), sizeof *to->takes_image);
    to->mapped = te_place(block, &end, TOTAL(INPUTS) + TOTAL(OUTPUTS), sizeof *to->mapped);
    if (!block) return end;
    to->weights = to->arenas + TOTAL(ARENAS);
    to->buffers = to->weights + TOTAL(WEIGHTS);
    to->images = to->buffers + TOTAL(BUFFERS);
    return end;
}

void te_opencl_measure(const te_model *model, const te_context_options *options,
                       te_memory *memory) {
    (void)options;
    memory->arenas = 0;
    memory->context = te_opencl_lay_out(model, NULL);
    memory->device = TOTAL(SYMBOLS) ? sizeof((opencl *)0)->table : 0;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) memory->device += (uint64_t)model->arenas[i];
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        memory->device += (uint64_t)model->weights[i].bytes;
    }
}

TE_NOINLINE te_status te_opencl_make_buffer(const opencl *device, uint64_t bytes, cl_object *buffer,
                                            te_error *error) {
    /* Where the host shares the device's memory, it can be mapped there without a copy. */
    const uint64_t flags = READ_WRITE | (device->facts.host_unified_memory ? ALLOC_HOST_PTR : 0);
    MAKE(*buffer, clCreateBuffer, device->context, flags, (size_t)bytes, NULL);
    return TE_OK;
}

static te_status make_weight(const opencl *device, const te_model *model, int32_t weight,
                             te_error *error) {
    if (device->weights[weight]) return TE_OK;
    return te_opencl_make_buffer(device, (uint64_t)model->weights[weight].bytes,
                                 &device->weights[weight], error);
}

/* A part of an arena, or a weight, as an object of its own. */
static te_status make_part(const opencl *device, const te_model *model, uint32_t number,
                           te_error *error) {
    const te_buffer_record *buffer = &model->buffers[number];
    if (buffer->weight != -1) {
        TE_TRY(make_weight(device, model, buffer->weight, error));
        CALL(clRetainMemObject, device->weights[buffer->weight]);
        device->buffers[number] = device->weights[buffer->weight];
        return TE_OK;
    }
    const size_t region[2] = {(size_t)buffer->offset, (size_t)buffer->bytes};
    const uint64_t alignment = device->facts.mem_base_addr_align;
    TE_NEED(alignment && (uint64_t)buffer->offset * 8 % alignment == 0, TE_DEVICE_LIMITS,
            "the device's buffers begin at multiples of %llu bits", (unsigned long long)alignment);
    MAKE(device->buffers[number], clCreateSubBuffer, device->arenas[buffer->arena], READ_WRITE,
         REGION, region);
    return TE_OK;
}

static int64_t pixel_bytes(const te_image_record *image) {
    return 4 * (int64_t)te_dtype_bytes(image->dtype);
}

/* An image over a part, or with memory of its own where the device says that it cannot do that. */
static te_status make_image(const opencl *device, const te_model *model, uint32_t number,
                            te_error *error) {
    const te_image_record *image = &model->images[number];
    const te_buffer_record *buffer = &model->buffers[image->buffer];
    const image_format format = {RGBA, image->dtype == TE_FLOAT16 ? HALF_FLOAT : FLOAT};
    image_description description = {.type = IMAGE2D, .width = (size_t)image->width,
                                     .height = (size_t)image->height};
    const uint64_t rows = device->facts.image_pitch_alignment; /* both in pixels; 0: no views */
    const uint64_t start = device->facts.image_base_address_alignment;
    const int64_t pixel = pixel_bytes(image);
    size_t pitch = 0;
    cl_object *made = &device->images[number];
    if (rows && (uint64_t)(image->pitch / pixel) % rows == 0 &&
        (!start || (uint64_t)(buffer->offset / pixel) % start == 0)) {
        TE_TRY(make_part(device, model, (uint32_t)image->buffer, error));
        description.row_pitch = (size_t)image->pitch;
        description.buffer = device->buffers[image->buffer];
        MAKE(*made, clCreateImage, device->context, READ_WRITE, &format, &description, NULL);
        CALL(clGetImageInfo, *made, IMAGE_ROW_PITCH, sizeof pitch, &pitch, NULL);
        TE_NEED(pitch == (size_t)image->pitch, TE_DEVICE_IMAGE,
                "the device makes an image with rows of %llu bytes of one with rows of %llu",
                (unsigned long long)pitch, (unsigned long long)image->pitch);
        return TE_OK;
    }
    /* One of the same place and size is the same; weights that are equal are one already. */
    for (uint32_t i = number; i-- > 0 && buffer->arena != -1;) {
        const te_image_record *other = &model->images[i];
        const te_buffer_record *place = &model->buffers[other->buffer];
        if (place->arena == buffer->arena && place->offset == buffer->offset &&
            other->width == image->width && other->height == image->height &&
            other->dtype == image->dtype && !device->buffers[other->buffer]) {
            CALL(clRetainMemObject, device->images[i]);
            *made = device->images[i];
            return TE_OK;
        }
    }
    MAKE(*made, clCreateImage, device->context, READ_WRITE, &format, &description, NULL);
    return TE_OK;
}

te_status te_opencl_make_memory(const opencl *device, const te_model *model, te_error *error) {
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        const uint64_t bytes = (uint64_t)model->arenas[i];
        TE_TRY(te_opencl_make_buffer(device, bytes, &device->arenas[i], error));
    }
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        if (!te_image_of(model, (int32_t)i)) TE_TRY(make_part(device, model, i, error));
    }
    for (uint32_t i = 0; i < TOTAL(STATES); i++) {
        const int32_t initial = model->ports[TE_STATES][i].initial;
        if (initial != -1) TE_TRY(make_weight(device, model, initial, error));
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) TE_TRY(make_image(device, model, i, error));
    return TE_OK;
}

/* Bytes of a weight into an image of its own: whole rows, or what there is of one. */
static te_status write_image(const opencl *device, const te_image_record *image, cl_object object,
                             int64_t offset, const unsigned char *data, int64_t bytes,
                             te_error *error) {
    const int64_t pixel = pixel_bytes(image), width = image->width * pixel;
    for (int64_t done; bytes > 0; offset += done, data += done, bytes -= done) {
        const int64_t row = offset / image->pitch, from = offset % image->pitch;
        int64_t rows = from ? 0 : bytes / image->pitch;
        if (row >= image->height) return TE_OK;
        if (rows > image->height - row) rows = image->height - row;
        done = rows ? rows * image->pitch : image->pitch - from;
        if (done > bytes) done = bytes;
        /* Behind its width a row has bytes that are no pixels. */
        const int64_t part = rows || done > width - from ? width - from : done;
        const size_t origin[3] = {(size_t)(from / pixel), (size_t)row, 0};
        const size_t region[3] = {(size_t)(part / pixel), (size_t)(rows ? rows : 1), 1};
        if (part <= 0) continue;
        CALL(clEnqueueWriteImage, device->queue, object, BLOCKING, origin, region,
             (size_t)(rows ? image->pitch : 0), 0, data, 0, NULL, NULL);
    }
    return TE_OK;
}

/* A piece of a weight to all that is made of it. */
te_status te_opencl_write_weight(void *user, uint32_t weight, int64_t offset, const void *data,
                                 size_t bytes, te_error *error) {
    const te_context *context = user;
    const te_model *model = context->model;
    const opencl *device = context->device;
    if (device->weights[weight]) {
        CALL(clEnqueueWriteBuffer, device->queue, device->weights[weight], BLOCKING,
             (size_t)offset, bytes, data, 0, NULL, NULL);
    }
    for (uint32_t i = 0; i < TOTAL(IMAGES); i++) {
        const te_image_record *image = &model->images[i];
        const bool own = !device->buffers[image->buffer];
        if (!own || model->buffers[image->buffer].weight != (int32_t)weight) continue;
        TE_TRY(write_image(device, image, device->images[i], offset, data, (int64_t)bytes, error));
    }
    return TE_OK;
}
