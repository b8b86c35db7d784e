/*
All states of a context as one file of the form safetensors, and back: what was learned here goes on
in a page or in Python, and the other way. Beside the runtime: a program that calls neither function
does not link it. Nothing is allocated, and no file is opened: the file lies in the caller's memory.

    size_t bytes;
    te_save_states(context, NULL, 0, &bytes);        // how large it is
    te_save_states(context, memory, bytes, &bytes);
    fwrite(memory, 1, bytes, file);
*/
#ifndef TINYEDGE_STATES_H
#define TINYEDGE_STATES_H

#include "tinyedge.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write the file into `bytes` bytes of memory; NULL: none. needed: how many it has, at the sizes of
   the last run. run.state: they are too few. run.dtype: the form has no such element type. */
te_status te_save_states(te_context *context, void *into, size_t bytes, size_t *needed);

/* Give every state its value in a file. Its header is used up, whatever comes of it. run.states:
   the file is damaged, or lacks a state in its type and shape (what else it holds does not matter);
   no state has changed. Any other failure is one of te_set_state, with which the states before that
   one have changed. */
te_status te_load_states(te_context *context, void *file, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
