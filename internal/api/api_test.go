package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/api"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
)

var update = flag.Bool("update", false, "write the OpenAPI document again")

// settings are the settings of the tests: two teams, one person per role.
const settings = `
identity: root
approvals: {accept: [self-declared]}
people:
  vi: {roles: [viewer]}
  ned: {roles: [user]}
  bo: {roles: [approver]}
  olga: {roles: [operator]}
  ada: {roles: [admin, approver]}
  vera: {roles: [viewer@vision, user@vision, approver@vision]}
  sam: {roles: [viewer@speech, user@speech, approver@speech]}
budgets:
  - {id: vision, team: vision, purpose: any, amount: 1000}
  - {id: speech, team: speech, purpose: any, amount: 1000}
gate: {ask_over: 1000000}
`

// service is a server with its own state.
type service struct {
	*httptest.Server
	tb    testing.TB
	dir   string
	state *store.Store
	req   *runtime.Request
	log   *syncBuffer
	// tokens holds people's tokens by name.
	tokens map[string]string
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *syncBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// start serves a state with a configuration, optionally with tokens for everybody.
func start(tb testing.TB, yaml string, tokens bool, change func(*api.Options)) *service {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	s := &service{tb: tb, dir: dir, log: &syncBuffer{}, tokens: map[string]string{}}
	file := filepath.Join(dir, "curfew.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		tb.Fatal(err)
	}
	var err error
	if s.state, err = store.Open(tb.Context(), store.Options{Dir: filepath.Join(dir, "state")}); err != nil {
		tb.Fatal(err)
	}
	s.req = runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: func(string) (string, bool) {
		return "", false
	}, Dir: dir, WitnessDir: filepath.Join(dir, "witness"), Log: s.log}).Request()
	s.req.ConfigFlag, s.req.DataFlag, s.req.Storage = file, filepath.Join(dir, "state"), runtime.LentStorage{
		State: s.state,
	}
	o := api.Options{
		Process: s.req.Process, State: s.state, Rate: 1e6, Burst: 1e6, Poll: 10 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Version: "test",
	}
	if o.Owner, err = identity.MakeOwner(s.req.DataFlag); err != nil {
		tb.Fatal(err)
	}
	if s.tokens[owner], err = o.Owner.Token(); err != nil {
		tb.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	handler, err := api.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	s.Server = httptest.NewServer(handler)
	tb.Cleanup(func() {
		s.Server.CloseClientConnections()
		s.Server.Close()
		if err := s.state.Close(); err != nil {
			tb.Error(err)
		}
	})
	if tokens {
		cfg, err := s.req.Config()
		if err != nil {
			tb.Fatal(err)
		}
		for name, roles := range cfg.Holders() {
			s.tokens[name] = s.token(name, roles...)
		}
	}
	return s
}

// owner names the user of the service among the tests' callers.
const owner = "the owner"

// token creates a token as its person would.
func (s *service) token(name string, roles ...string) string {
	s.tb.Helper()
	req := s.req.Fresh()
	req.Caller = runtime.ServedCaller(approval.Person{Name: name})
	doc, err := identity.CreateToken(s.tb.Context(), req, identity.TokenOptions{Name: name, Roles: roles})
	if err != nil {
		s.tb.Fatalf("a token for %s: %v", name, err)
	}
	return doc.Secret
}

// answered is the response to a call.
type answered struct {
	status int
	body   string
	header http.Header
}

// code is the code of a problem.
func (a answered) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

type option func(*http.Request)

func with(header, value string) option {
	return func(r *http.Request) {
		if header == "Host" {
			r.Host = value
			return
		}
		r.Header.Set(header, value)
	}
}

// call makes a call as a person; unauthenticated without a name.
func (s *service) call(name, method, path, body string, options ...option) answered {
	s.tb.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.tb.Context(), method, s.URL+path, in)
	if err != nil {
		s.tb.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if name != "" {
		r.Header.Set("Authorization", "Bearer "+s.tokens[name])
	}
	for _, o := range options {
		o(r)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.tb.Fatal(err)
	}
	return answered{res.StatusCode, string(text), res.Header}
}

