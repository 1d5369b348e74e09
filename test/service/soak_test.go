package service_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/identity"
)

// listening matches the address in the log.
var listening = regexp.MustCompile(`msg=listening address=(\S+)`)

// url waits until a process listens, and returns its address.
func (p *process) url(t *testing.T) string {
	t.Helper()
	var at string
	wait(t, "it listens", time.Minute, func() bool {
		if found := listening.FindStringSubmatch(p.log.String()); found != nil {
			at = "http://" + found[1]
		}
		return at != ""
	})
	return at
}

// metric reads a metric of the process.
func metric(ctx context.Context, at, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", at, name)
}

// TestSoak checks that a service that acts and serves requests for CURFEW_SOAK, such as 1h, uses at
// most a tenth more memory at the end than after a third of that time, and no more goroutines.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("CURFEW_SOAK"))
	if os.Getenv("CURFEW_SOAK") == "" {
		t.Skip("CURFEW_SOAK=1h runs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := newCloud(t, 3)
	data := private(t)
	s := newService(t, c, 2*time.Second, 8*time.Second, "--data-dir", data)
	began := time.Now()
	at := s.start("").url(t)
	s.calm(began)
	token, err := identity.ReadOwner(data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	for range 4 { // people view it
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, path := range []string{
					"/api/v1/resources?limit=50", "/api/v1/actions", "/api/v1/audit", "/readyz",
				} {
					if r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+path, nil); err == nil {
						r.Header.Set("Authorization", "Bearer "+token)
						if res, err := http.DefaultClient.Do(r); err == nil {
							_, _ = io.Copy(io.Discard, res.Body)
							res.Body.Close()
							if res.StatusCode == http.StatusUnauthorized {
								t.Errorf("%s: %d", path, res.StatusCode)
							}
						}
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			}
		})
	}
	// least returns the minimum of some readings within a time: the memory after garbage
	// collections.
	least := func(name string, within time.Duration) float64 {
		t.Helper()
		low, seen := 0.0, false
		for until := time.Now().Add(within); time.Now().Before(until); time.Sleep(time.Second) {
			v, err := metric(ctx, at, name)
			if err != nil {
				t.Fatal(err)
			}
			if !seen || v < low {
				low, seen = v, true
			}
		}
		return low
	}
	const memory, goroutines = "process_resident_memory_bytes", "go_goroutines"
	look := min(time.Minute, length/12)
	rest := func(until time.Time) {
		for i := 0; time.Now().Before(until); i++ {
			if i%6 == 0 {
				c.launch(c.accounts()[i/6%3], "idle")
			}
			time.Sleep(10 * time.Second)
		}
	}
	rest(began.Add(length/3 - 2*look))
	firstMemory, firstGoroutines := least(memory, look), least(goroutines, look)
	rest(began.Add(length - 2*look))
	lastMemory, lastGoroutines := least(memory, look), least(goroutines, look)
	t.Logf("after a third of %s: %.1f MiB, %.0f goroutines; at the end %.1f MiB, %.0f goroutines", length,
		firstMemory/(1<<20), firstGoroutines, lastMemory/(1<<20), lastGoroutines)
	if lastMemory > 1.1*firstMemory {
		t.Errorf("memory grew from %.1f MiB to %.1f MiB", firstMemory/(1<<20), lastMemory/(1<<20))
	}
	if lastGoroutines > firstGoroutines+5 {
		t.Errorf("goroutines grew from %.0f to %.0f", firstGoroutines, lastGoroutines)
	}
	s.stopped(10 * time.Minute)
	s.check(time.Minute)
}
