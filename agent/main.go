// Gangline-agent brings MPI launchers to their workers: it runs commands in other pods of its namespace, as `kubectl
// exec` does, with the token of its pod. It is one static program, so that it runs in every image.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

const usage = `usage:
  gangline-agent install [--hostfile FILE] [--launcher POD] [--wait DURATION] FOLDER
      copy this program into the folder; then wait until the pods in the host file run, at most that long (10m)
  gangline-agent exec [OPTION...] [--container NAME] POD WORD...
      run the words, joined by spaces, with /bin/sh in a pod; other options, which are meant for ssh, are skipped
  kubectl exec POD [-i] [--container NAME] -- WORD...
      under this name, which install gives it as well

GANGLINE_SERVICE_ACCOUNT is the folder with token, ca.crt and namespace, if it is not where Kubernetes mounts it.
`

const signalExitBase = 128

// exitError is the exit code of a command that ended by itself.
type exitError int

func (code exitError) Error() string { return fmt.Sprintf("exit code %d", int(code)) }

// signalError ends the program as its signal would have.
type signalError struct{ signal syscall.Signal }

func (caught signalError) Error() string { return caught.signal.String() }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { cancel(signalError{(<-signals).(syscall.Signal)}) }()

	err := run(ctx, filepath.Base(os.Args[0]), os.Args[1:])
	if caught := context.Cause(ctx); caught != nil && err != nil {
		err = caught
	}
	os.Exit(exitCode(err))
}

func run(ctx context.Context, name string, arguments []string) error {
	parse := parseRequest
	switch {
	case name == kubectlName:
		parse = parseKubectl
	case len(arguments) > 0 && arguments[0] == "install":
		return install(ctx, arguments[1:])
	case len(arguments) > 0 && arguments[0] == "exec":
		arguments = arguments[1:]
	default:
		return errors.New(usage)
	}
	asked, err := parse(arguments)
	if err != nil {
		return err
	}
	return execute(ctx, asked, streams{os.Stdin, os.Stdout, os.Stderr})
}

// exitCode prints an error in one line, unless it is a command's own exit code or a signal.
func exitCode(err error) int {
	var code exitError
	var caught signalError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &caught):
		return signalExitBase + int(caught.signal)
	}
	fmt.Fprintf(os.Stderr, "gangline-agent: %v\n", err)
	return 1
}
