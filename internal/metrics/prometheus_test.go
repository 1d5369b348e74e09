package metrics

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrometheus counts on a real server: three days of a counter with two series, one
// of which restarts from zero, and a day without any.
func TestPrometheus(t *testing.T) {
	for _, name := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install prometheus)", name)
		}
	}
	begin := time.Now().UTC().Truncate(day).Add(-10 * day)
	address := start(t, begin)
	c, err := New(Options{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= want/200 }

	got, err := c.CountByDay(t.Context(), "requests_total", begin, begin.Add(4*day))
	if err != nil || len(got) != 4 {
		t.Fatalf("CountByDay = %v, %v", got, err)
	}
	// a makes 2 a minute, b makes 3 until it restarts from zero at noon of the second day.
	for i, want := range []float64{1440 * 5, 1440 * 5, 1440 * 5} {
		if !got[i].Known || !near(got[i].Units, want) {
			t.Errorf("day %d: %+v, want about %v", i, got[i], want)
		}
	}
	if got[3].Known {
		t.Errorf("the day without a sample: %+v, want one that is not known", got[3])
	}
	for _, tt := range []struct {
		name, query string
		want        float64
		says        string
	}{
		{"one series", `requests_total{job="a"}`, 2 * 1440, ""},
		{"an expression", "sum(increase(requests_total[$range])) / 1e3", 7.2, ""},
		{"a counter that does not count", "still_total", 0, ""},
		{"several series", "increase(requests_total[$range])", 0, "2 series"},
		{"nothing of that name", "tokens_total", 0, "not known"},
		{"a wrong query", "sum(", 0, "does not understand the query"},
		{"an expression without its range", "sum(requests_total)", 0, "write [$range]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Count(t.Context(), tt.query, begin, begin.Add(day))
			if tt.says == "" && (err != nil || !near(got, tt.want)) || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Count = %v, %v; want about %v, %q", got, err, tt.want, tt.says)
			}
			if errors.Is(err, ErrUnknown) != (tt.says == "not known") {
				t.Errorf("Count = %v", err)
			}
		})
	}
}

// start runs Prometheus over samples of a minute's step from a time on, and returns
// its address.
func start(t *testing.T, begin time.Time) string {
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("# TYPE requests counter\n")
	series := func(name string, value func(minute int) int) {
		for m := 0; m <= 3*1440; m++ {
			fmt.Fprintf(&b, "%s %d %d\n", name, value(m), begin.Add(time.Duration(m)*time.Minute).Unix())
		}
	}
	series(`requests_total{job="a"}`, func(m int) int { return 2 * m })
	series(`requests_total{job="b"}`, func(m int) int {
		if m >= 1440+720 {
			m -= 1440 + 720
		}
		return 3 * m
	})
	b.WriteString("# TYPE still counter\n")
	series("still_total", func(int) int { return 5 })
	b.WriteString("# EOF\n")
	samples, data, config := filepath.Join(dir, "samples"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	for name, text := range map[string]string{samples: b.String(), config: "global: {}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", samples, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := free.Addr().String()
	free.Close()
	server := exec.CommandContext(t.Context(), "prometheus", "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=1y", "--web.listen-address="+host)
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get("http://" + host + "/-/ready")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return "http://" + host
		}
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	t.Fatalf("prometheus did not become ready:\n%s", said.String())
	return ""
}
