package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	firstPause = 200 * time.Millisecond
	lastPause  = 2 * time.Second
)

// patience says how long to wait for a pod, and how long to go on after answers that should not last: the pod or its
// role was just created, or a token was just renewed.
type patience struct{ start, refused time.Duration }

var defaultPatience = patience{start: 10 * time.Minute, refused: 30 * time.Second}

// waitFor returns the pod when its container runs. A pod that is over is an error, unless another one may follow.
func (c *cluster) waitFor(ctx context.Context, name, container string, limits patience, another bool) (*pod, error) {
	began := time.Now()
	var refusals refusals
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		found, err := c.pod(ctx, name)
		problem := fmt.Errorf("pod %s: %w", name, err)
		if err == nil {
			switch {
			case found.runs(container):
				return found, nil
			case found.isOver() && !another:
				return nil, fmt.Errorf("pod %s is over (%s)", name, found.Status.Phase)
			}
			problem = fmt.Errorf("pod %s %s", name, found.reason(container))
		}
		if another && isNotFound(err) {
			err = nil
		}
		if refusals.last(err, limits) || time.Since(began) > limits.start || sleep(ctx, pause) != nil {
			return nil, problem
		}
	}
}

// refusals knows since when the server refuses.
type refusals struct{ since time.Time }

// last tells whether the server has refused for too long.
func (r *refusals) last(err error, limits patience) bool {
	if !isRefusal(err) {
		r.since = time.Time{}
		return false
	}
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return time.Since(r.since) > limits.refused
}

// isRefusal tells whether the server answered, and will hardly change its mind.
func isRefusal(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.status < http.StatusInternalServerError &&
		answer.status != http.StatusTooManyRequests
}

func isNotFound(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.status == http.StatusNotFound
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
