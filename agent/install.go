package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	programName = "gangline-agent"
	// A job with many workers is asked about in turns: 8 requests in flight, and seconds between two for one pod.
	waitersAtOnce = 8
)

func install(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	hostfile := flags.String("hostfile", "", "")
	launcher := flags.String("launcher", "", "")
	wait := flags.Duration("wait", defaultPatience.start, "")
	if err := flags.Parse(arguments); err != nil || flags.NArg() != 1 {
		return errors.New(usage)
	}
	if err := copyProgram(flags.Arg(0)); err != nil {
		return err
	}
	if *hostfile == "" || *wait <= 0 {
		return nil
	}
	text, err := os.ReadFile(*hostfile)
	if err != nil {
		return err
	}
	api, err := openCluster()
	if err != nil {
		return err
	}
	limits := patience{start: *wait, refused: defaultPatience.refused}
	return waitForHosts(ctx, api, hosts(string(text), *launcher), limits)
}

// copyProgram puts this program into a folder. A half-written one is never seen under its name.
func copyProgram(folder string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	partial, err := os.CreateTemp(folder, programName+".*")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name())
	if _, err := io.Copy(partial, bytes.NewReader(program)); err != nil {
		return errors.Join(err, partial.Close())
	}
	// The user of the launcher's container is another one.
	if err := partial.Chmod(0o755); err != nil {
		return errors.Join(err, partial.Close())
	}
	if err := partial.Close(); err != nil {
		return err
	}
	if err := os.Rename(partial.Name(), filepath.Join(folder, programName)); err != nil {
		return err
	}
	if err := os.Symlink(programName, filepath.Join(folder, kubectlName)); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// hosts are the names in a host file without the launcher, which need not wait for itself.
func hosts(hostfile, launcher string) []string {
	var names []string
	for _, line := range strings.Split(hostfile, "\n") {
		words := strings.Fields(line)
		if len(words) > 0 && !strings.HasPrefix(words[0], "#") && words[0] != launcher {
			names = append(names, words[0])
		}
	}
	return names
}

// waitForHosts returns when all pods run. One that is late is no error: elastic jobs start with some of their workers,
// and for others the exec that follows waits, and says what is wrong. A refusal by the server is an error.
func waitForHosts(ctx context.Context, api *cluster, names []string, limits patience) error {
	began := time.Now()
	queue := make(chan string, len(names))
	for _, name := range names {
		queue <- name
	}
	close(queue)
	problems := make([]error, waitersAtOnce)
	var waiters sync.WaitGroup
	for index := range problems {
		waiters.Add(1)
		go func() {
			defer waiters.Done()
			for name := range queue {
				left := patience{start: limits.start - time.Since(began), refused: limits.refused}
				_, err := api.waitFor(ctx, name, "", left, true)
				if isRefusal(err) && !isNotFound(err) {
					problems[index] = err
					return
				}
				if err != nil && ctx.Err() == nil {
					fmt.Fprintf(os.Stderr, "%s: starting without it: %v\n", programName, err)
				}
			}
		}()
	}
	waiters.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(problems...)
}
