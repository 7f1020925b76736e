package main

import (
	"context"
	"os"
	"sync/atomic"

	"github.com/coder/websocket"
)

// inputReader forwards standard input. `sent` tells whether some was, which a second attempt would lack.
type inputReader struct {
	sent    atomic.Bool
	pending chan []byte
}

// forward sends what is read, and then, with protocol v5, that there is no more.
func (in *inputReader) forward(ctx context.Context, connection *websocket.Conn) error {
	if in.pending == nil {
		in.pending = make(chan []byte)
		go in.read()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case data, open := <-in.pending:
			if !open {
				if connection.Subprotocol() != protocolV5 {
					return nil
				}
				data = []byte{closeChannel, stdinChannel}
			} else {
				in.sent.Store(true)
			}
			if err := connection.Write(ctx, websocket.MessageBinary, data); err != nil {
				return nil // the reader of the connection says why
			}
			if !open {
				return nil
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
		count, err := os.Stdin.Read(data[1:])
		if count > 0 {
			in.pending <- data[:1+count]
		}
		if err != nil {
			return
		}
	}
}
