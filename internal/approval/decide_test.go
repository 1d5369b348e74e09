package approval

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// memory is an in-memory store with conditional writes.
type memory struct {
	mu  sync.Mutex
	all []Request
}

func (m *memory) PutRequest(_ context.Context, r Request, _ Event) (Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, old := range m.all {
		if old.ID == r.ID {
			if old.Version != r.Version {
				return Request{}, ErrConflict
			}
			r.Version++
			m.all[i] = r
			return r, nil
		}
	}
	r.Version++
	m.all = append([]Request{r}, m.all...)
	return r, nil
}

func (m *memory) Request(_ context.Context, id string) (Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.all {
		if strings.HasPrefix(r.ID, id) {
			return r, nil
		}
	}
	return Request{}, ErrNotFound
}

func (m *memory) Requests(_ context.Context, hash string) ([]Request, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Request
	for _, r := range m.all {
		if hash == "" || r.PlanHash == hash {
			out = append(out, r)
		}
	}
	return out, nil
}

// use finds and uses the approval of a plan.
func use(ctx context.Context, d Desk, planHash string, amount money.Amount, at time.Time) (Request, error) {
	r, err := d.Approved(ctx, planHash, amount, at)
	if err != nil {
		return r, err
	}
	return d.Use(ctx, r, r.AskedBy, at)
}

