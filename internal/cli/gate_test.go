package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const gateConfig = `approvers: {bo: [approver], ana: [approver]}
github: {identities: {octoana: ana, octobo: bo}}
budgets:
  - {id: vision, team: vision, purpose: training, amount: 1000, period: {from: 2026-01-01, until: 2046-01-01}}
`

const gateJob = `apiVersion: curfew.job/v1
name: %s
purpose: training
owner: {team: vision, project: ranking, user: ana}
resources: {instance_type: g5.xlarge}
regions: [us-east-1]
run: python train.py
max_runtime: %s
`

// desktop is a directory with a configuration, in which people give commands.
type desktop struct {
	t   *testing.T
	dir string
	env map[string]string
	now time.Time // zero is the clock's
}

func newDesktop(t *testing.T) *desktop {
	d := &desktop{t: t, dir: t.TempDir(), env: map[string]string{"CURFEW_IDENTITY": "ana"}}
	d.write("curfew.yaml", gateConfig)
	return d
}

func (d *desktop) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desktop) clock() time.Time {
	if d.now.IsZero() {
		return time.Now()
	}
	return d.now
}

// run runs a command and returns its exit code and output.
func (d *desktop) run(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{
		Args: args, Dir: d.dir, DataDir: filepath.Join(d.dir, "data"), WitnessDir: filepath.Join(d.dir, "witness"),
		Version: "test", Stdin: strings.NewReader(""),
		Stdout: &out, Stderr: &errs, Now: d.clock, Lookup: func(k string) (string, bool) {
			v, ok := d.env[k]
			return v, ok
		}})
	validates(d.t, args, out.String())
	return code, out.String(), errs.String()
}

// decision has the fields of gate -o json that the tests read.
type decision struct {
	Decision   string   `json:"decision"`
	Reasons    []string `json:"reasons"`
	ApprovalID string   `json:"approval_id"`
	HoldID     string   `json:"hold_id"`
}

func (d *desktop) gate(want int, args ...string) decision {
	d.t.Helper()
	code, out, errs := d.run(append([]string{"gate", "-o", "json"}, args...)...)
	if code != want {
		d.t.Fatalf("gate %v: exit %d, want %d\n%s%s", args, code, want, out, errs)
	}
	var got decision
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		d.t.Fatalf("gate %v: %v in %s", args, err, out)
	}
	return got
}

// TestConcurrentLaunchesShareBudget checks that of runs that each fit alone and not together,
// exactly one is admitted, whoever is faster.
func TestConcurrentLaunchesShareBudget(t *testing.T) {
	d := newDesktop(t)
	d.write("curfew.yaml", strings.Replace(gateConfig, "amount: 1000", "amount: 100", 1))
	d.write("a.yaml", fmt.Sprintf(gateJob, "a", "80h"))
	d.write("b.yaml", fmt.Sprintf(gateJob, "b", "80h"))
	for round := range 4 {
		codes := make([]int, 4)
		outs := make([]string, len(codes))
		var wg sync.WaitGroup
		for i := range codes {
			wg.Go(func() {
				codes[i], outs[i], _ = d.run("gate", []string{"a.yaml", "b.yaml"}[i%2], "-o", "json")
			})
		}
		wg.Wait()
		admitted := 0
		for i, code := range codes {
			switch code {
			case ExitDone:
				admitted++
				var got decision
				if err := json.Unmarshal([]byte(outs[i]), &got); err != nil || got.HoldID == "" {
					t.Fatalf("admitted without a hold: %v in %s", err, outs[i])
				}
				if code, _, errs := d.run("budget", "release", got.HoldID); code != ExitDone {
					t.Fatalf("release: exit %d: %s", code, errs)
				}
			case ExitDenied:
			default:
				t.Errorf("exit %d", code)
			}
		}
		if admitted != 1 {
			t.Fatalf("round %d: %d of %d were admitted for one remainder: %v", round, admitted, len(codes), codes)
		}
	}
}

// pullHub speaks the parts of GitHub's REST API that the story needs, with the payloads
// of https://docs.github.com/en/rest.
type pullHub struct {
	*httptest.Server
	mu       sync.Mutex
	head     string
	reviews  []map[string]any
	comments []string
	stamps   []stamp
	now      time.Time // of reviews and comments; zero is the clock's
	// edited are when reviews were edited, by their node.
	edited map[string]any
}

// stamp is when a comment was written and last edited.
type stamp struct{ created, updated time.Time }

