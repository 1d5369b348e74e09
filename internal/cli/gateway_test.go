package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// instances is a model server that answers each instance with its first number, after the time
// of a batch of that size.
func instances(t *testing.T) *httptest.Server {
	var one sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Instances [][]float64 }
		_ = json.NewDecoder(r.Body).Decode(&in)
		one.Lock()
		time.Sleep(2*time.Millisecond + time.Duration(len(in.Instances))*200*time.Microsecond)
		one.Unlock()
		out := make([]float64, len(in.Instances))
		for i, row := range in.Instances {
			out[i] = row[0]
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"predictions": out})
	}))
	t.Cleanup(s.Close)
	return s
}

// syncBuffer is a buffer that a command writes while a test reads it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// runGateway runs curfew gateway until the returned function is called, which returns its exit code.
func runGateway(t *testing.T, dir string, env map[string]string, hangups chan os.Signal,
	args ...string) (string, func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &syncBuffer{}
	p := gatewayProcess(dir, env, out, append([]string{"gateway"}, args...)...)
	p.Hangups = func() <-chan os.Signal { return hangups }
	code := make(chan int, 1)
	go func() { code <- Run(ctx, p) }()
	address := regexp.MustCompile(`Listening on (\S+)`)
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if m := address.FindStringSubmatch(out.String()); m != nil {
			end := sync.OnceValue(func() int { cancel(); return <-code })
			t.Cleanup(func() { end() })
			return m[1], end
		}
		select {
		case c := <-code:
			t.Fatalf("the gateway ended with %d: %s", c, out)
		default:
		}
	}
	t.Fatalf("the gateway does not listen: %s", out)
	return "", nil
}

func gatewayProcess(dir string, env map[string]string, out io.Writer, args ...string) Process {
	return Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Version: "test", Dir: dir, Now: time.Now,
		Lookup: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

// gatewayCommand runs one command and returns its output and exit code.
func gatewayCommand(t *testing.T, dir string, env map[string]string, args ...string) (string, int) {
	t.Helper()
	out := &syncBuffer{}
	code := Run(t.Context(), gatewayProcess(dir, env, out, append([]string{"gateway"}, args...)...))
	return out.String(), code
}

func predict(t *testing.T, url, key string, n int) (int, string) {
	t.Helper()
	req, _ := http.NewRequest(http.MethodPost, url+"/v1/models/m:predict",
		strings.NewReader(fmt.Sprintf(`{"instances":[[%d]]}`, n)))
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// TestGatewayMeasuresForPlanCapacity runs the gateway, sends it requests, and plans with the profile
// and the arrivals that it prints.
func TestGatewayMeasuresForPlanCapacity(t *testing.T) {
	dir := t.TempDir()
	url, end := runGateway(t, dir, nil, nil, "--upstream", instances(t).URL, "--listen",
		"127.0.0.1:0", "--price", "3.60",
		"--max-batch", "16")
	if out, code := gatewayCommand(t, dir, nil, "profile", "--gateway", url); code != ExitError ||
		!strings.Contains(out, "name a model") {
		t.Errorf("a profile of nothing: %d %s", code, out)
	}
	if status, body := predict(t, url, "", 7); status != 200 || strings.TrimSpace(body) != `{"predictions":[7]}` {
		t.Fatalf("%d %s", status, body)
	}
	if out, code := gatewayCommand(t, dir, nil, "profile", "--gateway", url); code != ExitError ||
		!strings.Contains(out, "3-4, 5-8, 9-16") {
		t.Errorf("a profile of one batch: %d %s", code, out)
	}
	for clients := 1; clients <= 24; clients += 3 {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for i := range 12 {
					predict(t, url, "", i)
				}
			})
		}
		wg.Wait()
	}
	profile, code := gatewayCommand(t, dir, nil, "profile", "--gateway", url, "--model", "m")
	lines := strings.Split(strings.TrimSpace(profile), "\n")
	if code != 0 || !strings.HasPrefix(lines[len(lines)-1], "a=") {
		t.Fatalf("%d %s", code, profile)
	}
	arrivals, code := gatewayCommand(t, dir, nil, "profile", "--gateway", url, "--arrivals")
	if code != 0 || os.WriteFile(filepath.Join(dir, "arrivals.csv"), []byte(arrivals), 0o600) != nil {
		t.Fatalf("%d %s", code, arrivals)
	}
	out := &syncBuffer{}
	if code := Run(t.Context(), gatewayProcess(dir, nil, out, "plan", "capacity", "--profile", lines[len(lines)-1],
		"--max-batch", "16", "--arrivals", "arrivals.csv", "--price", "3.60")); code != 0 ||
		!strings.Contains(out.String(), "replica") {
		t.Errorf("plan capacity: %d %s", code, out)
	}
	text, code := gatewayCommand(t, dir, nil, "stats", "--gateway", url, "-o", "json")
	var doc stats.Stats
	if err := json.Unmarshal([]byte(text), &doc); code != 0 || err != nil || doc.Models[0].Predictions < 200 ||
		!doc.Models[0].PerPrediction.AllocatedUSD.Known() || doc.Models[0].Fits[0].AMS == nil {
		t.Errorf("%d %v %s", code, err, text)
	}
	if text, code := gatewayCommand(t, dir, nil, "stats", "--gateway", url); code != 0 ||
		!strings.Contains(text, "a·n + b") {
		t.Errorf("%d %s", code, text)
	}
	if code := end(); code != 0 && code != ExitInterrupted {
		t.Errorf("the gateway ended with %d", code)
	}
}

