package monitoring

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver for restoring the backup

	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/prometheus"
	"github.com/curfew-dev/curfew/test/wire"
)

// patience is how long something that is due may take on a busy machine.
const patience = 4 * time.Minute

// configuration is the configuration of a service: accounts, the address of Slack, and extra
// settings. Its times are the defaults, scaled like those of the rules.
const configuration = `aws:
  requests_per_second: 1000
  regions: [us-east-1]
  accounts: [%[1]s]
%[2]s
notify:
  slack: {token_env: SLACK_TOKEN, base_url: "%[3]s/api/", users: {ana: U0ANA}}
metrics: {cloudwatch: {max_usd_per_month: 100000000}}
enforce: {window: 2h}
serve:
  interval: %[4]s
  deadline: %[5]s
  skip_audits: true
%[6]s
`

const policies = `apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    where: resource.gpus > 0
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 1s}
      - do: stop
    limits: {per_hour: 1000, share: "100%", dollars_per_hour: 5000}
    mode: enforce
`

// prometheusConfig has Prometheus's default intervals, scaled.
const prometheusConfig = `global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}
rule_files: [%[2]q]
alerting: {alertmanagers: [{static_configs: [{targets: [%[3]q]}]}]}
scrape_configs:
  - job_name: curfew
    tls_config: {insecure_skip_verify: true}
    static_configs:
      - {targets: [%[4]q], labels: {__scheme__: https}}
      - {targets: [%[5]q]}
`

// alertmanagerConfig has Alertmanager's default intervals, scaled; each alert is a separate
// message.
const alertmanagerConfig = `route:
  {receiver: test, group_by: ["..."], group_wait: %s, group_interval: %s, repeat_interval: %s}
receivers: [{name: test, webhook_configs: [{url: %q, send_resolved: true}]}]
`

// stand is two services, a Prometheus that scrapes them, and an Alertmanager that sends messages to
// the stand.
type stand struct {
	t          *testing.T
	cloud      *cloud
	binary     string
	prometheus string
	received   received
	// refusing is true while Slack accepts no message.
	refusing atomic.Bool
	// first reads three accounts, serves TLS and uses SQLite; second reads one account and uses
	// PostgreSQL.
	first, second *service
	key           *ecdsa.PrivateKey
	database      *postgres.Server
	databaseURL   string
	rules         map[string]rule
	// undo removes the faults in force at the provider, by account and service.
	mu   sync.Mutex
	undo map[string]func()
}

// service is a process of curfew serve.
type service struct {
	stand   *stand
	dir     string
	address string
	state   []string

	log     *os.File
	process *exec.Cmd
	ended   chan struct{}
}

func newStand(t *testing.T) *stand {
	t.Helper()
	prometheus.Need(t, "prometheus", "prometheus", "promtool")
	prometheus.Need(t, "prometheus-alertmanager", "prometheus-alertmanager")
	s := &stand{t: t, binary: filepath.Join(t.TempDir(), "curfew"), undo: map[string]func(){}}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.binary, "../../cmd/curfew")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build curfew: %v\n%s", err, out)
	}
	s.cloud = newCloud(t)
	s.database, s.databaseURL = postgres.Own(t)
	slack := httptest.NewServer(http.HandlerFunc(s.slack))
	t.Cleanup(slack.Close)
	configured := func(organization, tls string, accounts ...string) string {
		for i, a := range accounts {
			accounts[i] = fmt.Sprintf("{role: %q}", role(a))
		}
		return fmt.Sprintf(configuration, strings.Join(accounts, ", "), organization, slack.URL,
			scaled(time.Minute), scaled(10*time.Minute), tls)
	}
	organization := "  organization: {role: curfew, refresh: " + scaled(time.Hour) + "}"
	tls := "  tls: {cert_file: tls.crt, key_file: tls.key}"
	s.first = s.service(configured(organization, tls, acting, unmeasured, reading))
	s.first.state = []string{"--data-dir", filepath.Join(s.first.dir, "state")}
	s.second = s.service(configured("", "", other))
	s.second.state = []string{"--database-url", s.databaseURL}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if err := s.writeCertificate(90 * 24 * time.Hour); err != nil {
		t.Fatal(err)
	}
	s.observe()
	return s
}

