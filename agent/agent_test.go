package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const runningPod = `{"spec": {"containers": [{"name": "main"}, {"name": "second"}]}, "status": {"phase": "Running",
	"containerStatuses": [{"name": "main", "state": {"running": {}}}, {"name": "second", "state": {"running": {}}}]}}`

// fakeServer answers GETs of pods, and sessions, as the functions say.
type fakeServer struct {
	t        *testing.T
	pod      func(name string, count int) (int, string)
	session  func(*websocket.Conn, *http.Request)
	protocol string
	token    string

	lock   sync.Mutex
	counts map[string]int
	folder string
}

func newFakeServer(t *testing.T) *fakeServer {
	fake := &fakeServer{t: t, protocol: protocolV5, token: "first", counts: map[string]int{}, folder: t.TempDir()}
	fake.pod = func(string, int) (int, string) { return http.StatusOK, runningPod }
	server := httptest.NewTLSServer(fake)
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, text := range map[string]string{"token": "first\n", "namespace": "ml", "ca.crt": string(certificate)} {
		if err := os.WriteFile(filepath.Join(fake.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	t.Setenv("GANGLINE_SERVICE_ACCOUNT", fake.folder)
	setPatience(t, patience{start: 20 * time.Second, refused: time.Second})
	return fake
}

func setPatience(t *testing.T, limits patience) {
	before := defaultPatience
	defaultPatience = limits
	t.Cleanup(func() { defaultPatience = before })
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	f.counts[r.URL.Path]++
	count, token := f.counts[r.URL.Path], f.token
	f.lock.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+token {
		writeStatus(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	name, isPod := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/ml/pods/")
	if !isPod {
		writeStatus(w, http.StatusNotFound, "nothing is there")
		return
	}
	if _, isExec := strings.CutSuffix(name, "/exec"); !isExec {
		status, body := f.pod(name, count)
		if status != http.StatusOK {
			writeStatus(w, status, body)
			return
		}
		_, _ = w.Write([]byte(body))
		return
	}
	connection, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{f.protocol}})
	if err != nil {
		f.t.Error(err)
		return
	}
	defer connection.CloseNow()
	connection.SetReadLimit(-1)
	f.session(connection, r)
}

func (f *fakeServer) count(path string) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.counts["/api/v1/namespaces/ml/pods/"+path]
}

func writeStatus(w http.ResponseWriter, code int, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "status": "Failure", "message": message})
}

func send(t *testing.T, connection *websocket.Conn, channel byte, data string) {
	if err := connection.Write(t.Context(), websocket.MessageBinary, append([]byte{channel}, data...)); err != nil {
		t.Error(err)
	}
}

type outcome struct {
	err         error
	out, stderr string
}

func runExec(ctx context.Context, input string, words ...string) outcome {
	var out, stderr bytes.Buffer
	asked, err := parseRequest(words)
	if err == nil {
		err = execute(ctx, asked, streams{strings.NewReader(input), &out, &stderr})
	}
	return outcome{err, out.String(), stderr.String()}
}

func exitStatus(code int) string {
	return fmt.Sprintf(`{"status": "Failure", "reason": "NonZeroExitCode", "message": "it failed",
		"details": {"causes": [{"reason": "ExitCode", "message": "%d"}]}}`, code)
}

func TestSessionForwardsStreamsAndExitCode(t *testing.T) {
	fake := newFakeServer(t)
	var query map[string][]string
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		query = r.URL.Query()
		var input []byte
		for {
			_, message, err := connection.Read(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if message[0] == closeChannel {
				break
			}
			input = append(input, message[1:]...)
		}
		send(t, connection, stdoutChannel, string(input))
		send(t, connection, stderrChannel, "bad")
		// The status may come in pieces.
		status := exitStatus(7)
		send(t, connection, errorChannel, status[:20])
		send(t, connection, errorChannel, status[20:])
	}
	binary := string([]byte{0, 255, 10}) + strings.Repeat("x", 3*chunk)
	done := runExec(t.Context(), binary, "-x", "--container", "second", "worker-0", "echo", "$A", ";", "exit 7")
	var code exitError
	if !errors.As(done.err, &code) || code != 7 || done.out != binary || done.stderr != "bad" {
		t.Errorf("%v, %d bytes, %q", done.err, len(done.out), done.stderr)
	}
	if !slices.Equal(query["command"], []string{"/bin/sh", "-c", "echo $A ; exit 7"}) || query["container"][0] != "second" {
		t.Error(query)
	}
}

func TestOlderProtocolIsEnough(t *testing.T) {
	fake := newFakeServer(t)
	fake.protocol = protocolV4
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		_, message, err := connection.Read(t.Context())
		if err != nil || string(message[1:]) != "in" {
			t.Error(err, message)
		}
		send(t, connection, stdoutChannel, "out")
		send(t, connection, errorChannel, `{"status": "Success"}`)
		// Nothing else comes: this protocol cannot close the input.
		if _, message, err := connection.Read(t.Context()); err == nil {
			t.Errorf("%v came", message)
		}
	}
	if done := runExec(t.Context(), "in", "worker-0", "cat"); done.err != nil || done.out != "out" {
		t.Error(done)
	}
}