func TestGatewayKeysAndReload(t *testing.T) {
	dir, upstream := t.TempDir(), instances(t).URL
	env := map[string]string{}
	text, code := gatewayCommand(t, dir, env, "key", "-o", "json")
	var key stats.NewKey
	if err := json.Unmarshal([]byte(text), &key); code != 0 || err != nil || key.Schema != stats.KeySchema {
		t.Fatalf("%d %s", code, text)
	}
	write := func(models string) {
		config := fmt.Sprintf(
			"gateway:\n  listen: 127.0.0.1:0\n  pools:\n    - {upstreams: [%q], models: [%s]}\n  keys:\n"+
				"    - {name: ana, hash: %q, admin: true}\n", upstream, models, key.Hash)
		if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("other")
	hangups := make(chan os.Signal, 1)
	url, _ := runGateway(t, dir, env, hangups)
	if status, _ := predict(t, url, "", 1); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
	if status, _ := predict(t, url, key.Key, 1); status != http.StatusNotFound {
		t.Errorf("a model that no pool serves: %d", status)
	}
	write("m")
	hangups <- os.Interrupt
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if status, _ := predict(t, url, key.Key, 1); status == http.StatusOK {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the reload changed nothing")
		}
	}
	if out, code := gatewayCommand(t, dir, env, "stats", "--gateway", url); code != ExitDenied ||
		!strings.Contains(out, gatewayKeyVariable) {
		t.Errorf("stats without a key: %d %s", code, out)
	}
	env[gatewayKeyVariable] = key.Key
	if out, code := gatewayCommand(t, dir, env, "stats", "--gateway", url); code != 0 {
		t.Errorf("stats with the key: %d %s", code, out)
	}
}