// curfew runs the command line over the same state.
func (s *service) curfew(args ...string) string {
	s.tb.Helper()
	var out, failed bytes.Buffer
	exit := cli.Run(s.tb.Context(), cli.Process{
		Args: append(args, "--config", filepath.Join(s.dir, "curfew.yaml"), "--data-dir",
			filepath.Join(s.dir, "state")),
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &failed, Now: time.Now, Dir: s.dir,
		Lookup: func(string) (string, bool) { return "", false }})
	if exit != cli.ExitDone {
		s.tb.Fatalf("curfew %s: exit %d: %s", strings.Join(args, " "), exit, failed.String())
	}
	return out.String()
}

// ask files a request for approval for a team.
func (s *service) ask(by, team string, n int) string {
	s.tb.Helper()
	r, err := approval.Desk{
		Store: s.state.Approvals(),
	}.Ask(s.tb.Context(), approval.Request{
		Kind: "job", Subject: "job resnet50", PlanHash: fmt.Sprint("hash-", team, n), Amount: 5 * money.USD,
		AskedBy: by, AskedProof: approval.Proof{Kind: approval.Token, Subject: by, Mapped: by != "eve"}, Team: team},
		time.Now())
	if err != nil {
		s.tb.Fatal(err)
	}
	return r.ID
}

// calls returns one call of every operation; %s is replaced by a request ID.
func calls(t *testing.T, spec []byte) []struct{ method, path, id, body string } {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			RequestBody any    `json:"requestBody"`
		}
	}
	if err := json.Unmarshal(spec, &doc); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{
		"keep-resource": `{"for":"1h","reason":"demo"}`, "fix-finding": `{"grace":"30m"}`, "undo-action": `{}`,
		"approve": `{}`, "deny": `{"reason":"no"}`, "freeze": `{"reason":"incident"}`,
		"unfreeze": `{"reason":"over"}`, "confirm-alert": `{"reason":"meant"}`, "estimate": `{"content":"x"}`,
		"gate": `{"content":"x"}`, "create-token": `{"name":"ci","roles":["viewer"]}`,
		"create-backtest": `{"trace":"x"}`, "import-bill": `{"content":"x","name":"x.csv"}`,
		"set-settings":        `{"settings":"nonsense: 1","reason":"x"}`,
		"post-reconciliation": `{"since":"2026-10-01","until":"2026-11-01"}`,
		"fix-findings":        `{"ids":["x"],"grace":"30m"}`, "undo-actions": `{"ids":["x"]}`,
		"divide-costs":   `{"content":"x"}`,
		"up-session":     `{"name":"demo","cpus":1,"cloud":"local"}`,
		"extend-session": `{"for":"1h"}`, "down-session": `{}`,
		"run-job": `{"command":["true"],"cpus":1,"cloud":"local"}`, "cancel-job": `{}`,
		"accept-state": `{"reason":"restored"}`, "settle-hold": `{}`, "extend-hold": `{"amount_usd":"5","for":"1h"}`,
	}
	var out []struct{ method, path, id, body string }
	for path, methods := range doc.Paths {
		for method, op := range methods {
			body, has := bodies[op.OperationID]
			if has != (op.RequestBody != nil) {
				t.Errorf("%s: a body is %v in the document, and %v in this test", op.OperationID,
					op.RequestBody != nil, has)
			}
			path := strings.ReplaceAll(path, "{id}", "aws%2F1%2Fus-east-1%2Finstance%2Fi-1")
			if op.OperationID == "stream-events" {
				path += "?limit=1&after=0"
			}
			out = append(out, struct{ method, path, id, body string }{
				strings.ToUpper(method), path, op.OperationID, body,
			})
		}
	}
	return out
}

