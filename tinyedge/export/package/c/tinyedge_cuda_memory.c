/* The CUDA backend's memory: one allocation of the device, one of the host. */
#include "tinyedge_cuda.h"

uint64_t te_cuda_lay_out(const te_model *model, const te_context_options *options, cuda *block) {
    cuda unused, *to = block ? block : &unused;
    uint64_t end = sizeof *to;
    to->functions = te_place(block, &end, TOTAL(KERNELS), sizeof *to->functions);
    to->arenas = te_place(block, &end, TOTAL(ARENAS), sizeof *to->arenas);
    to->weights = te_place(block, &end, TOTAL(WEIGHTS), sizeof *to->weights);
    to->places = te_place(block, &end, TOTAL(BUFFERS), sizeof *to->places);
    to->nodes = te_place(block, &end, TOTAL(STEPS), sizeof *to->nodes);
    const uint64_t times = options->profile ? (uint64_t)TOTAL(STEPS) + 1 : 0;
    to->times = te_place(block, &end, times, sizeof *to->times);
    return end;
}

static uint64_t take(uint64_t *end, uint64_t bytes) {
    const uint64_t start = *end;
    *end += (bytes + TE_ALIGNMENT - 1) / TE_ALIGNMENT * TE_ALIGNMENT;
    return start;
}

/* Bytes of the device's one allocation; with `to`, where everything lies in it. */
static uint64_t place_memory(const te_model *model, cuda *to) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < TOTAL(ARENAS); i++) {
        const uint64_t at = take(&end, (uint64_t)model->arenas[i]);
        if (to) to->arenas[i] = to->memory + at;
    }
    for (uint32_t i = 0; i < TOTAL(WEIGHTS); i++) {
        const uint64_t at = take(&end, (uint64_t)model->weights[i].bytes);
        if (to) to->weights[i] = to->memory + at;
    }
    const uint64_t at = take(&end, sizeof(int32_t[TE_MAX_SYMBOLS]));
    if (to) to->symbols = to->memory + at;
    for (uint32_t i = 0; to && i < TOTAL(BUFFERS); i++) {
        const te_buffer_record *buffer = &model->buffers[i];
        to->places[i].address = buffer->arena == -1
                                    ? to->weights[buffer->weight]
                                    : to->arenas[buffer->arena] + (uint64_t)buffer->offset;
    }
    return end;
}

/* An earlier port whose buffer is in the same place: they have one memory of the host, too. */
static const te_port_record *same_place(const te_model *model, int group, uint32_t number) {
    const te_buffer_record *buffer = &model->buffers[model->ports[group][number].buffer];
    for (int g = TE_INPUTS; g <= group; g++) {
        const uint32_t end = g == group ? number : te_count(model, g);
        for (uint32_t i = 0; i < end; i++) {
            const te_port_record *port = &model->ports[g][i];
            const te_buffer_record *other = &model->buffers[port->buffer];
            if (other->arena == buffer->arena && other->offset == buffer->offset &&
                other->bytes == buffer->bytes) {
                return port;
            }
        }
    }
    return NULL;
}

/* The same for the memory of the host. */
static uint64_t place_host(const te_model *model, cuda *to) {
    uint64_t end = 0, most = sizeof(int32_t); /* a condition */
    const uint64_t table = take(&end, sizeof(int32_t[TE_MAX_SYMBOLS]));
    for (int group = TE_INPUTS; group <= TE_OUTPUTS; group++) {
        for (uint32_t i = 0; i < te_count(model, group); i++) {
            const int32_t buffer = model->ports[group][i].buffer;
            const te_port_record *same = same_place(model, group, i);
            const uint64_t bytes = same ? 0 : (uint64_t)model->buffers[buffer].bytes;
            const uint64_t at = take(&end, bytes);
            if (to) to->places[buffer].host = same ? to->places[same->buffer].host : to->host + at;
        }
    }
    for (uint32_t i = 0; i < TOTAL(STATES); i++) {
        const uint64_t bytes = (uint64_t)model->buffers[model->ports[TE_STATES][i].buffer].bytes;
        if (bytes > most) most = bytes;
    }
    const uint64_t spare = take(&end, most);
    if (to) {
        to->table = to->host + table;
        to->spare = to->host + spare;
    }
    return end;
}

void te_cuda_measure(const te_model *model, const te_context_options *options, te_memory *memory) {
    memory->arenas = 0;
    memory->context = te_cuda_lay_out(model, options, NULL);
    memory->device = place_memory(model, NULL) + place_host(model, NULL);
}

te_status te_cuda_allocate(const te_model *model, cuda *device, te_error *error) {
    int64_t integrated, maps;
    size_t unused_bytes = 0, all;
    const uint64_t bytes = place_memory(model, NULL), host_bytes = place_host(model, NULL);
    TE_TRY(te_cuda_fact(device, INTEGRATED, &integrated, error));
    TE_TRY(te_cuda_fact(device, CAN_MAP_HOST_MEMORY, &maps, error));
    device->mapped = integrated && maps;
    const int answer = device->driver.cuMemAlloc(&device->memory, (size_t)bytes);
    if (answer == OUT_OF_MEMORY) {
        CALL(cuMemGetInfo, &unused_bytes, &all);
        return te_fail(error, TE_DEVICE_MEMORY,
                       "weights and arenas need %llu bytes of the device, which has %llu unused",
                       (unsigned long long)bytes, (unsigned long long)unused_bytes);
    }
    TE_TRY(te_cuda_failed(device, answer, NUMBER(cuMemAlloc), error));
    place_memory(model, device);
    void *host;
    CALL(cuMemHostAlloc, &host, (size_t)host_bytes, device->mapped ? HOST_MEMORY_MAPPED : 0);
    device->host = host;
    place_host(model, device);
    if (!device->mapped) return TE_OK;
    CUdeviceptr address;
    CALL(cuMemHostGetDevicePointer, &address, device->host, 0);
    for (uint32_t i = 0; i < TOTAL(BUFFERS); i++) {
        place *place = &device->places[i];
        if (place->host) place->address = address + (uint64_t)(place->host - device->host);
    }
    return TE_OK;
}

te_status te_cuda_load_weight(void *user, uint32_t weight, int64_t offset, const void *data,
                              size_t bytes, te_error *error) {
    const cuda *device = user;
    CALL(cuMemcpyHtoD, device->weights[weight] + (uint64_t)offset, data, bytes);
    return TE_OK;
}