func TestGatewayRefusesUnsafeOrWrongSettings(t *testing.T) {
	dir := t.TempDir()
	for name, x := range map[string]struct {
		args   []string
		config string
		want   string
	}{
		"no server": {nil, "", "give --upstream URL"},
		"no TLS":    {[]string{"--upstream", "http://a", "--listen", "0.0.0.0:0"}, "", "needs TLS"},
		"no keys": {
			[]string{"--upstream", "http://a", "--listen", ":0"}, "gateway: {tls: {cert_file: c, key_file: k}}",
			"needs API keys",
		},
		"no URL":      {[]string{"--upstream", "localhost:8000"}, "", "is not the URL of a model server"},
		"twice":       {[]string{"--upstream", "http://a,http://a/"}, "", "is in two places"},
		"flag alone":  {[]string{"--max-batch", "4"}, "", "need --upstream"},
		"price":       {[]string{"--upstream", "http://a", "--price", "-1"}, "", "expected dollars"},
		"rows":        {[]string{"--upstream", "http://a", "--max-batch", "-1"}, "", "expected 1 to"},
		"mode":        {[]string{"--upstream", "http://a", "--batch", "maybe"}, "", "maybe"},
		"unknown key": {nil, "gateway: {pool: []}", "curfew.yaml:1"},
		"wrong hash":  {nil, "gateway:\n  keys:\n    - {name: a, hash: abc}", "curfew.yaml:3"},
		"no upstream": {nil, "gateway:\n  pools:\n    - {name: a}", "has no upstream"},
		"same model": {
			nil,
			"gateway:\n  pools:\n    - {upstreams: [http://a], models: [m]}\n    - {upstreams: [http://b], models: [m]}",
			"two pools serve",
		},
		"two pools": {
			nil, "gateway:\n  pools:\n    - {upstreams: [http://a]}\n    - {upstreams: [http://b]}",
			"two pools serve all models",
		},
		"half TLS":     {nil, "gateway: {tls: {cert_file: a}}", "come together"},
		"bad duration": {nil, "gateway: {drain_timeout: soon}", "curfew.yaml:1"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(x.config), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := gatewayCommand(t, dir, nil, x.args...); code != ExitUsage || !strings.Contains(out, x.want) {
			t.Errorf("%s: %d %s, want %q", name, code, out, x.want)
		}
	}
	if out, code := gatewayCommand(t, dir, nil, "stats", "--gateway", "http://127.0.0.1:1"); code != ExitUsage &&
		code != ExitError {
		t.Errorf("no gateway: %d %s", code, out)
	}
}

// TestGatewayTellsFleetSizes asks a gateway for the size of the fleet behind it, as Prometheus does.
func TestGatewayTellsFleetSizes(t *testing.T) {
	model, dir := instances(t), t.TempDir()
	listen := "127.0.0.1:" + freePort(t)
	for name, text := range map[string]string{
		"policy.yaml": `apiVersion: curfew.policy/v1
policies:
  - name: embed-fleet
    mode: observe
    then: [{do: scale, fleet: asg/embed, min: 0, max: 4, zero: true}]
`,
		"curfew.yaml": fmt.Sprintf(`gateway:
  listen: %[1]s
  pools: [{name: embed, upstreams: [%[2]q], sleep: {hold: 1m}}]
policies: [policy.yaml]
fleets:
  - id: asg/embed
    profile: a=200us,b=2ms
    max_batch: 8
    late_after: 100ms
    demand: [{url: "http://%[1]s", server: gateway, select: embed}]
`, listen, model.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, end := runGateway(t, dir, nil, nil, "--config", filepath.Join(dir, "curfew.yaml"), "--scaler-listen",
		"127.0.0.1:0")
	var body string
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if body = string(b); err != nil || strings.Contains(body, `kind="wanted"`) {
			break
		}
	}
	for _, want := range []string{
		`curfew_fleet_replicas{fleet="asg/embed",kind="actual"} 1`, `curfew_fleet_replicas{fleet="asg/embed",kind="max"} 4`,
		`curfew_fleet_replicas{fleet="asg/embed",kind="min"} 0`, `curfew_fleet_replicas{fleet="asg/embed",kind="wanted"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s: %s", want, body)
		}
	}
	if code := end(); code != ExitDone {
		t.Errorf("it ends with %d", code)
	}
	out := &syncBuffer{}
	p := gatewayProcess(t.TempDir(), nil, out, "gateway", "--upstream", model.URL, "--listen", "127.0.0.1:0",
		"--scaler-listen", "127.0.0.1:0")
	if code := Run(t.Context(), p); code != ExitUsage || !strings.Contains(out.String(), "no policy scales a fleet") {
		t.Errorf("without a fleet: %d %s", code, out)
	}
}
