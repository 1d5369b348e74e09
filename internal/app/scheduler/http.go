package scheduler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Readiness is the status of the service: whether it answers and can stop actions, and its
// problems.
type Readiness struct {
	// Ready is true if the state responds. Unreadable accounts are listed in Degraded; they affect
	// neither the API nor a freeze.
	Ready bool `json:"ready"`
	// Degraded lists the sources that are not read within their interval, with the cause.
	Degraded []string `json:"degraded,omitempty"`
	// Database is "ok" or its problem.
	Database string `json:"database"`
	// Configuration is the error in the newest configuration while the previous one is in force;
	// empty if there is none.
	Configuration string `json:"configuration,omitempty"`
	// Frozen is true if all actions are held back; Freeze contains by whom, since when and why.
	Frozen bool   `json:"frozen"`
	Freeze string `json:"freeze,omitempty"`
	// Problems are all other problems.
	Problems []string `json:"problems,omitempty"`
	Sources  []Status `json:"sources"`

	databaseAge time.Duration
}

// Ready reports whether the database responds, and which sources this process does not read within
// their interval. Sources that other processes hold are reported by those.
func (s *Scheduler) Ready() Readiness {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	r := Readiness{
		Ready: true, Database: databaseOK, Configuration: s.config, Sources: make([]Status, 0, len(s.status)),
		databaseAge: now.Sub(s.reached),
	}
	if s.reached.IsZero() {
		r.databaseAge = now.Sub(s.started)
	}
	if f := s.freeze; f != nil {
		r.Frozen, r.Freeze = true, fmt.Sprintf("by %s since %s: %s", f.By, f.At.UTC().Format(time.RFC3339), f.Reason)
	}
	switch {
	case s.problem != "":
		r.Ready, r.Database = false, s.problem
	case s.reached.IsZero() || s.Leases != nil && r.databaseAge > s.TTL:
		r.Ready, r.Database = false, "it has not answered yet"
	}
	for what, problem := range s.other {
		r.Problems = append(r.Problems, what+": "+problem)
	}
	slices.Sort(r.Problems)
	for _, st := range s.status {
		x := *st
		x.Late = s.late(x, now)
		r.Sources = append(r.Sources, x)
	}
	slices.SortFunc(r.Sources, func(a, b Status) int { return cmp.Compare(a.Source, b.Source) })
	for _, x := range r.Sources {
		if x.Late {
			r.Degraded = append(r.Degraded, x.Source+": "+cmp.Or(x.Problem, "it was not read in time"))
		}
	}
	return r
}

// problem reports whether something is wrong apart from a source.
func (r *Readiness) problem(what string) bool {
	return slices.ContainsFunc(r.Problems, func(p string) bool { return strings.HasPrefix(p, what+": ") })
}

// late reports whether a source was not read in time, by this process or by any.
func (s *Scheduler) late(st Status, now time.Time) bool {
	switch {
	case st.Background:
		return false
	case st.Held && st.ReadAt.IsZero():
		return true
	case st.Held:
		return now.Sub(st.ReadAt) > st.every+st.every/5+min(st.deadline, st.every)+s.TTL
	case st.Holder != "":
		return false
	}
	return now.Sub(st.since) > 2*s.TTL || st.ReadAt.IsZero()
}

// age returns the time since a source was read or taken.
func (s *Scheduler) age(st Status) time.Duration {
	from := st.ReadAt
	if from.IsZero() {
		from = s.started
	}
	return max(0, s.Now().Sub(from))
}

// withoutCauses returns the states alone, because causes may name hosts, accounts and people.
func (r Readiness) withoutCauses() Readiness {
	state := func(cause string) string {
		if cause == "" {
			return ""
		}
		return hiddenCause
	}
	if r.Database != databaseOK {
		r.Database = hiddenCause
	}
	r.Configuration, r.Freeze = state(r.Configuration), state(r.Freeze)
	if len(r.Problems) > 0 {
		r.Problems = []string{hiddenCause}
	}
	if len(r.Degraded) > 0 {
		r.Degraded = []string{hiddenCause}
	}
	r.Sources = slices.Clone(r.Sources)
	for i := range r.Sources {
		one := &r.Sources[i]
		one.Problem, one.Holder = state(one.Problem), state(one.Holder)
		if len(one.Missing) > 0 {
			one.Missing = []string{hiddenCause}
		}
	}
	return r
}

const (
	databaseOK = "ok"
	// hiddenCause replaces a cause for callers without a credential.
	hiddenCause = "shown to callers with a credential"
)

// Handler serves the status of the service and the mounted patterns. Only requests for which known
// returns true see causes; nil knows none.
func (s *Scheduler) Handler(mounted map[string]http.Handler, known func(*http.Request) bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		r := s.Ready()
		if known == nil || !known(req) {
			r = r.withoutCauses()
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !r.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(r)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	for pattern, h := range mounted {
		mux.Handle(pattern, h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.Configuration() != "" {
			w.Header().Set(ConfigurationHeader, "invalid; the one before is in force")
		}
		mux.ServeHTTP(w, req)
	})
}

// ConfigurationHeader is set in every response while the newest configuration has mistakes and is
// not in force; /readyz names them.
const ConfigurationHeader = "Curfew-Configuration"

// Server returns an HTTP server with limits for clients.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 60 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
}

// Summary describes in a line what a round did; empty if nothing is worth mentioning.
func (o Outcome) Summary() string {
	counts := map[string][]string{}
	var order []string
	for _, a := range o.Acts {
		key := string(a.Verb) + " " + a.Result
		if counts[key] == nil {
			order = append(order, key)
		}
		counts[key] = append(counts[key], a.Resource)
	}
	parts := make([]string, 0, len(order))
	for _, key := range order {
		ids := counts[key]
		text := key + ": " + strings.Join(ids[:min(len(ids), 5)], ", ")
		if len(ids) > 5 {
			text += ", …"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
