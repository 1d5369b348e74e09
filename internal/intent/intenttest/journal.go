package intenttest

import (
	"context"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
)

// Record is a subject as stored in a [Journal].
type Record struct {
	Step    intent.Step
	Version int64
}

// Entry is one write of a [Journal].
type Entry struct {
	ID   string
	Key  string
	What intent.Event
	At   time.Time
}

// Journal stores steps by the IDs of their subjects. Every write is conditional.
type Journal struct {
	state State[journal]
	now   func() time.Time
}

type journal struct {
	Records map[string]Record
	Entries []Entry
}

// NewJournal returns an empty journal in memory.
func NewJournal(now func() time.Time) *Journal { return &Journal{now: now} }

// OpenJournal returns the journal stored in a directory.
func OpenJournal(dir string, now func() time.Time) *Journal {
	return &Journal{state: State[journal]{Path: filepath.Join(dir, "journal.json")}, now: now}
}

// Read returns the record of a subject; zero if there is none.
func (j *Journal) Read(id string) (r Record) {
	must(j.state.Do(func(v *journal) error { r = v.Records[id]; return nil }))
	return r
}

// Save writes the step of a subject if its version is unchanged, and returns the next version;
// [intent.ErrConflict] otherwise.
func (j *Journal) Save(ctx context.Context, id string, r Record, what intent.Event) (Record, error) {
	err := j.state.In(ctx, func(v *journal) error {
		if v.Records[id].Version != r.Version {
			return intent.ErrConflict
		}
		if v.Records == nil {
			v.Records = map[string]Record{}
		}
		r.Version++
		v.Records[id] = r
		v.Entries = append(v.Entries, Entry{ID: id, Key: r.Step.Key, What: what, At: j.now()})
		return nil
	})
	return r, err
}

// Entries returns the writes in order.
func (j *Journal) Entries() (out []Entry) {
	must(j.state.Do(func(v *journal) error { out = v.Entries; return nil }))
	return out
}

// Subject is an [intent.Subject] of one process, with a journal and a provider.
type Subject struct {
	ID       string
	Journal  *Journal
	Provider *Provider
	// Record is the last record that this process read or wrote.
	Record Record
	// Boundary, if set, is called before and after each external call.
	Boundary func()
}

var _ intent.Subject = (*Subject)(nil)

// Open reads a subject.
func Open(id string, j *Journal, p *Provider) *Subject {
	return &Subject{ID: id, Journal: j, Provider: p, Record: j.Read(id)}
}

func (s *Subject) boundary() {
	if s.Boundary != nil {
		s.Boundary()
	}
}

// Keep implements [intent.Subject].
func (s *Subject) Keep(ctx context.Context, step intent.Step, what intent.Event) error {
	s.boundary()
	defer s.boundary()
	kept, err := s.Journal.Save(ctx, s.ID, Record{Step: step, Version: s.Record.Version}, what)
	if err == nil {
		s.Record = kept
	}
	return err
}

// Call implements [intent.Subject].
func (s *Subject) Call(ctx context.Context, step intent.Step) (string, error) {
	s.boundary()
	defer s.boundary()
	return s.Provider.Call(ctx, s.ID, step)
}

// Look implements [intent.Subject].
func (s *Subject) Look(ctx context.Context, step intent.Step) (intent.Progress, string, error) {
	s.boundary()
	defer s.boundary()
	return s.Provider.Look(ctx, step)
}

// must panics on an error, which only a damaged file can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
