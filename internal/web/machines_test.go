package web

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

func machineOf(id, team, duty, state string, dollars int) machine {
	m := machine{Observed: view.Observed{ID: "aws/1/us-east-1/instance/" + id, Resource: id}}
	m.Kind, m.Region, m.State, m.Owner = "instance", "us-east-1", state, inventory.Owner{Team: team}
	if duty != "" {
		m.Duty = &duty
	}
	m.Hourly = money.Known(money.Amount(dollars) * money.USD)
	return m
}

// TestMachineAddressSelectsAndSorts keeps the state of the page Machines in its address.
func TestMachineAddressSelectsAndSorts(t *testing.T) {
	all := []machine{
		machineOf("a", "vision", "idle", "running", 1), machineOf("b", "language", "idle", "running", 9),
		machineOf("c", "", "busy", "running", 5), machineOf("d", "vision", "idle", "stopped", 3),
		machineOf("e", "vision", "", "running", 7),
	}
	all[4].why = "nothing was measured"
	for query, want := range map[string]string{
		"":                               "beca",
		"duty=idle":                      "ba",
		"duty=idle&sort=hour":            "ab",
		"team=vision&state=any":          "eda",
		"team=none":                      "c",
		"state=stopped":                  "d",
		"duty=unmeasured":                "e",
		"q=VISION":                       "ea",
		"q=instance/b":                   "b",
		"group=team&sort=name":           "bcae",
		"sort=no-such-column":            "aceb",
		"stops=1h":                       "",
		"page=-3&region=us-east-1&q=%20": "beca",
	} {
		u, err := url.Parse("/machines?" + query)
		if err != nil {
			t.Fatal(err)
		}
		q := machineQueryOf(u)
		rows, _, _ := newFleet(all).page(q)
		got := ""
		for _, m := range rows {
			got += m.Resource
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", query, got, want)
		}
		again, err := url.Parse(string(q.address(func(*machineQuery) {})))
		if err != nil || machineQueryOf(again) != q {
			t.Errorf("%q: its address is %s", query, again)
		}
	}
}

// TestNamesFromOutsideStayText draws a machine whose every name is markup.
func TestNamesFromOutsideStayText(t *testing.T) {
	const probe = `"><script>alert(1)</script><img src=x onerror=alert(1)>'`
	m := machineOf(probe, probe, "idle", "running", 1)
	m.Name, m.Type, m.Region, m.why, m.Owner.User = probe, probe, probe, probe, probe
	v := &visit{now: time.Now()}
	scan := view.Scan{Owners: []view.OwnerCost{{Team: probe}}}
	why := view.Why{Figure: probe, Label: probe, Rows: []view.WhyRow{{Figure: probe, Label: probe, Note: probe}}}
	entry := view.AuditEntry{}
	entry.Resource, entry.Because, entry.Outcome, entry.Actor = probe, probe, probe, probe
	var b strings.Builder
	for name, err := range map[string]error{
		"row":    machineRow(v, &m).Render(t.Context(), &b),
		"teams":  teams(&scan).Render(t.Context(), &b),
		"audit":  auditTable([]view.AuditEntry{entry}, true).Render(t.Context(), &b),
		"why":    whyContent(why).Render(t.Context(), &b),
		"secret": secretContent(view.NewToken{Token: view.Token{Name: probe}, Secret: probe}).Render(t.Context(), &b),
		"empty":  empty(probe, probe).Render(t.Context(), &b),
		"error":  missing(probe, errors.New(probe)).Render(t.Context(), &b),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text := b.String(); strings.Contains(text, "<script") || strings.Contains(text, "<img") ||
		!strings.Contains(text, "&lt;script&gt;") {
		t.Error(text)
	}
}

// TestDocumentsAreReadOnce lets many pages ask for a document at the same time.
func TestDocumentsAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := documents{now: time.Now}
		var reads atomic.Int64
		slow := func() (any, error) {
			time.Sleep(100 * time.Millisecond)
			return reads.Add(1), nil
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if got, err := d.get("k", "", slow); got != int64(1) || err != nil {
					t.Error(got, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * documentsFor)
		if got, _ := d.get("k", "", slow); got != int64(1) {
			t.Errorf("a slow read keeps a page waiting: %v", got)
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got, _ := d.get("k", "", slow); got != int64(2) {
			t.Errorf("the document was not renewed: %v", got)
		}
		d.forget()
		if got, _ := d.get("k", "", slow); got != int64(3) {
			t.Errorf("after a change: %v", got)
		}
		time.Sleep(2 * staleFor)
		if got, _ := d.get("k", "", slow); got != int64(4) {
			t.Errorf("after a long time: %v", got)
		}
		failing := errors.New("no")
		for range 2 { // an error is not kept
			_, err := d.get("e", "", func() (any, error) { reads.Add(1); return nil, failing })
			if !errors.Is(err, failing) {
				t.Error(err)
			}
		}
		if reads.Load() != 6 {
			t.Errorf("%d reads", reads.Load())
		}
	})
}

// TestUnchangedObservationsAreNotReadAgain keeps an answer for a minute, or until the accounts were
// read again.
func TestUnchangedObservationsAreNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := documents{now: time.Now}
		reads := 0
		read := func(version string) any {
			got, _ := d.get("k", version, func() (any, error) { reads++; return reads, nil })
			return got
		}
		read("monday")
		time.Sleep(unchangedFor - time.Second)
		if got := read("monday"); got != 1 {
			t.Errorf("unchanged observations were read %v times", got)
		}
		if got := read("tuesday"); got != 2 {
			t.Errorf("newer observations: the answer is the read number %v", got)
		}
		time.Sleep(2 * documentsFor)
		if got := read(""); got != 3 {
			t.Errorf("of an unknown version: the answer is the read number %v", got)
		}
		time.Sleep(unchangedFor)
		if got := read("tuesday"); got != 4 {
			t.Errorf("after a minute: the answer is the read number %v", got)
		}
	})
}

// BenchmarkPageOfFleet draws pages and filters of 20,000 machines.
func BenchmarkPageOfFleet(b *testing.B) {
	machines := make([]machine, 20_000)
	for i := range machines {
		team, duty := []string{"vision", "speech", ""}[i%3], []string{"idle", "busy"}[i%2]
		machines[i] = machineOf(fmt.Sprintf("i-%05d", i), team, duty, "running", i%97)
	}
	f := newFleet(machines)
	for _, query := range []string{
		"", "team=vision&sort=name", "q=i-19", "sort=-since&page=7", "duty=idle&group=team",
	} {
		u, err := url.Parse("/machines?" + query)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(query, func(b *testing.B) {
			for b.Loop() {
				if rows, _, _ := f.page(machineQueryOf(u)); len(rows) == 0 {
					b.Fatal("an empty page")
				}
			}
		})
	}
}

// TestNextMondayIsAhead offers a Monday that has not begun.
func TestNextMondayIsAhead(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
	for day := range 14 {
		at := now.AddDate(0, 0, day)
		got, err := time.Parse(time.RFC3339, nextMonday(at))
		if err != nil || got.Weekday() != time.Monday || !got.After(at) || got.Sub(at) > 8*24*time.Hour {
			t.Error(fmt.Sprint(at), got, err)
		}
	}
}