func TestRenewedTokenIsUsed(t *testing.T) {
	fake := newFakeServer(t)
	fake.pod = func(_ string, count int) (int, string) {
		// From now on only the new token is good, and the kubelet writes it a moment later.
		fake.lock.Lock()
		fake.token = "second"
		fake.lock.Unlock()
		time.AfterFunc(firstPause/2, func() {
			_ = os.WriteFile(filepath.Join(fake.folder, "token"), []byte("second"), 0o600)
		})
		return http.StatusOK, runningPod
	}
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		send(t, connection, errorChannel, `{"status": "Success"}`)
	}
	if done := runExec(t.Context(), "", "worker-0", "true"); done.err != nil {
		t.Error(done.err)
	}
}

func TestKubeletThatIsAwayIsTriedAgain(t *testing.T) {
	fake := newFakeServer(t)
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		if fake.count("worker-0/exec") == 1 {
			send(t, connection, errorChannel, `{"status": "Failure", "message": "error dialing backend: refused"}`)
			return
		}
		send(t, connection, stdoutChannel, "once")
		send(t, connection, errorChannel, `{"status": "Success"}`)
	}
	if done := runExec(t.Context(), "", "worker-0", "true"); done.err != nil || done.out != "once" {
		t.Error(done)
	}
}

func TestCommandThatMayHaveRunIsNotRunAgain(t *testing.T) {
	fake := newFakeServer(t)
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		send(t, connection, stdoutChannel, "half")
		_ = connection.CloseNow()
	}
	done := runExec(t.Context(), "", "worker-0", "true")
	if done.err == nil || !strings.HasPrefix(done.err.Error(), "pod worker-0: the connection broke") {
		t.Error(done.err)
	}
	if done.out != "half" || fake.count("worker-0/exec") != 1 {
		t.Error(done.out, fake.count("worker-0/exec"))
	}
}

func TestRefusalEndsSoonAndSaysWhy(t *testing.T) {
	fake := newFakeServer(t)
	setPatience(t, patience{start: time.Hour, refused: firstPause})
	fake.pod = func(string, int) (int, string) { return http.StatusForbidden, "pods is forbidden" }
	done := runExec(t.Context(), "", "worker-0", "true")
	if done.err == nil || done.err.Error() != "pod worker-0: the server answers 403: pods is forbidden" {
		t.Error(done.err)
	}
	if err := install(t.Context(), []string{"--hostfile", hostfile(t, "worker-0 slots=1"), t.TempDir()}); err == nil {
		t.Error("the launcher would start without its rights")
	}
}

func TestServerThatFailsIsAskedAgain(t *testing.T) {
	fake := newFakeServer(t)
	fake.pod = func(_ string, count int) (int, string) {
		if count < 3 {
			return http.StatusServiceUnavailable, "later"
		}
		return http.StatusOK, `{"status": {"phase": "Failed"}}`
	}
	done := runExec(t.Context(), "", "worker-0", "true")
	if done.err == nil || done.err.Error() != "pod worker-0 is over (Failed)" {
		t.Error(done.err)
	}
}

