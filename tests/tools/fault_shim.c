/* SPDX-License-Identifier: MIT */
/* For LD_PRELOAD: lets one system call of a program fail, or kills the program at it. Calls count from main():
   what libraries do before it is not counted. A call is named PROCESS.THREAD.NUMBER: "0", its second child "0-2";
   threads in the order of their start, numbers from 1. So it has one name in all runs, whoever comes first.
   WEFT_FAULT_AT: which call; WEFT_FAULT_KILL: kill there, after half of a write; WEFT_FAULT_RANK: only in the process
   with this RANK; WEFT_FAULT_LOG: a file for the names of the calls, or of the one that failed. A process that has not
   ended after 70 s ends by SIGALRM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char* fault_at = "";
static char process[64] = "0";
static int started, kills, log_file = -1, children, threads;
static _Thread_local int thread;
static _Thread_local long calls;

static int faulty(const char* name) {
  if (!started) return 0;
  char call[128];
  const int size = snprintf(call, sizeof call, "%s.%d.%ld %s\n", process, thread, ++calls, name);
  const size_t length = strlen(fault_at);
  const int found = length > 0 && strncmp(call, fault_at, length) == 0 && call[length] == ' ';
  if (log_file >= 0 && (found || length == 0)) syscall(SYS_write, log_file, call, (size_t)size);
  return found;
}

static int fails(const char* name, int error) {
  if (!faulty(name)) return 0;
  if (kills) syscall(SYS_kill, getpid(), SIGKILL);
  errno = error;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

pid_t fork(void) {
  const int child = ++children;
  const pid_t pid = REAL(fork)();
  if (pid != 0) return pid;
  const size_t length = strlen(process);
  snprintf(process + length, sizeof process - length, "-%d", child);
  children = threads = thread = 0;
  calls = 0;
  return 0;
}

struct Body {
  void* (*run)(void*);
  void* with;
  int number;
};
static void* numbered(void* argument) {
  const struct Body body = *(struct Body*)argument;
  free(argument);
  thread = body.number;
  return body.run(body.with);
}
int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*run)(void*), void* with) {
  struct Body* body = malloc(sizeof *body);
  *body = (struct Body){run, with, ++threads};
  return REAL(pthread_create)(made, attributes, numbered, body);
}

/* WRAP(result, name, error, value when it fails, parameters, arguments) */
#define WRAP(result, name, error, failed, parameters, arguments) \
  result name parameters {                                       \
    if (fails(#name, error)) return failed;                      \
    return REAL(name) arguments;                                 \
  }

WRAP(FILE*, fopen, EIO, NULL, (const char* path, const char* mode), (path, mode))
WRAP(FILE*, fopen64, EIO, NULL, (const char* path, const char* mode), (path, mode))
WRAP(int, fsync, EIO, -1, (int fd), (fd))
WRAP(int, fdatasync, EIO, -1, (int fd), (fd))
WRAP(int, rename, EIO, -1, (const char* from, const char* to), (from, to))
WRAP(int, linkat, EIO, -1, (int a, const char* from, int b, const char* to, int flags), (a, from, b, to, flags))
WRAP(int, ftruncate, EIO, -1, (int fd, off_t size), (fd, size))
WRAP(ssize_t, read, EIO, -1, (int fd, void* to, size_t size), (fd, to, size))
WRAP(ssize_t, pread, EIO, -1, (int fd, void* to, size_t size, off_t at), (fd, to, size, at))
WRAP(void*, mmap, ENOMEM, MAP_FAILED, (void* at, size_t size, int p, int f, int fd, off_t o), (at, size, p, f, fd, o))
WRAP(int, socket, EMFILE, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(ssize_t, send, ECONNRESET, -1, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags))
WRAP(ssize_t, recv, ECONNRESET, -1, (int fd, void* to, size_t size, int flags), (fd, to, size, flags))

#define WRAP_OPEN(name, parameters, arguments)      \
  int name parameters {                             \
    va_list more;                                   \
    va_start(more, flags);                          \
    const int mode = va_arg(more, int);             \
    va_end(more);                                   \
    if (fails(#name, EMFILE)) return -1;            \
    return REAL(name) arguments;                    \
  }
WRAP_OPEN(open, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(open64, (const char* path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int at, const char* path, int flags, ...), (at, path, flags, mode))

ssize_t write(int fd, const void* from, size_t size) {
  if (faulty("write")) {
    if (kills) {
      syscall(SYS_write, fd, from, size / 2);
      syscall(SYS_kill, getpid(), SIGKILL);
    }
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, fd, from, size);
}

/* Of memory only what is large: 1 MB and more. */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
#define LARGE (1u << 20)
void* malloc(size_t size) { return size >= LARGE && fails("malloc", ENOMEM) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return count * size >= LARGE && fails("calloc", ENOMEM) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return size >= LARGE && fails("realloc", ENOMEM) ? NULL : __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return size >= LARGE && fails("aligned_alloc", ENOMEM) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void** to, size_t alignment, size_t size) {
  if (size >= LARGE && fails("posix_memalign", ENOMEM)) return ENOMEM;
  *to = __libc_memalign(alignment, size);
  return *to ? 0 : ENOMEM;
}

static int (*real_main)(int, char**, char**);
static int counted_main(int argc, char** argv, char** environment) {
  const char *at = getenv("WEFT_FAULT_AT"), *rank = getenv("WEFT_FAULT_RANK"), *own = getenv("RANK");
  const char* log = getenv("WEFT_FAULT_LOG");
  if (at && strcmp(rank ? rank : "", own ? own : "") == 0) {
    fault_at = at;
    kills = getenv("WEFT_FAULT_KILL") != NULL;
    if (log) log_file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    started = 1;
  }
  alarm(70);
  return real_main(argc, argv, environment);
}

typedef int (*Start)(int (*)(int, char**, char**), int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
int __libc_start_main(int (*run)(int, char**, char**), int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack) {
  real_main = run;
  const Start start = (Start)dlsym(RTLD_NEXT, "__libc_start_main");
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack);
}
