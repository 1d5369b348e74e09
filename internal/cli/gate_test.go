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

// run gives a command and returns its exit code and what it said.
func (d *desktop) run(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	code := Run(context.Background(), Process{Args: args, Dir: d.dir, DataDir: filepath.Join(d.dir, "data"), Version: "test", Stdin: strings.NewReader(""),
		Stdout: &out, Stderr: &errs, Now: time.Now, Lookup: func(k string) (string, bool) { v, ok := d.env[k]; return v, ok }})
	return code, out.String(), errs.String()
}

// decision is what gate -o json says.
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

// TestTwoLaunchesRaceForOneRemainder: of runs that each fit alone and not together,
// exactly one is admitted, whoever is faster.
func TestTwoLaunchesRaceForOneRemainder(t *testing.T) {
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
}

func newPullHub(t *testing.T) *pullHub {
	h := &pullHub{head: strings.Repeat("a", 40)}
	user := func(login string) map[string]any { return map[string]any{"login": login, "id": 1, "type": "User"} }
	const repo = "/repos/acme/train"
	say := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	comment := func(i int) map[string]any {
		return map[string]any{"id": 100 + i, "body": h.comments[i], "user": user("curfew-bot"), "html_url": "https://github.com/acme/train/pull/7#issuecomment-1"}
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		var in struct{ Body string }
		if r.Method != http.MethodGet {
			_ = json.NewDecoder(r.Body).Decode(&in)
		}
		switch r.Method + " " + r.URL.Path {
		case "GET /user":
			say(w, 200, user("curfew-bot"))
		case "GET " + repo + "/pulls/7":
			say(w, 200, map[string]any{"number": 7, "state": "open", "user": user("octoana"), "commits": 1, "head": map[string]any{"ref": "resnet50", "sha": h.head}})
		case "GET " + repo + "/pulls/7/commits":
			say(w, 200, []any{map[string]any{"sha": h.head, "author": user("octoana"), "committer": user("octoana")}})
		case "GET " + repo + "/activity":
			say(w, 200, []any{map[string]any{"id": 1, "after": h.head, "ref": "refs/heads/resnet50", "activity_type": "push", "actor": user("octoana")}})
		case "GET " + repo + "/pulls/7/reviews":
			say(w, 200, append([]map[string]any{}, h.reviews...))
		case "GET " + repo + "/issues/7/comments":
			all := []any{}
			for i := range h.comments {
				all = append(all, comment(i))
			}
			say(w, 200, all)
		case "POST " + repo + "/issues/7/comments":
			h.comments = append(h.comments, in.Body)
			say(w, 201, comment(len(h.comments)-1))
		case "PATCH " + repo + "/issues/comments/100":
			h.comments[0] = in.Body
			say(w, 200, comment(0))
		default:
			say(w, 404, map[string]any{"message": "Not Found " + r.URL.Path})
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *pullHub) review(login, state, commit string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reviews = append(h.reviews, map[string]any{"id": 80 + len(h.reviews), "user": map[string]any{"login": login, "type": "User"}, "state": state, "commit_id": commit,
		"submitted_at": time.Now().UTC().Format(time.RFC3339), "html_url": "https://github.com/acme/train/pull/7#pullrequestreview-80"})
}

func (h *pullHub) said() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.comments...)
}

// TestAPullRequestReviewApproves: the gate comments, a reviewer approves the head
// commit, the gate passes once, and an edited file asks again.
func TestAPullRequestReviewApproves(t *testing.T) {
	d, h := newDesktop(t), newPullHub(t)
	event := map[string]any{"action": "synchronize", "number": 7, "repository": map[string]any{"full_name": "acme/train"},
		"pull_request": map[string]any{"number": 7, "state": "open", "user": map[string]any{"login": "octoana", "type": "User"},
			"head": map[string]any{"ref": "resnet50", "sha": h.head, "repo": map[string]any{"full_name": "acme/train"}},
			"base": map[string]any{"ref": "main", "sha": strings.Repeat("b", 40), "repo": map[string]any{"full_name": "acme/train"}}}}
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	d.write("event.json", string(text))
	d.env = map[string]string{"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": filepath.Join(d.dir, "event.json"), "GITHUB_REPOSITORY": "acme/train",
		"GITHUB_API_URL": h.URL, "GITHUB_TOKEN": "ghs_secret0123456789"}
	d.write("job.yaml", fmt.Sprintf(gateJob, "big", "390h"))

	asked := d.gate(ExitHeld, "job.yaml", "--github")
	if said := h.said(); len(said) != 1 || !strings.Contains(said[0], "396.61") || !strings.Contains(said[0], asked.ApprovalID) {
		t.Fatalf("the pull request was told %q", said)
	}
	h.review("octoana", "APPROVED", h.head)
	if got := d.gate(ExitHeld, "job.yaml", "--github"); got.ApprovalID != asked.ApprovalID {
		t.Errorf("the author's own review made it %+v", got)
	}
	h.review("eve", "APPROVED", h.head)
	d.gate(ExitHeld, "job.yaml", "--github")
	h.review("octobo", "APPROVED", strings.Repeat("c", 40))
	d.gate(ExitHeld, "job.yaml", "--github")
	h.review("octobo", "APPROVED", h.head)
	if got := d.gate(ExitDone, "job.yaml", "--github"); got.HoldID == "" || got.ApprovalID != asked.ApprovalID {
		t.Errorf("after the review it is %+v", got)
	}
	if said := h.said(); len(said) != 1 || !strings.Contains(strings.ToLower(said[0]), "allow") {
		t.Errorf("the comment was not brought up to date: %q", said)
	}

	// The review was of that file: an edited one needs a new commit, and a review of it.
	d.write("job.yaml", strings.Replace(fmt.Sprintf(gateJob, "big", "390h"), "train.py", "train.py --lr 1", 1))
	h.mu.Lock()
	h.head = strings.Repeat("d", 40)
	h.mu.Unlock()
	d.write("event.json", strings.ReplaceAll(string(text), strings.Repeat("a", 40), strings.Repeat("d", 40)))
	if got := d.gate(ExitHeld, "job.yaml", "--github"); got.ApprovalID == asked.ApprovalID {
		t.Error("an edited file goes by the approval of the old one")
	}
	for _, text := range h.said() {
		if strings.Contains(text, "ghs_secret") {
			t.Error("the token was told to people")
		}
	}
}
