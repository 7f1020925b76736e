package main

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"
)

// inputReader forwards standard input. `sent` tells whether some was, which a second attempt would lack.
type inputReader struct {
	source  io.Reader
	sent    atomic.Bool
	pending chan []byte
	start   sync.Once
}

func newInputReader(source io.Reader) *inputReader {
	return &inputReader{source: source, pending: make(chan []byte)}
}

// forward sends what is read, and then, with protocol v5, that there is no more. An error of the connection is left to
// whoever reads it.
func (in *inputReader) forward(ctx context.Context, connection *websocket.Conn) {
	in.start.Do(func() { go in.read() })
	for {
		select {
		case <-ctx.Done():
			return
		case data, open := <-in.pending:
			if !open {
				if connection.Subprotocol() == protocolV5 {
					_ = connection.Write(ctx, websocket.MessageBinary, []byte{closeChannel, stdinChannel})
				}
				return
			}
			in.sent.Store(true)
			if connection.Write(ctx, websocket.MessageBinary, data) != nil {
				return
			}
		}
	}
}

// read is one goroutine for all attempts: a read of standard input cannot be interrupted.
func (in *inputReader) read() {
	defer close(in.pending)
	for {
		data := make([]byte, 1+chunk)
		data[0] = stdinChannel
		count, err := in.source.Read(data[1:])
		if count > 0 {
			in.pending <- data[:1+count]
		}
		if err != nil {
			return
		}
	}
}
