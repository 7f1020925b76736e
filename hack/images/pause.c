/* The first process of every pod: waits for the end and reaps what other processes of the pod leave. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

int main(void) {
  struct sigaction on_end = {.sa_handler = end}, on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &on_end, NULL) || sigaction(SIGTERM, &on_end, NULL) || sigaction(SIGCHLD, &on_child, NULL)) return 1;
  for (;;) pause();
}
