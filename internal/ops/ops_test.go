package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/view"
)

// served returns the input that a service receives for a given one.
func served[I, D any](t *testing.T, o Operation[I, D], in I) I {
	t.Helper()
	var got I
	o.Do = func(_ context.Context, _ *Call, in I) (Reply[D], error) {
		got = in
		return Reply[D]{}, nil
	}
	o.List = nil
	mux := http.NewServeMux()
	config := huma.DefaultConfig("test", "1")
	config.RejectUnknownQueryParameters = true
	o.Register(humago.New(mux, config), huma.Operation{OperationID: o.ID, Method: o.Method, Path: o.Path},
		func(hc huma.Context, carryOut Handler) {
			if _, err := carryOut(hc.Context(), &Call{}); err != nil {
				t.Error(err)
			}
		})
	req := encode(o.Path, in)
	var body io.Reader
	if req.body != nil {
		text, err := json.Marshal(req.body)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	r := httptest.NewRequestWithContext(t.Context(), o.Method, req.path+"?"+req.query.Encode(), body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Errorf("%s %s: status %d: %s", r.Method, r.URL, w.Code, w.Body)
	}
	return got
}

// checkServed compares the sent with the received input.
func checkServed[I, D any](t *testing.T, o *Operation[I, D], in I) {
	t.Helper()
	if got := served(t, *o, in); !reflect.DeepEqual(got, in) {
		t.Errorf("%s arrives changed: %s", o.ID, cmp.Diff(in, got))
	}
}

func TestServiceReceivesInput(t *testing.T) {
	id := ByID{ID: "a/b c?d"}
	page := Paging{Limit: 7, Cursor: cursor("x")}
	checkServed(t, GetResource, id)
	checkServed(t, ListAccounts, page)
	checkServed(t, ListResources, ListInput{Paging: page, Account: "1", Region: "r", Kind: "instance", Team: "a&b"})
	checkServed(t, GetCosts, spend.CostsQuery{
		Period: runtime.Period{Since: "7d", Until: "2026-11-01"}, By: "team,duty", Granularity: "day",
		Where: []string{"team=a,b", "duty=idle"},
	})
	checkServed(t, GetUnitCosts, UnitsInput{
		Granularity: "total", Counts: "gpu-hours", Units: []string{"hour"}, Per: 1000, Target: "2.5",
	})
	checkServed(t, GetLastScan, LastScanInput{Cloud: "sim", Samples: true})
	checkServed(t, GetSession, SessionInput{ByID: id, Hosts: false})
	checkServed(t, GetSession, SessionInput{ByID: id, Hosts: true})
	checkServed(t, ListAudit, AuditInput{Paging: page, Newest: 3, Since: time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC)})
	checkServed(t, ListHolds, HoldsInput{Paging: page, Period: runtime.Period{Since: "30d"}})
	var keep KeepInput
	keep.ByID, keep.Body.For, keep.Body.Reason = id, "24h", "demo"
	checkServed(t, KeepResource, keep)
	var up UpInput
	up.Body.Name, up.Body.CPUs, up.Body.Lease, up.Body.Regions = "demo", 2, "4h", []string{"us-east-1"}
	checkServed(t, Up, up)
	var fix FixFindingsInput
	fix.Body.IDs, fix.Body.Grace, fix.Body.Save = []string{"9c6e"}, "15m", true
	checkServed(t, FixFindings, fix)
}

func TestLocalFieldsAreNotSent(t *testing.T) {
	var work GateInput
	work.Body.Content, work.File, work.Votes, work.GitHub, work.Stdin = "x", "job.yaml", "votes.yaml", true,
		strings.NewReader("x")
	got := served(t, *Gate, work)
	if got.File != "" || got.Votes != "" || got.GitHub || got.Stdin != nil {
		t.Errorf("a service got %+v", got)
	}
	var bill ImportBillInput
	bill.Body.Path, bill.File, bill.Profile = "s3://b/x", "s3://b/x", "mine"
	if got := served(t, *ImportBill, bill); got.File != "" || got.Profile != "" {
		t.Errorf("a service got the file %q and the profile %q", got.File, got.Profile)
	}
}

func TestOperationsAreDeclaredOnce(t *testing.T) {
	ids, places, commands := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range All() {
		o := e.Describe()
		if ids[o.ID] || places[o.Method+" "+o.Path] || o.Command != "" && commands[o.Command] {
			t.Errorf("%s is declared twice, or has the path or command of another operation", o.ID)
		}
		ids[o.ID], places[o.Method+" "+o.Path], commands[o.Command] = true, true, true
		if o.Summary == "" || o.Schema == "" || !strings.HasPrefix(o.Path, prefix) ||
			!slices.Contains(approval.ServiceRoles, o.Role) {
			t.Errorf("%s lacks a summary, a schema, a path or a role: %+v", o.ID, o)
		}
		if o.Mutates() && o.Role == approval.RoleViewer {
			t.Errorf("%s may change something, and a viewer may call it", o.ID)
		}
		if o.Command != "" && o.Why == "" {
			t.Errorf("%s has the command %s and no reason for where it runs", o.ID, o.Command)
		}
	}
}

