/* What can be asked of an opened bundle: its ports, symbols and entries. */
#include "tinyedge_internal.h"

#include <string.h>

int te_port_count(const te_model *model, te_group group) { return (int)te_count(model, group); }

bool te_port(const te_model *model, te_group group, int index, te_port_info *info) {
    int64_t maxima[TE_MAX_SYMBOLS], elements;
    if ((unsigned)group > TE_STATES || !within(index, te_count(model, group))) return false;
    const te_port_record *port = &model->ports[group][index];
    *info = (te_port_info){.name = port->name.at, .dtype = port->dtype, .storage = port->storage,
                           .rank = port->rank, .codes = port->codes.at};
    for (uint32_t i = 0; i < model->totals[TE_N_SYMBOLS]; i++) maxima[i] = model->symbols[i].max;
    te_extents(model, port, maxima, info->shape, &elements);
    for (int axis = 0; axis < port->rank; axis++) {
        info->symbol[axis] = te_bare_symbol(model, port->shape[axis]);
    }
    info->slices = (int)port->slices;
    info->counted = port->count != -1;
    return true;
}

bool te_slice(const te_model *model, int output, int slice, te_slice_info *info) {
    if (!within(output, te_count(model, TE_OUTPUTS))) return false;
    const te_port_record *port = &model->ports[TE_OUTPUTS][output];
    if (!within(slice, port->slices)) return false;
    const te_slice_record *record = &model->slices[port->first_slice + (uint32_t)slice];
    *info = (te_slice_info){record->name.at, (int)record->axis, record->start, record->size};
    return true;
}

int te_symbol_count(const te_model *model) { return (int)model->totals[TE_N_SYMBOLS]; }

bool te_symbol(const te_model *model, int index, te_symbol_info *info) {
    if (!within(index, model->totals[TE_N_SYMBOLS])) return false;
    const te_symbol_record *symbol = &model->symbols[index];
    *info = (te_symbol_info){symbol->name.at, symbol->min, symbol->max, symbol->step};
    return true;
}

int te_entry_count(const te_model *model) { return (int)model->totals[TE_N_ENTRIES]; }

bool te_entry(const te_model *model, int index, te_entry_info *info) {
    if (!within(index, model->totals[TE_N_ENTRIES])) return false;
    const te_entry_record *entry = &model->entries[index];
    *info = (te_entry_info){entry->name.at, (int)entry->inputs, (int)entry->outputs};
    return true;
}

int te_entry_port(const te_model *model, int entry, te_group group, int position) {
    if (!within(entry, model->totals[TE_N_ENTRIES])) return -1;
    uint32_t count;
    const int32_t *list = te_listed(model, &model->entries[entry], group, &count);
    return within(position, count) ? list[position] : -1;
}

/* Among records that begin with their names. */
static int find(const te_model *model, enum te_total total, const char *name) {
    size_t bytes;
    const char *record = te_array(model, total, &bytes);
    for (uint32_t i = 0; name && i < model->totals[total]; i++, record += bytes) {
        if (!strcmp(((const te_text *)(const void *)record)->at, name)) return (int)i;
    }
    return -1;
}

int te_find_port(const te_model *model, te_group group, const char *name) {
    if ((unsigned)group > TE_STATES) return -1;
    return find(model, (enum te_total)(TE_N_INPUTS + (int)group), name);
}

int te_find_entry(const te_model *model, const char *name) {
    return find(model, TE_N_ENTRIES, name);
}
