package round

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Recording is usage that was recorded outside the account.
type Recording interface {
	// Name is the file's, for people.
	Name() string
	// Collect hands the samples to the sinks that resolve returns for a name; samples of a
	// name without a sink are left out.
	Collect(ctx context.Context, resolve func(name string, step time.Duration) usage.Sink) (usage.Summary, error)
}

// recorded is a recording as a source of an account's usage. It knows resources by their
// ids, names and aliases; a name that two resources have is of neither, also when only
// one of them is read again.
type recorded struct {
	Recording
	named     map[string]*inventory.Resource
	ambiguous map[string]bool
}

// Recorded returns a recording as a source.
func Recorded(r Recording) usage.Source {
	return &recorded{Recording: r, named: map[string]*inventory.Resource{}, ambiguous: map[string]bool{}}
}

// maxNamed is how many names a blind spot lists.
const maxNamed = 5

// Measure implements [usage.Source].
func (s *recorded) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	here := map[inventory.Ref]*inventory.Resource{}
	for _, r := range resources {
		if !r.Kind.Traits().Measured {
			continue
		}
		here[r.Ref()] = r
		for _, name := range slices.Concat([]string{r.ID, r.Name}, r.Aliases) {
			if known := s.named[name]; known != nil && known.Ref() != r.Ref() {
				s.ambiguous[name] = true
			}
			s.named[name] = r
		}
	}
	unmatched := map[string]bool{}
	_, err := s.Collect(ctx, func(name string, step time.Duration) usage.Sink {
		r := s.named[name]
		if name == "" || r == nil || s.ambiguous[name] {
			if len(unmatched) < maxNamed {
				unmatched[name] = true
			}
			return nil
		}
		if here[r.Ref()] == nil {
			return nil
		}
		sink := open(here[r.Ref()], usage.SourceInfo{Step: step, Source: "recorded"})
		if sink == nil {
			return nil
		}
		return within{sink, iv}
	})
	if err != nil || len(unmatched) == 0 {
		return usage.MeasureResult{}, err
	}
	return usage.MeasureResult{BlindSpots: []inventory.BlindSpot{{
		What:   "recorded usage " + s.Name(),
		Why:    "no single running resource has the id or name " + names(unmatched),
		Effect: "their samples were not used",
	}}}, nil
}

func names(set map[string]bool) string {
	list := slices.Sorted(maps.Keys(set))
	if len(list) == maxNamed {
		list = append(list, "…")
	}
	return strings.Join(list, ", ")
}

// within leaves out points outside of an interval.
type within struct {
	usage.Sink
	iv usage.Interval
}

// Add implements [usage.Sink].
func (w within) Add(gpu string, s usage.Signal, p usage.Point) bool {
	return !p.Time.Before(w.iv.From) && p.Time.Before(w.iv.To) && w.Sink.Add(gpu, s, p)
}