// scaled returns a default duration, scaled.
func scaled(d time.Duration) string { return fmt.Sprintf("%dms", (d / Factor).Milliseconds()) }

// observe starts Alertmanager and Prometheus with the scaled rules.
func (s *stand) observe() {
	t := s.t
	rules, err := Scale([]byte(read(t, filepath.Join(shipped, "curfew.rules.yml"))), Factor)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "curfew.rules.yml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(&s.received)
	t.Cleanup(receiver.Close)
	manager := prometheus.Alertmanager(t, fmt.Sprintf(alertmanagerConfig,
		scaled(30*time.Second), scaled(5*time.Minute), scaled(4*time.Hour), receiver.URL))
	s.prometheus = prometheus.Start(t, nil, fmt.Sprintf(prometheusConfig, scaled(time.Minute), file,
		strings.TrimPrefix(manager, "http://"), s.first.address, s.second.address),
		"--query.lookback-delta="+scaled(5*time.Minute), "--rules.alert.resend-delay="+scaled(time.Minute))
}

// service creates the folder of a service.
func (s *stand) service(config string) *service {
	s.t.Helper()
	x := &service{stand: s, dir: s.t.TempDir(), address: freeAddress(s.t)}
	commands := filepath.Join(x.dir, "commands")
	err := errors.Join(os.Chmod(x.dir, 0o700), os.Mkdir(commands, 0o700),
		os.Mkdir(filepath.Join(x.dir, "state"), 0o700))
	for _, dir := range []string{x.dir, commands} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "curfew.yaml"), []byte(config), 0o600),
			os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte(policies), 0o600))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if x.log, err = os.Create(filepath.Join(x.dir, "log")); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		x.kill()
		_ = x.log.Close()
		if text, err := os.ReadFile(x.log.Name()); err == nil && s.t.Failed() {
			s.t.Logf("%s:\n%s", x.address, text[max(0, len(text)-8000):])
		}
	})
	return x
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (x *service) environment() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + x.dir, "SLACK_TOKEN=xoxb-secret-token", "USER=ana",
		"XDG_DATA_HOME=" + x.dir, "XDG_STATE_HOME=" + filepath.Join(x.dir, "witness")}
	return append(env, x.stand.cloud.box.Env()...)
}

// start starts the service.
func (x *service) start() error {
	args := []string{"serve", "--enforce", "--policy", "policies.yaml", "--listen", x.address}
	p := exec.Command(x.stand.binary, append(args, x.state...)...)
	p.Dir, p.Env, p.Stdout, p.Stderr = x.dir, x.environment(), x.log, x.log
	if err := p.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = p.Wait(); close(ended) }()
	x.process, x.ended = p, ended
	return nil
}

// kill ends the service at once.
func (x *service) kill() {
	if x.process != nil {
		_ = x.process.Process.Kill()
		<-x.ended
		x.process = nil
	}
}

