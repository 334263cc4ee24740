/* A disk that fails: preloaded, it lets one call of write, sync, truncate, rename or close fail.

   Calls are counted that change a file whose path contains FAULTY_DISK. `faulty_disk_arm` says
   which of them fails and how; the count is shared with forked processes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct shared {
    long calls;   /* counted since it was armed */
    long at;      /* the first call that fails; 0 for none */
    int error;    /* errno of it */
    int lasting;  /* whether all later calls fail too, as on a full disk */
    int half;     /* whether the first one is a write of half of its bytes */
    long failed;  /* calls that failed */
    int mended;   /* whether nothing fails any more */
};

static struct shared *shared;
static const char *within;

__attribute__((constructor)) static void begin(void) {
    within = getenv("FAULTY_DISK");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void faulty_disk_arm(long at, int error, int lasting, int half) {
    *shared = (struct shared){0, at, error, lasting, half, 0, 0};
}

void faulty_disk_mend(void) { shared->mended = 1; }

long faulty_disk_calls(void) { return shared->calls; }
long faulty_disk_failed(void) { return shared->failed; }

static int is_armed(void) { return within && shared && shared->at && !shared->mended; }

static int is_ours(int file) {
    char link[64], path[4096];
    if (!is_armed()) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, within) != NULL;
}

/* Returns whether this call fails: 2 if it is a write of which half is done. */
static int fails(void) {
    long call = ++shared->calls;
    if (call < shared->at || (call > shared->at && !shared->lasting)) return 0;
    shared->failed++;
    errno = shared->error;
    return shared->half && call == shared->at ? 2 : 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
    int how = is_ours(file) ? fails() : 0;
    if (how == 1 || (how == 2 && size < 2)) return -1;
    return REAL(write)(file, data, how ? size / 2 : size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    int how = is_ours(file) ? fails() : 0;
    if (how == 1 || (how == 2 && size < 2)) return -1;
    return REAL(pwrite64)(file, data, how ? size / 2 : size, at);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return pwrite64(file, data, size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    if (is_ours(file) && fails()) return -1;
    return REAL(writev)(file, parts, count);
}

int fsync(int file) { return is_ours(file) && fails() ? -1 : REAL(fsync)(file); }
int fdatasync(int file) { return is_ours(file) && fails() ? -1 : REAL(fdatasync)(file); }

int ftruncate64(int file, off64_t size) {
    return is_ours(file) && fails() ? -1 : REAL(ftruncate64)(file, size);
}

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

int rename(const char *from, const char *to) {
    int ours = is_armed() && strstr(from, within);
    return ours && fails() ? -1 : REAL(rename)(from, to);
}

int close(int file) {
    int ours = is_ours(file) && (fcntl(file, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int done = REAL(close)(file);
    return ours && fails() ? -1 : done;
}