func TestSignalEndsASession(t *testing.T) {
	fake := newFakeServer(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := make(chan error)
	fake.session = func(connection *websocket.Conn, r *http.Request) {
		cancel(signalError{syscall.SIGTERM})
		for {
			if _, _, err := connection.Read(context.Background()); err != nil {
				gone <- err
				return
			}
		}
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	asked := request{pod: "worker-0", command: shell("sleep 1000"), stdin: true}
	err = execute(ctx, asked, streams{reader, os.Stdout, os.Stderr})
	if code := exitCode(err); code != 128+int(syscall.SIGTERM) {
		t.Error(code, err)
	}
	<-gone
}

func hostfile(t *testing.T, lines ...string) string {
	file := filepath.Join(t.TempDir(), "hostfile")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestInstallCopiesTheProgramAndWaitsForWorkers(t *testing.T) {
	fake := newFakeServer(t)
	fake.pod = func(name string, count int) (int, string) {
		switch {
		case name == "pi-worker-0" && count == 1:
			return http.StatusNotFound, "pods not found"
		case name == "pi-worker-0" && count == 2:
			return http.StatusOK, `{"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Pending"}}`
		case name == "pi-worker-1" && count == 1:
			return http.StatusOK, `{"status": {"phase": "Failed"}}` // its successor has the same name
		}
		return http.StatusOK, runningPod
	}
	folder := t.TempDir()
	file := hostfile(t, "pi-launcher slots=2", "pi-worker-0 slots=2", "pi-worker-1 slots=2", "", "# none")
	if err := install(t.Context(), []string{"--hostfile", file, "--launcher", "pi-launcher", folder}); err != nil {
		t.Fatal(err)
	}
	if fake.count("pi-worker-0") != 3 || fake.count("pi-worker-1") != 2 || fake.count("pi-launcher") != 0 {
		t.Error(fake.counts)
	}
	self, _ := os.Executable()
	program, _ := os.ReadFile(self)
	copied, err := os.ReadFile(filepath.Join(folder, programName))
	if err != nil || !bytes.Equal(program, copied) {
		t.Error(err, len(copied))
	}
	if info, _ := os.Stat(filepath.Join(folder, programName)); info.Mode().Perm() != 0o755 {
		t.Error(info.Mode())
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 2 {
		t.Error(entries)
	}
	if target, _ := os.Readlink(filepath.Join(folder, kubectlName)); target != programName {
		t.Error(target)
	}
	// The container may be started again.
	if err := install(t.Context(), []string{folder}); err != nil {
		t.Error(err)
	}
}

func TestLateWorkersDoNotStopTheLauncher(t *testing.T) {
	fake := newFakeServer(t)
	fake.pod = func(string, int) (int, string) { return http.StatusOK, `{"status": {"phase": "Pending"}}` }
	arguments := []string{"--hostfile", hostfile(t, "worker-0 slots=1"), "--wait", "300ms", t.TempDir()}
	if err := install(t.Context(), arguments); err != nil {
		t.Error(err)
	}
}

func TestManyWorkersAreAskedInTurns(t *testing.T) {
	fake := newFakeServer(t)
	var lock sync.Mutex
	now, most := 0, 0
	fake.pod = func(string, int) (int, string) {
		lock.Lock()
		now++
		most = max(most, now)
		lock.Unlock()
		time.Sleep(5 * time.Millisecond)
		lock.Lock()
		now--
		lock.Unlock()
		return http.StatusOK, runningPod
	}
	var lines []string
	for index := range 200 {
		lines = append(lines, fmt.Sprintf("worker-%d slots=1", index))
	}
	if err := install(t.Context(), []string{"--hostfile", hostfile(t, lines...), t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if len(fake.counts) != 200 || most > waitersAtOnce {
		t.Error(len(fake.counts), most)
	}
}

func TestScriptOfV1IsUnderstood(t *testing.T) {
	script := []string{"/bin/sh", "-c", "echo $A; exit 3"}
	for _, given := range [][]string{
		{"exec", "worker-0", "--container", "train", "--"},
		{"exec", "worker-0", "--container=train", "--"},
		{"exec", "-c", "train", "worker-0", "--"},
	} {
		asked, err := parseKubectl(append(given, script...))
		if err != nil || asked.pod != "worker-0" || asked.container != "train" || asked.stdin {
			t.Error(given, asked, err)
		}
		if !slices.Equal(asked.command, script) || strings.Contains(asked.query(), "stdin") {
			t.Error(asked.command, asked.query())
		}
	}
	if asked, err := parseKubectl([]string{"exec", "-i", "worker-0", "--", "cat"}); err != nil || !asked.stdin {
		t.Error(asked, err)
	}
	for _, given := range []string{"", "get pods", "exec worker-0", "exec -- true", "exec worker-0 --", "exec a b -- c", "exec -t a -- c"} {
		if _, err := parseKubectl(strings.Fields(given)); err == nil {
			t.Errorf("%q is understood", given)
		}
	}
}

func TestReasonNamesWhatIsMissing(t *testing.T) {
	for body, want := range map[string]string{
		`{"metadata": {"deletionTimestamp": "now"}}`: "is being deleted",
		`{"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
			"message": "0/3 nodes:\n no room"}]}}`: "is Pending: 0/3 nodes: no room",
		`{"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Pending", "containerStatuses": [{"name":
			"main", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}}`: "is Pending: ErrImagePull: not found",
		`{"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Pending"}}`: "is Pending",
	} {
		var found pod
		if err := json.Unmarshal([]byte(body), &found); err != nil {
			t.Fatal(err)
		}
		if found.runs("") || found.reason("") != want {
			t.Errorf("%q, not %q", found.reason(""), want)
		}
	}
}

func TestDefaultContainerIsKubectls(t *testing.T) {
	var found pod
	_ = json.Unmarshal([]byte(runningPod), &found)
	if found.defaultContainer() != "main" {
		t.Error(found.defaultContainer())
	}
	found.Metadata.Annotations = map[string]string{"kubectl.kubernetes.io/default-container": "second"}
	if found.defaultContainer() != "second" {
		t.Error(found.defaultContainer())
	}
}

func TestPodWithoutATokenIsOneLine(t *testing.T) {
	newFakeServer(t)
	t.Setenv("GANGLINE_SERVICE_ACCOUNT", t.TempDir())
	done := runExec(t.Context(), "", "worker-0", "true")
	if done.err == nil || !strings.Contains(done.err.Error(), "automountServiceAccountToken") {
		t.Error(done.err)
	}
}
