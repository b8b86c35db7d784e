/* The files of a bundle in a folder (POSIX). Links, pipes and devices count as missing. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "tinyedge_internal.h"

#ifndef TINYEDGE_NO_FOLDER

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LIMIT 4096

static int open_file(const char *folder, const char *name, int64_t *size) {
    char path[PATH_LIMIT];
    struct stat status;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) return -1;
    const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return -1;
    if (fstat(file, &status) || !S_ISREG(status.st_mode)) {
        close(file);
        return -1;
    }
    *size = (int64_t)status.st_size;
    return file;
}

static int64_t folder_size(void *user, const char *name) {
    int64_t size = -1;
    const int file = open_file(user, name, &size);
    if (file < 0) return -1;
    close(file);
    return size;
}

static int folder_read(void *user, const char *name, int64_t offset, void *into, size_t bytes) {
    int64_t size;
    unsigned char *to = into;
    const int file = open_file(user, name, &size);
    if (file < 0) return -1;
    while (bytes) {
        const ssize_t part = pread(file, to, bytes, (off_t)offset);
        if (part <= 0) break;
        to += part;
        offset += part;
        bytes -= (size_t)part;
    }
    close(file);
    return bytes ? -1 : 0;
}

te_reader te_folder_reader(const char *folder) {
    return (te_reader){folder_size, folder_read, (void *)(uintptr_t)folder};
}

#else
typedef int te_nothing_here; /* a translation unit may not be empty */
#endif
