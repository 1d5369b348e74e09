// Package storetest is the conformance suite of persistent state: each sentence of action.Store,
// approval.Store, bill.Store, ledger.Store, budget.Store, gate.Store, snapshot.Store and
// session.Store has a test, with concurrent connections and, if the state is shared, concurrent
// processes.
package storetest

import (
	"fmt"
	"os/exec"
	"reflect"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/snapshot"
)

// Backend is a state under test, initially empty.
type Backend struct {
	Actions   action.Store
	Approvals approval.Store
	Bills     bill.Store
	Ledger    ledger.Store
	Budgets   budget.Store
	Gate      gate.Store
	Snapshots snapshot.Store
	Sessions  session.Store
	// Reopen opens the same state again, as another process would.
	Reopen func(tb testing.TB) *Backend
	// Child returns an unstarted process that opens the same state and runs a job with [Work].
	Child func(tb testing.TB, job Job) *exec.Cmd
	// inMemory is true if the state ends with its process, so that Reopen returns the same
	// connection.
	inMemory bool
	// Check fails the test if the database is inconsistent.
	Check func(tb testing.TB)
}

// test is one thing that must hold.
type test struct {
	name string
	run  func(t *testing.T, b *Backend)
}

// outliving returns a test of state that survives its process.
func outliving(run func(t *testing.T, b *Backend)) func(t *testing.T, b *Backend) {
	return func(t *testing.T, b *Backend) {
		if b.inMemory {
			t.Skip("a state in memory ends with its process")
		}
		run(t, b)
	}
}

// group is the contract of one part of a state.
type group struct {
	name  string
	tests []test
}

// ofActions are the groups about [action.Store].
var ofActions = []group{
	{"rounds", rounds}, {"items", items}, {"caps", caps}, {"freeze", freezes}, {"fuses", fuses}, {"keeps", keeps},
	{"notices", notices}, {"audit", audits},
}

// Run runs the suite on a backend; open returns an empty one for each test.
func Run(t *testing.T, open func(t *testing.T) *Backend) {
	t.Helper()
	run(t, ofActions, open)
	run(t, []group{
		{"approvals", approvals}, {"bills", bills}, {"ledger", ledgers}, {"folds", folds}, {"budgets", budgets},
		{"gate", gates}, {"snapshots", snapshots}, {"sessions", sessions}, {"processes", processes},
	}, open)
}

// RunInMemory runs the suite on an action.Store that ends with its process. Concurrent connections
// are goroutines; tests of surviving state are skipped.
func RunInMemory(t *testing.T, open func(t *testing.T) action.Store) {
	t.Helper()
	run(t, ofActions, func(t *testing.T) *Backend {
		b := &Backend{Actions: open(t), inMemory: true, Check: func(testing.TB) {}}
		b.Reopen = func(testing.TB) *Backend { return b }
		return b
	})
}

func run(t *testing.T, groups []group, open func(t *testing.T) *Backend) {
	t.Helper()
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.tests {
				t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
			}
		})
	}
}

// The scope of most tests.
const (
	account = "aws/123456789012"
	source  = "idle-gpu-machines"
)

// noon is the time of most tests.
var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// ample are limits that no test exceeds.
var ample = policy.Limits{PerHour: 1 << 20, Share: 1, DollarsPerHour: 1 << 60}

// machine returns an observed item on a separate machine.
func machine(id string) action.Item {
	return action.Item{
		ID: id, Account: account, Source: source, Phase: action.Observed, FirstRound: 1,
		FirstAt: noon, UpdatedAt: noon,
		Ref: inventory.Ref{
			Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-" + id,
		},
		Do: policy.Do{Verb: policy.Terminate, Members: []string{"i-1", "i-2"}},
	}
}

// intended returns an item with the intent of its first step.
func intended(it action.Item) action.Item {
	it.Phase = action.Acting
	it.Steps = []action.Step{{Name: "terminate", Key: it.ID + "-0", IntentAt: noon}}
	return it
}

// entry returns an entry about an item.
func entry(what string, it action.Item) action.Entry {
	return action.Entry{
		At: noon, Account: it.Account, Actor: "policy " + it.Source, What: what,
		Resource: it.Ref.String(), Item: it.ID,
	}
}

// batch requests actions on new items with the given names.
func batch(names ...string) action.Batch {
	b := action.Batch{Account: account, Source: source, Round: 2, Now: noon, Limits: ample, Selected: 1 << 20}
	for _, name := range names {
		b.Admissions = append(b.Admissions, action.Admission{Item: intended(machine(name))})
	}
	return b
}

// must returns a value and requires that there is no error.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// no fails the test with an error.
func no(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// filled returns a value without zero fields, so that a field that is not stored is noticed.
func filled[T any]() T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return v
}

func fill(v reflect.Value, n *int) {
	*n++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(noon.Add(time.Duration(*n) * time.Microsecond)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("ä %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 8)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		panic("a kind of field that the suite does not fill: " + v.Type().String())
	}
}
