package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestTheExporterTurnsAMachine checks that the metrics of the first machine change on request, and
// that the time of the scrape is recorded.
func TestTheExporterTurnsAMachine(t *testing.T) {
	w := newWorld(2, 3)
	defer w.close()
	scrape := func() string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.exporter.URL+"/1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const first = `DCGM_FI_DEV_GPU_UTIL{instance_id="i-00000000000000004",gpu="0",UUID="GPU-3",modelName="NVIDIA L4"} `
	if got := scrape(); !strings.Contains(got, first+"0\n") || strings.Count(got, "DCGM_FI_DEV_GPU_UTIL{") != 3 {
		t.Errorf("at first:\n%s", got)
	}
	w.turn(1)
	if works, _ := w.now(1); works {
		t.Error("it works before it was scraped")
	}
	before := time.Now()
	if got := scrape(); !strings.Contains(got, first) || strings.Contains(got, first+"0\n") {
		t.Errorf("after it turned:\n%s", got)
	}
	if works, since := w.now(1); !works || since.Before(before) {
		t.Errorf("it works: %t since %s", works, since)
	}
}

// TestPercentiles checks the percentiles of a hundred durations, and of none.
func TestPercentiles(t *testing.T) {
	all := &times{}
	if all.String() != "nothing" {
		t.Errorf("of none: %s", all)
	}
	for i := range 100 {
		all.add(time.Duration(100-i)*time.Millisecond, i != 0)
	}
	if got := all.String(); got != "p50 51ms, p95 96ms, p99 100ms, most 100ms (100, 1 failed)" {
		t.Error(got)
	}
}

// TestWrongFlags checks that several processes cannot share a file, and that a binary is required.
func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{}, {"-replicas", "2", "curfew"}, {"-machines", "3", "curfew"}, {"-for", "1m", "curfew"},
	} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
