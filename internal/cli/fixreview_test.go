package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// TestAReviewApprovesAFix checks that the plan of a fix is a comment of the pull request, and the
// review of another person who names it approves exactly that, once.
func TestAReviewApprovesAFix(t *testing.T) {
	l, h := newLadder(t), newPullHub(t)
	if _, err := l.sandbox.Seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	ana, asAna := l.keysOf("ana")
	bo, _ := l.keysOf("bo")
	own := strings.Replace(l.read("curfew.yaml"), "approvals: {accept: [self-declared]}",
		fmt.Sprintf(
			"approvals: {sts_endpoint: %q, github_api: %q}\npeople: {ana: {aws: [%q], github: [octoana]}, bo: "+
				"{aws: [%q], github: [octobo]}, eve: {github: [octoeve]}}",
			os.Getenv("AWS_ENDPOINT_URL"), h.URL, ana, bo), 1)
	l.write("curfew.yaml", own)
	asAna()
	l.write("event.json", h.event(t))
	for name, value := range map[string]string{
		"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": filepath.Join(l.dir, "event.json"),
		"GITHUB_REPOSITORY": "acme/train",
		"GITHUB_API_URL":    h.URL, "GITHUB_TOKEN": "ghs_secret0123456789"} {
		t.Setenv(name, value)
	}
	found := scanJSONOf(t, l)
	at := slices.IndexFunc(found.Findings, func(f view.Finding) bool {
		return f.Rule == "volume-unattached" && f.Resource.Owner.User == "ana"
	})
	volume, id := found.Findings[at].Resource.ID, found.Findings[at].ID
	there := func() bool {
		out, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DescribeVolumes(t.Context(),
			&ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
		return err == nil && len(out.Volumes) == 1
	}
	clock := func(d time.Duration) {
		l.pass(d)
		h.mu.Lock()
		h.now = l.clock()
		h.mu.Unlock()
	}
	run := func() (exit int, errs string) {
		t.Helper()
		clock(time.Minute)
		exit, _, errs = l.curfewAny("fix", id, "--enforce", "--github")
		return exit, errs
	}
	open := func() view.Request {
		t.Helper()
		var asked struct{ Requests []view.Request }
		if err := json.Unmarshal([]byte(l.curfew(ExitDone, "approvals", "-o", "json")), &asked); err != nil ||
			len(asked.Requests) != 1 {
			t.Fatalf("%d requests, %v", len(asked.Requests), err)
		}
		return asked.Requests[0]
	}
	refused := func(what, why string) {
		t.Helper()
		if exit, errs := run(); !there() || exit != ExitHeld || !strings.Contains(errs, why) {
			t.Fatalf("%s: there %v, exit %d, want %q in\n%s", what, there(), exit, why, errs)
		}
	}

	run() // warns the owner, and asks
	r, said := open(), h.said()
	if len(said) != 1 || r.AskedBy != "ana" || r.AskedProof.Kind != string(approval.GitHubReview) {
		t.Fatalf("asked by %s, %+v; the pull request has %q", r.AskedBy, r.AskedProof, said)
	}
	for _, want := range []string{
		"curfew approve " + r.ID, r.PlanHash, volume, "call: delete-volume",
		"by hand: aws ec2 delete-volume", "saves: $",
		" a month", "undo: ", "loses: ",
	} {
		if !strings.Contains(said[0], want) {
			t.Errorf("the comment does not show %q:\n%s", want, said[0])
		}
	}
	clock(16 * time.Minute)
	yes := "curfew approve " + r.ID
	h.review("octobo", "APPROVED", h.head, "LGTM")
	refused("a review of the commits alone", "does not have the line")
	h.review("octoana", "APPROVED", h.head, yes)
	refused("the author's own review", "the review by octoana does not count")
	h.review("octoeve", "APPROVED", h.head, yes)
	refused("a review by no approver", "the review by octoeve does not count: is no approver")

	h.review("octobo", "APPROVED", h.head, yes)
	h.mu.Lock()
	h.edited[fmt.Sprint("PRR_", len(h.reviews)-1)] = "2026-11-20T13:00:00Z"
	h.mu.Unlock()
	refused("a review whose text another person wrote", "its text was edited after it was sent")

	h.review("octobo", "APPROVED", h.head, yes)
	h.edit(0, func(s string) string { return strings.Replace(s, volume, "vol-0harmless", 1) })
	refused("an edited comment", "does not show the plan of request "+r.ID)
	first := r.ID
	if r = open(); r.ID == first || len(h.said()) != 2 {
		t.Fatalf("it is not asked again: %s, %d comments", r.ID, len(h.said()))
	}
	refused("a review of another request", "is older than the comment")
	yes = "looked at it\n`curfew approve " + r.ID + "`\n"
	h.review("octobo", "APPROVED", h.head, yes)
	h.edit(1, func(s string) string { return s }) // edited twice: it says the same again
	refused("a comment that was edited in between", "was edited after it was posted")

	// Whoever may write to the state shows one plan for the hash of another.
	r = open()
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(l.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	harmless := func(text string) string { return strings.ReplaceAll(text, volume, "vol-0harmless") }
	kept, err := s.Approvals().Request(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	kept.Plan, kept.Subject = harmless(kept.Plan), harmless(kept.Subject)
	if _, err := s.Approvals().PutRequest(t.Context(), kept, approval.Event{
		At: kept.AskedAt, By: kept.AskedBy,
	}); err !=
		nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	h.edit(2, harmless)
	h.mu.Lock()
	h.stamps[2].updated = h.stamps[2].created
	h.mu.Unlock()
	h.review("octobo", "APPROVED", h.head, "curfew approve "+r.ID)
	refused("another plan than is carried out", "shows something else than what would be done")

	r = open()
	clock(time.Minute)
	h.review("octobo", "APPROVED", h.head, "curfew approve "+r.ID)
	// The reviews of another host prove nothing.
	l.write("curfew.yaml", strings.Replace(own, ", github_api: \""+h.URL+"\"", "", 1))
	if exit, errs := run(); exit != ExitUsage || !strings.Contains(errs, "approvals.github_api") {
		t.Errorf("reviews of %s count: exit %d\n%s", h.URL, exit, errs)
	}
	l.write("curfew.yaml", own)
	for range 6 {
		if run(); !there() {
			break
		}
	}
	if there() {
		_, errs := run()
		t.Fatalf("a fix that a review approves is not carried out:\n%s", errs)
	}
	text := l.curfew(ExitDone, "approvals", r.ID)
	for _, want := range []string{
		"used", "decided by: bo (github-review octobo, https://github.com/acme/train/pull/7#pullrequestreview-",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("approvals does not show %q:\n%s", want, text)
		}
	}
	// Each request that a review or a comment voided has its entry with the reason.
	voided := l.curfew(ExitDone, "audit", "--what", "void", "-o", "json")
	for _, want := range []string{
		first, "does not show the plan of request " + first, "was edited after it was posted",
		"shows something else than what would be done",
	} {
		if !strings.Contains(voided, want) {
			t.Errorf("the audit log does not say %q of what was voided:\n%s", want, voided)
		}
	}
}
