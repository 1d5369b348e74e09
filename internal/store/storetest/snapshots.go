package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

var snapshots = []test{
	{"what is there is kept as it was seen last", keptAsSeen},
	{"what was not read stays with its last observation", unreadStays},
	{"accounts are apart", accountsApart},
	{"a verdict is an interval", verdictIntervals},
	{"findings have a first and a last time", findingTimes},
	{"an older look changes nothing", olderLook},
	{"looks at the same time", looksAtOnce},
	{"audits by their accounts", auditsByAccounts},
	{"what has not changed is not written", unchangedIsCheap},
	{"resources in pages and by filters", resourcePages},
	{"findings in pages and by filters", findingPages},
	{"what another mapping of tags said is looked at again", otherMapping},
}

// instances is the part of most machines, volumes another part.
var (
	instances = snapshot.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	volumes   = snapshot.Part{Region: "us-east-1", Kind: inventory.KindVolume}
)

// sighted returns a resource of the first account.
func sighted(p snapshot.Part, id, state string) snapshot.Resource {
	return snapshot.Resource{
		Ref:  inventory.Ref{Cloud: "aws", Account: "123456789012", Region: p.Region, Kind: p.Kind, ID: id},
		Name: "name of " + id, State: state, Body: []byte(`{"id":"` + id + `"}`),
	}
}

// lookAt returns an observation of the first account some minutes after noon.
func lookAt(minutes int, parts []snapshot.Part, resources ...snapshot.Resource) snapshot.Observation {
	return snapshot.Observation{
		Cloud: "aws", Account: "123456789012", At: noon.Add(time.Duration(minutes) * time.Minute), Parts: parts,
		Resources: resources,
		Reach:     snapshot.Reach{Profile: "p", Role: "r", Regions: []string{"us-east-1"}}}
}

func minute(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }

// lives returns for every stored resource when it was first seen, last seen and missed, in minutes
// after noon.
func lives(t *testing.T, b *Backend) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range must(b.Snapshots.Resources(t.Context(), snapshot.Query{IncludeGone: true}))(t) {
		out[r.Ref.Account+"/"+r.Ref.ID] = fmt.Sprintf("%s %v-%v", r.State, r.FirstAt.Sub(noon).Minutes(),
			r.SeenAt.Sub(noon).Minutes())
		if !r.GoneAt.IsZero() {
			out[r.Ref.Account+"/"+r.Ref.ID] += fmt.Sprintf(" gone %v", r.GoneAt.Sub(noon).Minutes())
		}
	}
	return out
}

func expectLives(t *testing.T, b *Backend, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, lives(t, b)); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func keptAsSeen(t *testing.T, b *Backend) {
	both := []snapshot.Part{instances, volumes}
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(0, both, sighted(instances, "i-1", "running"),
		sighted(instances, "i-2", "running"), sighted(volumes, "i-1", "available"))))
	changed := sighted(instances, "i-1", "stopped")
	changed.Name, changed.Body = "ä\x00", []byte(`{"other":1}`)
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(5, both, changed, sighted(volumes, "i-1", "available"))))
	b = b.Reopen(t)
	got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{}))(t)
	changed.Name, changed.FirstAt, changed.SeenAt = "ä\uFFFD", minute(0), minute(5)
	volume := sighted(volumes, "i-1", "available")
	volume.FirstAt, volume.SeenAt = minute(0), minute(5)
	if diff := cmp.Diff([]snapshot.Resource{changed, volume}, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	gone := inventory.Ref{
		Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-2",
	}
	want := []snapshot.Change{
		{At: minute(0), Aspect: snapshot.State, Value: "running"},
		{At: minute(5), Aspect: snapshot.State, Value: snapshot.Gone},
	}
	if diff := cmp.Diff(want, must(b.Snapshots.Changes(t.Context(), gone))(t)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	// It returns as the same resource.
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(9, both[:1], changed, sighted(instances, "i-2", "running"))))
	for _, r := range must(b.Snapshots.Resources(t.Context(), snapshot.Query{}))(t) {
		if r.Ref == gone && (!r.FirstAt.Equal(minute(0)) || !r.SeenAt.Equal(minute(9))) {
			t.Errorf("it came back as %+v", r)
		}
	}
	want = append(want, snapshot.Change{At: minute(9), Aspect: snapshot.State, Value: "running"})
	if diff := cmp.Diff(want, must(b.Snapshots.Changes(t.Context(), gone))(t)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	accounts := must(b.Snapshots.Accounts(t.Context()))(t)
	if diff := cmp.Diff([]snapshot.Account{
		{Cloud: "aws", ID: "123456789012", At: minute(9), Reach: lookAt(0, nil).Reach},
	}, accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
}

func unreadStays(t *testing.T, b *Backend) {
	both := []snapshot.Part{instances, volumes}
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(0, both, sighted(instances, "i-1", "running"),
		sighted(instances, "i-2", "running"), sighted(volumes, "v-1", "in-use"))))
	// Volumes could not be read, and of the machines one before the listing failed.
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(5, nil, sighted(instances, "i-1", "running"))))
	expectLives(t, b, map[string]string{
		"123456789012/i-1": "running 0-5", "123456789012/i-2": "running 0-0", "123456789012/v-1": "in-use 0-0",
	})
	// Machines are listed again, and one has disappeared.
	no(t, b.Snapshots.Save(t.Context(), nil, lookAt(9, both[:1], sighted(instances, "i-1", "running"))))
	expectLives(t, b, map[string]string{
		"123456789012/i-1": "running 0-9", "123456789012/i-2": "running 0-0 gone 9", "123456789012/v-1": "in-use 0-0",
	})
}

