package spend

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// sessionBooks is a ledger that knows the session or job of each machine.
type sessionBooks struct {
	ledger.Store
	// names maps "cloud/machine id" to the name of the session, or of the job for an attempt.
	names map[string]string
}

// withSessions returns the ledger of a state with the names of its sessions.
func withSessions(ctx context.Context, s *store.Store) (ledger.Store, error) {
	jobs, err := s.Jobs().Jobs(ctx, job.Query{})
	if err != nil {
		return nil, err
	}
	jobNames := map[string]string{}
	for _, j := range jobs {
		jobNames[j.ID] = j.Name
	}
	sessions, err := s.Sessions().Sessions(ctx, session.Query{})
	if err != nil {
		return nil, err
	}
	b := sessionBooks{s.Ledger(), map[string]string{}}
	for _, one := range sessions {
		for _, m := range one.EveryMachine() {
			b.names[one.Provider+"/"+m.ID] = cmp.Or(jobNames[one.Job], one.Name)
		}
	}
	return b, nil
}

// name returns the session or job of a resource by its reference; empty if it belongs to none.
func (b sessionBooks) name(ref string) string {
	parts := strings.SplitN(ref, "/", 5)
	if len(parts) < 5 || parts[3] != string(inventory.KindInstance) {
		return ""
	}
	return b.names[parts[0]+"/"+parts[4]]
}

// bySession reports whether a query groups or filters by session.
func bySession(q ledger.SumQuery) bool {
	return slices.Contains(q.By, ledger.BySession) ||
		slices.ContainsFunc(q.Filter, func(m ledger.Match) bool { return m.By == ledger.BySession })
}

// Sums implements ledger.Store. It queries by resource and adds the session of each.
func (b sessionBooks) Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error) {
	if !bySession(q) {
		return b.Store.Sums(ctx, q)
	}
	asked, wanted, at := q, [][]string(nil), slices.Index(q.By, ledger.BySession)
	asked.By = slices.DeleteFunc(slices.Clone(q.By), func(d ledger.Dimension) bool { return d == ledger.BySession })
	asked.Filter = nil
	for _, m := range q.Filter {
		if m.By == ledger.BySession {
			wanted = append(wanted, m.Values)
		} else {
			asked.Filter = append(asked.Filter, m)
		}
	}
	asked.By = append(asked.By, ledger.ByResource)
	sums, err := b.Store.Sums(ctx, asked)
	if err != nil {
		return nil, err
	}
	var out []ledger.Sum
	for _, s := range sums {
		last := len(s.Key) - 1
		name := b.name(s.Key[last])
		if slices.ContainsFunc(wanted, func(values []string) bool { return !slices.Contains(values, name) }) {
			continue
		}
		s.Key = s.Key[:last:last]
		if at >= 0 {
			s.Key = slices.Insert(slices.Clone(s.Key), at, name)
		}
		out = append(out, s)
	}
	return out, nil
}
