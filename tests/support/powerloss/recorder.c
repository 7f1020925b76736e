/* Records, in order, what a process does to the files of a folder. Loaded with LD_PRELOAD.

   Environment: RECORDER_FOLDER, the folder; RECORDER_LOG, the file of the record; RECORDER_SAYS, a file whose writes are
   recorded as statements of the process, in order with the rest.

   A record is a header (struct header) and `size` bytes. Every file has a number of its own, which it keeps when it is
   renamed. recorder_set_full(1) makes writes that would make a file longer fail with ENOSPC. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CREATE = 1, FIND, WRITE, TRUNCATE, SYNC, SYNC_FOLDER, RENAME, UNLINK, SAY };
struct header { uint32_t operation, file; uint64_t offset, size; };

#define MAX_FILES 4096
#define MAX_DESCRIPTORS 4096
static struct { dev_t device; ino_t inode; int used; } files[MAX_FILES];
static uint32_t file_count = 1;               /* 0: not in the folder */
static uint32_t file_of[MAX_DESCRIPTORS];
static char *folder_of[MAX_DESCRIPTORS];      /* of descriptors of folders */
static char says[MAX_DESCRIPTORS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int output = -1;
static int is_full;
static const char *root, *says_path;

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t), (*real_fsync)(int), (*real_fdatasync)(int), (*real_close)(int);
static int (*real_rename)(const char *, const char *), (*real_unlink)(const char *);