// least holds the lowest role of each operation, independent of the server's table.
var least = map[string][]string{
	"viewer": {
		"list-accounts", "list-resources", "get-resource", "get-resource-history", "list-findings", "get-finding",
		"preview-fix", "list-policies", "list-actions", "get-action", "get-action-history",
		"list-alerts", "list-keeps", "get-freeze", "list-budgets", "get-budget", "list-holds",
		"get-costs", "get-unit-costs",
		"get-bills", "get-reconciliation", "get-gate", "list-approvals", "get-approval",
		"list-people", "whoami", "list-audit", "verify-audit", "stream-events", "list-backtests", "get-backtest",
		"get-backtest-result", "list-bill-periods", "get-last-scan",
		"list-sessions", "get-session", "get-session-log", "list-jobs", "get-job", "get-job-log",
		"get-cost-shares", "get-state", "get-doctor-state",
		"get-gateways", "list-fleets", "get-fleet-history", "list-open-alerts", "get-why", "get-account-plan"},
	"user": {
		"create-backtest", "cancel-backtest", "keep-resource", "settle-hold", "release-hold",
		"extend-hold", "estimate",
		"gate", "up-session", "extend-session", "down-session", "run-job", "cancel-job", "divide-costs",
	},
	"approver": {"approve", "deny"},
	"operator": {
		"fix-finding", "fix-findings", "undo-actions", "undo-action", "freeze", "unfreeze", "confirm-alert",
		"accept-state", "list-notifiers", "test-notifier",
	},
	"admin": {
		"get-settings", "set-settings", "import-bill", "post-reconciliation", "list-tokens", "create-token",
		"revoke-token",
	},
}

// TestRoles calls every operation as everybody: without the role it is 403, without a token 401,
// and otherwise another status.
func TestRoles(t *testing.T) {
	s := start(t, settings, true, nil)
	roleOf := map[string]string{}
	for role, ids := range least {
		for _, id := range ids {
			roleOf[id] = role
		}
	}
	people := map[string]string{"vi": "viewer", "ned": "user", "bo": "approver", "olga": "operator", "ada": "admin"}
	rank := map[string]int{"viewer": 0, "user": 1, "approver": 2, "operator": 3, "admin": 4}
	for _, c := range calls(t, []byte(s.call("", "GET", "/openapi.json", "").body)) {
		role, ok := roleOf[c.id]
		if !ok {
			t.Errorf("%s: this test does not know its role", c.id)
			continue
		}
		if got := s.call("", c.method, c.path, c.body); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a token: %d", c.id, got.status)
		}
		for who, has := range people {
			got := s.call(who, c.method, c.path, c.body)
			if may := rank[has] >= rank[role]; may != (got.code() != "forbidden" && got.status != 401) ||
				got.status >= 500 {
				t.Errorf("%s as %s (%s): %d %s", c.id, who, has, got.status, got.body)
			}
			if !(rank[has] >= rank[role]) && got.status != 403 {
				t.Errorf("%s as %s (%s): %d, want 403", c.id, who, has, got.status)
			}
		}
		delete(roleOf, c.id)
	}
	if len(roleOf) > 0 {
		t.Errorf("not in the document: %v", roleOf)
	}
}

// TestViewerCannotChange checks that every mutation is 403 and has no effect except its record.
func TestViewerCannotChange(t *testing.T) {
	s := start(t, settings, true, nil)
	n := 0
	for _, c := range calls(t, []byte(s.call("", "GET", "/openapi.json", "").body)) {
		if c.method == "GET" {
			continue
		}
		n++
		if got := s.call("vi", c.method, c.path, c.body); got.status != 403 {
			t.Errorf("%s: %d", c.id, got.status)
		}
	}
	if audit := s.call("vi", "GET", "/api/v1/audit?what=call&actor=vi", "").body; strings.Count(audit,
		`"403, by token`) != n {
		t.Errorf("%d mutations, and the audit log says:\n%s", n, audit)
	}
	if keeps := s.call("vi", "GET", "/api/v1/keeps", "").body; !strings.Contains(keeps, `"keeps": []`) {
		t.Error(keeps)
	}
}