func accountsApart(t *testing.T, b *Backend) {
	first := lookAt(0, []snapshot.Part{instances}, sighted(instances, "i-1", "running"))
	other := lookAt(1, []snapshot.Part{instances}, sighted(instances, "i-9", "running"))
	other.Account = "999999999999"
	other.Resources[0].Ref.Account = other.Account
	no(t, b.Snapshots.Save(t.Context(), nil, other, first))
	other.At, other.Resources = minute(2), nil
	no(t, b.Snapshots.Save(t.Context(), nil, other))
	expectLives(t, b, map[string]string{"123456789012/i-1": "running 0-0", "999999999999/i-9": "running 1-1 gone 2"})
	got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{
		Cloud: "aws", Account: "999999999999", IncludeGone: true,
	}))(
		t)
	if len(got) != 1 || got[0].Ref.ID != "i-9" {
		t.Errorf("of the other account: %+v", got)
	}
	if got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{Cloud: "sim"}))(t); len(got) != 0 {
		t.Errorf("of another cloud: %+v", got)
	}
}

func verdictIntervals(t *testing.T, b *Backend) {
	look := func(minutes int, duty string, since int) {
		t.Helper()
		m := sighted(instances, "i-1", "running")
		m.Duty = duty
		if since >= 0 {
			m.DutySince = minute(since)
		}
		no(t, b.Snapshots.Save(t.Context(), nil, lookAt(minutes, []snapshot.Part{instances}, m)))
	}
	look(0, "busy", -1)
	look(10, "idle", 4)
	look(20, "idle", 4)
	look(25, "", -1)    // it was not judged
	look(30, "idle", 2) // an audit reads more of the past
	look(32, "idle", 0) // it was seen at work then
	look(34, "idle", 3)
	look(40, "idle", 35) // it worked in between
	look(50, "unknown", -1)
	changes := must(b.Snapshots.Changes(t.Context(), sighted(instances, "i-1", "").Ref))(t)
	want := []snapshot.Change{
		{At: minute(0), Aspect: snapshot.Duty, Value: "busy"},
		{At: minute(0), Aspect: snapshot.State, Value: "running"},
		{At: minute(10), Since: minute(2), Aspect: snapshot.Duty, Value: "idle"},
		{At: minute(40), Since: minute(35), Aspect: snapshot.Duty, Value: "idle"},
		{At: minute(50), Aspect: snapshot.Duty, Value: "unknown"},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for i, since := range []int{70, 60, 65} { // the beginning that is known is the earliest
		look(80+i, "idle", since)
		got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{ID: "i-1"}))(t)
		if want := minute(min(since, []int{70, 60, 60}[i])); len(got) != 1 || !got[0].DutySince.Equal(want) {
			t.Errorf("after a look that dates it to minute %d it is %+v, want since %s", since, got, want)
		}
	}
}

