/* Loads the library that the argument names as a plug-in does, in a thread: runs a loop with work
 * of the thread pool, and closes the library while the pool's threads still exist. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (0)

enum { THREADS = 4, TIMES = 5, JOBS = 8 };

static const char *path;
static atomic_int performed;
static int reported;

static void perform(uv_work_t *job) { atomic_fetch_add(&performed, 1); }

static void report(uv_work_t *job, int status) {
  CHECK(status == 0);
  reported++;
}

/* A function of the library, with the type that the header gives it. */
#define FUNCTION(library, name) ((typeof(&name))dlsym(library, #name))

static void use(void) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  uv_work_t jobs[JOBS];
  uv_loop_t loop;
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  CHECK(library != NULL);
  CHECK(FUNCTION(library, uv_loop_init)(&loop) == 0);
  for (int index = 0; index < JOBS; index++)
    CHECK(FUNCTION(library, uv_queue_work)(&loop, &jobs[index], perform, report) == 0);
  CHECK(FUNCTION(library, uv_run)(&loop, UV_RUN_DEFAULT) == 0);
  CHECK(FUNCTION(library, uv_loop_close)(&loop) == 0);
  CHECK(dlclose(library) == 0);
}

static void *use_often(void *argument) {
  for (int time = 0; time < TIMES; time++) use();
  return NULL;
}

int main(int arguments, char **argument) {
  CHECK(arguments == 2);
  path = argument[1];
  for (int index = 0; index < THREADS; index++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_often, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(performed == THREADS * TIMES * JOBS);
  CHECK(reported == THREADS * TIMES * JOBS);
  printf("%d times by %d threads\n", THREADS * TIMES, THREADS);
  return 0;
}