// at returns the time of GitHub's clock.
func (h *pullHub) at() time.Time {
	if h.now.IsZero() {
		return time.Now().UTC().Truncate(time.Second)
	}
	return h.now.UTC().Truncate(time.Second)
}

// edit is a person with write access who changes a comment.
func (h *pullHub) edit(i int, change func(string) string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.comments[i], h.stamps[i].updated = change(h.comments[i]), h.at()
}

func newPullHub(t *testing.T) *pullHub {
	h := &pullHub{head: strings.Repeat("a", 40), edited: map[string]any{}}
	user := func(login string) map[string]any { return map[string]any{"login": login, "id": 1, "type": "User"} }
	const repo = "/repos/acme/train"
	say := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	comment := func(i int) map[string]any {
		return map[string]any{
			"id": 100 + i, "body": h.comments[i], "user": user("curfew-bot"),
			"html_url":   "https://github.com/acme/train/pull/7#issuecomment-1",
			"created_at": h.stamps[i].created, "updated_at": h.stamps[i].updated}
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		var in struct {
			Body      string
			Variables struct{ ID string }
		}
		if r.Method != http.MethodGet {
			_ = json.NewDecoder(r.Body).Decode(&in)
		}
		switch r.Method + " " + r.URL.Path {
		case "GET /user":
			say(w, 200, user("curfew-bot"))
		case "GET " + repo + "/pulls/7":
			say(w, 200, map[string]any{
				"number": 7, "state": "open", "user": user("octoana"), "commits": 1,
				"head": map[string]any{"ref": "resnet50", "sha": h.head},
			})
		case "GET " + repo + "/pulls/7/commits":
			say(w, 200, []any{map[string]any{"sha": h.head, "author": user("octoana"), "committer": user("octoana")}})
		case "GET " + repo + "/activity":
			say(w, 200, []any{
				map[string]any{
					"id": 1, "after": h.head, "ref": "refs/heads/resnet50", "activity_type": "push",
					"actor": user("octoana"),
				},
			})
		case "POST /graphql": // whether the text of a review was edited
			say(w, 200, map[string]any{
				"data": map[string]any{
					"node": map[string]any{"id": in.Variables.ID, "lastEditedAt": h.edited[in.Variables.ID]},
				},
			})
		case "GET " + repo + "/pulls/7/reviews":
			say(w, 200, append([]map[string]any{}, h.reviews...))
		case "GET " + repo + "/issues/7/comments":
			all := []any{}
			for i := range h.comments {
				all = append(all, comment(i))
			}
			say(w, 200, all)
		case "POST " + repo + "/issues/7/comments":
			h.comments, h.stamps = append(h.comments, in.Body), append(h.stamps, stamp{h.at(), h.at()})
			say(w, 201, comment(len(h.comments)-1))
		case "PATCH " + repo + "/issues/comments/100":
			h.comments[0], h.stamps[0].updated = in.Body, h.at()
			say(w, 200, comment(0))
		default:
			say(w, 404, map[string]any{"message": "Not Found " + r.URL.Path})
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *pullHub) review(login, state, commit string, text ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reviews = append(h.reviews, map[string]any{
		"id": 80 + len(h.reviews), "node_id": fmt.Sprint("PRR_", len(h.reviews)),
		"user": map[string]any{"login": login, "type": "User"}, "state": state, "commit_id": commit,
		"body": strings.Join(text, "\n"), "submitted_at": h.at().Format(time.RFC3339),
		"html_url": fmt.Sprintf("https://github.com/acme/train/pull/7#pullrequestreview-%d", 80+len(h.reviews))})
}

func (h *pullHub) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.comments...)
}