func TestPagesAddUpToCollection(t *testing.T) {
	whole := view.Keeps{Schema: view.KeepsSchema}
	for i := range 11 {
		whole.Keeps = append(whole.Keeps, view.Keep{Resource: string(rune('a' + i))})
	}
	o := *ListKeeps
	o.Do = func(context.Context, *Call, Paging) (Reply[view.Keeps], error) {
		doc := whole
		doc.Keeps = slices.Clone(whole.Keeps)
		return reply(doc, nil)
	}
	for _, limit := range []int{0, 1, 4, 10, 11, 12} {
		var got view.Keeps
		p := Paging{Limit: limit}
		for pages := 0; ; pages++ {
			r, err := o.carryOut(t.Context(), &Call{}, p)
			if err != nil || pages > len(whole.Keeps) {
				t.Fatalf("limit %d: page %d: %v", limit, pages, err)
			}
			o.List.join(&got, r.Doc)
			if p.Cursor = r.Next; r.Next == "" {
				break
			}
		}
		if !reflect.DeepEqual(got.Keeps, whole.Keeps) {
			t.Errorf("pages of %d come to %d of %d keeps", limit, len(got.Keeps), len(whole.Keeps))
		}
	}
	if _, err := o.carryOut(t.Context(), &Call{}, Paging{Cursor: cursor("gone")}); err == nil {
		t.Error("a cursor of no item is taken")
	}
}

// TestZeroPageIsWholeCollection lists what the state pages by itself, without a limit.
func TestZeroPageIsWholeCollection(t *testing.T) {
	req := apptest.Request(t, "")
	_, state, err := req.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for _, id := range []string{"1a", "2b", "3c"} {
		it := action.Item{
			ID:         id,
			Account:    "sim/1",
			Source:     "idle",
			Phase:      action.Observed,
			FirstRound: 1,
			FirstAt:    apptest.Now,
			UpdatedAt:  apptest.Now,
			Ref: inventory.Ref{
				Cloud: "sim", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: id,
			},
			Do: policy.Do{Verb: policy.Stop},
		}
		entry := action.Entry{
			At: apptest.Now, Account: it.Account, Actor: "policy idle", What: action.EventObserved,
			Resource: it.Ref.String(),
			Item:     id,
		}
		if _, err := state.Actions().Save(t.Context(), it, entry); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := ListActions.Call(t.Context(), &Place{Local: &Call{Request: req, Owner: true}}, Paging{})
	if err != nil || len(doc.Actions) != 3 {
		t.Errorf("%d of 3 actions, %v", len(doc.Actions), err)
	}
}

func TestFlagsComeFromInput(t *testing.T) {
	in := HoldsInput{}
	fs := pflag.NewFlagSet("holds", pflag.ContinueOnError)
	ListHolds.AddFlags(fs, &in)
	if err := fs.Parse(nil); err != nil || in.Since != "30d" || in.Limit != 0 {
		t.Errorf("without flags the input is %+v, %v", in, err)
	}
	var bill BillInput
	fs = pflag.NewFlagSet("bill", pflag.ContinueOnError)
	GetBills.AddFlags(fs, &bill)
	if err := fs.Parse([]string{"--by", "project", "--since", "7d"}); err != nil || bill.By != "project" ||
		bill.Basis != "billed" || bill.Since != "7d" {
		t.Errorf("the input is %+v, %v", bill, err)
	}
	if err := fs.Parse([]string{"--by", "projct"}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "project"?`) && !strings.Contains(err.Error(), "project") {
		t.Errorf("an unknown value: %v", err)
	}
}

// TestHelpListsExistingValues compares the lists in tags with the packages that own them.
func TestHelpListsExistingValues(t *testing.T) {
	fs := pflag.NewFlagSet("costs", pflag.ContinueOnError)
	GetCosts.AddFlags(fs, &spend.CostsQuery{})
	var names []string
	for _, d := range append(slices.Clone(ledger.Dimensions), ledger.BySession) {
		names = append(names, string(d))
	}
	if help, want := fs.Lookup("by").Usage, strings.Join(names, ", "); !strings.HasSuffix(help, ": "+want) {
		t.Errorf("--by of costs lists %q, want %s", help, want)
	}
	fs = pflag.NewFlagSet("shares", pflag.ContinueOnError)
	GetCostShares.AddFlags(fs, &TenantSharesInput{})
	if by := fs.Lookup("by").Value.(*Choice); !slices.Equal(by.Allowed(), costs.Groups) {
		t.Errorf("--by of shares takes %v, want %v", by.Allowed(), costs.Groups)
	}
}
