package cloudtest

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// TestMachines runs the conformance suite of launchers on [Machines], in memory and in a file.
func TestMachines(t *testing.T) {
	pool := session.Pool{Type: "g6.xlarge", Region: "here", Zone: "here-a"}
	other := session.Pool{Type: "g6.xlarge", Region: "here", Zone: "here-b"}
	for name, file := range map[string]bool{"in memory": false, "in a file": true} {
		t.Run(name, func(t *testing.T) {
			TestLauncher(t, func(tb testing.TB) LauncherCase {
				var mu sync.Mutex
				now := time.Now()
				clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
				stock := []Stock{{pool, 8}, {other, 8}}
				m := NewMachines(clock, stock...)
				if file {
					m = OpenMachines(filepath.Join(tb.TempDir(), "machines.json"), clock, stock...)
				}
				m.Delay(0, 2*time.Second, 3*time.Second)
				return LauncherCase{
					Launcher: m, Nodes: 4,
					Again: func(testing.TB) session.Launcher { return m },
					Spec: &spec.Spec{
						Kind: spec.Session, Name: "demo", Resources: spec.Resources{
							InstanceType: "g6.xlarge", Nodes: 1,
						},
						Capacity: spec.OnDemand,
					},
					Impossible: &spec.Spec{
						Kind: spec.Session, Name: "demo", Resources: spec.Resources{InstanceType: "x9.huge", Nodes: 1},
						Capacity: spec.OnDemand,
					},
					Pass: func(testing.TB) { mu.Lock(); defer mu.Unlock(); now = now.Add(time.Second) },
					Left: func(_ testing.TB, id string) map[string]map[string]string { return m.Left(id) },
					Inject: func(_ testing.TB, f LaunchFault) bool {
						switch f {
						case NoCapacity:
							m.Fail(MachineFault{On: "launch", Message: "launch", Class: session.ErrCapacity})
						case OverQuota:
							m.Fail(MachineFault{On: "launch", Message: "launch", Class: session.ErrQuota})
						case NotOffered:
							m.Fail(MachineFault{On: "launch", Message: "launch", Class: session.ErrUnsupported})
						case Lost:
							m.Fail(MachineFault{On: "launch", Message: "reset", Carried: true})
						case Broken:
							m.Fail(MachineFault{On: "launch", Message: "reset"})
						case Late:
							m.Delay(5*time.Second, 2*time.Second, 3*time.Second)
						}
						return true
					},
				}
			})
		})
	}
}

// TestStockFollowsLaunches checks that launches consume a pool's capacity within the quota and that ends return
// it.
func TestStockFollowsLaunches(t *testing.T) {
	pool := session.Pool{Type: "g6.xlarge", Zone: "here-a"}
	now := time.Now()
	m := NewMachines(func() time.Time { return now }, Stock{pool, 4})
	launch := func(token string, nodes int) error {
		_, err := m.Launch(t.Context(), session.Launch{
			Token: token, Session: session.Session{ID: token}, Pool: pool, Nodes: nodes,
		})
		return err
	}
	if err := launch("a", 3); err != nil {
		t.Fatal(err)
	}
	//nolint:errorlint // classOf returns the class itself
	if err := launch("b", 2); classOf(err) != session.ErrCapacity {
		t.Errorf("two of one: %v", err)
	}
	if n := len(m.Left("b")); n != 0 {
		t.Errorf("%d are there", n)
	}
	m.Quota(3)
	if err := launch("c", 1); classOf(err) != session.ErrQuota { //nolint:errorlint // as above
		t.Errorf("a fourth of three: %v", err)
	}
	m.Quota(0)
	m.Lose("m-1")
	if err := launch("b", 2); err != nil {
		t.Errorf("two of two: %v", err)
	}
}
