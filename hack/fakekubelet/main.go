// Fakekubelet is the part of a kubelet that kube-apiserver talks to, for contract tests: logs, exec and port-forward.
// Commands run on this machine, and ports are this machine's. The streaming protocols are the kubelet's own library.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	protocols "k8s.io/apimachinery/pkg/util/remotecommand"
	client "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = 10 * time.Minute
	creation = 30 * time.Second
)

func main() {
	certificate, err := selfSigned()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	// Our parent reads the port from here, and ends us by closing our standard input.
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := &http.Server{
		Handler: handler(),
		// Not HTTP/2: it cannot be upgraded.
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	log.Fatal(server.ServeTLS(listener, "", ""))
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, machine{}, r.PathValue("pod"), "", r.PathValue("container"),
			r.URL.Query()["command"], options, idle, creation, protocols.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		options, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, machine{}, r.PathValue("pod"), "", options, idle, creation,
			portforward.SupportedProtocols)
	})
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", logs)
	return mux
}

// logs tells what it was asked for, an empty line, and with follow two lines more, a moment apart.
func logs(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s asked for %s\n\nlast line", r.PathValue("container"), r.URL.Query().Encode())
	if follow, _ := strconv.ParseBool(r.URL.Query().Get("follow")); !follow {
		return
	}
	fmt.Fprintln(w)
	for number := range 2 {
		_ = http.NewResponseController(w).Flush()
		time.Sleep(50 * time.Millisecond)
		fmt.Fprintf(w, "followed %d\n", number)
	}
}

// machine runs everything here.
type machine struct{}

func (machine) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, argv []string, in io.Reader,
	out, problems io.WriteCloser, tty bool, resize <-chan client.TerminalSize, _ time.Duration) error {
	command := osexec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdout = out
	if problems != nil {
		command.Stderr = problems
	}
	if tty {
		// There is no terminal here; but the command learns the size of the one there should be.
		size := <-resize
		command.Env = append(os.Environ(), fmt.Sprintf("COLUMNS=%d", size.Width), fmt.Sprintf("LINES=%d", size.Height))
	}
	if in == nil {
		return ended(command.Run())
	}
	// Not command.Stdin: Wait would wait for our end of it too, which a client without v5 never closes.
	pipe, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(pipe, in)
		_ = pipe.Close()
	}()
	return ended(command.Wait())
}

func ended(err error) error {
	var exit *osexec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

func (machine) PortForward(_ context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return errors.New(strings.TrimSpace(err.Error()))
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, connection)
	return err
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