func asked(t testing.TB, d Desk, amount money.Amount) Request {
	t.Helper()
	r, err := d.Ask(context.Background(), Request{
		Kind: "job", Subject: "job resnet50", PlanHash: "h1", Amount: amount, AskedBy: "ana",
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refused(t *testing.T, err error, rule Rule) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Rule != rule {
		t.Errorf("got %v, want a refusal by the rule %q", err, rule)
	}
}

var boss = Person{Name: "bo", Roles: []string{DefaultRole}}

func TestApprovalIsUsedOnce(t *testing.T) {
	ctx, d := context.Background(), Desk{Store: &memory{}}
	r := asked(t, d, 400*money.USD)
	if again := asked(t, d, 400*money.USD); again.ID != r.ID {
		t.Errorf("asking twice made two requests, %s and %s", r.ID, again.ID)
	}
	_, err := use(ctx, d, "h1", 400*money.USD, now)
	refused(t, err, RuleWaits)
	if r, err = d.Decide(ctx, r.ID[:4], boss, true, "", now.Add(time.Minute)); err != nil || r.State != Approved ||
		r.DecidedBy != boss.Name || !r.DecidedAt.Equal(now.Add(time.Minute)) {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err = use(ctx, d, "h1", 399*money.USD, now.Add(time.Hour)); err != nil || r.State != Used {
		t.Fatalf("a lower price is within the approval: %+v, %v", r, err)
	}
	_, err = use(ctx, d, "h1", 399*money.USD, now.Add(time.Hour))
	refused(t, err, "state")
	if next := asked(t, d, 400*money.USD); next.ID == r.ID {
		t.Error("what is asked after the use is a new question")
	}
}

func TestRefusesOtherPlanOrAmount(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		by     Person
		hash   string
		amount money.Amount
		after  time.Duration
		decide Rule // the rule that refuses the decision
		use    Rule // the rule that refuses the use
	}{
		{name: "approved", by: boss, hash: "h1", amount: 400 * money.USD},
		{name: "by whoever asked", by: Person{Name: "ana", Roles: []string{DefaultRole}}, decide: "self"},
		{
			name: "by whoever asked, under the address", by: Person{
				Name: "Ana@example.com", Roles: []string{DefaultRole},
			},
			decide: "self",
		},
		{name: "by a person without the role", by: Person{Name: "bo", Roles: []string{"viewer"}}, decide: "role"},
		{name: "by a person without any role", by: Person{Name: "bo"}, decide: "role"},
		{name: "after it expired", by: boss, after: DefaultExpiry, decide: "expired"},
		{name: "another plan", by: boss, hash: "h2", use: "plan"},
		{name: "no plan", by: boss, hash: "", use: "plan"},
		{name: "a nano-dollar more", by: boss, hash: "h1", amount: 400*money.USD + 1, use: "amount"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Desk{Store: &memory{}}
			r := asked(t, d, 400*money.USD)
			_, err := d.Decide(ctx, r.ID, tc.by, true, "", now.Add(tc.after))
			if tc.decide != "" {
				refused(t, err, tc.decide)
				if _, err := use(ctx, d, "h1", 0, now.Add(tc.after)); err == nil {
					t.Error("what was refused could be used")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = use(ctx, d, tc.hash, tc.amount, now)
			if tc.use != "" {
				refused(t, err, tc.use)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestApprovalNeedsProof covers a refused proof and one that cannot be checked.
func TestApprovalNeedsProof(t *testing.T) {
	ctx := context.Background()
	for _, why := range []error{refuse("proof", "its session is over"), errBroken} {
		d := Desk{Store: &memory{}}
		r := asked(t, d, 400*money.USD)
		if _, err := d.Decide(ctx, r.ID, boss, true, "", now); err != nil {
			t.Fatal(err)
		}
		d.Check = func(context.Context, Request) error { return why }
		if _, err := use(ctx, d, "h1", 400*money.USD, now); !errors.Is(err, why) {
			t.Errorf("used although %v: %v", why, err)
		}
		if r, err := d.Store.Request(ctx, r.ID); err != nil || r.State != Approved {
			t.Errorf("it is %s, %v", r.State, err)
		}
	}
}

func TestProofString(t *testing.T) {
	for want, p := range map[string]Proof{
		"self-declared, not verified":        {},
		"aws-caller arn:1":                   {Kind: AWSCaller, Subject: "arn:1"},
		"github-review bo, https://host/r/1": {Kind: GitHubReview, Subject: "bo", Detail: "https://host/r/1"},
	} {
		if got := p.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (Proof{Kind: SelfDeclared, Subject: "bo"}).String(); got != "self-declared, not verified" {
		t.Errorf("a name in the environment is %q", got)
	}
}

func TestApprovalExpires(t *testing.T) {
	ctx, d := context.Background(), Desk{Store: &memory{}}
	r := asked(t, d, 0)
	if _, err := d.Decide(ctx, r.ID, boss, true, "", now); err != nil {
		t.Fatal(err)
	}
	_, err := use(ctx, d, "h1", 0, r.ExpiresAt)
	refused(t, err, "expired")
	if _, err := use(ctx, d, "h1", 0, r.ExpiresAt.Add(-1)); err != nil {
		t.Error(err)
	}
}

// TestConcurrentUses checks that one of many concurrent uses of an approval succeeds.
func TestConcurrentUses(t *testing.T) {
	ctx, d := context.Background(), Desk{Store: &memory{}}
	r := asked(t, d, money.USD)
	if _, err := d.Decide(ctx, r.ID, boss, true, "", now); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	won := make(chan string, 32)
	for range cap(won) {
		wg.Go(func() {
			if _, err := use(ctx, d, "h1", money.USD, now); err == nil {
				won <- "won"
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d uses won, want 1", len(won))
	}
}

// TestRandomUsesNeedApproval asks, decides and uses at random: nothing may be used that another person with
// the role has not approved for that plan and amount.
func TestRandomUsesNeedApproval(t *testing.T) {
	people := []Person{
		{Name: "ana", Roles: []string{DefaultRole}}, {Name: "bo", Roles: []string{DefaultRole}}, {Name: "cy"},
	}
	rapid.Check(t, func(t *rapid.T) {
		ctx, d := context.Background(), Desk{Store: &memory{}}
		at, uses := now, map[string]int{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "minutes")) * time.Minute)
			hash := rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "hash")
			amount := money.Amount(rapid.IntRange(0, 3).Draw(t, "amount")) * money.USD
			who := rapid.SampledFrom(people).Draw(t, "who")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				if _, err := d.Ask(ctx, Request{PlanHash: hash, Amount: amount, AskedBy: who.Name}, at); err != nil {
					t.Fatal(err)
				}
			case 1:
				all, _ := d.Store.Requests(ctx, hash)
				if len(all) > 0 {
					_, _ = d.Decide(ctx, all[0].ID, who, rapid.Bool().Draw(t, "allow"), "", at)
				}
			case 2:
				r, err := use(ctx, d, hash, amount, at)
				if err != nil {
					continue
				}
				uses[r.ID]++
				if r.PlanHash != hash || amount > r.Amount || Same(r.DecidedBy, r.AskedBy) || r.DecidedBy == "cy" ||
					r.DecidedAt.After(at) || !at.Before(r.ExpiresAt) || uses[r.ID] > 1 {
					t.Fatalf("used %+v for %s at %s", r, amount, at)
				}
			}
		}
	})
}

// TestCannotApproveUnderOtherSpelling checks that similar names count as one person, and that a name
// with invisible characters cannot file a request.
func TestCannotApproveUnderOtherSpelling(t *testing.T) {
	for _, by := range []string{
		"ana", "ANA", " ana ", "ana\u00a0", "an a", "a\u200bna", "ana@acme.example", "Ana@acme.example", "github:ana",
		"GitHub:Ana",
	} {
		d := Desk{Store: &memory{}}
		r := asked(t, d, money.USD)
		for _, allow := range []bool{true, false} {
			_, err := d.Decide(context.Background(), r.ID, Person{
				Name: by, Roles: []string{DefaultRole},
			}, allow, "", now)
			if refused(t, err, "self"); t.Failed() {
				t.Fatalf("%q decided what ana asked for", by)
			}
		}
	}
	for _, asker := range []string{"a\u200bna", "ana\x00", "ana\u202e", "ana\u3164", "a\ufe0fna"} {
		if _, err := (Desk{Store: &memory{}}).Ask(context.Background(), Request{PlanHash: "h1", AskedBy: asker},
			now); err == nil || !strings.Contains(err.Error(), "invisible characters") {
			t.Errorf("%q asked: %v", asker, err)
		}
	}
	for _, other := range []string{"bo", "ana2", "github:bo", "ana-home", "anna"} {
		if MaybeSame("ana", other) {
			t.Errorf("ana is taken for %s", other)
		}
	}
}

func TestSum(t *testing.T) {
	at := func(m int) time.Time { return now.Add(time.Duration(m) * time.Minute) }
	got := Sum([]Request{
		{State: Used, AskedAt: now, DecidedAt: at(5), ExpiresAt: at(60)},
		{State: Denied, AskedAt: now, DecidedAt: at(9), ExpiresAt: at(60)},
		{State: Approved, AskedAt: now, DecidedAt: at(1), ExpiresAt: at(60)},
		{State: Pending, AskedAt: now, ExpiresAt: at(60)},
		{State: Pending, AskedAt: now, ExpiresAt: at(2)},
	}, at(3))
	want := Waits{
		Counts: Counts{Asked: 5, Approved: 2, Denied: 1, Expired: 1, Pending: 1}, Median: 5 * time.Minute,
		Longest: 9 * time.Minute,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestDecisionsAreFinal checks that no decision can be changed, and that the refusal
// has no effect.
func TestDecisionsAreFinal(t *testing.T) {
	ctx := context.Background()
	for _, state := range []State{Approved, Denied, Used, Void} {
		for _, allow := range []bool{true, false} {
			d := Desk{Store: &memory{}}
			r := asked(t, d, 400*money.USD)
			r.State, r.DecidedBy, r.DecidedAt = state, "bo", now
			r, err := d.Store.PutRequest(ctx, r, Event{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = d.Decide(ctx, r.ID, Person{Name: "cy", Roles: boss.Roles}, allow, "again", now.Add(time.Minute))
			refused(t, err, "state")
			if kept, _ := d.Store.Request(ctx, r.ID); kept.State != state || kept.Version != r.Version ||
				kept.DecidedBy != "bo" {
				t.Errorf("what was %s became %+v", state, kept)
			}
			if _, err := use(ctx, d, "h1", 400*money.USD, now); (err == nil) != (state == Approved) {
				t.Errorf("what was %s was used: %v", state, err)
			}
		}
	}
}

// TestSameName checks that domains matter only if both names have one.
func TestSameName(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"ana", "Ana", true}, {"ana", "ana@example.com", true}, {"ana@example.com", "ana", true},
		{"ana@example.com", "ANA@example.com", true},
		{"ana@example.com", "ana@example.org", false}, {"ana", "bo", false},
		{"ana@example.com", "bo@example.com", false},
	} {
		if Same(tc.a, tc.b) != tc.want || Same(tc.b, tc.a) != tc.want {
			t.Errorf("%s and %s: want %v", tc.a, tc.b, tc.want)
		}
	}
}

// failingStore is a store whose reads fail.
type failingStore struct{ Store }

func (failingStore) Request(context.Context, string) (Request, error)    { return Request{}, errBroken }
func (failingStore) Requests(context.Context, string) ([]Request, error) { return nil, errBroken }

var errBroken = errors.New("broken")

// TestReadErrorDecidesNothing checks that a failing store yields neither a request nor an
// approval.
func TestReadErrorDecidesNothing(t *testing.T) {
	ctx, kept := context.Background(), &memory{}
	d := Desk{Store: failingStore{kept}}
	_, ask := d.Ask(ctx, Request{PlanHash: "h1", AskedBy: "ana"}, now)
	_, decide := d.Decide(ctx, "1", boss, true, "", now)
	_, use := use(ctx, d, "h1", 0, now)
	for what, err := range map[string]error{"ask": ask, "decide": decide, "use": use} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, r := range []Request{{AskedBy: "ana"}, {PlanHash: "h1", AskedBy: " "}} {
		if _, err := (Desk{Store: kept}).Ask(ctx, r, now); err == nil {
			t.Errorf("asked without a plan or a name: %+v", r)
		}
	}
	if len(kept.all) != 0 {
		t.Errorf("kept is %+v", kept.all)
	}
	if w := Sum(nil, now); w != (Waits{}) {
		t.Errorf("nothing was asked: %+v", w)
	}
}

// TestLookAlikesAreOnePerson checks that similar letters of other scripts, accents and digits do
// not make a second person, and that a list with two such names is refused.
func TestLookAlikesAreOnePerson(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"ana", "аna", true}, {"ana", "аԁа", false}, {"carol", "саго1", true}, {"bo", "b0", true}, {"Bo", "βο", true},
		{"bill", "bi1I", true},
		{"ana", "áná", true}, {"ana", "ａｎａ", true}, {"github:ana", "аna", true},
		{"ana", "ann", false}, {"bo", "bob", false},
		{"яна", "ана", false},
	} {
		if got := MaybeSame(tc.a, tc.b); got != tc.same {
			t.Errorf("%q and %q may be one: %v, want %v", tc.a, tc.b, got, tc.same)
		}
		if err := LookAlikes([]string{tc.a, "zoe", tc.b}); (err != nil) != (tc.same && !Same(tc.a, tc.b) &&
			!strings.HasPrefix(tc.a, "github:")) {
			t.Errorf("%q and %q: %v", tc.a, tc.b, err)
		}
	}
}

// TestProvidersNeedConfiguredPeople checks that verified identities count as two
// people only if the same provider distinguishes them, or the people section names both.
func TestProvidersNeedConfiguredPeople(t *testing.T) {
	aws := func(name, arn string, mapped bool) Person {
		return Person{Name: name, Proof: Proof{Kind: AWSCaller, Subject: "arn:aws:" + arn, Mapped: mapped}}
	}
	hub := func(name string, mapped bool) Person {
		return Person{Name: name, Proof: Proof{Kind: GitHubReview, Subject: name, Mapped: mapped}}
	}
	for name, tc := range map[string]struct {
		a, b Person
		two  bool
	}{
		"two names":                {Person{Name: "ana"}, Person{Name: "bo"}, true},
		"two users":                {aws("a", "iam::1:user/ana", false), aws("b", "iam::1:user/bo", false), true},
		"one user under two names": {aws("a", "iam::1:user/ana", false), aws("b", "iam::1:user/ana", false), false},
		"two sessions of a role": {
			aws("a", "sts::1:assumed-role/dev/ana", false), aws("b", "sts::1:assumed-role/dev/bo", false), false,
		},
		"a user and a role": {
			aws("a", "iam::1:user/ana", false), aws("b", "sts::1:assumed-role/dev/bo", false), false,
		},
		"sessions that are named": {
			aws("ana", "sts::1:assumed-role/dev/ana", true), aws("bo", "sts::1:assumed-role/dev/bo", true), true,
		},
		"two logins":         {hub("ana", false), hub("bo", false), true},
		"a login and a user": {hub("ana", false), aws("b", "iam::1:user/bo", false), false},
		"one of them named":  {hub("ana", true), aws("b", "iam::1:user/bo", false), false},
		"both named":         {hub("ana", true), aws("bo", "iam::1:user/bo", true), true},
		"a name and a user":  {Person{Name: "ana"}, aws("b", "iam::1:user/bo", false), false},
		"a name in people and a user": {
			Person{Name: "ana", Proof: Proof{Mapped: true}}, aws("bo", "iam::1:user/bo", true), true,
		},
		"one named person of providers": {hub("ana", true), aws("ana", "iam::1:user/ana", true), false},
	} {
		if got := One(tc.a, tc.b); (got == "") != tc.two || One(tc.b, tc.a) == "" != tc.two {
			t.Errorf("%s: %q, want two people: %v", name, got, tc.two)
		}
	}
}