// TestPullRequestReviewApproves checks that the gate comments, a reviewer approves the head commit,
// the gate passes once, and an edited file asks again.
func TestPullRequestReviewApproves(t *testing.T) {
	d, h := newDesktop(t), newPullHub(t)
	d.pullRequest(h)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))

	asked := d.gate(ExitHeld, "job.yaml", "--github")
	if said := h.said(); len(said) != 1 || !strings.Contains(said[0], "396.61") ||
		!strings.Contains(said[0], asked.ApprovalID) {
		t.Fatalf("the pull request was told %q", said)
	}
	if said := h.said()[0]; !strings.Contains(said, "What is approved:") || !strings.Contains(said, "undo: partial") ||
		!strings.Contains(said, "loses: ") {
		t.Errorf("the pull request is not told the plan: %q", said)
	}
	h.review("octoana", "APPROVED", h.head)
	if got := d.gate(ExitHeld, "job.yaml", "--github"); got.ApprovalID != asked.ApprovalID {
		t.Errorf("the author's own review made it %+v", got)
	}
	h.review("eve", "APPROVED", h.head)
	d.gate(ExitHeld, "job.yaml", "--github")
	h.review("octobo", "APPROVED", strings.Repeat("c", 40))
	if got := d.gate(ExitHeld, "job.yaml", "--github"); !strings.Contains(strings.Join(got.Reasons, "\n"),
		"the review by octobo does not count: the review is of another commit") {
		t.Errorf("no message says why reviews do not count: %q", got.Reasons)
	}
	h.review("octobo", "APPROVED", h.head)
	if got := d.gate(ExitDone, "job.yaml", "--github"); got.HoldID == "" || got.ApprovalID != asked.ApprovalID {
		t.Errorf("after the review it is %+v", got)
	}
	if said := h.said(); len(said) != 1 || !strings.Contains(strings.ToLower(said[0]), "allow") {
		t.Errorf("the comment was not brought up to date: %q", said)
	}
	// The check runs again: the run is the same one, and another one needs another review.
	once := d.gate(ExitDone, "job.yaml", "--github")
	again := d.gate(ExitHeld, "job.yaml", "--github", "--key", "another")
	if !strings.Contains(strings.Join(again.Reasons, "\n"),
		"bo does not count: it was used for request "+asked.ApprovalID) {
		t.Errorf("a review was used twice: %+v", again)
	}
	if code, out, _ := d.run("budget", "holds"); code != ExitDone || strings.Count(out, "live") != 1 ||
		!strings.Contains(out, once.HoldID) {
		t.Errorf("one review made the holds\n%s", out)
	}

	// The review was of that file: an edited one needs a new commit, and a review of it.
	d.write("job.yaml", strings.Replace(fmt.Sprintf(gateJob, "big", "390h"), "train.py", "train.py --lr 1", 1))
	h.mu.Lock()
	h.head = strings.Repeat("d", 40)
	h.mu.Unlock()
	d.pullRequest(h)
	if got := d.gate(ExitHeld, "job.yaml", "--github"); got.ApprovalID == asked.ApprovalID {
		t.Error("an edited file goes by the approval of the old one")
	}
	for _, text := range h.said() {
		if strings.Contains(text, "ghs_secret") {
			t.Error("the token was told to people")
		}
	}
}

// pullRequest makes a desktop the run of a workflow about pull request 7 of the hub.
func (d *desktop) pullRequest(h *pullHub) {
	d.t.Helper()
	d.write("event.json", h.event(d.t))
	d.env = map[string]string{
		"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": filepath.Join(d.dir, "event.json"),
		"GITHUB_REPOSITORY": "acme/train",
		"GITHUB_API_URL":    h.URL, "GITHUB_TOKEN": "ghs_secret0123456789"}
}

