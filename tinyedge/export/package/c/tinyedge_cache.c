/* Compiled programs as files in a folder (POSIX): each is written beside its place and renamed. */
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

/* Whether only this user can write to the folder: what lies there is given to the driver. */
static bool is_own(const char *folder) {
    struct stat status;
    return !stat(folder, &status) && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           !(status.st_mode & (S_IWGRP | S_IWOTH));
}

static int64_t cache_read(void *user, const char *key, void *into, size_t bytes) {
    const te_reader reader = te_folder_reader(user);
    if (!is_own(user)) return -1;
    const int64_t size = reader.size(user, key);
    if (!into || size < 0 || (uint64_t)size > bytes) return size;
    return reader.read(user, key, 0, into, (size_t)size) ? -1 : size;
}

static bool write_all(int file, const unsigned char *data, size_t bytes) {
    while (bytes) {
        const ssize_t part = write(file, data, bytes);
        if (part <= 0) return false;
        data += part;
        bytes -= (size_t)part;
    }
    return true;
}

static int cache_write(void *user, const char *key, const void *data, size_t bytes) {
    const char *folder = user;
    char path[PATH_LIMIT], partial[PATH_LIMIT];
    const int length = snprintf(partial, sizeof partial, "%s/%s.%ld", folder, key, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof partial) return -1;
    snprintf(path, sizeof path, "%s/%s", folder, key);
    mkdir(folder, 0700); /* where it is there already, it stays */
    if (!is_own(folder)) return -1;
    const int file = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return -1;
    const bool whole = write_all(file, data, bytes);
    if (!close(file) && whole && !rename(partial, path)) return 0;
    unlink(partial);
    return -1;
}

te_cache te_folder_cache(const char *folder) {
    return (te_cache){cache_read, cache_write, (void *)(uintptr_t)folder};
}

#else
typedef int te_nothing_here; /* a translation unit may not be empty */
#endif
