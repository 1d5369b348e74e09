package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fleetFile is the state of the fleet that the scaler starts and ends: the process by address, 0 if
// there is none.
type fleetFile map[string]int

func readFleet(dir string) (f fleetFile, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "fleet"))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}

func (f fleetFile) write(dir string) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "fleet")
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (f fleetFile) size() (n int) {
	for _, pid := range f {
		if pid > 0 {
			n++
		}
	}
	return n
}

// scale is the command of a fleet: it prints the size, and starts and ends model servers.
func scale(dir string, args []string) error {
	f, err := readFleet(dir)
	if err != nil {
		return err
	}
	addresses := make([]string, 0, len(f))
	for address := range f {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	if args[0] == "size" {
		var servers []map[string]any
		for _, address := range addresses {
			if f[address] > 0 {
				servers = append(servers, map[string]any{"id": address, "hosts": []string{address}, "serving": true})
			}
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"replicas": f.size(), "servers": servers})
	}
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	for _, address := range args[2:] {
		if err := syscall.Kill(f[address], syscall.SIGTERM); err != nil {
			return fmt.Errorf("end %s: %w", address, err)
		}
		f[address] = 0
	}
	for _, address := range addresses {
		if f.size() < want && f[address] == 0 && !slices.Contains(args[2:], address) {
			c := exec.Command(os.Args[0], address, filepath.Join(dir, "asked"))
			c.Env = append(os.Environ(), roleVariable+"=model")
			c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := c.Start(); err != nil {
				return err
			}
			f[address] = c.Process.Pid
		}
	}
	if f.size() != want {
		return fmt.Errorf("the fleet has %d servers, not %d", f.size(), want)
	}
	return f.write(dir)
}

// endFleet ends the remaining servers.
func endFleet(dir string) {
	f, err := readFleet(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, pid := range f {
		if pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// zeroFleet is a gateway, and a service that sets the number of servers behind it.
type zeroFleet struct {
	t                *testing.T
	dir              string
	gateway, service *process
}

func startZeroFleet(t *testing.T) *zeroFleet {
	t.Helper()
	dir := t.TempDir()
	z := &zeroFleet{t: t, dir: dir, gateway: &process{t: t, role: "curfew", address: freeAddress(t)}}
	servers := fleetFile{freeAddress(t): 0, freeAddress(t): 0}
	if err := servers.write(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endFleet(dir) })
	var upstreams []string
	for address := range servers {
		upstreams = append(upstreams, strconv.Quote("http://"+address))
	}
	z.file("gateway.yaml", fmt.Sprintf("gateway:\n  listen: %s\n  pools:\n    - {name: double, upstreams: [%s], "+
		"batch: always, max_batch: 8, timeout: 30s, sleep: {hold: 2m}}\n", z.gateway.address, strings.Join(upstreams, ", ")))
	z.file("policy.yaml", `apiVersion: curfew.policy/v1
policies:
  - name: double-fleet
    mode: enforce
    then: [{do: scale, fleet: custom/double, min: 0, max: 2, zero: true}]
`)
	z.file("curfew.yaml", fmt.Sprintf(`clouds: [onprem]
machines: [{name: box, gpu: T4, gpus: 1}]
serve: {interval: 1h, skip_audits: true}
state: {witness: %q}
policies: [policy.yaml]
fleets:
  - id: custom/double
    profile: a=1ms,b=2ms
    max_batch: 8
    late_after: 100ms
    add_time: 5s
    stabilization: 15s
    demand: [{url: "http://%s", server: gateway, select: double}]
    scale: {command: [/usr/bin/env, %s=scaler, %q, %q], price: "0.5"}
`, filepath.Join(dir, "witness"), z.gateway.address, roleVariable, os.Args[0], dir))
	z.gateway.args = []string{"gateway", "--config", filepath.Join(dir, "gateway.yaml")}
	z.gateway.start()
	z.service = &process{t: t, role: "curfew", address: freeAddress(t)}
	z.service.args = []string{
		"serve", "--enforce", "--config", filepath.Join(dir, "curfew.yaml"), "--listen", z.service.address,
		"--data-dir", filepath.Join(dir, "state"),
	}
	z.service.start()
	t.Cleanup(func() {
		z.gateway.kill()
		z.service.kill()
		if t.Failed() {
			t.Log(z.gateway.output.String())
			t.Log(z.service.output.String())
		}
	})
	return z
}

func (z *zeroFleet) file(name, text string) {
	z.t.Helper()
	if err := os.WriteFile(filepath.Join(z.dir, name), []byte(text), 0o600); err != nil {
		z.t.Fatal(err)
	}
}

// size returns the number of running servers.
func (z *zeroFleet) size() int {
	f, err := readFleet(z.dir)
	if err != nil {
		z.t.Fatal(err)
	}
	return f.size()
}

// sendsNothing reports whether no server of the gateway accepts requests.
func (z *zeroFleet) sendsNothing() bool {
	resp, err := http.Get("http://" + z.gateway.address + "/curfew/stats")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var doc struct {
		Pools []struct{ Sleep struct{ State string } }
	}
	return json.NewDecoder(resp.Body).Decode(&doc) == nil && len(doc.Pools) == 1 && doc.Pools[0].Sleep.State != "awake"
}

// TestFleetGoesToZeroAndBack lets the service start the first server for requests that the gateway
// holds, and end the last one. Each request gets one response, including those that arrive as the
// last server ends, and no server ends during a request.
func TestFleetGoesToZeroAndBack(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it waits until no one asks; make test-slow runs it")
	}
	z := startZeroFleet(t)
	l := &load{url: "http://" + z.gateway.address + "/v1/models/double:predict"}
	for round := range 2 {
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() { l.run(ctx) })
		}
		from := l.answered.Load()
		waitFor(t, "answers from zero", func() bool { return l.answered.Load() >= from+500 })
		if z.size() == 0 {
			t.Error("it answers without a server")
		}
		stop()
		clients.Wait()
		if round == 1 {
			break
		}
		// The next request arrives as the last server is about to end: the server stays, or another
		// one starts.
		waitForLong(t, "the last server is drained", z.sendsNothing)
		one, end := context.WithCancel(t.Context())
		clients.Go(func() { l.run(one) })
		from = l.answered.Load()
		waitFor(t, "an answer while the last server ends", func() bool { return l.answered.Load() > from })
		end()
		clients.Wait()
		waitForLong(t, "no server is left", func() bool { return z.size() == 0 })
	}
	if l.failed.Load() > 0 || l.lost.Load() > 0 {
		t.Errorf("%d requests failed, %d were lost", l.failed.Load(), l.lost.Load())
	}
	for _, w := range l.wrong {
		t.Error(w)
	}
	text, err := os.ReadFile(filepath.Join(z.dir, "asked"))
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(text, []byte("ended with")); i >= 0 {
		t.Fatalf("a server %.60s", text[i:])
	}
	checkAskedOnce(t, filepath.Join(z.dir, "asked"))
	t.Logf("%d requests answered", l.answered.Load())
}

// waitForLong waits for something that takes minutes without requests.
func waitForLong(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: not within ten minutes", what)
		}
	}
}
