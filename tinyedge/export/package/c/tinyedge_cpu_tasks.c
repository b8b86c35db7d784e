/* Which launches and copies of the cpu wait for which, and into how many parts they are divided. */
#include "tinyedge_cpu.h"

#include <string.h>

/* Work is counted in bytes to and from memory. One takes about as long as so many operations. */
#define FLOPS_PER_BYTE 4
/* A few microseconds of work: a launch of less is not divided, and small launches that are
   independent of each other go to one thread until they have that much. */
#define SHARED_WORK 65536
#define PART_WORK (SHARED_WORK / 2)
/* So that a thread that comes late, or is slow, holds up the others by a part of its share. */
#define PARTS_PER_THREAD 4
/* For so many commands back it is found out whether their order matters. It does for all before. */
#define LOOK_BACK 64

typedef struct span {
    uintptr_t start, end;
    bool written;
} span;

static size_t span_count(const te_command *command) {
    return command->kernel ? command->kernel->count : 2;
}

static span span_of(const te_command *command, size_t number) {
    const te_kernel *kernel = command->kernel;
    const uintptr_t start = (uintptr_t)command->buffers[number];
    const int64_t bytes = kernel ? kernel->buffers[number].bytes : command->most;
    return (span){start, start + (uintptr_t)bytes,
                  kernel ? kernel->buffers[number].written : number == 0};
}

/* At the greatest sizes. A kernel may read little of a large buffer: a number for an operation. */
static int64_t work_of(const te_command *command) {
    int64_t read = 0, written = 0;
    if (!command->kernel) return 2 * command->most;
    for (size_t i = 0; i < command->kernel->count; i++) {
        const te_kernel_buffer *buffer = &command->kernel->buffers[i];
        *(buffer->written ? &written : &read) += buffer->bytes;
    }
    const int64_t most = command->flops * (int64_t)sizeof(float);
    return written + (read < most ? read : most) + command->flops / FLOPS_PER_BYTE;
}

/* Whether the order of two commands matters: they touch the same bytes, and one writes them. */
static bool ordered(const te_command *one, const te_command *other) {
    for (size_t i = 0; i < span_count(one); i++) {
        const span a = span_of(one, i);
        for (size_t j = 0; j < span_count(other); j++) {
            const span b = span_of(other, j);
            if ((a.written || b.written) && a.start < b.end && b.start < a.end) return true;
        }
    }
    return false;
}

/* Where the commands begin that those before `end` are looked for in. */
static uint32_t oldest(uint32_t first, uint32_t end) {
    return end - first > LOOK_BACK ? end - LOOK_BACK : first;
}

/* The end of the commands in [first, end) that command `number` waits for. */
static uint32_t awaited(const te_command *commands, uint32_t first, uint32_t end,
                        uint32_t number) {
    const uint32_t least = oldest(first, end);
    while (end > least && !ordered(&commands[end - 1], &commands[number])) end--;
    return end;
}

/* How many tasks there are up to that of command `end` - 1. */
static uint32_t tasks_until(const te_task *tasks, uint32_t count, uint32_t end) {
    while (count && tasks[count - 1].first >= end) count--;
    return count;
}

/* Whether a command is best run by the thread of the small ones before it: it waits for one of
   them, or is too little for a thread, with them. work: its own; theirs: of the others. */
static bool joins(const te_command *commands, const te_task *task, uint32_t number, int64_t work,
                  int64_t theirs) {
    if (work >= SHARED_WORK || work_of(&commands[task->first]) >= SHARED_WORK) return false;
    return theirs + work < SHARED_WORK ||
           awaited(commands, task->first, number, number) > oldest(task->first, number);
}

uint32_t te_plan_tasks(const te_command *commands, uint32_t first, uint32_t end, te_task *tasks) {
    uint32_t count = 0;
    int64_t together = 0;
    for (uint32_t i = first; i < end; i++) {
        const int64_t work = work_of(&commands[i]);
        if (!count || !joins(commands, &tasks[count - 1], i, work, together)) {
            tasks[count++] = (te_task){.first = i, .parts = 1};
            together = 0;
        }
        te_task *task = &tasks[count - 1];
        const uint32_t before = awaited(commands, first, task->first, i);
        const uint32_t after = tasks_until(tasks, count - 1, before);
        if (after > task->after) task->after = after;
        task->end = i + 1;
        together += work;
    }
    return count;
}

static uint32_t parts_of(const te_command *command, int threads) {
    const double share = command->most ? (double)command->amount / (double)command->most : 0;
    const double parts = share * (double)work_of(command) / PART_WORK;
    int64_t most = (int64_t)threads * PARTS_PER_THREAD;
    if (most > command->amount) most = command->amount;
    if (parts < 2 || most < 2) return 1;
    return parts < (double)most ? (uint32_t)parts : (uint32_t)most;
}

bool te_divide_tasks(const te_command *commands, te_task *tasks, uint32_t count, int threads) {
    uint32_t ticket = 0;
    bool divided = false;
    for (uint32_t i = 0; i < count; i++) {
        te_task *task = &tasks[i];
        if (task->end - task->first == 1) task->parts = parts_of(&commands[task->first], threads);
        task->ticket = ticket;
        atomic_store_explicit(&task->left, task->parts, memory_order_relaxed);
        ticket += task->parts;
        divided |= task->parts > 1 || task->after < i;
    }
    return divided;
}

static void run_command(const te_command *command, int64_t begin, int64_t end) {
    void *const *buffers = command->buffers;
    if (begin == end) return;
    if (command->kernel) {
        command->kernel->function(buffers, command->symbols, (int32_t)begin, (int32_t)end);
    } else {
        memcpy((char *)buffers[0] + begin, (const char *)buffers[1] + begin, (size_t)(end - begin));
    }
}

void te_run_part(const te_command *commands, const te_task *task, uint32_t part) {
    for (uint32_t i = task->first; i < task->end; i++) {
        const int64_t amount = commands[i].amount;
        run_command(&commands[i], amount * part / task->parts, amount * (part + 1) / task->parts);
    }
}
