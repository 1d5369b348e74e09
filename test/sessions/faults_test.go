package sessions_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
)

// proxy stands between curfew and an AWS service. It counts the calls that change something, and
// injects a fault into one of them.
type proxy struct {
	*gauge
	to *httputil.ReverseProxy
}

// gauge counts the calls through all proxies of a stand.
type gauge struct {
	mu sync.Mutex
	// calls are the mutating calls, and all is their number.
	calls []string
	all   int
	// fault decides by the number (from 1) and the name of a call whether it fails, and whether it
	// is carried out.
	fault func(n int, name string) (hit, forward bool)
	// die ends processes before the connection is closed.
	die func()
}

// begin restarts counting.
func (g *gauge) begin(fault func(n int, name string) (hit, forward bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls, g.all, g.fault = nil, 0, fault
}

// seen returns the mutating calls.
func (g *gauge) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// count counts a call and returns its fault.
func (g *gauge) count(name string) (hit, forward bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all++
	if name == "" {
		return false, false
	}
	g.calls = append(g.calls, name)
	if g.fault == nil {
		return false, false
	}
	return g.fault(len(g.calls), name)
}

// before starts a proxy in front of a service, and returns its address.
func (s *stand) before(g *gauge, service string) string {
	s.t.Helper()
	to, err := url.Parse(service)
	if err != nil {
		s.t.Fatal(err)
	}
	// The signature covers the requested host, so the service must see that host.
	p := &proxy{
		g, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host }},
	}
	server := httptest.NewServer(p)
	s.t.Cleanup(server.Close)
	return server.URL
}

// changes returns the name of a mutating call; empty for others.
func changes(r *http.Request, body string) string {
	if form, err := url.ParseQuery(body); err == nil &&
		strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if a := form.Get("Action"); !strings.HasPrefix(a, "Describe") && !strings.HasPrefix(a, "Get") {
			return a
		}
		return ""
	}
	if r.Header.Get("X-Amz-Target") != "" || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	return r.Method + " " + r.URL.Path
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	hit, forward := p.count(changes(r, string(body)))
	if !hit {
		p.to.ServeHTTP(w, r)
		return
	}
	if forward {
		p.to.ServeHTTP(httptest.NewRecorder(), r)
	}
	p.die()
	panic(http.ErrAbortHandler)
}

// insist repeats a command while it is killed.
func (s *stand) insist(args ...string) {
	s.t.Helper()
	for range 5 {
		p := s.start(args...)
		switch code := p.wait(s.t); code {
		case 0:
			return
		case -1: // it was killed
		default:
			s.t.Fatalf("curfew %q: exit code %d\n%s%s", args, code, p.out.String(), p.err.String())
		}
	}
	s.t.Fatalf("curfew %q was killed again and again", args)
}

// agrees returns the difference between EC2 and the records; empty if there is none.
func (s *stand) agrees(name string, nodes int) string {
	machines, _ := s.held()
	runs := s.list()
	want := map[string][]string{}
	for _, r := range runs {
		slices.Sort(r.ResourceIDs)
		want[r.ID] = r.ResourceIDs
		if r.Name == name && len(r.ResourceIDs) != nodes {
			return fmt.Sprintf("%s has %d machines by its record, not %d", name, len(r.ResourceIDs), nodes)
		}
	}
	for id, have := range machines {
		if !slices.Equal(have, want[id]) {
			return fmt.Sprintf("EC2 has %v of session %s, and ls %v", have, id, want[id])
		}
	}
	for id, ids := range want {
		if len(ids) > 0 && !slices.Equal(ids, machines[id]) {
			return fmt.Sprintf("ls has %v of session %s, and EC2 %v", ids, id, machines[id])
		}
	}
	if nodes > 0 && !slices.ContainsFunc(runs, func(r view.Run) bool { return r.Name == name }) {
		return "there is no session " + name
	}
	return ""
}

