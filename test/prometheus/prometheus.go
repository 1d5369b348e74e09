// Package prometheus starts real servers with Prometheus's HTTP API and a given history: Debian's
// Prometheus and VictoriaMetrics. It also starts Alertmanager.
package prometheus

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Series is a series with its samples in time order.
type Series struct {
	// Name and Labels are in the form of an exporter: `DCGM_FI_DEV_GPU_UTIL`,
	// `gpu="0",UUID="GPU-1"`.
	Name, Labels string
	Points       []Point
}

// Point is a sample.
type Point struct {
	At time.Time
	V  float64
}

func (s Series) id() string { return s.Name + "{" + s.Labels + "}" }

// Need skips the test, or fails it on CI, if programs are not installed.
func Need(t testing.TB, packages string, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed (Debian: apt-get install %s)", p, packages)
		}
		t.Skipf("%s is not installed (Debian: apt-get install %s)", p, packages)
	}
}

// Start runs Prometheus with a history, which promtool writes, and a configuration; an empty one
// scrapes nothing. It returns the server's address.
func Start(t testing.TB, history []Series, config string, flags ...string) string {
	t.Helper()
	Need(t, "prometheus", "prometheus", "promtool")
	dir := t.TempDir()
	data, samples, file := filepath.Join(dir, "data"), filepath.Join(dir,
		"samples"), filepath.Join(dir, "prometheus.yml")
	if config == "" {
		config = "global: {}\n"
	}
	write(t, file, []byte(config))
	if len(history) > 0 {
		write(t, samples, openMetrics(history))
		if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb",
			"create-blocks-from", "openmetrics", samples,
			data).CombinedOutput(); err != nil {
			t.Fatalf("promtool: %v\n%s", err, out)
		}
	}
	args := append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + data, "--storage.tsdb.retention.time=10y",
	},
		flags...)
	return run(t, "/-/ready", "prometheus", func(address string) []string {
		return append(args, "--web.listen-address="+address)
	})
}

// Alertmanager runs Alertmanager with a configuration and returns its address.
func Alertmanager(t testing.TB, config string) string {
	t.Helper()
	const program = "prometheus-alertmanager"
	Need(t, program, program)
	dir := t.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	write(t, file, []byte(config))
	return run(t, "/-/ready", program, func(address string) []string {
		return []string{
			"--config.file=" + file, "--storage.path=" + filepath.Join(dir, "data"),
			"--cluster.listen-address=", "--web.listen-address=" + address,
		}
	})
}

// Victoria runs VictoriaMetrics with a history.
func Victoria(t testing.TB, history []Series, flags ...string) string {
	t.Helper()
	Need(t, "victoria-metrics", "victoria-metrics")
	args := append([]string{
		"-storageDataPath=" + filepath.Join(t.TempDir(), "data"), "-retentionPeriod=10y", "-search.latencyOffset=0s",
		"-memory.allowedBytes=512MB",
	}, flags...)
	address := run(t, "/health", "victoria-metrics", func(address string) []string {
		return append(args, "-httpListenAddr="+address)
	})
	var text bytes.Buffer
	for _, s := range history {
		for _, p := range s.Points {
			fmt.Fprintf(&text, "%s %v %d\n", s.id(), p.V, p.At.UnixMilli())
		}
	}
	post(t, address+"/api/v1/import/prometheus", &text)
	post(t, address+"/internal/force_flush", nil)
	return address
}

func post(t testing.TB, url string, body io.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		t.Fatalf("%s: %s %s", url, resp.Status, text)
	}
}

// openMetrics formats a history as OpenMetrics, with the series of a metric together.
func openMetrics(history []Series) []byte {
	var b bytes.Buffer
	sorted := slices.Clone(history)
	slices.SortStableFunc(sorted, func(a, b Series) int { return strings.Compare(a.Name, b.Name) })
	for i, s := range sorted {
		if i == 0 || s.Name != sorted[i-1].Name {
			fmt.Fprintf(&b, "# TYPE %s gauge\n", s.Name)
		}
		for _, p := range s.Points {
			fmt.Fprintf(&b, "%s %v %.3f\n", s.id(), p.V, float64(p.At.UnixMilli())/1000)
		}
	}
	b.WriteString("# EOF\n")
	return b.Bytes()
}

func write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// run starts a server on a free port and waits until it is ready.
func run(t testing.TB, ready, program string, args func(address string) []string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := free.Addr().String()
	free.Close()
	server := exec.Command(program, args(host)...)
	said := &bytes.Buffer{}
	server.Stdout, server.Stderr = said, said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() { _ = server.Process.Kill(); _ = server.Wait() }
	t.Cleanup(stop)
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + host + ready)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return "http://" + host
		}
	}
	stop()
	t.Fatalf("%s did not become ready:\n%s", program, said)
	return ""
}