// command runs curfew with the service's state and returns its output.
func (x *service) command(args ...string) (string, error) {
	ctx, stop := context.WithTimeout(x.stand.t.Context(), patience)
	defer stop()
	c := exec.CommandContext(ctx, x.stand.binary, append(args, x.state...)...)
	var out, errs bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = filepath.Join(x.dir, "commands"), x.environment(), &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("curfew %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// configure writes the configuration of the service, with additional lines.
func (x *service) configure(more string) error {
	text, err := os.ReadFile(filepath.Join(x.dir, "commands", "curfew.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(x.dir, "curfew.yaml"), append(text, more...), 0o600)
}

// writeCertificate gives the first service a certificate with a lifetime.
func (s *stand) writeCertificate(counts time.Duration) error {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "curfew"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(counts), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key)
	if err != nil {
		return err
	}
	key, err := x509.MarshalECPrivateKey(s.key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, kind string
		data       []byte
	}{{"tls.key", "EC PRIVATE KEY", key}, {"tls.crt", "CERTIFICATE", cert}} {
		name := filepath.Join(s.first.dir, f.name)
		data := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.data})
		if err := errors.Join(os.WriteFile(name+".new", data, 0o600), os.Rename(name+".new", name)); err != nil {
			return err
		}
	}
	return nil
}

// slack is the people's channel.
func (s *stand) slack(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.refusing.Load() {
		fmt.Fprint(w, `{"ok":false,"error":"account_inactive"}`)
		return
	}
	fmt.Fprint(w, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
}

// spoil injects a fault at the provider until repair.
func (s *stand) spoil(f wire.Fault) error {
	remove := s.cloud.box.Wire.Inject(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undo[f.Account+f.Service] = remove
	return nil
}

// repair removes the fault of an account or a service.
func (s *stand) repair(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	remove := s.undo[what]
	if remove == nil {
		return fmt.Errorf("there is no fault in %s", what)
	}
	remove()
	delete(s.undo, what)
	return nil
}

// backUp copies the database of the second service, which no process uses, or restores the copy.
func (s *stand) backUp(back bool) error {
	u, err := url.Parse(s.databaseURL)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		return err
	}
	defer db.Close()
	statements := []string{"CREATE DATABASE earlier TEMPLATE " + name}
	if back {
		statements = []string{
			"DROP DATABASE " + name + " WITH (FORCE)", "CREATE DATABASE " + name + " TEMPLATE earlier",
		}
	}
	for _, text := range statements {
		if _, err := db.ExecContext(s.t.Context(), text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// received collects the messages of Alertmanager.
type received struct {
	mu  sync.Mutex
	all []message
}

// message is an alert as a receiver of Alertmanager sees it.
type message struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	at          time.Time
}

func (r *received) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var body struct{ Alerts []message }
	text, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range body.Alerts {
		m.at = time.Now()
		r.all = append(r.all, m)
	}
}

// newest returns the newest message about the alert with these labels, and whether there is one.
func (r *received) newest(labels map[string]string) (message, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.all) - 1; i >= 0; i-- {
		if maps.Equal(r.all[i].Labels, labels) {
			return r.all[i], true
		}
	}
	return message{}, false
}

// about returns the messages about a rule, for the text of a failure.
func (r *received) about(rule string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for _, m := range r.all {
		if m.Labels["alertname"] == rule {
			fmt.Fprintf(&out, "\n%s %s %v", m.at.Format(time.TimeOnly), m.Status, m.Labels)
		}
	}
	return out.String()
}

// get asks Prometheus.
func (s *stand) get(path string, to any) error {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.prometheus+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(to)
}

// state returns the state of an alert in Prometheus: inactive, pending or firing.
func (s *stand) state(labels map[string]string) (string, error) {
	var doc struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	if err := s.get("/api/v1/alerts", &doc); err != nil {
		return "", err
	}
	for _, a := range doc.Data.Alerts {
		if maps.Equal(a.Labels, labels) {
			return a.State, nil
		}
	}
	return "inactive", nil
}

// holds reports whether an expression has a result.
func (s *stand) holds(expr string) (bool, error) {
	var doc struct{ Data struct{ Result []any } }
	err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &doc)
	return len(doc.Data.Result) > 0, err
}

// until waits for a condition.
func (s *stand) until(what string, most time.Duration, is func() (bool, error)) error {
	for end := time.Now().Add(most); ; {
		ok, err := is()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("not within %s: %s", most, what)
		}
		select {
		case <-s.t.Context().Done():
			return s.t.Context().Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
