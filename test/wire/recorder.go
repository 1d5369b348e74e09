package wire

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Record is a recorded call.
type Record struct {
	Service, Operation, Region, Account string
	// Status is the HTTP status of the response; 0 if the connection was closed.
	Status  int
	Mutates bool
}

// Name returns "service:Operation".
func (r Record) Name() string { return r.Service + ":" + r.Operation }

// Recorder records calls in order.
type Recorder struct {
	mu    sync.Mutex
	calls []Record
	count map[string]int
	// curfews holds the calls that curfew made, not the test, since the start.
	curfews map[string]bool
	quiet   bool
}

func (r *Recorder) add(c *Call, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[string]int{}
	}
	if strings.Contains(c.Header.Get("User-Agent"), "app/curfew") {
		if r.curfews == nil {
			r.curfews = map[string]bool{}
		}
		r.curfews[c.Name()] = true
	}
	r.count[c.Name()]++
	if r.quiet {
		return
	}
	r.calls = append(r.calls, Record{Service: c.Service, Operation: c.Operation, Region: c.Region, Account: c.Account,
		Status: status, Mutates: c.Mutates()})
}

// Reset forgets all calls.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.count = nil, nil
}

// Curfews returns each "service:Operation" that curfew itself called since the start,
// sorted; Reset does not forget them.
func (r *Recorder) Curfews() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.curfews))
}

// CountOnly makes the recorder only keep counts.
func (r *Recorder) CountOnly() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quiet = true
}

// Calls returns the calls in the order of their responses.
func (r *Recorder) Calls() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Mutating returns the calls that change something, by name.
func (r *Recorder) Mutating() []Record {
	return slices.DeleteFunc(r.Calls(), func(c Record) bool { return !c.Mutates })
}

// Count returns the number of calls of "service:Operation".
func (r *Recorder) Count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[name]
}

// Counts returns the number of calls by "service:Operation".
func (r *Recorder) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.count))
	for k, v := range r.count {
		out[k] = v
	}
	return out
}

// Names returns each "service:Operation" that was called, sorted.
func (r *Recorder) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.count))
	for k := range r.count {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}