__attribute__((constructor)) static void start(void) {
    real_open = dlsym(RTLD_NEXT, "open64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_close = dlsym(RTLD_NEXT, "close");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    root = getenv("RECORDER_FOLDER");
    says_path = getenv("RECORDER_SAYS");
    if (root && getenv("RECORDER_LOG"))
        output = real_open(getenv("RECORDER_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void recorder_set_full(int full) { is_full = full; }

static void record(uint32_t operation, uint32_t file, uint64_t offset, const void *data, uint64_t size) {
    struct header header = {operation, file, offset, size};
    if (real_write(output, &header, sizeof header) != sizeof header || real_write(output, data, size) != (ssize_t)size)
        abort();
}

/* The path below the folder, or NULL. */
static const char *below(const char *path) {
    size_t length = root ? strlen(root) : 0;
    if (output < 0 || !path || strncmp(path, root, length)) return NULL;
    return path[length] == '/' ? path + length + 1 : path[length] ? NULL : "";
}

static uint32_t known_file(struct stat *status) {
    for (uint32_t number = file_count - 1; number; number--)
        if (files[number].used && files[number].device == status->st_dev && files[number].inode == status->st_ino)
            return number;
    return 0;
}

static uint32_t new_file(struct stat *status) {
    if (file_count == MAX_FILES) abort();
    files[file_count].device = status->st_dev;
    files[file_count].inode = status->st_ino;
    files[file_count].used = 1;
    return file_count++;
}

static int recorded_open(const char *path, int flags, mode_t mode) {
    const char *name = below(path);
    int is_says = output >= 0 && says_path && !strcmp(path, says_path);
    if (!name && !is_says) return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat before, after;
    int existed = !lstat(path, &before);
    int descriptor = real_open(path, flags, mode), error = errno;
    if (descriptor >= 0 && descriptor < MAX_DESCRIPTORS && is_says) {
        says[descriptor] = 1;
    } else if (descriptor >= 0 && descriptor < MAX_DESCRIPTORS && !fstat(descriptor, &after)) {
        if (S_ISDIR(after.st_mode)) {
            folder_of[descriptor] = strdup(name);
        } else {
            uint32_t file = existed ? known_file(&after) : 0;
            if (!file) {
                file = new_file(&after);
                record(existed ? FIND : CREATE, file, 0, name, strlen(name));
            }
            if (flags & O_TRUNC) record(TRUNCATE, file, 0, "", 0);
            file_of[descriptor] = file;
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return descriptor;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return recorded_open(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return recorded_open(path, flags, mode);
}

static uint32_t file_at(int descriptor) {
    return descriptor >= 0 && descriptor < MAX_DESCRIPTORS ? file_of[descriptor] : 0;
}

static int refuses(int descriptor, uint64_t end) {
    struct stat status;
    if (!is_full || fstat(descriptor, &status) || end <= (uint64_t)status.st_size) return 0;
    errno = ENOSPC;
    return 1;
}

static ssize_t recorded_pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    uint32_t file = file_at(descriptor);
    if (!file) return real_pwrite(descriptor, data, size, offset);
    pthread_mutex_lock(&lock);
    ssize_t written = refuses(descriptor, offset + size) ? -1 : real_pwrite(descriptor, data, size, offset);
    int error = errno;
    if (written > 0) record(WRITE, file, offset, data, written);
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return recorded_pwrite(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t offset) {
    return recorded_pwrite(descriptor, data, size, offset);
}

ssize_t write(int descriptor, const void *data, size_t size) {
    uint32_t file = file_at(descriptor);
    int speaks = descriptor >= 0 && descriptor < MAX_DESCRIPTORS && says[descriptor];
    if (!file && !speaks) return real_write(descriptor, data, size);
    pthread_mutex_lock(&lock);
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    struct stat status;
    if (fcntl(descriptor, F_GETFL) & O_APPEND && !fstat(descriptor, &status)) offset = status.st_size;
    ssize_t written = file && refuses(descriptor, offset + size) ? -1 : real_write(descriptor, data, size);
    int error = errno;
    if (written > 0) record(file ? WRITE : SAY, file, offset, data, written);
    pthread_mutex_unlock(&lock);
    errno = error;
    return written;
}

static int recorded_ftruncate(int descriptor, off_t size) {
    uint32_t file = file_at(descriptor);
    pthread_mutex_lock(&lock);
    int result = real_ftruncate(descriptor, size), error = errno;
    if (!result && file) record(TRUNCATE, file, size, "", 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int ftruncate(int descriptor, off_t size) { return recorded_ftruncate(descriptor, size); }
int ftruncate64(int descriptor, off_t size) { return recorded_ftruncate(descriptor, size); }

static int recorded_sync(int descriptor, int (*sync)(int)) {
    uint32_t file = file_at(descriptor);
    pthread_mutex_lock(&lock);
    /* Not on the real disk: the model decides what survives. */
    int result = file || (descriptor < MAX_DESCRIPTORS && folder_of[descriptor]) ? 0 : sync(descriptor), error = errno;
    if (!result && file) record(SYNC, file, 0, "", 0);
    else if (!result && descriptor >= 0 && descriptor < MAX_DESCRIPTORS && folder_of[descriptor])
        record(SYNC_FOLDER, 0, 0, folder_of[descriptor], strlen(folder_of[descriptor]));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int descriptor) { return recorded_sync(descriptor, real_fsync); }
int fdatasync(int descriptor) { return recorded_sync(descriptor, real_fdatasync); }

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < MAX_DESCRIPTORS) {
        pthread_mutex_lock(&lock);
        file_of[descriptor] = 0;
        says[descriptor] = 0;
        free(folder_of[descriptor]);
        folder_of[descriptor] = NULL;
        pthread_mutex_unlock(&lock);
    }
    return real_close(descriptor);
}

int rename(const char *from, const char *to) {
    const char *source = below(from), *target = below(to);
    if (!source || !target) return real_rename(from, to);
    pthread_mutex_lock(&lock);
    struct stat status;
    uint32_t replaced = lstat(to, &status) ? 0 : known_file(&status);
    int result = real_rename(from, to), error = errno;
    if (!result) {
        files[replaced].used = 0;
        char both[8192];
        int length = snprintf(both, sizeof both, "%s%c%s", source, 0, target);
        record(RENAME, 0, 0, both, length);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlink(const char *path) {
    const char *name = below(path);
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&lock);
    struct stat status;
    uint32_t file = lstat(path, &status) ? 0 : known_file(&status);
    int result = real_unlink(path), error = errno;
    if (!result) {
        files[file].used = 0;      /* its inode may be given to another file */
        record(UNLINK, 0, 0, name, strlen(name));
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