func findingTimes(t *testing.T, b *Backend) {
	find := func(minutes int, parts []snapshot.Part, judged bool, ids ...string) {
		t.Helper()
		l := lookAt(minutes, parts)
		l.FindingsComplete = judged
		for _, id := range ids {
			l.Findings = append(l.Findings, snapshot.Finding{
				ID: id, Rule: "instance-idle", Ref: sighted(instances, "i-"+id, "").Ref, Body: []byte(`{}`),
			})
		}
		no(t, b.Snapshots.Save(t.Context(), nil, l))
	}
	find(0, []snapshot.Part{instances}, true, "a", "b")
	find(5, []snapshot.Part{instances}, true, "a", "c")
	find(6, []snapshot.Part{instances}, false)     // a pass of the policies has no findings
	find(7, []snapshot.Part{volumes}, true)        // machines could not be read
	find(8, []snapshot.Part{instances}, true, "b") // it exists again
	got := map[string]string{}
	for _, f := range must(b.Snapshots.Findings(t.Context(), snapshot.Query{IncludeGone: true}))(t) {
		got[f.ID] = fmt.Sprintf("%s %s %v-%v", f.Rule, f.Ref.ID, f.FirstAt.Sub(noon).Minutes(),
			f.LastAt.Sub(noon).Minutes())
		if !f.EndedAt.IsZero() {
			got[f.ID] += fmt.Sprintf(" ended %v", f.EndedAt.Sub(noon).Minutes())
		}
	}
	want := map[string]string{
		"a": "instance-idle i-a 0-5 ended 8", "b": "instance-idle i-b 8-8", "c": "instance-idle i-c 5-5 ended 8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if now := must(b.Snapshots.Findings(t.Context(), snapshot.Query{Cloud: "aws"}))(t); len(now) != 1 ||
		now[0].ID != "b" {
		t.Errorf("that hold: %+v", now)
	}
}

func olderLook(t *testing.T, b *Backend) {
	no(t, b.Snapshots.Save(t.Context(), nil,
		lookAt(5, []snapshot.Part{instances}, sighted(instances, "i-1", "stopped"))))
	older := lookAt(1, []snapshot.Part{instances}, sighted(instances, "i-1", "running"),
		sighted(instances, "i-2", "running"))
	older.Reach.Role = "old"
	no(t, b.Snapshots.Save(t.Context(), nil, older))
	expectLives(t, b, map[string]string{"123456789012/i-1": "stopped 5-5"})
	if a := must(b.Snapshots.Accounts(t.Context()))(t); len(a) != 1 || a[0].Reach.Role != "r" ||
		!a[0].At.Equal(minute(5)) {
		t.Errorf("the account is %+v", a)
	}
}

func looksAtOnce(t *testing.T, b *Backend) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			other := b.Reopen(t)
			l := lookAt(i, []snapshot.Part{instances}, sighted(instances, fmt.Sprintf("i-%d", i), "running"),
				sighted(instances, "i-all", "running"))
			second := l
			second.Account, second.Resources = "999999999999", nil
			if err := other.Snapshots.Save(t.Context(), nil, l, second); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{}))(t)
	if len(got) != 2 || got[0].Ref.ID != "i-7" || got[1].Ref.ID != "i-all" || !got[1].SeenAt.Equal(minute(7)) {
		t.Errorf("after the newest look: %+v", got)
	}
}

func auditsByAccounts(t *testing.T, b *Backend) {
	keep := func(minutes int, body string, accounts ...string) {
		t.Helper()
		no(t, b.Snapshots.Save(t.Context(), &snapshot.Audit{
			Cloud: "aws", Accounts: accounts, At: minute(minutes), Body: []byte(body),
		}))
	}
	keep(0, `{"n":0}`, "1")
	keep(1, `{"n":1}`, "2", "1")
	keep(2, `{"n":2}`, "1")
	keep(3, `{"n":3}`, "1", "2")
	got := must(b.Snapshots.Audits(t.Context()))(t)
	want := []snapshot.Audit{
		{Cloud: "aws", Accounts: []string{"1"}, At: minute(2), Body: []byte(`{"n":2}`)},
		{Cloud: "aws", Accounts: []string{"1", "2"}, At: minute(3), Body: []byte(`{"n":3}`)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audits (-want +got):\n%s", diff)
	}
}

func unchangedIsCheap(t *testing.T, b *Backend) {
	const many = 20_000
	look := lookAt(0, []snapshot.Part{instances})
	for i := range many {
		look.Resources = append(look.Resources, sighted(instances, fmt.Sprintf("i-%05d", i), "running"))
	}
	no(t, b.Snapshots.Save(t.Context(), nil, look))
	look.At = minute(1)
	look.Resources[7].State = "stopped"
	start := time.Now()
	no(t, b.Snapshots.Save(t.Context(), nil, look))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a look at %d resources of which one changed took %s", many, took)
	}
	got := must(b.Snapshots.Resources(t.Context(), snapshot.Query{}))(t)
	if len(got) != many || got[7].State != "stopped" || !got[many-1].SeenAt.Equal(minute(1)) {
		t.Errorf("%d resources, the last %+v", len(got), got[len(got)-1])
	}
}
