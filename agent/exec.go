package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// The channels of an exec session: the first byte of every message.
const (
	stdinChannel byte = iota
	stdoutChannel
	stderrChannel
	errorChannel
	closeChannel byte = 255
)

const (
	protocolV5 = "v5.channel.k8s.io"
	protocolV4 = "v4.channel.k8s.io" // cannot close standard input

	chunk       = 32 << 10
	pingPeriod  = 15 * time.Second
	pongTimeout = 60 * time.Second
	// A kubelet that the server could not reach has not run the command.
	notDialled = "error dialing backend"
)

// request is a command in a pod.
type request struct {
	pod, container string
	command        []string
	stdin          bool
}

// parseRequest reads the arguments of exec. mpirun's options for ssh come before the host.
func parseRequest(words []string) (request, error) {
	asked := request{stdin: true}
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		option := words[0]
		words = words[1:]
		if option == "--container" && len(words) > 0 {
			asked.container, words = words[0], words[1:]
		}
	}
	if len(words) < 2 {
		return asked, errors.New(usage)
	}
	asked.pod, asked.command = words[0], shell(strings.Join(words[1:], " "))
	return asked, nil
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

func (r request) query() string {
	values := url.Values{"command": r.command, "container": {r.container}, "stdout": {"true"}, "stderr": {"true"}}
	if r.stdin {
		values.Set("stdin", "true")
	}
	return values.Encode()
}

// streams are those of a process.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func execute(ctx context.Context, asked request, own streams) error {
	api, err := openCluster()
	if err != nil {
		return err
	}
	input := newInputReader(own.in)
	began := time.Now()
	var refusals refusals
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		left := patience{start: defaultPatience.start - time.Since(began), refused: defaultPatience.refused}
		found, err := api.waitFor(ctx, asked.pod, asked.container, left, false)
		if err != nil {
			return err
		}
		if asked.container == "" {
			asked.container = found.defaultContainer()
		}
		err = api.runCommand(ctx, asked, input, own)
		var broken *notStartedError
		late := time.Since(began) > defaultPatience.start
		if !errors.As(err, &broken) || refusals.last(err, defaultPatience) || late || sleep(ctx, pause) != nil {
			return err
		}
	}
}

// notStartedError is a failure before the command was run, so that it can be tried again.
type notStartedError struct{ cause error }

func (e *notStartedError) Error() string { return e.cause.Error() }

func (e *notStartedError) Unwrap() error { return e.cause }

// runCommand runs the command and forwards its streams. The error is its exit code, or why there is none.
func (c *cluster) runCommand(ctx context.Context, asked request, input *inputReader, own streams) error {
	connection, err := c.dial(ctx, asked)
	if err != nil {
		return fmt.Errorf("pod %s: %w", asked.pod, err)
	}
	defer connection.CloseNow()
	session, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if err := keepAlive(session, connection); err != nil {
			stop(err)
		}
	}()
	if asked.stdin {
		go input.forward(session, connection)
	}
	err = forwardOutput(session, connection, own)
	var code exitError
	var broken *notStartedError
	switch {
	case context.Cause(ctx) != nil:
		// The connection ends with us. The command loses its streams, and MPI's daemons end without the launcher.
		return context.Cause(ctx)
	case err == nil || errors.As(err, &code):
		_ = connection.Close(websocket.StatusNormalClosure, "")
		return err
	case context.Cause(session) != nil:
		err = context.Cause(session)
	case errors.As(err, &broken) && input.sent.Load():
		err = broken.cause // a second attempt would lack that input
	}
	return fmt.Errorf("pod %s: %w", asked.pod, err)
}

func (c *cluster) dial(ctx context.Context, asked request) (*websocket.Conn, error) {
	header, err := c.header()
	if err != nil {
		return nil, err
	}
	dialling, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	options := &websocket.DialOptions{
		HTTPClient:   c.client,
		HTTPHeader:   header,
		Subprotocols: []string{protocolV5, protocolV4},
	}
	connection, response, err := websocket.Dial(dialling, c.podURL(asked.pod)+"/exec?"+asked.query(), options)
	switch {
	case err == nil:
		connection.SetReadLimit(-1)
		return connection, nil
	case response != nil:
		answer := answerOf(response)
		if answer.status == http.StatusBadRequest { // no such container
			return nil, answer
		}
		return nil, &notStartedError{answer}
	default:
		return nil, &notStartedError{err}
	}
}

// keepAlive returns an error when the other side has gone without a word.
func keepAlive(ctx context.Context, connection *websocket.Conn) error {
	for {
		if err := sleep(ctx, pingPeriod); err != nil {
			return nil
		}
		ping, cancel := context.WithTimeout(ctx, pongTimeout)
		err := connection.Ping(ping)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the connection gave no sign of life for %s", pongTimeout)
		}
	}
}

// forwardOutput writes what the command prints, until it ends.
func forwardOutput(ctx context.Context, connection *websocket.Conn, own streams) error {
	outlets := map[byte]io.Writer{stdoutChannel: own.out, stderrChannel: own.err}
	var ending []byte
	silent := true
	for {
		_, message, err := connection.Read(ctx)
		if err != nil {
			return fmt.Errorf("the connection broke: %w", err)
		}
		if len(message) == 0 {
			continue
		}
		if message[0] == errorChannel {
			ending = append(ending, message[1:]...)
			var result status
			if len(ending) > 0 && json.Unmarshal(ending, &result) == nil {
				return result.outcome(silent)
			}
			continue
		}
		if outlet := outlets[message[0]]; outlet != nil && len(message) > 1 {
			silent = false
			if _, err := outlet.Write(message[1:]); err != nil {
				return fmt.Errorf("output: %w", err)
			}
		}
	}
}

// status is the Status object with which the server ends a session.
type status struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Details struct {
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"causes"`
	} `json:"details"`
}

// outcome is nil for success, else the exit code or what went wrong.
func (s status) outcome(silent bool) error {
	if s.Status == "Success" {
		return nil
	}
	for _, cause := range s.Details.Causes {
		if cause.Reason != "ExitCode" {
			continue
		}
		if code, err := strconv.Atoi(cause.Message); err == nil {
			return exitError(code)
		}
	}
	failure := errors.New(oneLine(s.Message))
	if silent && strings.Contains(s.Message, notDialled) {
		return &notStartedError{failure}
	}
	return failure
}