// event returns GitHub's event for a run about pull request 7.
func (h *pullHub) event(t *testing.T) string {
	t.Helper()
	event := map[string]any{
		"action": "synchronize", "number": 7, "repository": map[string]any{"full_name": "acme/train"},
		"pull_request": map[string]any{
			"number": 7, "state": "open", "user": map[string]any{"login": "octoana", "type": "User"},
			"head": map[string]any{
				"ref": "resnet50", "sha": h.head, "repo": map[string]any{"full_name": "acme/train"},
			},
			"base": map[string]any{
				"ref": "main", "sha": strings.Repeat("b", 40), "repo": map[string]any{"full_name": "acme/train"},
			}}}
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAReviewIsOfThePriceItSaw checks that a review approves the request that it came after, and no
// later one at a higher price or after the first expired.
func TestAReviewIsOfThePriceItSaw(t *testing.T) {
	d, h := newDesktop(t), newPullHub(t)
	d.pullRequest(h)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	h.now = d.now.Add(-time.Minute)
	h.review("octobo", "APPROVED", h.head)
	if got := d.gate(ExitHeld, "job.yaml", "--github"); !strings.Contains(strings.Join(got.Reasons, "\n"),
		"bo does not count: it is of 2026-11-21T08:59:00Z, before request") {
		t.Errorf("a review without a request made it %q", got.Reasons)
	}
	d.now = d.now.Add(48 * time.Hour) // the request expires
	h.now = d.now.Add(-time.Minute)
	h.review("octobo", "APPROVED", h.head)
	d.gate(ExitHeld, "job.yaml", "--github")
	h.now = d.now.Add(time.Minute)
	h.review("octobo", "APPROVED", h.head)
	d.now = d.now.Add(2 * time.Minute)
	d.gate(ExitDone, "job.yaml", "--github")
}

// TestRequestedChangesDeny checks that the check fails with that person's reason, for as long as
// the review stands.
func TestRequestedChangesDeny(t *testing.T) {
	d, h := newDesktop(t), newPullHub(t)
	d.pullRequest(h)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	d.gate(ExitHeld, "job.yaml", "--github")
	d.now = time.Now()
	for range 2 {
		d.now = d.now.Add(time.Minute)
		h.now = d.now
		h.review("octobo", "CHANGES_REQUESTED", h.head)
		d.now = d.now.Add(time.Minute)
		if got := d.gate(ExitDenied, "job.yaml", "--github"); got.Decision != "deny" ||
			!strings.Contains(strings.Join(got.Reasons, "\n"), "bo denied request ") {
			t.Errorf("changes were asked for, and it is %+v", got)
		}
	}
	if said := h.said(); len(said) != 1 || !strings.Contains(said[0], "is denied") {
		t.Errorf("the pull request was told %q", said)
	}
	d.now = d.now.Add(time.Minute)
	h.now = d.now
	h.review("octobo", "APPROVED", h.head) // who changes their mind says so once
	d.now = d.now.Add(time.Minute)
	d.gate(ExitDone, "job.yaml", "--github")
}

// TestVoteErrorsHavePositions: mistakes in a file of votes are named with their line, and an id
// that YAML takes for a number is an id.
func TestVoteErrorsHavePositions(t *testing.T) {
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"none", "votes: []\n", ""},
		{"digits", "votes:\n  - {request: 12345678e901, by: bo, allow: true}\n", ""},
		{
			"short", "votes:\n  - {request: 12345678, by: bo, allow: true}\n  - request: 1234\n    by: bo\n    " +
				"allow: true\n",
			"votes.yaml:3:",
		},
		{"undecided", "votes: [{request: abcdefgh, by: bo}]\n", "votes.yaml:1:9: a vote needs allow"},
		{
			"neither", "votes:\n  - {request: abcdefgh, by: bo, allow: \"yes\"}\n",
			"votes.yaml:2:40: allow is true or false",
		},
		{
			"another key", "votes:\n  - {request: abcdefgh, by: bo, allow: true, amount: 3}\n",
			`votes.yaml:2:46: a vote has no key "amount"`,
		},
		{"a list", "votes:\n  - {request: [a], by: bo, allow: true}\n", "votes.yaml:2:15: request is a text"},
		{"no votes", "votes: [3]\n", "votes.yaml:1:9: a vote has keys"},
		{"not closed", "a: [\n", "votes.yaml:1:4:"},
	} {
		d.write("votes.yaml", tt.text)
		code, _, errs := d.run("gate", "job.yaml", "--votes", "votes.yaml")
		want := ExitUsage
		if tt.want == "" {
			want = ExitHeld
		}
		if code != want || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") > 1 {
			t.Errorf("%s: exit %d, %q; want %d, %q", tt.name, code, errs, want, tt.want)
		}
	}
}

// TestReservesSeveralWorkloadsUntilEnd checks that a hold of several workloads lasts as long as all
// of them, not as long as their money would at the rate of all at once.
func TestReservesSeveralWorkloadsUntilEnd(t *testing.T) {
	d := newDesktop(t)
	pod := func(name, machine string, seconds int) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {team: vision, purpose: "+
			"training}}\nspec:\n  activeDeadlineSeconds: %d\n"+
			"  nodeSelector: {node.kubernetes.io/instance-type: %s, topology.kubernetes.io/region: us-east-1}\n  "+
			"containers: "+
			"[{name: a, resources: {limits: {nvidia.com/gpu: 1}}}]\n", name, seconds, machine)
	}
	d.write("two.yaml", pod("long", "g5.xlarge", 50*3600)+"---\n"+pod("costly", "p4d.24xlarge", 3600))
	d.gate(ExitDone, "two.yaml")
	_, out, _ := d.run("budget", "holds", "-o", "json")
	var held struct {
		Holds []struct{ From, Until time.Time }
	}
	if err := json.Unmarshal([]byte(out), &held); err != nil || len(held.Holds) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	if got := held.Holds[0].Until.Sub(held.Holds[0].From); got != 51*time.Hour {
		t.Errorf("pods of 50 h and 1 h are held for %s", got)
	}
}