// open reports whether a hold of a session is neither settled nor released.
func (s *stand) open(name string) bool {
	out, _ := s.curfew(0, "budget", "holds", "-o", "json")
	var doc struct {
		Holds []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"holds"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	for _, h := range doc.Holds {
		if h.Name == name && (h.State == "live" || h.State == "pending") {
			return true
		}
	}
	return false
}

// within is how long the provider and the records may differ after a fault.
const within = time.Minute

// life starts a session, waits for its machines, ends it, and waits until nothing is left. The
// proxies inject the faults.
func (s *stand) life(name string, nodes int, controllers int) {
	s.t.Helper()
	up := []string{"up", name, "--type", machineType, "--nodes", fmt.Sprint(nodes), "--lease", "1h"}
	settled := func(what string, nodes int) {
		s.t.Helper()
		began, last := time.Now(), ""
		s.eventually(what+" of "+name+" agrees with EC2", func() bool {
			now := s.agrees(name, nodes)
			if now != last {
				s.t.Logf("%s: %s", name, now)
				last = now
			}
			return now == ""
		})
		if took := time.Since(began); took > within && os.Getenv("CURFEW_SLOW") != "" {
			s.t.Errorf("%s of %s: EC2 and the records agree only after %s", what, name, took.Round(time.Second))
		}
	}
	if controllers == 1 {
		s.insist(append(up, "--detach")...)
		if len(s.processes()) == 0 { // its keeper was killed after the command
			s.insist(append(up, "--detach")...)
		}
		settledOrAgain := func() bool { return s.agrees(name, nodes) == "" }
		for end := time.Now().Add(within); !settledOrAgain() &&
			time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if len(s.processes()) == 0 {
				s.insist(append(up, "--detach")...)
			}
		}
		settled("the start", nodes)
	} else {
		p := s.start(up...) // it follows, next to the keeper
		s.eventually(name+" is launched", func() bool {
			select {
			case <-p.done:
				p = s.start(up...) // it was killed
			default:
			}
			return s.agrees(name, nodes) == ""
		})
		settled("the start", nodes)
		_ = p.Process.Kill()
		<-p.done
	}
	s.insist("down", name, "--discard")
	settled("the end", 0)
	s.nothingLeft()
	if s.open(name) {
		s.t.Errorf("%s: its hold is still open", name)
	}
}

// faulty returns a stand with proxies in front of everything that curfew calls.
func faulty(t *testing.T) (*stand, *gauge) {
	t.Helper()
	s := newStand(t, brief)
	g := &gauge{die: s.kill}
	endpoint, bucket := s.before(g, s.account.URL()), s.before(g, s.s3)
	s.s3 = bucket
	s.environ(endpoint)
	return s, g
}

// killCommand ends the commands that start and end sessions, but not keepers.
func (s *stand) killCommand() { killed(s.doing("up", "down")) }

// TestKilledAtALaunchAndAnEnd loses the response of a launch that was carried out, and a call to
// end machines, and kills every process of curfew in both cases.
func TestKilledAtALaunchAndAnEnd(t *testing.T) {
	t.Parallel()
	s, g := faulty(t)
	hits := map[string]bool{}
	g.begin(func(_ int, name string) (hit, forward bool) {
		hit = (name == "RunInstances" || name == "TerminateInstances") && !hits[name]
		hits[name] = true
		return hit, name == "RunInstances"
	})
	s.life("demo", 4, 1)
	if !hits["RunInstances"] || !hits["TerminateInstances"] {
		t.Errorf("the calls were %v", g.seen())
	}
}

// TestKilledAtEveryCall kills curfew at every mutating call, for sessions of one and of four nodes,
// with one and with two controllers, with the call carried out or not.
func TestKilledAtEveryCall(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip(
			"set CURFEW_SLOW=1 (make test-slow): every call takes a while; TestKilledAtALaunchAndAnEnd has two of them")
	}
	for _, nodes := range []int{1, 4} {
		for _, controllers := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d nodes, %d controllers", nodes, controllers), func(t *testing.T) {
				s, g := faulty(t)
				if controllers == 2 {
					g.die = s.killCommand
				}
				g.begin(nil)
				s.life("none", nodes, controllers)
				calls := g.seen()
				t.Logf("calls: %q", calls)
				for k := range calls {
					for _, forward := range []bool{true, false} {
						g.begin(func(n int, _ string) (bool, bool) { return n == k+1, forward })
						name := fmt.Sprintf("call-%d-%t", k+1, forward)
						s.life(name, nodes, controllers)
						if t.Failed() {
							t.Fatalf("at %s, carried out: %t", calls[k], forward)
						}
					}
				}
			})
		}
	}
}