// TestRoleIsLimitedToTeam checks that things of other teams are neither shown nor changed.
func TestRoleIsLimitedToTeam(t *testing.T) {
	s := start(t, settings, true, nil)
	vision, speech, nobody := s.ask("root", "vision", 1), s.ask("root", "speech", 1), s.ask("root", "", 1)
	list := s.call("vera", "GET", "/api/v1/approvals", "").body
	if !strings.Contains(list, vision) || strings.Contains(list, speech) || strings.Contains(list, nobody) {
		t.Errorf("vera sees:\n%s", list)
	}
	for _, id := range []string{speech, nobody} {
		for _, c := range [][3]string{
			{"GET", "", ""}, {"POST", "/approve", "{}"}, {"POST", "/deny", `{"reason":"x"}`},
		} {
			if got := s.call("vera", c[0], "/api/v1/approvals/"+id+c[1], c[2]); got.status != 404 {
				t.Errorf("vera %s %s%s: %d %s", c[0], id, c[1], got.status, got.body)
			}
		}
	}
	if got := s.call("vera", "POST", "/api/v1/approvals/"+vision+"/approve", "{}"); got.status != 200 ||
		!strings.Contains(got.body, `"decided_by": "vera"`) {
		t.Errorf("vera approves for her team: %d %s", got.status, got.body)
	}
	if got := s.call("sam", "GET", "/api/v1/budgets/vision", ""); got.status != 404 {
		t.Errorf("the budget of another team: %d", got.status)
	}
	if got := s.call("sam", "GET", "/api/v1/budgets", ""); got.status != 200 ||
		strings.Contains(got.body, `"id": "vision"`) || !strings.Contains(got.body, `"id": "speech"`) {
		t.Errorf("budgets: %d %s", got.status, got.body)
	}
	for _, path := range []string{"/audit", "/actions", "/people", "/events", "/costs/units"} {
		if got := s.call("sam", "GET", "/api/v1"+path, ""); got.status != 403 ||
			!strings.Contains(got.body, "in all teams") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.call("sam", "POST", "/api/v1/resources/aws%2F1%2Fus-east-1%2Finstance%2Fi-1/keep",
		`{"for":"1h","reason":"x"}`); got.status != 404 {
		t.Errorf("keep of a resource of no team: %d %s", got.status, got.body)
	}
}

// TestApproval checks that requesters cannot approve under any token, and that an approval by a
// token is attested by the service.
func TestApproval(t *testing.T) {
	s := start(t, strings.Replace(settings, "  bo: {roles", "  bo: {linux: [bobby], roles", 1), true, nil)
	for _, asker := range []string{"bo", "bobby", "Bo@example.com"} {
		id := s.ask(asker, "vision", len(asker))
		if got := s.call("bo", "POST", "/api/v1/approvals/"+id+"/approve", "{}"); got.status != 403 ||
			got.code() != "not_approved" {
			t.Errorf("bo approves what %s asked: %d %s", asker, got.status, got.body)
		}
	}
	id := s.ask("eve", "vision", 9)
	if got := s.call("bo", "POST", "/api/v1/approvals/"+id+"/approve", "{}"); got.status != 403 ||
		!strings.Contains(got.body, "may be one person") {
		t.Errorf("a request whose asker no provider vouched for: %d %s", got.status, got.body)
	}
	r, err := approval.Desk{
		Store: s.state.Approvals(),
	}.Ask(t.Context(), approval.Request{Kind: "fix", Subject: "stop", PlanHash: "mapped", AskedBy: "ned",
		AskedProof: approval.Proof{Kind: approval.Token, Subject: "x", Mapped: true}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := s.call("bo", "POST", "/api/v1/approvals/"+r.ID+"/approve", "{}")
	if got.status != 200 || !strings.Contains(got.body, `"kind": "token"`) ||
		strings.Contains(got.body, s.tokens["bo"]) {
		t.Fatalf("bo approves: %d %s", got.status, got.body)
	}
	kept, err := s.state.Approvals().Request(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := s.req.Config()
	if err != nil {
		t.Fatal(err)
	}
	check := identity.CheckProof(s.req, cfg, false, nil)
	if err := check(t.Context(), kept); err != nil {
		t.Errorf("the approval does not count: %v", err)
	}
	for what, change := range map[string]func(*approval.Request){
		"another plan":    func(r *approval.Request) { r.PlanHash = "other" },
		"a greater sum":   func(r *approval.Request) { r.Amount++ },
		"another person":  func(r *approval.Request) { r.DecidedBy = "ada" },
		"another token":   func(r *approval.Request) { r.Proof.Subject = "y" },
		"no signature":    func(r *approval.Request) { r.Proof.Signed = "" },
		"the asker":       func(r *approval.Request) { r.AskedBy = "bo" },
		"another request": func(r *approval.Request) { r.ID = "000000000000" },
		"a later end":     func(r *approval.Request) { r.ExpiresAt = r.ExpiresAt.Add(time.Hour) },
		"a sign-in":       func(r *approval.Request) { r.Proof.Kind = approval.OIDC },
		"a review":        func(r *approval.Request) { r.Proof.Kind = approval.GitHubReview },
		"an AWS caller":   func(r *approval.Request) { r.Proof.Kind = approval.AWSCaller },
		"an owner token":  func(r *approval.Request) { r.Proof.Kind = approval.OwnerToken },
		"a name":          func(r *approval.Request) { r.Proof.Kind = approval.SelfDeclared },
		"no proof":        func(r *approval.Request) { r.Proof = approval.Proof{} },
	} {
		forged := kept
		change(&forged)
		if err := check(t.Context(), forged); err == nil {
			t.Errorf("%s: a forged approval counts", what)
		}
	}
}

// TestTokensExpireAndAreRevoked checks that revoked and expired tokens, removed roles and invalid
// tokens give no access.
func TestTokensExpireAndAreRevoked(t *testing.T) {
	s := start(t, settings, true, nil)
	all := s.call("ada", "GET", "/api/v1/tokens", "")
	if all.status != 200 || strings.Contains(all.body, "curfew_") || !strings.Contains(all.body, `"name": "vi"`) {
		t.Fatalf("%d %s", all.status, all.body)
	}
	hash, id, _ := identity.HashToken(s.tokens["vi"])
	if got := s.call("ada", "POST", "/api/v1/tokens/"+id+"/revoke", ""); got.status != 200 ||
		!strings.Contains(got.body, `"state": "revoked"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.tokens["hash"], s.tokens["nothing"], s.tokens["short"] = hash, "", "curfew_00"
	for _, who := range []string{"vi", "hash", "nothing", "short"} {
		if got := s.call("", "GET", "/api/v1/keeps", "",
			with("Authorization", "Bearer "+s.tokens[who])); got.status != 401 {
			t.Errorf("%s: %d", who, got.status)
		}
	}
	if got := s.call("", "GET", "/api/v1/keeps", "",
		with("Authorization", "Basic "+s.tokens["ned"])); got.status != 401 {
		t.Errorf("another scheme: %d", got.status)
	}
	made := s.call("ada", "POST", "/api/v1/tokens", `{"name":"ned","roles":["admin"]}`)
	var doc struct{ Secret string }
	if err := json.Unmarshal([]byte(made.body), &doc); err != nil || made.status != 200 {
		t.Fatalf("%d %s", made.status, made.body)
	}
	s.tokens["greedy"] = doc.Secret
	if got := s.call("greedy", "GET", "/api/v1/keeps", ""); got.status != 403 || got.code() != "no_role" {
		t.Errorf("a token with more than its person has: %d %s", got.status, got.body)
	}
	if got := s.call("ada", "POST", "/api/v1/tokens", `{"name":"bo","roles":["approver"]}`); got.status != 403 ||
		got.code() != "not_yours" {
		t.Errorf("a token that approves as another: %d %s", got.status, got.body)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "curfew.yaml"),
		[]byte(strings.Replace(settings, "ned: {roles: [user]}", "ned: {}", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.call("ned", "GET", "/api/v1/keeps", ""); got.status != 403 || got.code() != "no_role" {
		t.Errorf("after the role was taken away: %d %s", got.status, got.body)
	}
}

// TestDocumentsMatchCommandLine compares responses with the command line's output for the same
// state.
func TestDocumentsMatchCommandLine(t *testing.T) {
	s := start(t, settings, true, nil)
	s.curfew("scan", "--demo", "--quiet")
	s.curfew("freeze", "--reason", "incident")
	id := s.ask("root", "vision", 1)
	if got := s.call("ned", "POST", "/api/v1/resources/sim%2F1%2Fus-east-1%2Finstance%2Fi-1/keep",
		`{"for":"24h","reason":"demo"}`); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for path, command := range map[string][]string{
		"/keeps": {"keep"}, "/approvals": {"approvals"}, "/approvals?all=true": {"approvals", "--all"},
		"/tokens": {"token", "list"}, "/alerts": {"confirm"},
		"/findings/" + finding(t, s) + "/fix": {"fix", finding(t, s)},
	} {
		got := s.call("ada", "GET", "/api/v1"+path, "")
		want := s.curfew(append(command, "-o", "json")...)
		if diff := cmp.Diff(want, got.body); got.status != 200 || diff != "" {
			t.Errorf("%s: %d (-command +served):\n%s", path, got.status, diff)
		}
	}
	if got := s.call("vi", "GET", "/api/v1/approvals/"+id, ""); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// finding returns the ID of a finding of the last scan.
func finding(t *testing.T, s *service) string {
	t.Helper()
	var doc struct{ Findings []struct{ ID, Rule string } }
	if err := json.Unmarshal([]byte(s.call("vi", "GET", "/api/v1/findings?limit=1000", "").body), &doc); err != nil ||
		len(doc.Findings) == 0 {
		t.Fatalf("no finding: %v", err)
	}
	return doc.Findings[0].ID
}

// TestOpenAPI compares the document with the committed one.
func TestOpenAPI(t *testing.T) {
	s := start(t, "identity: root\n", false, nil)
	got := s.call("", "GET", "/openapi.json", "")
	file := filepath.Join("..", "..", "schemas", "openapi.json")
	if *update {
		if err := os.WriteFile(file, []byte(got.body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.body); diff != "" {
		t.Errorf("run with -update and look at the difference (-committed +served):\n%s", diff)
	}
	var spec struct {
		Components struct {
			Schemas map[string]struct{ Title string }
		}
	}
	if err := json.Unmarshal(want, &spec); err != nil {
		t.Fatal(err)
	}
	named := map[string]string{}
	for name, schema := range spec.Components.Schemas { // client generators name types by titles
		if other, taken := named[schema.Title]; taken ||
			!regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`).MatchString(schema.Title) {
			t.Errorf("%s has the title %q, as has %q", name, schema.Title, other)
		}
		named[schema.Title] = name
	}
	for _, path := range []string{"/docs", "/openapi.yaml", "/openapi", "/schemas/keeps.v1.json"} {
		if got := s.call("", "GET", path, ""); got.status != 404 {
			t.Errorf("%s: %d", path, got.status)
		}
	}
}

// TestUnknownPathsAndMethods checks that the problem document names the wrong path or method.
func TestUnknownPathsAndMethods(t *testing.T) {
	s := start(t, "identity: root\n", false, nil)
	for _, tc := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"DELETE", "/api/v1/tokens/abc", 404, "not_found", ""},
		{"DELETE", "/api/v1/nothing", 404, "not_found", ""},
		{"DELETE", "/api/v1/keeps", 405, "method_not_allowed", "GET, HEAD"},
		{"PUT", "/api/v1/freezes", 405, "method_not_allowed", "GET, HEAD, POST"},
		{"GET", "/api/v1/keeps?cursor=%2B", 400, "invalid_cursor", ""},
		{"GET", "/api/v1/keeps?cursor=Zm9v", 410, "cursor_gone", ""},
	} {
		got := s.call(owner, tc.method, tc.path, "")
		if got.status != tc.status || got.code() != tc.code || got.header.Get("Allow") != tc.allow ||
			got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s, Allow %q", tc.method, tc.path, got.status, got.body, got.header.Get("Allow"))
		}
	}
}