// TestDenialWinsOverApproval checks that one denial outweighs every approval, wherever it stands.
func TestDenialWinsOverApproval(t *testing.T) {
	d, h := newDesktop(t), newPullHub(t)
	d.write("curfew.yaml", strings.Replace(gateConfig, "{bo:", "{cy: [approver], bo:", 1))
	d.pullRequest(h)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	asked := d.gate(ExitHeld, "job.yaml", "--github")
	h.review("octobo", "APPROVED", h.head)
	d.write("votes.yaml",
		fmt.Sprintf("votes:\n  - {request: %[1]s, by: bo, allow: true}\n  - {request: %[1]s, by: cy, "+
			"allow: false, reason: use the reserved machines}\n", asked.ApprovalID))
	got := d.gate(ExitDenied, "job.yaml", "--github", "--votes", "votes.yaml")
	if !strings.Contains(strings.Join(got.Reasons, "\n"),
		"cy denied request "+asked.ApprovalID+": use the reserved machines") {
		t.Errorf("got %+v", got)
	}
}

// TestSignedURLsAreRedacted checks that a signed URL of a job's data is neither shown nor kept,
// wherever the job appears.
func TestSignedURLsAreRedacted(t *testing.T) {
	const signature = "5ignatureofsomebody"
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h")+"data:\n  - \"https://user:pw"+signature+
		"@data.example.com/set.tar?X-Amz-Signature="+signature+"&sig="+signature+"\"\n"+
		"  - {uri: \"s3://bucket/set?versionId="+signature+
		"\", size: 10GiB}\nartifacts: {dir: /out, to: \"https://blob.example.com/out?sv="+signature+"\"}\n")
	var said strings.Builder
	for _, args := range []string{
		"estimate job.yaml", "estimate job.yaml -o json", "gate job.yaml", "gate job.yaml -o json",
		"gate job.yaml -o html", "approvals", "approvals -o json", "audit -o json",
	} {
		_, out, errs := d.run(strings.Fields(args)...)
		said.WriteString(out + errs)
	}
	if s := said.String(); strings.Contains(s, signature) || !strings.Contains(s, "blob.example.com/out?[redacted]") {
		t.Errorf("what was said: %s", s)
	}
	files, err := filepath.Glob(filepath.Join(d.dir, "data", "curfew.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no state: %v", err)
	}
	for _, name := range files {
		if state, err := os.ReadFile(name); err != nil || bytes.Contains(state, []byte(signature)) {
			t.Errorf("%s holds a signature, or %v", name, err)
		}
	}
}

// TestReasonsAreRedacted checks that a secret that a person pastes into a reason is neither kept
// nor shown, whichever way the decision comes.
func TestReasonsAreRedacted(t *testing.T) {
	const secret = "hunter2hunter2"
	reason := "see https://bucket.s3.amazonaws.com/x?X-Amz-Credential=AKIA0123456789ABCDEF&X-Amz-Signature=" + secret +
		" password=" + secret
	d := newDesktop(t)
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))
	d.write("other.yaml", fmt.Sprintf(gateJob, "other", "390h"))
	var said strings.Builder
	give := func(who string, args ...string) {
		d.env["CURFEW_IDENTITY"] = who
		_, out, errs := d.run(args...)
		said.WriteString(out + errs)
	}
	asked := d.gate(ExitHeld, "job.yaml")
	give("bo", "deny", asked.ApprovalID, "--reason", reason)
	asked = d.gate(ExitHeld, "other.yaml")
	d.write("votes.yaml",
		fmt.Sprintf("votes:\n  - {request: %s, by: bo, allow: false, reason: %q}\n", asked.ApprovalID,
			reason))
	give("ana", "gate", "other.yaml", "--votes", "votes.yaml")
	give("ana", "keep", "sim/1/us-east-1/instance/i-1", "--for", "1h", "--reason", reason, "-o", "json")
	give("ana", "freeze", "--reason", reason)
	give("ana", "unfreeze", "--reason", reason)
	for _, args := range []string{
		"approvals --all", "approvals --all -o json", "keep", "keep -o json", "audit", "audit -o json",
	} {
		give("ana", strings.Fields(args)...)
	}
	if s := said.String(); strings.Contains(s, secret) || !strings.Contains(s, "[redacted]") {
		t.Errorf("what was said: %s", s)
	}
	for _, name := range []string{"curfew.db", "curfew.db-wal"} {
		if b, err := os.ReadFile(filepath.Join(d.dir, "data", name)); err == nil &&
			strings.Contains(string(b), secret) {
			t.Errorf("%s holds the secret", name)
		}
	}
}
