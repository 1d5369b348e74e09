// Package gateway_test runs the gateway and a model server as separate processes, and kills, stops
// and reloads them under load.
package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
)

// roleVariable selects the role of a process of the test binary: curfew, model or scaler.
const roleVariable = "CURFEW_GATEWAY_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "curfew":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		system := cli.System("test")
		system.Hangups = func() <-chan os.Signal {
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			return hangups
		}
		code := cli.Run(ctx, system)
		stop()
		os.Exit(code)
	case "model":
		fmt.Fprintln(os.Stderr, serveModel(os.Args[1], os.Args[2]))
		os.Exit(1)
	case "scaler":
		if err := scale(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveModel serves a model that doubles numbers. Before it responds it appends the requested
// numbers to a file, one line per batch.
func serveModel(address, file string) error {
	log, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var open atomic.Int64
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() {
		<-ends
		if n := open.Load(); n > 0 {
			_, _ = fmt.Fprintf(log, "\"ended with %d requests in flight\"\n", n)
		}
		os.Exit(0)
	}()
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return // the health of the server
		}
		open.Add(1)
		defer open.Add(-1)
		var in struct{ Instances [][]int }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked, out := []int{}, [][]int{}
		for _, row := range in.Instances {
			asked, out = append(asked, row[0]), append(out, []int{2 * row[0]})
		}
		line, _ := json.Marshal(asked)
		if _, err := log.Write(append(line, '\n')); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		time.Sleep(2 * time.Millisecond) // duration of a batch
		_ = json.NewEncoder(w).Encode(map[string]any{"predictions": out})
	}))
}

// process is a child process that can be killed and restarted.
type process struct {
	t       *testing.T
	role    string
	address string
	args    []string
	cmd     *exec.Cmd
	output  bytes.Buffer
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0], p.args...)
	dir := p.t.TempDir()
	p.cmd.Env = append(os.Environ(), roleVariable+"="+p.role, "HOME="+dir, "XDG_DATA_HOME="+dir)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	waitFor(p.t, p.role+" listens", func() bool {
		c, err := net.Dial("tcp", p.address)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// load counts the responses to clients that send requests sequentially.
type load struct {
	url                    string
	next                   atomic.Int64
	answered, failed, lost atomic.Int64
	mu                     sync.Mutex
	wrong                  []string
}

// run sends requests until the context ends.
func (l *load) run(ctx context.Context) {
	client := &http.Client{Timeout: time.Minute}
	for ctx.Err() == nil {
		n := l.next.Add(1)
		resp, err := client.Post(l.url, "application/json", strings.NewReader(fmt.Sprintf(`{"instances":[[%d]]}`, n)))
		if err != nil {
			l.lost.Add(1) // the gateway is gone
			time.Sleep(time.Millisecond)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var answer struct{ Predictions [][]int }
		switch {
		case err != nil:
			l.lost.Add(1)
		case resp.StatusCode != http.StatusOK:
			l.failed.Add(1)
			time.Sleep(time.Millisecond)
			if resp.StatusCode < 429 {
				l.fail("%d: %d %s", n, resp.StatusCode, body)
			}
		case json.Unmarshal(body, &answer) != nil || len(answer.Predictions) != 1 ||
			len(answer.Predictions[0]) != 1 || answer.Predictions[0][0] != int(2*n):
			l.fail("%d was answered with %s", n, body)
		default:
			l.answered.Add(1)
		}
	}
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// goOn waits until clients get responses again.
func (l *load) goOn(t *testing.T, after string) {
	t.Helper()
	from := l.answered.Load()
	waitFor(t, "answers after "+after, func() bool { return l.answered.Load() >= from+200 })
}

// TestEachRequestHasOneTrueAnswer kills and stalls the model server, and reloads and kills the
// gateway under load. Each request returns its own result or fails, reaches the model at most once,
// and does not fail because of a reload.
func TestEachRequestHasOneTrueAnswer(t *testing.T) {
	dir := t.TempDir()
	asked, config := filepath.Join(dir, "asked"), filepath.Join(dir, "curfew.yaml")
	model := &process{t: t, role: "model", address: freeAddress(t)}
	model.args = []string{model.address, asked}
	gateway := &process{t: t, role: "curfew", address: freeAddress(t)}
	gateway.args = []string{"gateway", "--config", config}
	configure := func(maxBatch int) {
		text := fmt.Sprintf("gateway:\n  listen: %s\n  pools:\n    - {name: double, upstreams: [\"http://%s\"], "+
			"max_batch: %d, timeout: 5s, batch: always}\n", gateway.address, model.address, maxBatch)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(8)
	model.start()
	t.Cleanup(func() { model.kill() })
	gateway.start()
	t.Cleanup(func() {
		gateway.kill()
		if t.Failed() {
			t.Log(gateway.output.String())
		}
	})

	l := &load{url: "http://" + gateway.address + "/v1/models/double:predict"}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() { l.run(ctx) })
	}
	l.goOn(t, "the start")
	for range 3 {
		model.kill()
		from := l.failed.Load()
		waitFor(t, "failures without a model server", func() bool { return l.failed.Load() > from })
		model.start()
		l.goOn(t, "a killed model server")
	}
	model.signal(syscall.SIGSTOP)
	from := l.failed.Load()
	waitFor(t, "failures with a stalled model server", func() bool { return l.failed.Load() > from })
	model.signal(syscall.SIGCONT)
	l.goOn(t, "a stalled model server")
	from, lost := l.failed.Load(), l.lost.Load()
	for i := range 5 {
		configure(4 + 4*i)
		gateway.signal(syscall.SIGHUP)
		l.goOn(t, "a reload")
	}
	if l.failed.Load() != from || l.lost.Load() != lost {
		t.Errorf("%d requests failed and %d were lost by reloads", l.failed.Load()-from, l.lost.Load()-lost)
	}
	for range 3 {
		gateway.kill()
		waitFor(t, "lost requests", func() bool { return l.lost.Load() > lost })
		lost = l.lost.Load()
		gateway.start()
		l.goOn(t, "a killed gateway")
	}
	stop()
	clients.Wait()
	for _, w := range l.wrong {
		t.Error(w)
	}
	checkAskedOnce(t, asked)
	t.Logf("%d answered, %d failed, %d lost", l.answered.Load(), l.failed.Load(), l.lost.Load())
}

// checkAskedOnce fails if a number reached the model more than once, or if no line has several
// numbers, which shows that requests were batched.
func checkAskedOnce(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen, largest := map[int]bool{}, 0
	for line := range strings.Lines(string(text)) {
		var batch []int
		if err := json.Unmarshal([]byte(line), &batch); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		largest = max(largest, len(batch))
		for _, n := range batch {
			if seen[n] {
				t.Errorf("%d reached the model twice", n)
			}
			seen[n] = true
		}
	}
	if largest < 2 {
		t.Error("no batch had two requests")
	}
}
