package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/test/wire"
)

const region = "us-east-1"

// world is several accounts of synthetic machines: a stand-in for AWS, and an exporter that
// Prometheus scrapes.
type world struct {
	accounts, machines int // machines per account
	fleets             []*wire.Server
	queries            atomic.Int64 // metrics requested from CloudWatch
	roles              []string
	aws, exporter      *httptest.Server

	mu sync.Mutex
	// turned is when the exporter first reported the current activity of an account's first
	// machine; works is that activity.
	turned []time.Time
	works  []bool
	want   []bool
}

func newWorld(accounts, machines int) *world {
	w := &world{
		accounts: accounts, machines: machines, turned: make([]time.Time, accounts), works: make([]bool, accounts),
		want: make([]bool, accounts),
	}
	for i := range accounts {
		number := fmt.Sprintf("%012d", 100_000_000_000+i)
		s := wire.NewFleet(wire.Fleet{
			Machines: machines, First: i * machines, Now: time.Now(), Clock: time.Now, Bare: true, Queries: &w.queries,
		})
		s.Recorder.CountOnly()
		s.SignedBy(keyOf(i), number)
		w.fleets = append(w.fleets, s)
		w.roles = append(w.roles, "arn:aws:iam::"+number+":role/curfew")
	}
	w.aws, w.exporter = httptest.NewServer(http.HandlerFunc(w.provider)), httptest.NewServer(
		http.HandlerFunc(w.metrics))
	return w
}

func (w *world) close() {
	for _, s := range []*httptest.Server{w.aws, w.exporter} {
		s.CloseClientConnections()
		s.Close()
	}
}

func keyOf(account int) string { return fmt.Sprintf("ASIA%016d", account) }

// provider returns keys for roles, and forwards calls to the account of their keys.
func (w *world) provider(rw http.ResponseWriter, r *http.Request) {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ = strings.Cut(key, "/")
	for i := range w.fleets {
		if key == keyOf(i) {
			w.fleets[i].ServeHTTP(rw, r)
			return
		}
	}
	err := r.ParseForm()
	if err == nil && r.Form.Get("Action") == "GetCallerIdentity" {
		rw.Header().Set("Content-Type", "text/xml")
		fmt.Fprint(rw,
			`<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:iam::999999999999:user/bench</Arn><UserId>A</UserId><Account>999999999999</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
		return
	}
	if err != nil || r.Form.Get("Action") != "AssumeRole" {
		http.Error(rw, "only AssumeRole and GetCallerIdentity without a role", http.StatusForbidden)
		return
	}
	for i, role := range w.roles {
		if role == r.Form.Get("RoleArn") {
			rw.Header().Set("Content-Type", "text/xml")
			fmt.Fprintf(rw,
				`<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken><Expiration>%s</Expiration></Credentials><AssumedRoleUser><Arn>%s/curfew</Arn><AssumedRoleId>A:curfew</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>`,
				keyOf(i), time.Now().Add(12*time.Hour).UTC().Format(time.RFC3339),
				strings.Replace(role, ":iam:", ":sts:", 1))
		}
	}
}

// turn changes the activity of an account's first machine from the next scrape on.
func (w *world) turn(account int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want[account] = !w.works[account]
}

// now returns the activity of an account's first machine, and the scrape since which it is
// reported.
func (w *world) now(account int) (works bool, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.works[account], w.turned[account]
}

// metrics serves the exporter of an account: one GPU per machine. Seven in ten machines work.
func (w *world) metrics(rw http.ResponseWriter, r *http.Request) {
	var account int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &account); err != nil || account >= w.accounts {
		http.NotFound(rw, r)
		return
	}
	w.mu.Lock()
	if w.works[account] != w.want[account] || w.turned[account].IsZero() {
		w.works[account], w.turned[account] = w.want[account], time.Now()
	}
	first := w.works[account]
	w.mu.Unlock()
	fleet := wire.Fleet{First: account * w.machines}
	minute := time.Now().Unix() / 60
	var b strings.Builder
	for _, m := range []struct {
		name string
		of   func(n int, works bool) int64
	}{
		{"DCGM_FI_DEV_GPU_UTIL", func(n int, works bool) int64 {
			if works {
				return 60 + (int64(n)*7+minute*13)%40
			}
			return 0
		}},
		{"DCGM_FI_DEV_FB_USED", func(n int, works bool) int64 {
			if works {
				return 18000 + (int64(n)+minute)%2000
			}
			return 3
		}},
		{"DCGM_FI_DEV_FB_FREE", func(_ int, works bool) int64 {
			if works {
				return 3034
			}
			return 23031
		}},
		{"DCGM_FI_DEV_POWER_USAGE", func(n int, works bool) int64 {
			if works {
				return 50 + (int64(n)*3+minute*7)%20
			}
			return 12
		}},
	} {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", m.name)
		for n := range w.machines {
			works := !fleet.Idle(n)
			if n == 0 {
				works = first
			}
			fmt.Fprintf(&b, "%s{instance_id=%q,gpu=\"0\",UUID=\"GPU-%d\",modelName=\"NVIDIA L4\"} %d\n", m.name,
				fleet.InstanceID(n), account*w.machines+n, m.of(n, works))
		}
	}
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = rw.Write([]byte(b.String()))
}

// calls counts the AWS calls by operation.
func (w *world) calls() map[string]int {
	out := map[string]int{}
	for _, f := range w.fleets {
		for name, n := range f.Recorder.Counts() {
			out[name] += n
		}
	}
	return out
}

// prometheus starts Debian's Prometheus, which scrapes the exporter of each account.
func (w *world) prometheus(ctx context.Context, dir, address string) (*exec.Cmd, error) {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 1m, scrape_timeout: 30s}\nscrape_configs:\n")
	host := strings.TrimPrefix(w.exporter.URL, "http://")
	for i := range w.accounts {
		fmt.Fprintf(&b, "  - {job_name: \"dcgm-%d\", metrics_path: \"/%d\", static_configs: [{targets: [%q]}]}\n", i,
			i,
			host)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+address, "--log.level=error",
		"--query.max-samples=200000000")
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}
